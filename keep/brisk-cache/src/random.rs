use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// A random number that is not zero.
///
/// From the kernel, because a forked child has a copy of every generator of its parent.
pub(crate) fn number() -> io::Result<u64> {
    loop {
        let mut bytes = [0; 8];
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            Ok(8) if bytes != [0; 8] => return Ok(u64::from_le_bytes(bytes)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
