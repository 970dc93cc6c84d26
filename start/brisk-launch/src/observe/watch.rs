//! Files that are opened in directories that a launch is known to use, as inotify(7) tells it. That stops nobody.
//!
//! It tells neither who opens a file, nor which part is read. So this takes a short file to be read whole, and what other
//! processes open there meanwhile to belong to the launch.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use super::files::Files;
use crate::private_directory::cache_directory;

/// The most directories that are watched. Each keeps an inode in memory, and a user may watch 8,192 on small machines.
const MOST: usize = 2048;

/// How many directories are watched directly below one that is used or listed. A program goes on to these before anybody
/// could react. To go further down would read directories that the program may never read.
const MOST_BELOW: usize = 256;

/// The most bytes that are taken to be read.
const MOST_BYTES: u64 = 64 << 20;

/// The most files that are remembered, and events that are read in one look. The kernel keeps 16,384 events by default,
/// and drops more.
const MOST_FILES: usize = 1 << 14;
const MOST_EVENTS: usize = 1 << 14;

/// Bytes of events to read at once.
const AT_ONCE: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct Watch {
    /// None if the system gives none: a user has only some.
    inotify: Option<OwnedFd>,
    directories: HashMap<i32, Directory>,
    seen: HashMap<PathBuf, Seen>,
    /// The directory of brisk's own records, which brisk reads at each start.
    own: Option<PathBuf>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// Whether the directories directly below it are watched, too.
    is_used: bool,
}

#[derive(Debug)]
struct Seen {
    /// When it was opened first.
    at: Duration,
    is_read: bool,
}

impl Watch {
    /// Watches nothing yet.
    pub(super) fn new() -> Self {
        Self {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok(),
            own: cache_directory()
                .ok()
                .and_then(|own| own.canonicalize().ok()),
            ..Self::default()
        }
    }

    /// Watches these directories from now on.
    pub(super) fn add_all(&mut self, directories: impl IntoIterator<Item = PathBuf>) {
        for path in directories {
            self.add(path);
        }
    }

    /// Watches the directories directly below this one, which is used.
    fn add_below(&mut self, path: &Path) {
        for below in directories_in(path).take(MOST_BELOW) {
            self.add(below);
        }
    }

    /// The number of its watch. None if it gets none.
    fn add(&mut self, path: PathBuf) -> Option<i32> {
        let is_own = self.own.as_ref().is_some_and(|own| path.starts_with(own));
        let may_add = !is_own && self.directories.len() < MOST;
        let inotify = self.inotify.as_ref().filter(|_| may_add)?;
        let flags = WatchFlags::OPEN
            | WatchFlags::ACCESS
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW
            | WatchFlags::EXCL_UNLINK;
        let number = inotify::add_watch(inotify, &path, flags).ok()?;
        let is_used = false;
        self.directories
            .entry(number)
            .or_insert(Directory { path, is_used });
        Some(number)
    }

    /// What is readable when something has happened.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Notes what has happened since the last time.
    pub(super) fn look(&mut self, at: Duration) {
        let Some(inotify) = self.inotify.take() else {
            return;
        };
        let (mut used, mut listed) = (Vec::new(), Vec::new());
        let mut buffer = [MaybeUninit::uninit(); AT_ONCE];
        let mut events = Reader::new(&inotify, &mut buffer);
        for _ in 0..MOST_EVENTS {
            // The first error says that there is nothing more.
            let Ok(event) = events.next() else {
                break;
            };
            let Some(directory) = self.directories.get_mut(&event.wd()) else {
                continue;
            };
            let name = event
                .file_name()
                .map(|name| OsStr::from_bytes(name.to_bytes()));
            let path =
                name.map_or_else(|| directory.path.clone(), |name| directory.path.join(name));
            if event.events().contains(ReadFlags::ISDIR) {
                // Somebody lists it.
                listed.push(path);
                continue;
            }
            if name.is_none() {
                // The watch has ended.
                continue;
            }
            if !std::mem::replace(&mut directory.is_used, true) {
                used.push(directory.path.clone());
            }
            let is_read = event.events().contains(ReadFlags::ACCESS);
            if self.seen.len() < MOST_FILES || self.seen.contains_key(&path) {
                let seen = self.seen.entry(path);
                seen.or_insert(Seen { at, is_read }).is_read |= is_read;
            }
        }
        self.inotify = Some(inotify);
        for path in listed {
            let number = self.add(path.clone());
            let directory = number.and_then(|number| self.directories.get_mut(&number));
            if directory.is_some_and(|directory| !std::mem::replace(&mut directory.is_used, true)) {
                used.push(path);
            }
        }
        used.iter().for_each(|path| self.add_below(path));
    }

    /// Tells `files` what was seen. No more than `most` bytes are taken to be read: the shortest files, because longer ones are
    /// often read in parts (archives, databases). That a file of `known` was read says nothing.
    pub(super) fn finish(self, files: &mut Files, known: &HashSet<PathBuf>, most: u64) {
        let mut seen: Vec<_> = self.seen.into_iter().collect();
        seen.sort_by(
            |(a, Seen { at: first, .. }), (b, Seen { at: second, .. })| {
                (first, a).cmp(&(second, b))
            },
        );
        let mut whole = Vec::new();
        for (path, Seen { at, is_read }) in seen {
            files.looked_up(&path, true, at);
            // Of what is mapped, the page tables have told more.
            if !is_read || files.is_mapped(&path) || known.contains(&path) {
                continue;
            }
            let len = fs::symlink_metadata(&path).map_or(u64::MAX, |found| found.len());
            whole.push((len, path, at));
        }
        whole.sort_unstable();
        let mut left = most.min(MOST_BYTES);
        for (len, path, at) in whole {
            if len > left {
                break;
            }
            if let Some(file) = files.file(&path) {
                left -= len;
                files.asked(file, 0, len, at);
            }
        }
    }
}

/// The directories in a directory, without its symbolic links.
fn directories_in(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path())
}

/// Directories that are no other's by a symbolic link.
pub(super) fn real(directories: HashSet<PathBuf>) -> impl Iterator<Item = PathBuf> {
    let is_real = |path: &PathBuf| fs::canonicalize(path).is_ok_and(|real| real == *path);
    directories.into_iter().filter(is_real)
}

#[cfg(test)]
mod tests {
    use super::super::inputs::Inputs;
    use super::*;
    use brisk_image::profile::{Asked, Ready};

    #[test]
    fn what_is_read_in_a_known_directory_and_below_is_seen() {
        // On a disk, as the program itself.
        let program = std::env::current_exe().expect("this");
        let home = tempfile::tempdir_in(program.parent().expect("a directory")).expect("room");
        let home = home.path().canonicalize().expect("there");
        fs::create_dir_all(home.join("package/deep")).expect("room");
        for name in [
            "first",
            "opened",
            "package/second",
            "package/deep/third",
            "mapped",
            "known",
        ] {
            fs::write(home.join(name), name).expect("room");
        }
        let inputs = Inputs::of_test();
        let mut files = Files::new(inputs).expect("a mount table");
        let mapped = home.join("mapped");
        files.has_mapped(&mapped);
        let mut watch = Watch::new();
        watch.add_all([home.clone()]);
        // Each is seen if its directory is watched by then.
        for (name, second) in [
            ("package/second", 1),
            ("first", 2),
            ("package/second", 3),
            ("package/deep/third", 4),
            ("mapped", 5),
            ("known", 5),
        ] {
            fs::read(home.join(name)).expect("there");
            watch.look(Duration::from_secs(second));
        }
        fs::File::open(home.join("opened")).expect("there");
        watch.look(Duration::from_secs(6));
        watch.finish(&mut files, &HashSet::from([home.join("known")]), 37);
        let profile = files
            .finish(Vec::new(), Ready::new("test", 0))
            .expect("a profile")
            .profile;
        let mut looked_up = Vec::new();
        let mut read = Vec::new();
        for step in profile.steps() {
            match &step.asked {
                Asked::LookUp(look_up) => looked_up.push(look_up.name.to_str().expect("text")),
                Asked::Pages(range) => {
                    let file = &profile.files()[range.file as usize];
                    let name = file.path.file_name().expect("a name");
                    read.push((name.to_str().expect("text"), range.count));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(
            looked_up,
            ["first", "second", "third", "known", "mapped", "opened"]
        );
        assert_eq!(read, [("first", 1), ("second", 1), ("third", 1)]);
    }
}
