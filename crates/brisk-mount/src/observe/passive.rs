//! What is seen of a launch while nobody stops it: page tables, directories that it is known to use, and how much its
//! processes have read.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::files::Files;
use super::process::Process;
use super::watch::{Watch, real};

/// How long to wait before page tables are looked at, at first: that holds up a program that changes its memory. Each further
/// wait is half as long again, up to a second.
const FIRST_LOOK: Duration = Duration::from_millis(15);
const LAST_LOOK: Duration = Duration::from_secs(1);

/// How long to wait before directories are looked at again.
const WATCH: Duration = Duration::from_millis(1);

/// What was seen so far.
#[derive(Debug)]
pub(super) struct Passive {
    began: Instant,
    at_most: Duration,
    watch: Watch,
    /// Bytes that processes have read by system calls meanwhile, at most. None if the system does not count them.
    read: Option<u64>,
}

impl Passive {
    /// Nothing is seen yet of a launch that began then and is observed for so long at most.
    pub(super) fn new(began: Instant, at_most: Duration) -> Self {
        Self {
            began,
            at_most,
            watch: Watch::new(),
            read: Some(0),
        }
    }

    /// Watches the directories that are known from now on, and the working directories of these processes. The launch should
    /// not go on before.
    pub(super) fn prepare(&mut self, files: &Files, processes: &[i32]) {
        self.watch.add_all(real(files.used_directories()));
        let directories = processes
            .iter()
            .filter_map(|process| fs::read_link(format!("/proc/{process}/cwd")).ok());
        self.watch.add_all(directories);
    }

    /// Looks again and again at these processes and at what they start, until it is `over`. Returns those that are left, and
    /// None if none is or the time is over. Processes that are to be left alone are not looked at.
    pub(super) fn look(
        &mut self,
        files: &mut Files,
        mut processes: Vec<i32>,
        left_alone: &HashSet<i32>,
        over: impl Fn() -> bool,
    ) -> Option<Vec<i32>> {
        let mut reads = Reads::default();
        processes.iter().for_each(|&process| reads.begin(process));
        let mut pause = FIRST_LOOK;
        let left = loop {
            let until = (self.began.elapsed() + pause).min(self.at_most);
            while self.began.elapsed() < until && !over() {
                self.watch.wait(until.saturating_sub(self.began.elapsed()));
                self.watch.look(self.began.elapsed());
                processes.iter().for_each(|&process| reads.note(process));
                thread::sleep(WATCH.min(until.saturating_sub(self.began.elapsed())));
            }
            if over() {
                break Some(processes);
            }
            pause = (pause * 3 / 2).min(LAST_LOOK);
            add_children(&mut processes, left_alone);
            processes.retain(|&process| {
                let seen = Process::new(process, self.began.elapsed());
                seen.look_at_all(files)
            });
            if processes.is_empty() || self.began.elapsed() >= self.at_most {
                break None;
            }
        };
        self.read = self
            .read
            .zip(reads.total())
            .map(|(before, now)| before.saturating_add(now));
        left
    }

    /// Tells `files` what was seen. Others may have read the files that are `known`. Returns how many bytes processes have
    /// read meanwhile, 0 if the system does not count them.
    pub(super) fn finish(mut self, files: &mut Files, known: &HashSet<PathBuf>) -> u64 {
        self.watch.look(self.began.elapsed());
        self.watch.finish(files, known, self.read);
        self.read.unwrap_or(0)
    }
}

/// How much processes have read by system calls: files, and whatever else is read in that way.
#[derive(Debug, Default)]
struct Reads {
    /// Before, and when it was looked at last. A process that is found later had read nothing.
    of: HashMap<i32, (u64, u64)>,
    is_unknown: bool,
}

impl Reads {
    fn begin(&mut self, process: i32) {
        match read_by(process) {
            Some(read) => drop(self.of.insert(process, (read, read))),
            None => self.is_unknown = true,
        }
    }

    fn note(&mut self, process: i32) {
        // What has ended counts for the process that has waited for its end.
        if let Some(read) = read_by(process) {
            self.of.entry(process).or_insert((0, 0)).1 = read;
        }
    }

    fn total(&self) -> Option<u64> {
        let read = self.of.values().map(|(from, to)| to.saturating_sub(*from));
        (!self.is_unknown).then(|| read.sum())
    }
}

/// `rchar` of `/proc/PID/io` (proc(5)).
fn read_by(process: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    let read = text.lines().find_map(|line| line.strip_prefix("rchar:"))?;
    read.trim().parse().ok()
}

/// Adds what these processes have started, and what that has started.
fn add_children(processes: &mut Vec<i32>, left_alone: &HashSet<i32>) {
    let mut at = 0;
    while let Some(&process) = processes.get(at) {
        for child in children_of(process) {
            if !processes.contains(&child) && !left_alone.contains(&child) {
                processes.push(child);
            }
        }
        at += 1;
    }
}

/// The processes that the threads of a process have started.
fn children_of(process: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let lists = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| {
            // The kernel may be built without it.
            fs::read_to_string(thread.path().join("children")).ok()
        });
    let numbers = |list: String| -> Vec<i32> {
        let words = list.split_ascii_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    lists.flat_map(numbers).collect()
}
