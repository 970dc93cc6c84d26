//! Learns which names traced processes look up, whether there is something or not.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Result;

use super::asked_names::{Asked, AskedNames};
use super::look_up_probe::{LookUpProbe, MOST_QUEUED, Seen};
use super::tracefs::Begins;
use crate::observe::{absolute, directory_of};

/// How many look-ups wait at most.
const MOST_WAITING: usize = 1 << 20;

pub(super) struct LookedUpNames {
    probe: LookUpProbe,
    /// What is not noted yet.
    waiting: Vec<Waiting>,
    /// How many look-ups had no room.
    lost: u64,
    names: AskedNames,
    /// The working directories of processes, as far as anybody has seen how they came there.
    moved: HashMap<i32, PathBuf>,
    /// The processes of threads.
    processes: HashMap<i32, i32>,
    /// Processes whose root directory is not that of this one.
    in_other_root: HashSet<i32>,
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
            lost: 0,
            names: AskedNames::default(),
            moved: HashMap::new(),
            processes: HashMap::new(),
            in_other_root: HashSet::new(),
            root: identity("/"),
        })
    }

    /// Reads some of what other processes have looked up. False if there was nothing.
    pub(super) fn read(&mut self) -> Result<bool> {
        let own = std::process::id().cast_signed();
        let mut some = false;
        for _ in 0..MOST_QUEUED {
            let Some(seen) = self.probe.next()? else {
                return Ok(some);
            };
            if seen.process == own {
                continue;
            }
            some = true;
            // A process may close it soon, and names are seldom looked up in others than its working directory.
            let is_in_other = seen.directory != libc::AT_FDCWD && !seen.path.starts_with(b"/");
            let base = is_in_other.then(|| directory_of(seen.process, seen.directory));
            let base = base.flatten();
            if self.waiting.len() >= MOST_WAITING {
                self.lost = self.lost.saturating_add(1);
            } else if !is_in_other || base.is_some() {
                self.waiting.push(Waiting::LookUp { seen, base });
            }
        }
        Ok(true)
    }

    /// Notes that a process has begun.
    pub(super) fn begins(&mut self, begins: Begins) {
        self.waiting.push(Waiting::Begins(begins));
    }

    /// Hears of nothing new any more.
    pub(super) fn stop(&mut self) {
        self.probe.stop();
    }

    /// Keeps what traced processes have looked up until a time, of which everything was read, and forgets what others have.
    pub(super) fn settle(&mut self, until: Duration, is_traced: impl Fn(i32) -> bool) {
        let waiting = std::mem::take(&mut self.waiting);
        let (mut before, later) = waiting.into_iter().partition(|one| one.at() < until);
        self.waiting = later;
        before.sort_by_key(Waiting::at);
        // What a process means by a name may change between two looks at it, but not for each name.
        let mut in_root = HashSet::new();
        for one in before {
            match one {
                Waiting::LookUp { seen, base } => {
                    if is_traced(seen.process) || seen.moves {
                        self.note(seen, base, &mut in_root);
                    }
                }
                Waiting::Begins(begins) => self.inherit(begins),
            }
        }
        self.names.settle(is_traced);
    }

    /// A new process is where the one is that has started it. What was known by its number belongs to an earlier one.
    fn inherit(&mut self, begins: Begins) {
        let Some(parent) = begins.parent else {
            return;
        };
        let parent = self.processes.get(&parent).copied().unwrap_or(parent);
        match self.moved.get(&parent).cloned() {
            Some(directory) => _ = self.moved.insert(begins.process, directory),
            None => _ = self.moved.remove(&begins.process),
        }
        match self.in_other_root.contains(&parent) {
            true => self.in_other_root.insert(begins.process),
            false => self.in_other_root.remove(&begins.process),
        };
        self.processes.remove(&begins.process);
    }

    fn note(&mut self, seen: Seen, base: Option<PathBuf>, in_root: &mut HashSet<i32>) {
        let process = seen.process;
        self.processes.insert(seen.thread, process);
        let path = PathBuf::from(OsString::from_vec(seen.path));
        let moved = self.moved.get(&process).cloned();
        // By now, it may have changed that. A name in another directory does no harm.
        let now = || directory_of(process, libc::AT_FDCWD);
        if seen.moves {
            let from = match path.is_absolute() {
                true => Some(PathBuf::new()),
                false => moved.clone(),
            };
            // Not known after `fchdir`, or if nobody has seen where it was. It is there by now.
            let from = from.filter(|_| !path.as_os_str().is_empty());
            let there = from.and_then(|from| from.join(&path).canonicalize().ok());
            match there.or_else(now) {
                Some(there) => _ = self.moved.insert(process, there),
                None => _ = self.moved.remove(&process),
            }
        }
        let path = absolute(&path, || match seen.moves {
            true => moved,
            false => base.or(moved).or_else(now),
        });
        if let Some(path) = path
            && self.is_in_root(process, in_root)
        {
            let asked = Asked {
                path,
                found: seen.found,
                at: seen.at,
            };
            self.names.add(process, asked);
        }
    }

    /// Whether a process means the same names as this one. One that has ended already is taken for such: most are, and a name
    /// that is not there, or there and not expected, does no harm.
    fn is_in_root(&mut self, process: i32, in_root: &mut HashSet<i32>) -> bool {
        if self.in_other_root.contains(&process) {
            return false;
        }
        if !in_root.insert(process) {
            return true;
        }
        let own = identity(&format!("/proc/{process}/root"));
        let is_other = own.is_some() && own != self.root;
        if is_other {
            in_root.remove(&process);
            self.in_other_root.insert(process);
        }
        !is_other
    }

    /// How many look-ups had no room. Some may be those of others.
    pub(super) fn lost(&self) -> Result<u64> {
        Ok(self.lost.saturating_add(self.probe.lost()?))
    }

    /// What traced processes have looked up.
    pub(super) fn into_names(self) -> Vec<Asked> {
        self.names.into_names()
    }
}

fn identity(path: &str) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
