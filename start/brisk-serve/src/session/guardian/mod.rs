//! The guardian: the process that keeps a session.
//!
//! It holds the connections to the kernel, so that another server can go on when one dies. It lets later runs
//! join, and it ends the session.
//!
//! It has one thread, opens nothing in the images, and waits only in the `poll` of its [`event_loop`]. So it
//! goes on whatever happens to a server or a program.
//!
//! Three files decide, by plain values: [`supervisor`] when a server is restarted or its connection aborted,
//! [`lifetime`] when the session ends, and [`request`] what peers are answered. The others act, on the
//! guardian's [`state`]: [`processes`] starts and buries servers, learners and the watchdog, [`answers`]
//! talks with peers, and [`ending`] ends the session.
//!
//! It reads no image and no pack. It starts other processes for that, which may do less than it does
//! ([`confinement`](crate::confinement)).

mod answers;
mod ending;
mod event_loop;
mod guarded_image;
#[cfg(test)]
mod hostile;
mod learners;
mod lifetime;
mod listener;
mod processes;
#[cfg(any(test, feature = "fuzzing"))]
pub mod rehearsal;
mod request;
mod shortage;
mod state;
mod supervisor;
pub(super) mod watchdog;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use brisk_launch::sys::signal::keep_children;
use rustix::net::sockopt::socket_peercred;

pub(super) use self::guarded_image::{GuardedImage, Servers};
use self::learners::Learners;
use self::lifetime::Lifetime;
use self::listener::Listener;
use self::request::Role;
use self::shortage::Shortage;
use self::state::{Peer, State};
use super::directory::Directory;
use super::lasting_layer::LayerLock;
use super::log::say;
use super::members::Members;
use super::shared_mount_point::SharedMountPoint;
use super::surroundings::Surroundings;
use crate::Confinement;

/// What a guardian starts with.
pub(super) struct Guardian {
    pub(super) directory: Directory,
    pub(super) key: String,
    /// None if no run can join.
    pub(super) listener: Option<OwnedFd>,
    pub(super) images: Vec<GuardedImage>,
    /// The place of the first image, which is `BRISK_TREE` for programs.
    pub(super) place: PathBuf,
    /// None to stay until the images are unmounted.
    pub(super) linger: Option<Duration>,
    pub(super) members: Members,
    /// Those of the process that made the session. None if the image is mounted for all programs.
    pub(super) surroundings: Option<Surroundings>,
    /// The lock of the directory that keeps what programs write.
    pub(super) layer_lock: Option<LayerLock>,
    /// The place of the image, if it is mounted for all programs.
    pub(super) shared: Option<SharedMountPoint>,
}

impl Guardian {
    /// Keeps the session until it ends, and returns the exit status. `first` is the connection of the process
    /// that made the session. With `owns`, the mount ends when that connection closes.
    pub(super) fn run(mut self, first: OwnedFd, owns: bool) -> i32 {
        // The process that started the first run may have chosen that children leave no status.
        keep_children();
        if let (Some(_), Ok(credentials)) = (self.linger, socket_peercred(&first)) {
            self.members.add(credentials.pid);
        }
        let mut state = State {
            listener: Listener::new(self.directory, self.key, self.listener),
            images: self.images,
            place: self.place,
            lifetime: Lifetime::new(self.linger),
            members: self.members,
            surroundings: self.surroundings,
            layer_lock: self.layer_lock,
            shared: self.shared,
            peers: vec![Peer {
                socket: first,
                role: if owns { Role::Owns } else { Role::Starts },
            }],
            namespaces: None,
            program: None,
            shortage: Shortage::default(),
            since: SystemTime::now(),
            learners: Learners::default(),
            lifelines: Vec::new(),
            watchdog: None,
            own_life: None,
            unserved: None,
            confinement: Confinement::default(),
        };
        state.hold_lifelines();
        let started = (0..state.images.len()).try_for_each(|index| state.start_server(index));
        if let (Ok(()), Some(shared)) = (&started, &state.shared) {
            // The maker waits until the image is served, and removes the session's files if it is not.
            let shared = shared.clone();
            state.hear_first_of_servers();
            if let Some(why) = state.unserved.take() {
                shared.detach();
                state.listener.leave();
                state.tell_first(&why);
                return 1;
            }
        }
        state.tell_maker(started.as_ref().err());
        let result = started.and_then(|()| {
            // After the servers, because the launch waits for them.
            state.start_watchdog();
            // Nothing that others have written was read before.
            state.confine();
            state.keep()
        });
        state.end();
        match result {
            Ok(()) => 0,
            Err(e) => {
                say(&format!("the guardian failed: {e}"));
                1
            }
        }
    }
}
