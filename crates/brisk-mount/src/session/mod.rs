/*!
Sessions: an image that a user's programs share, served by processes of its own.

The first run of an image makes the session: namespaces, a FUSE mount in them, and three processes
without a terminal. The *guardian* ([`guardian`]) holds the connection to the kernel and
lets later runs in; the *server* ([`server`]) answers the kernel, and can die: the guardian starts
another on the same connection. Later runs join ([`join`]): they enter the namespaces and execute
their program. All that the kernel has cached is there for them.

The process that the user started becomes the program, in the first run too. So no process of a session is
an ancestor of a program, and none is in the way of signals, job control, descriptors or the exit status.

A third process, the *watchdog* ([`guardian::watchdog`]), waits for the death of both, and aborts the
connection if something keeps it open then. Where a session learns what its launch asks for, a *learner*
([`recorded_launch`]) runs for a moment.

A session ends some time after its last program ([`members`] says which processes count).
*/

mod bound_tree;
mod control;
mod dev_fuse;
mod directory;
mod guardian;
mod join;
mod layout;
mod log;
mod members;
mod message;
mod mount_handle;
mod open_image;
mod overlay;
mod recorded_launch;
mod root;
mod server;
mod session_fill;
mod set_up;
mod shared;
mod shared_mount_point;

pub use control::{ImageStatus, OperationStatus, SessionStatus, end_session, sessions};
pub(crate) use dev_fuse::mount_channel;
pub(crate) use layout::Layout;
pub use open_image::SessionImage;
pub(crate) use open_image::{OpenImage, mount_directory};
pub use session_fill::{FillPlan, SessionFill};
pub use shared::SharedMount;

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::directory::Directory;
use crate::error::{Action, Cause, Error, Result};
use crate::key::Key;
use crate::run::become_program;
use crate::working_directory::WorkingDirectory;

/// How often a session may end at the moment it is joined. Each time another run was quicker.
const TRIES: u32 = 10;

/// A program to start from images, in a session.
///
/// The first run of an image makes the session: a mount namespace with a FUSE mount of the image, and three
/// processes that are nobody's children. The *guardian* holds the connection to the kernel and lets later
/// runs in, the *server* answers the kernel, and is replaced if it dies, and the *watchdog* aborts
/// the connection if both die. Later runs join the namespace, and find in memory what the kernel has of the
/// image. The program takes the place of the calling process in each of them.
///
/// An ordinary user can do this where the system allows user namespaces; root needs none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The image that the program is started from.
    pub image: SessionImage,
    /// More images, each with a place of its own.
    pub with: Vec<SessionImage>,
    /// Makes the image the program's root directory, with the system's `/proc`, `/sys`, `/dev`,
    /// `/run`, `/tmp`, `/home` and `/root` in it, and the files of `/etc` about users, network and time zone.
    /// [`SessionImage::at`] of `image` counts for nothing then, and the other places are in it.
    pub root: bool,
    /// What the program sees elsewhere too.
    pub binds: Vec<Bind>,
    /// Lets the program write to the image's place. What it writes is kept in memory, and lost with
    /// the session.
    pub writable: bool,
    /// How long the session stays after its last program has ended. That of the latest run counts.
    pub linger: Duration,
    /// Fills from hot packs, if this run makes the session. A run that joins finds what is in memory.
    pub fill: Option<SessionFill>,
    /// The program and its arguments. An absolute program is taken as it is, one with a slash from
    /// the image's root (`bin/app`), a bare name from `PATH`.
    pub command: Vec<OsString>,
}

/// A file or directory of the system that a [`Session`] shows at another place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// The file or directory.
    pub source: PathBuf,
    /// Where it is shown. It must exist, except in a root directory or in what is writable.
    pub target: PathBuf,
    /// Nothing can be written there.
    pub read_only: bool,
}

/// Where a run is before it becomes its program.
struct EnteredSession {
    /// What `BRISK_TREE` says.
    tree: PathBuf,
    /// The session was there already.
    joined: bool,
    /// What mounts cover, if it was not.
    covered: Vec<PathBuf>,
    /// Open until the program is executed, or this process ends.
    guardian: OwnedFd,
}

impl Session {
    /// Becomes the program. Its environment has the place of the image in `BRISK_TREE`.
    ///
    /// A working directory that a mount covers becomes the image's directory of that name.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the system refuses user namespaces or has no FUSE, `Place` if an image
    /// cannot be mounted where it should be, `State` if the process has more than one thread,
    /// `CommandNotFound` and `CommandNotExecutable`. The process may be in the session by then: all
    /// that is left to do is to report and exit with [`Error::exit_code`].
    ///
    /// Where the system refuses namespaces to this user, `fusermount3` mounts the image, which all
    /// programs of the user see then; `instead` is called with the place, to say so. It is
    /// unmounted some time after the last run.
    pub fn exec(&self, instead: impl FnOnce(&Path)) -> Result<Infallible> {
        if self.command.is_empty() {
            return Err(Error::new(Action::Run, Cause::NoCommand));
        }
        let cwd = WorkingDirectory::now();
        let entered = self
            .enter(instead)
            .and_then(|entered| {
                let EnteredSession { tree, joined, .. } = &entered;
                cwd.restore(*joined, &entered.covered, tree == Path::new("/"))?;
                Ok(entered)
            })
            .map_err(|cause| Error::new(Action::Mount, cause).with_path(&self.image.path))?;
        let error = become_program(&self.command, Some(&entered.tree));
        // Only now: the session must not end before the program is in it.
        drop(entered.guardian);
        Err(error)
    }

    /// Joins the session of this key, or makes it.
    fn enter(&self, instead: impl FnOnce(&Path)) -> Result<EnteredSession, Cause> {
        match self.enter_namespaces() {
            Err(Cause::NoUserNamespaces { source }) => {
                let entered = shared::enter(self, source)?;
                instead(&entered.tree);
                Ok(entered)
            }
            result => result,
        }
    }

    fn enter_namespaces(&self) -> Result<EnteredSession, Cause> {
        let images = self.open()?;
        let key = self
            .key(&images)
            .map_err(|e| Cause::io("identify the image", e))?;
        let directory = Directory::open()?;
        let failed = |e| Cause::io("look for a session", e);
        for _ in 0..TRIES {
            if let Some(socket) = directory.connect(&key).map_err(failed)? {
                match join::join(socket, self.linger)? {
                    Some(entered) => return Ok(entered),
                    None => continue,
                }
            }
            let lock = directory.lock(&key).map_err(failed)?;
            // Another run may have made it while this one waited.
            let Some(socket) = directory.connect(&key).map_err(failed)? else {
                return set_up::set_up(self, images, directory, &key, lock);
            };
            // The guardian may need the lock before it can answer.
            lock.release().map_err(failed)?;
            if let Some(entered) = join::join(socket, self.linger)? {
                return Ok(entered);
            }
        }
        Err(Cause::SessionLost { tries: TRIES })
    }

    /// The images, the program's first.
    fn open(&self) -> Result<Vec<OpenImage>, Cause> {
        let mut images = vec![OpenImage::open(&self.image, self.root)?];
        for with in &self.with {
            let image = OpenImage::open(with, self.root)?;
            let Some(at) = &image.at else {
                return Err(Cause::NoPlace { image: image.path });
            };
            // In a root directory, all places are below that of the first.
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

    fn key(&self, images: &[OpenImage]) -> std::io::Result<String> {
        let mut key = Key::new()?;
        for image in images {
            key.add_image(&image.file, image.offset)?;
            key.add_path(image.at.as_deref());
        }
        key.add_number(self.root.into());
        key.add_number(self.writable.into());
        for bind in &self.binds {
            // What the same name means from elsewhere is something else.
            key.add_path(Some(&std::path::absolute(&bind.source)?));
            key.add_path(Some(&std::path::absolute(&bind.target)?));
            key.add_number(bind.read_only.into());
        }
        Ok(key.name())
    }
}
