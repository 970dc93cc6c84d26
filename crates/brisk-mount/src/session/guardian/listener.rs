//! Where later runs find the session.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use super::shortage::is_shortage;
use crate::session::directory::{Directory, Lock};
use crate::session::log::say;

/// The socket that runs connect to, and the session's other files.
pub(super) struct Listener {
    directory: Directory,
    key: String,
    /// None once nobody can join any more.
    socket: Option<OwnedFd>,
    /// Tells the socket's file from one that is made later.
    id: Option<(u64, u64)>,
}

/// What came of waiting for a run.
pub(super) enum Accepted {
    Peer(OwnedFd),
    /// It has gone meanwhile, or nobody listens.
    Nobody,
    /// Descriptors or memory are short.
    Shortage,
}

impl Listener {
    pub(super) fn new(directory: Directory, key: String, socket: OwnedFd) -> Self {
        Self {
            id: directory.socket_id(&key),
            directory,
            key,
            socket: Some(socket),
        }
    }

    /// The socket, as long as runs can join.
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

    /// Lets no run find the session any more.
    pub(super) fn unlist(&mut self) {
        // While this listens, no run makes another socket of this name. A mount at the same place does,
        // once somebody else has unmounted this one.
        if self.socket.is_some()
            && self.directory.socket_id(&self.key) == self.id
            && let Err(e) = self.directory.unlist(&self.key)
        {
            say(&format!("the session's socket cannot be removed: {e}"));
        }
        self.stop();
    }

    /// Refuses runs that would join from now on. False if none could join before.
    pub(super) fn stop(&mut self) -> bool {
        let Some(socket) = self.socket.take() else {
            return false;
        };
        // A learner that was just started may still have a copy.
        if let Err(e) = shutdown(&socket, Shutdown::Both) {
            say(&format!("the session's socket cannot be closed: {e}"));
        }
        true
    }

    /// Closes this process's copy of the socket, while the guardian still listens.
    pub(super) fn leave(&mut self) {
        self.socket = None;
    }

    /// The lock of the session's files; none if a run has it, which is about to connect, or to make a
    /// session of its own if it cannot.
    pub(super) fn try_lock(&self) -> io::Result<Option<Lock>> {
        self.directory.try_lock(&self.key)
    }

    /// Removes the session's files.
    pub(super) fn clear(&self, lock: Lock) -> io::Result<()> {
        self.directory.clear(&self.key, lock)
    }

    /// The same; waits for the lock.
    pub(super) fn lock_and_clear(&self) -> io::Result<()> {
        let lock = self.directory.lock(&self.key)?;
        self.clear(lock)
    }
}
