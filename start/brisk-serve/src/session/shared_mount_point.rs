//! The place of an image that is mounted for all programs.

use std::fs;
use std::io;
use std::path::PathBuf;

use brisk_launch::error::{Cause, ErrorKind};
use brisk_launch::mount_table::{MountEntry, mounted_on};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::log::say;
use crate::fuse::connection::FS_TYPE;
use crate::fusermount;
use crate::fusermount::mount_busy;
use crate::namespace::is_privileged;

/// The place of an image that is mounted for all programs.
#[derive(Debug, Clone)]
pub(super) struct SharedMountPoint {
    pub(super) target: PathBuf,
    /// The mount's device, in the form of `/proc/PID/mountinfo`. Another mount on top of it or in its place
    /// has another device. None if that is not known.
    device: Option<String>,
    /// Whether somebody has named the directory. Otherwise only one session has it.
    pub(super) is_named: bool,
    /// Whether this process mounts and unmounts without `fusermount3`.
    pub(super) privileged: bool,
}

impl SharedMountPoint {
    /// The mount that is on `target` now.
    pub(super) fn of(target: PathBuf, is_named: bool) -> Self {
        let mounted = mounted_on(&target).ok().flatten();
        Self {
            device: mounted.map(|entry| entry.device),
            ..Self::to_come(target, is_named)
        }
    }

    /// A mount that will be on `target`.
    pub(super) fn to_come(target: PathBuf, is_named: bool) -> Self {
        Self {
            target,
            device: None,
            is_named,
            privileged: is_privileged(),
        }
    }

    /// Whether programs no longer see the mount there.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.mounted(), Ok(None))
    }

    /// The mount, if it is the one that programs see there.
    fn mounted(&self) -> io::Result<Option<MountEntry>> {
        let is_ours = |entry: &MountEntry| {
            let device = self.device.as_ref();
            entry.fs_type == FS_TYPE && device.is_none_or(|device| *device == entry.device)
        };
        Ok(mounted_on(&self.target)?.filter(is_ours))
    }

    /// Unmounts, unless something in the mount is open.
    pub(super) fn unmount(&self) -> Result<(), Cause> {
        self.unmount_by(UnmountFlags::empty(), false)
    }

    /// Hides the mount at once, even if it is in use.
    pub(super) fn take_out(&self) -> Result<(), Cause> {
        self.unmount_by(UnmountFlags::DETACH, true)
    }

    /// Like [`SharedMountPoint::take_out`]. An error goes to the log.
    pub(super) fn detach(&self) {
        if let Err(cause) = self.take_out() {
            say(&format!(
                "{} cannot be unmounted: {cause}",
                self.target.display()
            ));
        }
    }

    fn unmount_by(&self, flags: UnmountFlags, lazy: bool) -> Result<(), Cause> {
        // Somebody may have unmounted it before, and what it covered is not ours to unmount.
        match self.mounted() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(e) => return Err(Cause::io("read /proc/self/mountinfo", e)),
        }
        if !self.privileged {
            return fusermount::unmount(&self.target, lazy);
        }
        rustix::mount::unmount(&self.target, flags | UnmountFlags::NOFOLLOW).map_err(|e| match e {
            Errno::BUSY => mount_busy(),
            e => Cause::io("unmount it", e),
        })
    }

    /// Aborts the connection. Without root this uses FUSE's control files, which belong to the user who
    /// mounted. If they are missing, the connection ends with the last process that has it.
    pub(super) fn abort(&self) {
        if self.privileged {
            match self.unmount_by(UnmountFlags::FORCE, false) {
                Ok(()) => {}
                Err(cause) if cause.kind() == ErrorKind::Busy => {}
                Err(cause) => say(&format!("a connection cannot be aborted: {cause}")),
            }
            // The abort leaves a mount that is in use.
            return self.detach();
        }
        let entry = self.mounted().ok().flatten();
        if let Some((_, minor)) = entry.as_ref().and_then(MountEntry::device_numbers) {
            let control = format!("/sys/fs/fuse/connections/{minor}/abort");
            if let Err(e) = fs::write(&control, "1") {
                say(&format!("{control}: {e}"));
            }
        }
        self.detach();
    }
}
