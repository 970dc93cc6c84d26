//! A channel to the kernel: requests come in, answers go out.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use brisk_image::InodeRef;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::node::node_of;
use super::wire::{InHeader, OutHeader, StoreOut, notify};
use crate::hot_pack::fill_target::FillTarget;

/// The longest request in bytes. The kernel wants at least 8 KiB, and itself refuses what does not fit. Only
/// writes could be longer, and no image allows them.
pub(super) const REQUEST: usize = 16 << 10;

/// One descriptor of a connection.
#[derive(Clone, Copy)]
pub(super) struct Channel<'a>(pub(super) BorrowedFd<'a>);

/// A request of the kernel.
pub(super) struct Request<'a> {
    pub(super) header: InHeader,
    pub(super) body: &'a [u8],
}

impl Request<'_> {
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
            match rustix::io::read(self.0, &mut *buf) {
                Ok(n) => break n,
                // ENOENT: the asker gave up before the request was read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(e) => return Err(e),
            }
        };
        let bytes = buf.get(..n).ok_or(Errno::IO)?;
        let (header, body) = InHeader::read_from_prefix(bytes).map_err(|_| Errno::IO)?;
        Ok(Some(Request { header, body }))
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

    /// Makes the kernel send each unanswered request again.
    pub(super) fn resend(self) -> Result<(), Errno> {
        let header = out_header(0, notify::RESEND, 0)?;
        self.write(&[IoSlice::new(header.as_bytes())])
    }

    fn write(self, slices: &[IoSlice<'_>]) -> Result<(), Errno> {
        loop {
            match rustix::io::writev(self.0, slices) {
                // The device takes a message either whole or not at all.
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
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
