//! The files and names of a profile where they are now.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use brisk_image::{Profile, ProfileFile, Touch};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use super::LOOK_EVERY;
use super::bystander::Executable;
use super::disk::reopen;
use crate::beneath::{Reach, open_by_components};

/// A file of the profile.
enum Slot {
    Unseen,
    Open(Arc<File>),
    /// It was open, until others needed its descriptor.
    Closed,
    Stale,
    Missing,
}

/// How far names are looked up.
#[derive(Debug, Default)]
pub(super) struct LookUps {
    pub(super) paused: AtomicBool,
    pub(super) over: AtomicBool,
}

impl LookUps {
    /// Waits for the end of a pause. False if it is over.
    fn goes_on(&self) -> bool {
        while self.paused.load(Ordering::Relaxed) && !self.over.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
        }
        !self.over.load(Ordering::Relaxed)
    }
}

/// The files of a profile, opened when they are asked for.
pub(super) struct Files {
    pub(super) profile: Profile,
    roots: Vec<Option<Arc<OwnedFd>>>,
    /// As [`Replay`](super::Replay) has it: those that were recorded whole.
    whole: Vec<bool>,
    slots: Vec<Mutex<Slot>>,
}

impl Files {
    pub(super) fn new(
        profile: Profile,
        roots: Vec<Option<Arc<OwnedFd>>>,
        whole: Vec<bool>,
    ) -> Self {
        let slots = profile.files().iter().map(|_| Mutex::new(Slot::Unseen));
        Self {
            slots: slots.collect(),
            profile,
            roots,
            whole,
        }
    }

    fn root(&self, number: u32) -> Option<BorrowedFd<'_>> {
        let root = self.roots.get(number as usize)?.as_ref()?;
        Some(root.as_fd())
    }

    /// The file with this number, if it is as long as it was.
    pub(super) fn open(&self, number: u32) -> Option<Arc<File>> {
        let mut slot = lock(self.slots.get(number as usize)?);
        if let Slot::Unseen | Slot::Closed = *slot {
            let mut opened = self.find(number);
            if matches!(opened, Err(Errno::MFILE | Errno::NFILE)) {
                self.close_others();
                opened = self.find(number);
            }
            match opened {
                Ok(found) => *slot = found,
                // Of this file it says nothing.
                Err(Errno::MFILE | Errno::NFILE) => return None,
                Err(_) => *slot = Slot::Missing,
            }
        }
        match &*slot {
            Slot::Open(file) => Some(Arc::clone(file)),
            _ => None,
        }
    }

    /// Their paths for people, with their numbers.
    pub(super) fn shown_paths(&self) -> impl Iterator<Item = (u64, PathBuf)> {
        let files = (0..).zip(self.profile.files());
        files.map(|(number, file)| (number, self.profile.shown_path(file)))
    }

    /// Closes what no thread uses at the moment. It is opened again when it is asked for.
    fn close_others(&self) {
        for slot in &self.slots {
            if let Ok(mut slot) = slot.try_lock()
                && let Slot::Open(file) = &*slot
                && Arc::strong_count(file) == 1
            {
                *slot = Slot::Closed;
            }
        }
    }

    fn find(&self, number: u32) -> rustix::io::Result<Slot> {
        let Some(known) = self.profile.files().get(number as usize) else {
            return Ok(Slot::Missing);
        };
        let Some(root) = self.root(known.root) else {
            return Ok(Slot::Missing);
        };
        // As a path only: to open a device, or a pipe, may do something.
        let file = beneath(root, &known.path)?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || u64::try_from(stat.st_size) != Ok(known.len)
        {
            return Ok(Slot::Stale);
        }
        let file = reopen(&file).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        Ok(Slot::Open(Arc::new(file)))
    }

    /// Whether `program` is in one of the roots that were recorded whole, and no launch of it was:
    /// whoever starts a program has its first page read.
    pub(super) fn is_foreign(&self, program: &Executable) -> bool {
        let is_program =
            |file: &OwnedFd| fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == program.id);
        let whole = (0u32..).zip(&self.whole).filter(|(_, whole)| **whole);
        let places = whole.filter_map(|(number, _)| {
            let root = self.root(number)?;
            let path = program.path.strip_prefix(path_of(root).ok()?).ok()?;
            // What is mounted in the tree, as by `--bind`, was not recorded with it.
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let file = openat2(root, path, flags, Mode::empty(), within).ok()?;
            is_program(&file).then(|| (number, path.to_owned()))
        });
        let places: Vec<_> = places.collect();
        let is_recorded = |file: &ProfileFile| {
            let is_named = |(root, path): &(u32, PathBuf)| (*root, path) == (file.root, &file.path);
            // By a name of its own, whatever is there now, or by another of the same file.
            let here = || beneath(self.root(file.root)?, &file.path).ok();
            places.iter().any(is_named)
                || (file.len == program.len && here().is_some_and(|file| is_program(&file)))
        };
        let started = || {
            let first = self.profile.ranges().filter(|(_, range)| range.first == 0);
            let files = self.profile.files();
            let mut read = first.filter_map(|(_, range)| files.get(range.file as usize));
            read.any(is_recorded)
        };
        !places.is_empty() && !started()
    }

    /// Looks up the names of the profile until it is over. Returns how many, and how many of them
    /// are there though they were not, or the other way round.
    pub(super) fn look_up(&self, course: &LookUps) -> (u64, u64) {
        let (mut look_ups, mut changed) = (0, 0);
        for step in self.profile.steps() {
            let Touch::LookUp(look_up) = &step.touch else {
                continue;
            };
            if !course.goes_on() {
                break;
            }
            let directory = self.profile.directories().get(look_up.directory as usize);
            let Some((directory, root)) =
                directory.and_then(|directory| Some((directory, self.root(directory.root)?)))
            else {
                continue;
            };
            let found = match beneath(root, &directory.path.join(&look_up.name)) {
                Ok(_) => Some(true),
                Err(Errno::NOENT | Errno::NOTDIR) => Some(false),
                Err(_) => None,
            };
            look_ups += 1;
            changed += u64::from(found.is_some_and(|found| found != look_up.found));
        }
        (look_ups, changed)
    }

    /// The files that were looked at, and of them those that are stale and those that are missing.
    pub(super) fn count(&self) -> (u64, u64, u64) {
        let (mut seen, mut stale, mut missing) = (0, 0, 0);
        for slot in &self.slots {
            let slot = lock(slot);
            seen += u64::from(!matches!(*slot, Slot::Unseen));
            stale += u64::from(matches!(*slot, Slot::Stale));
            missing += u64::from(matches!(*slot, Slot::Missing));
        }
        (seen, stale, missing)
    }
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is at `path`, as a path only, through no symbolic link.
fn beneath(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(root, path, flags, Mode::empty(), within) {
        // A link itself, at the end, is not followed.
        Err(Errno::LOOP) => {
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            let parent = path.parent().unwrap_or(Path::new(""));
            let parent = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            let directory = openat2(
                root,
                parent,
                flags | OFlags::DIRECTORY,
                Mode::empty(),
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            )?;
            let name = path.file_name().unwrap_or_default();
            openat2(directory, name, flags, Mode::empty(), within)
        }
        // Linux before 5.6, and filters of system calls that do not know this one.
        Err(Errno::NOSYS | Errno::PERM) => open_by_components(root, path, Reach::Mounts),
        result => result,
    }
}

/// Where the directory behind a descriptor is now.
fn path_of(directory: BorrowedFd<'_>) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use brisk_image::Limits;

    use super::super::disk::open_root;
    use super::*;

    /// A profile of `kind` of a launch that read page `first` of two programs.
    fn profile(kind: &str, first: u64) -> Profile {
        let text = format!(
            r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["app"], "runs": 1,
"roots": [["/opt/app", "{kind}"]], "directories": [],
"files": [[0, "app", 12288, null], [0, "newer", 8192, null]],
"steps": [["pages", 0, {first}, 1, 1, 1], ["pages", 1, {first}, 1, 1, 1]]}}"#
        );
        Profile::from_text(text.as_bytes(), &Limits::of_profiles()).expect("a profile")
    }

    #[test]
    fn a_program_is_foreign_that_no_recorded_launch_started() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        std::fs::create_dir(&root).expect("room");
        for name in ["root/app", "root/newer", "root/other", "outside"] {
            std::fs::write(directory.path().join(name), [0; 12_288]).expect("room");
        }
        std::fs::hard_link(root.join("app"), root.join("link")).expect("room");
        let executable = |name: &str| {
            let path = directory.path().join(name);
            let path = path.canonicalize().expect("there");
            let stat = std::fs::metadata(&path).expect("there");
            Executable {
                path,
                id: (stat.dev(), stat.ino()),
                len: stat.len(),
            }
        };
        for (kind, first, name, foreign) in [
            ("directory", 0, "root/app", false),
            ("directory", 0, "root/link", false),
            ("image", 1, "root/app", true),
            ("directory", 0, "root/other", true),
            // A newer one than was recorded.
            ("directory", 0, "root/newer", false),
            // Of others nothing was recorded.
            ("directory", 1, "outside", false),
            // What was in memory already is in no profile of the system.
            ("system", 1, "root/app", false),
        ] {
            let fd = Arc::new(open_root(&root).expect("there"));
            let files = Files::new(profile(kind, first), vec![Some(fd)], vec![kind != "system"]);
            let found = files.is_foreign(&executable(name));
            assert_eq!(found, foreign, "{name} of a {kind}, from page {first}");
        }
        // The place of another file by now.
        let mut removed = executable("root/other");
        removed.id.1 += 1;
        let fd = Arc::new(open_root(&root).expect("there"));
        let files = Files::new(profile("directory", 0), vec![Some(fd)], vec![true]);
        assert!(!files.is_foreign(&removed));
    }
}
