//! Sees every system call: it waits for the program's stops, notes what they mean, and lets the program go on.
//!
//! It inserts nothing and stops nothing by itself. When its thread ends, for whatever reason, the kernel lets go of everything
//! at once, wherever that is: `exit_ptrace`, `kernel/ptrace.c`. So nobody has to wait for a process that cannot stop.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::{Errno, Result};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, wait, waitid,
    waitpid,
};

use super::calls::{Call, Meaning};
use super::files::Files;
use super::observed::ObservationEnd;
use super::process::Process;
use crate::sys::errno;
use crate::sys::process::start_child;
use crate::sys::ptrace::{
    CallStop, call_of, event_message, go_on_to_call, interrupt, let_go, seize,
};

/// How long to wait without going to sleep.
const AWAKE: Duration = Duration::from_micros(50);

/// The mark of a stop at a system call (`PTRACE_O_TRACESYSGOOD`).
const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// The stop of a process that was interrupted, was just started, or is suspended (linux/ptrace.h).
const PTRACE_EVENT_STOP: i32 = 128;

pub(super) struct Observer {
    began: Instant,
    pub(super) files: Files,
    /// All threads that are traced, by number.
    threads: HashMap<i32, Thread>,
    /// Their processes.
    processes: HashMap<i32, Process>,
    /// A child that ends when the launch has taken its time, until its status is collected.
    alarm: Option<Pid>,
    /// Whether any program was started.
    pub(super) is_started: bool,
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

/// Starts a child of this process that ends when the launch has taken so long. The process must have one thread.
pub(super) fn start_alarm(at_most: Duration) -> Result<Pid> {
    start_child(|| {
        thread::sleep(at_most);
        0
    })
    .map_err(errno)
}

impl Observer {
    /// Attaches to a process, which goes on until the [alarm](start_alarm) ends.
    pub(super) fn attach(program: Pid, files: Files, alarm: Pid) -> Result<Self> {
        let mut observer = Self {
            began: Instant::now(),
            files,
            threads: HashMap::new(),
            processes: HashMap::new(),
            alarm: Some(alarm),
            is_started: false,
        };
        // Calls can be told apart only from Linux 5.3 on. Of a process that is not traced, the error is another.
        let attached = match call_of(program) {
            Err(Errno::IO) => Err(Errno::NOSYS),
            _ => seize(program).and_then(|()| interrupt(program)),
        };
        if let Err(e) = attached {
            observer.end_alarm();
            return Err(e);
        }
        observer.knows(program.as_raw_nonzero().get());
        Ok(observer)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Observes until nothing is left, or until everything must be let go. The calling thread must then end.
    pub(super) fn run(&mut self) -> ObservationEnd {
        let end = self.observe();
        let at = self.began.elapsed();
        for process in self.processes.values() {
            if !process.is_over {
                process.look_at_all(&mut self.files, at);
            }
        }
        self.end_alarm();
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
            if let Some(end) = self.notes(pid, Stop::of(status.as_raw())) {
                return end;
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
                    // What brisk itself has asked for.
                    self.files.begin_again();
                }
                // All other threads are gone, and this one has the number of the process.
                self.threads
                    .retain(|number, other| other.process != thread || *number == thread);
                self.knows(thread);
                if let Some(process) = self.processes.get_mut(&thread) {
                    process.becomes_program();
                }
            }
            Stop::Ends => self.looks_at_process_of(thread, at),
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
                    true => call.begins(process, &mut self.files, at),
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
        self.processes
            .entry(process)
            .or_insert_with(|| Process::new(process));
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
    fn looks_at_process_of(&mut self, thread: i32, at: Duration) {
        let Some(process) = self.threads.get(&thread).map(|thread| thread.process) else {
            return;
        };
        let threads = self.threads.values();
        let is_last = threads.filter(|other| other.process == process).count() == 1;
        let process = self.processes.get_mut(&process);
        if let Some(process) = process.filter(|process| is_last && !process.is_over) {
            process.look_at_all(&mut self.files, at);
            process.is_over = true;
        }
    }

    fn end_alarm(&mut self) {
        if let Some(alarm) = self.alarm.take() {
            kill_process(alarm, Signal::KILL).ok();
            waitpid(Some(alarm), WaitOptions::empty()).ok();
        }
    }
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

/// The process that a thread belongs to.
fn process_of(thread: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    process.trim().parse().ok()
}
