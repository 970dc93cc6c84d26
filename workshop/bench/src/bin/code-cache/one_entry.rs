//! A cache that has one entry.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use brisk_cache::{CachedCode, Check, CodeCache, CodeCacheOptions, CodeKey};
use brisk_io::{Need, cpu_features};

/// A cache with one entry, and its file.
pub(crate) struct OneEntry {
    directory: PathBuf,
    key: OwnedKey,
    file: PathBuf,
}

/// The key, with owned fields.
pub(crate) struct OwnedKey {
    pub(crate) flags: String,
    pub(crate) source: [u8; 32],
}

impl OwnedKey {
    fn key(&self) -> CodeKey<'_> {
        CodeKey {
            producer: "wasmtime",
            // The flags have the exact version.
            version: "48",
            cpu_features: cpu_features(),
            flags: &self.flags,
            source: &self.source,
        }
    }
}

impl OneEntry {
    /// Stores `code`, also on the disk, so that it may be loaded without a check.
    pub(crate) fn new(directory: PathBuf, key: OwnedKey, code: &[u8]) -> Result<Self> {
        cache(&directory, Check::Never)?.store(&key.key(), code)?;
        let mut values = Vec::new();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            values.extend((path.extension() == Some("value".as_ref())).then_some(path));
        }
        ensure!(values.len() == 1, "the cache has not one entry: {values:?}");
        let file = values.remove(0);
        Ok(Self {
            directory,
            key,
            file,
        })
    }

    /// The entry's file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn load(&self, check: Check, need: Need) -> Result<CachedCode> {
        let found = cache(&self.directory, check)?.load(&self.key.key(), need)?;
        found.context("the cache has lost its entry")
    }
}

fn cache(directory: &Path, check: Check) -> Result<CodeCache> {
    let options = CodeCacheOptions::new().check(check);
    #[allow(unsafe_code)] // The promise that a mapped cache asks for.
    // SAFETY: the directory belongs to this benchmark, and nothing writes to an entry's file after it was
    // stored.
    Ok(unsafe { CodeCache::open_mapped(directory, options) }?)
}
