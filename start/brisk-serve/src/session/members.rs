//! Which processes belong to a session.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use brisk_launch::sys::process::process_session;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, getpid};

use super::log::say;
use super::process_end::watch;

/// The namespaces of mounts and of process numbers of this process.
const OWN_MOUNTS: &str = "/proc/self/ns/mnt";
const OWN_PROCESSES: &str = "/proc/self/ns/pid";

/// The name of a guardian's process.
const GUARDIAN: &CStr = c"brisk-guardian";

/// How to recognise the processes of a session.
///
/// In namespaces, a process belongs to a session if it is in the session's mount namespace. It also belongs to it if it is
/// in another mount namespace in which an image of the session is mounted: sandboxes have such copies of the namespace. The
/// death of a parent or a new process group changes nothing, so daemons count.
///
/// If all programs of the user see the image, the runs that use it belong to it, and what has the mount point in its
/// environment, as what a run has started does.
#[derive(Clone)]
pub(super) struct Members {
    sign: Sign,
    /// The runs. The descriptors tell whether they live, because another process may get their number later.
    runs: Vec<(Pid, Arc<OwnedFd>)>,
    /// The process session of the session's own processes, which do not count. No program can enter it.
    own: i32,
}

/// By what a process is recognised.
#[derive(Clone)]
enum Sign {
    /// A mount namespace, and the device numbers of the images, as in `/proc/PID/mountinfo`: `0:45`.
    Namespace(PathBuf, Vec<String>),
    /// The variable with the mount point, as in the environment.
    Variable(Vec<u8>),
    /// Nothing: the mount stays until it is unmounted.
    Nothing,
}

impl Members {
    /// For the session whose mount namespace and process session the caller is in.
    pub(super) fn new(devices: Vec<String>) -> io::Result<Self> {
        Self::by(Sign::Namespace(fs::read_link(OWN_MOUNTS)?, devices))
    }

    /// No runs yet. If the mount ends with them, `place` is where they find it.
    pub(super) fn of_runs(place: Option<&Path>) -> io::Result<Self> {
        Self::by(match place {
            Some(place) => Sign::Variable([b"BRISK_TREE=", place.as_os_str().as_bytes()].concat()),
            None => Sign::Nothing,
        })
    }

    fn by(sign: Sign) -> io::Result<Self> {
        Ok(Self {
            sign,
            runs: Vec::new(),
            own: process_session(getpid())?,
        })
    }

    /// Whether the session ends with its last program.
    pub(super) fn end_session(&self) -> bool {
        !matches!(self.sign, Sign::Nothing)
    }

    /// Counts a run that is connected, if this counts runs.
    pub(super) fn add(&mut self, run: Pid) {
        if matches!(self.sign, Sign::Namespace(..)) {
            return;
        }
        self.runs.retain(|(_, process)| is_alive(process));
        match watch(run) {
            Ok(process) => self.runs.push((run, Arc::new(process))),
            Err(e) => say(&format!(
                "process {run} does not keep the mount: {e}",
                run = run.as_raw_nonzero()
            )),
        }
    }

    /// All processes, sorted.
    pub(super) fn list(&self) -> io::Result<Vec<Pid>> {
        let mut found = list_of_all(std::slice::from_ref(self))?;
        Ok(found.pop().unwrap_or_default())
    }

    /// One process, to watch until it ends. None if there is none.
    ///
    /// A process that forks and ends while the list is read can hide its child, whose number may be lower. So
    /// there is none only if two lists in a row are empty.
    pub(super) fn any(&self) -> io::Result<Option<OwnedFd>> {
        if let Some((_, process)) = self.runs.iter().find(|(_, process)| is_alive(process)) {
            return process.try_clone().map(Some);
        }
        let own = std::slice::from_ref(self);
        for _ in 0..2 {
            let mut look = Look::at(own);
            if !look.sees_any() {
                break;
            }
            for pid in processes()? {
                // The process may have ended, and another may have its number.
                if !look.of(pid).is_empty()
                    && let Ok(watched) = watch(pid)
                    && !Look::at(own).of(pid).is_empty()
                {
                    return Ok(Some(watched));
                }
            }
        }
        Ok(None)
    }

    /// The runs that live, as far as they are counted.
    fn living_runs(&self) -> impl Iterator<Item = Pid> {
        let living = self.runs.iter().filter(|(_, process)| is_alive(process));
        living.map(|(pid, _)| *pid)
    }

    /// What another process of the user needs to find them: fields of the form `name=value`. See [`Description`].
    pub(super) fn describe(&self) -> io::Result<Vec<Vec<u8>>> {
        let number = |number: i32| number.to_string().into_bytes();
        let mut fields = vec![
            ("mounts", link(OWN_MOUNTS)?.into_vec()),
            ("numbers", link(OWN_PROCESSES)?.into_vec()),
            ("own", number(self.own)),
        ];
        match &self.sign {
            Sign::Namespace(_, devices) => {
                fields.extend(
                    devices
                        .iter()
                        .map(|device| ("device", device.clone().into())),
                );
            }
            Sign::Variable(variable) => fields.push(("variable", variable.clone())),
            Sign::Nothing => {}
        }
        let runs = self.living_runs();
        fields.extend(runs.map(|run| ("run", number(run.as_raw_nonzero().get()))));
        let fields = fields.into_iter();
        Ok(fields
            .map(|(name, value)| [name.as_bytes(), b"=", &value].concat())
            .collect())
    }
}

/// What a guardian says of the processes of its session, so that another process can look for those of all sessions at once.
#[derive(Default)]
pub(super) struct Description {
    /// The mount namespace of the guardian, and the namespace of its process number.
    mounts: PathBuf,
    numbers: PathBuf,
    own: Option<i32>,
    devices: Vec<String>,
    variable: Option<Vec<u8>>,
    /// The runs that live.
    runs: Vec<i32>,
}

impl Description {
    /// Reads a field. False if it is none of a description.
    pub(super) fn read(&mut self, name: &[u8], value: &[u8]) -> bool {
        let path = || PathBuf::from(OsString::from_vec(value.to_vec()));
        let number = || str::from_utf8(value).ok()?.parse().ok();
        match name {
            b"mounts" => self.mounts = path(),
            b"numbers" => self.numbers = path(),
            b"own" => self.own = number(),
            b"device" => self.devices.extend(String::from_utf8(value.to_vec())),
            b"variable" => self.variable = Some(value.to_vec()),
            b"run" => self.runs.extend(number().filter(|run| *run > 0)),
            _ => return false,
        }
        true
    }

    /// The runs that live.
    pub(super) fn runs(&self) -> impl Iterator<Item = Pid> {
        self.runs.iter().filter_map(|run| Pid::from_raw(*run))
    }

    /// How this process recognises them. None if it may see fewer processes than the guardian does: it has other numbers for
    /// processes, or cannot look at the guardian itself.
    pub(super) fn members(&self, guardian: i32) -> Option<Members> {
        let numbers = fs::read_link(OWN_PROCESSES).ok()?;
        let mounts = namespace_of(&format!("/proc/{guardian}")).ok()?;
        if numbers != self.numbers || mounts != self.mounts {
            return None;
        }
        let sign = match &self.variable {
            Some(variable) => Sign::Variable(variable.clone()),
            None if self.devices.is_empty() => Sign::Nothing,
            None => Sign::Namespace(mounts, self.devices.clone()),
        };
        Some(Members {
            sign,
            // The guardian has just looked whether they live.
            runs: Vec::new(),
            own: self.own?,
        })
    }
}

/// The processes of several sessions, each sorted. One look at all processes finds them.
pub(super) fn list_of_all(all: &[Members]) -> io::Result<Vec<Vec<Pid>>> {
    let mut lists: Vec<Vec<_>> = all
        .iter()
        .map(|members| members.living_runs().collect())
        .collect();
    let mut look = Look::at(all);
    if look.sees_any() {
        for pid in processes()? {
            for index in look.of(pid) {
                lists[index].push(pid);
            }
        }
    }
    for list in &mut lists {
        list.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        list.dedup();
    }
    Ok(lists)
}

/// A look at processes, to find those of several sessions.
struct Look<'a> {
    all: &'a [Members],
    /// The sessions by the variable of their programs.
    variables: HashMap<&'a [u8], Vec<usize>>,
    /// Whether any of them has a mount namespace.
    has_namespaces: bool,
    /// Whose images are in a mount namespace, by the namespace.
    known: HashMap<PathBuf, Vec<usize>>,
}

impl<'a> Look<'a> {
    fn at(all: &'a [Members]) -> Self {
        let mut variables: HashMap<_, Vec<_>> = HashMap::new();
        for (index, members) in all.iter().enumerate() {
            if let Sign::Variable(variable) = &members.sign {
                variables.entry(&**variable).or_default().push(index);
            }
        }
        let mut signs = all.iter().map(|members| &members.sign);
        Self {
            all,
            variables,
            has_namespaces: signs.any(|sign| matches!(sign, Sign::Namespace(..))),
            known: HashMap::new(),
        }
    }

    /// Whether a process can belong to any of the sessions by a sign.
    fn sees_any(&self) -> bool {
        self.has_namespaces || !self.variables.is_empty()
    }

    /// The sessions that a process belongs to. What ends meanwhile, or belongs to another user, cannot be looked at, and belongs
    /// to none.
    fn of(&mut self, pid: Pid) -> Vec<usize> {
        let process = format!("/proc/{}", pid.as_raw_nonzero());
        let mut found: Vec<usize> = Vec::new();
        if self.has_namespaces
            && let Ok(namespace) = namespace_of(&process)
        {
            found.extend(self.in_namespace(namespace, &process));
        }
        if !self.variables.is_empty()
            && let Ok(environment) = fs::read(format!("{process}/environ"))
        {
            let variables = environment.split(|b| *b == 0);
            found.extend(variables.filter_map(|v| self.variables.get(v)).flatten());
        }
        if !found.is_empty()
            && let Ok(session) = process_session(pid)
        {
            found.retain(|index| self.all[*index].own != session);
        }
        found
    }

    /// The sessions that a process in `namespace` belongs to.
    fn in_namespace(&mut self, namespace: PathBuf, process: &str) -> &[usize] {
        let all = self.all.iter().enumerate();
        self.known.entry(namespace).or_insert_with_key(|namespace| {
            let mut table = None;
            let mut is_in = |members: &Members| match &members.sign {
                Sign::Namespace(own, _) if own == namespace => true,
                Sign::Namespace(_, devices) => {
                    let table = table.get_or_insert_with(|| mounted_devices(process));
                    devices
                        .iter()
                        .any(|device| table.contains(device.as_bytes()))
                }
                _ => false,
            };
            let found = all.filter(|(_, members)| is_in(members));
            found.map(|(index, _)| index).collect()
        })
    }
}

/// The device numbers of what is mounted in the namespace of a process. Empty if its mount table cannot be read.
fn mounted_devices(process: &str) -> BTreeSet<Vec<u8>> {
    let table = fs::read(format!("{process}/mountinfo")).unwrap_or_default();
    let devices = table
        .split(|b| *b == b'\n')
        .filter_map(|line| line.split(|b| *b == b' ').nth(2));
    devices.map(<[u8]>::to_vec).collect()
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

fn link(path: &str) -> io::Result<OsString> {
    fs::read_link(path).map(PathBuf::into_os_string)
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

/// Gives this process the name of guardians.
pub(super) fn take_guardian_name() {
    // Without it, nobody waits for the last of its end, so a failure does not matter.
    rustix::thread::set_name(GUARDIAN).ok();
}

/// The process of a guardian, to watch until it ends. None if this process does not see it: the number may be one of another
/// namespace.
pub(super) fn guardian_process(guardian: i32) -> Option<OwnedFd> {
    let pid = Some(guardian)
        .filter(|number| *number > 0)
        .and_then(Pid::from_raw)?;
    let process = watch(pid).ok()?;
    (name_of(pid).as_bytes() == GUARDIAN.to_bytes()).then_some(process)
}

/// The name that a process has given itself.
pub(super) fn name_of(pid: Pid) -> String {
    let name = fs::read(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    name.map_or_else(
        |_| "?".to_owned(),
        |name| String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
    )
}
