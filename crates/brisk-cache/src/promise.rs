#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use brisk_io::{AppendOnlyFile, ImmutableFile};

use crate::disk::RealDisk;
use crate::store::Store;
use crate::{Cache, CacheOptions, CodeCache, CodeCacheOptions};

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
}

impl Promise {
    /// The file of a value that has one to itself.
    pub(crate) fn immutable(self, file: File) -> ImmutableFile {
        // SAFETY: it needs that nobody changes or cuts the file from now on. A slot with a right check names it, so it is
        // published as a whole: its writer gave it its name before it wrote the slot. The caller of
        // `CodeCache::open_mapped` promised that nobody changes what is published.
        unsafe { ImmutableFile::new(file) }
    }
}

impl CodeCache {
    /// Like [`CodeCache::open`], but what is loaded is mapped if that is faster, where the filesystem is known to be a
    /// local one. Processes then share its memory.
    ///
    /// # Safety
    ///
    /// As [`Cache::open_mapped`], also for what was loaded.
    ///
    /// # Errors
    ///
    /// As [`CodeCache::open`].
    pub unsafe fn open_mapped(directory: &Path, options: CodeCacheOptions) -> io::Result<Self> {
        // SAFETY: the caller promises for this directory what `Promise::new` asks, and only files of this directory
        // are given to it.
        let promise = unsafe { Promise::new() };
        Self::of(directory, options, Some(promise))
    }
}

impl Cache {
    /// Like [`Cache::open`], but a [`Hit`](crate::Hit) borrows its value from a mapping, where the filesystem is known to be a local
    /// one. Elsewhere it is copied.
    ///
    /// # Safety
    ///
    /// As long as anything lives that this cache has returned, no process changes, cuts or punches holes into what is
    /// published in the files of the directory. Every version of brisk keeps this: it writes each range once, before a
    /// slot names it, and removes files only by their names. Only this user, root, and the group of
    /// [`CacheOptions::group`] can write there.
    ///
    /// # Errors
    ///
    /// As [`Cache::open`].
    pub unsafe fn open_mapped(directory: &Path, options: CacheOptions) -> io::Result<Self> {
        // SAFETY: the caller promises for this directory what `Promise::new` asks, and only files of this directory
        // are given to it.
        let promise = unsafe { Promise::new() };
        let store = Store::open(directory, options, Some(promise), Arc::new(RealDisk))?;
        Ok(Self::of(store))
    }
}
