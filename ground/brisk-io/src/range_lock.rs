use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Locks one byte of a file against all other open files, of this and of other processes, if nobody has it.
/// Returns whether it is locked now.
///
/// The byte need not exist. The lock belongs to the open file (`F_OFD_SETLK`), as `flock`'s does: it ends when the last
/// descriptor of that open file is closed, which the kernel does for a process that is killed. Threads that are to
/// exclude each other each open the file.
///
/// # Errors
///
/// Those of `fcntl`: `EBADF` if the file is not open for writing, `EINVAL` for an offset past `i64::MAX` or before Linux
/// 3.15, `ENOLCK` if the filesystem has no locks.
pub fn try_lock_byte(file: impl AsFd, offset: u64) -> io::Result<bool> {
    let start = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: 1,
        // The kernel asks that this is zero.
        l_pid: 0,
    };
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the call only reads `lock`, which lives through it, and the descriptor is open as long as `file` is
    // borrowed.
    let answer = unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const lock) };
    if answer == 0 {
        return Ok(true);
    }
    let e = io::Error::last_os_error();
    match e.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn a_byte_has_one_holder_and_is_free_when_the_holder_is_closed() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(path.path())
                .unwrap()
        };
        let (first, second) = (open(), open());
        let far = i64::MAX as u64 - 1;
        assert!(try_lock_byte(&first, far).unwrap());
        assert!(!try_lock_byte(&second, far).unwrap());
        assert!(try_lock_byte(&second, 7).unwrap());
        drop(first);
        assert!(try_lock_byte(&second, far).unwrap());
        let e = try_lock_byte(&second, u64::MAX).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
    }
}
