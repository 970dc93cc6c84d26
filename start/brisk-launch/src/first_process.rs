//! What brisk does as the first process of a PID namespace, as in a container.
//!
//! The kernel gives such a process every orphan. A program that took its place would get brisk's own processes as children,
//! which it never started, and programs that wait for all of their children would wait for them. So the first process stays
//! beside the program, and does what such a process has to do. Its end ends all others of the namespace.

use std::ffi::c_int;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, waitpid};

use crate::error::{Action, Cause, Error, Result};
use crate::sys::process::{close_all, exit_now, fork};
use crate::sys::signal::{BlockedSignals, ReceivedSignal, send_signal};

/// Signals that a terminal sends to the whole process group in its foreground, so that the program gets them, too.
const OF_TERMINAL: [c_int; 6] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGWINCH,
];

/// Call it before this process starts one that is to outlive it as a program, and then becomes that program. If this is the
/// first process of its PID namespace, it stays: it passes signals on, collects orphans, and exits as its child does. The call
/// returns in the child. Otherwise it does nothing.
///
/// # Errors
///
/// `State` if the process has other threads, and `Io`.
pub fn leave_first_process() -> Result<()> {
    leave().map_err(|cause| Error::new(Action::Run, cause))
}

/// As [`leave_first_process`].
pub fn leave() -> Result<(), Cause> {
    if getpid() != Pid::INIT {
        return Ok(());
    }
    let failed = |e: io::Error| Cause::io("start the program beside the first process", e);
    let signals = BlockedSignals::all();
    match fork().map_err(failed) {
        Ok(Some(program)) => exit_now(stay(program, &signals)),
        Ok(None) => {
            signals.restore();
            Ok(())
        }
        Err(cause) => {
            signals.restore();
            Err(cause)
        }
    }
}

/// The work of the first process. Returns the exit status.
fn stay(program: Pid, signals: &BlockedSignals) -> c_int {
    // The name is only for people, and the directory only keeps others from unmounting it.
    rustix::thread::set_name(c"brisk-init").ok();
    rustix::process::chdir("/").ok();
    // Whoever reads what the program writes waits until nobody has it open.
    close_all().ok();
    loop {
        match waitpid(None, WaitOptions::NOHANG) {
            Ok(Some((ended, status))) if ended == program => return exit_status(status),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            // A child that ends from now on is a signal.
            Ok(None) | Err(_) => pass_on(program, signals.next()),
        }
    }
}

fn pass_on(program: Pid, signal: ReceivedSignal) {
    if is_for_program(signal) {
        // It may have ended already.
        send_signal(program, signal.number).ok();
    }
}

/// Whether the program has to get a signal that has come to the first process.
fn is_for_program(signal: ReceivedSignal) -> bool {
    let is_of_group = signal.is_of_kernel && OF_TERMINAL.contains(&signal.number);
    signal.number != libc::SIGCHLD && !is_of_group
}

/// As a shell says it: the first process of a namespace cannot end by a signal.
fn exit_status(status: WaitStatus) -> c_int {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => signal.saturating_add(128),
        (None, None) => 125,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_gets_each_signal_once() {
        for (number, is_of_kernel, passed) in [
            (libc::SIGTERM, false, true),
            (libc::SIGINT, false, true),
            // From the terminal: the program has it.
            (libc::SIGINT, true, false),
            (libc::SIGWINCH, true, false),
            // The kernel tells only the leader of the session that the terminal is gone.
            (libc::SIGHUP, true, true),
            (libc::SIGCHLD, false, false),
            (libc::SIGCHLD, true, false),
        ] {
            let signal = ReceivedSignal {
                number,
                is_of_kernel,
            };
            assert_eq!(is_for_program(signal), passed, "{signal:?}");
        }
    }
}
