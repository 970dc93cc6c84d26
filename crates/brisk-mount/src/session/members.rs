//! Which processes belong to a session.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
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
    /// For an image that is mounted for all programs of the user.
    Runs(Runs),
}

/// How to recognise the programs of an image that is mounted for all programs of the user: the runs that use it, and what
/// has the mount point in its environment, as what a run has started does.
#[derive(Clone)]
pub(super) struct Runs {
    /// The descriptors tell whether they live, because another process may get their number later.
    runs: Vec<(Pid, Arc<OwnedFd>)>,
    /// The variable with the mount point. None if the mount stays until it is unmounted.
    variable: Option<Vec<u8>>,
    own: i32,
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

    /// No runs yet. If the mount ends with them, `place` is where they find it.
    pub(super) fn of_runs(place: Option<&Path>) -> io::Result<Self> {
        let variable = place.map(|place| [b"BRISK_TREE=", place.as_os_str().as_bytes()].concat());
        Ok(Self::Runs(Runs {
            runs: Vec::new(),
            variable,
            own: process_session(getpid())?,
        }))
    }

    /// Whether the session ends with its last program.
    pub(super) fn end_session(&self) -> bool {
        match self {
            Self::Namespace(_) => true,
            Self::Runs(runs) => runs.variable.is_some(),
        }
    }

    /// Counts a run that is connected, if this counts runs.
    pub(super) fn add(&mut self, run: Pid) {
        if let Self::Runs(Runs { runs, .. }) = self {
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
            Self::Runs(runs) => runs.list(),
        }
    }

    /// One process, to watch until it ends. None if there is none.
    pub(super) fn any(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Namespace(namespace) => namespace.any(),
            Self::Runs(runs) => runs.any(),
        }
    }
}

impl Runs {
    /// All processes, sorted.
    fn list(&self) -> io::Result<Vec<Pid>> {
        let living = self.runs.iter().filter(|(_, process)| is_alive(process));
        let mut members: Vec<_> = living.map(|(pid, _)| *pid).collect();
        members.extend(processes()?.into_iter().filter(|pid| self.has(*pid)));
        members.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        members.dedup();
        Ok(members)
    }

    /// One process, to watch until it ends. None if there is none.
    fn any(&self) -> io::Result<Option<OwnedFd>> {
        if let Some((_, process)) = self.runs.iter().find(|(_, process)| is_alive(process)) {
            return process.try_clone().map(Some);
        }
        // Twice, as in a namespace.
        for _ in 0..2 {
            for pid in processes()? {
                if self.has(pid)
                    && let Ok(watch) = pidfd_open(pid, PidfdFlags::empty())
                    && self.has(pid)
                {
                    return Ok(Some(watch));
                }
            }
        }
        Ok(None)
    }

    /// Whether the process has the mount point in its environment. That of others cannot be read.
    fn has(&self, pid: Pid) -> bool {
        let Some(variable) = &self.variable else {
            return false;
        };
        let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
        let is_in = |environment: Vec<u8>| environment.split(|b| *b == 0).any(|v| v == variable);
        environment.is_ok_and(is_in)
            && !process_session(pid).is_ok_and(|session| session == self.own)
    }
}

/// The numbers of all processes.
fn processes() -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        found.extend(pid.and_then(Pid::from_raw));
    }
    Ok(found)
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
        members.extend(
            processes()?
                .into_iter()
                .filter(|pid| self.has(*pid, &mut known)),
        );
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
