//! Where the names are that a launch asked for.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::asked_names::Asked;
use super::opened_files::is_watched;
use crate::mount_table::MountEntry;

/// The longest tick of the kernel's clock (`CONFIG_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// Where a name is that was asked for.
pub(super) struct Place<'a> {
    /// Where its mount is.
    pub(super) mount: &'a Path,
    /// Without links.
    pub(super) directory: PathBuf,
    pub(super) name: OsString,
}

/// Finds out where names are.
pub(super) struct Places<'a> {
    mounts: &'a [MountEntry],
    /// What was made since then is new.
    began: Duration,
    /// Directories without links, by paths that may have some.
    directories: HashMap<PathBuf, Option<PathBuf>>,
}

impl<'a> Places<'a> {
    pub(super) fn new(mounts: &'a [MountEntry], began: Duration) -> Self {
        Self {
            mounts,
            // The times of files are those of the last tick.
            began: began.saturating_sub(TICK),
            directories: HashMap::new(),
        }
    }

    /// None if it was removed or made meanwhile, or if its mount is not watched or begins there.
    pub(super) fn of(&mut self, asked: &Asked) -> Option<Place<'a>> {
        let directory = self.directory(asked.path.parent()?)?;
        let name = asked.path.file_name()?.to_owned();
        let path = directory.join(&name);
        let mount = &*self.mounts.get(mount_of(&path, self.mounts)?.0)?.target;
        let now = path.symlink_metadata().ok();
        // Not all file systems know when it was made.
        let made = now.as_ref().and_then(|now| now.created().ok());
        let is_new = made.is_some_and(|made| made >= SystemTime::UNIX_EPOCH + self.began);
        (path != mount && now.is_some() && !is_new).then_some(Place {
            mount,
            directory,
            name,
        })
    }

    fn directory(&mut self, path: &Path) -> Option<PathBuf> {
        if let Some(known) = self.directories.get(path) {
            return known.clone();
        }
        // What the kernel makes up may do anything when it is looked at.
        let found = mount_of(path, self.mounts).and_then(|_| path.canonicalize().ok());
        self.directories.insert(path.to_owned(), found.clone());
        found
    }
}

/// The number and the device of the mount of `path`, if it is watched.
pub(super) fn mount_of(path: &Path, mounts: &[MountEntry]) -> Option<(usize, (u32, u32))> {
    // The last mount on a place hides the others.
    let (number, mount) = mounts
        .iter()
        .enumerate()
        .filter(|(_, mount)| path.starts_with(&mount.target))
        .max_by_key(|(number, mount)| (mount.target.as_os_str().len(), *number))?;
    is_watched(mount).then(|| Some((number, mount.device_numbers()?)))?
}
