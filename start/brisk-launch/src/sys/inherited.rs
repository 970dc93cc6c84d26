//! What a process has inherited before Rust's runtime changes it, and how a program gets that.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use super::signal::disposition;

/// What the process was given that Rust's runtime changes before `main`: a bit for each.
static INHERITED: AtomicU8 = AtomicU8::new(0);

/// A bit of [`INHERITED`]. Bits 0, 1 and 2 say that the descriptor of this number was closed.
const IGNORES_PIPE: u8 = 1 << 3;

/// The loader calls what this section lists before it calls the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_INHERITED: extern "C" fn() = note_inherited;

extern "C" fn note_inherited() {
    let mut inherited = 0;
    for descriptor in 0..3 {
        // SAFETY: the call takes two numbers, and changes nothing.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            inherited |= 1 << descriptor;
        }
    }
    if disposition(libc::SIGPIPE).is_some_and(|action| action.sa_sigaction == libc::SIG_IGN) {
        inherited |= IGNORES_PIPE;
    }
    INHERITED.store(inherited, Ordering::Relaxed);
}

/// Whether SIGCHLD has come and is blocked.
fn child_signal_waits() -> bool {
    // SAFETY: all zero is a whole set.
    let mut pending: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: it writes to a whole set.
    unsafe { libc::sigpending(&raw mut pending) };
    // SAFETY: it reads a whole set.
    unsafe { libc::sigismember(&raw const pending, libc::SIGCHLD) == 1 }
}

/// Becomes the program of `command`, which gets what this process was started with, as if whoever started this one had started
/// it: whether SIGPIPE is ignored, which of the descriptors 0, 1 and 2 are closed, and no SIGCHLD for a child of brisk. Blocked
/// signals and limits stay as they are. Returns why that failed.
pub fn become_command(command: &mut Command) -> io::Error {
    let inherited = INHERITED.load(Ordering::Relaxed);
    let standard = [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ];
    for (bit, descriptor) in standard.into_iter().enumerate() {
        // The runtime has opened it. It stays open for messages if the program does not start.
        if inherited & 1 << bit != 0
            && let Err(e) = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)
        {
            return e.into();
        }
    }
    let restore = move || {
        if inherited & IGNORES_PIPE != 0 {
            // SAFETY: SIG_IGN is no function of ours, and SIGPIPE may be ignored.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        if child_signal_waits() {
            forget_own_children();
        }
        Ok(())
    };
    // SAFETY: `exec` runs it in this process, where all functions may be called: it follows no `fork`.
    unsafe { command.pre_exec(restore) };
    command.exec()
}

/// Takes back a blocked SIGCHLD that a process of brisk has left, unless the program has a child that has ended.
fn forget_own_children() {
    let Some(same) = disposition(libc::SIGCHLD) else {
        return;
    };
    // POSIX: if what happens at a signal is nothing, to set that discards a signal that has come.
    // SAFETY: the action is the present one, and nobody asks for the earlier one.
    unsafe { libc::sigaction(libc::SIGCHLD, &raw const same, ptr::null_mut()) };
    // SAFETY: all zero is a whole `siginfo_t`.
    let mut ended: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the call writes one `siginfo_t`, and takes no child's status away.
    let answer = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut ended, how) };
    // SAFETY: the call has written it for a child, or left the number 0.
    if answer == 0 && unsafe { ended.si_pid() } != 0 {
        // SAFETY: the call takes one number.
        unsafe { libc::raise(libc::SIGCHLD) };
    }
}
