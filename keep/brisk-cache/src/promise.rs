//! What lets files be borrowed: the promise that nobody changes them.

#![allow(unsafe_code)]

mod open_mapped;

use std::fs::File;

use brisk_io::{AppendOnlyFile, ImmutableFile};

/// The promise of who opened a cache by [`Cache::open_mapped`](crate::Cache::open_mapped): that no process changes or
/// cuts what is published in the cache's directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise(());

impl Promise {
    /// # Safety
    ///
    /// As [`Cache::open_mapped`](crate::Cache::open_mapped), for the directory whose files are given to
    /// [`Promise::append_only`].
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }

    /// A file of the directory, whose published ranges can be borrowed.
    pub(crate) fn append_only(self, file: File) -> AppendOnlyFile {
        // SAFETY: it needs that nobody changes a range from the moment at which it is lent. A handle lends only the
        // ranges that a slot with a right check names: those are published. The caller of `Cache::open_mapped` promised
        // that nobody changes or cuts those. Writers of this crate keep that: they reserve each range once, under the
        // lock, write it before its slot, and never again, and a file only grows and loses its name.
        unsafe { AppendOnlyFile::new(file) }
    }

    /// The file of a value that has one to itself.
    pub(crate) fn immutable(self, file: File) -> ImmutableFile {
        // SAFETY: it needs that nobody changes or cuts the file from now on. A slot with a right check names it, so it is
        // published as a whole: its writer gave it its name before it wrote the slot. The caller of
        // `CodeCache::open_mapped` promised that nobody changes what is published.
        unsafe { ImmutableFile::new(file) }
    }
}
