//! Watches processes until they end.
//!
//! The kernel does that by a descriptor of the process (`pidfd_open`, Linux 5.3). On older ones, another process looks again and
//! again, and closes a pipe.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use brisk_launch::sys::process::start_orphan_with;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How often the other process looks.
const PAUSE: Duration = Duration::from_millis(100);

/// A descriptor that is readable when all threads of the process have ended, and not before.
///
/// # Errors
///
/// `SRCH` if there is no such process.
pub(super) fn watch(pid: Pid) -> rustix::io::Result<OwnedFd> {
    match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::NOSYS) => watch_by_looking(pid),
        found => found,
    }
}

fn watch_by_looking(pid: Pid) -> rustix::io::Result<OwnedFd> {
    let born = started_at(pid).ok_or(Errno::SRCH)?;
    let (watched, held) = pipe_with(PipeFlags::CLOEXEC)?;
    let started = start_orphan_with(&held, || {
        // The name is only for people, so a failure does not matter.
        rustix::thread::set_name(c"brisk-looker").ok();
        let pause = Timespec::try_from(PAUSE).unwrap_or_default();
        let mut fds = [PollFd::new(&held, PollFlags::empty())];
        // Another process may get its number. Nobody waits any more if the other end is closed.
        while started_at(pid) == Some(born) && matches!(poll(&mut fds, Some(&pause)), Ok(0)) {}
    });
    started.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))?;
    Ok(watched)
}

/// When a process that lives was started, in the system's ticks. None if there is none, or it has ended and nobody has its
/// status.
fn started_at(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    parse_stat(&stat)
}

/// The name of the process may have spaces and parentheses.
fn parse_stat(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_ascii_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (!["Z", "X"].contains(&state)).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_told_from_one_that_lives() {
        let stat = |state: &str| {
            format!("7 (a) S b) {state} 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1")
        };
        assert_eq!(parse_stat(&stat("S")), Some(4711));
        assert_eq!(parse_stat(&stat("Z")), None);
        assert_eq!(parse_stat("7 (a) S 1"), None);
        let own = rustix::process::getpid();
        assert!(started_at(own).is_some());
        assert_eq!(started_at(Pid::from_raw(i32::MAX).expect("a number")), None);
    }
}
