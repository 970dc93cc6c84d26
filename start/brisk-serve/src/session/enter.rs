//! Starts a program in a session that exists, or in a new one.

use std::convert::Infallible;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use brisk_launch::error::{Advice, Cause, Error, Result};
use brisk_launch::key::Key;
use brisk_launch::leave_first_process;
use brisk_launch::program::{ProgramPlace, become_program};

use super::directory::{Directory, session_lost, without_room};
use super::entered::EnteredSession;
use super::join::TRIES;
use super::missing_place::MissingPlace;
use super::open_image::{OpenImage, no_place, places_overlap};
use super::program::Session;
use super::world::{Needs, World, world};
use super::{join, lasting_layer, set_up, shared};
use crate::action::{Action, NO_FUSERMOUNT, NO_NAMESPACES, NO_ROOM};
use crate::namespace::is_privileged;
use crate::working_directory::WorkingDirectory;

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

/// There is neither a user namespace nor `fusermount3`.
const NEITHER_WAY: &str = "the system refuses user namespaces to this user and has no fusermount3; install the package fuse3";

impl Session {
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
            return Err(Error::new(Action::Run, Cause::no_command()));
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
        match world(self.seen_by, self.needs(), is_privileged())? {
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

    fn needs(&self) -> Needs {
        Needs::of(
            &self.image,
            &self.with,
            self.root,
            &self.binds,
            self.writable,
        )
    }

    /// Joins or makes it in namespaces, or if the system refuses them, in the user's own world.
    fn enter_namespaces_or_else(
        &self,
        mut tell: impl FnMut(Notice<'_>),
    ) -> Result<EnteredSession, Cause> {
        let directory = Directory::open();
        let entered = match directory.and_then(|directory| self.enter_namespaces(directory)) {
            Err(cause) if cause.is(NO_ROOM) => {
                if let Some(why) = cause.io_error() {
                    tell(Notice::NoRoom(why));
                }
                self.enter_namespaces(Directory::nowhere()?)
            }
            entered => entered,
        };
        if let Ok(entered) = &entered {
            let made = entered.made.iter();
            made.for_each(|place| tell(Notice::PlaceMade(place)));
        }
        match entered {
            Err(refused) if refused.is(NO_NAMESPACES) => {
                if let Some(what) = self.needs().namespaces {
                    let text = format!(
                        "{what} needs a user namespace, which the system refuses to this user"
                    );
                    return Err(Cause::unsupported(text).advise(Advice::AllowNamespaces));
                }
                let entered = shared::enter(self).map_err(|cause| match cause {
                    cause if cause.is(NO_FUSERMOUNT) => refused.worded(NEITHER_WAY),
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
        let failed = without_room("look for a session");
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
        Err(session_lost(TRIES))
    }

    /// The images, that of the program first.
    pub(super) fn open(&self) -> Result<Vec<OpenImage>, Cause> {
        let mut images = vec![OpenImage::open(&self.image, self.root)?];
        for with in &self.with {
            let image = OpenImage::open(with, self.root)?;
            let Some(at) = &image.at else {
                return Err(no_place(&image.path));
            };
            // In a root directory, all places are below that of the first image.
            let mut others = images.iter().filter_map(|image| image.at.as_ref());
            if let Some(other) = others.find(|o| o.starts_with(at) || at.starts_with(o)) {
                return Err(places_overlap(other, at));
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
