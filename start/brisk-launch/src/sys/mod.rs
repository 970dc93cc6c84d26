//! The ground floor: what the kernel offers and no crate wraps safely, a file for each facility.
//!
//! No file here imports anything of this crate from above. Each descriptor whose driver gives an ioctl its meaning is in a
//! type that has checked its device.

pub(crate) mod fanotify;
pub(crate) mod inherited;
pub mod process;
pub(crate) mod ptrace;
pub mod signal;

use std::io;

use rustix::io::Errno;

/// The system's number of the last error of this thread.
pub fn last_errno() -> Errno {
    errno(io::Error::last_os_error())
}

/// The system's number of an error. EIO if it has none.
pub fn errno(e: io::Error) -> Errno {
    Errno::from_io_error(&e).unwrap_or(Errno::IO)
}
