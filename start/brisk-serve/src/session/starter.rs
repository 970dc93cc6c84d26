//! Starts the fetcher again for a session.
//!
//! A guardian may execute no program. So before it gives that up, and before the session has namespaces of its own, another process
//! is started, which waits until the guardian asks for a fetcher. It has no rights, and only a socket, and ends with the last process
//! that has the other end.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use brisk_launch::sys::process::start_detached;
use rustix::io::{read, retry_on_intr};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

use super::log::say;
use crate::confinement::confine_starter;
use crate::remote::FetcherPlace;

/// How long it does not start another fetcher, in case that each one ends at once.
const PAUSE: Duration = Duration::from_millis(500);

/// The process that starts fetchers.
#[derive(Debug)]
pub(super) struct Starter {
    socket: OwnedFd,
}

impl Starter {
    /// Starts it. `log`: where it says what fails. This process must have one thread.
    pub(super) fn start(place: &FetcherPlace, log: BorrowedFd<'_>) -> io::Result<Self> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        start_detached(&[theirs.as_raw_fd()], log, || {
            rustix::thread::set_name(c"brisk-starter").ok();
            confine_starter();
            let mut asked = [0; 64];
            while retry_on_intr(|| read(&theirs, &mut asked)).is_ok_and(|len| len > 0) {
                if let Err(e) = place.start() {
                    say(&e.to_string());
                }
                thread::sleep(PAUSE);
            }
            0
        })?;
        Ok(Self { socket: ours })
    }

    /// Asks for a fetcher. This does not wait.
    pub(super) fn ask(&self) {
        // If it cannot be asked, it was asked often, or is gone, and nobody else can start one.
        send(
            &self.socket,
            &[0],
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        )
        .ok();
    }

    /// The descriptor that another process needs.
    pub(super) fn fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }
}
