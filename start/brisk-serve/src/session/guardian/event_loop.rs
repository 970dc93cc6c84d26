//! The event loop of the guardian.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::process::Pid;

use super::listener::Accepted;
use super::request::{Loss, Role};
use super::shortage::{SOON, is_shortage};
use super::state::{Peer, State};

/// What became readable. The numbers are indices of peers and images. For a server the process is given too:
/// its death has several signs, and after the first one another server may have replaced it.
#[derive(Clone, Copy)]
enum Readable {
    Listener,
    Peer(usize),
    Program,
    ServerSocket(usize, Pid),
    ServerDeath(usize, Pid),
    LearnerDeath(Pid),
    WatchdogDeath,
}

impl State {
    pub(super) fn keep(&mut self) -> io::Result<()> {
        while self.step()? {}
        Ok(())
    }

    /// Waits for the next event, and handles it. False if the session has ended.
    pub(super) fn step(&mut self) -> io::Result<bool> {
        let readable = self.wait()?;
        let now = Instant::now();
        self.shortage.end_if_over(now);
        let mut closed = Vec::new();
        for source in readable {
            match source {
                Readable::Listener => self.accept(now)?,
                Readable::Peer(index) => {
                    if !self.hear(index, now) {
                        closed.push(index);
                    }
                }
                Readable::Program => {
                    self.program = None;
                    self.lifetime.programs_changed();
                }
                Readable::ServerSocket(index, pid) => self.hear_server(index, pid, now),
                Readable::ServerDeath(index, pid) => self.bury_server(index, pid, now),
                Readable::LearnerDeath(pid) => self.learners.bury(pid),
                Readable::WatchdogDeath => self.bury_watchdog(now),
            }
        }
        // From the last one, so that the other indices stay right.
        for index in closed.into_iter().rev() {
            let peer = self.peers.swap_remove(index);
            match (self.joinable().without(peer.role), &self.shared) {
                (Loss::Mount, Some(place)) => place.detach(),
                (Loss::Session, _) => return Ok(false),
                (Loss::Starter, _) => self.lifetime.programs_changed(),
                (Loss::Nothing | Loss::Mount, _) => {}
            }
        }
        if let Some(why) = self.unserved.take() {
            self.tell_first(&why);
            return Ok(false);
        }
        self.reap(now);
        if self.shortage.until().is_none() {
            self.start_missing_servers(now);
        }
        for image in &mut self.images {
            image.resend(now);
        }
        self.settle(now)
    }

    /// What is readable. Waits no longer than until the next thing is due.
    fn wait(&self) -> io::Result<Vec<Readable>> {
        let mut watched = Vec::new();
        if let Some(listener) = self.listener.socket()
            && self.joinable().is_open()
            && self.shortage.until().is_none()
        {
            watched.push((listener, Readable::Listener));
        }
        for (index, peer) in self.peers.iter().enumerate() {
            watched.push((&peer.socket, Readable::Peer(index)));
        }
        watched.extend(self.program.iter().map(|fd| (fd, Readable::Program)));
        for (index, image) in self.images.iter().enumerate() {
            if let Some(server) = &image.servers.current {
                watched.push((&server.socket, Readable::ServerSocket(index, server.pid)));
                watched.push((&server.process, Readable::ServerDeath(index, server.pid)));
                watched.extend(
                    server
                        .thread
                        .iter()
                        .map(|thread| (thread, Readable::ServerDeath(index, server.pid))),
                );
            }
        }
        for (process, pid) in self.learners.watched() {
            watched.push((process, Readable::LearnerDeath(pid)));
        }
        let watchdog = self.watchdog.iter();
        watched.extend(watchdog.map(|watchdog| (&watchdog.process, Readable::WatchdogDeath)));
        let mut fds: Vec<_> = watched
            .iter()
            .map(|(fd, _)| PollFd::new(*fd, PollFlags::IN))
            .collect();
        let timeout = self.until_due(Instant::now()).map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) if is_shortage(e) => {
                thread::sleep(SOON);
                return Ok(Vec::new());
            }
            Err(e) => return Err(e.into()),
        }
        let readable = fds.iter().map(|fd| !fd.revents().is_empty());
        Ok(readable
            .zip(&watched)
            .filter_map(|(yes, (_, source))| yes.then_some(*source))
            .collect())
    }

    fn until_due(&self, now: Instant) -> Option<Duration> {
        let dying = self.images.iter().any(|image| image.servers.are_dying());
        let resend = self.images.iter();
        let resend = resend.filter_map(|image| image.servers.supervisor.next_resend());
        let next = resend
            .chain(self.lifetime.due(now))
            .chain(dying.then(|| now + SOON))
            .chain(self.shortage.until())
            .min()?;
        // `poll` counts in milliseconds, and must not return before the time.
        Some(next.saturating_duration_since(now) + Duration::from_millis(1))
    }

    fn accept(&mut self, now: Instant) -> io::Result<()> {
        match self.listener.accept()? {
            Accepted::Peer(socket) => self.peers.push(Peer {
                socket,
                role: Role::Asks,
            }),
            Accepted::Nobody => {}
            Accepted::Shortage => self.shortage.met(now),
        }
        Ok(())
    }
}
