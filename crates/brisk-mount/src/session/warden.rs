//! The process that ends connections which nobody can answer by any longer.
//!
//! When guardian and server are killed at once, the kernel ends their connection with the last
//! channel that they had. But a thread of the server that stores a page waits, unkillably, for a
//! request for that page, and keeps a channel open by that; if nobody had read the request yet,
//! nobody ever will. The warden has no channel, so its own death hangs nobody.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::shared_place::Handle;
use crate::syscalls::ignore_requests_to_end;

/// How long it is waited where the system cannot wait by itself, for want of memory.
const AGAIN: Duration = Duration::from_secs(1);

/// Aborts the connection of each mount whose lifeline nobody holds any more, until there is none
/// left. `wards` are the watched ends of the lifelines, each with its mount. Returns the exit status.
pub(super) fn run(mut wards: Vec<(OwnedFd, Handle)>) -> i32 {
    // Not one by which who ends all of brisk by name would end this, too. All works without.
    rustix::thread::set_name(c"mount-warden").ok();
    // Who ends a service asks all of it to end at once; this ends when the others have.
    ignore_requests_to_end();
    while !wards.is_empty() {
        let mut fds: Vec<_> = wards
            .iter()
            .map(|(lifeline, _)| PollFd::new(lifeline, PollFlags::IN))
            .collect();
        if poll(&mut fds, None).is_err() {
            thread::sleep(AGAIN);
            continue;
        }
        let happened: Vec<_> = fds.iter().map(PollFd::revents).collect();
        let mut happened = happened.into_iter();
        wards.retain(|(_, handle)| match happened.next() {
            // It was unmounted, and its place may be another's by now.
            Some(said) if said.contains(PollFlags::IN) => false,
            Some(ended) if !ended.is_empty() => {
                handle.abort();
                false
            }
            _ => true,
        });
    }
    0
}
