//! Copying a large part of a file into memory with several reads at once.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::fs::{Mode, OFlags, open};

use crate::ReadAt;
use crate::page_cache::descriptor_path;
use crate::region::Region;

/// Bytes of one read.
pub(crate) const PIECE: usize = 1 << 20;

/// What the blocks of disks and the pages of memory divide, or are: of the place, the length and the buffer of
/// reads past the page cache ([`open_direct`]).
pub const DIRECT_ALIGNMENT: u64 = 4096;

/// How a transfer goes about it.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// Reads under way at once.
    pub(crate) threads: usize,
    /// A mapping of what is read, through which it is brought into the page cache before it is copied. The
    /// kernel reads through a mapping with large pages in pieces of 2 MiB, each a page of its own; for
    /// `read`, and for advice, it makes many small ones, which takes longer than the disk.
    pub(crate) ahead: Option<Region>,
}

impl Transfer {
    /// Fills the first `needed` bytes of `buf`, or more, from `start` of `file`.
    ///
    /// Reads are of [`PIECE`] bytes, at multiples of it behind `start`: an aligned start and buffer make
    /// all of them aligned.
    pub(crate) fn run(
        &self,
        file: &File,
        start: u64,
        buf: &mut [u8],
        needed: usize,
    ) -> io::Result<()> {
        let len = buf.len();
        let pieces = Mutex::new(buf.chunks_mut(PIECE).enumerate());
        let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || -> io::Result<()> {
            while let Some((number, piece)) = next() {
                let at = number * PIECE;
                if let Some(ahead) = &self.ahead {
                    // The read behind it reports what is wrong.
                    ahead.populate(at..at + piece.len()).ok();
                }
                let needed = needed.saturating_sub(at).min(piece.len());
                if let Err(e) = read_at_least(file, start + at as u64, piece, needed) {
                    // The others have nothing to read any more.
                    while next().is_some() {}
                    return Err(e);
                }
            }
            Ok(())
        };
        let others = self.threads.min(len.div_ceil(PIECE)).saturating_sub(1);
        thread::scope(|scope| {
            // One that cannot be started is done without.
            let started: Vec<_> = (0..others)
                .filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            let own = work();
            let theirs = started.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            // All are waited for, and the first error is told.
            theirs.fold(own, Result::and)
        })
    }
}

/// Reads `file` from byte `at` until `buf` is full or the file ends, which it may after `needed` bytes.
///
/// # Errors
///
/// `UnexpectedEof` if it ends before, and what `pread` says.
pub fn read_at_least(file: &File, at: u64, buf: &mut [u8], needed: usize) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match ReadAt::read_at(file, at + done as u64, &mut buf[done..]) {
            Ok(0) if done >= needed => return Ok(()),
            Ok(0) => return Err(ended_early(at + done as u64, at + needed as u64)),
            // What is past the end is not asked for again: direct reads begin at blocks.
            Ok(n) if done + n >= needed => return Ok(()),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

pub(crate) fn ended_early(at: u64, wanted: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("the file ends at byte {at}, and was to be read up to {wanted}"),
    )
}

/// Reads that are under way at once from the page cache: copying keeps the processors busy.
pub(crate) fn copying_threads() -> usize {
    thread::available_parallelism()
        .map_or(1, NonZeroUsize::get)
        .min(8)
}

/// `file` once more, to be read past the page cache (`O_DIRECT`): into a buffer, from an offset and in a length
/// that [`DIRECT_ALIGNMENT`] divides.
///
/// # Errors
///
/// What `open` says of `/proc/thread-self/fd`, such as `EINVAL` where the file system has no such reads. One that
/// refuses the reads themselves says so then.
pub fn open_direct(file: &File) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    Ok(File::from(open(
        descriptor_path(file),
        flags,
        Mode::empty(),
    )?))
}
