//! Looks at a launch from outside, while nobody stops it: at page tables, at directories that it is known to use, and at how
//! much its processes have read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpid;
use rustix::time::{ClockId, clock_gettime};

use super::files::Files;
use super::observed::ObservationEnd;
use super::pages::look_at_all;
use super::process_events::{ProcessEvent, ProcessEvents};
use super::watch::{Watch, real};

/// How long to wait before the page tables of a process are looked at, at first: it may be over soon. Each further wait is
/// a quarter longer, up to a second.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_secs(1);

/// To look holds up a program that changes its memory. So for this many times as long as it took, nobody looks at it again.
const REST: u32 = 10;

/// The processor time that all looks together may take: so much, and then this part of the time since the launch began.
const FREE: Duration = Duration::from_millis(4);
const SHARE: u32 = 25;

/// How long to wait before directories are looked at again.
const WATCH: Duration = Duration::from_millis(2);

/// How long to wait before processes are looked for that were started meanwhile, where the kernel tells nothing of them: this,
/// or a part of the time since the launch began.
const CHILDREN: Duration = Duration::from_millis(2);
const CHILDREN_SHARE: u32 = 50;

/// How many processes of a launch are looked at, at most.
const MOST: usize = 512;

/// What was seen so far.
pub(super) struct Outside {
    began: Instant,
    /// The processor time that looks at page tables have taken.
    spent: Duration,
    /// See [`FREE`].
    free: Duration,
    at_most: Duration,
    watch: Watch,
    /// Directories that were given to `watch`.
    watched: HashSet<PathBuf>,
    /// None if the kernel tells nothing: then processes are looked for.
    events: Option<ProcessEvents>,
    /// The process that becomes the program, and whether it is that by now.
    first: i32,
    pub(super) is_started: bool,
    processes: BTreeMap<i32, Looked>,
    /// How much each process has read by system calls: files, and whatever else is read in that way.
    read: HashMap<i32, u64>,
}

/// A process whose page tables are looked at from time to time.
#[derive(Debug, Clone, Copy)]
struct Looked {
    /// When it is looked at.
    due: Duration,
    /// How long to wait then.
    pause: Duration,
}

impl Looked {
    fn new(now: Duration) -> Self {
        Self {
            due: now + FIRST_LOOK,
            pause: FIRST_LOOK,
        }
    }
}

impl Outside {
    /// Looks from now on at this process, at what it starts, and at what happens in the directories that are `known`, for so long at
    /// most.
    pub(super) fn new(
        process: i32,
        events: Option<ProcessEvents>,
        at_most: Duration,
        known: impl Iterator<Item = PathBuf>,
    ) -> Self {
        let mut outside = Self {
            began: Instant::now(),
            spent: Duration::ZERO,
            free: FREE,
            at_most,
            watch: Watch::new(),
            watched: HashSet::new(),
            events,
            first: process,
            is_started: false,
            processes: BTreeMap::from([(process, Looked::new(Duration::ZERO))]),
            read: HashMap::new(),
        };
        outside.watch_directories(known);
        outside
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn watch_directories(&mut self, directories: impl Iterator<Item = PathBuf>) {
        let new = directories.filter(|path| self.watched.insert(path.clone()));
        self.watch.add_all(real(new.collect()));
    }

    /// Looks again and again until no process is left, or the time is over.
    pub(super) fn run(&mut self, files: &mut Files) -> ObservationEnd {
        let mut children = Duration::ZERO;
        loop {
            let now = self.began.elapsed();
            if now >= self.at_most {
                return ObservationEnd::Time;
            }
            if self.processes.is_empty() {
                return ObservationEnd::Ended;
            }
            let due = self.processes.values().map(|process| process.due).min();
            let mut until = due.unwrap_or(now).max(self.free_at());
            if self.events.is_none() {
                until = until.min(children);
            }
            self.wait(until.saturating_sub(now));
            self.watch.look(self.began.elapsed());
            self.note_events();
            let now = self.began.elapsed();
            if self.events.is_none() && now >= children {
                self.find_children(now);
                children = now + CHILDREN.max(now / CHILDREN_SHARE);
            }
            self.look_at_due(files);
        }
    }

    /// When there is processor time for a look again.
    fn free_at(&self) -> Duration {
        self.spent.saturating_sub(self.free) * SHARE
    }

    /// Waits until something happens, but not longer than this. What happens in directories is collected for a moment.
    fn wait(&self, at_most: Duration) {
        let watch = self.watch.descriptor();
        let events = self.events.as_ref().map(ProcessEvents::descriptor);
        let fds = [watch, events].into_iter().flatten();
        let mut fds: Vec<_> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let began = Instant::now();
        let timeout = Timespec::try_from(at_most).ok();
        // If it is interrupted, there is a next time.
        poll(&mut fds, timeout.as_ref()).ok();
        let left = at_most.saturating_sub(began.elapsed());
        thread::sleep(left.min(match self.events {
            Some(_) => WATCH / 2,
            None => WATCH,
        }));
    }

    fn note_events(&mut self) {
        let Some(events) = &self.events else {
            return;
        };
        let now = self.began.elapsed();
        for event in events.read() {
            match event {
                ProcessEvent::Started { parent, child } => {
                    if self.processes.contains_key(&parent) {
                        self.adds(child, now);
                    }
                }
                ProcessEvent::BecameProgram(process) => {
                    // It may be over before anybody looks.
                    self.is_started |= process == self.first;
                    if let Some(looked) = self.processes.get_mut(&process) {
                        *looked = Looked::new(now);
                    }
                }
                ProcessEvent::Ended(process) => {
                    self.processes.remove(&process);
                }
                ProcessEvent::Missed => self.find_children(now),
            }
        }
    }

    fn adds(&mut self, process: i32, now: Duration) {
        // The observer itself was started by the process that becomes the program.
        let own = getpid().as_raw_nonzero().get();
        if process != own && self.processes.len() < MOST {
            self.processes
                .entry(process)
                .or_insert_with(|| Looked::new(now));
        }
    }

    /// Adds what the known processes have started, and what that has started.
    fn find_children(&mut self, now: Duration) {
        let mut parents: Vec<i32> = self.processes.keys().copied().collect();
        while let Some(parent) = parents.pop() {
            for child in children_of(parent) {
                if !self.processes.contains_key(&child) {
                    self.adds(child, now);
                    parents.push(child);
                }
            }
        }
    }

    fn look_at_due(&mut self, files: &mut Files) {
        let now = self.began.elapsed();
        let due = self.processes.iter();
        let due = due.filter(|(_, process)| process.due <= now);
        let due: Vec<_> = due.map(|(number, _)| *number).collect();
        let mut is_any = false;
        for number in due {
            if number == self.first && !self.starts(now) {
                continue;
            }
            if self.free_at() > self.began.elapsed() {
                break;
            }
            is_any = true;
            self.note_read(number);
            let (began, before) = (self.began.elapsed(), own_time());
            // What may not be looked at is left alone: a program with the rights of others.
            let is_left = look_at_all(number, files, began);
            self.spent += own_time().saturating_sub(before);
            if !is_left {
                self.processes.remove(&number);
                continue;
            }
            let now = self.began.elapsed();
            if let Some(process) = self.processes.get_mut(&number) {
                process.pause = (process.pause * 5 / 4).min(LAST_LOOK);
                process.due = now + process.pause.max((now - began) * REST);
            }
        }
        if is_any {
            self.watch_directories(files.used_directories().into_iter());
        }
    }

    /// Whether the first process has become the program by now. Until then it is brisk.
    fn starts(&mut self, now: Duration) -> bool {
        if self.is_started {
            return true;
        }
        let program = |process: &str| {
            let found = fs::metadata(format!("/proc/{process}/exe")).ok()?;
            Some((found.dev(), found.ino()))
        };
        let is_program = program(&self.first.to_string()) != program("self");
        match (is_program, self.processes.get_mut(&self.first)) {
            (true, _) => self.is_started = true,
            (false, Some(process)) => *process = Looked::new(now),
            (false, None) => {}
        }
        is_program
    }

    fn note_read(&mut self, process: i32) {
        // What has ended counts for the process that has waited for its end.
        if let Some(read) = read_by(process) {
            self.read.insert(process, read);
        }
    }

    /// Tells `files` what was seen in directories. Others may have read the files that are `known`. Returns how many bytes
    /// processes have read at least.
    pub(super) fn finish(mut self, files: &mut Files, known: &HashSet<PathBuf>) -> u64 {
        self.watch.look(self.began.elapsed());
        let read = self
            .read
            .values()
            .fold(0, |sum: u64, read| sum.saturating_add(*read));
        // What was read after the last look is not counted.
        self.watch.finish(files, known, read.saturating_mul(2));
        read
    }
}

/// `rchar` of `/proc/PID/io` (proc(5)).
fn read_by(process: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    let read = text.lines().find_map(|line| line.strip_prefix("rchar:"))?;
    read.trim().parse().ok()
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

/// The processor time of this thread.
fn own_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::super::inputs::Inputs;
    use super::*;

    /// Looks at a shell that starts programs of its own, each of which ends when it was seen.
    fn sees_all(events: Option<ProcessEvents>) {
        // On a disk, as the program itself.
        let own = std::env::current_exe().expect("this");
        let home = tempfile::tempdir_in(own.parent().expect("a directory")).expect("room");
        let home = home.path().canonicalize().expect("there");
        let programs: Vec<_> = (0..3).map(|n| home.join(format!("head-{n}"))).collect();
        // By other processes: none of this one's children may hold a program open for writing.
        for program in &programs {
            let copied = Command::new("cp")
                .arg("/usr/bin/head")
                .arg(program)
                .status();
            assert!(copied.expect("there is cp").success());
        }
        let script = "for program in ./head-*; do $program -n 1; done";
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .current_dir(&home)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("there is a shell");
        let mut stdin = shell.stdin.take().expect("a pipe");
        let process = i32::try_from(shell.id()).expect("small");
        let mut outside = Outside::new(process, events, Duration::ZERO, std::iter::empty());
        // Without optimisation, and beside other tests, looks take long.
        outside.free = Duration::MAX;
        let mut files = Files::new(Inputs::of_test()).expect("a mount table");
        let deadline = Duration::from_secs(60);
        for program in &programs {
            while !files.is_mapped(program) {
                assert!(outside.elapsed() < deadline, "{program:?} is not seen");
                outside.at_most = outside.elapsed() + Duration::from_millis(10);
                assert_eq!(outside.run(&mut files), ObservationEnd::Time);
            }
            stdin.write_all(b"\n").expect("it waits for this");
        }
        assert!(outside.is_started);
        outside.at_most = outside.elapsed() + deadline;
        let end = std::thread::scope(|scope| {
            let waits = scope.spawn(|| shell.wait());
            let end = outside.run(&mut files);
            assert!(waits.join().expect("no panic").expect("ours").success());
            end
        });
        assert_eq!(end, ObservationEnd::Ended);
    }

    #[test]
    fn programs_of_programs_are_seen_while_they_run_and_the_end_of_all() {
        sees_all(Some(ProcessEvents::listen().expect("as root")));
        sees_all(None);
    }
}
