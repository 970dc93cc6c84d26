//! Ends a session.

use std::io;
use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;

use super::guarded_image::GuardedImage;
use super::lifetime::{Next, Obstacle, Use};
use super::shortage::of_shortage;
use super::state::State;
use crate::session::log::say;
use crate::session::shared_mount_point::SharedMountPoint;

/// How long servers may take to notice that their connection has ended. Then they are killed.
const SERVERS_END: Duration = Duration::from_secs(2);

impl State {
    /// Checks whether programs are left, and ends the session if it is time. False if it has ended.
    pub(super) fn settle(&mut self, now: Instant) -> io::Result<bool> {
        loop {
            let mut images = self.images.iter();
            let used = Use {
                unmounted: self.shared.is_some() && images.all(|i| i.servers.is_unmounted()),
                in_use: self.program.is_some() || self.is_starting(),
            };
            match self.lifetime.next(used, now) {
                Next::Stay => return Ok(true),
                Next::End => return Ok(false),
                Next::Look => match self.members.any() {
                    Ok(program) => {
                        self.lifetime.looked(program.is_some(), now);
                        self.program = program;
                    }
                    Err(e) if of_shortage(&e) => {
                        self.shortage.met(now);
                        return Ok(true);
                    }
                    Err(e) => return Err(e),
                },
                Next::Close { looks } => {
                    let obstacle = self.close(looks, now)?;
                    if let Some(obstacle) = obstacle {
                        self.lifetime.kept_by(obstacle, now);
                    }
                    return Ok(obstacle.is_some());
                }
            }
        }
    }

    /// Ends the session, unless there is an obstacle. `looks`: a program may have entered the namespaces in another way.
    fn close(&mut self, looks: bool, now: Instant) -> io::Result<Option<Obstacle>> {
        let program = match looks {
            true => self.members.any(),
            false => Ok(None),
        };
        match program {
            Ok(None) => {}
            Ok(program) => {
                self.program = program;
                return Ok(Some(Obstacle::Program));
            }
            Err(e) if of_shortage(&e) => {
                self.shortage.met(now);
                return Ok(Some(Obstacle::Shortage));
            }
            Err(e) => return Err(e),
        }
        let Some(listener) = self.listener.socket() else {
            return Ok(None);
        };
        let Some(lock) = self.listener.try_lock()? else {
            return Ok(Some(Obstacle::Lock));
        };
        let mut fds: Vec<_> = self
            .peers
            .iter()
            .map(|peer| &peer.socket)
            .chain([listener])
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        let obstacle = if poll(&mut fds, Some(&Timespec::default()))? > 0 {
            Some(Obstacle::Peer)
        } else if let Some(Err(_)) = self.shared.as_ref().map(SharedMountPoint::unmount) {
            Some(Obstacle::OpenMount)
        } else {
            None
        };
        match obstacle {
            Some(_) => lock.release()?,
            None => {
                self.listener.stop();
                self.listener.clear(lock)?;
            }
        }
        Ok(obstacle)
    }

    /// Ends everything else. Nobody waits for an answer after this.
    pub(super) fn end(&mut self) {
        // The watchdog must not abort connections that end normally.
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss();
        }
        // The files of a mount for all programs stay until now, though no run finds it any more.
        let has_files = self.listener.stop() || self.shared.is_some();
        for image in &mut self.images {
            image.abort();
            // A server that dies now is not replaced.
            image.servers.supervisor.connection_ended();
        }
        let deadline = Instant::now() + SERVERS_END;
        let mut killed = false;
        // Learners go on alone.
        while self.await_servers() {
            if Instant::now() > deadline && !mem::replace(&mut killed, true) {
                self.images.iter().for_each(GuardedImage::kill);
            }
            if Instant::now() > deadline + SERVERS_END {
                say("a server does not end");
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        // A lack of descriptors may be why the session ends, and removing its files needs some. Peers stay connected until this
        // process ends: then those who wait for the end find nothing of the session.
        self.images.clear();
        self.namespaces = None;
        self.program = None;
        if has_files && let Err(e) = self.listener.lock_and_clear() {
            say(&format!("the session's files cannot be removed: {e}"));
        }
        // Whoever asks for the end of sessions does it once for all of them.
        if !self.lifetime.is_asked()
            && let Err(e) = self.listener.sweep()
        {
            say(&format!(
                "what other sessions have left cannot be removed: {e}"
            ));
        }
    }

    /// Handles the last messages of servers. False if no server is left.
    fn await_servers(&mut self) -> bool {
        let mut left = false;
        for index in 0..self.images.len() {
            // A message that a server sent before its end has arrived when its end is seen.
            let gone = self.images[index].has_gone();
            while let Some(message) = self.images[index].heard() {
                self.note(index, message);
            }
            left |= self.images[index].await_servers(gone);
        }
        left
    }
}
