//! The priority of a process: of its reads, and of its work.

use std::ffi::c_int;

use brisk_launch::sys::last_errno;
use rustix::io::Result;

/// Gives reads and writes of the calling thread, and of those that it starts, the priority that follows from niceness.
pub(crate) fn set_default_io_priority() -> Result<()> {
    const WHO_PROCESS: c_int = 1;
    // SAFETY: the call takes three numbers.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0 as c_int, 0 as c_int) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Lets the calling thread, and those that it starts, run as ordinary threads do.
pub(crate) fn set_ordinary_scheduling() -> Result<()> {
    // SAFETY: all zero is a whole parameter, which an ordinary thread must have.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // The call itself, because musl's function of this name does nothing.
    // SAFETY: the call reads one whole parameter, which lives through it.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0 as c_int,
            libc::SCHED_OTHER,
            &raw const parameter,
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}
