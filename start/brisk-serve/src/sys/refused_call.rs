//! System calls that a filter has stopped (seccomp(2)): they fail, and the log names them.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether a filter of system calls can stop a call and let a handler answer it.
pub(crate) fn has_seccomp_filters() -> bool {
    let action = libc::SECCOMP_RET_TRAP;
    // SAFETY: the call reads one number, which lives through it.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0 as c_uint,
            &raw const action,
        )
    };
    answer == 0
}

/// How many system calls [`LISTED`] and [`REPORTED`] have room for. The kernel numbers them from 0, and has about 470.
const CALLS: usize = 512;

/// A set of system calls.
type CallSet = [AtomicU64; CALLS / 64];

/// The calls that the filter allows, with some arguments at least.
static LISTED: CallSet = [const { AtomicU64::new(0) }; CALLS / 64];

/// The calls that were reported as refused.
static REPORTED: CallSet = [const { AtomicU64::new(0) }; CALLS / 64];

/// Puts a call into the set, and returns whether it was there. A call without room counts as there.
fn put(set: &CallSet, call: i64) -> bool {
    let place = usize::try_from(call).ok();
    let Some((word, bit)) = place.and_then(|at| Some((set.get(at / 64)?, 1 << (at % 64)))) else {
        return true;
    };
    word.fetch_or(bit, Ordering::Relaxed) & bit != 0
}

fn is_in(set: &CallSet, call: i64) -> bool {
    let place = usize::try_from(call).ok();
    let word = place.and_then(|at| Some((set.get(at / 64)?, at % 64)));
    word.is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & (1 << bit) != 0)
}

/// Whether [`report_refused_calls`] knows the registers of this processor.
pub(crate) const fn can_report_refused_calls() -> bool {
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
}

/// Makes a call that a filter of system calls has stopped fail: with ENOSYS, or with EPERM if it is one of `listed`,
/// which the filter allows with other arguments. The first of each kind is written to the standard error stream.
///
/// The filter must stop calls with `SECCOMP_RET_TRAP`.
pub(crate) fn report_refused_calls(listed: &[i64]) {
    for set in [&LISTED, &REPORTED] {
        // A child that is confined again has another list.
        set.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
    for call in listed {
        put(&LISTED, *call);
    }
    // SAFETY: all zero is a whole action: the default, without flags and with no signal blocked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_refused_call as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
    // SAFETY: `action` is whole and lives through the call, and its handler has the type that SA_SIGINFO asks for and
    // makes only calls that a signal allows. SIGSYS may have a handler, so the call does not fail.
    unsafe { libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut()) };
}

/// Async-signal-safe: it touches atomics and registers, and makes the calls `write` and `getpid`.
extern "C" fn on_refused_call(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    const SYS_SECCOMP: c_int = 1;
    // SAFETY: the kernel gives a handler with SA_SIGINFO a pointer to a whole `siginfo_t`.
    if unsafe { (*info).si_code } != SYS_SECCOMP {
        // Somebody sent the signal.
        return;
    }
    // SAFETY: it is where the C library keeps this thread's number of the last error.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` points to this thread's number for as long as the thread lives, and only this thread accesses it.
    let before = unsafe { *errno };
    // SAFETY: the kernel gives a handler with SA_SIGINFO a pointer to the registers of the code that was interrupted,
    // which nobody else accesses until the handler returns.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    answer_refused_call(context);
    // SAFETY: as `before` was read, it can be written: what was interrupted finds there what it has left.
    unsafe { *errno = before };
}

/// Sets the result of the call in these registers.
fn answer_refused_call(context: &mut libc::ucontext_t) {
    let call = call_in(context);
    let (error, why) = match is_in(&LISTED, call) {
        true => (libc::EPERM, "must not have its arguments"),
        false => (libc::ENOSYS, "this process does not need"),
    };
    if !put(&REPORTED, call) {
        let mut line = Line::new();
        line.add(b"brisk[");
        line.add_number(u64::from(std::process::id()));
        line.add(b"]: system call ");
        line.add_number(call.unsigned_abs());
        line.add(b" was refused, which ");
        line.add(why.as_bytes());
        line.add(b": ");
        for argument in arguments_in(context) {
            line.add_number(argument);
            line.add(b" ");
        }
        line.add(b"\n");
        // SAFETY: it is the standard error stream, which this process never closes.
        let log = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
        // If the log is full, there is no place to say so.
        rustix::io::write(log, line.bytes()).ok();
    }
    set_result(context, -i64::from(error));
}

/// A line of text that needs no memory from the allocator, which the interrupted code may be using.
struct Line {
    text: [u8; 128],
    len: usize,
}

impl Line {
    fn new() -> Self {
        Self {
            text: [0; 128],
            len: 0,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(free) = self.text.get_mut(self.len) {
                *free = *byte;
                self.len += 1;
            }
        }
    }

    fn add_number(&mut self, number: u64) {
        if number >= 10 {
            self.add_number(number / 10);
        }
        // A digit.
        self.add(&[b'0' + (number % 10) as u8]);
    }

    fn bytes(&self) -> &[u8] {
        self.text.get(..self.len).unwrap_or_default()
    }
}

/// The number of the call that was stopped, and where its result goes.
#[cfg(target_arch = "x86_64")]
fn call_in(context: &libc::ucontext_t) -> i64 {
    context.uc_mcontext.gregs[libc::REG_RAX as usize]
}

/// Its first three arguments.
#[cfg(target_arch = "x86_64")]
fn arguments_in(context: &libc::ucontext_t) -> [u64; 3] {
    [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX]
        .map(|register| context.uc_mcontext.gregs[register as usize].cast_unsigned())
}

#[cfg(target_arch = "x86_64")]
fn set_result(context: &mut libc::ucontext_t, result: i64) {
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = result;
}

#[cfg(target_arch = "aarch64")]
fn call_in(context: &libc::ucontext_t) -> i64 {
    context.uc_mcontext.regs[8].cast_signed()
}

#[cfg(target_arch = "aarch64")]
fn arguments_in(context: &libc::ucontext_t) -> [u64; 3] {
    [0, 1, 2].map(|register| context.uc_mcontext.regs[register])
}

#[cfg(target_arch = "aarch64")]
fn set_result(context: &mut libc::ucontext_t, result: i64) {
    context.uc_mcontext.regs[0] = result.cast_unsigned();
}

// No filter is installed there: see `can_report_refused_calls`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn call_in(_: &libc::ucontext_t) -> i64 {
    -1
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn arguments_in(_: &libc::ucontext_t) -> [u64; 3] {
    [0; 3]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn set_result(_: &mut libc::ucontext_t, _: i64) {}
