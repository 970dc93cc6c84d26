//! An image of a session, and the server that answers for it.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::supervisor::{Reason, Remedy, Supervisor};
use crate::session::image_source::ImageSource;
use crate::session::log::say;
use crate::session::message::{FETCHER, JOINED, Message, receive, send_now};
use crate::session::mount_handle::MountHandle;
use crate::session::recorded_launch::RecordedLaunch;
use crate::session::server::Server;
use crate::{FuseConnection, ServeOptions};

/// How long a server may take to send its counters.
const COUNTS_WITHIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// An image that a guardian keeps mounted.
pub(in crate::session) struct GuardedImage {
    pub(in crate::session) path: PathBuf,
    pub(in crate::session) place: PathBuf,
    pub(in crate::session) source: ImageSource,
    pub(in crate::session) connection: FuseConnection,
    pub(in crate::session) options: ServeOptions,
    /// The recording of the launch, if a pack is learned from it.
    pub(in crate::session) launch: Option<RecordedLaunch>,
    pub(in crate::session) handle: MountHandle,
    pub(in crate::session) servers: Servers,
}

/// The servers of an image, one after the other.
#[derive(Default)]
pub(in crate::session) struct Servers {
    /// The server that answers now.
    pub(super) current: Option<Server>,
    pub(super) supervisor: Supervisor,
    /// Servers that are dead, but whose threads may still hang.
    dying: Vec<Pid>,
}

/// The answer of a server that is asked for its counters.
pub(super) enum Counted {
    /// `confined=limits`, `count.name=number` and `operation=name number times`.
    Counts(Vec<Vec<u8>>),
    /// Another message, which the server sent at the same time.
    Other(Message),
    /// No answer in time.
    Nothing,
}

impl Servers {
    pub(super) fn pid(&self) -> Option<Pid> {
        Some(self.current.as_ref()?.pid)
    }

    /// The current server, if it is this process.
    pub(super) fn current_if(&self, pid: Pid) -> Option<&Server> {
        self.current.as_ref().filter(|server| server.pid == pid)
    }

    /// Records that the server with this process is dead. None if another server has replaced it already.
    pub(super) fn died(&mut self, pid: Pid, can_resend: bool, now: Instant) -> Option<Remedy> {
        self.current.take_if(|server| server.pid == pid)?;
        self.dying.push(pid);
        Some(self.supervisor.died(pid, can_resend, now))
    }

    pub(super) fn are_dying(&self) -> bool {
        !self.dying.is_empty()
    }

    /// Whether nothing is left of the mount: its connection and its server have ended.
    pub(super) fn is_unmounted(&self) -> bool {
        self.supervisor.has_ended() && self.current.is_none()
    }

    /// Collects the status of dead servers whose threads are gone.
    pub(super) fn reap(&mut self, now: Instant) -> Remedy {
        let mut remedy = Remedy::Nothing;
        let supervisor = &mut self.supervisor;
        self.dying
            .retain(|pid| match waitpid(Some(*pid), WaitOptions::NOHANG) {
                Ok(None) => true,
                Err(e) => e == rustix::io::Errno::INTR,
                Ok(Some((_, status))) => {
                    let killed = status.terminating_signal() == Some(Signal::KILL.as_raw());
                    let found = supervisor.told_status(*pid, !killed, now);
                    if found != Remedy::Nothing {
                        remedy = found;
                    }
                    false
                }
            });
        remedy
    }
}

impl GuardedImage {
    /// Aborts the connection, so that programs get errors and none waits forever.
    pub(super) fn give_up(&self, why: Reason, error: Option<&io::Error>) {
        let error = error.map_or_else(String::new, |e| format!(": {e}"));
        say(&format!(
            "{}: {}{error}; its programs get errors",
            self.path.display(),
            why.text()
        ));
        self.abort();
    }

    /// Aborts the connection, unless it has ended. Then another mount may have its place by now, and the number of its device.
    pub(super) fn abort(&self) {
        if !self.connection.has_ended() {
            self.handle.abort();
        }
    }

    /// Asks the kernel to send unanswered requests again, if it is time.
    pub(super) fn resend(&mut self, now: Instant) {
        if self.servers.supervisor.resends(now)
            && let Err(e) = self.connection.resend()
        {
            say(&e.to_string());
        }
    }

    /// Tells the server that a run has joined, if it fills.
    pub(super) fn tell_of_a_join(&self) {
        // A server that is stopped reads nothing, and one that is dead will be replaced by one that does not fill.
        if let (Some(_), Some(server)) = (&self.options.fill, &self.servers.current) {
            send_now(&server.socket, &[JOINED], &[]).ok();
        }
    }

    /// Gives the server another connection to the fetcher, about the file with this number, because it may make none itself. If there
    /// is none, one is started, and the server asks again.
    pub(super) fn connect_fetcher(&self, number: usize) {
        let stream = self.source.attach(number);
        if stream.is_none() {
            self.source.start_fetcher();
        }
        let stream: Vec<_> = stream.iter().map(AsFd::as_fd).collect();
        if let Some(server) = &self.servers.current {
            let number = number.to_string();
            send_now(&server.socket, &[FETCHER, number.as_bytes()], &stream).ok();
        }
    }

    pub(super) fn count(&self) -> Counted {
        let Some(server) = &self.servers.current else {
            return Counted::Nothing;
        };
        // A server that is stopped reads nothing.
        if send_now(&server.socket, &["counts"], &[]).is_err() {
            return Counted::Nothing;
        }
        match hear(server, &COUNTS_WITHIN) {
            Some(message) if message.verb() == b"counts" => {
                Counted::Counts(message.fields.into_iter().skip(1).collect())
            }
            Some(message) => Counted::Other(message),
            // The next poll finds out what happened to the server.
            None => Counted::Nothing,
        }
    }

    /// The next message of the server, if there is one.
    pub(super) fn heard(&self) -> Option<Message> {
        hear(self.servers.current.as_ref()?, &Timespec::default())
    }

    /// Kills the server.
    pub(super) fn kill(&self) {
        if let Some(pid) = self.servers.pid()
            && let Err(e) = kill_process(pid, Signal::KILL)
        {
            let pid = pid.as_raw_nonzero();
            say(&format!("server {pid} cannot be ended: {e}"));
        }
    }

    /// Whether the current server has ended. This collects its status.
    pub(super) fn has_gone(&self) -> bool {
        self.servers.pid().is_some_and(has_ended)
    }

    /// Forgets servers that are gone. False if none is left.
    pub(super) fn await_servers(&mut self, current_gone: bool) -> bool {
        if current_gone {
            self.servers.current = None;
        }
        self.servers.dying.retain(|pid| !has_ended(*pid));
        self.servers.are_dying() || self.servers.current.is_some()
    }
}

fn has_ended(pid: Pid) -> bool {
    match waitpid(Some(pid), WaitOptions::NOHANG) {
        Ok(None) | Err(rustix::io::Errno::INTR) => false,
        Ok(Some(_)) | Err(_) => true,
    }
}

fn hear(server: &Server, within: &Timespec) -> Option<Message> {
    let mut fds = [PollFd::new(&server.socket, PollFlags::IN)];
    match poll(&mut fds, Some(within)) {
        Ok(1) => receive(&server.socket).ok().flatten(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use brisk_image::{ImageWriter, Tree, TreeRules};
    use brisk_launch::mount_table::mounted_on;
    use rustix::mount::{UnmountFlags, unmount};

    use super::*;
    use crate::session::dev_fuse::mount_channel;
    use crate::session::open_image::{OpenImage, SessionImage};
    use crate::session::shared_mount_point::SharedMountPoint;

    /// An image that is mounted on `on` for all programs. Nobody serves it.
    fn mounted(path: &Path, on: &Path) -> GuardedImage {
        let channel = mount_channel(path, on).expect("tests run as root");
        let options = ServeOptions::default();
        GuardedImage {
            path: path.to_owned(),
            place: on.to_owned(),
            source: ImageSource {
                image: OpenImage::open(&SessionImage::new(path), false).expect("an image"),
                block_cache: 0,
            },
            connection: FuseConnection::establish(channel, &options).expect("INIT is there"),
            options,
            launch: None,
            handle: MountHandle::Shared(SharedMountPoint::of(on.to_owned(), true)),
            servers: Servers::default(),
        }
    }

    #[test]
    fn the_end_of_an_unmounted_image_spares_the_next_mount_at_its_place() {
        let dir = tempfile::tempdir().expect("a directory");
        let [tree, path, on] = ["tree", "image", "on"].map(|name| dir.path().join(name));
        fs::create_dir(&tree).expect("room");
        fs::create_dir(&on).expect("room");
        let tree = Tree::from_directory(&tree, &TreeRules::default()).expect("a tree");
        ImageWriter::new().write(&tree, &path).expect("room");
        let device = || mounted_on(&on).expect("a table").map(|entry| entry.device);
        let unmounted = || unmount(&on, UnmountFlags::empty()).expect("nothing is open");
        // The kernel gives the smallest free number, so it is the same unless another process mounts something meanwhile.
        let (first, second) = loop {
            let first = mounted(&path, &on);
            let before = device();
            unmounted();
            let second = mounted(&path, &on);
            if device() == before {
                break (first, second);
            }
            unmounted();
        };
        assert!(first.connection.has_ended());
        first.abort();
        assert!(!second.connection.has_ended());
        assert!(device().is_some());
        second.abort();
        assert!(second.connection.has_ended());
        assert_eq!(device(), None);
    }
}
