use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brisk_io::{Need, Touch, cache_home, load};

use crate::cached_code::{CodeFile, StoredCode};
use crate::disk::RealDisk;
use crate::promise::Promise;
use crate::store::Store;
use crate::value_file::value_file;
use crate::{About, Cache, CacheOptions, CachedCode, CodeKey, Durability, fingerprint};

/// Generated code on disk, found by what it was [made from](CodeKey), and mapped.
///
/// For programs that generate code while they run and want to find it again the next time: virtual machines, engines of
/// WebAssembly or SQL, shader compilers.
///
/// It is a [`Cache`] whose values have files of their own. So each can be mapped by itself, also to be patched, and can become
/// executable.
///
/// # Promises
///
/// 1. [`CodeCache::load`] returns exactly the bytes that were [stored](CodeCache::store) under an equal key. Everything
///    else is a miss, and [counted](Cache::counts): an entry of another key or of another version of the format, one that
///    is damaged or truncated, and one whose writer was killed. With [`Check::Touched`], this promise covers what was
///    [checked](CachedCode::checked). With [`Check::Never`], it holds as long as disks lose nothing.
/// 2. Any number of threads and processes may load, store and evict at once. Storing replaces an entry. Code that was
///    loaded before stays valid.
/// 3. Only this user and root can have written what is loaded.
///
/// [`CodeCache::open`] copies code when it loads it; [`CodeCache::open_mapped`] maps it. If a disk fails under a mapping,
/// that ends the process, also while the code is checked. After [`guard_mappings`](brisk_io::guard_mappings) it is an
/// error instead.
///
/// # Example
///
/// ```
/// use brisk_cache::{CodeCache, CodeCacheOptions, CodeKey};
/// use brisk_io::{Need, cpu_features};
///
/// # fn main() -> std::io::Result<()> {
/// # let home = tempfile::tempdir()?;
/// # let directory = home.path().join("code");
/// # let compile = |source: &str| source.as_bytes().to_vec();
/// let cache = CodeCache::open(&directory, CodeCacheOptions::default())?;
/// let source = "answer: 42";
/// let key = CodeKey {
///     producer: "example",
///     version: env!("CARGO_PKG_VERSION"),
///     cpu_features: cpu_features(),
///     flags: "opt-level=2",
///     source: source.as_bytes(), // a digest, if it is longer
/// };
/// if cache.load(&key, Need::default())?.is_none() {
///     cache.store(&key, &compile(source))?;
/// }
/// let code = cache.load(&key, Need::default())?.expect("it was stored");
/// assert_eq!(code.as_slice(), b"answer: 42");
/// println!("loaded by {}: {}", code.loaded().strategy(), code.loaded().reason());
/// # Ok(())
/// # }
/// ```
///
/// # What it does not do
///
/// * Make memory executable: the generator does that, with [`CachedCode::file`] or [`CachedCode::as_mut_slice`].
/// * Know whether code is right: if a producer generates different code from the same key, a part of the key is missing.
#[derive(Debug)]
pub struct CodeCache {
    cache: Arc<Cache>,
    check: Check,
    /// Only if the caller who opened it promised that nobody changes its files.
    promise: Option<Promise>,
}

/// Options of a [`CodeCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeCacheOptions {
    pub(crate) limit: u64,
    pub(crate) check: Check,
}

impl Default for CodeCacheOptions {
    /// At most 1 GiB, checked at open.
    fn default() -> Self {
        Self {
            limit: 1 << 30,
            check: Check::AtOpen,
        }
    }
}

impl CodeCacheOptions {
    /// At most 1 GiB, checked at open.
    pub fn new() -> Self {
        Self::default()
    }

    /// The most bytes of all files together. Those that have been unused for the longest time are removed first. A piece
    /// of code may have a quarter of it.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// When to compare the content of an entry with what was stored.
    #[must_use]
    pub fn check(mut self, check: Check) -> Self {
        self.check = check;
        self
    }
}

/// When to compare the content of an entry with what was stored. Its head and key are always checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Check {
    /// All of it, before [`CodeCache::load`] returns. That brings all of it into memory, so it is loaded as for a caller
    /// that touches everything, whatever the need says.
    #[default]
    AtOpen,
    /// Piece by piece, when [`CachedCode::checked`] asks for it.
    Touched,
    /// Not at all, for a disk that loses nothing. [`CodeCache::store`] writes code to the disk before it returns. Code
    /// that was stored with another setting is checked at open all the same.
    Never,
}

/// The layout of an entry that the kernel writes to the disk when it likes.
const RELAXED: u64 = fingerprint("generated code");

/// The layout of an entry that was on the disk before it was published.
const SYNCED: u64 = fingerprint("generated code, synced");

impl CodeCache {
    /// Opens the cache in this directory. What is loaded from it is copied. If the directory does not exist, `open` makes
    /// it, for this user alone.
    ///
    /// # Errors
    ///
    /// As [`Cache::open`].
    pub fn open(directory: &Path, options: CodeCacheOptions) -> io::Result<Self> {
        Self::of(directory, options, None)
    }

    pub(crate) fn of(
        directory: &Path,
        options: CodeCacheOptions,
        promise: Option<Promise>,
    ) -> io::Result<Self> {
        let durability = match options.check {
            Check::Never => Durability::Durable,
            _ => Durability::Relaxed,
        };
        let settings = CacheOptions::new()
            .limit(options.limit)
            .durability(durability);
        let mut store = Store::open(directory, settings, promise, Arc::new(RealDisk))?;
        store.most_shared = 0;
        let is_mapped = store.reading()?.is_mapped();
        let promise = promise.filter(|_| is_mapped);
        store.reads_values = true;
        Ok(Self {
            cache: Arc::new(Cache::of(store)),
            check: options.check,
            promise,
        })
    }

    /// Whether a value with this [fingerprint](crate::About::fingerprint) is generated code.
    pub fn is_code(fingerprint: u64) -> bool {
        matches!(fingerprint, RELAXED | SYNCED)
    }

    /// `$XDG_CACHE_HOME/brisk/code`, else `~/.cache/brisk/code`. None if neither variable is the path of a directory. All
    /// programs of the user may share it, because the producer is a part of the key.
    pub fn default_directory() -> Option<PathBuf> {
        Some(cache_home()?.join("brisk/code"))
    }

    /// Looks for the code of `key`, and brings it into memory in the way that suits `need`, as
    /// [`load`](brisk_io::load) does. With [`Form::Patched`](brisk_io::Form::Patched) the memory is writable, and the entry
    /// does not change. If there is none, generate it and [store](CodeCache::store) it.
    ///
    /// # Errors
    ///
    /// Those of the system, for example if a disk fails or there are too few descriptors or too little memory. A bad entry
    /// is not an error but a miss. [`io::ErrorKind::InvalidInput`] if the key has more than 16 KiB.
    pub fn load(&self, key: &CodeKey<'_>, need: Need) -> io::Result<Option<CachedCode>> {
        let key = key.encode()?;
        let store = &self.cache.store;
        let Some(found) = value_file(store, &key)? else {
            return Ok(None);
        };
        let check = match (self.check, found.fingerprint) {
            (Check::Never, RELAXED) => Check::AtOpen,
            (check, RELAXED | SYNCED) => check,
            _ => {
                store.counters.unknown.add(1);
                return Ok(None);
            }
        };
        let need = match check {
            // The check touches all of it.
            Check::AtOpen => need.touch(Touch::All),
            Check::Touched | Check::Never => need,
        };
        let file = match self.promise {
            Some(promise) => CodeFile::Immutable(promise.immutable(found.file)),
            None => CodeFile::Plain(found.file),
        };
        let loaded = load(file.source(), found.value.clone(), need)?;
        let code = CachedCode::new(loaded, file, found.value);
        let entry = StoredCode {
            cache: Arc::clone(&self.cache),
            key,
        };
        match check {
            Check::Never => Ok(Some(code)),
            Check::Touched => Ok(Some(code.checked_later(found.checks, entry))),
            Check::AtOpen if code.is_whole(&found.checks)? => Ok(Some(code)),
            Check::AtOpen => {
                entry.is_damaged();
                Ok(None)
            }
        }
    }

    /// Stores the code of `key`. It replaces what was stored under it before. Removes other entries if the cache would pass
    /// its limit. Other processes find all of the code or nothing of it.
    ///
    /// A power failure soon after may lose it, or leave an entry that is a miss. With [`Check::Never`] it is written to the
    /// disk first.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the key has more than 16 KiB. As [`Cache::insert`].
    pub fn store(&self, key: &CodeKey<'_>, code: &[u8]) -> io::Result<()> {
        let fingerprint = match self.check {
            Check::Never => SYNCED,
            Check::AtOpen | Check::Touched => RELAXED,
        };
        let about = About {
            fingerprint,
            bucket: 0,
        };
        self.cache.insert(&key.encode()?, code, about)
    }

    /// Removes the code of `key`, and returns whether there was any. For code that turns out to be unusable.
    ///
    /// # Errors
    ///
    /// As [`CodeCache::load`] and [`Cache::remove`].
    pub fn remove(&self, key: &CodeKey<'_>) -> io::Result<bool> {
        self.cache.remove(&key.encode()?)
    }

    /// The cache that has the code, for its counts and totals, and to clear it. Values that [`Cache::insert`] puts there are
    /// no code, and misses.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }
}
