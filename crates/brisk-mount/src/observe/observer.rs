//! The process that traces: it waits for the program's stops, notes what they mean, and lets the program go on.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::profile::Ready;
use rustix::io::{Errno, Result};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait, waitpid};
use rustix::time::{ClockId, clock_gettime};

use super::calls::{Call, Meaning};
use super::files::Files;
use super::process::Process;
use super::watch::{Watch, real};
use super::{ObservationEnd, Observed};
use crate::syscalls::{
    CallStop, call_of, event_message, go_on_to_call, interrupt, let_go, seize, start_child,
};

/// What a stop costs the program beside the time that the observer takes for it, because two processes take turns: 8 to 12
/// us in a virtual machine.
const TURN: Duration = Duration::from_micros(9);

/// The program may lose this time in any case, and then a fifth of the time that it takes.
const FREE: Duration = Duration::from_millis(50);
const SHARE: u32 = 5;

/// How long to wait before page tables are looked at, at first. Each further wait is half as long again, up to a second.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_secs(1);

/// How long to wait before directories are looked at.
const WATCH: Duration = Duration::from_millis(10);

/// How long to wait without going to sleep.
const AWAKE: Duration = Duration::from_micros(50);

/// The mark of a stop at a system call (`PTRACE_O_TRACESYSGOOD`).
const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// The stop of a process that was interrupted, was just started, or is suspended (linux/ptrace.h).
const PTRACE_EVENT_STOP: i32 = 128;

pub(super) struct Observer {
    began: Instant,
    at_most: Duration,
    files: Files,
    /// All threads that are traced, by number.
    threads: HashMap<i32, Thread>,
    /// Their processes.
    processes: HashMap<i32, Process>,
    /// A child that ends when the launch has taken its time, until its status is collected.
    alarm: Option<Pid>,
    /// The thread whose stop ends the observation.
    stopped: Option<Pid>,
    /// What the program has lost so far.
    cost: Duration,
    /// Whether any program was started.
    is_started: bool,
}

#[derive(Debug)]
struct Thread {
    process: i32,
    at: At,
}

/// Where a thread is, as far as its stops have told.
#[derive(Debug, Clone, Copy)]
enum At {
    /// Outside of a call, or nobody knows: the next stop has to be asked.
    Any,
    /// In a call whose result says nothing: the next stop is its end.
    Call,
    /// In a call whose result says something.
    Telling(Call),
}

/// Why a traced thread has stopped, or that it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// It has ended.
    Gone,
    Call,
    /// It gets a signal.
    Signal(i32),
    /// All its process is suspended.
    Suspended,
    /// It was interrupted, or has just been started.
    Interrupted,
    /// It has started this thread or process.
    Starts,
    BecomesProgram,
    Ends,
    /// Of no interest.
    Other,
}

impl Stop {
    /// Reads what `wait` says (wait(2), ptrace(2)).
    fn of(status: i32) -> Self {
        if status & 0xff != 0x7f {
            return Self::Gone;
        }
        let (signal, event) = ((status >> 8) & 0xff, status >> 16);
        match event {
            0 if signal == AT_CALL => Self::Call,
            0 => Self::Signal(signal),
            PTRACE_EVENT_STOP => match signal {
                libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Self::Suspended,
                _ => Self::Interrupted,
            },
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                Self::Starts
            }
            libc::PTRACE_EVENT_EXEC => Self::BecomesProgram,
            libc::PTRACE_EVENT_EXIT => Self::Ends,
            _ => Self::Other,
        }
    }
}

impl Observer {
    /// Attaches to a process, which goes on.
    pub(super) fn attach(program: Pid, at_most: Duration) -> Result<Self> {
        let files = Files::new().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        // Calls can be told apart only from Linux 5.3 on. Of a process that is not traced, the error is another.
        if call_of(program) == Err(Errno::IO) {
            return Err(Errno::NOSYS);
        }
        let alarm = start_child(|| {
            thread::sleep(at_most);
            0
        });
        let alarm = alarm.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))?;
        let mut observer = Self {
            began: Instant::now(),
            at_most,
            files,
            threads: HashMap::new(),
            processes: HashMap::new(),
            alarm: Some(alarm),
            stopped: None,
            cost: Duration::ZERO,
            is_started: false,
        };
        let attached = seize(program).and_then(|()| interrupt(program));
        if let Err(e) = attached {
            observer.end_alarm();
            return Err(e);
        }
        observer.knows(program.as_raw_nonzero().get());
        Ok(observer)
    }

    /// Observes until nothing is left, or until it must let everything go. Nothing is traced any more when this returns.
    pub(super) fn run(&mut self) -> ObservationEnd {
        let end = self.observe();
        let known = self.processes.keys().copied().collect();
        // Before anybody goes on, so that nothing is missed.
        let watch = match end {
            ObservationEnd::Cost => Some(Watch::new(real(self.files.used_directories()))),
            _ => None,
        };
        if end != ObservationEnd::Ended {
            self.let_all_go();
        }
        self.end_alarm();
        if let Some(mut watch) = watch {
            self.look_without_stops(known, &mut watch);
            watch.look(self.began.elapsed());
            watch.finish(&mut self.files);
        }
        end
    }

    fn observe(&mut self) -> ObservationEnd {
        while !self.threads.is_empty() {
            let (pid, status) = match next_stop() {
                Ok(Some(stopped)) => stopped,
                Err(Errno::INTR) | Ok(None) => continue,
                Err(_) => break,
            };
            if Some(pid) == self.alarm {
                self.alarm = None;
                return ObservationEnd::Time;
            }
            let before = own_time();
            if let Some(end) = self.notes(pid, Stop::of(status.as_raw())) {
                self.stopped = Some(pid);
                return end;
            }
            self.cost += own_time().saturating_sub(before) + TURN;
            if self.cost > FREE && self.cost - FREE > self.began.elapsed() / SHARE {
                return ObservationEnd::Cost;
            }
        }
        ObservationEnd::Ended
    }

    /// Notes what a stop means, and lets the thread go on. Otherwise it stays stopped.
    fn notes(&mut self, pid: Pid, stop: Stop) -> Option<ObservationEnd> {
        let thread = pid.as_raw_nonzero().get();
        let at = self.began.elapsed();
        let mut signal = 0;
        match stop {
            Stop::Gone => {
                self.forgets(thread);
                return None;
            }
            Stop::Call => match self.at_call(pid, at) {
                Meaning::Traces => return Some(ObservationEnd::Tracer),
                Meaning::LetGo => {
                    let_go(pid, 0).ok();
                    self.forgets(thread);
                    return None;
                }
                Meaning::None | Meaning::Result => {}
            },
            Stop::Signal(number) => signal = number,
            Stop::Suspended => return Some(ObservationEnd::Suspended),
            Stop::Starts => self.knows_started_by(pid),
            Stop::BecomesProgram => {
                if !std::mem::replace(&mut self.is_started, true) {
                    // What brisk itself has asked for, and what that cost.
                    self.files.begin_again();
                    self.cost = Duration::ZERO;
                }
                // All other threads are gone, and this one has the number of the process.
                self.threads
                    .retain(|number, other| other.process != thread || *number == thread);
                self.knows(thread);
                if let Some(process) = self.processes.get_mut(&thread) {
                    process.becomes_program(at);
                }
            }
            Stop::Ends => self.looks_at_process_of(thread),
            Stop::Interrupted | Stop::Other => self.knows(thread),
        }
        // It may have been killed meanwhile. Then its end comes next.
        go_on_to_call(pid, signal).ok();
        None
    }

    fn at_call(&mut self, pid: Pid, at: Duration) -> Meaning {
        let is_started = self.is_started;
        let number = pid.as_raw_nonzero().get();
        self.knows(number);
        let Some(thread) = self.threads.get_mut(&number) else {
            return Meaning::None;
        };
        let Some(process) = self.processes.get_mut(&thread.process) else {
            return Meaning::None;
        };
        let before = std::mem::replace(&mut thread.at, At::Any);
        if let At::Call = before {
            return Meaning::None;
        }
        match (call_of(pid), before) {
            (Ok(CallStop::Entry { number, arguments }), _) => {
                let call = Call { number, arguments };
                let meaning = match is_started {
                    true => call.begins(process, &mut self.files),
                    false => call.begins_program(process),
                };
                thread.at = match meaning {
                    Meaning::Result => At::Telling(call),
                    _ => At::Call,
                };
                meaning
            }
            (Ok(CallStop::Exit { value }), At::Telling(call)) => {
                call.ends(value, process, &mut self.files, at);
                Meaning::None
            }
            _ => Meaning::None,
        }
    }

    /// Knows a thread and its process from now on.
    fn knows(&mut self, thread: i32) {
        if self.threads.contains_key(&thread) {
            return;
        }
        let process = process_of(thread).unwrap_or(thread);
        self.threads.insert(
            thread,
            Thread {
                process,
                at: At::Any,
            },
        );
        let at = self.began.elapsed();
        self.processes
            .entry(process)
            .or_insert_with(|| Process::new(process, at));
    }

    /// Knows what a thread has just started. Its first stop may come later, and it must not be missed until then.
    fn knows_started_by(&mut self, pid: Pid) {
        let started = event_message(pid).ok();
        if let Some(started) = started.and_then(|number| i32::try_from(number).ok()) {
            self.knows(started);
        }
    }

    fn forgets(&mut self, thread: i32) {
        if let Some(Thread { process, .. }) = self.threads.remove(&thread)
            && self.threads.values().all(|other| other.process != process)
        {
            self.processes.remove(&process);
        }
    }

    /// Looks at page tables that are about to go away.
    fn looks_at_process_of(&mut self, thread: i32) {
        let Some(process) = self.threads.get(&thread).map(|thread| thread.process) else {
            return;
        };
        let threads = self.threads.values();
        let is_last = threads.filter(|other| other.process == process).count() == 1;
        let process = self.processes.get_mut(&process);
        if let Some(process) = process.filter(|process| is_last && !process.is_over) {
            process.look_at_all(&mut self.files);
            process.is_over = true;
        }
    }

    /// Stops all threads, each for a moment, and lets them go on without a tracer. The one whose stop ends the observation
    /// goes last: if it wants to trace another, that must be free by then.
    fn let_all_go(&mut self) {
        self.end_alarm();
        let last = self.stopped.map(|stopped| stopped.as_raw_nonzero().get());
        for process in self.processes.values_mut() {
            if !std::mem::replace(&mut process.is_over, true) {
                process.look_at_all(&mut self.files);
            }
        }
        let others = self.threads.keys().filter(|&&thread| Some(thread) != last);
        for thread in others.filter_map(|&thread| Pid::from_raw(thread)) {
            interrupt(thread).ok();
        }
        // A thread that has stopped meanwhile may be about to get a signal, so each is waited for.
        while self.threads.keys().any(|&thread| Some(thread) != last) {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => self.lets_go(pid, Stop::of(status.as_raw())),
                Ok(None) | Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if let Some(stopped) = self.stopped {
            let_go(stopped, 0).ok();
        }
    }

    /// Lets a thread go on without a tracer.
    fn lets_go(&mut self, pid: Pid, stop: Stop) {
        let signal = match stop {
            Stop::Signal(signal) => signal,
            Stop::Starts => {
                self.knows_started_by(pid);
                0
            }
            _ => 0,
        };
        if stop != Stop::Gone {
            let_go(pid, signal).ok();
        }
        self.forgets(pid.as_raw_nonzero().get());
    }

    /// Looks again and again at the page tables of these processes and of what they start, and at directories, until all are
    /// gone or the time is over.
    fn look_without_stops(&mut self, mut processes: Vec<i32>, watch: &mut Watch) {
        let mut pause = FIRST_LOOK;
        while !processes.is_empty() {
            let until = (self.began.elapsed() + pause).min(self.at_most);
            while self.began.elapsed() < until {
                thread::sleep(WATCH.min(until.saturating_sub(self.began.elapsed())));
                watch.look(self.began.elapsed());
            }
            if self.began.elapsed() >= self.at_most {
                return;
            }
            pause = (pause * 3 / 2).min(LAST_LOOK);
            let mut at = 0;
            while let Some(&process) = processes.get(at) {
                for child in children_of(process) {
                    if !processes.contains(&child) {
                        processes.push(child);
                    }
                }
                at += 1;
            }
            processes.retain(|&process| {
                let seen = Process::new(process, self.began.elapsed());
                seen.look_at_all(&mut self.files)
            });
        }
    }

    fn end_alarm(&mut self) {
        if let Some(alarm) = self.alarm.take() {
            kill_process(alarm, Signal::KILL).ok();
            waitpid(Some(alarm), WaitOptions::empty()).ok();
        }
    }

    /// The profile. None if no program was started.
    pub(super) fn finish(self, command: Vec<OsString>, end: ObservationEnd) -> Option<Observed> {
        if !self.is_started {
            return None;
        }
        let at = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let recorded = self.files.finish(command, Ready::new(end.describe(), at));
        let profile = recorded.ok()?.profile;
        Some(Observed { profile, end })
    }
}

/// The processor time of this thread. What others take from it is no cost of observing.
fn own_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Waits for the next stop, first without going to sleep: to wake a process on another processor takes longer than most
/// programs take to their next call.
fn next_stop() -> Result<Option<(Pid, WaitStatus)>> {
    let began = Instant::now();
    while began.elapsed() < AWAKE {
        if let Some(stopped) = wait(WaitOptions::NOHANG)? {
            return Ok(Some(stopped));
        }
        std::hint::spin_loop();
    }
    wait(WaitOptions::empty())
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

/// The process that a thread belongs to.
fn process_of(thread: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    process.trim().parse().ok()
}
