//! Reads whole files into the page cache.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use brisk_io::{
    DiskReads, Extent, Prefetch, PrefetchCounts, PrefetchFiles, PrefetchOptions, plan_extents,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use super::budget;
use super::disk::{Disk, reopen};
use super::profile_replay::THREADS;
use crate::error::{Action, Cause, Error, Result};

/// Reads `files` into the page cache, completely and in this order, and waits until they are there. A file
/// that is not regular or may not be read counts as missing, with the given length. Reads at most `budget`
/// bytes, and at most half of the free memory.
///
/// # Errors
///
/// `Io` if no thread can be started.
pub fn warm(files: Vec<(PathBuf, u64)>, budget: Option<u64>) -> Result<PrefetchCounts> {
    let options = PrefetchOptions::new(budget::budget(budget)).threads(THREADS.get());
    // Whole files have no gaps between ranges, so the charge makes no difference.
    let reads = Disk::NONE.reads();
    let ranges = (0u32..).zip(&files).map(|(file, (_, len))| Extent {
        file,
        offset: 0,
        len: *len,
    });
    let (ranges, left_out) = budget::within(ranges, options.budget);
    let extents = plan_extents(ranges, |_| reads);
    let held = files.iter().map(|_| Mutex::default()).collect();
    let whole = WholeFiles { files, held, reads };
    let prefetch = Prefetch::start(extents, options, whole).map_err(|e| {
        let cause = Cause::io("start the threads that read", e);
        Error::new(Action::Replay, cause)
    })?;
    let mut counts = prefetch.wait();
    counts.over_budget = counts.over_budget.saturating_add(left_out);
    Ok(counts)
}

/// Files that are opened when they are needed.
struct WholeFiles {
    files: Vec<(PathBuf, u64)>,
    held: Vec<Mutex<Weak<File>>>,
    reads: DiskReads,
}

impl PrefetchFiles for WholeFiles {
    fn open(&self, extent: &Extent) -> Option<Arc<File>> {
        let at = extent.file as usize;
        let held = self.held.get(at)?;
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        // A file is closed as soon as no read of it is in progress, because a tree has more files than may be
        // open at once.
        if let Some(file) = held.upgrade() {
            return Some(file);
        }
        let file = Arc::new(find(self.files.get(at)?).ok()?);
        *held = Arc::downgrade(&file);
        Some(file)
    }

    fn reads(&self, _: u32) -> DiskReads {
        self.reads
    }
}

/// Opens a file without waiting for the writer of a pipe, and without following a link at its end.
fn find((path, _): &(PathBuf, u64)) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => reopen(&file),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}
