//! Recording a launch.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::page_set::PageSet;
use super::{
    Asked, LookUp, PAGE, PageRange, Profile, ProfileDirectory, ProfileFile, Ready, Root, RootKind,
    Step,
};
use crate::error::{Error, Result};
use crate::format::path_rules::{file_path_fault, name_fault};

/// What one recording may hold: requests, and bytes of names. Together they take 144 MB.
const MAX_EVENTS: usize = 2 << 20;
const MAX_NAMES: usize = 64 << 20;

/// Ranges that a later one may continue.
const OPEN_RANGES: usize = 8;

/// Pages of others that a page may come before although they were asked for earlier: 256 KiB.
const NEAR: u64 = 64;

/// Records what a launch asks for, from many threads at once.
///
/// The caller names files and directories by numbers, such as inode numbers.
/// [`ProfileBuilder::finish`] asks once for their paths.
#[derive(Debug)]
pub struct ProfileBuilder {
    log: Mutex<Log>,
    /// Requests, and bytes of names, that the log may hold.
    most_events: usize,
    most_names: usize,
}

impl Default for ProfileBuilder {
    fn default() -> Self {
        Self::bounded(MAX_EVENTS, MAX_NAMES)
    }
}

/// The number of a [`Root`] that is being recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RootId(u32);

/// What the caller knows of a file or directory whose number was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Named {
    /// The path in its root; empty for the root itself.
    pub path: PathBuf,
    /// Bytes of a file; of a directory it does not count.
    pub len: u64,
    /// BLAKE3 of the contents of a file, where it is known.
    pub digest: Option<[u8; 32]>,
}

impl Named {
    /// What is at `path` in its root. A file has `len` bytes; of a directory they do not count.
    pub fn new(path: impl Into<PathBuf>, len: u64) -> Self {
        Self {
            path: path.into(),
            len,
            digest: None,
        }
    }

    /// BLAKE3 of the contents of the file, if it is known.
    #[must_use]
    pub fn digest(mut self, digest: impl Into<Option<[u8; 32]>>) -> Self {
        self.digest = digest.into();
        self
    }
}

/// The result of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// The profile, of one run.
    pub profile: Profile,
    /// Requests for what had no name any more, and for names that no directory can hold.
    pub unnamed: u64,
    /// Requests that came when the recording was full.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Log {
    roots: Vec<Root>,
    events: Vec<Event>,
    names: Vec<u8>,
    dropped: u64,
}

#[derive(Debug, Clone, Copy)]
struct Event {
    at: u64,
    id: u64,
    root: RootId,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Pages {
        first: u64,
        end: u64,
    },
    /// The name is at `start` of the log's.
    Name {
        start: u32,
        len: u16,
        found: bool,
    },
}

impl ProfileBuilder {
    /// A recording without anything in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// A recording with room for so many requests, of 48 bytes each, and so many bytes of names. A
    /// full recording counts further requests and leaves them out.
    pub fn bounded(requests: usize, names: usize) -> Self {
        Self {
            log: Mutex::default(),
            most_events: requests,
            most_names: names,
        }
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        // A log is whole between any two statements that change it.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a root that files are read from, by its absolute path as the program sees it.
    pub fn add_root(&self, path: impl Into<PathBuf>, kind: RootKind) -> RootId {
        let roots = &mut self.log().roots;
        let path = path.into();
        roots.push(Root { path, kind });
        // The number of mounts is far below that.
        RootId(u32::try_from(roots.len() - 1).unwrap_or(u32::MAX))
    }

    /// Records that the launch asked for `len` bytes from `offset` of the file `id`, `at` after the
    /// start.
    ///
    /// This takes one lock, and no memory if the range continues the one before.
    pub fn range(&self, root: RootId, id: u64, offset: u64, len: u64, at: Duration) {
        if len == 0 {
            return;
        }
        let first = offset / PAGE;
        let end = offset.saturating_add(len).div_ceil(PAGE);
        let mut log = self.log();
        if let Some(Event {
            id: last_id,
            root: last_root,
            what:
                What::Pages {
                    first: last,
                    end: last_end,
                },
            ..
        }) = log.events.last_mut()
            && (*last_root, *last_id) == (root, id)
            && (*last..=*last_end).contains(&first)
        {
            *last_end = end.max(*last_end);
            return;
        }
        let event = Event {
            at: micros(at),
            id,
            root,
            what: What::Pages { first, end },
        };
        log.push(event, self.most_events);
    }

    /// Records that the launch looked up `name` in the directory `id`, `at` after the start.
    /// Returns false if there is no room for it.
    pub fn look_up(&self, root: RootId, id: u64, name: &OsStr, found: bool, at: Duration) -> bool {
        let mut log = self.log();
        let start = log.names.len();
        let room = start + name.len() <= self.most_names && log.events.len() < self.most_events;
        let (Ok(from), Ok(len), true) = (u32::try_from(start), u16::try_from(name.len()), room)
        else {
            log.dropped += 1;
            return false;
        };
        log.names.extend_from_slice(name.as_bytes());
        let what = What::Name {
            start: from,
            len,
            found,
        };
        let event = Event {
            at: micros(at),
            id,
            root,
            what,
        };
        log.push(event, self.most_events);
        true
    }

    /// Makes the profile of the recording. It calls `name` once for each file and directory, and
    /// leaves out those that `name` does not know any more.
    ///
    /// A page stands where the launch first asked for it. Ranges that continue each other become
    /// one, unless a page would pass more than 64 others.
    ///
    /// # Errors
    ///
    /// `Corrupt` if a profile cannot hold what `name` returns.
    pub fn finish(
        self,
        command: Vec<OsString>,
        ready: Option<Ready>,
        mut name: impl FnMut(RootId, u64) -> Option<Named>,
    ) -> Result<Recorded> {
        let mut log = self
            .log
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        log.events.sort_by_key(|event| event.at);
        let mut files = Numbers::default();
        let mut directories = Numbers::default();
        let mut looked_up = std::collections::HashSet::new();
        let mut order = Order::default();
        let mut unnamed = 0;
        for event in &log.events {
            let Event { at, id, root, what } = *event;
            match what {
                What::Pages { first, end } => {
                    // Of a file that is mounted itself, it is empty.
                    let is_file = |known: &Named| {
                        file_path_fault(known.path.as_os_str().as_bytes()).is_none()
                    };
                    let mut name = |root, id| name(root, id).filter(is_file);
                    let number = files.number((root, id), &mut name, |known: &Named| {
                        (root, known.path.clone())
                    })?;
                    let Some((file, known)) = number else {
                        unnamed += 1;
                        continue;
                    };
                    let end = end.min(known.len.div_ceil(PAGE));
                    order.pages(file, first, end, at);
                }
                What::Name { start, len, found } => {
                    let start = start as usize;
                    let bytes = &log.names[start..start + usize::from(len)];
                    let number = directories.number((root, id), &mut name, |known: &Named| {
                        (root, known.path.clone())
                    })?;
                    let Some((directory, _)) = number.filter(|_| name_fault(bytes).is_none())
                    else {
                        unnamed += 1;
                        continue;
                    };
                    if looked_up.insert((directory, bytes, found)) {
                        let name = OsString::from_vec(bytes.to_vec());
                        let look_up = LookUp {
                            directory,
                            name,
                            found,
                        };
                        order.steps.push(Step {
                            asked: Asked::LookUp(look_up),
                            at,
                            runs: 1,
                        });
                    }
                }
            }
        }
        let file = |(RootId(root), known): (RootId, Named)| ProfileFile {
            root,
            path: known.path,
            len: known.len,
            digest: known.digest,
        };
        let directory = |(RootId(root), known): (RootId, Named)| ProfileDirectory {
            root,
            path: known.path,
        };
        let profile = Profile {
            brisk: env!("CARGO_PKG_VERSION").to_owned(),
            command,
            runs: 1,
            ready,
            roots: log.roots,
            files: files.list.into_iter().map(file).collect(),
            directories: directories.list.into_iter().map(directory).collect(),
            steps: order.steps,
        };
        profile.check_invariants()?;
        Ok(Recorded {
            profile,
            unnamed,
            dropped: log.dropped,
        })
    }
}

impl Log {
    fn push(&mut self, event: Event, most: usize) {
        match self.events.len() < most {
            true => self.events.push(event),
            false => self.dropped += 1,
        }
    }
}

fn micros(at: Duration) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
}

/// Numbers in the order of first use, for what the caller numbers in another way.
#[derive(Default)]
struct Numbers {
    list: Vec<(RootId, Named)>,
    /// By the caller's number; none for what has no name.
    by_id: HashMap<(RootId, u64), Option<u32>>,
    /// Two numbers of the caller may be one path.
    by_path: HashMap<(RootId, PathBuf), u32>,
}

impl Numbers {
    fn number(
        &mut self,
        id: (RootId, u64),
        name: &mut impl FnMut(RootId, u64) -> Option<Named>,
        key: impl Fn(&Named) -> (RootId, PathBuf),
    ) -> Result<Option<(u32, &Named)>> {
        let number = match self.by_id.get(&id) {
            Some(known) => *known,
            None => {
                let number = match name(id.0, id.1) {
                    None => None,
                    Some(named) => {
                        let next = u32::try_from(self.list.len()).map_err(|_| {
                            Error::limit("the number of files", u32::MAX.into(), u32::MAX.into())
                        })?;
                        let number = *self.by_path.entry(key(&named)).or_insert(next);
                        if number == next {
                            self.list.push((id.0, named));
                        }
                        Some(number)
                    }
                };
                self.by_id.insert(id, number);
                number
            }
        };
        Ok(number.map(|number| (number, &self.list[number as usize].1)))
    }
}

/// Steps in the order in which they were first asked for.
///
/// 1. `open` has the steps, the oldest first, that a range may still continue, each with
///    `total` when it was made and the pages that it got since.
#[derive(Default)]
struct Order {
    steps: Vec<Step>,
    seen: HashMap<u32, PageSet>,
    open: VecDeque<(usize, u64, u64)>,
    /// Pages in all steps.
    total: u64,
}

impl Order {
    fn pages(&mut self, file: u32, first: u64, end: u64, at: u64) {
        let mut new = Vec::new();
        let seen = self.seen.entry(file).or_default();
        seen.insert(first, end, |first, end| new.push((first, end)));
        for (first, end) in new {
            let count = end - first;
            let (steps, total) = (&self.steps, self.total);
            let continued = |step: usize| match &steps[step].asked {
                Asked::Pages(range) => range.file == file && range.end() == first,
                Asked::LookUp(_) => false,
            };
            let joined = self
                .open
                .iter_mut()
                .rev()
                .find(|(step, since, own)| total - *since - *own <= NEAR && continued(*step));
            match joined {
                Some((step, _, own)) => {
                    if let Asked::Pages(range) = &mut self.steps[*step].asked {
                        range.count += count;
                    }
                    *own += count;
                }
                None => {
                    let asked = Asked::Pages(PageRange { file, first, count });
                    // Its own first pages are no others.
                    self.open.push_back((self.steps.len(), total + count, 0));
                    self.steps.push(Step { asked, at, runs: 1 });
                    if self.open.len() > OPEN_RANGES {
                        self.open.pop_front();
                    }
                }
            }
            self.total += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(path: &str, len: u64) -> Option<Named> {
        Some(Named::new(path, len))
    }

    fn at(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn a_file_without_a_path_in_its_root_has_no_name() {
        let builder = ProfileBuilder::new();
        let root = builder.add_root("/etc/machine-id", RootKind::Directory);
        for id in [1, 2, 3] {
            builder.range(root, id, 0, 1, at(id));
        }
        let paths = ["", "../b", "c"];
        let recorded = builder.finish(Vec::new(), None, |_, id| {
            named(paths[usize::try_from(id).ok()? - 1], 9)
        });
        let recorded = recorded.unwrap();
        let files: Vec<_> = recorded
            .profile
            .files()
            .iter()
            .map(|file| &file.path)
            .collect();
        assert_eq!((files, recorded.unnamed), (vec![&PathBuf::from("c")], 2));
    }

    #[test]
    fn what_was_first_asked_for_is_first_and_only_there() {
        let builder = ProfileBuilder::new();
        let app = builder.add_root("/opt/app", RootKind::Directory);
        builder.look_up(app, 1, "lib".as_ref(), true, at(5));
        builder.look_up(app, 1, "etc".as_ref(), false, at(6));
        builder.range(app, 7, 100, 1, at(10));
        builder.range(app, 7, 4096, 8192, at(11));
        builder.range(app, 8, 1 << 20, 4096, at(12));
        builder.range(app, 7, 0, 40_000, at(20));
        builder.look_up(app, 1, "etc".as_ref(), false, at(21));
        builder.range(app, 9, 0, 1, at(22));
        builder.range(app, 8, 0, 0, at(23));
        builder.look_up(app, 1, "a/b".as_ref(), false, at(24));
        let recorded = builder.finish(vec!["bin/app".into()], None, |_, id| match id {
            1 => named("", 0),
            7 => named("lib/a.so", 20_000),
            8 => named("lib/b.so", 2 << 20),
            _ => None,
        });
        let Recorded {
            profile,
            unnamed,
            dropped,
        } = recorded.unwrap();
        assert_eq!((unnamed, dropped), (2, 0));
        let text = String::from_utf8(profile.to_text()).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            text,
            format!(
                r#"{{
"brisk_profile": 1,
"brisk": "{version}",
"command": ["bin/app"],
"runs": 1,
"roots": [
["/opt/app", "directory"]
],
"files": [
[0, "lib/a.so", 20000, null],
[0, "lib/b.so", 2097152, null]
],
"directories": [
[0, ""]
],
"steps": [
["found", 0, "lib", 5, 1],
["absent", 0, "etc", 6, 1],
["pages", 0, 0, 5, 10, 1],
["pages", 1, 256, 1, 12, 1]
]
}}
"#
            )
        );
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let builder = ProfileBuilder::bounded(3, 5);
        let app = builder.add_root("/opt/app", RootKind::Image);
        let look_up = |name: &str| builder.look_up(app, 1, name.as_ref(), false, at(1));
        assert_eq!(["abc", "def", "de"].map(look_up), [true, false, true]);
        builder.range(app, 2, 0, 1, at(2));
        builder.range(app, 2, 1 << 20, 1, at(3));
        assert!(!look_up(""), "three requests are there");
        let recorded = builder.finish(Vec::new(), None, |_, id| {
            named(["", "f"][id as usize - 1], 9)
        });
        let recorded = recorded.unwrap();
        assert_eq!((recorded.profile.steps().len(), recorded.dropped), (3, 3));
    }

    #[test]
    fn many_threads_record_at_once() {
        let builder = ProfileBuilder::new();
        let root = builder.add_root("/app", RootKind::Image);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let builder = &builder;
                scope.spawn(move || {
                    for page in 0..1000 {
                        builder.range(root, thread, page * PAGE, PAGE, at(page));
                    }
                });
            }
        });
        let recorded = builder.finish(Vec::new(), None, |_, id| {
            named(&id.to_string(), 1000 * PAGE)
        });
        let profile = recorded.unwrap().profile;
        assert_eq!(profile.demand_by_file(), [(1000, 1000 * PAGE); 4]);
    }

    proptest! {
        /// Against the list of pages in the order in which they were first asked for.
        #[test]
        fn no_page_passes_more_than_64_others(
            ranges in prop::collection::vec((0u64..3, 0u64..200, 1u64..40), 0..60),
        ) {
            let builder = ProfileBuilder::new();
            let root = builder.add_root("/app", RootKind::Directory);
            let mut model = Vec::new();
            for (&(file, first, count), i) in ranges.iter().zip(0..) {
                builder.range(root, file, first * PAGE, count * PAGE, at(i));
                for page in first..first + count {
                    if !model.contains(&(file, page)) {
                        model.push((file, page));
                    }
                }
            }
            let name = |_, id: u64| named(&id.to_string(), 1000 * PAGE);
            let profile = builder.finish(Vec::new(), None, name).unwrap().profile;
            let id = |file: u32| profile.files[file as usize].path.to_str().unwrap().parse().unwrap();
            let pages: Vec<(u64, u64)> = profile
                .ranges()
                .flat_map(|(_, range)| (range.first..range.end()).map(move |page| (range.file, page)))
                .map(|(file, page)| (id(file), page))
                .collect();
            let mut sorted = (pages.clone(), model.clone());
            sorted.0.sort_unstable();
            sorted.1.sort_unstable();
            prop_assert_eq!(sorted.0, sorted.1);
            let position = |page: &(u64, u64)| pages.iter().position(|p| p == page).unwrap();
            let positions: Vec<usize> = model.iter().map(position).collect();
            for (i, here) in positions.iter().enumerate() {
                let passed = positions[..i].iter().filter(|before| *before > here).count();
                prop_assert!(passed as u64 <= NEAR, "{:?} passes {}", model[i], passed);
            }
        }
    }
}
