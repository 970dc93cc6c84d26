//! Files and directories of the system that a session shows at another place.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use brisk_launch::error::{Cause, Shown};
use rustix::fs::{CWD, StatVfsMountFlags, statvfs};
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, mount_remount, move_mount, open_tree,
};

/// A file or directory, with everything mounted in it, to show at another place.
pub(crate) struct BoundTree {
    tree: OwnedFd,
    pub(super) target: PathBuf,
    pub(super) is_dir: bool,
    read_only: bool,
}

impl BoundTree {
    pub(crate) fn open(source: &Path, target: &Path, read_only: bool) -> Result<Self, Cause> {
        let unusable = |e: io::Error| {
            let text = format!(
                "cannot bind {}; name another file or directory",
                Shown(source)
            );
            Cause::place(text).because(e)
        };
        let metadata = source.metadata().map_err(unusable)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        Ok(Self {
            tree: open_tree(CWD, source, flags).map_err(|e| unusable(e.into()))?,
            target: target.to_owned(),
            is_dir: metadata.is_dir(),
            read_only,
        })
    }

    /// Shows it at `place`. If `place` does not exist, this makes it, if it can.
    pub(crate) fn mount(&self, place: &Path) -> Result<(), Cause> {
        let refused = |source| no_bind_target(&self.target, source);
        if !place.exists() {
            self.make(place).map_err(refused)?;
        }
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
        move_mount(&self.tree, "", CWD, place, flags).map_err(|e| refused(e.into()))?;
        if self.read_only {
            make_read_only(place).map_err(|e| refused(e.into()))?;
        }
        Ok(())
    }

    /// Makes an empty file or directory, of the same kind, to mount on.
    pub(super) fn make(&self, place: &Path) -> io::Result<()> {
        if self.is_dir {
            return fs::create_dir_all(place);
        }
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)?;
        }
        File::create(place).map(drop)
    }
}

/// Makes the mount on `place` read-only. A user namespace may not drop restrictions that it inherited, so
/// they are set again.
fn make_read_only(place: &Path) -> rustix::io::Result<()> {
    let has = statvfs(place)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (mount, flag) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if has.contains(mount) {
            flags |= flag;
        }
    }
    mount_remount(place, flags, "")
}

/// Nothing can be bound there.
pub(super) fn no_bind_target(target: &Path, e: io::Error) -> Cause {
    let text = format!(
        "cannot bind to {}; name an existing place of the same kind",
        Shown(target)
    );
    Cause::place(text).because(e)
}
