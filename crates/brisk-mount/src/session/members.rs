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

/// How to recognise the processes of a session.
///
/// A process belongs to a session if it is in the session's mount namespace. It also belongs to it if it is
/// in another mount namespace in which an image of the session is mounted: sandboxes have such copies of the
/// namespace. The death of a parent or a new process group changes nothing, so daemons count. The session's
/// own processes have a process session of their own, which no program can enter, so they do not count.
#[derive(Clone)]
pub(super) enum Members {
    Namespace(Namespace),
    /// For an image that is mounted for all programs: the runs that use it, while they live. The descriptors
    /// tell whether they live, because another process may get their number later.
    Runs(Vec<(Pid, Arc<OwnedFd>)>),
}

/// How to recognise the processes in a session's namespaces.
#[derive(Clone)]
pub(super) struct Namespace {
    namespace: PathBuf,
    /// Device numbers of the images, as in `/proc/PID/mountinfo`: `0:45`.
    devices: Vec<String>,
    own: i32,
}

impl Members {
    /// For the session whose mount namespace and process session the caller is in.
    pub(super) fn new(devices: Vec<String>) -> io::Result<Self> {
        Ok(Self::Namespace(Namespace {
            namespace: fs::read_link("/proc/self/ns/mnt")?,
            devices,
            own: process_session(getpid())?,
        }))
    }

    /// No runs yet.
    pub(super) fn of_runs() -> Self {
        Self::Runs(Vec::new())
    }

    /// Counts a run that is connected, if this counts runs.
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

    /// All processes, sorted.
    pub(super) fn list(&self) -> io::Result<Vec<Pid>> {
        match self {
            Self::Namespace(namespace) => namespace.list(),
            Self::Runs(runs) => {
                let living = runs.iter().filter(|(_, process)| is_alive(process));
                Ok(living.map(|(pid, _)| *pid).collect())
            }
        }
    }

    /// One process, to watch until it ends. None if there is none.
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
    // Readable when all threads have ended.
    poll(&mut fds, Some(&Timespec::default())) == Ok(0)
}

/// The mount namespace of a process. If its first thread has ended, that of another thread.
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
    /// All processes, sorted.
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

    /// One process, to watch until it ends. None if there is none.
    ///
    /// A process that forks and ends while the list is read can hide its child, whose number may be lower. So
    /// there is none only if two lists in a row are empty.
    fn any(&self) -> io::Result<Option<OwnedFd>> {
        for _ in 0..2 {
            for pid in self.list()? {
                // The process may have ended, and another may have its number.
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
        // A process that ends meanwhile, or belongs to another user, has no readable namespace.
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

/// The name that a process has given itself.
pub(super) fn name_of(pid: Pid) -> String {
    let name = fs::read(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    name.map_or_else(
        |_| "?".to_owned(),
        |name| String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
    )
}
