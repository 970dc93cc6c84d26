//! A channel to the kernel: requests come in, answers go out.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use brisk_image::InodeRef;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::node::node_of;
use super::wire::{InHeader, OutHeader, RetrieveOut, StoreOut, notify, op};
use crate::hot_pack::fill_target::FillTarget;

/// The longest request in bytes. The kernel wants at least 8 KiB, and itself refuses what does not fit. Only
/// writes could be longer, and no image allows them.
pub(super) const REQUEST: usize = 16 << 10;

/// The most slices of one write, which is `UIO_MAXIOV` of Linux. With more, a write fails.
const SLICES: usize = 1024;

/// The other side of a channel: `/dev/fuse`, or a list of requests in memory.
pub(super) trait Device: Sync {
    /// Reads the next request into `buf`, and returns its length. Waits for it.
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno>;

    /// Writes one message, whole or not at all.
    fn write(&self, message: &[IoSlice<'_>]) -> Result<(), Errno>;
}

impl Device for OwnedFd {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(self, buf)
    }

    fn write(&self, message: &[IoSlice<'_>]) -> Result<(), Errno> {
        rustix::io::writev(self, message).map(|_| ())
    }
}

/// One descriptor of a connection.
#[derive(Clone, Copy)]
pub(super) struct Channel<'a>(pub(super) &'a dyn Device);

/// A request of the kernel.
///
/// 1. The header says its length: `header.len` is that of the header and `body` together.
/// 2. `header.unique` is not 0, because an answer with 0 would be a notification.
pub(super) struct Request<'a> {
    pub(super) header: InHeader,
    pub(super) body: &'a [u8],
}

/// Bytes that are no [`Request`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// They have no whole header.
    Cut,
    /// It breaks invariant 2, so nobody waits for an answer.
    Unanswerable,
    /// It breaks invariant 1. Somebody may wait for an answer with this number.
    Length { unique: u64 },
}

impl<'a> Request<'a> {
    /// Checks what was read from a device.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, body) = InHeader::read_from_prefix(bytes).map_err(|_| Malformed::Cut)?;
        if header.unique == 0 {
            return Err(Malformed::Unanswerable);
        }
        if u64::from(header.len) != bytes.len() as u64 {
            return Err(match op::is_answered(header.opcode) {
                true => Malformed::Length {
                    unique: header.unique,
                },
                false => Malformed::Unanswerable,
            });
        }
        Ok(Self { header, body })
    }
}

impl Request<'_> {
    /// The request as the kernel sent it.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        [self.header.as_bytes(), self.body].concat()
    }

    /// The wire struct at the start of the body. EINVAL if the body is too short for it.
    pub(super) fn read<T: FromBytes>(&self) -> Result<T, Errno> {
        T::read_from_prefix(self.body)
            .map(|(value, _)| value)
            .map_err(|_| Errno::INVAL)
    }

    /// The name in the body, from byte `at` up to a NUL.
    pub(super) fn name(&self, at: usize) -> Result<&[u8], Errno> {
        let rest = self.body.get(at..).ok_or(Errno::INVAL)?;
        let len = rest.iter().position(|&b| b == 0).ok_or(Errno::INVAL)?;
        Ok(&rest[..len])
    }
}

impl Channel<'_> {
    /// Waits for a request. None when the file system is unmounted or the connection aborted.
    pub(super) fn receive<'b>(self, buf: &'b mut [u8]) -> Result<Option<Request<'b>>, Errno> {
        let n = loop {
            let n = match self.0.read(&mut *buf) {
                Ok(n) => n,
                // ENOENT: the asker gave up before the request was read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(e) => return Err(e),
            };
            // The kernel sends no malformed request. Whoever sends one gets an error for it, if an error can
            // be sent, and the next request is answered.
            match Request::parse(buf.get(..n).ok_or(Errno::IO)?) {
                Ok(_) => break n,
                Err(Malformed::Cut) => return Err(Errno::IO),
                Err(Malformed::Unanswerable) => {}
                Err(Malformed::Length { unique }) => self.reply_error(unique, Errno::IO)?,
            }
        };
        let bytes = buf.get(..n).ok_or(Errno::IO)?;
        Ok(Some(Request::parse(bytes).map_err(|_| Errno::IO)?))
    }

    /// Answers with `value`.
    pub(super) fn reply(
        self,
        unique: u64,
        value: &(impl IntoBytes + Immutable),
    ) -> Result<(), Errno> {
        self.reply_bytes(unique, value.as_bytes())
    }

    /// Answers with `bytes`, which may be empty.
    pub(super) fn reply_bytes(self, unique: u64, bytes: &[u8]) -> Result<(), Errno> {
        let header = out_header(bytes.len(), 0, unique)?;
        answered(self.write(&[IoSlice::new(header.as_bytes()), IoSlice::new(bytes)]))
    }

    /// Answers with the bytes of `slices`.
    pub(super) fn reply_slices(self, unique: u64, slices: &[IoSlice<'_>]) -> Result<(), Errno> {
        if slices.len() >= SLICES {
            // Many small blocks, on a system with large pages.
            let mut bytes = Vec::with_capacity(slices.iter().map(|s| s.len()).sum());
            for slice in slices {
                bytes.extend_from_slice(slice);
            }
            return self.reply_bytes(unique, &bytes);
        }
        let header = out_header(slices.iter().map(|s| s.len()).sum(), 0, unique)?;
        let mut all = Vec::with_capacity(slices.len() + 1);
        all.push(IoSlice::new(header.as_bytes()));
        all.extend_from_slice(slices);
        answered(self.write(&all))
    }

    /// Answers with an error.
    pub(super) fn reply_error(self, unique: u64, error: Errno) -> Result<(), Errno> {
        let header = out_header(0, -error.raw_os_error(), unique)?;
        answered(self.write(&[IoSlice::new(header.as_bytes())]))
    }

    /// Puts `bytes` into the page cache at `offset` of a file. Waits until reads of the same pages are
    /// answered. ENOENT if the kernel does not know the node.
    pub(super) fn store(
        self,
        nodeid: u64,
        offset: u64,
        bytes: &[IoSlice<'_>],
    ) -> Result<(), Errno> {
        let len: usize = bytes.iter().map(|s| s.len()).sum();
        let store = StoreOut {
            nodeid,
            offset,
            size: u32::try_from(len).map_err(|_| Errno::INVAL)?,
            padding: 0,
        };
        let header = out_header(size_of::<StoreOut>() + len, notify::STORE, 0)?;
        let mut all = Vec::with_capacity(bytes.len() + 2);
        all.push(IoSlice::new(header.as_bytes()));
        all.push(IoSlice::new(store.as_bytes()));
        all.extend_from_slice(bytes);
        self.write(&all)
    }

    /// Makes the kernel send a byte of its page cache, at `offset` of a file, in a request `NOTIFY_REPLY` with this
    /// `unique`. Waits for nothing. ENOENT if the kernel does not know the node.
    pub(super) fn retrieve(self, unique: u64, nodeid: u64, offset: u64) -> Result<(), Errno> {
        let retrieve = RetrieveOut {
            unique,
            nodeid,
            offset,
            size: 1,
            padding: 0,
        };
        let header = out_header(size_of::<RetrieveOut>(), notify::RETRIEVE, 0)?;
        self.write(&[
            IoSlice::new(header.as_bytes()),
            IoSlice::new(retrieve.as_bytes()),
        ])
    }

    /// Makes the kernel send each unanswered request again.
    pub(super) fn resend(self) -> Result<(), Errno> {
        let header = out_header(0, notify::RESEND, 0)?;
        self.write(&[IoSlice::new(header.as_bytes())])
    }

    fn write(self, slices: &[IoSlice<'_>]) -> Result<(), Errno> {
        loop {
            match self.0.write(slices) {
                Err(Errno::INTR) => {}
                result => return result,
            }
        }
    }
}

impl FillTarget for Channel<'_> {
    fn node(&self, inode: InodeRef) -> u64 {
        node_of(inode)
    }

    fn store(&self, node: u64, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        Channel::store(*self, node, offset, &[IoSlice::new(bytes)])
    }

    fn ask_whether_cached(&self, question: u64, node: u64, offset: u64) -> Result<(), Errno> {
        self.retrieve(question, node, offset)
    }
}

/// Ignores errors that mean that nobody waits for this answer: ENOENT, if the asker gave up or another server
/// has answered, and the end of the connection, which the next [`Channel::receive`] sees.
fn answered(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => Ok(()),
        result => result,
    }
}

fn out_header(len: usize, error: i32, unique: u64) -> Result<OutHeader, Errno> {
    let len = u32::try_from(size_of::<OutHeader>() + len).map_err(|_| Errno::INVAL)?;
    Ok(OutHeader { len, error, unique })
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// As many blocks of 4 KiB are in a READ of a system with pages of 64 KiB.
    #[test]
    fn an_answer_of_many_slices_is_one_message() {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (kernel, device) = socketpair(AddressFamily::UNIX, kind, flags, None).expect("sockets");
        let bytes: Vec<u8> = (0..4096u32).map(|n| n.to_le_bytes()[0]).collect();
        let slices: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
        for slices in [&slices[..1023], &slices[..1024], &slices[..]] {
            let channel = Channel(&device);
            channel.reply_slices(7, slices).expect("it can be sent");
            let mut message = vec![0; 8192];
            let len = rustix::io::read(&kernel, &mut message).expect("it has arrived");
            assert_eq!(len, 16 + slices.len());
            assert_eq!(message[16..len], bytes[..slices.len()]);
        }
    }

    #[test]
    fn what_is_no_request_is_told_apart() {
        let header = |len, opcode, unique| InHeader {
            len,
            opcode,
            unique,
            nodeid: 1,
            uid: 0,
            gid: 0,
            pid: 1,
            total_extlen: 0,
            padding: 0,
        };
        for (header, malformed) in [
            (header(40, op::GETATTR, 5), None),
            (
                header(39, op::GETATTR, 5),
                Some(Malformed::Length { unique: 5 }),
            ),
            (
                header(41, op::GETATTR, 5),
                Some(Malformed::Length { unique: 5 }),
            ),
            (
                header(u32::MAX, op::FORGET, 5),
                Some(Malformed::Unanswerable),
            ),
            (header(40, op::GETATTR, 0), Some(Malformed::Unanswerable)),
        ] {
            let bytes = header.as_bytes();
            assert_eq!(Request::parse(bytes).err(), malformed, "{header:?}");
            let cut = Request::parse(&bytes[..39]).err();
            assert_eq!(cut, Some(Malformed::Cut));
        }
    }
}
