//! Calls that the observer puts before the next call of a traced thread, which knows nothing of them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::{Errno, Result};
use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};

use super::calls::Call;
use super::observer::Stop;
use crate::syscalls::{
    CallRegisters, CallStop, HeldSignals, call_of, errno, go_on_to_call, interrupt, let_go,
};

/// How long to wait for the next call of a program.
const MEETING: Duration = Duration::from_millis(3);

/// How system calls of a process are filtered, as the system describes it. A call that nobody expects may end a process with a
/// filter that the observer does not know.
pub(super) fn filters_of(process: impl std::fmt::Display) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let lines = status.lines().filter(|line| line.starts_with("Seccomp"));
    Some(lines.collect())
}

/// Calls that a thread makes before the one at whose entry it has stopped.
pub(super) struct Calls {
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
    pub(super) fn begin(thread: Pid) -> Result<Self> {
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

    /// Makes a call with these first two arguments, and returns what the kernel does.
    pub(super) fn call(&mut self, number: i64, arguments: [u64; 2]) -> Result<i64> {
        if self.other.is_some() {
            return Err(Errno::INTR);
        }
        let call = self.before.with_call(number.cast_unsigned(), arguments);
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
    pub(super) fn end(self) -> Option<WaitStatus> {
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

/// Waits until a thread is at the entry of a call that it may be kept from for a moment. False if it was let go before that.
pub(super) fn stops_at_call(thread: Pid) -> bool {
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
    use std::io::Write;
    use std::process::{Child, Command, Stdio};

    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

    use super::*;
    use crate::syscalls::seize_alone;

    /// A `cat` that waits for input, at the entry of its call.
    fn waiting() -> (Child, Pid) {
        let mut cat = Command::new("cat");
        let cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let cat = cat.expect("there is it");
        let thread = Pid::from_raw(cat.id().cast_signed()).expect("not 0");
        while fs::read_to_string(format!("/proc/{thread}/syscall"))
            .is_ok_and(|call| !call.starts_with(&format!("{} 0x0 ", libc::SYS_read)))
        {}
        seize_alone(thread)
            .and_then(|()| interrupt(thread))
            .expect("ours");
        assert!(stops_at_call(thread));
        (cat, thread)
    }

    #[test]
    fn a_call_is_made_before_that_of_the_thread() {
        let (mut cat, thread) = waiting();
        let mut calls = Calls::begin(thread).expect("at a call");
        // Of its standard input.
        let made = calls.call(libc::SYS_dup2, [0, 77]).expect("two arguments");
        assert_eq!(made, 77);
        assert!(calls.call(libc::SYS_getppid, [0, 0]).expect("another") > 0);
        assert!(calls.end().is_none());
        let_go(thread, 0).expect("ours");
        let names = fs::read_dir(format!("/proc/{thread}/fd")).expect("ours");
        let names: Vec<_> = names
            .map(|entry| entry.expect("there").file_name())
            .collect();
        assert!(names.contains(&"77".into()), "{names:?}");
        // It has a copy of that end of the pipe, and reads from the other one as before.
        let mut input = cat.stdin.take().expect("a pipe");
        input.write_all(b"as before").expect("it reads");
        drop(input);
        let output = cat.wait_with_output().expect("ours");
        assert!(output.status.success());
        assert_eq!(output.stdout, b"as before");
    }

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
