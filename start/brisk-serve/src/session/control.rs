//! Asks a user's sessions for their state, and ends them.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use brisk_launch::error::{Advice, Cause, Error, Result};
use brisk_launch::file_identity::FileIdentity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Timespec, stat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::dead_mounts::remove_dead_mounts;
use super::directory::{Directory, KEPT_LOGS};
use super::members::{Description, guardian_process, list_of_all, name_of};
use super::message::{Message, receive, send};
use crate::Confinement;
use crate::action::Action;
use crate::existing_path::resolve_path;
use crate::remote::RemoteUrl;

/// How long to wait for the answers of guardians. A guardian that was stopped never answers.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How long sessions may take to end. Their servers must free their memory, on a slow disk too.
const END_WITHIN: Duration = Duration::from_secs(60);

/// How long the kernel takes to end the connection of a mount that was unmounted, unless another mount namespace has a copy.
const UNMOUNT_WITHIN: Duration = Duration::from_secs(20);

/// A guardian has unmounted its image.
pub(super) const UNMOUNTED: &[u8] = b"unmounted";

/// How many guardians are asked at one time at most. Each takes two descriptors.
const AT_ONCE: u64 = 256;

/// Asks a guardian to leave its programs to the one who asks, and to say how to find them.
pub(super) const BRIEF: &str = "brief";

/// Tells a guardian that the one who asks has just found no program of its session.
pub(super) const UNUSED: &str = "unused";

/// A session, as its guardian describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStatus {
    /// The key of the session. No other session of the user has it.
    pub key: String,
    /// Whether its image is mounted for all programs, and not only for its own.
    pub shared: bool,
    /// Whether somebody has asked for its end: no run joins it, and it ends with the last program that uses it.
    pub ending: bool,
    /// Which limits its guardian has put on itself.
    pub confinement: Confinement,
    /// The process of its guardian. 0 if the guardian does not answer; then nothing else is known.
    pub guardian: i32,
    /// When it was made.
    pub since: Option<SystemTime>,
    /// How long it stays after its last program has ended. None for a mount that stays until it is unmounted.
    pub linger: Option<Duration>,
    /// How much longer it stays if no run joins. None while programs run.
    pub left: Option<Duration>,
    /// The directory that keeps what programs write, by its name when the session was made.
    pub layer: Option<PathBuf>,
    /// Its images, in the order of the command line.
    pub images: Vec<ImageStatus>,
    /// The processes that run in it: number and name.
    pub programs: Vec<(i32, String)>,
    /// Whether this process has looked for them itself, and found none.
    is_unused: bool,
}

/// An image of a [`SessionStatus`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageStatus {
    /// The file, by its name when the session was made.
    pub path: PathBuf,
    /// The absolute path by which the user who made the session named it. It may have links.
    pub named: PathBuf,
    /// What is at `path` now. None if that cannot be known.
    pub state: Option<FileState>,
    /// Where it is mounted in the session.
    pub place: PathBuf,
    /// The process of its server. None if it has none at the moment.
    pub server: Option<i32>,
    /// Which limits its server has put on itself.
    pub confinement: Confinement,
    /// How often a server replaced one that had died.
    pub restarts: u32,
    /// The counters of its server, by name, since that server started.
    pub counts: Vec<(String, u64)>,
    /// How long its server took to answer, by operation.
    pub operations: Vec<OperationStatus>,
}

/// What is now where the image of a session was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// The image, as it was when the session was made.
    Same,
    /// Another file, or the same one after somebody has written to it. A later run makes a session of its own.
    Replaced,
    /// Nothing: the image was removed or renamed.
    Deleted,
}

impl FileState {
    fn of(path: &Path, identity: FileIdentity) -> Option<Self> {
        match stat(path) {
            Ok(stat) if FileIdentity::of(&stat) == identity => Some(Self::Same),
            Ok(_) => Some(Self::Replaced),
            Err(Errno::NOENT | Errno::NOTDIR) => Some(Self::Deleted),
            Err(_) => None,
        }
    }
}

/// How often an operation was answered, and how long the answers took.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationStatus {
    /// The name of the operation in FUSE: `lookup`, `read`, ...
    pub name: String,
    /// The number of answers.
    pub answers: u64,
    /// Percentiles in nanoseconds, exact to an eighth: half, 90 % and 99 % of the answers took no longer.
    pub times: [u64; 3],
}

impl OperationStatus {
    /// Reads `name answers p50 p90 p99`.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let name = words.next()?.to_owned();
        let mut number = || words.next()?.parse().ok();
        Some(Self {
            name,
            answers: number()?,
            times: [number()?, number()?, number()?],
        })
    }
}

/// The calling user's sessions. It also removes what is left of those that have ended, and unmounts what is left of those
/// whose processes were all killed.
///
/// # Errors
///
/// `Io` and `Place` if the directory of sessions cannot be used.
pub fn sessions() -> Result<Vec<SessionStatus>> {
    let failed = |cause| Error::new(Action::Look, cause);
    let io = |e| failed(Cause::io("read the directory of sessions", e));
    let directory = Directory::open().map_err(failed)?;
    let keys = directory.keys().map_err(io)?;
    let mut found = Vec::new();
    let mut has_dead = false;
    for keys in keys.chunks(at_once()) {
        let mut guardians = Vec::new();
        for key in keys {
            // If it has ended meanwhile, or was killed, there is no session.
            match directory.connect(key).map_err(io)? {
                Some(socket) => guardians.push((key, socket)),
                None => has_dead = true,
            }
        }
        found.extend(look_at(guardians).map_err(io)?);
    }
    if has_dead {
        let images = found.iter().flat_map(|session| &session.images);
        let served: Vec<_> = images.map(|image| image.place.as_path()).collect();
        // If that fails, a later look or run tries again.
        remove_dead_mounts(&served).ok();
    }
    directory.sweep(KEPT_LOGS, true).map_err(io)?;
    Ok(found)
}

/// Removes the logs of the calling user's sessions that have ended.
///
/// # Errors
///
/// As [`sessions`].
pub fn remove_logs() -> Result<()> {
    let failed = |cause| Error::new(Action::Look, cause);
    let directory = Directory::open().map_err(failed)?;
    let swept = directory.sweep(0, false);
    swept.map_err(|e| failed(Cause::io("clear the directory of sessions", e)))
}

/// Asks all of these guardians at once, and looks once at all processes for the programs of their sessions.
fn look_at(guardians: Vec<(&String, OwnedFd)>) -> std::io::Result<Vec<SessionStatus>> {
    let requests = guardians.iter();
    let requests = requests.map(|(_, guardian)| (guardian, vec!["stat", BRIEF]));
    let answers = ask_all(&requests.collect::<Vec<_>>());
    let mut found = Vec::new();
    let (mut members, mut described) = (Vec::new(), Vec::new());
    let mut unseen = Vec::new();
    for ((key, guardian), answer) in guardians.iter().zip(answers) {
        match answer {
            Ok(Some(message)) => {
                let (session, description) = parse((*key).clone(), message);
                match description.members(session.guardian) {
                    Some(of_session) => {
                        described.push((found.len(), description));
                        members.push(of_session);
                    }
                    None => unseen.push((found.len(), guardian)),
                }
                found.push(session);
            }
            Ok(None) => {}
            Err(_) => found.push(SessionStatus {
                key: (*key).clone(),
                ..SessionStatus::default()
            }),
        }
    }
    for ((index, description), mut programs) in described.into_iter().zip(list_of_all(&members)?) {
        programs.extend(description.runs());
        programs.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        programs.dedup();
        let session: &mut SessionStatus = &mut found[index];
        session.is_unused = programs.is_empty();
        let programs = programs.into_iter();
        session.programs = programs
            .map(|pid| (pid.as_raw_nonzero().get(), name_of(pid)))
            .collect();
    }
    // The guardian sees more than this process, or is of an earlier version of brisk.
    let requests = unseen.iter();
    let requests = requests.map(|(_, guardian)| (*guardian, vec!["stat"]));
    let answers = ask_all(&requests.collect::<Vec<_>>());
    for ((index, _), answer) in unseen.into_iter().zip(answers) {
        if let Ok(Some(message)) = answer {
            let key = found[index].key.clone();
            found[index] = parse(key, message).0;
        }
    }
    Ok(found)
}

/// Ends the session with this [`SessionStatus::key`], and waits until its processes are gone. With `lazy`,
/// the session ends when its last program ends, no run can join it any more, and this returns at once.
///
/// # Errors
///
/// `Busy` without `lazy` if programs run in it, and `Place` if there is no such session.
pub fn end_session(key: &str, lazy: bool) -> Result<()> {
    let session = SessionStatus {
        key: key.to_owned(),
        ..SessionStatus::default()
    };
    let ended = end_sessions(std::slice::from_ref(&session), lazy)?;
    ended.into_iter().try_for_each(|ended| ended.map(|_| ()))
}

/// How a session ends that was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// Its processes are gone.
    Gone,
    /// With the last program that uses it.
    WithLast,
    /// Its image is unmounted here. A program in another mount namespace still sees it, and it ends with that one.
    SeenElsewhere,
}

/// Ends these sessions, all at the same time, as [`end_session`] does. The results are in the order of the sessions.
///
/// # Errors
///
/// `Io` and `Place` if the directory of sessions cannot be used.
pub fn end_sessions(sessions: &[SessionStatus], lazy: bool) -> Result<Vec<Result<SessionEnd>>> {
    let failed = |cause| Error::new(Action::End, cause);
    let directory = Directory::open().map_err(failed)?;
    let connect = |session: &SessionStatus| match directory.connect(&session.key) {
        Ok(guardian) => {
            guardian.ok_or_else(|| failed(Cause::place("there is none").advise(Advice::ListMounts)))
        }
        Err(e) => Err(unreachable(e)),
    };
    let mut results = Vec::new();
    for sessions in sessions.chunks(at_once()) {
        let guardians: Vec<_> = sessions.iter().map(connect).collect();
        let found = guardians.iter().zip(sessions);
        let requests = found.filter_map(|(guardian, session)| {
            let how = if lazy { "lazy" } else { "now" };
            let request = match session.is_unused {
                true => vec!["end", how, UNUSED],
                false => vec!["end", how],
            };
            Some((guardian.as_ref().ok()?, request))
        });
        let processes: Vec<_> = sessions
            .iter()
            .map(|session| guardian_process(session.guardian))
            .collect();
        let mut answers = ask_all(&requests.collect::<Vec<_>>()).into_iter();
        let until = Instant::now() + END_WITHIN;
        let asked = guardians.into_iter().zip(processes);
        results.extend(asked.map(|(guardian, process)| {
            let guardian = guardian?;
            let answer = answers.next().unwrap_or(Ok(None));
            ended(&guardian, process, answer, lazy, until)
        }));
    }
    Ok(results)
}

/// Waits for the end of a session whose guardian was asked for it, unless it ends lazily.
fn ended(
    guardian: &OwnedFd,
    process: Option<OwnedFd>,
    answer: Answer,
    lazy: bool,
    until: Instant,
) -> Result<SessionEnd> {
    let failed = |cause| Error::new(Action::End, cause);
    let Some(answer) = answer.map_err(unreachable)? else {
        return Ok(SessionEnd::Gone);
    };
    if answer.verb() == b"busy" {
        let programs = answer.fields.iter().skip(1);
        let programs: Vec<_> = programs
            .map(|program| String::from_utf8_lossy(program))
            .collect();
        let text = format!("programs still run in it: {}", programs.join(", "));
        return Err(failed(Cause::busy(text).advise(Advice::EndPrograms)));
    }
    if answer.verb() == b"refused" {
        let said = answer.field(1).map(String::from_utf8_lossy);
        let cause = Cause::busy(said.map_or_else(String::new, Cow::into_owned));
        let advice = answer.field(2).and_then(|advice| advice.first().copied());
        return Err(failed(match advice.and_then(Advice::from_wire) {
            Some(advice) => cause.advise(advice),
            None => cause,
        }));
    }
    if lazy {
        return Ok(SessionEnd::WithLast);
    }
    let is_unmounted = answer.field(1) == Some(UNMOUNTED);
    let until = match is_unmounted {
        true => until.min(Instant::now() + UNMOUNT_WITHIN),
        false => until,
    };
    // The guardian ends, which closes the connection. Only after that, the kernel lets go of the rest of it: until then it counts
    // as a program of the session that it was made in.
    match wait(guardian, until).and_then(|()| receive(guardian)) {
        Ok(None) => {
            if let Some(process) = process {
                wait(&process, until).ok();
            }
            Ok(SessionEnd::Gone)
        }
        Ok(Some(_)) => Err(unreachable(Errno::PROTO)),
        Err(Errno::TIMEDOUT) if is_unmounted => Ok(SessionEnd::SeenElsewhere),
        Err(Errno::TIMEDOUT) => Err(failed(Cause::busy(
            "it still serves a program in another mount namespace, such as a container, and ends with that",
        ))),
        Err(e) => Err(unreachable(e)),
    }
}

fn unreachable(e: impl Into<std::io::Error>) -> Error {
    Error::new(Action::End, Cause::io("reach the session's guardian", e))
}

/// How many guardians this process can ask at one time. It needs some descriptors besides.
fn at_once() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from((limit / 4).clamp(1, AT_ONCE)).unwrap_or(1)
}

/// What a guardian answers. None if it has ended.
type Answer = rustix::io::Result<Option<Message>>;

/// Sends each guardian its request, and then waits for all answers. So the guardians work at the same time, and one that was
/// stopped makes nobody wait for longer.
fn ask_all(requests: &[(&OwnedFd, Vec<&str>)]) -> Vec<Answer> {
    let sent = requests
        .iter()
        .map(|(guardian, request)| match send(guardian, request, &[]) {
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(false),
            sent => sent.map(|()| true),
        });
    let sent: Vec<_> = sent.collect();
    let until = Instant::now() + ANSWER_WITHIN;
    let answers = requests
        .iter()
        .zip(sent)
        .map(|((guardian, _), sent)| match sent? {
            true => wait(guardian, until).and_then(|()| receive(guardian)),
            false => Ok(None),
        });
    answers.collect()
}

/// Waits until the guardian says something or closes the connection, or until the process of a `pidfd` has ended. ETIMEDOUT if
/// nothing of that happens.
fn wait(watched: &OwnedFd, until: Instant) -> rustix::io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let mut fds = [PollFd::new(watched, PollFlags::IN)];
    match poll(&mut fds, Timespec::try_from(left).ok().as_ref())? {
        0 => Err(Errno::TIMEDOUT),
        _ => Ok(()),
    }
}

/// Reads what [`super::guardian`] writes. Unknown fields come from a later version of brisk.
pub(super) fn parse(key: String, message: Message) -> (SessionStatus, Description) {
    let mut description = Description::default();
    let mut status = SessionStatus {
        key,
        ..SessionStatus::default()
    };
    for field in message.fields {
        let Some(equals) = field.iter().position(|b| *b == b'=') else {
            continue;
        };
        let (name, value) = field.split_at(equals);
        let value = value.get(1..).unwrap_or_default();
        if description.read(name, value) {
            continue;
        }
        let text = String::from_utf8_lossy(value).into_owned();
        let path = || PathBuf::from(OsString::from_vec(value.to_vec()));
        let seconds = text.parse().map(Duration::from_secs).ok();
        let image = status.images.last_mut();
        match (name, image) {
            (b"guardian", _) => status.guardian = text.parse().unwrap_or(0),
            (b"since", _) => {
                status.since = seconds.and_then(|s| SystemTime::UNIX_EPOCH.checked_add(s));
            }
            (b"confined", None) => status.confinement = Confinement::parse(&text),
            (b"confined", Some(image)) => image.confinement = Confinement::parse(&text),
            (b"shared", _) => status.shared = true,
            (b"ending", _) => status.ending = true,
            (b"layer", _) => status.layer = Some(path()),
            (b"linger", _) => status.linger = seconds,
            (b"left", _) => status.left = seconds,
            (b"image", _) => status.images.push(ImageStatus {
                path: path(),
                ..ImageStatus::default()
            }),
            (b"named", Some(image)) => image.named = path(),
            (b"file", Some(image)) => {
                let identity = FileIdentity::parse(&text);
                image.state = identity.and_then(|identity| FileState::of(&image.path, identity));
            }
            (b"place", Some(image)) => image.place = path(),
            (b"server", Some(image)) => image.server = text.parse().ok(),
            (b"restarts", Some(image)) => image.restarts = text.parse().unwrap_or(0),
            (b"program", _) => {
                let (pid, name) = text.split_once(' ').unwrap_or((&text, "?"));
                let pid = pid.parse().ok();
                status
                    .programs
                    .extend(pid.map(|pid| (pid, name.to_owned())));
            }
            (b"operation", Some(image)) => image.operations.extend(OperationStatus::parse(&text)),
            (name, Some(image)) => {
                let count = name.strip_prefix(b"count.").map(String::from_utf8_lossy);
                let count = count.zip(text.parse().ok());
                image
                    .counts
                    .extend(count.map(|(name, count)| (name.into_owned(), count)));
            }
            _ => {}
        }
    }
    (status, description)
}

impl SessionStatus {
    /// Whether `path` is the file of one of its images, or the place of one. An image that was deleted is found by the name that
    /// it had, and by the one that its user knew.
    pub fn is_about(&self, path: &Path) -> bool {
        let asked = AskedPath::of(path);
        let mut images = self.images.iter();
        images.any(|image| asked.is_image(image) || image.place == asked.resolved)
    }

    /// Like [`SessionStatus::is_about`], for a `path` on which the caller sees a mount. A mount that only the
    /// session's programs see is not at that path for the caller.
    pub fn is_about_mount(&self, path: &Path) -> bool {
        let asked = AskedPath::of(path);
        let mut images = self.images.iter();
        images.any(|image| asked.is_image(image) || (self.shared && image.place == asked.resolved))
    }
}

/// A path by which a user asks for a session.
struct AskedPath {
    resolved: PathBuf,
    /// If there is nothing at the path: its absolute form, with links.
    gone: Option<PathBuf>,
}

impl AskedPath {
    fn of(path: &Path) -> Self {
        if RemoteUrl::is_url(path.as_os_str()) {
            // A root hash or a signature is no part of the name.
            let name = path.to_string_lossy();
            let name = RemoteUrl::of_user(&name)
                .map_or_else(|_| PathBuf::from(&*name), |url| PathBuf::from(url.as_str()));
            return Self {
                resolved: name.clone(),
                gone: Some(name),
            };
        }
        // Where the working directory was removed, nothing is found by a relative path.
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self {
            resolved: resolve_path(path).unwrap_or_else(|_| absolute.clone()),
            gone: (!path.exists()).then_some(absolute),
        }
    }

    fn is_image(&self, image: &ImageStatus) -> bool {
        image.path == self.resolved || self.gone.as_ref() == Some(&image.named)
    }
}
