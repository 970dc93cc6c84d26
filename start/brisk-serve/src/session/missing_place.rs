//! Places of images that do not exist.
//!
//! Only root can make a directory in `/opt`, so an image whose place is there could be started by nobody else. In a mount
//! namespace of its own, brisk makes the place without root: it replaces the nearest directory that exists by one in memory,
//! and binds there each entry that the real one has. What the program sees is subject to these rules:
//!
//! 1. Each entry of the real directory is there, with everything that is mounted in it. So what a program writes in a
//!    directory beside the place is in the real directory.
//! 2. Nothing can be made, renamed or removed directly in the directory, so nothing is lost that a program believes to have
//!    written there.
//! 3. A directory in which this cannot be, or where it would harm programs, is refused with the reason.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use brisk_launch::error::{Cause, Error, Result, Shown};
use brisk_launch::open::by_descriptor;
use rustix::fs::{
    AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat,
    statat, symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsmount, fsopen, mount_remount, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};

use super::open_image::resolve_place;
use super::overlay::copy_owner_and_mode;
use crate::action::Action;
use crate::existing_path::ExistingPath;
use crate::kernel_support::UserNamespaces;
use crate::namespace::is_privileged;

/// The most entries of a directory that is replaced. Each becomes a mount, which every sandbox of a program copies.
const MOST_ENTRIES: usize = 1000;

/// File systems of the kernel. Their entries come and go, and programs need those that come.
const OF_THE_KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];

/// The bit of a mode that directories for everybody's files have (`S_ISVTX`).
const STICKY: u32 = 0o1000;

/// A directory to mount an image on that does not exist. A session makes it, for its own programs alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPlace {
    parent: PathBuf,
    /// Names below `parent`: at least one.
    missing: PathBuf,
}

impl MissingPlace {
    /// The place `at`. None if it exists.
    ///
    /// # Errors
    ///
    /// `Place` if no session of this user can make it.
    pub fn of(at: &Path) -> Result<Option<Self>> {
        let found = resolve_place(at).and_then(|path| {
            let found = Self::in_path(&path)?;
            let may = is_privileged() || UserNamespaces::probe().unprivileged();
            match found {
                Some(_) if !may => Err(not_made(
                    &path.whole(),
                    "the system refuses user namespaces to this user",
                )),
                found => Ok(found),
            }
        });
        found.map_err(|cause| Error::new(Action::Mount, cause))
    }

    /// What is missing of a path.
    pub(super) fn in_path(path: &ExistingPath) -> Result<Option<Self>, Cause> {
        if path.is_whole() {
            return Ok(None);
        }
        let refused = |why: String| not_made(&path.whole(), &why);
        let parent = &path.existing;
        let shown = parent.display();
        if OF_THE_KERNEL.iter().any(|tree| parent.starts_with(tree)) {
            return Err(refused(format!("the entries of {shown} are the kernel's")));
        }
        let look = || -> rustix::io::Result<_> {
            let directory = open_to_read(parent)?;
            let entries = each_entry(&directory)?.take(MOST_ENTRIES + 1).count();
            Ok((entries, fstat(&directory)?.st_mode))
        };
        let (entries, mode) = look().map_err(|e| {
            let why = format!("{shown} cannot be listed, and what is in it would be hidden");
            refused(why).because(io::Error::from(e))
        })?;
        if entries > MOST_ENTRIES {
            return Err(refused(format!(
                "{shown} has more than {MOST_ENTRIES} entries, and each must be bound beside it"
            )));
        }
        if mode & STICKY != 0 {
            return Err(refused(format!(
                "programs make files in {shown}, and could not while it is there"
            )));
        }
        Ok(Some(Self {
            parent: path.existing.clone(),
            missing: path.missing.clone(),
        }))
    }

    /// The place itself: a canonical path.
    pub fn path(&self) -> PathBuf {
        self.parent.join(&self.missing)
    }

    /// The nearest directory that exists. Programs of the session can make, rename and remove nothing directly in it.
    pub fn parent(&self) -> &Path {
        &self.parent
    }

    /// The directory that is replaced, as a file.
    pub(super) fn parent_file(&self) -> io::Result<File> {
        Ok(open_to_read(&self.parent)?.into())
    }
}

/// Makes all of them in the mount namespace of this process. Nothing may be mounted on them yet. The working directory is the
/// one of the same name afterwards, and descriptors from before may be outside of the namespace.
pub(crate) fn make(all: &[MissingPlace]) -> Result<(), Cause> {
    // In this order, a directory comes before those in it.
    let mut by_parent = BTreeMap::<_, Vec<_>>::new();
    for place in all {
        by_parent.entry(&*place.parent).or_default().push(place);
    }
    // One that was removed has no name to come back to.
    let here = env::current_dir().ok();
    let here = here.filter(|here| by_parent.keys().any(|parent| here.starts_with(parent)));
    for (parent, places) in by_parent {
        Replacement::of(parent)?.with(&places)?;
    }
    here.map_or(Ok(()), |here| {
        env::set_current_dir(&here)
            .map_err(|e| Cause::io(format!("go back to {}", here.display()), e))
    })
}

/// A directory, and the one in memory that takes its place.
struct Replacement<'a> {
    path: &'a Path,
    real: OwnedFd,
    memory: OwnedFd,
}

impl<'a> Replacement<'a> {
    fn of(path: &'a Path) -> Result<Self, Cause> {
        let failed = |e: Errno| Cause::io(format!("replace {}", path.display()), e);
        let real = open_to_read(path).map_err(failed)?;
        let memory = mount_over(&real).map_err(failed)?;
        copy_owner_and_mode(&by_descriptor(&real), &by_descriptor(&memory))?;
        Ok(Self { path, real, memory })
    }

    fn with(self, places: &[&MissingPlace]) -> Result<(), Cause> {
        for place in places {
            self.make(&place.missing)
                .map_err(|e| Cause::io(format!("make {}", place.path().display()), e))?;
        }
        let shown = self.path.display();
        let list = |e: Errno| Cause::io(format!("list {shown}"), e);
        for entry in each_entry(&self.real).map_err(list)? {
            let entry = entry.map_err(list)?;
            let (name, kind) = (entry.file_name(), entry.file_type());
            self.show(name, kind).map_err(|e| {
                let name = self.path.join(OsStr::from_bytes(name.to_bytes()));
                Cause::io(format!("bind {} beside the place", name.display()), e)
            })?;
        }
        let failed = |e: Errno| Cause::io(format!("replace {shown}"), e);
        if self.path.parent().is_none() {
            self.become_root().map_err(failed)?;
        }
        let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        mount_remount(by_descriptor(&self.memory), flags, "").map_err(failed)
    }

    /// Makes the directories of a place, in the directory in memory.
    fn make(&self, names: &Path) -> io::Result<()> {
        let mut way = by_descriptor(&self.memory);
        for name in names {
            way.push(name);
            match fs::create_dir(&way) {
                // Whatever mask the user has for new files.
                Ok(()) => fs::set_permissions(&way, Permissions::from_mode(0o755))?,
                // Another place is below it, too.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Shows an entry of the real directory in the one in memory. Nothing asks the entry itself, which may be a mount that
    /// nobody serves any more.
    fn show(&self, name: &CStr, kind: FileType) -> rustix::io::Result<()> {
        let kind = match kind {
            FileType::Unknown => {
                let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
                match statat(&self.real, name, flags) {
                    Err(Errno::NOENT) => return Ok(()),
                    stat => FileType::from_raw_mode(stat?.st_mode),
                }
            }
            kind => kind,
        };
        if kind == FileType::Symlink {
            return match readlinkat(&self.real, name, Vec::new()) {
                Err(Errno::NOENT) => Ok(()),
                target => symlinkat(target?, &self.memory, name),
            };
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_SYMLINK_NOFOLLOW
            | OpenTreeFlags::AT_NO_AUTOMOUNT;
        let tree = match open_tree(&self.real, name, flags) {
            // It was removed just now.
            Err(Errno::NOENT) => return Ok(()),
            tree => tree?,
        };
        let made = match kind {
            FileType::Directory => mkdirat(&self.memory, name, Mode::RWXU),
            _ => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                openat(&self.memory, name, flags, Mode::RUSR).map(drop)
            }
        };
        match made {
            // Somebody has just made what was missing: that counts.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
        move_mount(
            &tree,
            "",
            &self.memory,
            name,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )
    }

    /// Makes it the root directory of all processes in the namespace. In a root changed by `chroot`, the kernel would allow no
    /// user namespaces.
    fn become_root(&self) -> rustix::io::Result<()> {
        fchdir(&self.memory)?;
        // Puts the old root on top of the new one, and then unmounts it.
        pivot_root(".", ".")?;
        unmount(".", UnmountFlags::DETACH)?;
        chdir("/")
    }
}

/// Mounts a file system in memory on an open directory, and returns its root.
fn mount_over(directory: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let memory = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&memory, "", directory, "", flags)?;
    Ok(memory)
}

fn open_to_read(directory: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, directory, flags, Mode::empty())
}

/// The entries of a directory, without itself and its parent.
fn each_entry(
    directory: &OwnedFd,
) -> rustix::io::Result<impl Iterator<Item = rustix::io::Result<DirEntry>>> {
    let is_own = |entry: &DirEntry| [c".", c".."].contains(&entry.file_name());
    let entries = Dir::read_from(directory)?;
    Ok(entries.filter(move |entry| !entry.as_ref().is_ok_and(is_own)))
}

/// A place does not exist, and cannot be made in a namespace either.
fn not_made(place: &Path, why: &str) -> Cause {
    Cause::place(format!(
        "{} does not exist, and brisk cannot show it to the program alone: {why}; make the directory first",
        Shown(place)
    ))
}
