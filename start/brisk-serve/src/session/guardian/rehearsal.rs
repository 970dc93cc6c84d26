//! A guardian whose peers and whose server send what a test or the fuzz target `session` chooses.
//!
//! It is a real one, with its event loop and its sockets, in the calling process. It has one image, and starts no
//! process: its server is a socket.

use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, memfd_create, openat};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, sendmsg, socketpair,
};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::guarded_image::{GuardedImage, Servers};
use super::learners::Learners;
use super::lifetime::Lifetime;
use super::listener::Listener;
use super::request::Role;
use super::shortage::Shortage;
use super::state::{NamespaceHandles, Peer, State};
use crate::session::control::parse;
use crate::session::directory::Directory;
use crate::session::image_source::ImageSource;
use crate::session::join::JoinAnswer;
use crate::session::members::Members;
use crate::session::message::{Message, receive};
use crate::session::mount_handle::MountHandle;
use crate::session::open_image::{OpenImage, SessionImage};
use crate::session::server::Server;
use crate::session::shared_mount_point::SharedMountPoint;
use crate::session::surroundings::{self, Surroundings};
use crate::{Confinement, FuseConnection, ServeOptions};

/// The session's key, and its place.
const KEY: &str = "rehearsed";
const PLACE: &str = "/opt/app";

/// How long the session stays without programs.
const LINGER: Duration = Duration::from_secs(60);

/// The number of peers. Peer 0 is the process that made the session. In a case, the server has the next number.
const PEERS: usize = 4;

/// The most packets of a case.
const PACKETS: usize = 64;

/// The verbs that a guardian says to peers.
const VERBS: [&[u8]; 7] = [
    b"joined", b"shared", b"session", b"busy", b"ending", b"refused", b"failed",
];

/// What cases need: a directory for sockets, and an image.
#[derive(Debug)]
pub struct Stage {
    directory: PathBuf,
    image: PathBuf,
}

/// A packet of a case.
struct Packet<'a> {
    from: u8,
    /// The sender disconnects after it.
    last: bool,
    kind: u8,
    descriptors: usize,
    bytes: &'a [u8],
}

/// The packets of a case: each has a sender, what descriptors come with it, its length in two bytes, lowest
/// first, and as many bytes.
///
/// The lower half of the second byte is the number of descriptors, and the upper half says which ones. The
/// highest bit of the sender says that it disconnects.
fn packets(mut case: &[u8]) -> Vec<Packet<'_>> {
    let mut packets = Vec::new();
    while let Some(([from, descriptors, low, high], rest)) = case.split_first_chunk::<4>() {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (bytes, rest) = rest.split_at(len);
        packets.push(Packet {
            from: from & 0x7f,
            last: from & 0x80 != 0,
            kind: descriptors >> 4,
            descriptors: usize::from(descriptors & 0xf),
            bytes,
        });
        case = rest;
        if packets.len() == PACKETS {
            break;
        }
    }
    packets
}

impl Packet<'_> {
    /// What the server says when a peer asks for the state: the fields of the peer's own packet, as counters, or with
    /// kind 7 as they are.
    fn said_by_server(&self) -> Option<Vec<u8>> {
        let fields = self.bytes.strip_prefix(b"stat")?;
        Some(match (self.kind, fields) {
            (7, [_, fields @ ..]) => fields.to_vec(),
            _ => [b"counts", fields].concat(),
        })
    }
}

impl Stage {
    /// In the empty directory `directory`, with the image at `image`.
    pub fn new(directory: &Path, image: &Path) -> Self {
        Self {
            directory: directory.join("sessions"),
            image: image.to_owned(),
        }
    }

    fn guardian(&self, setting: u8, maker: OwnedFd, server: OwnedFd) -> io::Result<State> {
        let bit = |n: u8| setting & (1 << n) != 0;
        let directory = Directory::at(&self.directory)?;
        let lock = directory.lock(KEY)?;
        let socket = directory.listen(KEY, &lock)?;
        lock.release()?;
        let (channel, _) = sockets()?;
        let root = open(&self.directory, OFlags::PATH)?;
        let mut servers = Servers::default();
        servers.current = Some(Server {
            pid: getpid(),
            process: pidfd_open(getpid(), PidfdFlags::empty())?,
            thread: None,
            socket: server,
        });
        let image = GuardedImage {
            path: self.image.clone(),
            place: PLACE.into(),
            source: ImageSource {
                image: OpenImage::open(&SessionImage::new(&self.image), false)
                    .map_err(|cause| io::Error::other(cause.to_string()))?,
                block_cache: 0,
            },
            connection: FuseConnection::from_parts(vec![channel], 0).map_err(io::Error::other)?,
            options: ServeOptions::default(),
            launch: None,
            handle: MountHandle::Root(root),
            servers,
        };
        let shared = bit(0).then(|| SharedMountPoint::of(self.directory.clone(), bit(1)));
        let built = bit(1).then(NamespaceHandles::of_this_process).transpose()?;
        Ok(State {
            listener: Listener::new(directory, KEY.to_owned(), socket),
            images: vec![image],
            place: PLACE.into(),
            lifetime: Lifetime::new(Some(LINGER)),
            members: Members::of_runs(None).expect("a process session"),
            surroundings: Some(Surroundings::of_this_process()?),
            layer_lock: None,
            shared,
            peers: vec![Peer {
                socket: maker,
                role: if bit(2) { Role::Owns } else { Role::Starts },
            }],
            namespaces: built,
            program: None,
            shortage: Shortage::default(),
            since: SystemTime::UNIX_EPOCH,
            learners: Learners::default(),
            lifelines: Vec::new(),
            watchdog: None,
            own_life: None,
            unserved: None,
            confinement: Confinement::default(),
        })
    }
}

/// Sends the packets of a case to a guardian, and returns what its peers hear, as a person reads it.
///
/// The first byte of a case says how the session is set up: bit 0 for a mount for all programs, bit 1 if the
/// namespaces are built, bit 2 if the first peer owns the mount.
///
/// # Panics
///
/// If an answer breaks a rule, or a descriptor stays open.
pub fn exercise(case: &[u8], stage: &Stage) -> String {
    let Some((setting, packets_of_case)) = case.split_first() else {
        return "no case".to_owned();
    };
    let before = open_descriptors();
    let heard = rehearse(*setting, &packets(packets_of_case), stage)
        .expect("sockets and descriptors are there");
    assert_eq!(open_descriptors(), before, "descriptors stay open");
    match heard.is_empty() {
        true => "nothing".to_owned(),
        false => heard.join(", "),
    }
}

fn rehearse(setting: u8, packets: &[Packet<'_>], stage: &Stage) -> io::Result<Vec<String>> {
    let (maker, first) = sockets()?;
    let (server, ours) = sockets()?;
    let mut state = stage.guardian(setting, first, ours)?;
    let mut ends: Vec<Option<OwnedFd>> = vec![Some(maker), None, None, None];
    let mut server = Some(server);
    let mut heard = Vec::new();
    // What the guardian has on its own, what each peer has here and there, and what programs it watches.
    let allowed = open_descriptors() + 3 + 3 * PEERS + PACKETS;
    for packet in packets {
        let mut goes_on = true;
        let number = usize::from(packet.from) % (PEERS + 1);
        if number > 0
            && let Some(end @ None) = ends.get_mut(number)
        {
            *end = Directory::at(&stage.directory)?.connect(KEY)?;
            // The guardian accepts it.
            goes_on = state.settle_down(allowed)?;
        }
        // A guardian that is asked for its state asks its server, and waits for the answer.
        if let (Some(said), Some(server)) = (packet.said_by_server(), &server) {
            send(server, &said, &[]).ok();
        }
        let from = match ends.get_mut(number) {
            Some(end) => end,
            None => &mut server,
        };
        if let Some(socket) = &from {
            let kept = descriptors(packet.kind, packet.descriptors)?;
            let borrowed: Vec<BorrowedFd<'_>> = kept.iter().map(AsFd::as_fd).collect();
            // The guardian may have closed the connection.
            send(socket, packet.bytes, &borrowed).ok();
        }
        if packet.last {
            *from = None;
        }
        goes_on = goes_on && state.settle_down(allowed)?;
        for (number, end) in ends.iter_mut().enumerate() {
            while let Some(socket) = end.take_if(|end| is_readable([end.as_fd()])) {
                if let Some(message) = receive(&socket)? {
                    heard.push(format!("{number}: {}", described(message)));
                    *end = Some(socket);
                } else {
                    heard.push(format!("{number}: closed"));
                }
            }
        }
        if let Some(socket) = &server {
            // What the guardian asks it.
            let mut buf = [0; 64];
            while recv(socket, &mut buf[..], RecvFlags::DONTWAIT).is_ok_and(|(n, _)| n > 0) {}
        }
        if !goes_on {
            heard.push("the session ended".to_owned());
            break;
        }
    }
    Ok(heard)
}

impl State {
    /// Handles what has arrived. False if the session has ended.
    ///
    /// # Panics
    ///
    /// If more than `allowed` descriptors are open.
    fn settle_down(&mut self, allowed: usize) -> io::Result<bool> {
        // One packet may lead to another event, but not for ever.
        for _ in 0..16 {
            if !self.is_readable()? {
                break;
            }
            if !self.step()? {
                return Ok(false);
            }
            assert!(open_descriptors() <= allowed, "descriptors pile up");
        }
        Ok(true)
    }

    /// Whether [`State::step`] would not wait.
    fn is_readable(&self) -> io::Result<bool> {
        let peers = self.peers.iter().map(|peer| peer.socket.as_fd());
        let listener = self.listener.socket().filter(|_| self.joinable().is_open());
        let servers = self.images.iter().filter_map(|image| {
            let server = image.servers.current.as_ref();
            server.map(|server| server.socket.as_fd())
        });
        Ok(is_readable(
            peers.chain(listener.map(AsFd::as_fd)).chain(servers),
        ))
    }
}

/// Checks an answer, and describes it without what differs from run to run.
fn described(message: Message) -> String {
    let verb = String::from_utf8_lossy(message.verb()).into_owned();
    assert!(VERBS.contains(&message.verb()), "the verb {verb:?}");
    let count = message.descriptors.len();
    match message.verb() {
        b"joined" | b"shared" => {
            let answer = JoinAnswer::parse(message).expect("an answer that a run understands");
            let place = answer.place().to_owned();
            match answer {
                JoinAnswer::Shared { .. } => assert_eq!(count, 0),
                JoinAnswer::Joined { .. } => assert_eq!(count, 3),
            }
            assert_eq!(place, Path::new(PLACE));
        }
        b"session" => {
            assert_eq!(count, 0);
            let (status, _) = parse(KEY.to_owned(), message);
            assert_eq!(status.guardian, getpid().as_raw_nonzero().get());
            assert_eq!(status.images.len(), 1);
            let image = &status.images[0];
            return format!("session with {} counts", image.counts.len());
        }
        _ => assert_eq!(count, 0),
    }
    verb
}

/// Sends a packet with more descriptors than this crate sends.
fn send(
    socket: &OwnedFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(15))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
}

/// Descriptors for a packet.
fn descriptors(kind: u8, count: usize) -> io::Result<Vec<OwnedFd>> {
    // The surroundings of this process, or fewer or more descriptors.
    if kind == 5 {
        let mut all = Vec::from(surroundings::descriptors()?);
        while all.len() < count {
            all.extend(surroundings::descriptors()?);
        }
        all.truncate(count);
        return Ok(all);
    }
    let one = || -> io::Result<OwnedFd> {
        Ok(match kind {
            0 => open("/dev/null", OFlags::RDONLY)?,
            1 => sockets()?.0,
            2 => memfd_create("rehearsed", MemfdFlags::CLOEXEC)?,
            3 => open("/", OFlags::PATH)?,
            4 => open("/proc/self/ns/mnt", OFlags::RDONLY)?,
            _ => open("/dev/zero", OFlags::RDWR)?,
        })
    };
    (0..count).map(|_| one()).collect()
}

fn open(path: impl AsRef<Path>, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(
        CWD,
        path.as_ref(),
        flags | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

fn is_readable<'a>(descriptors: impl IntoIterator<Item = BorrowedFd<'a>>) -> bool {
    let mut fds: Vec<_> = descriptors
        .into_iter()
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// How many descriptors of this process are open, with the one that lists them.
fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
