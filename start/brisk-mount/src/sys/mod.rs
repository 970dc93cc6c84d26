//! The ground floor: what the kernel offers and no crate wraps safely, a file for each facility.
//!
//! No file here imports anything of this crate from above. Each descriptor whose driver gives an ioctl its meaning is in a
//! type that has checked its device.

pub(crate) mod arguments;
pub(crate) mod fanotify;
pub(crate) mod fuse_device;
pub(crate) mod inherited;
pub(crate) mod landlock;
pub(crate) mod loop_node;
pub(crate) mod namespaces;
pub(crate) mod process;
pub(crate) mod ptrace;
pub(crate) mod refused_call;
pub(crate) mod scheduling;
pub(crate) mod signal;

use std::io;

use rustix::io::Errno;

pub(super) fn last_errno() -> Errno {
    errno(io::Error::last_os_error())
}

/// The system's number of an error. EIO if it has none.
pub(crate) fn errno(e: io::Error) -> Errno {
    Errno::from_io_error(&e).unwrap_or(Errno::IO)
}
