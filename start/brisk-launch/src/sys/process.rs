//! Starting processes, and what they keep: `fork`, `_exit`, `close_range`.

use std::ffi::{c_int, c_uint};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::{Errno, Result};
use rustix::process::{Pid, WaitOptions, child_subreaper, set_child_subreaper, waitpid};

use super::last_errno;

/// Starts a process that is nobody's child. It has a process session of its own without a terminal, `/` as
/// its working directory, `stdio` as its standard streams, and no descriptors except these and `kept`. It
/// runs `main` and ends with the status that `main` returns.
///
/// `main` must use no descriptor that is not in `kept`. Returns when the process has been started.
///
/// # Errors
///
/// EDEADLK if the process has other threads: in the copy, their locks would stay locked.
pub fn start_detached(
    kept: &[RawFd],
    stdio: BorrowedFd<'_>,
    main: impl FnOnce() -> i32,
) -> io::Result<()> {
    // An intermediate process starts it and ends. So this process, which may become a program, never has a
    // child that the program does not know. Nor does it adopt one, if it adopts the orphans of what it starts.
    let adopts = child_subreaper()?;
    if adopts.is_some() {
        set_child_subreaper(None)?;
    }
    let started = start_orphan(kept, stdio, main);
    if adopts.is_some() {
        set_child_subreaper(adopts)?;
    }
    started
}

/// As [`start_detached`].
fn start_orphan(
    kept: &[RawFd],
    stdio: BorrowedFd<'_>,
    main: impl FnOnce() -> i32,
) -> io::Result<()> {
    let Some(between) = fork()? else {
        let started = start_child(|| {
            if close_all_but(kept, stdio).is_err() || rustix::process::setsid().is_err() {
                return 1;
            }
            // If `/` cannot be entered, it cannot be left either, so that does no harm.
            match rustix::process::chdir("/") {
                Ok(()) => main(),
                Err(_) => 1,
            }
        });
        exit_now(i32::from(started.is_err()));
    };
    loop {
        match waitpid(Some(between), WaitOptions::empty()) {
            Ok(Some((_, status))) if status.exit_status() == Some(0) => return Ok(()),
            // The process that started this one may have chosen that children leave no status.
            Err(Errno::CHILD) => return Ok(()),
            Err(Errno::INTR) => {}
            Ok(_) => return Err(Errno::AGAIN.into()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Starts a child that is a copy of this process, runs `main` and ends with its status. EDEADLK if the
/// process has other threads.
pub fn start_child(main: impl FnOnce() -> i32) -> io::Result<Pid> {
    match fork()? {
        Some(child) => Ok(child),
        // Unwinding past this point would run the parent's code.
        None => exit_now(catch_unwind(AssertUnwindSafe(main)).unwrap_or(101)),
    }
}

/// The process session of `pid`. 0 if its leader is outside of the caller's PID namespace, as for a process
/// that was started in a container from outside. rustix's `getsid` treats that as an error.
pub fn process_session(pid: Pid) -> io::Result<i32> {
    // SAFETY: the call takes any number and gives one.
    match unsafe { libc::getsid(pid.as_raw_nonzero().get()) } {
        -1 => Err(io::Error::last_os_error()),
        session => Ok(session),
    }
}

/// Closes all descriptors of a process that uses none any more.
pub fn close_all() -> Result<()> {
    close_range(0, c_uint::MAX, 0)
}

/// Starts a process that is nobody's child, in the process session of this one. It has only the descriptor `kept`, with the same
/// number, runs `main` and ends. Returns when it has been started.
///
/// # Errors
///
/// As [`start_child`].
pub fn start_orphan_with(kept: &OwnedFd, main: impl FnOnce()) -> io::Result<()> {
    let between = start_child(|| {
        let started = start_child(|| {
            let fd = kept.as_raw_fd().unsigned_abs();
            let before = match fd {
                0 => Ok(()),
                fd => close_range(0, fd - 1, 0),
            };
            let closed = before.and_then(|()| close_range(fd.saturating_add(1), c_uint::MAX, 0));
            if closed.is_ok() {
                main();
            }
            0
        });
        i32::from(started.is_err())
    })?;
    match waitpid(Some(between), WaitOptions::empty()) {
        Ok(Some((_, status))) if status.exit_status() != Some(0) => Err(Errno::AGAIN.into()),
        // The process that started this one may have chosen that children leave no status.
        Ok(_) | Err(Errno::CHILD) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// The child's id, or None in the child.
pub fn fork() -> io::Result<Option<Pid>> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(Errno::DEADLK.into());
    }
    // SAFETY: the process has one thread (counted above; only that thread could start another), so
    // no lock is held and no memory is half written in the copy, and all functions may be called.
    let id = unsafe { libc::fork() };
    match id {
        -1 => Err(io::Error::last_os_error()),
        id => Ok(Pid::from_raw(id)),
    }
}

/// Ends the process without running what the parent has registered for its own end.
pub fn exit_now(status: c_int) -> ! {
    // SAFETY: `_exit` takes any number and has no other requirement.
    unsafe { libc::_exit(status) }
}

/// Closes every descriptor but `kept`, and makes `stdio` the standard streams.
fn close_all_but(kept: &[RawFd], stdio: BorrowedFd<'_>) -> Result<()> {
    rustix::stdio::dup2_stdin(stdio)?;
    rustix::stdio::dup2_stdout(stdio)?;
    rustix::stdio::dup2_stderr(stdio)?;
    let mut kept: Vec<c_uint> = kept
        .iter()
        .map(|fd| fd.unsigned_abs())
        .filter(|fd| *fd > 2)
        .collect();
    kept.sort_unstable();
    let mut first: c_uint = 3;
    for fd in kept {
        close_range(first, fd.wrapping_sub(1), 0)?;
        first = first.max(fd.saturating_add(1));
    }
    close_range(first, c_uint::MAX, 0)
}

/// Closes `fds` in this thread and in those that it will start. From now on they have their own table of
/// descriptors, so what was in the old table stays open here until this thread closes it or ends.
///
/// Call it in a thread that never uses `fds` again, in a process whose other threads keep them.
pub fn close_in_this_thread<'a>(fds: impl IntoIterator<Item = &'a OwnedFd>) -> Result<()> {
    fds.into_iter().try_for_each(|fd| {
        let fd = fd.as_raw_fd().unsigned_abs();
        close_range(fd, fd, libc::CLOSE_RANGE_UNSHARE)
    })
}

/// Closes the descriptors `first..=last`; nothing if there are none.
fn close_range(first: c_uint, last: c_uint, flags: c_uint) -> Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: the call takes three numbers. What it closes is owned by nobody who uses it again:
    // this is called in a new process (`start_detached`), whose `main` uses what was kept, and
    // which never returns into the code that owns the rest; in a process that only waits for others and then ends
    // (`close_all`); and in a thread that gets a table of
    // its own and uses none of what it closes (`close_in_this_thread`).
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    match result {
        0 => Ok(()),
        _ => match last_errno() {
            // Before Linux 5.9.
            Errno::NOSYS if flags == 0 => close_listed(first, last),
            e => Err(e),
        },
    }
}

/// Closes the open descriptors `first..=last`, one by one.
fn close_listed(first: c_uint, last: c_uint) -> Result<()> {
    let listed = std::fs::read_dir("/proc/self/fd");
    let listed = listed.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::NOSYS))?;
    // All of them, before any is closed: the list has a descriptor, too.
    let numbers: Vec<c_int> = listed
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd: &c_int| (first..=last).contains(&fd.unsigned_abs()))
        .collect();
    for fd in numbers {
        // SAFETY: the call takes a number. As for `close_range`, nobody uses again what it closes; the descriptor of the list is
        // closed already, which is an error of this call and changes nothing.
        unsafe { libc::close(fd) };
    }
    Ok(())
}
