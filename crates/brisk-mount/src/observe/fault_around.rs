//! Which pages a program touches, and not those around them.
//!
//! The kernel maps up to 16 pages around one that is touched, if they are in memory (`fault_around_bytes`), and page tables
//! then say that all were used. It maps them one by one where a `userfaultfd` watches for writes. So each new program makes
//! one, by a call that the observer puts before its first, and the observer takes it away and has the program's mappings of
//! files watched. Without messages (`WP_ASYNC`, Linux 6.7), so nothing waits for the observer, and nothing stays when it ends.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::{Errno, Result};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, WaitOptions, WaitStatus, pidfd_getfd, pidfd_open, waitpid,
};

use super::calls::Call;
use super::observer::Stop;
use super::pages::{MappedFile, mapped_files};
use crate::syscalls::{
    CallRegisters, CallStop, HeldSignals, USERFAULTFD_FLAGS, UserFaults, call_of, errno,
    go_on_to_call, interrupt, let_go, seize_alone,
};

/// How many stops a new program makes for it.
pub(super) const STOPS: u32 = 6;

/// How long to wait for the next call of a program.
const MEETING: Duration = Duration::from_millis(3);

/// The processes of which only those pages are seen that they touch.
#[derive(Debug)]
pub(super) struct FaultAround {
    /// Whether the system can do without it, and what filters of system calls it was seen with.
    filters: Option<String>,
    /// Processes that have just become a program.
    new: HashSet<i32>,
    /// Those for which it was tried to turn it off.
    tried: HashSet<i32>,
    off: HashMap<i32, Watched>,
}

/// The mappings of a process that a `userfaultfd` watches.
#[derive(Debug)]
struct Watched {
    faults: UserFaults,
    /// What is known to be mapped.
    watched: HashSet<MappedFile>,
}

impl FaultAround {
    pub(super) fn new() -> Self {
        let can = UserFaults::own().is_ok();
        Self {
            filters: can.then(|| filters_of("self")).flatten(),
            new: HashSet::new(),
            tried: HashSet::new(),
            off: HashMap::new(),
        }
    }

    /// A process has become another program.
    pub(super) fn begins(&mut self, process: i32) {
        self.ends(process);
        if self.filters.is_some() {
            self.new.insert(process);
        }
    }

    /// A process is traced, and may have become another program when nobody traced it.
    pub(super) fn attaches(&mut self, process: i32) {
        self.looks_at(process);
        if self.filters.is_some() && !self.tried.contains(&process) {
            self.new.insert(process);
        }
    }

    /// Whether this process has made no call yet since it has become a program, as far as is known.
    pub(super) fn is_new(&self, process: i32) -> bool {
        self.new.contains(&process)
    }

    pub(super) fn is_any_new(&self) -> bool {
        !self.new.is_empty()
    }

    /// Turns it off for a new program, of which a thread is at the entry of a call. It is about to come to that entry again,
    /// unless it has come to another stop, which is returned.
    pub(super) fn turn_off(&mut self, process: i32, thread: Pid) -> Option<WaitStatus> {
        self.new.remove(&process);
        self.tried.insert(process);
        // A call that nobody expects may end a process with a filter of its own.
        if filters_of(process) != self.filters {
            return None;
        }
        let mut calls = Calls::begin(thread).ok()?;
        let faults = calls.take_faults(process);
        let other = calls.end();
        if let Ok(faults) = faults {
            let mut known = Watched {
                faults,
                watched: HashSet::new(),
            };
            known.watch_all(process).ok();
            self.off.insert(process, known);
        }
        other
    }

    /// Turns it off for a process that became a program while nobody traced it. That is stopped at its next call, and for no
    /// longer than it takes. False if there was no call to stop it at, so that it is worth another try.
    pub(super) fn meet(&mut self, process: i32) -> bool {
        let thread = Pid::from_raw(process).filter(|_| self.filters.is_some());
        let seize = |thread: &Pid| seize_alone(*thread).and_then(|()| interrupt(*thread));
        let Some(thread) = thread.filter(|thread| seize(thread).is_ok()) else {
            return true;
        };
        if !stops_at_call(thread) {
            return false;
        }
        // Of all signals, only one that suspends it can have come meanwhile.
        let other = self.turn_off(process, thread);
        let signal = match other.map(|stop| Stop::of(stop.as_raw())) {
            Some(Stop::Signal(number)) => number,
            _ => 0,
        };
        // It may have been killed.
        let_go(thread, signal).ok();
        true
    }

    /// A process has mapped something.
    pub(super) fn maps(&mut self, process: i32, start: u64, len: u64) {
        if let Some(known) = self.off.get(&process)
            && known.watch(start, start.saturating_add(len)) == Err(Errno::NOMEM)
        {
            self.ends(process);
        }
    }

    /// A process has ended, or has become another program.
    pub(super) fn ends(&mut self, process: i32) {
        self.off.remove(&process);
        self.new.remove(&process);
        self.tried.remove(&process);
    }

    /// Looks for what was mapped meanwhile.
    pub(super) fn look(&mut self) {
        let processes: Vec<_> = self.off.keys().copied().collect();
        for process in processes {
            self.looks_at(process);
        }
    }

    fn looks_at(&mut self, process: i32) {
        if let Some(known) = self.off.get_mut(&process)
            && known.watch_all(process).is_err()
        {
            self.ends(process);
        }
    }
}

impl Watched {
    /// An error if it has gone.
    fn watch_all(&mut self, number: i32) -> Result<()> {
        for mapped in mapped_files(number).map_err(errno)? {
            let (start, end) = (mapped.start, mapped.end);
            if self.watched.insert(mapped) && self.watch(start, end) == Err(Errno::NOMEM) {
                return Err(Errno::NOMEM);
            }
        }
        Ok(())
    }

    fn watch(&self, start: u64, end: u64) -> Result<()> {
        // The kernel wants whole pages, and an `mmap` of less takes one, too.
        let end = end.next_multiple_of(brisk_io::page_size() as u64);
        self.faults.watch(start, end.saturating_sub(start))
    }
}

/// How system calls of a process are filtered, as the system describes it.
fn filters_of(process: impl std::fmt::Display) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let lines = status.lines().filter(|line| line.starts_with("Seccomp"));
    Some(lines.collect())
}

/// Calls that a thread makes before the one at whose entry it has stopped.
struct Calls {
    thread: Pid,
    before: CallRegisters,
    /// Signals that it does not get anyway.
    held: HeldSignals,
    /// Whether it has made one.
    is_any: bool,
    /// A stop that the observer has to hear of.
    other: Option<WaitStatus>,
}

impl Calls {
    fn begin(thread: Pid) -> Result<Self> {
        let before = CallRegisters::of(thread)?;
        let (at, expected) = before.instruction();
        let memory = File::open(format!("/proc/{}/mem", thread.as_raw_nonzero())).map_err(errno)?;
        let mut found = [0; 2];
        memory.read_exact_at(&mut found, at).map_err(errno)?;
        match found == expected {
            true => {
                // A handler would run in between.
                let held = HeldSignals::of(thread)?;
                HeldSignals::ALL.set(thread)?;
                Ok(Self {
                    thread,
                    before,
                    held,
                    is_any: false,
                    other: None,
                })
            }
            false => Err(Errno::OPNOTSUPP),
        }
    }

    /// The descriptor of a `userfaultfd` of the thread, which itself has it no more.
    fn take_faults(&mut self, process: i32) -> Result<UserFaults> {
        let made = self.call(
            libc::SYS_userfaultfd.cast_unsigned(),
            USERFAULTFD_FLAGS.into(),
        )?;
        let number = i32::try_from(made).map_err(|_| Errno::BADF)?;
        if number < 0 {
            return Err(Errno::from_raw_os_error(-number));
        }
        let taken = take(process, number);
        self.call(libc::SYS_close.cast_unsigned(), made.cast_unsigned())?;
        UserFaults::new(taken?)
    }

    fn call(&mut self, number: u64, argument: u64) -> Result<i64> {
        if self.other.is_some() {
            return Err(Errno::INTR);
        }
        let call = self.before.with_call(number, argument);
        if self.is_any {
            call.again().set(self.thread)?;
            self.go_on()?;
        } else {
            call.set(self.thread)?;
        }
        self.is_any = true;
        self.go_on()?;
        match call_of(self.thread)? {
            CallStop::Exit { value } => Ok(value),
            _ => Err(Errno::IO),
        }
    }

    /// Goes on to the next stop at a call.
    fn go_on(&mut self) -> Result<()> {
        loop {
            go_on_to_call(self.thread, 0)?;
            let status = wait_for(self.thread)?;
            match Stop::of(status.as_raw()) {
                Stop::Call => return Ok(()),
                Stop::Interrupted | Stop::Other => {}
                _ => {
                    self.other = Some(status);
                    return Err(Errno::INTR);
                }
            }
        }
    }

    /// The thread is about to make its own call.
    fn end(self) -> Option<WaitStatus> {
        let registers = match self.is_any {
            true => self.before.again(),
            false => self.before,
        };
        // It may have been killed meanwhile.
        registers.set(self.thread).ok();
        self.held.set(self.thread).ok();
        self.other
    }
}

/// A copy of a descriptor of another process.
fn take(process: i32, number: i32) -> Result<OwnedFd> {
    let process = Pid::from_raw(process).ok_or(Errno::SRCH)?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    pidfd_getfd(process, number, PidfdGetfdFlags::empty())
}

/// Waits until a thread is at the entry of a call that it may be kept from for a moment. False if it was let go before that.
fn stops_at_call(thread: Pid) -> bool {
    let began = Instant::now();
    let mut is_late = false;
    loop {
        let status = match waitpid(Some(thread), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => status,
            Ok(None) | Err(Errno::INTR) => {
                if !is_late && began.elapsed() > MEETING {
                    is_late = true;
                    interrupt(thread).ok();
                }
                thread::sleep(Duration::from_micros(20));
                continue;
            }
            Err(_) => return false,
        };
        let mut signal = 0;
        let goes = match Stop::of(status.as_raw()) {
            Stop::Gone => return false,
            Stop::Call => match call_of(thread) {
                Ok(CallStop::Entry { number, .. }) if Call::may_end_tracing(number) => false,
                Ok(CallStop::Entry { .. }) => return true,
                _ => !is_late,
            },
            Stop::Signal(number) => {
                signal = number;
                !is_late
            }
            Stop::Suspended => false,
            _ => !is_late,
        };
        match goes {
            true => go_on_to_call(thread, signal).ok(),
            false => {
                let_go(thread, signal).ok();
                return false;
            }
        };
    }
}

/// Waits for the next stop of a thread.
fn wait_for(thread: Pid) -> Result<WaitStatus> {
    loop {
        match waitpid(Some(thread), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(status),
            Ok(None) | Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process::Command;

    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

    use super::*;

    #[test]
    fn a_process_with_a_filter_of_its_own_is_told_from_others() {
        let start = || {
            Command::new("sleep")
                .arg("60")
                .spawn()
                .expect("there is it")
        };
        let like_this = start();
        // What this thread starts has the thread's filter.
        let filtered = thread::spawn(move || {
            let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known one");
            let rules = BTreeMap::from([(libc::SYS_userfaultfd, Vec::new())]);
            let (others, this) = (SeccompAction::Allow, SeccompAction::KillProcess);
            let filter = SeccompFilter::new(rules, others, this, arch).expect("a filter");
            apply_filter(&BpfProgram::try_from(filter).expect("short")).expect("allowed");
            start()
        });
        let filtered = filtered.join().expect("no panic");
        let own = filters_of("self");
        assert!(own.is_some());
        for (mut child, same) in [(like_this, true), (filtered, false)] {
            let its = filters_of(child.id());
            child.kill().and_then(|()| child.wait()).expect("ours");
            assert_eq!(its == own, same, "{its:?}");
        }
    }
}
