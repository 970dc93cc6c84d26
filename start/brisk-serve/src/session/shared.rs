//! A mount that all programs see. It has a guardian of its own.
//!
//! Root mounts itself, other users with `fusermount3`. The guardian holds the connection like that of a
//! session. But no namespace ends with the programs, so the mount stays until it is unmounted. If the system
//! refuses namespaces, runs use such a mount, and it is unmounted some time after the last of them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use brisk_image::verity::Verity;
use brisk_launch::error::{Advice, Cause, Error, Result, Shown};
use brisk_launch::key::Key;
use brisk_launch::mount_table::mounted_on;
use brisk_launch::sys::process::start_detached;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::control::sessions;
use super::dev_fuse::mount_channel_with;
use super::directory::{Directory, Lock, session_lost, without_room};
use super::entered::EnteredSession;
use super::guardian::{GuardedImage, Guardian, Servers};
use super::image_source::ImageSource;
use super::join;
use super::join::TRIES;
use super::log::say;
use super::members::{Members, take_guardian_name};
use super::message::{FAILED, guardian_failed, receive, send_now};
use super::mount_handle::MountHandle;
use super::open_image::{OpenImage, RemoteImage, SessionImage, mount_directory};
use super::own_limits::take_own_limits;
use super::process_title::show_images;
use super::program::Session;
use super::session_fill::ImageFill;
use super::shared_mount_point::SharedMountPoint;
use crate::action::{Action, FUSERMOUNT_REFUSES, MOUNT_REFUSED, NO_FUSERMOUNT, NO_ROOM};
use crate::fuse::connection::{FS_TYPE, FuseConnection};
use crate::fuse::options::ServeOptions;
use crate::fuse::owners::Owners;
use crate::fusermount;
use crate::hot_pack::fill::FillRoot;
use crate::kernel_mount::{mount_flags, no_target};
use crate::namespace::is_privileged;

/// An image to mount for all programs, of the calling user or of everybody.
///
/// An ordinary user needs `fusermount3` (package fuse3) and a directory that it may write to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedMount {
    /// The image's file or block device.
    pub image: PathBuf,
    /// The byte at which the image starts in it.
    pub offset: u64,
    /// The directory to mount the image on. The mount hides its contents.
    pub target: PathBuf,
    /// Compares each block with the image's hash tree, as [`SessionImage::verity`] says.
    pub verity: Option<Verity>,
    /// The image arrives from the network, as [`SessionImage::remote`] says.
    pub remote: Option<RemoteImage>,
    /// Lets other users in. Root's mounts always do. For other users the system must allow it, with
    /// `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Whether set-user-id bits and file capabilities have an effect. Only root may ask for that.
    pub suid: bool,
    /// Whether device nodes have an effect. Only root may ask for that.
    pub dev: bool,
}

impl SharedMount {
    /// Mounts the image in the file `image`, which starts at byte 0, on `target` for the calling user.
    pub fn new(image: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self {
            image: image.into(),
            offset: 0,
            target: target.into(),
            verity: None,
            remote: None,
            allow_other: false,
            suid: false,
            dev: false,
        }
    }

    /// Mounts the image, and returns the canonical path of the directory. The image stays mounted until
    /// [`unmount`](crate::unmount) or [`end_session`](crate::end_session) ends it, also after this process
    /// has ended.
    ///
    /// # Errors
    ///
    /// `Place` if the directory cannot be used. `Busy` if an image is mounted there already. `Unsupported`
    /// without `/dev/fuse` or `fusermount3`. `NotPermitted` if `fusermount3` refuses. `State` if the process
    /// has more than one thread.
    pub fn mount(&self) -> Result<PathBuf> {
        self.start(MountEnd::Unmounted)
            .map(|(target, _)| target)
            .map_err(|cause| self.error(cause))
    }

    /// Mounts the image, calls `mounted` with the directory, and returns when the image was unmounted. If
    /// this process ends before, in any way, the image is unmounted lazily.
    ///
    /// # Errors
    ///
    /// As [`SharedMount::mount`].
    pub fn mount_in_foreground(&self, mounted: impl FnOnce(&Path)) -> Result<()> {
        let (target, guardian) = self
            .start(MountEnd::FirstPeerGone)
            .map_err(|cause| self.error(cause))?;
        mounted(&target);
        let mut fds = [PollFd::new(&guardian, PollFlags::IN)];
        loop {
            // It sends nothing, so this is its end.
            match poll(&mut fds, None) {
                Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(self.error(Cause::io("wait for the end of the mount", e))),
            }
        }
    }

    fn error(&self, cause: Cause) -> Error {
        Error::new(Action::Mount, cause).with_path(&self.image)
    }

    fn start(&self, until: MountEnd) -> Result<(PathBuf, OwnedFd), Cause> {
        let image = SessionImage {
            path: self.image.clone(),
            offset: self.offset,
            at: None,
            verity: self.verity,
            remote: self.remote.clone(),
            pack: None,
        };
        let image = OpenImage::open(&image, false)?;
        let target = mount_directory(&self.target)?;
        let mounted = mounted_on(&target);
        let mounted = mounted.map_err(|e| Cause::io("read /proc/self/mountinfo", e))?;
        if mounted.is_some_and(|entry| entry.fs_type == FS_TYPE) {
            return Err(shared_already(&target));
        }
        let identify = |e| Cause::io("identify the image", e);
        let mut key = Key::new().map_err(identify)?;
        image.add_to(&mut key).map_err(identify)?;
        key.add(b"shared");
        key.add_path(Some(&target));
        let key = key.name();
        let directory = Directory::open()?;
        let lock = directory
            .lock(&key)
            .map_err(|e| Cause::io("lock the directory of sessions", e))?;
        let files = SessionFiles {
            directory,
            key,
            lock,
        };
        let pending = PendingMount {
            image,
            target: target.clone(),
            allow_other: self.allow_other,
            flags: mount_flags(self.suid, self.dev),
            until,
            // No launch follows.
            fill: None,
        };
        let guardian = files.begin(|files| pending.start(files))?;
        Ok((target, guardian))
    }
}

/// A mount of brisk is there.
pub(super) fn shared_already(place: &Path) -> Cause {
    let text = format!("an image is mounted on {} already", Shown(place));
    Cause::busy(text).advise(Advice::Unmount)
}

/// Whether `fusermount3` could not mount, and a namespace may do. Everything else fails in namespaces, too.
pub(crate) fn is_of_way(cause: &Cause) -> bool {
    [NO_FUSERMOUNT, FUSERMOUNT_REFUSES, NO_ROOM]
        .iter()
        .any(|name| cause.is(*name))
}

/// Makes or joins a mount by `fusermount3` that runs of the same image share, in the user's own world.
pub(super) fn enter(session: &Session) -> Result<EnteredSession, Cause> {
    let image = OpenImage::open(&session.image, false)?;
    if let (Some(_), Some(at)) = (&image.missing, &session.image.at) {
        return Err(no_target(at));
    }
    let identify = |e| Cause::io("identify the image", e);
    let mut key = Key::new().map_err(identify)?;
    image.add_to(&mut key).map_err(identify)?;
    key.add(b"instead");
    key.add_path(image.at.as_deref());
    let directory = Directory::open()?;
    let failed = without_room("look for a session");
    let (key, lock) = 'free: {
        for number in 0..TRIES {
            let mut key = key.clone();
            // Only where programs still use the place of a guardian that is dead.
            if number > 0 {
                key.add_number(number.into());
            }
            let key = key.name();
            let lock = match join_or_lock(&directory, &key, session.linger)? {
                Ok(entered) => return Ok(entered),
                Err(lock) => lock,
            };
            let place = match &image.at {
                Some(at) => at.clone(),
                None => directory.place(&key)?,
            };
            if is_mounted(&place)? {
                // If nobody serves it any more, looking for sessions unmounts it. What else is wrong there does not matter here.
                sessions().ok();
            }
            match (is_mounted(&place)?, &image.at) {
                (false, _) => break 'free (key, lock),
                (true, None) => lock.release().map_err(failed)?,
                (true, Some(_)) => {
                    directory.abandon(&key, lock).map_err(failed)?;
                    return Err(shared_already(&place));
                }
            }
        }
        return Err(session_lost(TRIES));
    };
    let fills = ImageFill::of_session(session, std::slice::from_ref(&image))?;
    let fill = fills.into_iter().next().flatten();
    let target = match &image.at {
        Some(at) => at.clone(),
        None => directory.make_place(&key)?,
    };
    let pending = PendingMount {
        image,
        target: target.clone(),
        allow_other: false,
        flags: mount_flags(false, false),
        until: MountEnd::Idle(session.linger),
        fill,
    };
    let files = SessionFiles {
        directory,
        key,
        lock,
    };
    let guardian = files.begin(|files| pending.start(files))?;
    Ok(EnteredSession {
        tree: target.clone(),
        joined: false,
        covered: vec![target],
        made: Vec::new(),
        guardian,
    })
}

/// Joins the mount of this key, or locks the key to make it.
fn join_or_lock(
    directory: &Directory,
    key: &str,
    linger: Duration,
) -> Result<Result<EnteredSession, Lock>, Cause> {
    let failed = without_room("look for a session");
    for _ in 0..TRIES {
        // A run that holds the lock is about to mount or to unmount.
        let lock = directory.lock(key).map_err(failed)?;
        let Some(socket) = directory.connect(key).map_err(failed)? else {
            return Ok(Err(lock));
        };
        // The guardian may need the lock before it can answer.
        lock.release().map_err(failed)?;
        if let Some(entered) = join::join(socket, linger)? {
            return Ok(Ok(entered));
        }
    }
    Err(session_lost(TRIES))
}

/// Whether an image is mounted there.
pub(super) fn is_mounted(place: &Path) -> Result<bool, Cause> {
    let mounted = mounted_on(place).map_err(|e| Cause::io("read /proc/self/mountinfo", e))?;
    Ok(mounted.is_some_and(|entry| entry.fs_type == FS_TYPE))
}

/// Mounts `image` on `target` in the user's own world, and returns the channel. Nobody answers requests yet, so nothing in the
/// mount may be touched.
pub(super) fn mount(
    image: &Path,
    target: &Path,
    allow_other: bool,
    flags: MountFlags,
) -> Result<OwnedFd, Cause> {
    if !is_privileged() {
        if flags != mount_flags(false, false) {
            return Err(Cause::not_permitted());
        }
        return fusermount::mount(target, &fusermount::options(image, allow_other));
    }
    mount_channel_with(image, target, flags).map_err(|cause| match cause {
        cause if cause.is(MOUNT_REFUSED) => Cause::not_permitted(),
        cause => cause,
    })
}

/// When a shared mount ends, if nobody unmounts it before.
#[derive(Debug, Clone, Copy)]
enum MountEnd {
    Unmounted,
    /// The process that made it is gone.
    FirstPeerGone,
    /// Some time after the last run from it, when nothing in it is open.
    Idle(Duration),
}

/// The files of a session that is being made.
struct SessionFiles {
    directory: Directory,
    key: String,
    lock: Lock,
}

impl SessionFiles {
    /// Runs `make`, and removes the files if that fails.
    fn begin<T>(self, make: impl FnOnce(&Self) -> Result<T, Cause>) -> Result<T, Cause> {
        match make(&self) {
            Ok(made) => {
                let released = self.lock.release();
                released.map_err(|e| Cause::io("let others find the mount", e))?;
                Ok(made)
            }
            Err(cause) => {
                if let Err(e) = self.directory.clear(&self.key, self.lock) {
                    say(&format!("what is left of the mount cannot be removed: {e}"));
                }
                Err(cause)
            }
        }
    }
}

/// An image to mount for all programs.
struct PendingMount {
    image: OpenImage,
    /// A canonical path of a directory.
    target: PathBuf,
    allow_other: bool,
    /// Besides that it is read-only.
    flags: MountFlags,
    until: MountEnd,
    /// None if nothing is filled.
    fill: Option<ImageFill>,
}

impl PendingMount {
    /// Mounts the image, and starts the guardian. Returns the connection to the guardian.
    fn start(self, files: &SessionFiles) -> Result<OwnedFd, Cause> {
        let failed = |step: &'static str| move |e: io::Error| Cause::io(step, e);
        let making = without_room;
        let directory = files
            .directory
            .try_clone()
            .map_err(failed("hold the directory of sessions"))?;
        let key = files.key.clone();
        let log = directory
            .log(&key)
            .map_err(making("make the mount's log"))?;
        let listener = directory
            .listen(&key, &files.lock)
            .map_err(making("make the mount's socket"))?;
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|e| Cause::io("make sockets", e))?;
        let starting = failed("start what starts the fetcher");
        self.image.start_starter(log.as_fd()).map_err(starting)?;
        let channel = mount(&self.image.path, &self.target, self.allow_other, self.flags)?;
        let place = SharedMountPoint::of(self.target.clone(), self.is_named());
        let mut kept = vec![
            theirs.as_raw_fd(),
            directory.fd().as_raw_fd(),
            channel.as_raw_fd(),
        ];
        kept.extend(self.image.descriptors());
        kept.extend(listener.iter().map(AsRawFd::as_raw_fd));
        kept.extend(self.fill.iter().flat_map(ImageFill::descriptors));
        let guard = {
            let place = place.clone();
            move || self.guard(place, channel, directory, key, listener, theirs)
        };
        // This process's copies of the channel are dropped with `guard`.
        if let Err(e) = start_detached(&kept, log.as_fd(), guard) {
            place.detach();
            return Err(Cause::io("start the mount's guardian", e));
        }
        // The image counts as mounted when it is served.
        let said = receive(&ours).map_err(|e| Cause::io("hear from the mount's guardian", e))?;
        match said {
            Some(message) if message.verb() == b"serving" => Ok(ours),
            said => {
                if said.is_none() {
                    place.detach();
                }
                let said = said.and_then(|said| said.failure());
                let said = said.unwrap_or_else(|| "it ended".into());
                Err(guardian_failed(&said))
            }
        }
    }

    /// Whether somebody has named the directory.
    fn is_named(&self) -> bool {
        self.image.at.is_some() || !matches!(self.until, MountEnd::Idle(_))
    }

    /// The work of the guardian's process.
    fn guard(
        self,
        place: SharedMountPoint,
        channel: OwnedFd,
        directory: Directory,
        key: String,
        listener: Option<OwnedFd>,
        first: OwnedFd,
    ) -> i32 {
        take_guardian_name();
        // Before the limits, which do not allow it.
        show_images(std::iter::once(self.image.path.as_os_str()));
        take_own_limits();
        let root = FillRoot::At(self.target.clone());
        let mut options = ServeOptions {
            owners: Owners::of_mount(place.privileged),
            arriving: self.image.arriving(),
            ..ServeOptions::default()
        };
        let apply = |fill: ImageFill| fill.apply(&mut options, root, &self.target);
        let launch = self.fill.and_then(apply);
        let path = self.image.path.clone();
        let (linger, bound) = match self.until {
            MountEnd::Unmounted => (None, false),
            MountEnd::FirstPeerGone => (None, true),
            MountEnd::Idle(linger) => (Some(linger), false),
        };
        let begin = || -> Result<_, String> {
            let ends_by_runs = linger.map(|_| self.target.as_path());
            let members = Members::of_runs(ends_by_runs).map_err(|e| e.to_string())?;
            let connection = FuseConnection::establish(channel, &options);
            Ok((members, connection.map_err(|e| e.to_string())?))
        };
        let (members, connection) = match begin() {
            Ok(begun) => begun,
            Err(e) => {
                say(&format!("the guardian could not start: {e}"));
                place.detach();
                // Closed before the first run hears of the failure, so that the run can remove the files.
                drop(listener);
                send_now(&first, &[FAILED, e.as_bytes()], &[]).ok();
                return 1;
            }
        };
        let guardian = Guardian {
            directory,
            key,
            listener,
            images: vec![GuardedImage {
                path,
                place: self.target.clone(),
                source: ImageSource {
                    image: self.image,
                    block_cache: options.block_cache,
                },
                connection,
                options,
                launch,
                handle: MountHandle::Shared(place.clone()),
                servers: Servers::default(),
            }],
            place: self.target,
            linger,
            members,
            surroundings: None,
            layer_lock: None,
            shared: Some(place),
        };
        guardian.run(first, bound)
    }
}
