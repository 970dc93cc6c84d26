//! The process that ends connections which nobody can answer by any longer.
//!
//! When guardian and server are killed at once, the kernel ends their connection with the last
//! channel that they had. But a thread of the server that stores a page waits, unkillably, for a
//! request for that page, and keeps a channel open by that; if nobody had read the request yet,
//! nobody ever will. The warden has no channel, so its own death hangs nobody.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::say;
use super::shared::Handle;

/// Aborts the connection of each mount whose lifeline nobody holds any more, until there is none
/// left. `wards` are the watched ends of the lifelines, each with its mount. Returns the exit status.
pub(super) fn run(mut wards: Vec<(OwnedFd, Handle)>) -> i32 {
    // Not one by which who ends all of brisk by name would end this, too. All works without.
    rustix::thread::set_name(c"mount-warden").ok();
    while !wards.is_empty() {
        // Nothing is ever written, so what comes is the end.
        let mut fds: Vec<_> = wards
            .iter()
            .map(|(lifeline, _)| PollFd::new(lifeline, PollFlags::IN))
            .collect();
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => {
                say(&format!("the warden failed: {e}"));
                return 1;
            }
        }
        let ended: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ended = ended.into_iter();
        wards.retain(|(_, handle)| {
            let has_ended = ended.next() == Some(true);
            if has_ended {
                handle.abort();
            }
            !has_ended
        });
    }
    0
}
