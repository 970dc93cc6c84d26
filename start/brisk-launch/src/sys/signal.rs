//! Signals: how they are handled, blocked, waited for and sent.

use std::ffi::c_int;
use std::ptr;

use rustix::io::Result;
use rustix::process::Pid;

use super::last_errno;

/// Lets the process go on when a terminal or a service manager asks it to end. For a process that restores
/// what another has changed.
pub fn ignore_requests_to_end() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // SAFETY: SIG_IGN is no function of ours, so nothing runs when the signal comes; the numbers
        // are those of signals that may be ignored, so the call does not fail.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Makes children leave a status to wait for. The parent may have chosen otherwise.
pub fn keep_children() {
    // SAFETY: SIG_DFL is no function of ours, and SIGCHLD a signal whose handling may be set, so the call does
    // not fail.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// What happens at a signal. None for a number that is no signal's.
pub(super) fn disposition(signal: c_int) -> Option<libc::sigaction> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action given, the call only writes the present one, to memory of its size.
    let answer = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zero is a whole action, too, so it is one whether or not the call has written it.
    (answer == 0).then(|| unsafe { action.assume_init() })
}

/// A signal that has come to a process that waits for it.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedSignal {
    /// Its number.
    pub number: c_int,
    /// Whether the kernel has sent it by itself, as for a key of the terminal.
    pub is_of_kernel: bool,
}

/// All signals of a process of one thread, blocked, and what was blocked before.
pub struct BlockedSignals {
    before: libc::sigset_t,
    of_children: Option<libc::sigaction>,
}

impl BlockedSignals {
    /// Blocks all, and makes children leave a status to wait for.
    pub fn all() -> Self {
        // SAFETY: all zero is a whole set.
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
        // SAFETY: it writes to a whole set.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: it reads one whole set and writes another.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        let of_children = disposition(libc::SIGCHLD);
        keep_children();
        Self {
            before,
            of_children,
        }
    }

    /// As it was before.
    pub fn restore(self) {
        if let Some(before) = &self.of_children {
            // SAFETY: the action is one that was installed, and nobody asks for the present one.
            unsafe { libc::sigaction(libc::SIGCHLD, before, ptr::null_mut()) };
        }
        // SAFETY: it reads a whole set.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }

    /// Waits for a signal.
    pub fn next(&self) -> ReceivedSignal {
        // SAFETY: all zero is a whole set.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: it writes to a whole set.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: all zero is a whole `siginfo_t`.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: it reads a whole set and writes one `siginfo_t`.
            let number = unsafe { libc::sigwaitinfo(&raw const all, &raw mut info) };
            if number > 0 {
                return ReceivedSignal {
                    number,
                    is_of_kernel: info.si_code > 0,
                };
            }
        }
    }
}

/// Sends a signal by its number, of which rustix knows only some.
pub fn send_signal(process: Pid, signal: c_int) -> Result<()> {
    // SAFETY: the call takes two numbers.
    match unsafe { libc::kill(process.as_raw_pid(), signal) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Lets all signals in, and gives those that a caller may have ignored their default effect.
pub fn reset_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: SIG_DFL is no function of ours, and the numbers are those of signals whose handling may be set.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: all zero is a whole set, which `sigemptyset` makes empty.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: it writes to a whole set.
    unsafe { libc::sigemptyset(&raw mut none) };
    // SAFETY: it reads a whole set, which lives through the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()) };
}
