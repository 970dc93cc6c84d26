//! How a guardian reaches a mount, to end it.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::log::say;
use super::shared_mount_point::SharedMountPoint;

/// How a guardian reaches a mount, to end it.
pub(super) enum MountHandle {
    /// The root of a mount in the session's own namespace, opened as a path only. It keeps the mount alive
    /// but opens no file in it. The guardian may do everything with it.
    Root(OwnedFd),
    /// The place of a mount that all programs see.
    Shared(SharedMountPoint),
}

impl MountHandle {
    /// Aborts the connection to the kernel. Programs that wait for an answer get an error, now and later.
    pub(super) fn abort(&self) {
        match self {
            Self::Root(root) => abort(root),
            Self::Shared(place) => place.abort(),
        }
    }
}

fn abort(root: &OwnedFd) {
    let path = format!("/proc/self/fd/{}", root.as_raw_fd());
    match unmount(path, UnmountFlags::FORCE) {
        // `root` at least keeps it busy. So the mount stays, and what it hides does not appear.
        Ok(()) | Err(Errno::BUSY) => {}
        Err(e) => say(&format!("a connection cannot be aborted: {e}")),
    }
}
