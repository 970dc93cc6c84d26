//! Which pages a program touches, and not those around them.
//!
//! The kernel maps up to 16 pages around one that is touched, if they are in memory (`fault_around_bytes`), and page tables
//! then say that all were used. It maps them one by one where a `userfaultfd` watches for writes. So each new program makes
//! one, by a call that the observer puts before its first, and the observer takes it away and has the program's mappings of
//! files watched. Without messages (`WP_ASYNC`, Linux 6.7), so nothing waits for the observer, and nothing stays when it ends.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;

use rustix::io::{Errno, Result};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, WaitStatus, pidfd_getfd, pidfd_open};

use super::inserted_calls::{Calls, filters_of, stops_at_call};
use super::observer::Stop;
use super::pages::{MappedFile, mapped_files};
use crate::syscalls::{USERFAULTFD_FLAGS, UserFaults, errno, interrupt, let_go, seize_alone};

/// How many stops a new program makes for it.
pub(super) const STOPS: u32 = 6;

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
        if filters_of(process) != self.filters {
            return None;
        }
        let mut calls = Calls::begin(thread).ok()?;
        let faults = take_faults(&mut calls, process);
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

/// The descriptor of a `userfaultfd` of a thread, which itself has it no more.
fn take_faults(calls: &mut Calls, process: i32) -> Result<UserFaults> {
    let made = calls.call(libc::SYS_userfaultfd, [USERFAULTFD_FLAGS.into(), 0])?;
    let number = i32::try_from(made).map_err(|_| Errno::BADF)?;
    if number < 0 {
        return Err(Errno::from_raw_os_error(-number));
    }
    let taken = take(process, number);
    calls.call(libc::SYS_close, [made.cast_unsigned(), 0])?;
    UserFaults::new(taken?)
}

/// A copy of a descriptor of another process.
fn take(process: i32, number: i32) -> Result<OwnedFd> {
    let process = Pid::from_raw(process).ok_or(Errno::SRCH)?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    pidfd_getfd(process, number, PidfdGetfdFlags::empty())
}
