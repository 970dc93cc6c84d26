//! Opens files of any kind without waiting.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::error::Cause;

pub use brisk_io::open_at_once as open_file;

/// Opens a directory as a path only.
pub fn open_directory(path: &Path) -> Result<OwnedFd, Cause> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
        .map_err(|e| Cause::io(format!("open {}", path.display()), e))
}

/// The device that a process without streams of its own reads and writes.
pub fn open_null() -> Result<OwnedFd, Cause> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    openat(CWD, "/dev/null", flags, Mode::empty()).map_err(|e| Cause::io("open /dev/null", e))
}

/// A path of an open file, wherever it is.
pub fn by_descriptor(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}
