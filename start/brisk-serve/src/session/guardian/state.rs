//! The state of a guardian.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::guarded_image::GuardedImage;
use super::learners::Learners;
use super::lifetime::Lifetime;
use super::listener::Listener;
use super::request::{Joinable, Role};
use super::shortage::Shortage;
use super::watchdog::Watchdog;
use crate::Confinement;
use crate::session::lasting_layer::LayerLock;
use crate::session::members::Members;
use crate::session::shared_mount_point::SharedMountPoint;
use crate::session::surroundings::Surroundings;

/// A session, as its guardian keeps it.
pub(super) struct State {
    pub(super) listener: Listener,
    pub(super) images: Vec<GuardedImage>,
    pub(super) place: PathBuf,
    pub(super) lifetime: Lifetime,
    pub(super) members: Members,
    /// Runs that enter its namespaces must have the same.
    pub(super) surroundings: Option<Surroundings>,
    /// The watchdog has it too, which lets programs end if the guardian is killed.
    pub(super) layer_lock: Option<LayerLock>,
    pub(super) shared: Option<SharedMountPoint>,
    pub(super) peers: Vec<Peer>,
    /// None while the first run builds what its program will see.
    pub(super) namespaces: Option<NamespaceHandles>,
    /// A program of the session. While it lives, the guardian need not look for others.
    pub(super) program: Option<OwnedFd>,
    pub(super) shortage: Shortage,
    pub(super) since: SystemTime,
    pub(super) learners: Learners,
    /// The reading ends of the lifelines. The connections of the images hold the other ends.
    pub(super) lifelines: Vec<OwnedFd>,
    pub(super) watchdog: Option<Watchdog>,
    /// A pipe whose writing end only the guardian holds. So the watchdog, which reads it, knows whether it lives.
    pub(super) own_life: Option<Pipe>,
    /// Why an image could not be served from the start.
    pub(super) unserved: Option<Vec<u8>>,
    /// Which limits the guardian has put on itself.
    pub(super) confinement: Confinement,
}

/// Both ends of a pipe.
pub(super) struct Pipe {
    pub(super) read: OwnedFd,
    pub(super) write: OwnedFd,
}

/// A process that is connected.
pub(super) struct Peer {
    pub(super) socket: OwnedFd,
    pub(super) role: Role,
}

/// Descriptors that later runs need to enter the session.
pub(super) struct NamespaceHandles {
    pub(super) user: OwnedFd,
    pub(super) mounts: OwnedFd,
    pub(super) root: OwnedFd,
}

impl NamespaceHandles {
    pub(super) fn of_this_process() -> rustix::io::Result<Self> {
        let open = |path: &str, flags| openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty());
        Ok(Self {
            user: open("/proc/self/ns/user", OFlags::RDONLY)?,
            mounts: open("/proc/self/ns/mnt", OFlags::RDONLY)?,
            root: open("/", OFlags::PATH | OFlags::DIRECTORY)?,
        })
    }
}

impl State {
    /// What runs join, as far as the guardian knows without looking at the mounts.
    pub(super) fn joinable(&self) -> Joinable {
        match self.shared {
            Some(_) => Joinable::Mount { gone: false },
            None => Joinable::Namespaces {
                built: self.namespaces.is_some(),
            },
        }
    }

    /// Whether the images are mounted for all programs, and found by their names.
    pub(super) fn is_by_name(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether this process and the watchdog unmount with `fusermount3`.
    pub(super) fn needs_fusermount(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|place| !place.privileged)
    }

    /// Whether a peer is about to start a program.
    pub(super) fn is_starting(&self) -> bool {
        self.peers.iter().any(|peer| peer.role == Role::Starts)
    }
}
