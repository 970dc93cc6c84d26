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

/// A process that is not traced is ignored after so many look-ups. Some processes look up names before they become a traced
/// program, but not so many.
const IGNORED_AFTER: u32 = 256;

pub(super) struct LookedUpNames {
    probe: LookUpProbe,
    /// What is not noted yet.
    waiting: Vec<Waiting>,
    /// How many look-ups had no room here.
    lost: u64,
    /// How many the queue had lost before the launch.
    lost_before: u64,
    names: AskedNames,
    /// How many look-ups were read of each process that is not traced. From [`IGNORED_AFTER`] on, it is ignored, because busy
    /// ones would leave no room in the queue.
    of_others: HashMap<i32, u32>,
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
        let probe = LookUpProbe::start()?;
        probe.ignore(std::process::id().cast_signed())?;
        Ok(Self {
            probe,
            waiting: Vec::new(),
            lost: 0,
            lost_before: 0,
            names: AskedNames::default(),
            of_others: HashMap::new(),
            moved: HashMap::new(),
            processes: HashMap::new(),
            in_other_root: HashSet::new(),
            root: identity("/"),
        })
    }

    /// Reads some of what other processes have looked up. Returns how many look-ups that were, at most [`MOST_QUEUED`].
    pub(super) fn read(&mut self) -> Result<u32> {
        for count in 0..MOST_QUEUED {
            let Some(seen) = self.probe.next()? else {
                return Ok(count);
            };
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
        Ok(MOST_QUEUED)
    }

    /// Forgets what was looked up until now. `are_others`: those who did it are not traced later either.
    pub(super) fn forget(&mut self, are_others: bool) -> Result<()> {
        for _ in 0..MOST_QUEUED {
            let Some(seen) = self.probe.next()? else {
                break;
            };
            if are_others {
                self.count_other(seen.process);
            }
        }
        self.lost_before = self.probe.lost()?;
        Ok(())
    }

    /// Notes that a process has begun.
    pub(super) fn begins(&mut self, begins: Begins) -> Result<()> {
        // It has the number of a process that ended, or is about to become a traced program.
        let count = self.of_others.remove(&begins.process);
        if count.is_some_and(|count| count >= IGNORED_AFTER) {
            self.probe.hear(begins.process)?;
        }
        self.waiting.push(Waiting::Begins(begins));
        Ok(())
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
                    let is_traced = is_traced(seen.process);
                    if !is_traced {
                        self.count_other(seen.process);
                    }
                    if is_traced || seen.moves {
                        self.note(seen, base, &mut in_root);
                    }
                }
                Waiting::Begins(begins) => self.inherit(begins),
            }
        }
        self.names.settle(is_traced);
    }

    fn count_other(&mut self, process: i32) {
        let count = self.of_others.entry(process).or_default();
        *count = count.saturating_add(1);
        if *count == IGNORED_AFTER {
            // If too many are ignored already, this one is told of as before.
            self.probe.ignore(process).ok();
        }
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
        let in_queue = self.probe.lost()?.saturating_sub(self.lost_before);
        Ok(self.lost.saturating_add(in_queue))
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_busy_process_that_is_not_traced_is_ignored() {
        let mut names = match LookedUpNames::watch() {
            // Some containers refuse all programs in the kernel.
            Err(Errno::PERM | Errno::NOSYS) => return,
            names => names.expect("a kernel with CONFIG_BPF_EVENTS"),
        };
        // Looks up as many names as are counted, for each line.
        let program = format!(
            "while read line; do i=0; while [ $i -lt {IGNORED_AFTER} ]; do i=$((i+1)); test -e /of-a-busy-one; done; echo done; done"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &program]).stdin(Stdio::piped());
        let mut busy = command.stdout(Stdio::piped()).spawn().expect("sh");
        let process = busy.id().cast_signed();
        let mut lines = busy.stdin.take().expect("a pipe");
        let mut answers = BufReader::new(busy.stdout.take().expect("a pipe"));
        let mut look_up = || {
            lines.write_all(b"go\n").expect("it reads");
            answers.read_line(&mut String::new()).expect("it writes");
        };
        let is_of_it =
            |one: &Waiting| matches!(one, Waiting::LookUp { seen, .. } if seen.process == process);
        let read = |names: &mut LookedUpNames| {
            names.read().expect("a queue");
            let some = names.waiting.iter().filter(|one| is_of_it(one)).count();
            names.settle(Duration::MAX, |_| false);
            some
        };
        look_up();
        assert!(read(&mut names) >= IGNORED_AFTER as usize);
        look_up();
        assert_eq!(read(&mut names), 0);
        let begins = Begins {
            at: Duration::ZERO,
            process,
            parent: None,
        };
        names.begins(begins).expect("a set");
        look_up();
        assert!(read(&mut names) >= IGNORED_AFTER as usize);
        drop(lines);
        assert!(busy.wait().expect("it ends").success());
    }
}
