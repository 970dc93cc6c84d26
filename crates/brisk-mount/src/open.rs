//! Opens files of any kind without waiting.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::error::Cause;

/// Opens a file. If it is a pipe, this does not wait for a writer.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Opens a directory as a path only.
pub(crate) fn open_directory(path: &Path) -> Result<OwnedFd, Cause> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
        .map_err(|e| Cause::io(format!("open {}", path.display()), e))
}
