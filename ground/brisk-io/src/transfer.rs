//! Copies a large part of a file into memory with several reads at once.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::fs::{Mode, OFlags, open};

use crate::ByteSource;
use crate::page_cache::descriptor_path;
use crate::region::Region;

/// Bytes of one read.
pub(crate) const PIECE: usize = 1 << 20;

/// The alignment of direct reads ([`open_direct`]): of their offset, length and buffer. It is a multiple of
/// every disk's block.
pub const DIRECT_ALIGNMENT: u64 = 4096;

/// How to copy.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// Reads in progress at once.
    pub(crate) threads: usize,
    /// A mapping that brings the file into the page cache before it is copied. Through a mapping the kernel
    /// reads in large pages of 2 MiB. For `read` and for advice it makes many small pages, which takes longer
    /// than the disk.
    pub(crate) ahead: Option<Region>,
}

impl Transfer {
    /// Fills the first `needed` bytes of `buf`, or more, from `start` of `file`.
    ///
    /// Reads have [`PIECE`] bytes, at multiples of it after `start`. So if start and buffer are aligned, all
    /// reads are.
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
                    // The read that follows reports an error.
                    ahead.populate(at..at + piece.len()).ok();
                }
                let needed = needed.saturating_sub(at).min(piece.len());
                if let Err(e) = read_at_least(file, start + at as u64, piece, needed) {
                    // Leave nothing for the other threads.
                    while next().is_some() {}
                    return Err(e);
                }
            }
            Ok(())
        };
        let others = self.threads.min(len.div_ceil(PIECE)).saturating_sub(1);
        thread::scope(|scope| {
            // Fewer threads do as well.
            let started: Vec<_> = (0..others)
                .filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            let own = work();
            let theirs = started.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            // Waits for all of them, and returns the first error.
            theirs.fold(own, Result::and)
        })
    }
}

/// Reads `file` from byte `at` until `buf` is full, or until the file ends after at least `needed` bytes.
///
/// # Errors
///
/// `UnexpectedEof` if it ends before that, and those of `pread`.
pub fn read_at_least(file: &File, at: u64, buf: &mut [u8], needed: usize) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match ByteSource::read_bytes_at(file, at + done as u64, &mut buf[done..]) {
            Ok(0) if done >= needed => return Ok(()),
            Ok(0) => return Err(ended_early(at + done as u64, at + needed as u64)),
            // Does not read again after the end, because a direct read must begin at a block.
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
        format!("the file ends at byte {at}, but was expected to reach {wanted}"),
    )
}

/// How many threads copy from the page cache at once: as many as there are processors, but at most 8.
pub(crate) fn copying_threads() -> usize {
    thread::available_parallelism()
        .map_or(1, NonZeroUsize::get)
        .min(8)
}

/// Opens `file` again for direct reads, past the page cache (`O_DIRECT`). Buffer, offset and length of each
/// read must be multiples of [`DIRECT_ALIGNMENT`].
///
/// # Errors
///
/// Those of opening `/proc/thread-self/fd`, such as `EINVAL` if the filesystem has no direct reads. Some
/// filesystems refuse only the reads.
pub fn open_direct(file: &File) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    Ok(File::from(open(
        descriptor_path(file),
        flags,
        Mode::empty(),
    )?))
}
