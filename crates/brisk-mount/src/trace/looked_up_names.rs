//! Learns which names traced processes look up, whether there is something or not.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Result;

use super::asked_names::{Asked, AskedNames};
use super::look_up_probe::{LookUpProbe, Seen};
use super::tracefs::Begins;
use crate::observe::{absolute, directory_of};

/// How many look-ups wait at most.
const MOST_WAITING: usize = 1 << 20;

pub(super) struct LookedUpNames {
    probe: LookUpProbe,
    /// What is not noted yet.
    waiting: Vec<Waiting>,
    names: AskedNames,
    /// The working directories of processes, as far as anybody has seen how they came there.
    moved: HashMap<i32, PathBuf>,
    /// Of each process, whether its root directory is that of this one.
    is_in_root: HashMap<i32, bool>,
    /// Device and inode.
    root: Option<(u64, u64)>,
}

/// What happened, for working directories to be those of the time.
enum Waiting {
    LookUp {
        seen: Seen,
        /// What the path counts from, if that is no working directory.
        base: Option<PathBuf>,
    },
    Begins(Begins),
}

impl Waiting {
    fn at(&self) -> Duration {
        match self {
            Self::LookUp { seen, .. } => seen.at,
            Self::Begins(begins) => begins.at,
        }
    }
}

impl LookedUpNames {
    /// Watches all processes from now on. Errors are those of [`LookUpProbe::start`].
    pub(super) fn watch() -> Result<Self> {
        Ok(Self {
            probe: LookUpProbe::start()?,
            waiting: Vec::new(),
            names: AskedNames::default(),
            moved: HashMap::new(),
            is_in_root: HashMap::new(),
            root: identity("/"),
        })
    }

    /// Reads what processes have looked up. False if there was nothing.
    pub(super) fn read(&mut self) -> Result<bool> {
        let mut some = false;
        while let Some(seen) = self.probe.next()? {
            some = true;
            // A process may close it soon, and names are seldom looked up in others than its working directory.
            let is_in_other = seen.directory != libc::AT_FDCWD && !seen.path.starts_with(b"/");
            let base = is_in_other.then(|| directory_of(seen.process, seen.directory));
            let base = base.flatten();
            let has_room = self.waiting.len() < MOST_WAITING;
            if has_room && (!is_in_other || base.is_some()) {
                self.waiting.push(Waiting::LookUp { seen, base });
            }
        }
        Ok(some)
    }

    /// Notes that a process has begun.
    pub(super) fn begins(&mut self, begins: Begins) {
        self.waiting.push(Waiting::Begins(begins));
    }

    /// Keeps what traced processes have looked up until a time, of which everything was read, and forgets what others have.
    pub(super) fn settle(&mut self, until: Duration, is_traced: impl Fn(i32) -> bool) {
        let waiting = std::mem::take(&mut self.waiting);
        let (mut before, later) = waiting.into_iter().partition(|one| one.at() < until);
        self.waiting = later;
        before.sort_by_key(Waiting::at);
        for one in before {
            match one {
                Waiting::LookUp { seen, base } => self.note(seen, base),
                Waiting::Begins(begins) => {
                    let parent = begins.parent.and_then(|parent| self.moved.get(&parent));
                    if let Some(directory) = parent.cloned() {
                        self.moved.insert(begins.process, directory);
                    }
                }
            }
        }
        self.names.settle(is_traced);
    }

    fn note(&mut self, seen: Seen, base: Option<PathBuf>) {
        let path = PathBuf::from(OsString::from_vec(seen.path));
        let moved = || self.moved.get(&seen.process).cloned();
        // It may have changed meanwhile. A name in another directory does no harm.
        let now = || directory_of(seen.process, libc::AT_FDCWD);
        let path = absolute(&path, || base.or_else(moved).or_else(now));
        if seen.moves {
            match &path {
                Some(path) => self.moved.insert(seen.process, path.clone()),
                None => self.moved.remove(&seen.process),
            };
        }
        if let Some(path) = path
            && self.is_in_root(seen.process)
        {
            let asked = Asked {
                path,
                found: seen.found,
                at: seen.at,
            };
            self.names.add(seen.process, asked);
        }
    }

    /// Whether a process means the same names as this one. One that has ended already is taken for such: most are, and a name
    /// that is not there, or there and not expected, does no harm.
    fn is_in_root(&mut self, process: i32) -> bool {
        let root = self.root;
        *self.is_in_root.entry(process).or_insert_with(|| {
            let own = identity(&format!("/proc/{process}/root"));
            own.is_none() || own == root
        })
    }

    pub(super) fn into_names(self) -> Vec<Asked> {
        self.names.into_names()
    }
}

fn identity(path: &str) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
