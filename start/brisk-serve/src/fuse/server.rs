use std::collections::HashSet;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use brisk_image::Image;
use brisk_launch::error::{Cause, Error, Result};
use rustix::io::Errno;

use super::channel::{Channel, REQUEST, Request};
use super::connection::{FuseConnection, max_read};
use super::directory::ServedDirectory;
use super::file_system::{FileSystem, SeekTo};
use super::image::ServedImage;
use super::node::{Fail, no_entry};
use super::options::ServeOptions;
use super::parked::{ArrivingSource, Parked, ParkedRequest};
use super::read_ahead::ReadAhead;
use super::wire::{
    FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE, GetxattrIn, GetxattrOut, InterruptIn, LseekIn, LseekOut,
    OpenOut, ReadIn, RetrieveIn, SEEK_DATA, SEEK_HOLE, can, op,
};
use crate::action::Action;
use crate::hot_pack::fill::Fill;

/// The longest name, in bytes, as in SquashFS.
const MAX_NAME: usize = 256;

/// The most bytes of a listing in one answer. The kernel asks for less. If a listing is longer, it asks on.
const MAX_LISTED: usize = 1 << 20;

/// How many different faults are reported.
const MAX_FAULTS: usize = 64;

/// Answers requests until the file system is unmounted or the connection aborted.
///
/// This call blocks. The calling thread answers too, together with other threads that end with it. If the
/// system does not allow more threads, the existing ones do everything. It may be called again on the same
/// connection with the same image, after the process that served it has died: nodes are positions in the
/// image, so it knows every node that the kernel holds.
///
/// If the image is damaged or cannot be read, readers get EIO and `options.on_fault` gets the reason.
/// [`ServeOptions::block_cache`] replaces the image's own limit.
///
/// # Errors
///
/// `Io` if requests can no longer be received. The file system has no server then.
pub fn serve(connection: &FuseConnection, image: &Image, options: &ServeOptions) -> Result<()> {
    image.set_block_cache(options.first_block_cache());
    serve_image(connection, image, options)
}

/// Like [`serve`], with the limit that the image has.
pub(crate) fn serve_image(
    connection: &FuseConnection,
    image: &Image,
    options: &ServeOptions,
) -> Result<()> {
    let served = ServedImage::new(image, options);
    let (starting, started) = channel::<()>();
    let result = thread::scope(|scope| {
        if let Some(ahead) = &served.ahead {
            let builder = thread::Builder::new().name("brisk-ahead".into());
            let nodes = served.nodes;
            let starting = starting.clone();
            let run = move || {
                connection.keep_to_storing();
                drop(starting);
                ahead.run(Channel(connection.storing()), nodes, &options.counters);
            };
            if builder.spawn_scoped(scope, run).is_err() {
                // Nobody would take anything from the queue, so nothing is put there.
                ahead.end();
            }
        }
        if let Some(fill) = &options.fill {
            let builder = thread::Builder::new().name("brisk-fill".into());
            let missed = |node, pages| record_missed(options, node, pages);
            let starting = starting.clone();
            let run = move || {
                connection.keep_to_storing();
                drop(starting);
                let channel = Channel(connection.storing());
                fill.run(&channel, image, &options.counters.fill, &missed);
            };
            if builder.spawn_scoped(scope, run).is_err() {
                // Its counters say that nothing was filled.
                fill.end();
            }
        }
        // Waits until no thread is starting any more. A thread that started later would have copies of what
        // this process has opened in the mount by then, and would keep the mount from being unmounted.
        drop(starting);
        started.recv().ok();
        // The scope waits for the threads, so this must run however answering ends.
        let _end = EndOnDrop {
            ahead: served.ahead.as_ref(),
            fill: options.fill.as_deref(),
        };
        answer_all(connection, &served, options)
    });
    if let Some(fill) = &options.fill {
        fill.write_log();
    }
    result
}

/// Ends the threads that work ahead of the program.
struct EndOnDrop<'a> {
    ahead: Option<&'a ReadAhead>,
    fill: Option<&'a Fill>,
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(ahead) = self.ahead {
            ahead.end();
        }
        if let Some(fill) = self.fill {
            fill.end();
        }
    }
}

/// Like [`serve`], from the directory that `directory` holds. When it was opened, nothing may have been
/// mounted on it.
pub(crate) fn serve_directory(
    connection: &FuseConnection,
    directory: &ServedDirectory,
    options: &ServeOptions,
) -> Result<()> {
    answer_all(connection, directory, options)
}

fn answer_all(
    connection: &FuseConnection,
    tree: &impl FileSystem,
    options: &ServeOptions,
) -> Result<()> {
    let server = Server::new(tree, connection.agreed(), options);
    let channels = connection.answering();
    let answer = |i: usize| server.answer(Channel(&channels[i % channels.len()]));
    let result = thread::scope(|scope| {
        for (source, parked) in server.parked() {
            let builder = thread::Builder::new().name("brisk-arrivals".into());
            let server = &server;
            // Without it nothing that is parked would be answered.
            if builder
                .spawn_scoped(scope, move || server.answer_parked(source, parked))
                .is_err()
            {
                return Err(Errno::AGAIN);
            }
        }
        let others: Vec<_> = (1..options.threads)
            .map_while(|i| {
                let name = format!("brisk-answer-{i}");
                let builder = thread::Builder::new().name(name);
                builder.spawn_scoped(scope, move || answer(i)).ok()
            })
            .collect();
        let first = answer(0);
        for (source, parked) in server.parked() {
            parked.end(source);
        }
        others.into_iter().fold(first, |result, other| {
            // Panics during requests are caught, so a thread always ends with a result.
            let other = other.join().unwrap_or(Err(Errno::IO));
            result.and(other)
        })
    });
    result.map_err(|e| Error::new(Action::Serve, Cause::io("receive requests", e)))
}

pub(super) struct Server<'a, T> {
    tree: &'a T,
    /// What was agreed in INIT, as bits of [`can`].
    agreed: u64,
    options: &'a ServeOptions,
    /// Faults of the image that were reported.
    told: Mutex<HashSet<String>>,
    /// What waits for each of [`ServeOptions::arriving`].
    parked: Vec<Parked<'a>>,
}

impl<'a, T: FileSystem> Server<'a, T> {
    pub(super) fn new(tree: &'a T, agreed: u64, options: &'a ServeOptions) -> Self {
        Self {
            tree,
            agreed,
            options,
            told: Mutex::default(),
            parked: options.arriving.iter().map(|_| Parked::default()).collect(),
        }
    }

    /// The files that arrive, and what waits for each.
    fn parked(&self) -> impl Iterator<Item = (&'a ArrivingSource, &Parked<'a>)> {
        let sources = self.options.arriving.iter().map(|source| &**source);
        sources.zip(&self.parked)
    }

    /// Answers the requests of `channel` until it ends. Each request that has an answer gets exactly one.
    pub(super) fn answer(&self, channel: Channel<'a>) -> Result<(), Errno> {
        // Every page is written to, so that none is missing. The kernel answers a request with EIO if it
        // cannot copy it, and it does not load a missing page for a process that is being killed.
        let mut buf = vec![1; REQUEST];
        while let Some(request) = channel.receive(&mut buf)? {
            let header = &request.header;
            self.options.counters.request(header.opcode, header.unique);
            self.answer_one(channel, &request)?;
        }
        Ok(())
    }

    /// Answers a request, or parks it.
    fn answer_one(&self, channel: Channel<'a>, request: &Request<'_>) -> Result<(), Errno> {
        // A fault of this program must not make somebody wait forever for an answer.
        let begun = Instant::now();
        let answer = || match self.dispatch(channel, request) {
            Err(Fail::Image(error)) => {
                self.tell(&error);
                Err(Errno::IO)
            }
            Err(Fail::Absent(absent)) => {
                let lacks = |source: &ArrivingSource| source.image.arriving().lacks(&absent);
                match self.parked().find(|(source, _)| lacks(source)) {
                    Some((source, parked)) => {
                        let (bytes, absent) = (request.to_bytes(), absent.bytes);
                        parked.park(&source.image, channel, request, &bytes, absent);
                        Ok(())
                    }
                    None => Err(Errno::IO),
                }
            }
            Err(Fail::Errno(errno)) => Err(errno),
            Ok(()) => Ok(()),
        };
        let answered = catch_unwind(AssertUnwindSafe(answer));
        self.options.counters.took(request.header.opcode, begun);
        let errno = match answered {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(errno)) => errno,
            Err(_) => Errno::IO,
        };
        if op::is_answered(request.header.opcode) {
            channel.reply_error(request.header.unique, errno)?;
        }
        Ok(())
    }

    /// Answers a request, unless it fails.
    fn dispatch(&self, channel: Channel<'a>, request: &Request<'_>) -> Result<(), Fail> {
        let unique = request.header.unique;
        let node = request.header.nodeid;
        match request.header.opcode {
            op::LOOKUP => self.lookup(channel, request)?,
            op::NOTIFY_REPLY => {
                if let Some(fill) = &self.options.fill {
                    let RetrieveIn { size, .. } = request.read()?;
                    fill.hear(unique, size > 0);
                }
            }
            op::INTERRUPT => {
                let InterruptIn { unique } = request.read()?;
                // It may be parked in any of them, or not yet.
                for killed in self
                    .parked
                    .iter()
                    .filter_map(|parked| parked.interrupt(unique))
                {
                    killed.channel.reply_error(unique, Errno::INTR)?;
                }
            }
            // The server keeps nothing for a node, so it has nothing to forget. It answers an interrupted
            // request that is not parked as soon as any other. None of these requests has an answer.
            code if !op::is_answered(code) => {}
            op::GETATTR => {
                channel.reply(unique, &self.tree.attributes(node)?)?;
            }
            op::READLINK => channel.reply_bytes(unique, &self.tree.link(node)?)?,
            op::OPEN if !self.agrees(can::NO_OPEN) => {
                channel.reply(unique, &opened(FOPEN_KEEP_CACHE))?;
            }
            op::OPENDIR if !self.agrees(can::NO_OPENDIR) => {
                channel.reply(unique, &opened(FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR))?;
            }
            op::READ => self.read(channel, request)?,
            op::READDIR | op::READDIRPLUS => {
                let plus = request.header.opcode == op::READDIRPLUS;
                let ReadIn { offset, size, .. } = request.read()?;
                let size = usize::try_from(size).map_or(MAX_LISTED, |size| size.min(MAX_LISTED));
                let part = self.tree.list(node, offset, size, plus)?;
                if let (Some(recorder), true) = (&self.options.recorder, plus) {
                    recorder.listed(node, &part);
                }
                channel.reply_bytes(unique, &part)?;
            }
            op::LSEEK => {
                let LseekIn { offset, whence, .. } = request.read()?;
                let to = match whence {
                    SEEK_DATA => SeekTo::Data,
                    SEEK_HOLE => SeekTo::Hole,
                    _ => return Err(Errno::INVAL.into()),
                };
                let offset = self.tree.seek(node, offset, to)?;
                channel.reply(unique, &LseekOut { offset })?;
            }
            op::STATFS => channel.reply(unique, &self.tree.statistics()?)?,
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
            // After this answer the kernel does these itself and does not ask again: OPEN and OPENDIR, FLUSH,
            // FSYNC, ACCESS (by the mode, as the mount says), POLL, and requests that are not known
            // yet.
            _ => return Err(Errno::NOSYS.into()),
        }
        Ok(())
    }

    fn agrees(&self, flag: u64) -> bool {
        self.agreed & flag != 0
    }

    fn lookup(&self, channel: Channel<'_>, request: &Request<'_>) -> Result<(), Fail> {
        let name = request.name(0)?;
        if name.len() > MAX_NAME {
            return Err(Errno::NAMETOOLONG.into());
        }
        // The kernel resolves these itself. In a directory that is served they would lead out of it.
        if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
            return Err(Errno::INVAL.into());
        }
        let directory = request.header.nodeid;
        let entry = self.tree.look_up(directory, name)?;
        if let Some(recorder) = &self.options.recorder {
            recorder.looked_up(directory, name, entry.as_ref());
        }
        let entry = entry.unwrap_or_else(no_entry);
        Ok(channel.reply(request.header.unique, &entry)?)
    }

    fn read(&self, channel: Channel<'_>, request: &Request<'_>) -> Result<(), Fail> {
        let ReadIn { offset, size, .. } = request.read()?;
        // A shorter answer would be the end of the file.
        if size > max_read() {
            return Err(Errno::INVAL.into());
        }
        let node = request.header.nodeid;
        match (&self.options.fill, &self.options.recorder) {
            (Some(fill), _) => {
                let missed = |node, pages| record_missed(self.options, node, pages);
                fill.asked(&self.options.counters.fill, &missed, node, offset, size);
            }
            (None, Some(recorder)) => recorder.read(node, offset, size.into()),
            (None, None) => {}
        }
        let mut answer = |bytes: &[IoSlice<'_>]| channel.reply_slices(request.header.unique, bytes);
        let len = self.tree.read(node, offset, size, &mut answer)?;
        self.options.counters.read(len);
        Ok(())
    }

    fn getxattr(&self, channel: Channel<'_>, request: &Request<'_>) -> Result<(), Fail> {
        let GetxattrIn { size, .. } = request.read()?;
        let name = request.name(size_of::<GetxattrIn>())?;
        let value = self.tree.xattr(request.header.nodeid, name)?;
        reply_sized(channel, request, size, &value)
    }

    /// As in every file system, only root sees names that begin with `trusted.`.
    fn listxattr(&self, channel: Channel<'_>, request: &Request<'_>) -> Result<(), Fail> {
        let GetxattrIn { size, .. } = request.read()?;
        let mut names = self.tree.xattr_names(request.header.nodeid)?;
        if request.header.uid != 0 {
            let allowed = names
                .split_inclusive(|&b| b == 0)
                .filter(|name| !name.starts_with(b"trusted."));
            names = allowed.flatten().copied().collect();
        }
        reply_sized(channel, request, size, &names)
    }

    /// Answers what is parked when its bytes arrive, until the connection ends.
    fn answer_parked(&self, source: &ArrivingSource, waiting: &Parked<'a>) {
        let again = |parked: ParkedRequest<'a>| {
            // It was parsed before.
            if let Ok(request) = Request::parse(&parked.bytes) {
                // After the end of the connection nobody waits.
                self.answer_one(parked.channel, &request).ok();
            }
        };
        let fail = |parked: ParkedRequest<'a>, errno: Errno, why: Option<&str>| {
            if let (Some(_), true, Some(fill)) = (why, source.is_pack, &self.options.fill) {
                fill.lose_pack();
                return again(parked);
            }
            if let Some(why) = why {
                self.tell(&brisk_image::Error::of_source(io::Error::other(why)));
            }
            if let Ok(request) = Request::parse(&parked.bytes) {
                parked
                    .channel
                    .reply_error(request.header.unique, errno)
                    .ok();
            }
        };
        waiting.hear(source, &again, &fail);
    }

    /// Reports a fault of the image, the first time that it occurs.
    fn tell(&self, error: &brisk_image::Error) {
        self.options.counters.fault();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MAX_FAULTS && told.insert(error.to_string()) {
            drop(told);
            (self.options.on_fault)(error);
        }
    }
}

/// Records pages that the kernel asked for and the hot pack lacks.
fn record_missed(options: &ServeOptions, node: u64, pages: Range<u64>) {
    if let Some(recorder) = &options.recorder {
        recorder.read_pages(node, pages);
    }
}

fn opened(open_flags: u32) -> OpenOut {
    OpenOut {
        fh: 0,
        open_flags,
        padding: 0,
    }
}

/// Answers with `value`, or with its length if the asker has no room.
fn reply_sized(
    channel: Channel<'_>,
    request: &Request<'_>,
    room: u32,
    value: &[u8],
) -> Result<(), Fail> {
    let unique = request.header.unique;
    // The image's reader limits values and lists of names to 64 KiB, and so does the kernel.
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
