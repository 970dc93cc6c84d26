//! The process that keeps a session: it holds the connections to the kernel, so that a server can
//! die and another go on, lets later runs in, and ends the session.
//!
//! It has one thread, opens nothing in the images, and waits for nothing but its `poll`, so that
//! nothing which happens to a server or a program holds it up.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{io, mem, thread};

use brisk_image::Image;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, Timespec, openat};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal,
    waitpid,
};

use super::directory::Directory;
use super::learn::Lesson;
use super::members::{Members, name_of};
use super::say;
use super::server::{Server, Task};
use super::shared_place::{Handle, SharedPlace};
use super::warden;
use super::wire::{FAILED, Message, receive, send_now};
use crate::syscalls::{keep_children, start_child};
use crate::{FuseConnection, ServeOptions};

/// When the kernel is asked to send unanswered requests again, after a server was restarted: what
/// the dying one read at the moment of the first time is missed by it.
const RESEND_AFTER: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
];

/// Servers that may fail by themselves, and be ended from outside, within [`DEATHS_WITHIN`]. Beyond
/// that the connection is given up, so that programs get errors and do not wait for ever.
const FAILURES: usize = 5;
const DEATHS: usize = 1000;
const DEATHS_WITHIN: Duration = Duration::from_secs(10);

/// How often it is tried to start a server where processes or memory are short: for 20 s.
const MOST_TRIES: u32 = 1000;

/// How long servers may take to notice that their connection has ended, before they are killed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long a server may take to say what it has counted.
const COUNTS_WITHIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// How long after it could not be unmounted a mount is tried again, at the earliest.
const STILL_OPEN: Duration = Duration::from_secs(1);

/// How long a warden lives at least that does not fail by itself.
const WARDEN_LIVES: Duration = Duration::from_millis(100);

/// Programs that are named, at most: an answer is one packet.
const MOST_LISTED: usize = 256;

/// How soon something that could not be done now is tried again.
const SOON: Duration = Duration::from_millis(20);

/// An image of the session.
pub(super) struct Served {
    pub(super) path: PathBuf,
    pub(super) place: PathBuf,
    pub(super) image: Image,
    pub(super) connection: FuseConnection,
    pub(super) options: ServeOptions,
    /// What is learned from the launch.
    pub(super) lesson: Option<Lesson>,
    pub(super) handle: Handle,
    pub(super) watch: Watch,
}

/// What becomes of an image's servers.
#[derive(Default)]
pub(super) struct Watch {
    server: Option<Server>,
    restarts: u32,
    deaths: Vec<Death>,
    resend_at: Vec<Instant>,
    /// How often a server could not be started for want of something.
    tries: u32,
    /// The kernel has ended the connection, or it was given up: there is nothing to serve.
    ended: bool,
}

struct Death {
    at: Instant,
    pid: Pid,
    /// It was not ended from outside.
    failed: bool,
}

/// Somebody who is connected.
struct Peer {
    socket: OwnedFd,
    role: Role,
}

/// What a peer is connected for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Asks,
    /// It is about to start a program in the session, and closes the connection by doing so.
    Starts,
    /// The mount is its own: it ends with the connection.
    Owns,
}

/// What later runs get: namespaces and the root directory, as descriptors.
struct Entrance {
    user: OwnedFd,
    mounts: OwnedFd,
    root: OwnedFd,
}

impl Warden {
    /// Collects its status, when it has ended or is about to. True if it had nothing left to do.
    fn bury(&self) -> bool {
        loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some((_, status))) => return status.exit_status() == Some(0),
                // Whoever started this process may have chosen that children leave no status.
                Ok(None) | Err(_) => return false,
            }
        }
    }
}

impl Entrance {
    fn of_this_process() -> rustix::io::Result<Self> {
        let open = |path: &str, flags| openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty());
        Ok(Self {
            user: open("/proc/self/ns/user", OFlags::RDONLY)?,
            mounts: open("/proc/self/ns/mnt", OFlags::RDONLY)?,
            root: open("/", OFlags::PATH | OFlags::DIRECTORY)?,
        })
    }
}

/// Whether there may be enough later.
fn is_shortage(e: Errno) -> bool {
    matches!(
        e,
        Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM
    )
}

fn of_shortage(e: &io::Error) -> bool {
    Errno::from_io_error(e).is_some_and(is_shortage)
}

/// What a guardian begins with.
pub(super) struct Guardian {
    pub(super) directory: Directory,
    pub(super) key: String,
    pub(super) listener: OwnedFd,
    pub(super) images: Vec<Served>,
    /// The tree that programs are told of.
    pub(super) place: PathBuf,
    /// None to stay until the images are unmounted.
    pub(super) linger: Option<Duration>,
    pub(super) members: Members,
    /// Where the image is mounted for all programs, if it is.
    pub(super) shared: Option<SharedPlace>,
}

impl Guardian {
    /// Keeps the session until it ends. `first` is the connection of the process that made it;
    /// `owns` if the mount is to end with that. Returns the exit status.
    pub(super) fn run(mut self, first: OwnedFd, owns: bool) -> i32 {
        // Whoever started the first run may have chosen that children leave no status.
        keep_children();
        if let (Some(_), Ok(credentials)) = (self.linger, socket_peercred(&first)) {
            self.members.add(credentials.pid);
        }
        let mut state = State {
            socket: self.directory.socket_id(&self.key),
            directory: self.directory,
            key: self.key,
            listener: Some(self.listener),
            images: self.images,
            place: self.place,
            linger: self.linger,
            members: self.members,
            shared: self.shared,
            peers: vec![Peer {
                socket: first,
                role: if owns { Role::Owns } else { Role::Starts },
            }],
            entrance: None,
            program: None,
            look: false,
            idle_since: None,
            short_until: None,
            since: SystemTime::now(),
            dying: Vec::new(),
            learners: Vec::new(),
            lifelines: Vec::new(),
            warden: None,
        };
        state.hold_lifelines();
        let started = (0..state.images.len()).try_for_each(|index| state.start_server(index));
        state.tell_maker(started.as_ref().err());
        let result = started.and_then(|()| {
            // After the servers, for which the launch waits.
            state.start_warden();
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

struct State {
    directory: Directory,
    key: String,
    /// None once nobody can join any more.
    listener: Option<OwnedFd>,
    /// What tells its socket from one that is made later.
    socket: Option<(u64, u64)>,
    images: Vec<Served>,
    place: PathBuf,
    linger: Option<Duration>,
    members: Members,
    shared: Option<SharedPlace>,
    peers: Vec<Peer>,
    /// None while the first run still builds what its program shall see.
    entrance: Option<Entrance>,
    /// A program of the session: while it lives, nobody needs to look for others.
    program: Option<OwnedFd>,
    /// Whether programs may have come or gone since somebody looked.
    look: bool,
    idle_since: Option<Instant>,
    /// Descriptors, processes or memory were short: until then nothing is tried that needs them.
    short_until: Option<Instant>,
    since: SystemTime,
    /// Servers that are dead but not gone.
    dying: Vec<(usize, Pid)>,
    /// Processes that make hot packs, each with what is readable when it has ended.
    learners: Vec<(Pid, OwnedFd)>,
    /// The watched ends of what the connections of the images hold.
    lifelines: Vec<OwnedFd>,
    warden: Option<Warden>,
}

/// The process that ends the connections when guardian and servers are gone.
struct Warden {
    pid: Pid,
    /// Readable when it has ended.
    process: OwnedFd,
    since: Instant,
}

/// What became readable. The numbers are indices of peers and images. A server is named by its
/// process too: the first of several signs of its death lets another take its place.
#[derive(Clone, Copy)]
enum Source {
    Listener,
    Peer(usize),
    Program,
    ServerSocket(usize, Pid),
    ServerDeath(usize, Pid),
    LearnerDeath(Pid),
    WardenDeath,
}

impl State {
    /// Tells the process that made a mount for all programs that it is served, or any that it is not.
    fn tell_maker(&self, failed: Option<&io::Error>) {
        let Some(maker) = self.peers.first() else {
            return;
        };
        let sent = match failed {
            Some(e) => send_now(&maker.socket, &[FAILED, e.to_string().as_bytes()], &[]),
            None if self.shared.is_some() => send_now(&maker.socket, &["serving"], &[]),
            None => Ok(()),
        };
        if let Err(e) = sent {
            say(&format!("nobody is there who made the session: {e}"));
        }
    }

    fn keep(&mut self) -> io::Result<()> {
        while self.step()? {}
        Ok(())
    }

    /// Waits for the next thing that happens, and deals with it. False if the session has ended.
    fn step(&mut self) -> io::Result<bool> {
        let readable = self.wait()?;
        let now = Instant::now();
        self.short_until.take_if(|until| *until <= now);
        let mut closed = Vec::new();
        for source in readable {
            match source {
                Source::Listener => self.accept()?,
                Source::Peer(index) => {
                    if !self.hear(index) {
                        closed.push(index);
                    }
                }
                Source::Program => {
                    self.program = None;
                    self.look = true;
                }
                Source::ServerSocket(index, pid) => self.hear_server(index, pid, now),
                Source::ServerDeath(index, pid) => self.bury_server(index, pid, now),
                Source::LearnerDeath(pid) => self.bury_learner(pid),
                Source::WardenDeath => self.bury_warden(now),
            }
        }
        // From the last, so that the other numbers stay right.
        for index in closed.into_iter().rev() {
            let peer = self.peers.swap_remove(index);
            match (peer.role, &self.shared) {
                (Role::Asks, _) => {}
                (Role::Owns, Some(place)) => place.detach(),
                // The first run failed before there was anything to join.
                (_, None) if self.entrance.is_none() => return Ok(false),
                _ => self.look = true,
            }
        }
        self.reap(now);
        self.try_again();
        self.resend(now);
        self.settle(now)
    }

    /// What is readable, within the time until the next thing is due.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut watched = Vec::new();
        // Before the first run is done there is nothing to join: who comes early waits.
        if let Some(listener) = &self.listener
            && (self.entrance.is_some() || self.shared.is_some())
            && self.short_until.is_none()
        {
            watched.push((listener, Source::Listener));
        }
        for (index, peer) in self.peers.iter().enumerate() {
            watched.push((&peer.socket, Source::Peer(index)));
        }
        watched.extend(self.program.iter().map(|fd| (fd, Source::Program)));
        for (index, image) in self.images.iter().enumerate() {
            if let Some(server) = &image.watch.server {
                watched.push((&server.socket, Source::ServerSocket(index, server.pid)));
                watched.push((&server.process, Source::ServerDeath(index, server.pid)));
                watched.extend(
                    server
                        .thread
                        .iter()
                        .map(|thread| (thread, Source::ServerDeath(index, server.pid))),
                );
            }
        }
        for (pid, process) in &self.learners {
            watched.push((process, Source::LearnerDeath(*pid)));
        }
        watched.extend(
            self.warden
                .iter()
                .map(|w| (&w.process, Source::WardenDeath)),
        );
        let mut fds: Vec<_> = watched
            .iter()
            .map(|(fd, _)| PollFd::new(*fd, PollFlags::IN))
            .collect();
        let timeout = self.until_due(Instant::now()).map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) if is_shortage(e) => {
                thread::sleep(SOON);
                return Ok(Vec::new());
            }
            Err(e) => return Err(e.into()),
        }
        let readable = fds.iter().map(|fd| !fd.revents().is_empty());
        Ok(readable
            .zip(&watched)
            .filter_map(|(yes, (_, source))| yes.then_some(*source))
            .collect())
    }

    fn until_due(&self, now: Instant) -> Option<Duration> {
        let linger = self
            .idle_since
            .zip(self.linger)
            .map(|(since, linger)| (since + linger).max(now + SOON));
        let dying = (!self.dying.is_empty()).then(|| now + SOON);
        let dying = dying.into_iter().chain(self.short_until).min();
        let resend = self.images.iter().flat_map(|i| &i.watch.resend_at).copied();
        let next = resend.chain(linger).chain(dying).min()?;
        // A poll counts in milliseconds, and must not end before the time.
        Some(next.saturating_duration_since(now) + Duration::from_millis(1))
    }

    fn accept(&mut self) -> io::Result<()> {
        let Some(listener) = &self.listener else {
            return Ok(());
        };
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => self.peers.push(Peer {
                socket,
                role: Role::Asks,
            }),
            Err(Errno::INTR | Errno::AGAIN | Errno::CONNABORTED) => {}
            Err(e) if is_shortage(e) => self.wait_for_more(),
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// Deals with what a peer says. False if it has gone, or is to go.
    fn hear(&mut self, index: usize) -> bool {
        let Some(peer) = self.peers.get_mut(index) else {
            return true;
        };
        let Ok(Some(message)) = receive(&peer.socket) else {
            return false;
        };
        let answer = match message.verb() {
            b"ready" => match Entrance::of_this_process() {
                Ok(entrance) => {
                    self.entrance = Some(entrance);
                    return true;
                }
                Err(e) => {
                    say(&format!("the session cannot be joined: {e}"));
                    return false;
                }
            },
            b"join" => {
                let linger = message.field(1).and_then(|ms| str::from_utf8(ms).ok());
                let linger = linger.and_then(|ms| ms.parse().ok());
                // One that stays until it is unmounted is not made to end by a run from it.
                if let (Some(ms), Some(linger)) = (linger, &mut self.linger) {
                    *linger = Duration::from_millis(ms);
                }
                let place = self.place.as_os_str().as_bytes();
                let sent = match (&self.shared, &self.entrance) {
                    // Somebody has unmounted it: its place is another's.
                    (Some(shared), _) if shared.is_gone() => {
                        self.unlist();
                        return false;
                    }
                    (Some(_), _) => {
                        if let Ok(credentials) = socket_peercred(&peer.socket) {
                            self.members.add(credentials.pid);
                        }
                        send_now(&peer.socket, &[b"shared", place], &[])
                    }
                    (None, Some(entrance)) => {
                        let fds = [&entrance.mounts, &entrance.root, &entrance.user];
                        send_now(&peer.socket, &[b"joined", place], &fds.map(AsFd::as_fd))
                    }
                    (None, None) => return false,
                };
                peer.role = Role::Starts;
                self.idle_since = None;
                return sent.is_ok();
            }
            b"stat" => self.describe(),
            b"end" => self.ask_to_end(message.field(1) == Some(b"lazy")),
            _ => return false,
        };
        let sent = match (answer, self.peers.get(index)) {
            (Ok(answer), Some(peer)) => send_now(&peer.socket, &answer, &[]).map_err(Into::into),
            (Ok(_), None) => Ok(()),
            (Err(e), _) => Err(e),
        };
        sent.is_ok()
    }

    /// The session in words: fields of the form `name=value`.
    fn describe(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let since = self.since.duration_since(UNIX_EPOCH);
        let since = since.map_or(0, |since| since.as_secs());
        let mut fields = vec![
            b"session".to_vec(),
            format!("guardian={}", getpid()).into_bytes(),
            format!("since={since}").into_bytes(),
        ];
        if self.shared.is_some() {
            fields.push(b"shared=1".to_vec());
        }
        if let Some(linger) = self.linger {
            fields.push(format!("linger={}", linger.as_secs()).into_bytes());
        }
        if let Some((idle, linger)) = self.idle_since.zip(self.linger) {
            let left = (idle + linger).saturating_duration_since(Instant::now());
            fields.push(format!("left={}", left.as_secs()).into_bytes());
        }
        for index in 0..self.images.len() {
            let counts = self.counts(index);
            let Some(image) = self.images.get(index) else {
                continue;
            };
            let path = image.path.as_os_str().as_bytes();
            let place = image.place.as_os_str().as_bytes();
            fields.push([b"image=", path].concat());
            fields.push([b"place=", place].concat());
            if let Some(server) = &image.watch.server {
                fields.push(format!("server={}", server.pid).into_bytes());
            }
            fields.push(format!("restarts={}", image.watch.restarts).into_bytes());
            fields.extend(counts);
        }
        for pid in self.members.list()?.into_iter().take(MOST_LISTED) {
            fields.push(format!("program={pid} {}", name_of(pid)).into_bytes());
        }
        Ok(fields)
    }

    /// The counters of a server, as `count.name=number` and `operation=name number times`; none if it does not answer soon.
    fn counts(&mut self, index: usize) -> Vec<Vec<u8>> {
        let server = self.images.get(index).and_then(|i| i.watch.server.as_ref());
        let Some(server) = server else {
            return Vec::new();
        };
        // A server that is stopped reads nothing.
        if send_now(&server.socket, &["counts"], &[]).is_err() {
            return Vec::new();
        }
        let mut fds = [PollFd::new(&server.socket, PollFlags::IN)];
        if poll(&mut fds, Some(&COUNTS_WITHIN)) != Ok(1) {
            return Vec::new();
        }
        match receive(&server.socket) {
            Ok(Some(message)) if message.verb() == b"counts" => {
                message.fields.into_iter().skip(1).collect()
            }
            Ok(Some(message)) => {
                self.note(index, message);
                Vec::new()
            }
            // The next poll finds out what became of it.
            _ => Vec::new(),
        }
    }

    /// Ends the session now if no program uses it, else says which do. `lazy` has it end with the
    /// last of them, and nobody join any more.
    fn ask_to_end(&mut self, lazy: bool) -> io::Result<Vec<Vec<u8>>> {
        let programs = self.members.list()?;
        let starting = self.peers.iter().any(|peer| peer.role == Role::Starts);
        if (!programs.is_empty() || starting) && !lazy {
            let mut fields = vec![b"busy".to_vec()];
            for pid in programs.iter().take(MOST_LISTED) {
                fields.push(format!("{pid} {}", name_of(*pid)).into_bytes());
            }
            if let Some(more) = programs
                .len()
                .checked_sub(MOST_LISTED)
                .filter(|more| *more > 0)
            {
                fields.push(format!("and {more} more").into_bytes());
            }
            if programs.is_empty() {
                fields.push(b"one that is starting".to_vec());
            }
            return Ok(fields);
        }
        if let Some(place) = &self.shared {
            let ended = match lazy {
                true => place.take_out(),
                false => place.unmount(),
            };
            if let Err(cause) = ended {
                return Ok(vec![b"refused".to_vec(), cause.to_string().into_bytes()]);
            }
            // What is left of it is for who is in it.
            self.unlist();
            return Ok(vec![b"ending".to_vec()]);
        }
        self.linger = Some(Duration::ZERO);
        self.look = true;
        if lazy {
            self.unlist();
        }
        Ok(vec![b"ending".to_vec()])
    }

    /// Lets nobody join any more.
    fn unlist(&mut self) {
        // While this listens, no run makes another socket of this name; a mount at the same place does, once
        // this one was unmounted from outside.
        if self.listener.is_some()
            && self.directory.socket_id(&self.key) == self.socket
            && let Err(e) = self.directory.unlist(&self.key)
        {
            say(&format!("the session's socket cannot be removed: {e}"));
        }
        self.stop_listening();
    }

    fn hear_server(&mut self, index: usize, pid: Pid, now: Instant) {
        let server = self.images.get(index).and_then(|i| i.watch.server.as_ref());
        let Some(server) = server.filter(|server| server.pid == pid) else {
            return;
        };
        match receive(&server.socket) {
            Ok(Some(message)) => self.note(index, message),
            _ => self.bury_server(index, pid, now),
        }
    }

    /// Deals with what the server of an image says by itself.
    fn note(&mut self, index: usize, mut message: Message) {
        let recorded = message.descriptors.pop();
        let (verb, field) = (message.verb(), message.field(1));
        if let (b"recorded", Some(recorded)) = (verb, recorded) {
            return self.start_learner(index, recorded);
        }
        let Some(watch) = self.images.get_mut(index).map(|image| &mut image.watch) else {
            return;
        };
        match (verb, field, &mut watch.server) {
            (b"started", Some(thread), Some(server)) => server.watch(thread),
            (b"ended", ..) => {
                watch.ended = true;
                self.unlist();
            }
            _ => {}
        }
    }

    fn start_server(&mut self, index: usize) -> io::Result<()> {
        let server = Server::start(|socket| self.become_server(index, socket))?;
        if let Some(image) = self.images.get_mut(index) {
            image.watch.server = Some(server);
        }
        Ok(())
    }

    /// In a new process: keeps nothing of the guardian but one image.
    fn leave_for(&mut self, index: usize) -> Served {
        self.leave_post();
        let image = self.images.swap_remove(index);
        self.images.clear();
        image
    }

    /// In a new process: drops what the guardian alone should have, so that others notice when it is
    /// gone.
    fn leave_post(&mut self) {
        self.peers.clear();
        self.learners.clear();
        self.lifelines.clear();
        self.listener = None;
        self.entrance = None;
        self.program = None;
    }

    /// In the new process: serves.
    fn become_server(&mut self, index: usize, socket: OwnedFd) -> i32 {
        let image = self.leave_for(index);
        let (mut options, mut lesson) = (image.options, image.lesson);
        // What the one before has filled is there, what it has recorded is not, and the launch is
        // under way.
        if image.watch.restarts > 0 {
            (options.fill, options.recorder, lesson) = (None, None, None);
        }
        drop(image.watch);
        // A name for those who look for it; all works without.
        rustix::thread::set_name(c"brisk-server").ok();
        let task = Task {
            socket,
            connection: image.connection,
            image: image.image,
            options,
            lesson,
            handle: image.handle,
            members: self.members.clone(),
        };
        task.run()
    }

    /// Starts the process that makes a hot pack of what a server has recorded.
    fn start_learner(&mut self, index: usize, recorded: OwnedFd) {
        let mut recorded = Some(recorded);
        let started = start_child(|| {
            rustix::thread::set_name(c"brisk-learner").ok();
            let Served { image, lesson, .. } = self.leave_for(index);
            let learn = |(lesson, recorded): (Lesson, OwnedFd)| lesson.learn(&image, recorded);
            lesson.zip(recorded.take()).map_or(1, learn)
        });
        let watched = started.and_then(|pid| Ok((pid, pidfd_open(pid, PidfdFlags::empty())?)));
        match watched {
            Ok(learner) => self.learners.push(learner),
            Err(e) => say(&format!("nothing is learned from this launch: {e}")),
        }
    }

    /// Gives each connection something to hold, by which the warden sees whether anybody does.
    fn hold_lifelines(&mut self) {
        for image in &mut self.images {
            match pipe_with(PipeFlags::CLOEXEC) {
                Ok((watched, held)) => {
                    image.connection.hold(held);
                    self.lifelines.push(watched);
                }
                Err(e) => {
                    say(&format!("no warden is started: {e}"));
                    return self.lifelines.clear();
                }
            }
        }
    }

    fn start_warden(&mut self) {
        if self.lifelines.is_empty() {
            return;
        }
        let started = start_child(|| {
            let lifelines = mem::take(&mut self.lifelines);
            let images = mem::take(&mut self.images).into_iter();
            self.leave_post();
            // The connections are dropped with the rest of the images.
            let handles = images.map(|image| image.handle);
            warden::run(lifelines.into_iter().zip(handles).collect())
        });
        let watched = started.and_then(|pid| {
            Ok(Warden {
                pid,
                process: pidfd_open(pid, PidfdFlags::empty())?,
                since: Instant::now(),
            })
        });
        match watched {
            Ok(warden) => self.warden = Some(warden),
            Err(e) => say(&format!("no warden is started: {e}")),
        }
    }

    /// Starts another one, unless it seems to end by itself.
    fn bury_warden(&mut self, now: Instant) {
        let Some(warden) = self.warden.take() else {
            return;
        };
        if warden.bury() {
            return;
        }
        if now - warden.since < WARDEN_LIVES {
            return say("the warden ended at once, and no other one is started");
        }
        self.start_warden();
    }

    fn bury_learner(&mut self, pid: Pid) {
        // It was this process's child; only its status is left of it.
        match waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(None) | Err(Errno::INTR) => {}
            Ok(Some(_)) | Err(_) => self.learners.retain(|(learner, _)| *learner != pid),
        }
    }

    /// A server is dead, though threads of it may still hang: another takes its place, if the
    /// kernel can send it what the dead one left.
    fn bury_server(&mut self, index: usize, pid: Pid, now: Instant) {
        let Some(image) = self.images.get_mut(index) else {
            return;
        };
        let watch = &mut image.watch;
        let Some(server) = watch.server.take_if(|server| server.pid == pid) else {
            return;
        };
        self.dying.push((index, server.pid));
        if watch.ended {
            return;
        }
        watch.deaths.retain(|death| now - death.at < DEATHS_WITHIN);
        watch.deaths.push(Death {
            at: now,
            pid: server.pid,
            failed: false,
        });
        if !image.connection.can_resend() {
            return self.give_up(index, "the server died, and this kernel cannot resend");
        }
        if watch.deaths.len() > DEATHS {
            return self.give_up(index, "the server is killed again and again");
        }
        watch.restarts += 1;
        watch.resend_at = RESEND_AFTER.iter().map(|after| now + *after).collect();
        self.restart_server(index);
    }

    /// Starts a server in the place of one that is dead; where processes or memory are short, tries again.
    fn restart_server(&mut self, index: usize) {
        let started = self.start_server(index);
        let Some(watch) = self.images.get_mut(index).map(|image| &mut image.watch) else {
            return;
        };
        match started {
            Ok(()) => watch.tries = 0,
            Err(e) if of_shortage(&e) && watch.tries < MOST_TRIES => {
                watch.tries += 1;
                self.wait_for_more();
            }
            Err(e) => {
                watch.tries = 0;
                self.give_up(index, &format!("a server could not be started: {e}"));
            }
        }
    }

    /// There is too little of something. It is tried again soon.
    fn wait_for_more(&mut self) {
        self.short_until = Some(Instant::now() + SOON);
    }

    /// Tries again what could not be started.
    fn try_again(&mut self) {
        if self.short_until.is_some() {
            return;
        }
        for index in 0..self.images.len() {
            if self.images[index].watch.tries > 0 {
                self.restart_server(index);
            }
        }
    }

    /// Ends an image's connection, so that programs get errors and nobody waits.
    fn give_up(&mut self, index: usize, why: &str) {
        if let Some(image) = self.images.get_mut(index) {
            image.watch.ended = true;
            image.watch.resend_at.clear();
            say(&format!(
                "{}: {why}; its programs get errors",
                image.path.display()
            ));
            image.handle.abort();
        }
        self.unlist();
    }

    /// Collects the status of servers that are gone, and gives up where they fail by themselves.
    fn reap(&mut self, now: Instant) {
        let mut gone = Vec::new();
        self.dying.retain(
            |(index, pid)| match waitpid(Some(*pid), WaitOptions::NOHANG) {
                Ok(None) | Err(Errno::INTR) => true,
                Ok(Some((_, status))) => {
                    let killed = status.terminating_signal() == Some(Signal::KILL.as_raw());
                    gone.push((*index, *pid, !killed));
                    false
                }
                Err(_) => false,
            },
        );
        for (index, pid, failed) in gone {
            let Some(watch) = self.images.get_mut(index).map(|image| &mut image.watch) else {
                continue;
            };
            for death in watch.deaths.iter_mut().filter(|death| death.pid == pid) {
                death.failed = failed;
            }
            let recent = |death: &&Death| death.failed && now - death.at < DEATHS_WITHIN;
            if !watch.ended && watch.deaths.iter().filter(recent).count() >= FAILURES {
                self.give_up(index, "the server fails again and again");
            }
        }
    }

    fn resend(&mut self, now: Instant) {
        for image in &mut self.images {
            let before = image.watch.resend_at.len();
            image.watch.resend_at.retain(|at| *at > now);
            if image.watch.resend_at.len() < before
                && let Err(e) = image.connection.resend()
            {
                say(&e.to_string());
            }
        }
    }

    /// Finds out whether programs are left, and ends the session if it is time. False if it ended.
    fn settle(&mut self, now: Instant) -> io::Result<bool> {
        let unmounted = |image: &Served| image.watch.ended && image.watch.server.is_none();
        if self.shared.is_some() && self.images.iter().all(unmounted) {
            return Ok(false);
        }
        let starting = self.peers.iter().any(|peer| peer.role == Role::Starts);
        if self.program.is_some() || starting {
            self.idle_since = None;
            return Ok(true);
        }
        if mem::take(&mut self.look) {
            match self.members.any() {
                Ok(None) => {
                    self.idle_since.get_or_insert(now);
                }
                Ok(program) => (self.program, self.idle_since) = (program, None),
                Err(e) if of_shortage(&e) => {
                    self.look = true;
                    self.wait_for_more();
                }
                Err(e) => return Err(e),
            }
        }
        let end = self.idle_since.zip(self.linger);
        if end.is_none_or(|(since, linger)| now < since + linger) {
            return Ok(true);
        }
        // Somebody may have entered the namespaces by other ways.
        match self.members.any() {
            Ok(program) => self.program = program,
            Err(e) if of_shortage(&e) => {
                self.wait_for_more();
                return Ok(true);
            }
            Err(e) => return Err(e),
        }
        if self.program.is_some() {
            self.idle_since = None;
            return Ok(true);
        }
        self.close()
    }

    /// Closes the door, unless somebody stands in it. True if so.
    fn close(&mut self) -> io::Result<bool> {
        let Some(listener) = &self.listener else {
            return Ok(false);
        };
        // Who has the lock is about to connect, or to make a session of its own if it cannot.
        let Some(lock) = self.directory.try_lock(&self.key)? else {
            return Ok(true);
        };
        let mut fds: Vec<_> = self
            .peers
            .iter()
            .map(|peer| &peer.socket)
            .chain([listener])
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        let now = Timespec::default();
        if poll(&mut fds, Some(&now))? > 0 {
            lock.release()?;
            return Ok(true);
        }
        if let Some(Err(_)) = self.shared.as_ref().map(SharedPlace::unmount) {
            // Something in it is open, in a program that a run has left behind.
            self.idle_since = Some(Instant::now() + STILL_OPEN);
            lock.release()?;
            return Ok(true);
        }
        self.stop_listening();
        self.directory.clear(&self.key, lock)?;
        Ok(false)
    }

    /// Refuses who would join from now on. False if nobody could join before.
    fn stop_listening(&mut self) -> bool {
        let Some(listener) = self.listener.take() else {
            return false;
        };
        // A learner that was just started may have a copy still.
        if let Err(e) = shutdown(&listener, Shutdown::Both) {
            say(&format!("the session's socket cannot be closed: {e}"));
        }
        true
    }

    /// Ends what is left: nobody waits for an answer after this.
    fn end(&mut self) {
        // What ends from here on is meant to.
        self.dismiss_warden();
        // The files of a mount stay until here, though nobody can find it any more.
        let open = self.stop_listening() || self.shared.is_some();
        // One that has ended may have been unmounted, and its place be another's.
        for image in self.images.iter().filter(|image| !image.watch.ended) {
            image.handle.abort();
        }
        let deadline = Instant::now() + LAST_WORDS;
        let mut killed = false;
        // A learner goes on by itself.
        while self.hear_last_words() {
            if Instant::now() > deadline && !mem::replace(&mut killed, true) {
                let servers = self.images.iter().filter_map(|i| i.watch.server.as_ref());
                for server in servers {
                    if let Err(e) = kill_process(server.pid, Signal::KILL) {
                        say(&format!("server {} cannot be ended: {e}", server.pid));
                    }
                }
            }
            if Instant::now() > deadline + LAST_WORDS {
                say("a server does not end");
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        if open {
            let cleared = self
                .directory
                .lock(&self.key)
                .and_then(|lock| self.directory.clear(&self.key, lock));
            if let Err(e) = cleared {
                say(&format!("the session's files cannot be removed: {e}"));
            }
        }
    }

    fn dismiss_warden(&mut self) {
        let Some(warden) = self.warden.take() else {
            return;
        };
        match pidfd_send_signal(&warden.process, Signal::KILL) {
            // It was killed before.
            Ok(()) | Err(Errno::SRCH) => {
                warden.bury();
            }
            Err(e) => say(&format!("the warden cannot be ended: {e}")),
        }
    }

    /// Deals with what servers say at the end. False if none is left.
    fn hear_last_words(&mut self) -> bool {
        let ended = |pid| match waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(None) | Err(Errno::INTR) => false,
            Ok(Some(_)) | Err(_) => true,
        };
        self.dying.retain(|(_, pid)| !ended(*pid));
        let mut left = !self.dying.is_empty();
        for index in 0..self.images.len() {
            let server = self.images.get(index).and_then(|i| i.watch.server.as_ref());
            let Some(server) = server else {
                continue;
            };
            // What it said before it ended was said by now.
            let is_gone = ended(server.pid);
            while let Some(message) = self.heard_from(index) {
                self.note(index, message);
            }
            match self.images.get_mut(index) {
                Some(image) if is_gone => image.watch.server = None,
                _ => left = true,
            }
        }
        left
    }

    /// What the server of an image has said, if it has.
    fn heard_from(&self, index: usize) -> Option<Message> {
        let server = self.images.get(index)?.watch.server.as_ref()?;
        let mut fds = [PollFd::new(&server.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(1) => receive(&server.socket).ok().flatten(),
            _ => None,
        }
    }
}
