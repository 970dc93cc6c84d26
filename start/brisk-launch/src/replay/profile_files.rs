//! The files and names of a profile, where they are now.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brisk_image::profile::{Profile, ProfileFile};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use super::disk::reopen;
use super::verdict::FoundFiles;
use super::watched_program::Executable;
use crate::beneath::{Reach, open_by_components};
use crate::sys::errno;

/// What is known about a file of the profile.
enum FileState {
    /// Nobody has looked for it yet.
    Unseen,
    Open(Arc<File>),
    /// It was open, until its descriptor was needed for another file.
    Closed,
    /// It has another length than recorded, or is not a regular file.
    Stale,
    /// It does not exist, or may not be read.
    Missing,
}

/// The files of a profile. Each is opened when it is first needed.
pub(super) struct ProfileFiles {
    pub(super) profile: Profile,
    roots: Vec<Option<Arc<OwnedFd>>>,
    /// Which roots were recorded completely: see [`Replay`](super::Replay).
    complete: Vec<bool>,
    states: Vec<Mutex<FileState>>,
}

impl ProfileFiles {
    pub(super) fn new(
        profile: Profile,
        roots: Vec<Option<Arc<OwnedFd>>>,
        complete: Vec<bool>,
    ) -> Self {
        let states = profile
            .files()
            .iter()
            .map(|_| Mutex::new(FileState::Unseen));
        Self {
            states: states.collect(),
            profile,
            roots,
            complete,
        }
    }

    fn root(&self, number: u32) -> Option<BorrowedFd<'_>> {
        let root = self.roots.get(number as usize)?.as_ref()?;
        Some(root.as_fd())
    }

    /// The file with this number, if it still has its recorded length.
    pub(super) fn open(&self, number: u32) -> Option<Arc<File>> {
        let mut state = lock(self.states.get(number as usize)?);
        if let FileState::Unseen | FileState::Closed = *state {
            let mut opened = self.find(number);
            if matches!(opened, Err(Errno::MFILE | Errno::NFILE)) {
                self.close_others();
                opened = self.find(number);
            }
            match opened {
                Ok(found) => *state = found,
                // This error says nothing about this file.
                Err(Errno::MFILE | Errno::NFILE) => return None,
                Err(_) => *state = FileState::Missing,
            }
        }
        match &*state {
            FileState::Open(file) => Some(Arc::clone(file)),
            _ => None,
        }
    }

    /// The paths of the files, for people, with their numbers.
    pub(super) fn shown_paths(&self) -> impl Iterator<Item = (u64, PathBuf)> {
        let files = (0..).zip(self.profile.files());
        files.map(|(number, file)| (number, self.profile.shown_path(file)))
    }

    /// Closes the files that no thread uses at the moment. They are opened again when they are needed.
    fn close_others(&self) {
        for state in &self.states {
            if let Ok(mut state) = state.try_lock()
                && let FileState::Open(file) = &*state
                && Arc::strong_count(file) == 1
            {
                *state = FileState::Closed;
            }
        }
    }

    fn find(&self, number: u32) -> rustix::io::Result<FileState> {
        let Some(known) = self.profile.files().get(number as usize) else {
            return Ok(FileState::Missing);
        };
        let Some(root) = self.root(known.root) else {
            return Ok(FileState::Missing);
        };
        // As a path only, because opening a device or a pipe may have an effect.
        let file = beneath(root, &known.path)?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || u64::try_from(stat.st_size) != Ok(known.len)
        {
            return Ok(FileState::Stale);
        }
        let file = reopen(&file).map_err(errno)?;
        Ok(FileState::Open(Arc::new(file)))
    }

    /// Whether `program` is in a root that was recorded completely, but no recorded launch started it.
    /// Starting a program always reads the first page of its file.
    pub(super) fn is_unrecorded(&self, program: &Executable) -> bool {
        let is_program =
            |file: &OwnedFd| fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == program.id);
        let complete = (0u32..).zip(&self.complete);
        let complete = complete.filter(|(_, complete)| **complete);
        let names = complete.filter_map(|(number, _)| {
            let root = self.root(number)?;
            let path = program.path.strip_prefix(path_of(root).ok()?).ok()?;
            // Other mounts in the tree, for example by `--bind`, were not recorded with it.
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let file = openat2(root, path, flags, Mode::empty(), within).ok()?;
            is_program(&file).then(|| (number, path.to_owned()))
        });
        let names: Vec<_> = names.collect();
        let is_recorded = |file: &ProfileFile| {
            let is_named = |(root, path): &(u32, PathBuf)| (*root, path) == (file.root, &file.path);
            // The program may have one of those names, whatever is there now, or another name of the same
            // file.
            let here = || beneath(self.root(file.root)?, &file.path).ok();
            names.iter().any(is_named)
                || (file.len == program.len && here().is_some_and(|file| is_program(&file)))
        };
        let started = || {
            let first = self.profile.ranges().filter(|(_, range)| range.first == 0);
            let files = self.profile.files();
            let mut read = first.filter_map(|(_, range)| files.get(range.file as usize));
            read.any(is_recorded)
        };
        !names.is_empty() && !started()
    }

    /// How many files were looked at, and their states.
    pub(super) fn count(&self) -> (u64, FoundFiles) {
        let mut seen = 0;
        let mut found = FoundFiles {
            listed: self.profile.files().len() as u64,
            ..FoundFiles::default()
        };
        for state in &self.states {
            let state = lock(state);
            seen += u64::from(!matches!(*state, FileState::Unseen));
            found.stale += u64::from(matches!(*state, FileState::Stale));
            found.missing += u64::from(matches!(*state, FileState::Missing));
        }
        (seen, found)
    }
}

fn lock(state: &Mutex<FileState>) -> MutexGuard<'_, FileState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file at `path`, opened as a path only, without following symbolic links.
pub(super) fn beneath(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(root, path, flags, Mode::empty(), within) {
        // The last name is itself a link, which is not followed.
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
        // Linux before 5.6, or a filter of system calls that does not know this one.
        Err(Errno::NOSYS | Errno::PERM) => open_by_components(root, path, Reach::Mounts),
        result => result,
    }
}

/// The present path of the directory of a descriptor.
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
    fn a_program_that_no_recorded_launch_started_is_unrecorded() {
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
        for (kind, first, name, unrecorded) in [
            ("directory", 0, "root/app", false),
            ("directory", 0, "root/link", false),
            ("image", 1, "root/app", true),
            ("directory", 0, "root/other", true),
            // It has changed since the recording.
            ("directory", 0, "root/newer", false),
            // Nothing outside of the tree was recorded.
            ("directory", 1, "outside", false),
            // A profile of the system lacks what was in memory already.
            ("system", 1, "root/app", false),
        ] {
            let fd = Arc::new(open_root(&root).expect("there"));
            let files =
                ProfileFiles::new(profile(kind, first), vec![Some(fd)], vec![kind != "system"]);
            let found = files.is_unrecorded(&executable(name));
            assert_eq!(found, unrecorded, "{name} of a {kind}, from page {first}");
        }
        // Another file has the name now.
        let mut removed = executable("root/other");
        removed.id.1 += 1;
        let fd = Arc::new(open_root(&root).expect("there"));
        let files = ProfileFiles::new(profile("directory", 0), vec![Some(fd)], vec![true]);
        assert!(!files.is_unrecorded(&removed));
    }
}
