//! The socket on which later runs find the session.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use super::shortage::is_shortage;
use crate::session::directory::{Directory, KEPT_LOGS, Lock};
use crate::session::log::say;

/// The socket that runs connect to, and the session's other files.
pub(super) struct Listener {
    directory: Directory,
    key: String,
    /// None once no run can join any more.
    socket: Option<OwnedFd>,
    /// Identifies the socket's file: one that is made later has another identity.
    id: Option<(u64, u64)>,
    /// The key of the socket since runs do not find it any more.
    retired: Option<String>,
}

/// The result of accepting a run.
pub(super) enum Accepted {
    Peer(OwnedFd),
    /// The run has disconnected meanwhile, or this process does not listen any more.
    Nobody,
    /// There are too few descriptors, or too little memory.
    Shortage,
}

impl Listener {
    pub(super) fn new(directory: Directory, key: String, socket: Option<OwnedFd>) -> Self {
        Self {
            id: directory.socket_id(&key),
            directory,
            key,
            socket,
            retired: None,
        }
    }

    /// The socket, while runs can join.
    pub(super) fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }

    pub(super) fn accept(&self) -> io::Result<Accepted> {
        let Some(socket) = &self.socket else {
            return Ok(Accepted::Nobody);
        };
        match accept_with(socket, SocketFlags::CLOEXEC) {
            Ok(peer) => Ok(Accepted::Peer(peer)),
            Err(Errno::INTR | Errno::AGAIN | Errno::CONNABORTED) => Ok(Accepted::Nobody),
            Err(e) if is_shortage(e) => Ok(Accepted::Shortage),
            Err(e) => Err(e.into()),
        }
    }

    /// Removes the socket's file, so that no run finds the session any more.
    pub(super) fn unlist(&mut self) {
        // While this process listens, no run makes another socket of this name. But a new mount at the same
        // place does, after somebody has unmounted this one.
        let key = self.retired.as_ref().unwrap_or(&self.key);
        if self.socket.is_some()
            && self.directory.socket_id(key) == self.id
            && let Err(e) = self.directory.unlist(key)
        {
            say(&format!("the session's socket cannot be removed: {e}"));
        }
        self.stop();
    }

    /// Gives the socket's file a name that no run looks for. Whoever lists sessions still finds it.
    pub(super) fn retire(&mut self) {
        if self.retired.is_some() {
            return;
        }
        // A later session has the name.
        if self.directory.socket_id(&self.key) != self.id {
            return self.unlist();
        }
        let key = format!("{}.{}", self.key, std::process::id());
        match self.directory.retire(&self.key, &key) {
            Ok(()) => self.retired = Some(key),
            Err(e) => {
                say(&format!(
                    "the session's socket cannot get another name: {e}"
                ));
                self.unlist();
            }
        }
    }

    /// Whether no run may join any more, though this process listens.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.is_some()
    }

    /// Refuses all later runs. False if none could join before.
    pub(super) fn stop(&mut self) -> bool {
        let Some(socket) = self.socket.take() else {
            return false;
        };
        // A learner that has just started may still have a copy.
        if let Err(e) = shutdown(&socket, Shutdown::Both) {
            say(&format!("the session's socket cannot be closed: {e}"));
        }
        true
    }

    /// Closes this process's copy of the socket, while the guardian still listens.
    pub(super) fn leave(&mut self) {
        self.socket = None;
    }

    /// The lock of the session's files. None if a run holds it: that run is about to connect, or to make a
    /// session of its own if it cannot.
    pub(super) fn try_lock(&self) -> io::Result<Option<Lock>> {
        self.directory.try_lock(&self.key)
    }

    /// Removes the session's files.
    pub(super) fn clear(&self, lock: Lock) -> io::Result<()> {
        if let Some(retired) = &self.retired {
            self.directory.unlist(retired)?;
        }
        self.directory.clear(&self.key, lock)
    }

    /// Like [`Listener::clear`], but waits for the lock.
    pub(super) fn lock_and_clear(&self) -> io::Result<()> {
        let lock = self.directory.lock(&self.key)?;
        self.clear(lock)
    }

    /// Removes the logs of sessions that have ended, but for the last ones.
    pub(super) fn sweep(&self) -> io::Result<()> {
        self.directory.sweep(KEPT_LOGS, false)
    }
}
