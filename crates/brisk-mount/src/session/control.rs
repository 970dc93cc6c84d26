//! Asks a user's sessions for their state, and ends them.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Timespec, stat};
use rustix::io::Errno;

use super::directory::Directory;
use super::message::{Message, receive, send};
use super::shared::remove_dead_mounts;
use crate::Confinement;
use crate::error::{Action, Cause, Error, Result};
use crate::existing_path::resolve_path;
use crate::file_identity::FileIdentity;

/// How long to wait for the answer of a guardian. A guardian that was stopped never answers.
const ANSWER_WITHIN: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// How long a session may take to end. Its server must free its memory, on a slow disk too.
const END_WITHIN: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// A session, as its guardian describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStatus {
    /// The key of the session. No other session of the user has it.
    pub key: String,
    /// Whether its image is mounted for all programs, and not only for its own.
    pub shared: bool,
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

/// The calling user's sessions. It also unmounts what is left of those whose processes were all killed.
///
/// # Errors
///
/// `Io` and `Place` if the directory of sessions cannot be used.
pub fn sessions() -> Result<Vec<SessionStatus>> {
    let failed = |cause| Error::new(Action::Look, cause);
    let io = |e| failed(Cause::io("read the directory of sessions", e));
    let directory = Directory::open().map_err(failed)?;
    let mut found = Vec::new();
    let mut has_dead = false;
    for key in directory.keys().map_err(io)? {
        // If it has ended meanwhile, or was killed, there is no session.
        let Some(socket) = directory.connect(&key).map_err(io)? else {
            has_dead = true;
            continue;
        };
        match ask(&socket, &["stat"]) {
            Ok(Some(message)) => found.push(parse(key, message)),
            Ok(None) => {}
            Err(_) => found.push(SessionStatus {
                key,
                ..SessionStatus::default()
            }),
        }
    }
    if has_dead {
        let images = found.iter().flat_map(|session| &session.images);
        let served: Vec<_> = images.map(|image| image.place.as_path()).collect();
        // If that fails, a later look or run tries again.
        remove_dead_mounts(&served).ok();
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
    let failed = |cause| Error::new(Action::End, cause);
    let io = |e: std::io::Error| failed(Cause::io("reach the session's guardian", e));
    let directory = Directory::open().map_err(failed)?;
    let Some(socket) = directory.connect(key).map_err(io)? else {
        return Err(failed(Cause::NoSession));
    };
    let answer = ask(&socket, &["end", if lazy { "lazy" } else { "now" }]);
    let Some(answer) = answer.map_err(|e| io(e.into()))? else {
        return Ok(());
    };
    if answer.verb() == b"busy" {
        let programs = answer.fields.iter().skip(1);
        let programs = programs
            .map(|program| String::from_utf8_lossy(program).into_owned())
            .collect();
        return Err(failed(Cause::SessionBusy { programs }));
    }
    if answer.verb() == b"refused" {
        let said = answer.field(1).map(String::from_utf8_lossy);
        let said = said.map_or_else(String::new, |said| said.into_owned());
        return Err(failed(Cause::Unmountable { said }));
    }
    if lazy {
        return Ok(());
    }
    // The guardian ends, which closes the connection.
    match wait(&socket, END_WITHIN).and_then(|()| receive(&socket)) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(io(Errno::PROTO.into())),
        Err(e) => Err(io(e.into())),
    }
}

fn ask(socket: &OwnedFd, request: &[&str]) -> rustix::io::Result<Option<Message>> {
    match send(socket, request, &[]) {
        Err(Errno::PIPE | Errno::CONNRESET) => return Ok(None),
        result => result?,
    }
    wait(socket, ANSWER_WITHIN)?;
    receive(socket)
}

/// Waits until the guardian says something or closes the connection. ETIMEDOUT if it does neither.
fn wait(socket: &OwnedFd, within: Timespec) -> rustix::io::Result<()> {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    match poll(&mut fds, Some(&within))? {
        0 => Err(Errno::TIMEDOUT),
        _ => Ok(()),
    }
}

/// Reads what [`super::guardian`] writes. Unknown fields come from a later version of brisk.
pub(super) fn parse(key: String, message: Message) -> SessionStatus {
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
    status
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
