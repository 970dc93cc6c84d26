/*!
Sessions: an image that a user's programs share, served by processes of its own.

The first run of an image makes the session: namespaces, a FUSE mount in them, and three processes without a
terminal.

* The *guardian* ([`guardian`]) holds the connection to the kernel, and lets later runs join.
* The *server* ([`server`]) answers the kernel. If it dies, the guardian starts another one on the same connection.
* The *watchdog* ([`guardian::watchdog`]) waits until guardian and server are both dead. If something still keeps the
  connection open then, it aborts the connection.

If a session learns what its launch asks for, a *learner* ([`recorded_launch`]) also runs for a moment.

Later runs join ([`join`]): they enter the namespaces and execute their program. They find everything that the kernel
has cached. The process that the user started becomes the program, in the first run too. So no process of a session is
an ancestor of a program, and signals, job control, descriptors and the exit status are the program's own.

A session ends some time after its last program. [`members`] says which processes count.
*/

mod bound_tree;
mod control;
mod dev_fuse;
mod directory;
mod guardian;
mod image_source;
mod join;
mod lasting_layer;
mod layout;
pub(crate) mod log;
mod members;
mod message;
mod missing_place;
mod mount_handle;
mod open_image;
mod overlay;
mod own_limits;
mod process_title;
mod recorded_launch;
mod root;
mod server;
mod session_fill;
mod set_up;
mod shared;
mod shared_mount_point;
mod surroundings;
mod world;

#[cfg(feature = "fuzzing")]
pub use guardian::rehearsal;

pub(crate) use bound_tree::BoundTree;
pub use control::{
    FileState, ImageStatus, OperationStatus, SessionStatus, end_session, end_sessions, remove_logs,
    sessions,
};
pub(crate) use dev_fuse::{is_fuse, mount_channel};
pub(crate) use layout::Layout;
pub use missing_place::MissingPlace;
pub(crate) use missing_place::make as make_places;
pub use open_image::SessionImage;
pub(crate) use open_image::{OpenImage, mount_directory};
pub use session_fill::{FillPlan, SessionFill};
pub use shared::SharedMount;
pub use world::SeenBy;

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::directory::{Directory, is_no_room};
use self::world::{Needs, World, world};
use crate::error::{Action, Cause, Error, Result};
use crate::first_process::leave_first_process;
use crate::key::Key;
use crate::namespace::is_privileged;
use crate::run::{ProgramPlace, Variable, become_program};
use crate::working_directory::WorkingDirectory;

/// How often a session may end just when a run joins it. Each time another run was faster.
const TRIES: u32 = 10;

/// How long a session stays after its last program has ended, if the caller does not say it.
const LINGER: Duration = Duration::from_secs(300);

/// A program to start from images, in a session.
///
/// The first run of an image makes the session: a mount namespace with a FUSE mount of the image, and three
/// processes that are nobody's children. The *guardian* holds the connection to the kernel and lets later
/// runs join. The *server* answers the kernel, and is replaced if it dies. The *watchdog* aborts the
/// connection if both die. Later runs join the namespace, and find in memory what the kernel has of the
/// image. In each run, the program takes the place of the calling process.
///
/// For an ordinary user, `fusermount3` mounts the image, and all programs of the user see it. A session that needs a place of
/// its own for the image, or shows more to its program, makes a user namespace instead: see [`Session::seen_by`]. Root needs
/// neither.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Session {
    /// The image to start the program from.
    pub image: SessionImage,
    /// More images, each with its own place.
    pub with: Vec<SessionImage>,
    /// Makes the image the program's root directory. The program also sees the system's `/proc`, `/sys`,
    /// `/dev`, `/run`, `/tmp`, `/home` and `/root`, and the files of `/etc` about users, network and time
    /// zone. [`SessionImage::at`] of `image` is ignored, and the other places are in the root.
    pub root: bool,
    /// Files and directories that the program also sees elsewhere.
    pub binds: Vec<Bind>,
    /// Lets the program write to the image's place. What it writes stays in memory, and is lost with the
    /// session, unless there is a [`Session::layer`].
    pub writable: bool,
    /// The directory that keeps what is written to the image's place, for later sessions. It is made if it does not exist.
    /// One session at a time uses it. Without [`Session::writable`] it is ignored.
    pub layer: Option<PathBuf>,
    /// How long the session stays after its last program has ended. The value of the latest run counts. Default:
    /// 5 minutes.
    pub linger: Duration,
    /// Who sees the image. `None` lets brisk choose: all programs of the user, unless the session needs a namespace, as root
    /// does not, or `fusermount3` cannot mount.
    pub seen_by: Option<SeenBy>,
    /// Fills from hot packs, if this run makes the session. A run that joins finds what is in memory.
    pub fill: Option<SessionFill>,
    /// The program and its arguments. An absolute path is taken as it is, a name with a slash is a path in
    /// the image (`bin/app`), and a bare name is looked up in `PATH`.
    pub command: Vec<OsString>,
    /// The directory that the program starts in, from the root of the image. `None` is the present one.
    pub directory: Option<PathBuf>,
    /// What is set in the environment of the program.
    pub variables: Vec<Variable>,
}

/// What a user should know about how a program is started.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// The system refuses namespaces, so all programs of the user see the image in this directory.
    MountedForAll(&'a Path),
    /// The place of an image does not exist, so the session has made it for its own programs alone.
    PlaceMade(&'a MissingPlace),
    /// `fusermount3` cannot mount the image, so the program is in a user namespace, with what that costs it.
    InUserNamespace(&'a Error),
    /// The directory of sessions has no room, so the run has the mount for itself.
    NoRoom(&'a std::io::Error),
}

/// A file or directory of the system that a [`Session`] shows at another place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bind {
    /// The file or directory.
    pub source: PathBuf,
    /// The path where it is shown. It must exist, except in a root directory or in a writable place.
    pub target: PathBuf,
    /// Whether it is read-only there.
    pub read_only: bool,
}

/// The state of a run that has entered a session and will become its program.
struct EnteredSession {
    /// The value of `BRISK_TREE`.
    tree: PathBuf,
    /// Whether the session existed before.
    joined: bool,
    /// Directories that mounts now hide, if it did not exist before.
    covered: Vec<PathBuf>,
    /// Places that it has made just now.
    made: Vec<MissingPlace>,
    /// Open until the program is executed, or this process ends.
    guardian: OwnedFd,
}

impl Bind {
    /// Shows `source` at `target`, where the program can write to it if the user can.
    pub fn new(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            target: target.into(),
            read_only: false,
        }
    }
}

impl Session {
    /// A program from one image, without a fill.
    pub fn new(image: SessionImage, command: Vec<OsString>) -> Self {
        Self {
            image,
            with: Vec::new(),
            root: false,
            binds: Vec::new(),
            writable: false,
            layer: None,
            linger: LINGER,
            seen_by: None,
            fill: None,
            command,
            directory: None,
            variables: Vec::new(),
        }
    }

    /// Becomes the program. Its environment has the place of the image in `BRISK_TREE`.
    ///
    /// If a mount hides the working directory, the working directory becomes the image's directory of that
    /// name.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the system refuses user namespaces or has no FUSE. `Place` if an image cannot be
    /// mounted at its place. `State` if the process has more than one thread. `CommandNotFound` and
    /// `CommandNotExecutable`. The process may be in the session by then: report the error and exit with
    /// [`Error::exit_code`].
    ///
    /// If the system refuses namespaces to this user, `fusermount3` mounts the image, and all programs of the
    /// user see it. The image is unmounted some time after the last run. If the directory of sessions has no room,
    /// no other run can join, and the mount ends with the program. `tell` is called with a [`Notice`] in both cases.
    ///
    /// If the calling process is the first of its PID namespace, it stays, and a child becomes the program: see
    /// [`leave_first_process`].
    pub fn exec(&self, tell: impl FnMut(Notice<'_>)) -> Result<Infallible> {
        if self.command.is_empty() {
            return Err(Error::new(Action::Run, Cause::NoCommand));
        }
        leave_first_process()?;
        let cwd = WorkingDirectory::now();
        let entered = self
            .enter(tell)
            .and_then(|entered| {
                let EnteredSession { tree, joined, .. } = &entered;
                if self.directory.is_none() {
                    cwd.restore(*joined, &entered.covered, tree == Path::new("/"))?;
                }
                Ok(entered)
            })
            .map_err(|cause| Error::new(Action::Mount, cause).with_path(&self.image.path))?;
        let error = become_program(
            &self.command,
            ProgramPlace::Image(&entered.tree),
            self.directory.as_deref(),
            &self.variables,
        );
        // Not earlier, because the session must not end before the program is in it.
        drop(entered.guardian);
        Err(error)
    }

    /// Joins the session of this key, or makes it.
    fn enter(&self, mut tell: impl FnMut(Notice<'_>)) -> Result<EnteredSession, Cause> {
        match world(self.seen_by, Needs::of(self), is_privileged())? {
            World::Own => shared::enter(self),
            World::Namespaces => self.enter_namespaces_or_else(tell),
            World::OwnOrNamespaces => match shared::enter(self) {
                Err(cause) if shared::is_of_way(&cause) => {
                    let why = Error::new(Action::Mount, cause);
                    tell(Notice::InUserNamespace(&why));
                    self.enter_namespaces_or_else(tell)
                }
                entered => entered,
            },
        }
    }

    /// Joins or makes it in namespaces, or if the system refuses them, in the user's own world.
    fn enter_namespaces_or_else(
        &self,
        mut tell: impl FnMut(Notice<'_>),
    ) -> Result<EnteredSession, Cause> {
        let directory = Directory::open();
        let entered = match directory.and_then(|directory| self.enter_namespaces(directory)) {
            Err(Cause::NoRoomForSession { source }) => {
                tell(Notice::NoRoom(&source));
                self.enter_namespaces(Directory::nowhere()?)
            }
            entered => entered,
        };
        if let Ok(entered) = &entered {
            let made = entered.made.iter();
            made.for_each(|place| tell(Notice::PlaceMade(place)));
        }
        match entered {
            Err(Cause::NoUserNamespaces { source }) => {
                if let Some(option) = Needs::of(self).namespaces {
                    return Err(Cause::SharedElsewhere { option });
                }
                let entered = shared::enter(self).map_err(|cause| match cause {
                    Cause::NoFusermount => Cause::NeitherWay { source },
                    cause => cause,
                })?;
                tell(Notice::MountedForAll(&entered.tree));
                Ok(entered)
            }
            result => result,
        }
    }

    fn enter_namespaces(&self, directory: Directory) -> Result<EnteredSession, Cause> {
        let images = self.open()?;
        let layer = self.layer.as_deref().filter(|_| self.writable);
        let layer = layer.map(lasting_layer::make).transpose()?;
        let key = self
            .key(&images, layer.as_deref())
            .map_err(|e| Cause::io("identify the image", e))?;
        let failed = |source| match is_no_room(&source) {
            true => Cause::NoRoomForSession { source },
            false => Cause::io("look for a session", source),
        };
        for _ in 0..TRIES {
            if let Some(socket) = directory.connect(&key).map_err(failed)? {
                match join::join(socket, self.linger)? {
                    Some(entered) => return Ok(entered),
                    None => continue,
                }
            }
            let lock = directory.lock(&key).map_err(failed)?;
            // Another run may have made it while this one waited.
            let socket = match directory.connect(&key) {
                Ok(Some(socket)) => socket,
                Ok(None) => {
                    let layer = layer.as_deref();
                    return set_up::set_up(self, images, layer, directory, &key, lock);
                }
                Err(e) => {
                    directory.abandon(&key, lock).map_err(failed)?;
                    return Err(failed(e));
                }
            };
            // The guardian may need the lock before it can answer.
            lock.release().map_err(failed)?;
            if let Some(entered) = join::join(socket, self.linger)? {
                return Ok(entered);
            }
        }
        Err(Cause::SessionLost { tries: TRIES })
    }

    /// The images, that of the program first.
    fn open(&self) -> Result<Vec<OpenImage>, Cause> {
        let mut images = vec![OpenImage::open(&self.image, self.root)?];
        for with in &self.with {
            let image = OpenImage::open(with, self.root)?;
            let Some(at) = &image.at else {
                return Err(Cause::NoPlace { image: image.path });
            };
            // In a root directory, all places are below that of the first image.
            let mut others = images.iter().filter_map(|image| image.at.as_ref());
            if let Some(other) = others.find(|o| o.starts_with(at) || at.starts_with(o)) {
                return Err(Cause::PlacesOverlap {
                    one: other.clone(),
                    other: at.clone(),
                });
            }
            images.push(image);
        }
        Ok(images)
    }

    fn key(&self, images: &[OpenImage], layer: Option<&Path>) -> std::io::Result<String> {
        let mut key = Key::new()?;
        for image in images {
            image.add_to(&mut key)?;
            key.add_path(image.at.as_deref());
            // A session keeps what was beside its place when it was made. If something has come there or has gone since, it
            // would be missing.
            key.add_number(image.missing.is_some().into());
            if let Some(missing) = &image.missing {
                key.add_file(&missing.parent_file()?)?;
            }
        }
        key.add_number(self.root.into());
        key.add_number(self.writable.into());
        key.add_path(layer);
        if let Some(layer) = layer {
            // Another directory of the same name is another layer.
            let layer = std::fs::metadata(layer)?;
            key.add_number(layer.dev());
            key.add_number(layer.ino());
        }
        for bind in &self.binds {
            // As an absolute path, because a relative name means something else in another directory.
            key.add_path(Some(&std::path::absolute(&bind.source)?));
            key.add_path(Some(&std::path::absolute(&bind.target)?));
            key.add_number(bind.read_only.into());
        }
        Ok(key.name())
    }
}
