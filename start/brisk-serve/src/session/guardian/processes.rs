//! The processes that a guardian starts: servers, learners and the watchdog.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::time::Instant;

use brisk_launch::sys::process::start_child;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::guarded_image::GuardedImage;
use super::shortage::of_shortage;
use super::state::{Pipe, State};
use super::supervisor::{Reason, Remedy};
use super::watchdog::{self, AfterEnd, Watchdog};
use crate::confinement::{Files, Role, confine, confine_caller_of_fusermount};
use crate::session::log::say;
use crate::session::message::{FETCHER, Message, receive, receive_now};
use crate::session::recorded_launch::RecordedLaunch;
use crate::session::server::{Server, ServerTask};

impl State {
    pub(super) fn hear_server(&mut self, index: usize, pid: Pid, now: Instant) {
        let image = self.images.get(index);
        let Some(server) = image.and_then(|image| image.servers.current_if(pid)) else {
            return;
        };
        // What was readable may have been read meanwhile, while the server was asked for its counters.
        match receive_now(&server.socket) {
            Ok(Some(message)) => self.note(index, message),
            Err(Errno::AGAIN) => {}
            _ => self.bury_server(index, pid, now),
        }
    }

    /// Handles a message that the server of an image sends unasked.
    pub(super) fn note(&mut self, index: usize, mut message: Message) {
        let recorded = message.descriptors.pop();
        let (verb, field) = (message.verb(), message.field(1));
        if let (b"recorded", Some(recorded)) = (verb, recorded) {
            return self.start_learner(index, recorded);
        }
        if let (b"compared", Some(pair)) = (verb, field) {
            return self.keep_comparison(index, pair);
        }
        let Some(image) = self.images.get_mut(index) else {
            return;
        };
        if let (b"filled", Some(ahead), Some(own)) = (verb, field, message.field(2)) {
            // It comes before the recording, which takes the launch.
            if let Some(launch) = &image.launch {
                launch.note_fill(ahead, own);
            }
            return;
        }
        if let (FETCHER, Some(number)) = (verb, message.number()) {
            return image.connect_fetcher(number);
        }
        let servers = &mut image.servers;
        match (verb, field, &mut servers.current) {
            (b"started", Some(thread), Some(server)) => {
                let (pid, is_watched) = (server.pid, server.watch(thread));
                if !is_watched {
                    self.bury_unwatched(index, pid);
                }
            }
            // The log says why. The first server of an image decides whether there is a session, and later ones are
            // replaced until they fail too often.
            (b"failed", Some(why), _) if servers.supervisor.restarts() == 0 => {
                self.unserved = Some(why.to_vec());
            }
            (b"ended", ..) => {
                servers.supervisor.connection_ended();
                self.listener.unlist();
            }
            _ => {}
        }
    }

    /// Keeps for later sessions that a server has compared its pack with its image. A server may not write itself: a
    /// hostile image that has taken it over could write that of any pack.
    fn keep_comparison(&self, index: usize, pair: &[u8]) {
        let fill = self
            .images
            .get(index)
            .and_then(|image| image.options.fill.as_ref());
        if let Some(Err(e)) = fill.map(|fill| fill.keep_comparison(pair)) {
            say(&format!("cannot keep that the hot pack was compared: {e}"));
        }
    }

    pub(super) fn start_server(&mut self, index: usize) -> io::Result<()> {
        let server = Server::start(|socket| self.become_server(index, socket))?;
        if let Some(image) = self.images.get_mut(index) {
            image.servers.current = Some(server);
        }
        Ok(())
    }

    /// Waits until each server has said whether it can read its image.
    pub(super) fn hear_first_of_servers(&mut self) {
        for index in 0..self.images.len() {
            let Some(server) = self
                .images
                .get(index)
                .and_then(|i| i.servers.current.as_ref())
            else {
                continue;
            };
            match receive(&server.socket) {
                Ok(Some(message)) => self.note(index, message),
                _ => self.unserved = Some(b"its server ended".to_vec()),
            }
        }
    }

    /// Gives up what only the first servers needed.
    pub(super) fn confine(&mut self) {
        self.confinement = match self.needs_fusermount() {
            true => confine_caller_of_fusermount(),
            false => confine(
                Role::Guardian {
                    by_name: self.is_by_name(),
                },
                &Files::default(),
            ),
        };
    }

    /// In a new process: keeps only one image of what the guardian has.
    fn leave_for(&mut self, index: usize) -> GuardedImage {
        self.leave_post();
        // A learner may outlive the session.
        self.layer_lock = None;
        let image = self.images.swap_remove(index);
        self.images.clear();
        image
    }

    /// In a new process: closes what only the guardian should have, so that others notice when the guardian
    /// is gone.
    fn leave_post(&mut self) {
        self.peers.clear();
        self.learners.leave();
        self.lifelines.clear();
        self.listener.leave();
        self.namespaces = None;
        self.program = None;
        self.own_life = None;
    }

    /// In the new process: serves.
    fn become_server(&mut self, index: usize, socket: OwnedFd) -> i32 {
        let image = self.leave_for(index);
        let (mut options, mut launch) = (image.options, image.launch);
        // The pages that the previous server has filled are still there. Its recording is lost, and the
        // launch is in progress.
        if image.servers.supervisor.restarts() > 0 {
            (options.fill, options.recorder, launch) = (None, None, None);
        }
        drop(image.servers);
        // The name is only for people, so a failure does not matter.
        rustix::thread::set_name(c"brisk-server").ok();
        let task = ServerTask {
            socket,
            connection: image.connection,
            source: image.source,
            options,
            launch,
        };
        task.run()
    }

    /// Starts a learner, which makes a hot pack from what a server has recorded.
    fn start_learner(&mut self, index: usize, recorded: OwnedFd) {
        // A launch is learned from once, whatever a server says.
        let launch = self
            .images
            .get_mut(index)
            .and_then(|image| image.launch.take());
        let Some(launch) = launch else {
            return;
        };
        let mut learned = Some((launch, recorded));
        let started = start_child(|| {
            rustix::thread::set_name(c"brisk-learner").ok();
            let GuardedImage { source, .. } = self.leave_for(index);
            let learn = |(launch, recorded): (RecordedLaunch, _)| launch.learn(source, recorded);
            learned.take().map_or(1, learn)
        });
        if let Err(e) = started.and_then(|pid| self.learners.add(pid)) {
            say(&format!("nothing is learned from this launch: {e}"));
        }
    }

    /// Gives each connection a pipe to hold. The pipe tells the watchdog whether any process still has the
    /// connection.
    pub(super) fn hold_lifelines(&mut self) {
        for image in &mut self.images {
            match pipe_with(PipeFlags::CLOEXEC) {
                Ok((watched, held)) => {
                    image.connection.hold(held);
                    self.lifelines.push(watched);
                }
                Err(e) => {
                    say(&format!("no watchdog is started: {e}"));
                    return self.lifelines.clear();
                }
            }
        }
        match pipe_with(PipeFlags::CLOEXEC) {
            Ok((read, write)) => self.own_life = Some(Pipe { read, write }),
            Err(e) => say(&format!(
                "if the guardian is killed, the session does not end: {e}"
            )),
        }
    }

    pub(super) fn start_watchdog(&mut self) {
        if self.lifelines.is_empty() {
            return;
        }
        let started = start_child(|| {
            let lifelines = mem::take(&mut self.lifelines);
            let images = mem::take(&mut self.images).into_iter();
            let guardian = self.own_life.take().map(|life| {
                drop(life.write);
                life.read
            });
            self.leave_post();
            // The rest of the images is dropped, and the connections with it.
            let handles = images.map(|image| image.handle);
            let watched = lifelines.into_iter().zip(handles).collect();
            match self.needs_fusermount() {
                true => confine_caller_of_fusermount(),
                false => confine(
                    Role::Watchdog {
                        by_name: self.is_by_name(),
                    },
                    &Files::default(),
                ),
            };
            watchdog::run(watched, guardian, &self.members)
        });
        match started.and_then(|pid| Ok(Watchdog::of(pid)?)) {
            Ok(watchdog) => self.watchdog = Some(watchdog),
            Err(e) => say(&format!("no watchdog is started: {e}")),
        }
    }

    pub(super) fn bury_watchdog(&mut self, now: Instant) {
        match self.watchdog.take().map(|watchdog| watchdog.bury(now)) {
            None | Some(AfterEnd::Nothing) => {}
            Some(AfterEnd::Restart) => self.start_watchdog(),
            Some(AfterEnd::GiveUp) => {
                say("the watchdog ended at once, and no other one is started");
            }
        }
    }

    /// Records that a server is dead. Threads of it may still hang.
    pub(super) fn bury_server(&mut self, index: usize, pid: Pid, now: Instant) {
        let Some(image) = self.images.get_mut(index) else {
            return;
        };
        let can_resend = image.connection.can_resend();
        if let Some(remedy) = image.servers.died(pid, can_resend, now) {
            self.help(index, remedy, None, now);
        }
    }

    /// The same of a server whose thread is gone. What it has said before its end is heard first.
    fn bury_unwatched(&mut self, index: usize, pid: Pid) {
        loop {
            let image = self.images.get(index);
            let server = image.and_then(|image| image.servers.current_if(pid));
            match server.map(|server| receive_now(&server.socket)) {
                Some(Ok(Some(message))) => self.note(index, message),
                _ => break,
            }
        }
        self.bury_server(index, pid, Instant::now());
    }

    /// Starts a server to replace a dead one.
    fn restart_server(&mut self, index: usize, now: Instant) {
        let started = self.start_server(index);
        let Some(image) = self.images.get_mut(index) else {
            return;
        };
        let supervisor = &mut image.servers.supervisor;
        match started {
            Ok(()) => supervisor.started(),
            Err(e) => {
                let remedy = supervisor.could_not_start(of_shortage(&e));
                self.help(index, remedy, Some(&e), now);
            }
        }
    }

    /// Does what was decided about an image's server. `error` is the reason, if there is one.
    fn help(&mut self, index: usize, remedy: Remedy, error: Option<&io::Error>, now: Instant) {
        match remedy {
            Remedy::Nothing => {}
            Remedy::Restart => self.restart_server(index, now),
            Remedy::TryAgain => self.shortage.met(now),
            Remedy::GiveUp(why) => self.give_up(index, why, error),
        }
    }

    fn give_up(&mut self, index: usize, why: Reason, error: Option<&io::Error>) {
        if let Some(image) = self.images.get(index) {
            image.give_up(why, error);
        }
        self.listener.unlist();
    }

    /// Starts the servers that could not be started before.
    pub(super) fn start_missing_servers(&mut self, now: Instant) {
        for index in 0..self.images.len() {
            if self.images[index].servers.supervisor.wants_server() {
                self.restart_server(index, now);
            }
        }
    }

    /// Collects the status of dead servers whose threads are gone.
    pub(super) fn reap(&mut self, now: Instant) {
        for index in 0..self.images.len() {
            let remedy = self.images[index].servers.reap(now);
            self.help(index, remedy, None, now);
        }
    }
}
