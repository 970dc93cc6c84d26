//! Makes a session.
//!
//! The order matters. `/dev/fuse` must be opened in the new user namespace: if it is opened before, the
//! kernel refuses the mount. Descriptors of places are opened before anything is mounted, so that finding a
//! place never asks a server that does not exist yet. Only the guardian holds the channel to the kernel when
//! something in the mount is touched: a process that does both could not end while a request is unanswered.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use brisk_launch::error::{Cause, Error};
use brisk_launch::open::open_directory;
use brisk_launch::sys::process::start_detached;
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{getegid, geteuid};

use super::dev_fuse::mount_channel;
use super::directory::{Directory, Lock, without_room};
use super::entered::EnteredSession;
use super::guardian::{GuardedImage, Guardian, Servers};
use super::image_source::ImageSource;
use super::lasting_layer::{LastingLayer, LayerLock};
use super::layout::Layout;
use super::log::say;
use super::members::{Members, take_guardian_name};
use super::message::{FAILED, failure, guardian_failed, send, send_now};
use super::missing_place::make as make_places;
use super::mount_handle::MountHandle;
use super::open_image::{OpenImage, no_place};
use super::own_limits::take_own_limits;
use super::process_title::show_images;
use super::program::Session;
use super::session_fill::ImageFill;
use super::surroundings::Surroundings;
use crate::hot_pack::fill::FillRoot;
use crate::launch::default_place;
use crate::namespace::{NamespaceKind, enter_session};
use crate::{FuseConnection, Owners, ServeOptions};

/// An image that is mounted, and waits for its server.
struct MountedImage {
    image: OpenImage,
    place: PathBuf,
    channel: OwnedFd,
    root: OwnedFd,
    /// In the form of `/proc/PID/mountinfo`.
    device: String,
    fill: Option<ImageFill>,
}

/// Makes the session `key`, while the caller holds its `lock`, and enters it.
pub(super) fn set_up(
    session: &Session,
    images: Vec<OpenImage>,
    layer: Option<&Path>,
    directory: Directory,
    key: &str,
    lock: Lock,
) -> Result<EnteredSession, Cause> {
    let failed = |e| Cause::io("hold the directory of sessions", e);
    let files = match directory.try_clone() {
        Ok(files) => files,
        Err(e) => {
            directory.abandon(key, lock).map_err(failed)?;
            return Err(failed(e));
        }
    };
    match build(session, images, layer, directory, key, &lock) {
        Ok(entered) => {
            lock.release()
                .map_err(|e| Cause::io("let others join the session", e))?;
            Ok(entered)
        }
        Err(cause) => {
            if let Err(e) = files.clear(key, lock) {
                say(&format!(
                    "what is left of the session cannot be removed: {e}"
                ));
            }
            Err(cause)
        }
    }
}

fn build(
    session: &Session,
    images: Vec<OpenImage>,
    layer: Option<&Path>,
    directory: Directory,
    key: &str,
    lock: &Lock,
) -> Result<EnteredSession, Cause> {
    let failed = |step: &'static str| move |e: std::io::Error| Cause::io(step, e);
    let tree = match images.first().and_then(|image| image.at.clone()) {
        _ if session.root => PathBuf::from("/"),
        Some(at) => at,
        None => {
            let others = images.iter().filter_map(|image| image.at.as_deref());
            default_place(&others.collect::<Vec<_>>())?
        }
    };
    let log = directory
        .log(key)
        .map_err(without_room("make the session's log"))?;
    let listener = directory
        .listen(key, lock)
        .map_err(without_room("make the session's socket"))?;
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|e| Cause::io("make sockets", e))?;

    // Before anything changes.
    let surroundings =
        Surroundings::of_this_process().map_err(|e| Cause::io("examine the own namespaces", e))?;
    // Before anything is mounted over them.
    let fills = ImageFill::of_session(session, &images)?;

    let layer = match (layer, images.first()) {
        (Some(layer), Some(image)) => Some(LastingLayer::open(layer, &image.path)?),
        _ => None,
    };
    let (mut layer, layer_lock) = layer.unzip();

    let starting = |e| Cause::io("start what starts the fetcher", e);
    for image in &images {
        image.start_starter(log.as_fd()).map_err(starting)?;
    }

    // Only this function decides how an image becomes visible. If the system refuses user namespaces, it
    // returns `NO_NAMESPACES` before it has changed anything except the files of the session, which
    // the caller removes.
    let entry = enter_session(geteuid(), getegid())?;
    let missing = images.iter().filter_map(|image| image.missing.clone());
    let missing: Vec<_> = missing.collect();
    make_places(&missing)?;
    // Before a mount can hide it.
    layer
        .iter_mut()
        .try_for_each(LastingLayer::enter_namespace)?;
    let owners = Owners::of_mount(entry == NamespaceKind::Privileged);
    let mut places = vec![tree.clone()];
    for image in images.iter().skip(1) {
        let at = image.at.clone();
        places.push(at.ok_or_else(|| no_place(&image.path))?);
    }
    let writable = usize::from(session.writable);
    let layout = Layout::prepare(places.clone(), session.root, writable, &session.binds)?;
    let layout = layout.with_layer(layer);
    let mut mounted = Vec::new();
    for (index, (image, fill)) in images.into_iter().zip(fills).enumerate() {
        let place = places.get(index).cloned().unwrap_or_default();
        mounted.push(mount_image(image, fill, place, &layout.image_place(index))?);
    }

    let mut kept = vec![theirs.as_raw_fd(), directory.fd().as_raw_fd()];
    kept.extend(listener.iter().map(AsRawFd::as_raw_fd));
    kept.extend(layer_lock.iter().map(LayerLock::fd));
    for image in &mounted {
        kept.extend(image.image.descriptors());
        kept.push(image.channel.as_raw_fd());
        kept.push(image.root.as_raw_fd());
        kept.extend(image.fill.iter().flat_map(ImageFill::descriptors));
    }
    let guard = {
        let linger = match directory.is_there() {
            true => session.linger,
            // No run can join.
            false => Duration::ZERO,
        };
        let (key, place) = (key.to_owned(), tree.clone());
        move || {
            guard(
                directory,
                key,
                listener,
                mounted,
                owners,
                place,
                linger,
                surroundings,
                layer_lock,
                theirs,
            )
        }
    };
    // This process's copies of the channels are dropped with `guard`.
    start_detached(&kept, log.as_fd(), guard).map_err(failed("start the session's guardian"))?;

    // From here on the images have servers, and this process holds no channel.
    layout.finish(entry).map_err(|cause| match failure(&ours) {
        // Without it the program would see nothing.
        Some(said) => guardian_failed(&said),
        None => cause,
    })?;
    send(&ours, &["ready"], &[]).map_err(|e| Cause::io("reach the session's guardian", e))?;
    Ok(EnteredSession {
        tree,
        joined: false,
        covered: places,
        made: missing,
        guardian: ours,
    })
}

/// The work of the guardian's process.
#[expect(clippy::too_many_arguments, reason = "all that a process starts with")]
fn guard(
    directory: Directory,
    key: String,
    listener: Option<OwnedFd>,
    mounted: Vec<MountedImage>,
    owners: Owners,
    place: PathBuf,
    linger: Duration,
    surroundings: Surroundings,
    layer_lock: Option<LayerLock>,
    first: OwnedFd,
) -> i32 {
    take_guardian_name();
    // Before the limits, which do not allow it.
    show_images(mounted.iter().map(|image| image.image.path.as_os_str()));
    take_own_limits();
    let devices = mounted.iter().map(|image| image.device.clone()).collect();
    let begin = || -> Result<Guardian, String> {
        let members = Members::new(devices).map_err(|e| e.to_string())?;
        let images: Result<Vec<_>, String> = mounted
            .into_iter()
            .map(|image| image.serve_as(owners))
            .collect();
        Ok(Guardian {
            directory,
            key,
            listener,
            images: images?,
            place,
            linger: Some(linger),
            members,
            surroundings: Some(surroundings),
            layer_lock,
            shared: None,
        })
    };
    match begin() {
        Ok(guardian) => guardian.run(first, false),
        // The channels close with this process, and the first run gets errors.
        Err(e) => {
            say(&format!("the guardian could not start: {e}"));
            send_now(&first, &[FAILED, e.as_bytes()], &[]).ok();
            1
        }
    }
}

impl MountedImage {
    fn serve_as(self, owners: Owners) -> Result<GuardedImage, String> {
        let root = self.root.try_clone().map_err(|e| e.to_string())?;
        let root = FillRoot::Held(root);
        let mut options = ServeOptions {
            owners,
            arriving: self.image.arriving(),
            ..ServeOptions::default()
        };
        let apply = |fill: ImageFill| fill.apply(&mut options, root, &self.place);
        let launch = self.fill.and_then(apply);
        let connection =
            FuseConnection::establish(self.channel, &options).map_err(|e: Error| e.to_string())?;
        let path = self.image.path.clone();
        let source = ImageSource {
            image: self.image,
            block_cache: options.block_cache,
        };
        Ok(GuardedImage {
            path,
            place: self.place,
            source,
            connection,
            options,
            launch,
            handle: MountHandle::Root(self.root),
            servers: Servers::default(),
        })
    }
}

/// Mounts `image`, whose place is `place`, on the directory `on`.
fn mount_image(
    image: OpenImage,
    fill: Option<ImageFill>,
    place: PathBuf,
    on: &Path,
) -> Result<MountedImage, Cause> {
    let channel = mount_channel(&image.path, on)?;
    // As a path only. So neither opening nor closing it asks the server.
    let root = open_directory(on)?;
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(&root, "", how, StatxFlags::empty())
        .map_err(|e| Cause::io(format!("examine {}", on.display()), e))?;
    Ok(MountedImage {
        image,
        place,
        channel,
        root,
        device: format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor),
        fill,
    })
}
