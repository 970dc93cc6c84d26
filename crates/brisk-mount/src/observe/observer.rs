//! The process that traces: it waits for the program's stops, notes what they mean, and lets the program go on.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::profile::Ready;
use rustix::io::{Errno, Result};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, wait, waitid,
    waitpid,
};
use rustix::time::{ClockId, clock_gettime};

use super::calls::{Call, Meaning};
use super::fault_around::{self, FaultAround};
use super::files::Files;
use super::pages::mapped_files;
use super::passive::Passive;
use super::process::Process;
use super::yama::{self, Yama};
use super::{Effort, ObservationEnd, Observe, Observed};
use crate::syscalls::{
    CallStop, call_of, errno, event_message, go_on_to_call, interrupt, let_go, seize, start_child,
};

/// What a stop costs the program beside the time that the observer takes for it, because two processes take turns: 8 to 20
/// us in a virtual machine, and less on others.
const TURN: Duration = Duration::from_micros(15);

/// How much later than the one before a further observation of a program begins its first turn.
const SHIFT: Duration = Duration::from_millis(30);

/// What the program loses at once at least: it costs time to attach and to let go, too.
const SLICE: Duration = Duration::from_millis(4);

/// How long to wait without going to sleep.
const AWAKE: Duration = Duration::from_micros(50);

/// The mark of a stop at a system call (`PTRACE_O_TRACESYSGOOD`).
const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// The stop of a process that was interrupted, was just started, or is suspended (linux/ptrace.h).
const PTRACE_EVENT_STOP: i32 = 128;

pub(super) struct Observer {
    began: Instant,
    at_most: Duration,
    effort: Effort,
    /// When the first turn begins, after the program was started.
    first_turn: Duration,
    files: Files,
    fault_around: FaultAround,
    yama: Yama,
    /// All threads that are traced, by number.
    threads: HashMap<i32, Thread>,
    /// Their processes.
    processes: HashMap<i32, Process>,
    /// A child that ends when the launch has taken its time, until its status is collected.
    alarm: Option<Pid>,
    /// The thread whose stop ends the observation.
    stopped: Option<Pid>,
    /// A stop that came while a thread made calls for the observer.
    other: Option<WaitStatus>,
    /// What the program has lost so far.
    cost: Duration,
    /// Processes that get rights which a traced one would not get.
    left_alone: HashSet<i32>,
    /// Whether any program was started.
    is_started: bool,
    /// Bytes that were read while nobody looked at calls, as far as they are known.
    unseen: u64,
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
pub(super) enum Stop {
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
    pub(super) fn of(status: i32) -> Self {
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
    pub(super) fn attach(program: Pid, plan: &Observe) -> Result<Self> {
        let at_most = plan.at_most;
        let files = Files::new().map_err(errno)?;
        // Calls can be told apart only from Linux 5.3 on. Of a process that is not traced, the error is another.
        if call_of(program) == Err(Errno::IO) {
            return Err(Errno::NOSYS);
        }
        let alarm = start_child(|| {
            thread::sleep(at_most);
            0
        });
        let alarm = alarm.map_err(errno)?;
        let mut observer = Self {
            began: Instant::now(),
            at_most,
            effort: plan.effort,
            first_turn: match plan.effort {
                Effort::LongTurns => SHIFT * plan.earlier.saturating_sub(1),
                Effort::Turns | Effort::EveryCall => Duration::ZERO,
            },
            files,
            fault_around: FaultAround::new(),
            yama: Yama::new(program.as_raw_nonzero().get()),
            threads: HashMap::new(),
            processes: HashMap::new(),
            alarm: Some(alarm),
            stopped: None,
            other: None,
            cost: Duration::ZERO,
            left_alone: HashSet::new(),
            is_started: false,
            unseen: 0,
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
    /// `known`: the files of which nothing is learned from the fact that somebody has read them.
    pub(super) fn run(&mut self, known: impl FnOnce() -> HashSet<PathBuf>) -> ObservationEnd {
        let mut passive: Option<Passive> = None;
        // Whether the observer may attach to all that it may look at.
        let mut attaches = true;
        let end = 'launch: loop {
            let end = self.observe();
            let mut processes: Vec<_> = self.processes.keys().copied().collect();
            if end != ObservationEnd::Cost {
                if end != ObservationEnd::Ended {
                    self.looks_at_all();
                    self.let_all_go();
                }
                break end;
            }
            let (began, at_most) = (self.began, self.at_most);
            let passive = passive.get_or_insert_with(|| Passive::new(began, at_most));
            // Before anybody goes on, so that nothing is missed.
            passive.prepare(&self.files, &processes);
            loop {
                self.let_all_go();
                let (cost, first_turn, effort) = (self.cost, self.first_turn, self.effort);
                let over = || {
                    let elapsed = began.elapsed();
                    attaches && elapsed >= first_turn && effort.allows(cost + SLICE, elapsed)
                };
                let left = passive.look(
                    &mut self.files,
                    &mut self.fault_around,
                    processes,
                    &self.left_alone,
                    over,
                );
                let Some(left) = left else {
                    break 'launch end;
                };
                attaches = self.attach_again(&left);
                if attaches {
                    break;
                }
                processes = left;
            }
        };
        self.end_alarm();
        let Some(passive) = passive else {
            return end;
        };
        self.unseen = passive.finish(&mut self.files, &known());
        match end {
            ObservationEnd::Ended => ObservationEnd::Cost,
            end => end,
        }
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
            let is_ready = self.is_started && !self.fault_around.is_any_new();
            let is_early = is_ready && self.began.elapsed() < self.first_turn;
            if is_early || !self.effort.allows(self.cost, self.began.elapsed()) {
                return ObservationEnd::Cost;
            }
        }
        ObservationEnd::Ended
    }

    /// Attaches to those threads of a process that are not traced yet. False if there was none.
    fn attach_threads(&mut self, process: i32) -> bool {
        let mut is_any = false;
        for thread in threads_of(process) {
            let number = thread.as_raw_nonzero().get();
            if !self.threads.contains_key(&number)
                && seize(thread).and_then(|()| interrupt(thread)).is_ok()
            {
                self.knows(number);
                is_any = true;
            }
        }
        is_any
    }

    /// Notes what a stop means, and lets the thread go on. Otherwise it stays stopped.
    fn notes(&mut self, pid: Pid, stop: Stop) -> Option<ObservationEnd> {
        let thread = pid.as_raw_nonzero().get();
        let at = self.began.elapsed();
        let mut signal = 0;
        match stop {
            Stop::Gone => {
                self.forgets(thread);
                self.fault_around.ends(thread);
                self.yama.ends(thread);
                return None;
            }
            Stop::Call => match self.at_call(pid, at) {
                Meaning::Traces => return Some(ObservationEnd::Tracer),
                Meaning::LetGo => {
                    let process = self.threads.get(&thread).map(|thread| thread.process);
                    self.left_alone.extend(process);
                    let_go(pid, 0).ok();
                    self.forgets(thread);
                    return None;
                }
                Meaning::None | Meaning::Result => {
                    if let Some(other) = self.other.take() {
                        return self.notes(pid, Stop::of(other.as_raw()));
                    }
                }
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
                self.fault_around.begins(thread);
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
                if is_started && !Call::may_end_tracing(number) {
                    // One after the other: behind its own calls, the thread comes to this one again.
                    if self.yama.is_new(thread.process) {
                        self.cost += TURN * yama::STOPS;
                        self.other = self.yama.ask(thread.process, pid);
                        return Meaning::None;
                    }
                    if self.fault_around.is_new(thread.process) {
                        self.cost += TURN * fault_around::STOPS;
                        self.other = self.fault_around.turn_off(thread.process, pid);
                        return Meaning::None;
                    }
                }
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
                if let Some((start, len)) = call.maps(value) {
                    self.fault_around.maps(thread.process, start, len);
                }
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

    /// Knows what a thread has just started. Its first stop may come later, and it must not be missed until then. It may
    /// also have told all, its end included, before its start is told: then nobody waits for it.
    fn knows_started_by(&mut self, pid: Pid) {
        let started = event_message(pid).ok();
        let started = started.and_then(|number| i32::try_from(number).ok());
        if let Some(started) = started.and_then(Pid::from_raw)
            && is_traced(started)
        {
            self.knows(started.as_raw_nonzero().get());
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

    /// Looks at all page tables, for the last time.
    fn looks_at_all(&mut self) {
        for process in self.processes.values_mut() {
            if !std::mem::replace(&mut process.is_over, true) {
                process.look_at_all(&mut self.files);
            }
        }
    }

    /// Stops all threads, each for a moment, and lets them go on without a tracer. The one whose stop ends the observation
    /// goes last: if it wants to trace another, that must be free by then.
    fn let_all_go(&mut self) {
        let before = own_time();
        let last = self.stopped.map(|stopped| stopped.as_raw_nonzero().get());
        let count = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        let others = self.threads.keys().filter(|&&thread| Some(thread) != last);
        let others: Vec<_> = others.filter_map(|&thread| Pid::from_raw(thread)).collect();
        for thread in others {
            if interrupt(thread).is_err() {
                // It has ended. Its end may be known already: it may even come before the news of its start.
                waitpid(Some(thread), WaitOptions::NOHANG).ok();
                self.forgets(thread.as_raw_nonzero().get());
            }
        }
        // A thread that has stopped meanwhile may be about to get a signal, so each is waited for.
        while self.threads.keys().any(|&thread| Some(thread) != last) {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, _))) if Some(pid) == self.alarm => self.alarm = None,
                Ok(Some((pid, status))) => self.lets_go(pid, Stop::of(status.as_raw())),
                Ok(None) | Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if let Some(stopped) = self.stopped.take() {
            let_go(stopped, 0).ok();
        }
        self.threads.clear();
        self.processes.clear();
        self.cost += own_time().saturating_sub(before) + TURN * count;
    }

    /// Attaches again to these processes. False if the system does not let it attach to one that it may look at: if the others
    /// were traced, nobody would look at that one.
    fn attach_again(&mut self, processes: &[i32]) -> bool {
        let before = own_time();
        let mut is_all = true;
        for &process in processes {
            // A thread that is traced is followed to those that it starts. Others may start some meanwhile.
            while self.attach_threads(process) {}
            match self.processes.get_mut(&process) {
                Some(attached) => {
                    self.fault_around.attaches(process);
                    attached.is_attached(self.began.elapsed());
                }
                // A process that has ended has mapped nothing.
                None => is_all &= mapped_files(process).map_or(true, |files| files.is_empty()),
            }
        }
        self.cost += own_time().saturating_sub(before);
        is_all
    }

    /// Lets a thread go on without a tracer.
    fn lets_go(&mut self, pid: Pid, stop: Stop) {
        let signal = match stop {
            Stop::Signal(signal) => signal,
            Stop::Starts => {
                self.knows_started_by(pid);
                0
            }
            Stop::Ends => {
                self.looks_at_process_of(pid.as_raw_nonzero().get());
                0
            }
            _ => 0,
        };
        if stop != Stop::Gone {
            let_go(pid, signal).ok();
        }
        self.forgets(pid.as_raw_nonzero().get());
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
        let unseen = self.unseen;
        Some(Observed {
            profile,
            end,
            unseen,
        })
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

/// Whether this process traces a thread, or has not heard of its end yet.
fn is_traced(thread: Pid) -> bool {
    let look = WaitIdOptions::EXITED
        | WaitIdOptions::STOPPED
        | WaitIdOptions::NOHANG
        | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(thread), look), Err(Errno::CHILD))
}

/// The threads of a process.
fn threads_of(process: i32) -> Vec<Pid> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    let names = entries.into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

/// The process that a thread belongs to.
fn process_of(thread: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    process.trim().parse().ok()
}
