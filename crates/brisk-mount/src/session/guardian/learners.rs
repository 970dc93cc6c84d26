//! The processes that make hot packs of what servers have recorded.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};

/// Learners that a guardian has started.
#[derive(Default)]
pub(super) struct Learners {
    /// Each with what is readable when it has ended.
    running: Vec<(Pid, OwnedFd)>,
}

impl Learners {
    /// Watches one that was started.
    pub(super) fn add(&mut self, pid: Pid) -> io::Result<()> {
        self.running
            .push((pid, pidfd_open(pid, PidfdFlags::empty())?));
        Ok(())
    }

    pub(super) fn watched(&self) -> impl Iterator<Item = (&OwnedFd, Pid)> {
        self.running.iter().map(|(pid, process)| (process, *pid))
    }

    /// Collects the status of one that has ended.
    pub(super) fn bury(&mut self, pid: Pid) {
        match waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(None) | Err(Errno::INTR) => {}
            Ok(Some(_)) | Err(_) => self.running.retain(|(learner, _)| *learner != pid),
        }
    }

    /// In another process than the guardian: drops what only the guardian should have.
    pub(super) fn leave(&mut self) {
        self.running.clear();
    }
}
