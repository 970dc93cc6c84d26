//! Which processes belong to a session.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use super::log::say;
use crate::syscalls::process_session;

/// What tells the processes of a session from others.
///
/// A process belongs to a session if it is in the session's mount namespace, or in another one in
/// which an image of the session is mounted, as the processes of a sandbox are: they have copies of
/// the namespace. Neither a parent that ends nor a new process group changes that, so daemons
/// count. The session's own processes have a process session of their own, which no program can
/// enter.
#[derive(Clone)]
pub(super) enum Members {
    Namespace(Namespace),
    /// Of an image that is mounted for all programs: the runs from it, while they live. Their numbers may be
    /// another's later.
    Runs(Vec<(Pid, Arc<OwnedFd>)>),
}

/// What tells the processes of a session from others.
#[derive(Clone)]
pub(super) struct Namespace {
    namespace: PathBuf,
    /// The images' device numbers, as `/proc/PID/mountinfo` has them: `0:45`.
    devices: Vec<String>,
    own: i32,
}

impl Members {
    /// Of the session whose mount namespace and process session the caller is in.
    pub(super) fn new(devices: Vec<String>) -> io::Result<Self> {
        Ok(Self::Namespace(Namespace {
            namespace: fs::read_link("/proc/self/ns/mnt")?,
            devices,
            own: process_session(getpid())?,
        }))
    }

    /// Nobody yet.
    pub(super) fn of_runs() -> Self {
        Self::Runs(Vec::new())
    }

    /// Counts a run that is connected, if runs are what counts.
    pub(super) fn add(&mut self, run: Pid) {
        if let Self::Runs(runs) = self {
            runs.retain(|(_, process)| is_alive(process));
            match pidfd_open(run, PidfdFlags::empty()) {
                Ok(process) => runs.push((run, Arc::new(process))),
                Err(e) => say(&format!(
                    "process {run} does not keep the mount: {e}",
                    run = run.as_raw_nonzero()
                )),
            }
        }
    }

    /// All of them, in order.
    pub(super) fn list(&self) -> io::Result<Vec<Pid>> {
        match self {
            Self::Namespace(namespace) => namespace.list(),
            Self::Runs(runs) => {
                let living = runs.iter().filter(|(_, process)| is_alive(process));
                Ok(living.map(|(pid, _)| *pid).collect())
            }
        }
    }

    /// One of them, to be watched until it ends; none if there is none.
    pub(super) fn any(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Namespace(namespace) => namespace.any(),
            Self::Runs(runs) => {
                let living = runs.iter().find(|(_, process)| is_alive(process));
                living.map(|(_, process)| process.try_clone()).transpose()
            }
        }
    }
}

/// Whether a thread of the process is left.
fn is_alive(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    // Readable when all have ended.
    poll(&mut fds, Some(&Timespec::default())) == Ok(0)
}

/// The mount namespace of a process: of one whose first thread has ended, that of another.
fn namespace_of(process: &str) -> io::Result<PathBuf> {
    match fs::read_link(format!("{process}/ns/mnt")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        namespace => return namespace,
    }
    for thread in fs::read_dir(format!("{process}/task"))? {
        if let Ok(namespace) = fs::read_link(thread?.path().join("ns/mnt")) {
            return Ok(namespace);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

impl Namespace {
    /// All of them, in order.
    fn list(&self) -> io::Result<Vec<Pid>> {
        let mut known = HashMap::new();
        let mut members = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let pid = name.to_str().and_then(|name| name.parse().ok());
            if let Some(pid) = pid.and_then(Pid::from_raw)
                && self.has(pid, &mut known)
            {
                members.push(pid);
            }
        }
        members.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        Ok(members)
    }

    /// One of them, to be watched until it ends; none if there is none.
    ///
    /// A process that forks and ends while the list is read can hide its child, whose number may
    /// be lower. So there is none only if there is none twice.
    fn any(&self) -> io::Result<Option<OwnedFd>> {
        for _ in 0..2 {
            for pid in self.list()? {
                // It may have ended, and its number be another's.
                if let Ok(watch) = pidfd_open(pid, PidfdFlags::empty())
                    && self.has(pid, &mut HashMap::new())
                {
                    return Ok(Some(watch));
                }
            }
        }
        Ok(None)
    }

    fn has(&self, pid: Pid, known: &mut HashMap<PathBuf, bool>) -> bool {
        let process = format!("/proc/{}", pid.as_raw_nonzero());
        // What ends meanwhile, or is somebody else's, has no namespace that can be read.
        let Ok(namespace) = namespace_of(&process) else {
            return false;
        };
        let inside = namespace == self.namespace
            || *known.entry(namespace).or_insert_with(|| {
                fs::read(format!("{process}/mountinfo")).is_ok_and(|table| self.is_in(&table))
            });
        inside && !process_session(pid).is_ok_and(|session| session == self.own)
    }

    /// Whether a mount table lists one of the images.
    fn is_in(&self, mountinfo: &[u8]) -> bool {
        mountinfo.split(|b| *b == b'\n').any(|line| {
            let device = line.split(|b| *b == b' ').nth(2);
            device.is_some_and(|device| self.devices.iter().any(|d| d.as_bytes() == device))
        })
    }
}

/// What a process calls itself.
pub(super) fn name_of(pid: Pid) -> String {
    let name = fs::read(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    name.map_or_else(
        |_| "?".to_owned(),
        |name| String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
    )
}
