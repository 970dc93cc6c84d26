//! Opening a cache whose hits borrow from its files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::Promise;
use crate::disk::RealDisk;
use crate::store::Store;
use crate::{Cache, CacheOptions, CodeCache, CodeCacheOptions};

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
