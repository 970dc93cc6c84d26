use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use brisk_io::page_size;
use brisk_launch::error::{Cause, Error, ErrorKind, Result};
use brisk_launch::sys::process::close_in_this_thread;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use zerocopy::FromBytes;

use super::channel::{Channel, Device, REQUEST};
use super::options::ServeOptions;
use super::wire::{InitIn, InitOut, MAJOR, MINOR, OLDEST_MINOR, can, op};
use crate::action::Action;
use crate::sys::fuse_device::clone_fuse_channel;

/// The type that the kernel shows for brisk's mounts.
pub(crate) const FS_TYPE: &str = "fuse.brisk";

/// What to ask of the kernel, as far as it supports it.
///
/// READDIRPLUS is not asked for in every listing: with `AUTO`, the kernel asks for attributes with the names
/// at the start of a directory, and goes on only if a program looks at them.
const WANTED: u64 = can::ASYNC_READ
    | can::DO_READDIRPLUS
    | can::READDIRPLUS_AUTO
    | can::NO_OPEN
    | can::PARALLEL_DIROPS
    | can::MAX_PAGES
    | can::CACHE_SYMLINKS
    | can::NO_OPENDIR
    | can::EXPLICIT_INVAL_DATA
    | can::INIT_EXT
    | can::HAS_RESEND;

/// What not to ask for while a launch is recorded: everything that makes the kernel ask for more than the
/// program does, or in another order.
const UNRECORDED: u64 = can::ASYNC_READ | can::DO_READDIRPLUS | can::READDIRPLUS_AUTO;

/// Pages of one READ: 1 MiB. The mount's read-ahead is also a limit. It is 128 KiB, unless root raises it in
/// /sys/class/bdi.
const MAX_PAGES: u16 = 256;

/// The most bytes of one READ.
pub(super) fn max_read() -> u32 {
    // A page has at most 64 KiB.
    u32::try_from(page_size()).map_or(u32::MAX, |page| page.saturating_mul(MAX_PAGES.into()))
}

/// How many read-ahead requests may wait at once, and how many make a disk count as busy. The kernel's
/// defaults, 12 and 9, are too few for large files.
const MAX_BACKGROUND: u16 = 64;
const CONGESTED: u16 = 48;

/// The same for an image that arrives. Requests that wait for the network must not keep others from being sent.
const MAX_ARRIVING: u16 = 4096;

/// A FUSE connection after INIT: its channels, and what was agreed.
///
/// The file system exists as long as one process has the connection. So the process that starts servers keeps
/// it too: a server that dies leaves its requests unanswered, and the next one on the same connection answers
/// them ([`FuseConnection::resend`]).
///
/// A process that has a connection must not open a file of the mount, nor have its working directory, root or
/// program in it. Its end would wait for an answer that only it can give.
#[derive(Debug)]
pub struct FuseConnection {
    /// The first is the one that was mounted, the others are clones of it. A request is answered on the
    /// channel from which it was read. When no process has a channel any longer, its requests fail with
    /// ECONNABORTED. So all of them are kept here, and not by the server.
    ///
    /// 1. There is at least one.
    /// 2. If there are several, no request is read from the last one: see
    ///    [`FuseConnection::keep_to_storing`].
    channels: Vec<OwnedFd>,
    agreed: u64,
    /// Open in each process that may answer: see [`FuseConnection::hold`].
    lifeline: Option<OwnedFd>,
}

impl FuseConnection {
    /// Agrees with the kernel on the protocol.
    ///
    /// `channel` is an open `/dev/fuse` on which a file system was mounted. The kernel then queues the
    /// request INIT, and this reads and answers it, so it returns at once.
    ///
    /// Opens a channel for each of `options.threads`, and one for stores. If `/dev/fuse` can no longer be
    /// opened, the threads share what there is: see [`FuseConnection::channels`].
    ///
    /// # Errors
    ///
    /// `Unsupported` if the kernel is older than Linux 4.14. `Io` if `channel` belongs to no mount, or if INIT
    /// was answered before.
    pub fn establish(channel: OwnedFd, options: &ServeOptions) -> Result<Self> {
        let mut arriving = options.arriving.iter();
        let arrives = arriving.any(|source| !source.is_pack && !source.image.arriving().is_whole());
        let reading = Reading {
            is_recorded: options.exact_recorder().is_some(),
            arrives,
        };
        let agreed = init(&channel, reading).map_err(|cause| Error::new(Action::Serve, cause))?;
        let mut channels = vec![channel];
        while channels.len() <= options.threads {
            match clone_fuse_channel(channels[0].as_fd()) {
                Ok(clone) => channels.push(clone),
                // There is no device, no right to open it, or `channel` was opened in another user namespace.
                // Fewer channels work too, but a look-up takes about twice as long.
                Err(_) => break,
            }
        }
        Ok(Self {
            channels,
            agreed,
            lifeline: None,
        })
    }

    /// The connection that another process established. This process has inherited its
    /// [`FuseConnection::channels`], in their order, and knows what was [`FuseConnection::agreed`].
    ///
    /// # Errors
    ///
    /// `State` if there are no channels.
    pub fn from_parts(channels: Vec<OwnedFd>, agreed: u64) -> Result<Self> {
        if channels.is_empty() {
            return Err(Error::new(
                Action::Serve,
                Cause::new(
                    ErrorKind::State,
                    "0 channels were passed, allowed is at least 1",
                ),
            ));
        }
        Ok(Self {
            channels,
            agreed,
            lifeline: None,
        })
    }

    /// The channel that was mounted.
    pub fn channel(&self) -> BorrowedFd<'_> {
        // Invariant 1.
        self.channels[0].as_fd()
    }

    /// All channels: the one that was mounted, and its clones.
    pub fn channels(&self) -> &[OwnedFd] {
        &self.channels
    }

    /// Whether the kernel has ended the connection: the file system was unmounted everywhere, or the connection aborted. It
    /// cannot come back.
    pub(crate) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.channels[0], PollFlags::empty())];
        let found = poll(&mut fds, Some(&Timespec::default()));
        found.is_ok() && fds[0].revents().contains(PollFlags::ERR)
    }

    /// The channels from which requests are read.
    pub(super) fn answering(&self) -> &[OwnedFd] {
        match self.channels.as_slice() {
            [answering @ .., _] if !answering.is_empty() => answering,
            all => all,
        }
    }

    /// The channel to which stores are written.
    pub(super) fn storing(&self) -> &OwnedFd {
        // Invariant 1.
        self.channels.last().unwrap_or(&self.channels[0])
    }

    /// Keeps `lifeline` open as long as a process has the connection and can answer. A thread that waits for
    /// an answer ([`FuseConnection::keep_to_storing`]) does not count.
    pub(crate) fn hold(&mut self, lifeline: OwnedFd) {
        self.lifeline = Some(lifeline);
    }

    /// Says through the lifeline that the kernel has ended the connection: nobody waits for an answer.
    pub(crate) fn say_it_ended(&self) {
        if let Some(lifeline) = &self.lifeline {
            // A pipe has room for one byte. If the watchdog does not get it, it finds nothing to abort.
            rustix::io::write(lifeline, &[0]).ok();
        }
    }

    /// Closes all channels but [`FuseConnection::storing`], and the lifeline, in the calling thread and those
    /// that it will start.
    ///
    /// A store or a look-up waits, unkillably, for the answers to other requests, and a thread that waits
    /// keeps its descriptors open. If server and guardian are killed at once, a request that was read fails
    /// only when the channel closes that it was read from. So this thread must not hold that channel open. A
    /// request that was not read fails when the watchdog sees the lifeline end and aborts the connection.
    pub(super) fn keep_to_storing(&self) {
        let answering = match self.channels.len() {
            1 => &[],
            _ => self.answering(),
        };
        // Linux before 5.9 cannot do this. Nothing but that case depends on it.
        close_in_this_thread(answering.iter().chain(&self.lifeline)).ok();
    }

    /// What was agreed in INIT, as the bits of its flags.
    pub fn agreed(&self) -> u64 {
        self.agreed
    }

    /// Whether the kernel can resend requests that a dead server had read (Linux 6.9 and later).
    pub fn can_resend(&self) -> bool {
        self.agreed & can::HAS_RESEND != 0
    }

    /// Makes the kernel send every unanswered request again.
    ///
    /// A request that a dying server reads at this moment is missed, so call this again later. But a request
    /// that a living server answers at this moment is sent again too, and then its answer is refused. So wait
    /// longer each time, for example 0.1, 1 and 10 seconds. Otherwise no request is ever answered.
    ///
    /// # Errors
    ///
    /// `Io`: EINVAL if [`FuseConnection::can_resend`] is false.
    pub fn resend(&self) -> Result<()> {
        match Channel(&self.channels[0]).resend() {
            // After the end there is nothing to send.
            Ok(()) | Err(Errno::NODEV | Errno::CONNABORTED) => Ok(()),
            Err(e) => {
                let cause = Cause::io("have unanswered requests sent again", e);
                Err(Error::new(Action::Serve, cause))
            }
        }
    }
}

/// The data of `mount(2)` for a file system that `channel` serves to everybody. `uid` and `gid` are those of
/// the caller in its own user namespace.
///
/// Mount it with `MS_RDONLY`, `MS_NOSUID` and `MS_NODEV`.
pub fn mount_data(channel: BorrowedFd<'_>, uid: u32, gid: u32) -> String {
    format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions,allow_other",
        channel.as_raw_fd()
    )
}

/// How the kernel is to read.
struct Reading {
    /// Only what the program asks for, in its order.
    is_recorded: bool,
    /// Not all of the image is here.
    arrives: bool,
}

/// Reads INIT, answers it, and returns the flags of the answer.
fn init(device: &dyn Device, reading: Reading) -> Result<u64, Cause> {
    let channel = Channel(device);
    let io = |e| Cause::io("agree with the kernel on the FUSE protocol", e);
    let mut buf = vec![0; REQUEST];
    let Some(request) = channel.receive(&mut buf).map_err(io)? else {
        return Err(io(Errno::NODEV));
    };
    if request.header.opcode != op::INIT {
        return Err(io(Errno::PROTO));
    }
    let init: InitIn = request.read().map_err(io)?;
    let unique = request.header.unique;
    if init.major != MAJOR || init.minor < OLDEST_MINOR {
        channel.reply_error(unique, Errno::PROTO).map_err(io)?;
        return Err(Cause::unsupported(format!(
            "the kernel speaks version {}.{} of the FUSE protocol, allowed is 7.26 and later; use Linux 4.14 or later",
            init.major, init.minor
        )));
    }
    let mut offered = u64::from(init.flags);
    if offered & can::INIT_EXT != 0 {
        let rest = request.body.get(size_of::<InitIn>()..).unwrap_or(&[]);
        let (flags2, _) = u32::read_from_prefix(rest).map_err(|_| io(Errno::PROTO))?;
        offered |= u64::from(flags2) << 32;
    }
    let wanted = match reading.is_recorded {
        true => WANTED & !UNRECORDED,
        false => WANTED,
    };
    let (max_background, congestion_threshold) = match reading.arrives {
        true => (MAX_ARRIVING, MAX_ARRIVING),
        false => (MAX_BACKGROUND, CONGESTED),
    };
    let agreed = offered & wanted;
    let out = InitOut {
        major: MAJOR,
        minor: MINOR,
        // With 0, each READ asks only for what the program asked for. In an image that arrives, a page that is here would else
        // wait for the absent ones around it.
        max_readahead: match reading.is_recorded || reading.arrives {
            true => 0,
            false => init.max_readahead,
        },
        // These are the two halves, so nothing is lost.
        flags: (agreed & u64::from(u32::MAX)) as u32,
        flags2: (agreed >> 32) as u32,
        max_background,
        congestion_threshold,
        max_write: 4096,
        time_gran: 1_000_000_000,
        max_pages: MAX_PAGES,
        map_alignment: 0,
        unused: [0; 7],
    };
    channel.reply(unique, &out).map_err(io)?;
    Ok(agreed)
}

#[cfg(test)]
mod tests {
    use rustix::io::{read, write};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::fuse::wire::{InHeader, OutHeader};

    /// What the server answers to this INIT, and what comes of it.
    fn answer(asked: InitIn, reading: Reading) -> (Result<u64, Cause>, Vec<u8>) {
        let header = InHeader {
            len: u32::try_from(size_of::<InHeader>() + size_of::<InitIn>()).expect("small"),
            opcode: op::INIT,
            unique: 2,
            nodeid: 0,
            uid: 0,
            gid: 0,
            pid: 0,
            total_extlen: 0,
            padding: 0,
        };
        let (kernel, device) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("sockets");
        write(&kernel, &[header.as_bytes(), asked.as_bytes()].concat()).expect("room");
        let agreed = init(&device, reading);
        let mut answer = [0; 128];
        let len = read(&kernel, &mut answer).expect("an answer");
        let body = answer.get(size_of::<OutHeader>()..len).expect("whole");
        (agreed, body.to_vec())
    }

    #[test]
    fn the_kernel_reads_ahead_unless_it_would_ask_for_more_than_a_program_waits_for() {
        const AHEAD: u32 = 128 << 10;
        let asked = InitIn {
            major: MAJOR,
            minor: MINOR,
            max_readahead: AHEAD,
            flags: 0,
        };
        for (is_recorded, arrives, ahead) in [
            (false, false, AHEAD),
            (true, false, 0),
            (false, true, 0),
            (true, true, 0),
        ] {
            let reading = Reading {
                is_recorded,
                arrives,
            };
            let (agreed, body) = answer(asked, reading);
            agreed.expect("a sound request");
            let (out, _) = InitOut::read_from_prefix(&body).expect("whole");
            assert_eq!(out.max_readahead, ahead, "{is_recorded}, {arrives}");
        }
    }

    #[test]
    fn a_kernel_of_linux_4_14_gets_what_it_knows() {
        // It offers all bits up to those for access control lists.
        let asked = |minor| InitIn {
            major: MAJOR,
            minor,
            max_readahead: 0,
            flags: (1 << 21) - 1,
        };
        let reading = || Reading {
            is_recorded: false,
            arrives: false,
        };
        let (agreed, body) = answer(asked(26), reading());
        let agreed = agreed.expect("it is supported");
        assert_eq!(agreed >> 21, 0);
        assert_ne!(agreed & can::NO_OPEN, 0);
        // Linux reads a struct of this length since 7.23.
        assert_eq!(body.len(), 64);
        let (agreed, body) = answer(asked(25), reading());
        let expected = "the kernel speaks version 7.25 of the FUSE protocol, allowed is 7.26 and later; use Linux 4.14 or later";
        assert_eq!(agreed.expect_err("it is too old").to_string(), expected);
        assert!(body.is_empty());
    }
}
