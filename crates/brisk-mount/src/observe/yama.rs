//! Lets the observer attach again to what the program starts, where the security module Yama would not.
//!
//! With `kernel.yama.ptrace_scope` 1, the usual setting of Ubuntu, a process may trace only what it has started itself, and
//! what names it by `prctl`. The program does that before it starts, and its children do not inherit it. So each child that
//! is born traced names the observer, too, by a call that the observer puts before its first.
//! <https://docs.kernel.org/admin-guide/LSM/Yama.html>

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, WaitStatus, getpid};

use super::inserted_calls::{Calls, filters_of};

/// How many stops a child makes for it.
pub(super) const STOPS: u32 = 2;

/// The processes that have to name the observer, and those that have.
#[derive(Debug)]
pub(super) struct Yama {
    /// Whether that is needed, and what filters of system calls the observer has.
    filters: Option<String>,
    asked: HashSet<i32>,
}

impl Yama {
    /// The program has named the observer already.
    pub(super) fn new(program: i32) -> Self {
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
        Self::of(scope.is_ok_and(|scope| scope.trim() == "1"), program)
    }

    fn of(is_needed: bool, program: i32) -> Self {
        Self {
            filters: is_needed.then(|| filters_of("self")).flatten(),
            asked: HashSet::from([program]),
        }
    }

    /// Whether this process should name the observer at its next call.
    pub(super) fn is_new(&self, process: i32) -> bool {
        self.filters.is_some() && !self.asked.contains(&process)
    }

    /// Lets a process name the observer. A thread of it is at the entry of a call. It is about to come to that entry again,
    /// unless it has come to another stop, which is returned.
    pub(super) fn ask(&mut self, process: i32, thread: Pid) -> Option<WaitStatus> {
        self.asked.insert(process);
        if filters_of(process) != self.filters {
            return None;
        }
        let mut calls = Calls::begin(thread).ok()?;
        let option = u64::from(libc::PR_SET_PTRACER.cast_unsigned());
        let observer = u64::from(getpid().as_raw_nonzero().get().cast_unsigned());
        // If it fails, the observer can only look at this process once it has let it go.
        calls.call(libc::SYS_prctl, [option, observer]).ok();
        calls.end()
    }

    /// A process has ended.
    pub(super) fn ends(&mut self, process: i32) {
        self.asked.remove(&process);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::inserted_calls::stops_at_call;
    use super::*;
    use crate::syscalls::{interrupt, let_go, seize_alone};

    #[test]
    fn each_process_is_asked_once() {
        let mut sleep = Command::new("sleep").arg("60").spawn().expect("there");
        let process = sleep.id().cast_signed();
        let thread = Pid::from_raw(process).expect("not 0");
        seize_alone(thread)
            .and_then(|()| interrupt(thread))
            .expect("ours");
        assert!(stops_at_call(thread));
        let mut yama = Yama::of(true, 1);
        assert!(yama.is_new(process) && !yama.is_new(1));
        assert!(yama.ask(process, thread).is_none());
        assert!(!yama.is_new(process));
        let_go(thread, 0).expect("ours");
        assert_eq!(sleep.try_wait().expect("ours"), None);
        sleep.kill().and_then(|()| sleep.wait()).expect("ours");
        // Another one may have its number.
        yama.ends(process);
        assert!(yama.is_new(process));
        // Where everybody may trace, nobody is asked.
        assert!(!Yama::of(false, 1).is_new(process));
    }
}
