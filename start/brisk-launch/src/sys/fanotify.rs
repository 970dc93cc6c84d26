//! Which files are opened in a file system (fanotify(7)).

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{Errno, Result};

use super::last_errno;

/// A fanotify group that reports which files are opened. EPERM without root, ENOSYS if the kernel has no
/// fanotify.
pub fn watch_opens() -> Result<OwnedFd> {
    let flags = libc::FAN_CLASS_NOTIF
        | libc::FAN_CLOEXEC
        | libc::FAN_NONBLOCK
        | libc::FAN_UNLIMITED_QUEUE
        | libc::FAN_UNLIMITED_MARKS;
    let opened = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC;
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::fanotify_init(flags, opened.cast_unsigned()) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the call has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes `group` report files and directories that are opened in the file system of `path`. EINVAL before Linux 4.20.
pub fn watch_file_system(group: BorrowedFd<'_>, path: &CStr) -> Result<()> {
    let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    let group = group.as_raw_fd();
    let what = libc::FAN_OPEN | libc::FAN_ONDIR;
    // SAFETY: `path` ends with a zero byte and lives through the call, which reads it only; the
    // descriptor is borrowed as long.
    let result = unsafe { libc::fanotify_mark(group, flags, what, libc::AT_FDCWD, path.as_ptr()) };
    match result {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// The watched files and directories that were opened since the last call, with the number of the process that opened each.
/// Empty if there are none at the moment.
pub fn opened_files(group: BorrowedFd<'_>) -> Result<Vec<(OwnedFd, i32)>> {
    /// `struct fanotify_event_metadata`.
    const LEN: usize = 24;
    const FD: usize = 16;
    const PID: usize = 20;
    // No more events than a process surely has descriptors for.
    let mut buffer = [0u8; 128 * LEN];
    let len = match rustix::io::read(group, &mut buffer) {
        Err(Errno::AGAIN) => 0,
        result => result?,
    };
    let mut rest = buffer.get(..len).unwrap_or_default();
    let mut files = Vec::new();
    let number = |at: usize, event: &[u8]| {
        let bytes = event.get(at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    while let Some(event_len) = number(0, rest) {
        let fd = number(FD, rest).map_or(-1, u32::cast_signed);
        if fd >= 0 {
            // SAFETY: the kernel made this descriptor for this event, which is read once; nobody
            // else knows it.
            let file = unsafe { OwnedFd::from_raw_fd(fd) };
            files.push((file, number(PID, rest).unwrap_or(0).cast_signed()));
        }
        rest = rest
            .get((event_len as usize).max(LEN)..)
            .unwrap_or_default();
    }
    Ok(files)
}
