//! Observing the system calls of another process (ptrace(2)).

use std::ffi::{c_int, c_void};
use std::ptr;

use rustix::io::Result;
use rustix::process::Pid;

use super::last_errno;

/// Why a traced process has stopped at a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStop {
    /// It is about to make the call with this number.
    Entry { number: u64, arguments: [u64; 6] },
    /// The call has returned this. A number from -4095 to -1 is an error.
    Exit { value: i64 },
    /// A call of another architecture, as of a 32-bit program, or none.
    Other,
}

/// What ptrace(2) is asked for, as this C library declares it.
#[cfg(target_env = "musl")]
type Request = c_int;
#[cfg(not(target_env = "musl"))]
type Request = std::ffi::c_uint;

const PTRACE_GET_SYSCALL_INFO: Request = 0x420e;
const PTRACE_SYSCALL_INFO_ENTRY: u8 = 1;
const PTRACE_SYSCALL_INFO_EXIT: u8 = 2;

/// The architecture of this process (linux/audit.h), as `PTRACE_GET_SYSCALL_INFO` names it.
const AUDIT_ARCH: u32 = if cfg!(target_arch = "x86_64") {
    0xc000_003e
} else if cfg!(target_arch = "aarch64") {
    0xc000_00b7
} else if cfg!(target_arch = "riscv64") {
    0xc000_00f3
} else {
    0
};

/// Makes this thread the tracer of `process` and of what that starts. The process goes on.
pub fn seize(process: Pid) -> Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT;
    ptrace(libc::PTRACE_SEIZE, process, options)
}

/// Stops a process that was [seized](seize).
pub fn interrupt(process: Pid) -> Result<()> {
    ptrace(libc::PTRACE_INTERRUPT, process, 0)
}

/// Lets a stopped process go on to its next system call, with this signal or none (0).
pub fn go_on_to_call(process: Pid, signal: c_int) -> Result<()> {
    ptrace(libc::PTRACE_SYSCALL, process, signal)
}

/// Lets a stopped process go on without a tracer, with this signal or none (0).
pub fn let_go(process: Pid, signal: c_int) -> Result<()> {
    ptrace(libc::PTRACE_DETACH, process, signal)
}

fn ptrace(request: Request, process: Pid, number: c_int) -> Result<()> {
    let number = ptr::without_provenance_mut(number.cast_unsigned() as usize);
    // SAFETY: none of the requests that reach this reads or writes memory of this process: what they take is a number.
    unsafe { ptrace_with(request, process, 0, number) }
}

/// # Safety
///
/// The kernel must be allowed to read or write at `data` what this request reads or writes there with this address.
unsafe fn ptrace_with(
    request: Request,
    process: Pid,
    address: usize,
    data: *mut c_void,
) -> Result<()> {
    // SAFETY: the caller answers for `data`, and the address is a number for each request that brisk makes.
    let answer = unsafe { libc::ptrace(request, process.as_raw_pid(), address, data) };
    match answer {
        0.. => Ok(()),
        _ => Err(last_errno()),
    }
}

/// What belongs to the event for which a process has stopped: of a `fork`, the child's number.
pub fn event_message(process: Pid) -> Result<u64> {
    let mut message: libc::c_ulong = 0;
    let data = (&raw mut message).cast();
    // SAFETY: the kernel writes one `unsigned long`, which `message` is.
    unsafe { ptrace_with(libc::PTRACE_GETEVENTMSG, process, 0, data) }?;
    Ok(message)
}

/// The system call at which a process has stopped. EIO before Linux 5.3.
pub fn call_of(process: Pid) -> Result<CallStop> {
    // `struct ptrace_syscall_info`: the kind in the first byte, the architecture in the second half of the first word,
    // two pointers, and then what belongs to the kind.
    let mut words = [0u64; 11];
    let (len, data) = (size_of_val(&words), words.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most as many bytes as the third argument says, and `words` has them.
    unsafe { ptrace_with(PTRACE_GET_SYSCALL_INFO, process, len, data) }?;
    let [start, _, _, first, arguments @ .., _] = words;
    let [kind, _, _, _, arch @ ..] = start.to_ne_bytes();
    Ok(match kind {
        PTRACE_SYSCALL_INFO_ENTRY if u32::from_ne_bytes(arch) == AUDIT_ARCH => CallStop::Entry {
            number: first,
            arguments,
        },
        PTRACE_SYSCALL_INFO_EXIT => CallStop::Exit {
            value: first.cast_signed(),
        },
        _ => CallStop::Other,
    })
}
