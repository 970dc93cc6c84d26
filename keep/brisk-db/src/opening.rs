//! The promise that opening a database asks for. The only unsafe code of this crate.

#![allow(unsafe_code)]

use std::path::Path;

use brisk_objects::{Error, PageFaults, UntypedDatabase, UntypedWriter};

/// Opens a database to look at it.
pub(crate) fn open(path: &Path) -> Result<UntypedDatabase, Error> {
    // SAFETY: the promise is the user's, as for every program of LMDB: nothing else writes to the file meanwhile. The help of
    // `brisk db` says so.
    unsafe { UntypedDatabase::open(path) }
}

/// Looks at the pages of a database.
pub(crate) fn check_pages(path: &Path) -> Result<PageFaults, Error> {
    // SAFETY: as in `open`.
    unsafe { UntypedDatabase::check_pages(path) }
}

/// Writes to a database, or to a new one. If another program has made the file meanwhile, `add` adds to it what came.
pub(crate) fn write<T>(
    path: &Path,
    limit: u64,
    work: impl FnOnce(&mut UntypedWriter<'_>) -> anyhow::Result<T>,
    add: impl FnOnce(T, &UntypedDatabase, &mut UntypedWriter<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    // SAFETY: as in `open`.
    unsafe { UntypedDatabase::write_or_add(path, limit, work, add) }
}
