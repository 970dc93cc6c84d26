//! What is seen of a launch while nobody stops it: page tables, directories that it is known to use, and how much its
//! processes have read.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::fault_around::FaultAround;
use super::files::Files;
use super::process::Process;
use super::watch::{Watch, real};

/// How long to wait before the page tables of a process are looked at, at first: it may be over soon. Each further wait is
/// half as long again, up to a second.
const FIRST_LOOK: Duration = Duration::from_millis(3);
const LAST_LOOK: Duration = Duration::from_secs(1);

/// To look holds up a program that changes its memory. So for this many times as long as it took, nobody looks again.
const REST: u32 = 20;

/// How long to wait before directories are looked at again.
const WATCH: Duration = Duration::from_millis(1);

/// How long to wait before processes are looked for that were started meanwhile: this, or a part of the time since the launch
/// began.
const CHILDREN: Duration = Duration::from_millis(2);
const CHILDREN_SHARE: u32 = 50;

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
        fault_around: &mut FaultAround,
        processes: Vec<i32>,
        left_alone: &HashSet<i32>,
        over: impl Fn() -> bool,
    ) -> Option<Vec<i32>> {
        let mut reads = Reads::default();
        processes.iter().for_each(|&process| reads.begin(process));
        let now = self.began.elapsed();
        let of = |number| Looked::new(number, program_of(number), now);
        let mut processes: Vec<Looked> = processes.into_iter().map(of).collect();
        // When mappings are looked at again.
        let mut mappings = now;
        let left = loop {
            let now = self.began.elapsed();
            if over() {
                break Some(processes.iter().map(|process| process.number).collect());
            }
            if processes.is_empty() || now >= self.at_most {
                break None;
            }
            let due = processes.iter().map(|process| process.due).min();
            let children = now + CHILDREN.max(now / CHILDREN_SHARE);
            let until = due.map_or(children, |due| due.min(children));
            self.watch.wait(until.saturating_sub(now));
            self.watch.look(self.began.elapsed());
            let now = self.began.elapsed();
            if now >= mappings {
                fault_around.look();
                let end = self.began.elapsed();
                mappings = end + (end - now) * REST;
            }
            processes
                .iter()
                .for_each(|process| reads.note(process.number));
            thread::sleep(WATCH.min(until.saturating_sub(self.began.elapsed())));
            let now = self.began.elapsed();
            add_children(&mut processes, left_alone, now);
            for process in &mut processes {
                let program = program_of(process.number);
                let is_another = program.is_some() && program != process.program;
                if is_another && fault_around.meet(process.number) {
                    process.program = program;
                }
            }
            processes.retain_mut(|process| process.due > now || process.look(files, now));
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

/// A process whose page tables are looked at from time to time.
#[derive(Debug, Clone, Copy)]
struct Looked {
    number: i32,
    /// The file of its program, or of the one before if the observer has not met it yet: device and number.
    program: Option<(u64, u64)>,
    /// When it is looked at, after the launch began.
    due: Duration,
    /// How long to wait then.
    pause: Duration,
}

impl Looked {
    fn new(number: i32, program: Option<(u64, u64)>, now: Duration) -> Self {
        Self {
            number,
            program,
            due: now + FIRST_LOOK,
            pause: FIRST_LOOK,
        }
    }

    /// Looks at its page tables. False if it has mapped nothing any more.
    fn look(&mut self, files: &mut Files, now: Duration) -> bool {
        let began = Instant::now();
        let is_left = Process::new(self.number, now).look_at_all(files);
        let took = began.elapsed();
        self.pause = (self.pause * 3 / 2).min(LAST_LOOK);
        self.due = now + took + self.pause.max(took * REST);
        is_left
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
fn add_children(processes: &mut Vec<Looked>, left_alone: &HashSet<i32>, now: Duration) {
    let mut at = 0;
    while let Some(process) = processes.get(at) {
        let (parent, program) = (process.number, process.program);
        for child in children_of(parent) {
            let is_known = processes.iter().any(|process| process.number == child);
            if !is_known && !left_alone.contains(&child) {
                // Until it becomes another program, it is what started it.
                processes.push(Looked::new(child, program, now));
            }
        }
        at += 1;
    }
}

/// The file of the program of a process.
fn program_of(process: i32) -> Option<(u64, u64)> {
    let found = fs::metadata(format!("/proc/{process}/exe")).ok()?;
    Some((found.dev(), found.ino()))
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn programs_that_are_soon_over_are_seen() {
        // On a disk, as the program itself.
        let own = std::env::current_exe().expect("this");
        let home = tempfile::tempdir_in(own.parent().expect("a directory")).expect("room");
        let home = home.path().canonicalize().expect("there");
        let programs: Vec<_> = (0..10).map(|n| home.join(format!("sleep-{n}"))).collect();
        // By other processes: none of this one's children may hold a program open for writing.
        for program in &programs {
            let copied = Command::new("cp").arg("/bin/sleep").arg(program).status();
            assert!(copied.expect("there is cp").success());
        }
        let script = "for program in ./sleep-*; do $program 0.02; done";
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", script]).current_dir(&home).spawn();
        let mut shell = shell.expect("there is a shell");
        let mut files = Files::new().expect("a mount table");
        let mut passive = Passive::new(Instant::now(), Duration::from_secs(60));
        let processes = vec![shell.id() as i32];
        passive.prepare(&files, &processes);
        let left = passive.look(
            &mut files,
            &mut FaultAround::new(),
            processes,
            &HashSet::new(),
            || false,
        );
        assert!(shell.wait().expect("it is ours").success());
        assert_eq!(left, None);
        let seen = programs.iter().filter(|program| files.is_mapped(program));
        // To look at all processes only from time to time would show half of them.
        assert!(seen.clone().count() >= 8, "{:?}", seen.collect::<Vec<_>>());
    }
}
