//! Answers to peers, the processes that are connected to a guardian.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, getpid};

use super::guarded_image::{Counted, GuardedImage};
use super::request::{EndAnswer, JoinAnswer, Joinable, Role, Seen};
use super::state::{NamespaceHandles, State};
use crate::session::control::{BRIEF, UNMOUNTED, UNUSED};
use crate::session::log::say;
use crate::session::members::name_of;
use crate::session::message::{FAILED, Message, receive_now, send_now};
use crate::session::shared_mount_point::SharedMountPoint;
use crate::session::surroundings::Surroundings;

/// How many programs an answer names. An answer is one packet.
const MOST_LISTED: usize = 256;

impl State {
    /// Tells the process that made a mount for all programs that the mount is served, or why not.
    pub(super) fn tell_maker(&self, failed: Option<&io::Error>) {
        let Some(maker) = self.peers.first() else {
            return;
        };
        let sent = match failed {
            Some(e) => send_now(&maker.socket, &[FAILED, e.to_string().as_bytes()], &[]),
            None if self.shared.is_some() => send_now(&maker.socket, &["serving"], &[]),
            None => Ok(()),
        };
        if let Err(e) = sent {
            say(&format!("the process that made the session is gone: {e}"));
        }
    }

    /// Tells the process that made the session why it cannot be served.
    pub(super) fn tell_first(&self, why: &[u8]) {
        if let Some(first) = self.peers.first()
            && let Err(e) = send_now(&first.socket, &[FAILED, why], &[])
        {
            say(&format!("the process that made the session is gone: {e}"));
        }
    }

    /// Handles a message of a peer. False if the peer has disconnected, or must.
    pub(super) fn hear(&mut self, index: usize, now: Instant) -> bool {
        let Some(peer) = self.peers.get(index) else {
            return true;
        };
        let message = match receive_now(&peer.socket) {
            Ok(Some(message)) => message,
            Err(Errno::AGAIN) => return true,
            Ok(None) | Err(_) => return false,
        };
        let may_build = peer.role != Role::Asks;
        let answer = match message.verb() {
            b"ready" if may_build => match NamespaceHandles::of_this_process() {
                Ok(namespaces) => {
                    self.namespaces = Some(namespaces);
                    return true;
                }
                Err(e) => {
                    say(&format!("the session cannot be joined: {e}"));
                    return false;
                }
            },
            b"join" => return self.let_in(index, &message),
            b"stat" => self.describe(now, message.field(1) == Some(BRIEF.as_bytes())),
            b"end" => {
                let is_lazy = message.field(1) == Some(b"lazy");
                self.ask_to_end(is_lazy, message.field(2) == Some(UNUSED.as_bytes()))
            }
            _ => return false,
        };
        let sent = match (answer, self.peers.get(index)) {
            (Ok(answer), Some(peer)) => send_now(&peer.socket, &answer, &[]).map_err(Into::into),
            (Ok(_), None) => Ok(()),
            (Err(e), _) => Err(e),
        };
        sent.is_ok()
    }

    /// Lets a run join. False if it cannot.
    fn let_in(&mut self, index: usize, message: &Message) -> bool {
        let linger = message.field(1).and_then(|ms| str::from_utf8(ms).ok());
        let linger = linger.and_then(|ms| ms.parse().ok());
        if self.listener.is_retired() {
            return false;
        }
        let joinable = match &self.shared {
            Some(shared) => Joinable::Mount {
                gone: shared.is_gone(),
            },
            None => self.joinable(),
        };
        let Some(peer) = self.peers.get_mut(index) else {
            return true;
        };
        let place = self.place.as_os_str().as_bytes();
        let sent = match (joinable.answer(), &self.namespaces) {
            (JoinAnswer::Mount, _) => {
                if let Ok(credentials) = socket_peercred(&peer.socket) {
                    self.members.add(credentials.pid);
                }
                send_now(&peer.socket, &[b"shared".as_slice(), place], &[])
            }
            (JoinAnswer::Namespaces, Some(namespaces)) => {
                if !is_from(&message.descriptors, self.surroundings.as_ref()) {
                    return false;
                }
                let fds = [&namespaces.mounts, &namespaces.root, &namespaces.user];
                send_now(
                    &peer.socket,
                    &[b"joined".as_slice(), place],
                    &fds.map(AsFd::as_fd),
                )
            }
            (JoinAnswer::RefuseAll, _) => {
                self.listener.unlist();
                return false;
            }
            (JoinAnswer::Namespaces | JoinAnswer::Refuse, _) => return false,
        };
        peer.role = Role::Starts;
        self.lifetime.joined(linger.map(Duration::from_millis));
        // After the answer, because nobody waits for this.
        self.images.iter().for_each(GuardedImage::tell_of_a_join);
        sent.is_ok()
    }

    /// Describes the session, in fields of the form `name=value`. If it should be `brief`, not its programs, but how to find
    /// them: looking for them takes longer than all else, and whoever asks many guardians looks once for all.
    fn describe(&mut self, now: Instant, brief: bool) -> io::Result<Vec<Vec<u8>>> {
        let since = self.since.duration_since(UNIX_EPOCH);
        let since = since.map_or(0, |since| since.as_secs());
        let mut fields = vec![
            b"session".to_vec(),
            format!("guardian={}", getpid()).into_bytes(),
            format!("since={since}").into_bytes(),
        ];
        fields.push(format!("confined={}", self.confinement).into_bytes());
        if self.shared.is_some() {
            fields.push(b"shared=1".to_vec());
        }
        if self.listener.is_retired() {
            fields.push(b"ending=1".to_vec());
        }
        if let Some(layer) = &self.layer_lock {
            fields.push([b"layer=", layer.directory().as_os_str().as_bytes()].concat());
        }
        if let Some(linger) = self.lifetime.linger() {
            fields.push(format!("linger={}", linger.as_secs()).into_bytes());
        }
        if let Some(left) = self.lifetime.left(now) {
            fields.push(format!("left={}", left.as_secs()).into_bytes());
        }
        for index in 0..self.images.len() {
            let counts = self.counts(index);
            let Some(image) = self.images.get(index) else {
                continue;
            };
            let path = image.path.as_os_str().as_bytes();
            let place = image.place.as_os_str().as_bytes();
            fields.push([b"image=", path].concat());
            let opened = &image.source.image;
            fields.push([b"named=", opened.named.as_os_str().as_bytes()].concat());
            // The file of an image that arrives has no name of its own.
            if opened.remote.is_none() {
                fields.push(format!("file={}", opened.identity).into_bytes());
            }
            fields.push([b"place=", place].concat());
            if let Some(pid) = image.servers.pid() {
                fields.push(format!("server={pid}").into_bytes());
            }
            let restarts = image.servers.supervisor.restarts();
            fields.push(format!("restarts={restarts}").into_bytes());
            fields.extend(counts);
        }
        if brief {
            fields.extend(self.members.describe()?);
            return Ok(fields);
        }
        for pid in self.members.list()?.into_iter().take(MOST_LISTED) {
            fields.push(format!("program={pid} {}", name_of(pid)).into_bytes());
        }
        Ok(fields)
    }

    /// The counters of a server. Empty if it does not answer soon.
    fn counts(&mut self, index: usize) -> Vec<Vec<u8>> {
        match self.images.get(index).map(GuardedImage::count) {
            Some(Counted::Counts(counts)) => {
                // Other fields are for the guardian itself to say.
                const KNOWN: [&[u8]; 3] = [b"confined=", b"count.", b"operation="];
                let known = |field: &Vec<u8>| KNOWN.iter().any(|name| field.starts_with(name));
                counts.into_iter().filter(known).collect()
            }
            Some(Counted::Other(message)) => {
                self.note(index, message);
                Vec::new()
            }
            Some(Counted::Nothing) | None => Vec::new(),
        }
    }

    /// Ends the session as requested, or says which programs use it. `unused`: the peer has just looked for programs, and found
    /// none.
    fn ask_to_end(&mut self, lazy: bool, unused: bool) -> io::Result<Vec<Vec<u8>>> {
        // Since then a run may have come, but the guardian knows of each.
        let is_idle = unused && self.program.is_none() && self.lifetime.is_idle();
        let programs = match is_idle {
            true => Vec::new(),
            false => self.members.list()?,
        };
        let in_use = !programs.is_empty() || self.is_starting();
        let seen = match &self.shared {
            None => Seen::InNamespaces,
            Some(place) if place.is_named => Seen::AtNamedPlace,
            Some(_) => Seen::AtOwnPlace,
        };
        let ended = match EndAnswer::to(in_use, lazy, seen) {
            EndAnswer::Busy => return Ok(busy(&programs)),
            EndAnswer::Unmount => self.shared.as_ref().map(SharedMountPoint::unmount),
            EndAnswer::TakeOut => self.shared.as_ref().map(SharedMountPoint::take_out),
            EndAnswer::EndNow => {
                self.lifetime.asked_to_end(is_idle);
                None
            }
            EndAnswer::EndWithLast => {
                self.lifetime.asked_to_end(is_idle);
                self.listener.retire();
                None
            }
        };
        match ended {
            Some(Err(cause)) => {
                let mut answer = vec![b"refused".to_vec(), cause.to_string().into_bytes()];
                answer.extend(cause.advice().map(|advice| vec![advice.to_wire()]));
                return Ok(answer);
            }
            // Only the programs that use the mount keep it now, or another mount namespace that has a copy.
            Some(Ok(())) => {
                self.listener.retire();
                return Ok(vec![b"ending".to_vec(), UNMOUNTED.to_vec()]);
            }
            None => {}
        }
        Ok(vec![b"ending".to_vec()])
    }
}

/// Whether a peer that shows these descriptors has the surroundings of the session. Writes to the log why not.
fn is_from(shown: &[OwnedFd], surroundings: Option<&Surroundings>) -> bool {
    match Surroundings::shown(shown) {
        Ok(found) if Some(&found) == surroundings => return true,
        Ok(_) => {
            say("a process in other namespaces, or with another root directory, was not let in");
        }
        Err(e) => say(&format!(
            "a process that did not show its namespaces was not let in: {e}"
        )),
    }
    false
}

/// Describes the programs that use a session.
fn busy(programs: &[Pid]) -> Vec<Vec<u8>> {
    let mut fields = vec![b"busy".to_vec()];
    for pid in programs.iter().take(MOST_LISTED) {
        fields.push(format!("{pid} {}", name_of(*pid)).into_bytes());
    }
    match programs.len().checked_sub(MOST_LISTED) {
        Some(more @ 1..) => fields.push(format!("and {more} more").into_bytes()),
        _ if programs.is_empty() => fields.push(b"one that is starting".to_vec()),
        _ => {}
    }
    fields
}
