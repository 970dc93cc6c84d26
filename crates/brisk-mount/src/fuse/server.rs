use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread;

use brisk_image::{Image, InodeKind};
use rustix::io::Errno;

use super::ahead::{Ahead, Answered};
use super::channel::{Channel, REQUEST, Request};
use super::connection::FuseConnection;
use super::listing::Listings;
use super::node::{Fail, Nodes};
use super::options::ServeOptions;
use super::readers::Readers;
use super::wire::{
    FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE, GetxattrIn, GetxattrOut, OpenOut, ReadIn, StatfsOut, can, op,
};
use crate::error::{Action, Cause, Error, Result};

/// The longest name, in bytes, as in SquashFS.
const MAX_NAME: usize = 256;

/// Different faults that are told at most.
const MAX_FAULTS: usize = 64;

/// Zeros of holes; longer ones are made of several.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Answers requests until the file system is unmounted or the connection aborted.
///
/// Blocks; the calling thread answers too, beside others that end with it. Where the system lets no
/// more threads be started, those that were do all. May be called again on the same connection,
/// after the process that served it died, with the same image: nodes are places in the image, so
/// every node that the kernel holds is known.
///
/// An image that is damaged or cannot be read gives its readers EIO, and `options.on_fault` the
/// reason. [`ServeOptions::block_cache`] takes the place of the image's own limit.
///
/// # Errors
///
/// `Io` if requests can no longer be received: the file system then has no server.
pub fn serve(connection: &FuseConnection, image: &Image, options: &ServeOptions) -> Result<()> {
    image.set_block_cache(options.block_cache);
    let server = Server {
        nodes: Nodes {
            image,
            owners: options.owners,
        },
        connection,
        options,
        listings: Listings::default(),
        readers: Readers::default(),
        ahead: options.read_ahead.then(Ahead::default),
        told: Mutex::default(),
    };
    let channels = connection.channels();
    let answer = |i: usize| server.answer(Channel(channels[i % channels.len()].as_fd()));
    let result = thread::scope(|scope| {
        if let Some(ahead) = &server.ahead {
            let channel = Channel(connection.channel());
            let builder = thread::Builder::new().name("brisk-ahead".into());
            let run = move || ahead.run(channel, &options.served);
            if builder.spawn_scoped(scope, run).is_err() {
                // Nobody takes what is queued, so nothing is.
                ahead.end();
            }
        }
        let others: Vec<_> = (1..options.threads)
            .map_while(|i| {
                let name = format!("brisk-answer-{i}");
                let builder = thread::Builder::new().name(name);
                builder.spawn_scoped(scope, move || answer(i)).ok()
            })
            .collect();
        let result = others.into_iter().fold(answer(0), |result, other| {
            // Panics of requests are caught, so a thread ends with a result.
            let other = other.join().unwrap_or(Err(Errno::IO));
            result.and(other)
        });
        if let Some(ahead) = &server.ahead {
            ahead.end();
        }
        result
    });
    result.map_err(|e| Error::new(Action::Serve, Cause::io("receive requests", e)))
}

struct Server<'a> {
    nodes: Nodes<'a>,
    connection: &'a FuseConnection,
    options: &'a ServeOptions,
    listings: Listings<'a>,
    readers: Readers,
    ahead: Option<Ahead>,
    /// Faults of the image that were told.
    told: Mutex<HashSet<String>>,
}

impl Server<'_> {
    fn answer(&self, channel: Channel<'_>) -> Result<(), Errno> {
        // Written to, so that no page of it is missing: the kernel ends a request with EIO that it
        // cannot copy, and does not get a missing page for a process that is being killed.
        let mut buf = vec![1; REQUEST];
        while let Some(request) = channel.receive(&mut buf)? {
            let header = &request.header;
            self.options.served.request(header.opcode, header.unique);
            // A fault of this program must not leave somebody waiting for an answer for ever.
            let answered = catch_unwind(AssertUnwindSafe(|| self.dispatch(channel, &request)));
            let errno = match answered {
                Ok(Ok(())) => continue,
                Ok(Err(Fail::Errno(errno))) => errno,
                Ok(Err(Fail::Image(error))) => {
                    self.tell(&error);
                    Errno::IO
                }
                Err(_) => Errno::IO,
            };
            channel.reply_error(request.header.unique, errno)?;
        }
        Ok(())
    }

    /// Answers a request, but for one that fails.
    fn dispatch(&self, channel: Channel<'_>, request: &Request<'_>) -> Result<(), Fail> {
        let unique = request.header.unique;
        let node = request.header.nodeid;
        match request.header.opcode {
            op::LOOKUP => self.lookup(channel, request)?,
            // Nothing is kept for a node, so nothing can be forgotten. An interrupted request is
            // answered as soon as any other. None of these has an answer.
            op::FORGET | op::BATCH_FORGET | op::INTERRUPT => {}
            op::GETATTR => {
                let inode = self.nodes.inode(node)?;
                channel.reply(unique, &self.nodes.attr_out(&inode))?;
            }
            op::READLINK => match self.nodes.inode(node)?.kind() {
                InodeKind::Symlink(target) => channel.reply_bytes(unique, target.as_bytes())?,
                _ => return Err(Errno::INVAL.into()),
            },
            op::OPEN if !self.connection.agrees(can::NO_OPEN) => {
                channel.reply(unique, &opened(FOPEN_KEEP_CACHE))?;
            }
            op::OPENDIR if !self.connection.agrees(can::NO_OPENDIR) => {
                channel.reply(unique, &opened(FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR))?;
            }
            op::READ => self.read(channel, request)?,
            op::READDIR | op::READDIRPLUS => {
                let plus = request.header.opcode == op::READDIRPLUS;
                let ReadIn { offset, size, .. } = request.read()?;
                let size = size as usize;
                let part = self.listings.read(self.nodes, node, offset, size, plus)?;
                channel.reply_bytes(unique, &part)?;
            }
            op::STATFS => channel.reply(unique, &self.statfs())?,
            op::RELEASE | op::RELEASEDIR | op::DESTROY => channel.reply_bytes(unique, &[])?,
            op::GETXATTR => self.getxattr(channel, request)?,
            op::LISTXATTR => self.listxattr(channel, request)?,
            op::IOCTL => return Err(Errno::NOTTY.into()),
            op::SETATTR
            | op::SYMLINK
            | op::MKNOD
            | op::MKDIR
            | op::UNLINK
            | op::RMDIR
            | op::RENAME
            | op::LINK
            | op::WRITE
            | op::SETXATTR
            | op::REMOVEXATTR
            | op::CREATE
            | op::FALLOCATE
            | op::RENAME2
            | op::TMPFILE => return Err(Errno::ROFS.into()),
            // The kernel does these itself, and asks no second time: OPEN and OPENDIR, FLUSH,
            // FSYNC, ACCESS (by the mode, as the mount says), LSEEK, POLL, and what is not known
            // yet.
            _ => return Err(Errno::NOSYS.into()),
        }
        Ok(())
    }

    fn lookup(&self, channel: Channel<'_>, request: &Request<'_>) -> Result<(), Fail> {
        let name = request.name(0)?;
        if name.len() > MAX_NAME {
            return Err(Errno::NAMETOOLONG.into());
        }
        let directory = self.nodes.directory(request.header.nodeid)?;
        let image = self.nodes.image;
        let entry = match image.lookup_in(&directory, OsStr::from_bytes(name))? {
            Some(entry) => self.nodes.entry(&image.entry_inode(&entry)?),
            None => Nodes::no_entry(),
        };
        Ok(channel.reply(request.header.unique, &entry)?)
    }

    /// Answers with slices of decoded blocks. A short answer would mean the end of the file, so
    /// there is all of it or EIO.
    fn read(&self, channel: Channel<'_>, request: &Request<'_>) -> Result<(), Fail> {
        let ReadIn { offset, size, .. } = request.read()?;
        let reader = self.readers.get(self.nodes, request.header.nodeid)?;
        let end = offset.saturating_add(size.into()).min(reader.len());
        let mut pieces = Vec::new();
        let mut at = offset;
        while at < end {
            // At most `size`, which is 32 bits.
            let piece = reader.piece(at, (end - at) as usize)?;
            at += piece.len() as u64;
            pieces.push(piece);
        }
        let mut slices = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            match piece.as_slice() {
                Some(bytes) => slices.push(IoSlice::new(bytes)),
                None => {
                    let mut left = piece.len();
                    while left > 0 {
                        let zeros = &ZEROS[..left.min(ZEROS.len())];
                        slices.push(IoSlice::new(zeros));
                        left -= zeros.len();
                    }
                }
            }
        }
        channel.reply_slices(request.header.unique, &slices)?;
        self.options.served.read(end.saturating_sub(offset));
        if let Some(ahead) = &self.ahead {
            ahead.follow(Answered {
                nodeid: request.header.nodeid,
                reader,
                range: offset..end,
                block_size: self.nodes.image.block_size().into(),
            });
        }
        Ok(())
    }

    /// What the kernel's SquashFS says: all blocks are in use.
    fn statfs(&self) -> StatfsOut {
        let image = self.nodes.image;
        let block_size = image.block_size();
        StatfsOut {
            blocks: image.bytes_used().div_ceil(block_size.into()),
            bfree: 0,
            bavail: 0,
            files: image.inode_count().into(),
            ffree: 0,
            bsize: block_size,
            namelen: MAX_NAME as u32,
            frsize: block_size,
            padding: 0,
            spare: [0; 6],
        }
    }

    fn getxattr(&self, channel: Channel<'_>, request: &Request<'_>) -> Result<(), Fail> {
        let image = self.nodes.image;
        if !image.has_xattrs() {
            // The kernel asks no second time.
            return Err(Errno::NOSYS.into());
        }
        let GetxattrIn { size, .. } = request.read()?;
        let name = request.name(size_of::<GetxattrIn>())?;
        let inode = self.nodes.inode(request.header.nodeid)?;
        let xattrs = image.xattrs(&inode)?;
        let found = xattrs.iter().find(|xattr| xattr.name().as_bytes() == name);
        let value = found.ok_or(Errno::NODATA)?.value();
        reply_sized(channel, request, size, value)
    }

    /// Names of `trusted.` are for root only, as in every file system.
    fn listxattr(&self, channel: Channel<'_>, request: &Request<'_>) -> Result<(), Fail> {
        let image = self.nodes.image;
        if !image.has_xattrs() {
            return Err(Errno::NOSYS.into());
        }
        let GetxattrIn { size, .. } = request.read()?;
        let inode = self.nodes.inode(request.header.nodeid)?;
        let mut names = Vec::new();
        for xattr in image.xattrs(&inode)? {
            let name = xattr.name().as_bytes();
            if request.header.uid == 0 || !name.starts_with(b"trusted.") {
                names.extend_from_slice(name);
                names.push(0);
            }
        }
        reply_sized(channel, request, size, &names)
    }

    /// Tells a fault of the image, the first time that it is met.
    fn tell(&self, error: &brisk_image::Error) {
        self.options.served.fault();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MAX_FAULTS && told.insert(error.to_string()) {
            drop(told);
            (self.options.on_fault)(error);
        }
    }
}

fn opened(open_flags: u32) -> OpenOut {
    OpenOut {
        fh: 0,
        open_flags,
        padding: 0,
    }
}

/// Answers with `value`, or with its length if the asker has room for nothing.
fn reply_sized(
    channel: Channel<'_>,
    request: &Request<'_>,
    room: u32,
    value: &[u8],
) -> Result<(), Fail> {
    let unique = request.header.unique;
    // The image's reader bounds values and lists of names to 64 KiB.
    let size = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    if room == 0 {
        channel.reply(unique, &GetxattrOut { size, padding: 0 })?;
    } else if size > room {
        return Err(Errno::RANGE.into());
    } else {
        channel.reply_bytes(unique, value)?;
    }
    Ok(())
}
