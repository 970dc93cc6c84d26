//! Reads whole files into the page cache.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use brisk_io::{
    DiskReads, Extent, Prefetch, PrefetchCounts, PrefetchFiles, PrefetchOptions, plan_extents,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, SeekFrom, fstat, openat, seek};
use rustix::io::Errno;

use super::budget;
use super::disk::{Disk, reopen};
use super::profile_replay::THREADS;
use crate::error::{Action, Cause, Error, Result};

/// What [`warm`] did.
#[derive(Debug)]
#[non_exhaustive]
pub struct Warmed {
    /// What was asked for.
    pub pages: PrefetchCounts,
    /// Bytes of holes, which are on no disk.
    pub holes: u64,
    /// The files that are there and could not be read, at least in part, and why; in the order in which they were given.
    pub unread: Vec<(PathBuf, io::Error)>,
}

/// Reads `files` into the page cache, completely but for their holes and in this order, and waits until they are there. A
/// file that is not regular, is gone or may not be read counts as missing, with the given length. Reads at most `budget`
/// bytes, and at most half of the free memory.
///
/// # Errors
///
/// `Io` if no thread can be started.
pub fn warm(files: Vec<(PathBuf, u64)>, budget: Option<u64>) -> Result<Warmed> {
    let options = PrefetchOptions::new(budget::budget(budget)).threads(THREADS.get());
    let reads = Disk::NONE.reads();
    let mut holes = 0;
    let ranges = (0u32..).zip(&files).flat_map(|(file, (path, len))| {
        let parts = data_of(path, *len);
        let data: u64 = parts.iter().map(|part| part.end - part.start).sum();
        holes += len - data;
        parts.into_iter().map(move |part| Extent {
            file,
            offset: part.start,
            len: part.end - part.start,
        })
    });
    let (ranges, left_out) = budget::within(ranges, options.budget);
    let extents = plan_extents(ranges, |_| reads);
    let unread = Arc::<Mutex<BTreeMap<u32, _>>>::default();
    let whole = WholeFiles {
        held: files.iter().map(|_| Mutex::default()).collect(),
        files,
        reads,
        unread: Arc::clone(&unread),
    };
    let prefetch = Prefetch::start(extents, options, whole).map_err(|e| {
        let cause = Cause::io("start the threads that read", e);
        Error::new(Action::Replay, cause)
    })?;
    let mut pages = prefetch.wait();
    pages.over_budget = pages.over_budget.saturating_add(left_out);
    let mut unread = unread.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Warmed {
        pages,
        holes,
        unread: std::mem::take(&mut *unread).into_values().collect(),
    })
}

/// The parts of a file of `len` bytes that are in no hole: all of it, where nobody tells holes.
fn data_of(path: &Path, len: u64) -> Vec<Range<u64>> {
    let all = 0..len;
    // Looking for holes takes longer than asking whether there can be one.
    let may_have_holes = |found: fs::Metadata| found.blocks().saturating_mul(512) < len;
    if !fs::symlink_metadata(path).is_ok_and(may_have_holes) {
        return vec![all];
    }
    let Ok(file) = find(path) else {
        return vec![all];
    };
    let mut parts = Vec::new();
    let mut at = 0;
    while at < len {
        let start = match seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => len,
            Err(_) => at,
        };
        let end = seek(&file, SeekFrom::Hole(start)).unwrap_or(len);
        // The file may change meanwhile.
        let part = start.clamp(at, len)..end.clamp(at, len);
        if part.is_empty() {
            break;
        }
        at = part.end;
        parts.push(part);
    }
    parts
}

/// Files that are opened when they are needed.
struct WholeFiles {
    files: Vec<(PathBuf, u64)>,
    held: Vec<Mutex<Weak<File>>>,
    reads: DiskReads,
    /// By the numbers of the files: those that cannot be read, and why.
    unread: Arc<Mutex<BTreeMap<u32, (PathBuf, io::Error)>>>,
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
        let found = find(&self.files.get(at)?.0);
        let file = found.map_err(|e| self.failed(extent, e)).ok()?;
        let file = Arc::new(file);
        *held = Arc::downgrade(&file);
        Some(file)
    }

    fn reads(&self, _: u32) -> DiskReads {
        self.reads
    }

    fn failed(&self, extent: &Extent, error: io::Error) {
        let file = self.files.get(extent.file as usize);
        // What has gone meanwhile has nothing to be read.
        if let Some((path, _)) = file
            && error.kind() != io::ErrorKind::NotFound
        {
            let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
            let failed = || (path.clone(), error);
            unread.entry(extent.file).or_insert_with(failed);
        }
    }
}

/// Opens a file without waiting for the writer of a pipe, and without following a link at its end.
fn find(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => reopen(&file),
        _ => Err(io::Error::other("it is no regular file any more")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn holes_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let data = vec![1; MIB as usize];
        for at in [0, 8 * MIB, (1 << 40) - MIB] {
            file.write_all_at(&data, at).unwrap();
        }
        let expected = [0..MIB, 8 * MIB..9 * MIB, (1 << 40) - MIB..1 << 40];
        assert_eq!(data_of(&path, 1 << 40), expected);
        // It was shorter when it was listed.
        assert_eq!(data_of(&path, 8 * MIB + 1), [0..MIB, 8 * MIB..8 * MIB + 1]);
        assert_eq!(data_of(&path, MIB), [Range { start: 0, end: MIB }]);
        let warmed = warm(vec![(path.clone(), 1 << 40)], None).unwrap();
        let PrefetchCounts {
            asked, resident, ..
        } = warmed.pages;
        assert_eq!(
            (asked + resident, warmed.holes),
            (3 * MIB, (1 << 40) - 3 * MIB)
        );
        assert_eq!(warmed.unread.len(), 0);
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(data_of(&path, 1 << 40), []);
    }

    #[test]
    fn what_cannot_be_read_is_told_and_what_has_gone_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::os::unix::fs::symlink("none", path("link")).unwrap();
        fs::write(path("file"), "text").unwrap();
        let files = ["link", "gone", "file"].map(|name| (path(name), 4));
        let warmed = warm(files.into(), None).unwrap();
        assert_eq!((warmed.pages.missing, warmed.holes), (8, 0));
        let unread: Vec<_> = warmed
            .unread
            .iter()
            .map(|(path, e)| (path, e.to_string()))
            .collect();
        let expected = "it is no regular file any more".to_owned();
        assert_eq!(unread, [(&path("link"), expected)]);
    }
}
