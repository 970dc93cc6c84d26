/*!
How images get into view: where each is mounted, and what is done once all are served.
*/

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, StatVfsMountFlags, statvfs};
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, mount_remount, move_mount, open_tree,
};
use rustix::process::fchdir;

use super::Bind;
use super::overlay::Layers;
use super::root::Root;
use super::set_up::open_directory;
use crate::error::Cause;
use crate::namespace::Entry;

/// The places of images, and what a program sees besides them.
pub(crate) struct Layout {
    how: How,
    places: Vec<PathBuf>,
    binds: Vec<BoundTree>,
}

enum How {
    /// Each is mounted on its place, the first of them below layers that can be written to.
    Places(Vec<Layers>),
    /// The first is the root directory, and the others have their places in it.
    Root(Root),
}

impl Layout {
    /// Prepares to mount an image on each of `places`, the first of them as the root directory if
    /// `root`. The first `writable` of them can be written to; of a root directory, only it.
    pub(crate) fn prepare(
        places: Vec<PathBuf>,
        root: bool,
        writable: usize,
        binds: &[Bind],
    ) -> Result<Self, Cause> {
        // What is bound is got before anything covers it.
        let binds = binds
            .iter()
            .map(|bind| BoundTree::open(&bind.source, &bind.target, bind.read_only))
            .collect::<Result<Vec<_>, _>>()?;
        let how = if root {
            How::Root(Root::prepare(places.len(), writable > 0)?)
        } else {
            let writable = places.iter().take(writable);
            How::Places(
                writable
                    .map(|at| Layers::prepare(at))
                    .collect::<Result<_, _>>()?,
            )
        };
        Ok(Self { how, places, binds })
    }

    /// Where the image with this number is to be mounted.
    pub(crate) fn image_place(&self, index: usize) -> PathBuf {
        match &self.how {
            How::Places(layers) => layers
                .get(index)
                .map_or_else(|| self.places[index].clone(), Layers::lower),
            How::Root(root) => root.image_place(index),
        }
    }

    /// Does what needs the images' servers. The working directory stays, but in a new root
    /// directory it is that.
    pub(crate) fn finish(self, entry: Entry) -> Result<(), Cause> {
        match self.how {
            How::Places(layers) => {
                let here = open_directory(Path::new("."))?;
                layers
                    .into_iter()
                    .try_for_each(|layers| layers.cover(entry))?;
                fchdir(here).map_err(|e| Cause::io("go back to the working directory", e))?;
                self.binds
                    .iter()
                    .try_for_each(|bind| bind.mount(&bind.target))
            }
            How::Root(root) => root.enter(entry, &self.places, &self.binds),
        }
    }
}

/// A file or directory with what is mounted in it, to be shown at another place.
pub(super) struct BoundTree {
    tree: OwnedFd,
    pub(super) target: PathBuf,
    pub(super) is_dir: bool,
    read_only: bool,
}

impl BoundTree {
    pub(super) fn open(source: &Path, target: &Path, read_only: bool) -> Result<Self, Cause> {
        let unusable = |source_error: io::Error| Cause::BindSource {
            source_path: source.to_owned(),
            source: source_error,
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

    /// Shows it at `place`, which is made if it does not exist and can be made.
    pub(super) fn mount(&self, place: &Path) -> Result<(), Cause> {
        let refused = |source| Cause::BindTarget {
            target: self.target.clone(),
            source,
        };
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

    /// Makes something of the same kind to be covered.
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

/// Makes what is mounted on `place` read-only. A user namespace may not take away restrictions that
/// it inherited, so they are stated again.
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
