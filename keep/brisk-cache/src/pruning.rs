//! Making a cache smaller when somebody asks for it.

use std::io;
use std::time::{Duration, Instant};

use crate::Cache;
use crate::clock::{age, now};
use crate::directory::FileId;
use crate::eviction::make_room;
use crate::lock::{Wait, with_lock};
use crate::locked::Locked;
use crate::store::Store;

/// After so long, the lock is free for others.
const BATCH_TIME: Duration = Duration::from_millis(5);

/// What [`Cache::prune`] has removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Pruned {
    /// Entries that were older than allowed.
    pub expired: u64,
    /// Entries that went with the oldest files.
    pub evicted: u64,
    /// Bytes of all files before.
    pub bytes_before: u64,
    /// Bytes of all files after.
    pub bytes_after: u64,
}

impl Cache {
    /// Removes the entries that are older than [`CacheOptions::max_age`](crate::CacheOptions::max_age) of this handle, the
    /// files that have no entry any more, and then the oldest files until all have at most
    /// [`CacheOptions::limit`](crate::CacheOptions::limit) bytes together. Entries that were used are copied forward, as
    /// long as there is room. The index does not shrink: [`Cache::clear`] makes it small again.
    ///
    /// It works in batches and releases the lock between them; the last one reads the whole index. Other handles may fill the cache again, up to their own
    /// limits.
    ///
    /// # Errors
    ///
    /// As [`Cache::insert`].
    pub fn prune(&self) -> io::Result<Pruned> {
        let store = &self.store;
        let evicted = store.counters.evicted.get();
        let bytes = || with_lock(store, Wait::Bounded, |locked| locked.count_bytes());
        let bytes_before = bytes()?;
        let expired = remove_expired(store)?;
        if bytes()? > store.options.limit {
            // `make_room` keeps one byte free, and the room to which the active segment may grow.
            make_room(store, 1)?;
        }
        if bytes()? > store.options.limit {
            with_lock(store, Wait::Bounded, |locked| {
                locked.state.active = 0;
                locked.save()
            })?;
            make_room(store, 1)?;
        }
        Ok(Pruned {
            expired,
            evicted: store.counters.evicted.get().saturating_sub(evicted),
            bytes_before,
            bytes_after: bytes()?,
        })
    }
}

/// How far a walk through the blocks of an index has come.
#[derive(Debug, Default)]
struct Walk {
    /// The index in which `next_block` counts.
    index: Option<FileId>,
    next_block: u32,
}

impl Walk {
    /// Shows the next blocks for one batch. Returns whether blocks are left. If the index was replaced meanwhile, it
    /// begins again.
    fn batch(
        &mut self,
        locked: &mut Locked<'_>,
        mut visit: impl FnMut(&mut Locked<'_>, u32) -> io::Result<()>,
    ) -> io::Result<bool> {
        let until = Instant::now() + BATCH_TIME;
        if self.index != Some(locked.index.id) {
            self.index = Some(locked.index.id);
            self.next_block = 0;
        }
        while self.next_block < locked.index.header.blocks {
            visit(locked, self.next_block)?;
            self.next_block += 1;
            if Instant::now() >= until {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Frees the slots of entries that are too old. Returns how many.
fn remove_expired(store: &Store) -> io::Result<u64> {
    let Some(allowed) = store.options.max_age else {
        return Ok(0);
    };
    let mut removed = 0;
    let mut walk = Walk::default();
    while with_lock(store, Wait::Bounded, |locked| {
        let left = walk.batch(locked, |locked, number| {
            for (at, slot) in locked.index.block(number)? {
                if age(now(), slot.written) <= allowed {
                    continue;
                }
                if !locked.state.unsettled {
                    // Nobody may find the last slot gone and the file there.
                    locked.begin_files()?;
                }
                locked.count(&slot, false)?;
                locked.free_slot(at)?;
                locked.discard(&slot)?;
                removed += 1;
            }
            Ok(())
        })?;
        if left {
            // The next one who has the lock need not tidy up.
            locked.end_files()?;
        } else {
            locked.sync_index()?;
            // Removes the files that no slot names.
            locked.settle()?;
        }
        Ok(left)
    })? {}
    Ok(removed)
}

impl Locked<'_> {
    /// The bytes of all files, counted now.
    fn count_bytes(&mut self) -> io::Result<u64> {
        self.files()?;
        self.save()?;
        Ok(self.state.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::tests::FAKE;
    use crate::{About, CacheOptions, Inspection};

    #[test]
    fn entries_that_are_too_old_go_with_their_files() {
        let home = tempfile::tempdir().unwrap();
        let options = CacheOptions::new().limit(4 << 20).segment_len(64 << 10);
        let with_age = |minutes: u64| {
            let age = Duration::from_secs(60 * minutes);
            Cache::open(home.path(), options.clone().max_age(Some(age))).unwrap()
        };
        let cache = Cache::open(home.path(), options.clone()).unwrap();
        FAKE.set(Some(1000));
        for (key, len) in [(b"a", 100), (b"b", 20_000), (b"c", 40_000)] {
            cache.insert(key, &vec![7; len], About::default()).unwrap();
        }
        FAKE.set(Some(1010));
        // They do not fit into one segment.
        for key in [b"d", b"e", b"f", b"g", b"h"] {
            cache.insert(key, &[7; 15_000], About::default()).unwrap();
        }
        assert_eq!(cache.stat().unwrap().segments, 2);
        FAKE.set(Some(1015));
        assert_eq!(with_age(15).prune().unwrap().expired, 0);
        let pruned = with_age(14).prune().unwrap();
        assert_eq!((pruned.expired, pruned.evicted), (3, 0));
        assert!(pruned.bytes_after < pruned.bytes_before);
        let stat = cache.stat().unwrap();
        assert_eq!(stat.values, 0);
        assert_eq!(stat.entries, 5);
        for (key, there) in [(b"a", false), (b"b", false), (b"c", false), (b"f", true)] {
            assert_eq!(cache.get(key).unwrap().is_some(), there);
        }
        let inspection = Inspection::open(home.path()).unwrap();
        let done = inspection
            .verify(|_| {}, |damage| panic!("{damage}"))
            .unwrap();
        assert_eq!(done.entries, 5);
        // The files of nobody's entries go, but not the one that writers append to.
        FAKE.set(Some(1100));
        with_age(14).prune().unwrap();
        let stat = cache.stat().unwrap();
        assert_eq!((stat.entries, stat.segments), (0, 1));
        FAKE.set(None);
        cache.insert(b"new", b"value", About::default()).unwrap();
        assert!(cache.get(b"new").unwrap().is_some());
    }
}
