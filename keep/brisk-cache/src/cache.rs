use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::about::About;
use crate::append::New;
use crate::clock::now;
#[cfg(test)]
use crate::disk::Disk;
use crate::disk::RealDisk;
use crate::entry::Entries;
#[cfg(feature = "tokio")]
use crate::flight::Flight;
use crate::flight::{self, Turn};
use crate::format::record::Record;
use crate::hit::Hit;
use crate::insertion::{self, Instead};
use crate::lookup::{self, Long, Patience};
use crate::options::CacheOptions;
use crate::pending::Pending;
use crate::stat::{self, BucketStat, CacheCounts, CacheStat};
use crate::store::Store;
use crate::upkeep;

/// A cache in a directory, which any number of processes share.
///
/// A handle is cheap to share between threads, and works on in a child that is forked. See the [crate](crate) for what
/// is promised.
#[derive(Debug)]
pub struct Cache {
    pub(crate) store: Arc<Store>,
}

impl Cache {
    /// Opens the cache in this directory. If the directory does not exist, makes it, for this user alone.
    ///
    /// Values are copied and the copies checked. A directory that this user may only read works, too.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::PermissionDenied`] if the directory belongs to neither this user nor root, or if others may
    /// write there. [`io::ErrorKind::DirectoryNotEmpty`] if it has files and is no cache: nothing there is changed.
    /// [`io::ErrorKind::InvalidInput`] if the limit is too small for the segments. Otherwise those of the
    /// system.
    pub fn open(directory: &Path, options: CacheOptions) -> io::Result<Self> {
        let store = Store::open(directory, options, None, Arc::new(RealDisk))?;
        Ok(Self::of(store))
    }

    pub(crate) fn of(store: Store) -> Self {
        Self {
            store: Arc::new(store),
        }
    }

    #[cfg(test)]
    pub(crate) fn on_disk(
        directory: &Path,
        options: CacheOptions,
        disk: Arc<dyn Disk>,
    ) -> io::Result<Self> {
        let store = Store::open(directory, options, None, disk)?;
        Ok(Self::of(store))
    }

    /// Looks for the value of a key.
    ///
    /// From [`Cache::open_mapped`] a hit borrows, and takes no system call and no allocation, unless this is the first
    /// one in its segment or a use is to be [noted](CacheOptions::note_use_after). Every ten minutes, one hit looks whether the
    /// files that it has mapped are still there. The very first answer of a handle is a
    /// copy, if the value has at most 16 KiB: mapping the files would take longer.
    ///
    /// # Errors
    ///
    /// Those of the system, for example if there are too few descriptors. Damage is a miss and a
    /// [count](Cache::counts).
    #[inline]
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Hit>> {
        lookup::get(&self.store, key, Patience::Wait, Long::Copy)
    }

    /// Looks for the value of a key, and does not wait: it opens no file and takes no lock.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if only a call that waits can answer: ask [`Cache::get`], on a thread that may wait. These
    /// answers have to wait:
    ///
    /// * the first two of a handle, and the first hit in a file;
    /// * if there is no index yet, or another one;
    /// * if a use is to be [noted](CacheOptions::note_use_after);
    /// * if this handle finds damage for the first time;
    /// * one hit in ten minutes, which looks for files that are gone;
    /// * all, on filesystems whose files brisk reads and does not map.
    ///
    /// The call still waits for the disk if a page of a mapping is not in memory.
    #[inline]
    pub fn get_at_once(&self, key: &[u8]) -> io::Result<Option<Hit>> {
        lookup::get(&self.store, key, Patience::AtOnce, Long::Copy)
    }

    /// Looks for the value of a key, to pass it on piece by piece. A value of more than 64 KiB that cannot be borrowed is not
    /// copied: the hit reads and checks the parts that it is asked for ([`Hit::part_in_file`], `Hit::part_bytes`). A damaged
    /// part is then an error, and not a miss.
    ///
    /// # Errors
    ///
    /// As [`Cache::get`].
    pub fn get_unread(&self, key: &[u8]) -> io::Result<Option<Hit>> {
        lookup::get(&self.store, key, Patience::Wait, Long::LeaveUnread)
    }

    /// Looks for a value as [`Cache::get_unread`] does, and does not wait.
    ///
    /// # Errors
    ///
    /// As [`Cache::get_at_once`].
    pub fn get_unread_at_once(&self, key: &[u8]) -> io::Result<Option<Hit>> {
        lookup::get(&self.store, key, Patience::AtOnce, Long::LeaveUnread)
    }

    /// Looks for the value of a key, and copies it into `buf`, whose former contents go. A buffer that is large enough
    /// is not allocated again.
    ///
    /// # Errors
    ///
    /// As [`Cache::get`].
    #[inline]
    pub fn get_into<'b>(&self, key: &[u8], buf: &'b mut Vec<u8>) -> io::Result<Option<&'b [u8]>> {
        let record: Option<Record> = lookup::get_into(&self.store, key, buf)?;
        Ok(record.map(|record| buf.get(record.layout.value()).unwrap_or_default()))
    }

    /// Stores a value under a key. It replaces the one before. Removes the oldest entries if the cache would pass its
    /// limit.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the key has no bytes or more than 32 KiB, or if the value is larger than a
    /// quarter of the limit. [`io::ErrorKind::TimedOut`] if another process has the lock for longer than
    /// [`CacheOptions::write_wait`]. [`io::ErrorKind::StorageFull`] if the disk is full, and removing the oldest entries does
    /// not make enough room. Otherwise those of the system. Then the value is either stored or not, and the
    /// cache is whole.
    pub fn insert(&self, key: &[u8], value: &[u8], about: About) -> io::Result<()> {
        insertion::insert(&self.store, new(key, value, about))
    }

    /// Stores a value under a key if its entry is the one that was found `before`, or if there is still none. Returns
    /// whether it did. A program that changes an entry that others also change tries again if it did not:
    ///
    /// ```
    /// # use brisk_cache::{About, Cache, CacheOptions};
    /// # fn add(cache: &Cache, key: &[u8], line: &[u8]) -> std::io::Result<()> {
    /// loop {
    ///     let before = cache.get(key)?;
    ///     let mut lines = match &before {
    ///         Some(hit) => hit.bytes()?.to_vec(),
    ///         None => Vec::new(),
    ///     };
    ///     lines.extend_from_slice(line);
    ///     if cache.insert_if_unchanged(key, before.as_ref(), &lines, About::default())? {
    ///         return Ok(());
    ///     }
    /// }
    /// # }
    /// # let home = tempfile::tempdir()?;
    /// # let cache = Cache::open(home.path(), CacheOptions::new())?;
    /// # add(&cache, b"key", b"a")?;
    /// # add(&cache, b"key", b"b")?;
    /// # assert_eq!(cache.get(b"key")?.expect("an entry").bytes()?, b"ab");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// An entry may count as changed though its value is the same: if it was copied forward before its file went, or if it
    /// is damaged, which [`Cache::get`] misses. After some tries, call [`Cache::insert`].
    ///
    /// # Errors
    ///
    /// As [`Cache::insert`].
    pub fn insert_if_unchanged(
        &self,
        key: &[u8],
        before: Option<&Hit>,
        value: &[u8],
        about: About,
    ) -> io::Result<bool> {
        insertion::insert_instead(
            &self.store,
            new(key, value, about),
            Instead::Of(before.map(Hit::record)),
        )
    }

    /// Begins a value that is stored piece by piece, as it arrives. The key is only needed at the end.
    ///
    /// `expected_len` is what is known of its length. It is no bound. If it is right, room is reserved before the first
    /// byte comes, and a full disk is an error of this call.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the expected length is more than a quarter of the limit. Otherwise those of the
    /// system.
    pub fn pending(&self, expected_len: Option<u64>) -> io::Result<Pending> {
        Pending::begin(&self.store, expected_len)
    }

    /// Looks for the value of a key. If there is none, `fetch` makes one, and it is stored.
    ///
    /// Over all threads and processes, one fetches a key at a time. The others wait until there is a value, at most
    /// [`CacheOptions::fetch_wait`]; then they fetch, too. If the one that fetches is killed, the next one begins at once. A
    /// fetch inside of a fetch does not wait. Where locks do not work, each fetches. [`CacheCounts::unasked`] counts fetches
    /// beside which there may have been another.
    ///
    /// A value that cannot be stored, or not be found after that, is returned all the same, and
    /// [counted](CacheCounts::unstored).
    ///
    /// # Errors
    ///
    /// Those of `fetch`, and before it those of [`Cache::get`].
    pub fn get_or_insert_with<E: From<io::Error>>(
        &self,
        key: &[u8],
        about: About,
        fetch: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Hit, E> {
        let make = || {
            let value = fetch()?;
            let stored = self.insert(key, &value, about);
            Ok((stored, || unstored(value, about)))
        };
        self.find_or_make(key, || self.get(key), make)
    }

    /// What `find` finds under a key. If that is nothing, one at a time runs `make`, which fetches a value and stores it. It
    /// returns what came of storing, and what gives the value if it was not stored.
    pub(crate) fn find_or_make<V, U: FnOnce() -> V, E: From<io::Error>>(
        &self,
        key: &[u8],
        find: impl Fn() -> io::Result<Option<V>>,
        make: impl FnOnce() -> Result<(io::Result<()>, U), E>,
    ) -> Result<V, E> {
        if let Some(found) = find()? {
            return Ok(found);
        }
        let flight = match flight::flight(&self.store, key, &find)? {
            Turn::Own { flight } => flight,
            Turn::Found(found) => return Ok(found),
        };
        // Another may have fetched it just before this one's turn.
        if let Some(found) = find()? {
            return Ok(found);
        }
        let (stored, unstored) = flight.fetch(make)?;
        drop(flight);
        Ok(self.found_or(stored, find, unstored))
    }

    /// What is found after a fetch, if the value was stored. Otherwise, and if the look-up fails, what was fetched: it is
    /// there, and nobody wants it fetched again.
    fn found_or<V>(
        &self,
        stored: io::Result<()>,
        find: impl FnOnce() -> io::Result<Option<V>>,
        unstored: impl FnOnce() -> V,
    ) -> V {
        match stored.and_then(|()| find()) {
            Ok(Some(found)) => found,
            Ok(None) | Err(_) => {
                self.store.counters.unstored.add(1);
                unstored()
            }
        }
    }

    /// Stores what was fetched, and only then lets go of the right to fetch it.
    #[cfg(feature = "tokio")]
    pub(crate) fn store_fetched(
        &self,
        key: &[u8],
        value: Vec<u8>,
        about: About,
        flight: Flight,
    ) -> Hit {
        let stored = self.insert(key, &value, about);
        drop(flight);
        let find = || self.get(key);
        self.found_or(stored, find, || unstored(value, about))
    }

    /// Notes that a key is used now, so that its entry outlives the eviction of its segment. Returns whether it was
    /// there. [`Cache::get`] does this by itself from time to time.
    ///
    /// # Errors
    ///
    /// As [`Cache::insert`].
    pub fn update_use(&self, key: &[u8]) -> io::Result<bool> {
        upkeep::update_use(&self.store, key)
    }

    /// Removes the value of a key. Returns whether there was one. When this returns, it is gone from the disk's index, too.
    ///
    /// # Errors
    ///
    /// As [`Cache::insert`].
    pub fn remove(&self, key: &[u8]) -> io::Result<bool> {
        upkeep::remove(&self.store, key)
    }

    /// Removes all entries. When this returns, they are gone from the disk, too.
    ///
    /// # Errors
    ///
    /// As [`Cache::insert`].
    pub fn clear(&self) -> io::Result<()> {
        upkeep::clear(&self.store)
    }

    /// All entries, in no order. What is inserted or removed meanwhile may be missing or not. Damage is a
    /// [count](Cache::counts).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn iter(&self) -> io::Result<Entries<'_>> {
        Entries::new(&self.store)
    }

    /// What is in the cache. It looks at each file's name, but at no entry.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn stat(&self) -> io::Result<CacheStat> {
        stat::stat(&self.store)
    }

    /// The buckets that have entries.
    ///
    /// # Errors
    ///
    /// As [`Cache::stat`].
    pub fn buckets(&self) -> io::Result<Vec<BucketStat>> {
        stat::buckets(&self.store)
    }

    /// Gives the pages of this handle's mappings back to the system, which counts each page that was touched as memory of
    /// this process. They stay in the page cache, hits stay readable, and the next touch of each page costs a fault.
    ///
    /// For a process that runs for long over a cache that is larger than the memory that it may have.
    ///
    /// # Errors
    ///
    /// Those of `madvise`: `EINVAL` if the program has locked its memory (`mlockall`).
    pub fn release_pages(&self) -> io::Result<()> {
        self.store.release_pages()
    }

    /// What happened through this handle since it was opened.
    pub fn counts(&self) -> CacheCounts {
        stat::counts(&self.store)
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        self.store.directory.path()
    }
}

fn new<'a>(key: &'a [u8], value: &'a [u8], about: About) -> New<'a> {
    New {
        key,
        value,
        fingerprint: about.fingerprint,
        bucket: about.bucket,
    }
}

/// A hit of a value that was fetched and could not be stored.
fn unstored(value: Vec<u8>, about: About) -> Hit {
    let record = Record::unstored(about.fingerprint, value.len());
    Hit::unstored(value, record, (now(), about.bucket))
}
