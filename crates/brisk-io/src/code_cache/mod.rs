//! A cache of generated code in a directory of files.

mod cached_code;
mod directory;
mod entry;
mod key;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

pub use cached_code::CachedCode;
pub use entry::Damage;
pub use key::CodeKey;

use crate::{LoadSource, Need, Touch, cache_home, load};
use directory::{Directory, note_use};
use entry::{Entry, Unusable};
use key::file_name;

/// Generated code on disk, found by what it was [made from](CodeKey), and mapped.
///
/// For programs that generate code while they run and want to find it again the next time: virtual machines,
/// engines of WebAssembly or SQL, shader compilers.
///
/// # Promises
///
/// 1. [`CodeCache::load`] returns exactly the bytes that were [stored](CodeCache::store) under an equal key.
///    An entry of another key or of another version of the format is a [`Miss`]. So is one that is damaged or
///    truncated, and one whose writer was killed. With [`Check::Touched`], this promise covers what was
///    [checked](CachedCode::checked). With [`Check::Never`], it holds as long as disks lose nothing.
/// 2. Any number of threads and processes may load, store and evict at once. Storing replaces an entry. Code
///    that was loaded before stays valid.
/// 3. Only this user and root can have written what is loaded.
///
/// [`CodeCache::open`] copies code when it loads it; [`CodeCache::open_mapped`] maps it. If a disk fails
/// under a mapping, that ends the process, also while the code is checked. After
/// [`guard_mappings`](crate::guard_mappings) it is an error instead.
///
/// # Example
///
/// ```
/// use brisk_io::{CodeCache, CodeCacheOptions, CodeKey, Lookup, Need, cpu_features};
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
/// if let Lookup::Miss(_) = cache.load(&key, Need::default())? {
///     cache.store(&key, &compile(source))?;
/// }
/// let code = cache.load(&key, Need::default())?.hit().expect("it was stored");
/// assert_eq!(code.as_slice(), b"answer: 42");
/// println!("loaded by {}: {}", code.loaded().strategy(), code.loaded().reason());
/// # Ok(())
/// # }
/// ```
///
/// # What it does not do
///
/// * Make memory executable: the generator does that, with [`CachedCode::file`] or
///   [`CachedCode::as_mut_slice`].
/// * Know whether code is right: if a producer generates different code from the same key, a part of the key
///   is missing.
#[derive(Debug)]
pub struct CodeCache {
    directory: Arc<Directory>,
    options: CodeCacheOptions,
    /// True only if the caller who opened it promised that nobody changes its files.
    immutable: bool,
}

/// Options of a [`CodeCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CodeCacheOptions {
    /// The most bytes of all entries together. Entries that have been unused for the longest time are
    /// removed first.
    pub limit: u64,
    /// When to compare the content of an entry with what was stored.
    pub check: Check,
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

    /// The most bytes that all entries together have.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// When the content of an entry is compared with what was stored.
    #[must_use]
    pub fn check(mut self, check: Check) -> Self {
        self.check = check;
        self
    }
}

/// When to compare the content of an entry with what was stored. Its header and key are always checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Check {
    /// All of it, before [`CodeCache::load`] returns. That brings all of it into memory, so it is loaded as
    /// for a caller that touches everything, whatever the need says.
    #[default]
    AtOpen,
    /// Piece by piece, when [`CachedCode::checked`] asks for it.
    Touched,
    /// Not at all, for a disk that loses nothing. [`CodeCache::store`] writes code to the disk before it
    /// returns. Code that was stored with another setting is checked at open all the same.
    Never,
}

/// The result of [`CodeCache::load`].
#[derive(Debug)]
pub enum Lookup {
    /// The code.
    Hit(CachedCode),
    /// No usable code.
    Miss(Miss),
}

impl Lookup {
    /// The code, if there is some.
    pub fn hit(self) -> Option<CachedCode> {
        match self {
            Self::Hit(code) => Some(code),
            Self::Miss(_) => None,
        }
    }
}

/// Why there is no code. In each case, generate it and [store](CodeCache::store) it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Miss {
    /// There is no entry.
    Absent,
    /// The entry belongs to another key, with the same digest.
    Foreign,
    /// This user may not open the entry.
    Closed,
    /// The entry is not as it was written, or others could have written it.
    Damaged {
        /// What is wrong.
        damage: Damage,
        /// Why the entry is still there, if it could not be removed.
        kept: Option<io::Error>,
    },
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("no entry"),
            Self::Foreign => f.write_str("the entry belongs to another key with the same digest"),
            Self::Closed => f.write_str("this user may not open the entry"),
            Self::Damaged { damage, kept: None } => damage.fmt(f),
            Self::Damaged {
                damage,
                kept: Some(e),
            } => write!(f, "{damage} (it could not be removed: {e})"),
        }
    }
}

/// What was removed to keep a [`CodeCache`] within its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Evicted {
    /// How many entries.
    pub entries: usize,
    /// The size of all of them.
    pub bytes: u64,
}

impl CodeCache {
    /// Opens the cache in this directory. What is loaded from it is copied. If the directory does not exist,
    /// `open` makes it, for this user alone.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::PermissionDenied`] if the directory belongs to neither this user nor root, or if
    /// others may write there. Otherwise those of the system.
    pub fn open(directory: &Path, options: CodeCacheOptions) -> io::Result<Self> {
        Ok(Self {
            directory: Arc::new(Directory::open(directory)?),
            options,
            immutable: false,
        })
    }

    /// Like [`CodeCache::open`], but what is loaded is mapped if that is faster. Processes then share its
    /// memory.
    ///
    /// # Safety
    ///
    /// As long as anything that was loaded from the cache lives, no process changes or truncates a file in
    /// its directory. No version of brisk does: a store writes a new file, and an eviction removes a name.
    /// Only this user and root can write there.
    ///
    /// # Errors
    ///
    /// As [`CodeCache::open`].
    pub unsafe fn open_mapped(directory: &Path, options: CodeCacheOptions) -> io::Result<Self> {
        Ok(Self {
            immutable: true,
            ..Self::open(directory, options)?
        })
    }

    /// `$XDG_CACHE_HOME/brisk/code`, else `~/.cache/brisk/code`. None if neither variable is the path of a
    /// directory. All programs of the user may share it, because the producer is a part of the key.
    pub fn default_directory() -> Option<PathBuf> {
        Some(cache_home()?.join("brisk/code"))
    }

    /// Looks for the code of `key`, and brings it into memory in the way that suits `need`, as
    /// [`load`](crate::load) does. With [`Form::Patched`](crate::Form::Patched) the memory is writable, and
    /// the entry does not change.
    ///
    /// # Errors
    ///
    /// Those of the system, for example if a disk fails or there are too few descriptors or too little
    /// memory. A bad entry is not an error but a [`Miss`]. [`io::ErrorKind::InvalidInput`] if the key has
    /// more than 16 KiB.
    pub fn load(&self, key: &CodeKey<'_>, need: Need) -> io::Result<Lookup> {
        let encoded = key.encode()?;
        let name = file_name(&encoded);
        let file = match self.directory.entry(&name) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Lookup::Miss(Miss::Absent)),
            // It is a symbolic link or a socket.
            Err(e)
                if matches!(
                    Errno::from_io_error(&e),
                    Some(Errno::LOOP | Errno::MLINK | Errno::NXIO)
                ) =>
            {
                return Ok(self.damaged(&name, None, not_a_file()));
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Lookup::Miss(Miss::Closed));
            }
            Err(e) => return Err(e),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(self.damaged(&name, Some(&file), not_a_file()));
        }
        if let Some(distrust) = Directory::distrust(&metadata) {
            let damage = Damage::new(0, distrust.field, distrust.found, distrust.allowed);
            return Ok(self.damaged(&name, Some(&file), damage));
        }
        let entry = match Entry::read(&file, &encoded) {
            Ok(entry) => entry,
            Err(Unusable::Foreign) => return Ok(Lookup::Miss(Miss::Foreign)),
            Err(Unusable::Damaged(damage)) => {
                return Ok(self.damaged(&name, Some(&file), damage));
            }
            Err(Unusable::Io(e)) => return Err(e),
        };
        let content = entry.content_start..entry.content_start + entry.content_len;
        let now = match self.options.check {
            Check::AtOpen => true,
            Check::Touched => false,
            Check::Never => !entry.synced,
        };
        let need = if now {
            // The check touches all of it.
            Need {
                touch: Touch::All,
                ..need
            }
        } else {
            need
        };
        let source = match self.immutable {
            // SAFETY: `immutable` is true only after `open_mapped`, whose caller promised this.
            true => unsafe { LoadSource::immutable(&file) },
            false => LoadSource::from(&file),
        };
        let loaded = load(source, content.clone(), need)?;
        note_use(&file);
        let code = CachedCode::new(loaded, file, content);
        if now {
            if let Err(damage) = code.check_all(&entry)? {
                let (file, _) = code.file();
                return Ok(self.damaged(&name, Some(file), damage));
            }
            return Ok(Lookup::Hit(code));
        }
        if self.options.check == Check::Touched {
            return Ok(Lookup::Hit(code.checked_later(
                entry,
                Arc::clone(&self.directory),
                name,
            )));
        }
        Ok(Lookup::Hit(code))
    }

    fn damaged(&self, name: &str, file: Option<&File>, damage: Damage) -> Lookup {
        let kept = self.directory.remove(name, file).err();
        Lookup::Miss(Miss::Damaged { damage, kept })
    }

    /// Stores the code of `key`. It replaces what was stored under it before. Removes other entries if the
    /// cache would pass its limit. Other processes find all of the code or nothing of it.
    ///
    /// A power failure soon after may lose it, or leave an entry that is a miss. With [`Check::Never`] it is
    /// written to the disk first.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the key has more than 16 KiB, or if the entry is larger than the
    /// limit of the cache. Otherwise those of the system. Then either the code is not stored and everything
    /// is as before, or it is stored but old entries could not be removed.
    pub fn store(&self, key: &CodeKey<'_>, code: &[u8]) -> io::Result<Evicted> {
        let encoded = key.encode()?;
        let synced = self.options.check == Check::Never;
        let head = Entry::head_of(&encoded, code, synced)?;
        let len = (head.len() as u64).saturating_add(code.len() as u64);
        if len > self.options.limit {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "an entry of {len} bytes, allowed are {}; open the cache with a higher limit",
                    self.options.limit
                ),
            ));
        }
        let name = file_name(&encoded);
        self.directory.write(&name, &[&head, code], synced)?;
        self.evict(Some(&name))
    }

    /// Removes the code of `key`, and returns whether there was any. For code that turns out to be unusable.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn remove(&self, key: &CodeKey<'_>) -> io::Result<bool> {
        self.directory.remove(&file_name(&key.encode()?), None)
    }

    /// Removes the entries that have been unused for the longest time, until all entries together are within
    /// the limit. Keeps the entry with this name. Also removes what killed writers have left.
    ///
    /// Several processes may do this at once: what another one has removed counts as removed.
    fn evict(&self, but: Option<&str>) -> io::Result<Evicted> {
        let mut entries = self.directory.list()?;
        let mut total = entries
            .iter()
            .fold(0u64, |sum, entry| sum.saturating_add(entry.len));
        let mut evicted = Evicted::default();
        entries.sort_by(|a, b| (a.last_use, &a.name).cmp(&(b.last_use, &b.name)));
        for entry in entries {
            if total <= self.options.limit {
                break;
            }
            if but == Some(&entry.name) {
                continue;
            }
            if self.directory.remove(&entry.name, None)? {
                evicted.entries += 1;
                evicted.bytes += entry.len;
            }
            total -= entry.len;
        }
        Ok(evicted)
    }
}

fn not_a_file() -> Damage {
    Damage::new(0, "its kind", "not a file", "a file")
}
