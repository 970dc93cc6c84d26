//! Learners: processes that make hot packs from what servers have recorded.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::session::process_end::watch;

/// The learners that a guardian has started.
#[derive(Default)]
pub(super) struct Learners {
    /// Each learner, with a descriptor that becomes readable when it ends.
    running: Vec<(Pid, OwnedFd)>,
}

impl Learners {
    /// Watches a learner that was started.
    pub(super) fn add(&mut self, pid: Pid) -> io::Result<()> {
        self.running.push((pid, watch(pid)?));
        Ok(())
    }

    pub(super) fn watched(&self) -> impl Iterator<Item = (&OwnedFd, Pid)> {
        self.running.iter().map(|(pid, process)| (process, *pid))
    }

    /// Collects the status of a learner that has ended.
    pub(super) fn bury(&mut self, pid: Pid) {
        match waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(None) | Err(Errno::INTR) => {}
            Ok(Some(_)) | Err(_) => self.running.retain(|(learner, _)| *learner != pid),
        }
    }

    /// Called in a new process: closes what only the guardian needs.
    pub(super) fn leave(&mut self) {
        self.running.clear();
    }
}
