//! A mount in the user's own world that one process serves, for as long as it lives.
//!
//! A trace needs no guardian, because the process that records also serves. Only a watchdog, which is older than the mount,
//! unmounts it when that process has ended, in whatever way.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Read;
use std::iter;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use brisk_launch::error::Cause;
use brisk_launch::sys::process::start_detached;
use rustix::pipe::{PipeFlags, pipe_with};

use super::directory::{Directory, without_room};
use super::guardian::watchdog;
use super::log::say;
use super::open_image::OpenImage;
use super::process_title::show_images;
use super::shared::{is_mounted, mount, shared_already};
use super::shared_mount_point::SharedMountPoint;
use crate::kernel_mount::{mount_flags, no_target};

/// A mount that waits for its server. When anything in the mount is touched, no other process may have this.
pub(crate) struct BriefMount {
    /// Where all programs of the user see the image.
    pub(crate) place: PathBuf,
    /// The connection to the kernel.
    pub(crate) channel: OwnedFd,
    /// The mount ends when no process has this any more.
    pub(crate) lifeline: OwnedFd,
}

/// Tells when a [`BriefMount`] is unmounted, and nothing of it is left.
pub(crate) struct BriefMountEnd(OwnedFd);

impl BriefMount {
    /// Mounts `image` at its place, or else on a directory of its own.
    pub(crate) fn make(image: &OpenImage) -> Result<(Self, BriefMountEnd), Cause> {
        match (&image.at, &image.missing) {
            (Some(at), Some(_)) => return Err(no_target(at)),
            (Some(at), None) if is_mounted(at)? => return Err(shared_already(at)),
            _ => {}
        }
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|e| Cause::io("make a pipe", e));
        let making = without_room("make the files of a mount");
        let directory = Directory::open()?;
        // No other mount ever has this key, so what is left of a dead one is in nobody's way.
        let key = format!("{:016x}", RandomState::new().build_hasher().finish());
        let place = match &image.at {
            Some(at) => at.clone(),
            None => directory.place(&key)?,
        };
        let (watched, lifeline) = pipe()?;
        let (end, ends) = pipe()?;
        let lock = directory.lock(&key).map_err(making)?;
        let log = directory.log(&key).map_err(making)?;
        let held = directory.try_clone().map_err(making)?;
        let kept = [
            watched.as_raw_fd(),
            ends.as_raw_fd(),
            lock.fd(),
            held.fd().as_raw_fd(),
        ];
        let watch = {
            let point = SharedMountPoint::to_come(place.clone(), image.at.is_some());
            let (image, key) = (image.path.clone(), key.clone());
            move || {
                watchdog::begin();
                show_images(iter::once(image.as_os_str()));
                let mut said = Vec::new();
                // The server says only that somebody has unmounted it, and something else may be mounted there now.
                File::from(watched).read_to_end(&mut said).ok();
                if said.is_empty() {
                    point.detach();
                }
                if let Err(e) = held.clear(&key, lock) {
                    say(&format!("what is left of the mount cannot be removed: {e}"));
                }
                drop(ends);
                0
            }
        };
        start_detached(&kept, log.as_fd(), watch)
            .map_err(|e| Cause::io("start what unmounts the image", e))?;
        drop(log);
        let end = BriefMountEnd(end);
        let make = || {
            if image.at.is_none() {
                directory.make_place(&key)?;
            }
            mount(&image.path, &place, false, mount_flags(false, false))
        };
        match make() {
            Ok(channel) => Ok((
                Self {
                    place,
                    channel,
                    lifeline,
                },
                end,
            )),
            Err(cause) => {
                drop(lifeline);
                end.wait();
                Err(cause)
            }
        }
    }
}

impl BriefMountEnd {
    /// Waits for it. No process may have the [`BriefMount`] for long.
    pub(crate) fn wait(self) {
        // The watchdog writes nothing, so this is its end, or that somebody has killed it.
        File::from(self.0).read_to_end(&mut Vec::new()).ok();
    }
}
