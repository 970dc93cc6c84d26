//! Messages over a session's sockets: packets of text fields, some with descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use brisk_launch::error::{Cause, ErrorKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::surroundings;

/// The largest packet in bytes.
const PACKET: usize = 64 << 10;

/// The first field of the message of a guardian that could not start. The reason follows.
pub(super) const FAILED: &[u8] = b"failed";

/// The only field of the message to a server that a run has joined its session.
pub(super) const JOINED: &[u8] = b"joined";

/// The first field of the message of a server that it needs a connection to the fetcher, and of the guardian's answer, which has it
/// if there is one. The number of what arrives follows: see `ServeOptions::arriving`.
pub(super) const FETCHER: &[u8] = b"fetcher";

/// The most descriptors in a packet.
const DESCRIPTORS: usize = surroundings::COUNT;

/// A packet. NUL separates its fields, because no path contains it.
#[derive(Debug)]
pub(crate) struct Message {
    pub(super) fields: Vec<Vec<u8>>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Message {
    /// The kind of the packet, which is its first field.
    pub(super) fn verb(&self) -> &[u8] {
        self.fields.first().map_or(b"", Vec::as_slice)
    }

    pub(super) fn field(&self, index: usize) -> Option<&[u8]> {
        self.fields.get(index).map(Vec::as_slice)
    }

    /// Which of the files that arrive it is about.
    pub(super) fn number(&self) -> Option<usize> {
        str::from_utf8(self.field(1)?).ok()?.parse().ok()
    }

    /// Why a guardian could not start, if this says so.
    pub(super) fn failure(&self) -> Option<String> {
        let said = self.field(1).filter(|_| self.verb() == FAILED)?;
        Some(String::from_utf8_lossy(said).into_owned())
    }
}

/// A guardian could not start, and has said this.
pub(super) fn guardian_failed(said: &str) -> Cause {
    let text = format!("its server could not start: {said}");
    Cause::new(ErrorKind::Io, text)
}

/// Sends a packet. EMSGSIZE if it would be too long.
pub(crate) fn send<B: AsRef<[u8]>>(
    socket: impl AsFd,
    fields: &[B],
    descriptors: &[BorrowedFd<'_>],
) -> Result<()> {
    send_with(SendFlags::empty(), socket, fields, descriptors)
}

/// Like [`send`], but does not wait: EAGAIN if the other side has not read earlier packets.
pub(super) fn send_now<B: AsRef<[u8]>>(
    socket: impl AsFd,
    fields: &[B],
    descriptors: &[BorrowedFd<'_>],
) -> Result<()> {
    send_with(SendFlags::DONTWAIT, socket, fields, descriptors)
}

fn send_with<B: AsRef<[u8]>>(
    flags: SendFlags,
    socket: impl AsFd,
    fields: &[B],
    descriptors: &[BorrowedFd<'_>],
) -> Result<()> {
    let mut bytes = Vec::new();
    for field in fields {
        if !bytes.is_empty() {
            bytes.push(0);
        }
        bytes.extend_from_slice(field.as_ref());
    }
    if bytes.len() > PACKET || descriptors.len() > DESCRIPTORS {
        return Err(Errno::MSGSIZE);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::MSGSIZE);
    }
    loop {
        match sendmsg(
            socket.as_fd(),
            &[IoSlice::new(&bytes)],
            &mut control,
            flags | SendFlags::NOSIGNAL,
        ) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// The [`Message::failure`] among the packets that have arrived.
pub(super) fn failure(socket: impl AsFd) -> Option<String> {
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    if poll(&mut fds, Some(&Timespec::default())) != Ok(1) {
        return None;
    }
    receive(socket).ok()??.failure()
}

/// The next packet. None if the other side has closed. Waits for a packet, unless the socket is non-blocking.
pub(crate) fn receive(socket: impl AsFd) -> Result<Option<Message>> {
    receive_with(RecvFlags::empty(), socket)
}

/// Like [`receive`], but does not wait: EAGAIN if no packet has arrived.
pub(super) fn receive_now(socket: impl AsFd) -> Result<Option<Message>> {
    receive_with(RecvFlags::DONTWAIT, socket)
}

fn receive_with(flags: RecvFlags, socket: impl AsFd) -> Result<Option<Message>> {
    let mut bytes = vec![0; PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(
            socket.as_fd(),
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            flags | RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            // The guardian has ended before it read all of our packets.
            Err(Errno::CONNRESET) => return Ok(None),
            Err(e) => return Err(e),
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    let descriptors = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    Ok(Some(Message {
        fields: bytes.split(|b| *b == 0).map(<[u8]>::to_vec).collect(),
        descriptors,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn a_packet_arrives_as_it_was_sent() {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("sockets");
        send(&one, &["join", "", "/a b"], &[one.as_fd(), other.as_fd()]).expect("room");
        let message = receive(&other).expect("a packet").expect("not closed");
        assert_eq!(message.verb(), b"join");
        assert_eq!(message.fields, [&b"join"[..], b"", b"/a b"]);
        assert_eq!(message.descriptors.len(), 2);
        drop((one, message));
        assert!(receive(&other).expect("the end").is_none());
        assert_eq!(
            send(&other, &[vec![b'x'; PACKET + 1]], &[]),
            Err(Errno::MSGSIZE)
        );
    }
}
