//! The watchdog: the process that aborts connections that nobody can answer any more.
//!
//! If guardian and server are killed together, the kernel ends their connection when their last channel
//! closes. But a thread of the server that stores a page waits, unkillably, for the answer to a request for
//! that page, and keeps a channel open while it waits. If no server has read that request, none ever will.
//! The watchdog has no channel, so its own death makes nobody wait.
//!
//! If only the guardian is killed, the watchdog takes its place at the end: it ends the connections when the last program
//! has ended. A server cannot do that. It may neither unmount nor look at other processes.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use brisk_launch::sys::signal::ignore_requests_to_end;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::session::log::say;
use crate::session::members::Members;
use crate::session::mount_handle::MountHandle;
use crate::session::process_end::watch;

/// The name of the process. It does not begin with `brisk`, so that `pkill brisk` does not kill it.
const NAME: &std::ffi::CStr = c"mount-watchdog";

/// How long to wait if the system has too little memory to wait for an event.
const AGAIN: Duration = Duration::from_secs(1);

/// A watchdog that ends sooner than this counts as failing by itself.
const LIVES: Duration = Duration::from_millis(100);

/// What to do about a watchdog that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterEnd {
    /// Nothing: it had nothing left to watch.
    Nothing,
    /// Start another one: somebody killed it.
    Restart,
    /// Give up: it seems to fail by itself, and another one would fail too.
    GiveUp,
}

/// `done`: it says that it had nothing left to watch.
fn after_end(done: bool, lived: Duration) -> AfterEnd {
    match done {
        true => AfterEnd::Nothing,
        false if lived < LIVES => AfterEnd::GiveUp,
        false => AfterEnd::Restart,
    }
}

/// A watchdog process, as its guardian sees it.
pub(super) struct Watchdog {
    pid: Pid,
    /// Readable when the process has ended.
    pub(super) process: OwnedFd,
    since: Instant,
}

impl Watchdog {
    pub(super) fn of(pid: Pid) -> rustix::io::Result<Self> {
        Ok(Self {
            pid,
            process: watch(pid)?,
            since: Instant::now(),
        })
    }

    /// Collects its status. It has ended, or is about to.
    pub(super) fn bury(&self, now: Instant) -> AfterEnd {
        let done = loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some((_, status))) => break status.exit_status() == Some(0),
                // The process that started this one may have chosen that children leave no status.
                Ok(None) | Err(_) => break false,
            }
        };
        after_end(done, now - self.since)
    }

    /// Ends it.
    pub(super) fn dismiss(self) {
        // It is a child of this process, so no other process has its number before its status is collected.
        match kill_process(self.pid, Signal::KILL) {
            // It may have been killed already.
            Ok(()) | Err(Errno::SRCH) => _ = self.bury(Instant::now()),
            Err(e) => say(&format!("the watchdog cannot be ended: {e}")),
        }
    }
}

/// Takes the name of a watchdog, and ignores requests to end: stopping a service asks all its processes to end at once, and this
/// one must end after the others.
pub(in crate::session) fn begin() {
    // A missing name does no harm.
    rustix::thread::set_name(NAME).ok();
    ignore_requests_to_end();
}

/// How long to wait for programs after the guardian died. A program that was about to join needs that time to appear.
const ORPHANED: Duration = Duration::from_secs(1);

/// Whether a session without a guardian still has programs.
enum Programs {
    /// The guardian lives and looks itself, or the mounts stay until they are unmounted.
    OfGuardian,
    /// Nobody has looked yet.
    Unknown { look_at: Instant },
    /// One lives: the descriptor is readable when it has ended.
    One(OwnedFd),
    /// The last one has ended.
    Gone,
}

impl Programs {
    fn look(members: &Members) -> Self {
        match members.any() {
            Ok(None) => Self::Gone,
            Ok(Some(program)) => Self::One(program),
            Err(_) => Self::unknown(AGAIN),
        }
    }

    fn unknown(wait: Duration) -> Self {
        Self::Unknown {
            look_at: Instant::now() + wait,
        }
    }

    /// When to look, if nothing happens before.
    fn timeout(&self) -> Option<Timespec> {
        let Self::Unknown { look_at } = self else {
            return None;
        };
        let left = look_at.saturating_duration_since(Instant::now());
        Some(Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        })
    }
}

/// The work of the watchdog's process: aborts the connection of each mount whose lifeline no process holds
/// any more, until no mount is left. `watched` has the reading end of each lifeline, with its mount. `guardian` is the
/// reading end of a pipe that the guardian holds: after its end, the connections end with the last of `members`.
/// Returns the exit status.
pub(super) fn run(
    mut watched: Vec<(OwnedFd, MountHandle)>,
    mut guardian: Option<OwnedFd>,
    members: &Members,
) -> i32 {
    begin();
    // Other mounts that all programs see stay until they are unmounted.
    guardian.take_if(|_| !members.end_session());
    let mut programs = Programs::OfGuardian;
    while !watched.is_empty() {
        let program = match &programs {
            Programs::One(program) => Some(program),
            _ => None,
        };
        let mut fds: Vec<_> = watched
            .iter()
            .map(|(lifeline, _)| lifeline)
            .chain(&guardian)
            .chain(program)
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, programs.timeout().as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => {
                thread::sleep(AGAIN);
                continue;
            }
        }
        let happened: Vec<_> = fds.iter().map(PollFd::revents).collect();
        let mut happened = happened.into_iter();
        watched.retain(|(_, handle)| match happened.next() {
            // It was unmounted, and something else may be mounted there now.
            Some(said) if said.contains(PollFlags::IN) => false,
            Some(ended) if !ended.is_empty() => {
                handle.abort();
                false
            }
            _ => true,
        });
        let mut happened = happened.map(|said| !said.is_empty());
        if guardian.is_some() && happened.next() == Some(true) {
            guardian = None;
            programs = Programs::unknown(ORPHANED);
        }
        programs = match programs {
            Programs::One(_) if happened.next() == Some(true) => Programs::look(members),
            Programs::Unknown { look_at } if Instant::now() >= look_at => Programs::look(members),
            other => other,
        };
        if let Programs::Gone = programs {
            // Their servers end, and their lifelines with them.
            watched.drain(..).for_each(|(_, handle)| handle.abort());
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_replaced_unless_it_is_done_or_fails_at_once() {
        for (done, lived, next) in [
            (true, 0, AfterEnd::Nothing),
            (true, 1_000, AfterEnd::Nothing),
            (false, 0, AfterEnd::GiveUp),
            (false, 99, AfterEnd::GiveUp),
            (false, 100, AfterEnd::Restart),
            (false, 90_000, AfterEnd::Restart),
        ] {
            let found = after_end(done, Duration::from_millis(lived));
            assert_eq!(found, next, "done {done}, after {lived} ms");
        }
    }
}
