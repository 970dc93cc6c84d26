//! Which of the system calls that make reading faster this process may use.
//!
//! The release of Linux does not say: a container's seccomp filter refuses single calls, and filesystems
//! differ. So these functions try each call once, in a way that changes nothing.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::ByteSource;
use crate::page_cache::cached_pages;

/// `struct io_uring_params`, which has 120 bytes since Linux 5.1, as numbers of 32 bits.
type RingParams = [u32; 30];

/// Tries whether a read of `file`, which must not be empty, can fail instead of waiting (`RWF_NOWAIT`, Linux
/// 4.14).
///
/// # Errors
///
/// Those of the kernel: `Unsupported` if the filesystem cannot do this, and `UnexpectedEof` if the kernel
/// reads nothing from a file that is not empty (a fault of Linux 5.9 and 5.10).
pub fn try_nowait(file: &File) -> io::Result<()> {
    let mut byte = [0];
    match preadv2(
        file,
        &mut [IoSliceMut::new(&mut byte)],
        0,
        ReadWriteFlags::NOWAIT,
    ) {
        Ok(0) if ByteSource::size(file)? > 0 => Err(io::ErrorKind::UnexpectedEof.into()),
        // "Not in memory" also means that the call works.
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Tries whether the kernel says how much of `file` is in memory (`cachestat`, Linux 6.5). Since Linux 6.14
/// it says so only to a caller that owns the file or may write it.
///
/// # Errors
///
/// Those of the kernel.
pub fn try_cachestat(file: &File) -> io::Result<()> {
    cached_pages(file, 0, 1).map(drop)
}

/// Tries whether this process may use io_uring.
///
/// # Errors
///
/// Those of the kernel: `PermissionDenied` if a setting of the system or a filter refuses it.
pub fn try_io_uring() -> io::Result<()> {
    let mut params: RingParams = [0; 30];
    // SAFETY: the call reads and writes 120 bytes at `params`, which has as many, and which lives through
    // it; all of them may be anything.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    let Ok(fd @ 0..) = RawFd::try_from(fd) else {
        return Err(io::Error::last_os_error());
    };
    // SAFETY: the descriptor is a new one, which nobody else knows.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_refused_is_said_and_nothing_stays_open() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(b"text").unwrap();
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        for tried in [try_nowait(&file), try_cachestat(&file), try_io_uring()] {
            if let Err(e) = tried {
                let refusals = [
                    Errno::OPNOTSUPP,
                    Errno::NOSYS,
                    Errno::PERM,
                    Errno::ACCESS,
                    Errno::INVAL,
                ];
                let errno = e.raw_os_error().map(Errno::from_raw_os_error);
                let is_refusal = errno.is_some_and(|errno| refusals.contains(&errno));
                assert!(
                    is_refusal || e.kind() == io::ErrorKind::UnexpectedEof,
                    "{e}"
                );
            }
        }
        // Other tests of this process may open files at the same time, but not a hundred.
        for _ in 0..100 {
            try_io_uring().ok();
        }
        assert!(open() < before + 100);
    }

    #[test]
    fn of_an_empty_file_nothing_is_a_right_answer() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        if let Err(e) = try_nowait(&file) {
            assert_ne!(e.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
