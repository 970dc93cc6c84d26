//! Keeping a cache within its limit and on its disk: whole files go, oldest first.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use crate::directory::FileId;
use crate::format::UNIT;
use crate::format::digest::Digest;
use crate::format::slot::{Kind, Slot};
use crate::index::{Found, is_full};
use crate::lock::{Wait, with_lock};
use crate::locked::Locked;
use crate::recovery::files_ahead;
use crate::segment::{Aged, Reading, Segment, file_name};
use crate::store::Store;

/// After so many bytes or so long, the lock is free for others.
const BATCH_BYTES: u64 = 1 << 20;
const BATCH_TIME: Duration = Duration::from_millis(5);

/// How often room is made for one value before it is given up: others may take the room meanwhile.
pub(crate) const TRIES: usize = 8;

/// What is left to do of an eviction.
#[derive(Debug)]
pub(crate) struct Eviction {
    /// After copies of so many bytes, a batch ends.
    batch_bytes: u64,
    /// How long a batch may take.
    pub(crate) batch_time: Duration,
    /// The most bytes that all files may have in the end.
    most_bytes: u64,
    listing: Listing,
    /// How often the files were listed. Values that were used get a second chance, until nothing else is left: then they are
    /// listed for the second time.
    listed: u32,
    /// The segment that is being emptied.
    emptied: Option<Emptied>,
}

/// Whether a batch may list the files. Their headers are read without the lock.
#[derive(Debug)]
enum Listing {
    NotYet,
    Wanted,
    Ready(HashMap<u64, Aged>),
}

#[derive(Debug)]
struct Emptied {
    victim: Aged,
    /// The index in which `next_block` counts.
    index: FileId,
    next_block: u32,
    copied: u64,
}

/// What is done while the lock is held.
#[derive(Debug)]
struct Batch {
    /// Bytes of records.
    copied: u64,
    most: u64,
    until: Instant,
}

/// Removes the oldest files until so many bytes are left within the limit.
pub(crate) fn make_room(store: &Store, needed: u64) -> io::Result<()> {
    let mut eviction = Eviction::new(BATCH_BYTES);
    while evict_batch(store, &mut eviction, needed)? {}
    Ok(())
}

/// Runs `work`, which does not hold the lock and wants so many bytes of the disk. If the disk is full, the oldest files go, as
/// they do at the limit, and it is run again.
///
/// # Errors
///
/// Those of `work`. If the disk is still full, the error also says how many bytes are wanted.
pub(crate) fn with_room_on_disk<R>(
    store: &Store,
    wanted: u64,
    mut work: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    let (mut given_up, mut tries): (u64, _) = (0, 0);
    loop {
        let full = match work() {
            Err(e) if is_full(&e) => e,
            done => return done,
        };
        let freed = match tries < TRIES {
            true => make_room_on_disk(store, wanted, full.kind())?,
            false => 0,
        };
        if freed == 0 {
            return Err(io::Error::new(
                full.kind(),
                format!(
                    "{full}; {wanted} bytes are wanted, and removing the oldest entries has given {given_up}; make room on \
                     this disk, or put the cache on another one"
                ),
            ));
        }
        given_up = given_up.saturating_add(freed);
        tries += 1;
    }
}

/// Removes the oldest files until they have so many bytes less. The active segment goes only if nothing else is left.
/// Returns how many bytes are gone: 0 if that would not help.
fn make_room_on_disk(store: &Store, wanted: u64, why: io::ErrorKind) -> io::Result<u64> {
    let bytes = || with_lock(store, Wait::Bounded, |locked| Ok(locked.state.bytes));
    let before = bytes()?;
    let free = store.directory.free()?;
    // What a filesystem takes for itself, such as maps of blocks, is a small part of what it gives.
    let has_room = free.has_files && free.bytes / 2 >= wanted;
    // A quota is not seen in what is free.
    let is_quota = why == io::ErrorKind::QuotaExceeded;
    if (has_room && !is_quota) || free.bytes.saturating_add(before) < wanted {
        return Ok(0);
    }
    let evict = || {
        let mut eviction = Eviction::new(BATCH_BYTES);
        eviction.most_bytes = before.saturating_sub(wanted);
        while evict_batch(store, &mut eviction, 0)? {}
        Ok::<_, io::Error>(before.saturating_sub(bytes()?))
    };
    match evict()? {
        0 => {
            with_lock(store, Wait::Bounded, |locked| locked.close_active())?;
            evict()
        }
        freed => Ok(freed),
    }
}

/// Does a part of an eviction with the lock. Returns whether something is left to do.
pub(crate) fn evict_batch(store: &Store, eviction: &mut Eviction, needed: u64) -> io::Result<bool> {
    loop {
        let left = with_lock(store, Wait::Bounded, |locked| {
            eviction.batch(locked, needed)
        })?;
        if !matches!(eviction.listing, Listing::Wanted) {
            return Ok(left);
        }
        eviction.listing = Listing::Ready(files_ahead(store)?);
    }
}

impl Eviction {
    pub(crate) fn new(batch_bytes: u64) -> Self {
        Self {
            batch_bytes,
            batch_time: BATCH_TIME,
            most_bytes: u64::MAX,
            listing: Listing::NotYet,
            listed: 0,
            emptied: None,
        }
    }

    /// Does a part of it. Returns whether something is left to do.
    fn batch(&mut self, locked: &mut Locked<'_>, needed: u64) -> io::Result<bool> {
        let mut batch = Batch {
            copied: 0,
            most: self.batch_bytes,
            until: Instant::now() + self.batch_time,
        };
        let left = self.work(locked, needed, &mut batch)?;
        // The next batch reads the totals again.
        locked.end_files()?;
        Ok(left)
    }

    fn work(
        &mut self,
        locked: &mut Locked<'_>,
        needed: u64,
        batch: &mut Batch,
    ) -> io::Result<bool> {
        // Files that were listed for this are used, however long that took.
        self.list_if_ready(locked)?;
        while !batch.is_full() {
            if let Some(emptied) = &mut self.emptied {
                if emptied.next_block(locked, batch)? {
                    continue;
                }
                let victim = emptied.victim;
                if locked.state.durable {
                    // The copies are on the disk. So must be their slots, before their first place goes. Another one may
                    // have made them, who was killed between two batches or had to wait too long.
                    locked.sync_index()?;
                }
                self.emptied = None;
                remove(locked, &victim)?;
                end_victim(locked, &victim);
                continue;
            }
            if locked.spare()? >= needed && locked.state.bytes <= self.most_bytes {
                return Ok(false);
            }
            let Some(&victim) = locked.oldest().front() else {
                if self.listed >= 2 {
                    return Ok(false);
                }
                self.listing = Listing::Wanted;
                return Ok(true);
            };
            let name = file_name(victim.kind(), victim.number);
            let is_there = locked.store.directory.id_of(&name)?.is_some();
            if !is_there || victim.number == locked.state.active {
                end_victim(locked, &victim);
            } else if victim.kind() == Kind::Shared {
                locked.note_oldest(victim.sequence);
                self.emptied = Some(Emptied {
                    victim,
                    index: locked.index.id,
                    next_block: 0,
                    copied: 0,
                });
            } else {
                evict_value(locked, &victim, self.listed >= 2)?;
                end_victim(locked, &victim);
            }
        }
        Ok(true)
    }

    fn list_if_ready(&mut self, locked: &mut Locked<'_>) -> io::Result<()> {
        if let Listing::Ready(known) = &self.listing {
            let files = locked.files_but(known)?;
            locked.save()?;
            *locked.oldest() = files.into();
            self.listing = Listing::NotYet;
            self.listed += 1;
        }
        Ok(())
    }
}

/// Notes that nothing is left to do with a file, until the files are listed again. If this process stops before, it begins
/// again with this file.
fn end_victim(locked: &mut Locked<'_>, victim: &Aged) {
    let oldest = locked.oldest();
    if oldest
        .front()
        .is_some_and(|file| file.number == victim.number)
    {
        oldest.pop_front();
    }
}

impl Emptied {
    /// Frees the slots of a block that name the segment, or copies their records forward. Returns whether something is
    /// left. A block that is not done when the batch is full is looked at again: what is done names another segment.
    fn next_block(&mut self, locked: &mut Locked<'_>, batch: &mut Batch) -> io::Result<bool> {
        if self.index != locked.index.id {
            // Another process has replaced the index between two batches.
            self.index = locked.index.id;
            self.next_block = 0;
        }
        if self.next_block >= locked.index.header.blocks {
            return Ok(false);
        }
        if !locked.state.unsettled {
            // Nobody may find the last slot gone and the file there.
            locked.begin_files()?;
        }
        let before = batch.copied;
        let left = self.free_or_copy(locked, batch)?;
        if batch.copied > before && locked.state.durable && !locked.is_durable() {
            // Others were promised that their records last.
            locked.sync_active()?;
        }
        Ok(left)
    }

    fn free_or_copy(&mut self, locked: &mut Locked<'_>, batch: &mut Batch) -> io::Result<bool> {
        let number = self.victim.number;
        let slots = locked.index.block_of_segment(self.next_block, number)?;
        let mut segment = None;
        for (at, slot) in slots {
            let bytes = u64::from(slot.room) * UNIT;
            let allowed = self.copied.saturating_add(bytes) <= locked.store.segment_len / 2;
            if slot.touched && allowed && locked.state.active != number {
                if segment.is_none() {
                    segment = open(locked, &self.victim)?;
                }
                let mut record = Vec::new();
                let read = match &segment {
                    Some(segment) => segment.copy(&slot, None, &mut record)?.is_ok(),
                    None => false,
                };
                if read && locked.copy_forward(at, &slot, &record)? {
                    locked.store.counters.copied.add(1);
                    self.copied = self.copied.saturating_add(bytes);
                    batch.copied += bytes;
                    if batch.is_full() {
                        return Ok(true);
                    }
                    continue;
                }
            }
            locked.count(&slot, false)?;
            locked.free_slot(at)?;
            locked.store.counters.evicted.add(1);
            if batch.is_full() {
                return Ok(true);
            }
        }
        self.next_block += 1;
        Ok(true)
    }
}

impl Batch {
    fn is_full(&self) -> bool {
        self.copied >= self.most || Instant::now() >= self.until
    }
}

fn open(locked: &Locked<'_>, victim: &Aged) -> io::Result<Option<Segment>> {
    let store = locked.store;
    Segment::open(
        &store.directory,
        victim.kind(),
        victim.number,
        Reading::Read,
    )
}

/// Removes a file that no slot names.
fn remove(locked: &mut Locked<'_>, victim: &Aged) -> io::Result<()> {
    let store = locked.store;
    if store
        .disk
        .remove(&store.directory, &file_name(victim.kind(), victim.number))?
    {
        locked.state.bytes = locked.state.bytes.saturating_sub(victim.len);
    }
    locked.end_files()?;
    locked.process.view_mut().forget(victim.number);
    Ok(())
}

/// Removes the file of a value, unless the value was used since the last time.
fn evict_value(locked: &mut Locked<'_>, victim: &Aged, without_mercy: bool) -> io::Result<()> {
    if let Some((at, slot)) = slot_of_value(locked, victim)? {
        if slot.touched && !without_mercy {
            let untouched = Slot {
                touched: false,
                ..slot
            };
            return locked.write_slot(at, &untouched);
        }
        locked.note_oldest(victim.sequence);
        locked.count(&slot, false)?;
        locked.begin_files()?;
        locked.free_slot(at)?;
        locked.store.counters.evicted.add(1);
    }
    remove(locked, victim)
}

/// The slot that names the file of a value. None if nobody finds the value.
fn slot_of_value(locked: &Locked<'_>, victim: &Aged) -> io::Result<Option<(u64, Slot)>> {
    let Some(segment) = open(locked, victim)? else {
        return Ok(None);
    };
    let Some(key) = segment.key_of_first()? else {
        return Ok(None);
    };
    let digest = Digest::of(locked.index.header.seed, &key);
    Ok(match locked.index.find(digest)? {
        Found::Slot(at, slot) if slot.segment == victim.number => Some((at, slot)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lookup::Patience;
    use crate::{About, Cache, CacheOptions};

    #[test]
    fn a_batch_copies_no_more_than_it_may_though_a_block_has_more() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = CacheOptions::new().limit(64 << 20).segment_len(8 << 20);
        let cache = Cache::open(home.path(), options).unwrap();
        // All slots are in one block. The second segment has room for what is copied.
        let value = vec![7; 100_000];
        for key in 0..90u32 {
            let key = key.to_le_bytes();
            cache.insert(&key, &value, About::default()).unwrap();
        }
        for key in 0..40u32 {
            assert!(cache.update_use(&key.to_le_bytes()).unwrap());
        }
        let mut eviction = Eviction::new(BATCH_BYTES);
        let mut copied = 0;
        loop {
            let left = evict_batch(&cache.store, &mut eviction, 63 << 20).unwrap();
            let now = cache.counts().copied;
            assert!((now - copied) * 100_000 < BATCH_BYTES + 100_000);
            copied = now;
            if !left {
                break;
            }
        }
        assert_eq!(copied, 40);
        assert_eq!(cache.stat().unwrap().segments, 1);
    }

    /// The segment of a key's record.
    fn segment_of(cache: &Cache, key: u32) -> Option<u64> {
        let slot = crate::lookup::slot_of(&cache.store, &key.to_le_bytes(), Patience::Wait);
        slot.unwrap().map(|slot| slot.segment)
    }

    #[test]
    fn what_is_replaced_or_removed_between_two_batches_stays_so() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = CacheOptions::new().limit(64 << 20).segment_len(8 << 20);
        let cache = Cache::open(home.path(), options.clone()).unwrap();
        let other = Cache::open(home.path(), options).unwrap();
        let insert = |cache: &Cache, key: u32, byte: u8| {
            let (key, value) = (key.to_le_bytes(), vec![byte; 100_000]);
            cache.insert(&key, &value, About::default()).unwrap();
        };
        // All slots are in one block, so each batch meets the slots that were there before.
        for key in 0..90 {
            insert(&cache, key, key as u8);
        }
        let victim = segment_of(&cache, 0).unwrap();
        for key in 0..40u32 {
            assert!(cache.update_use(&key.to_le_bytes()).unwrap());
        }
        let mut expected = BTreeMap::new();
        for key in 0..90 {
            let stays = key < 40 || segment_of(&cache, key) != Some(victim);
            expected.insert(key, stays.then_some(key as u8));
        }
        let mut eviction = Eviction::new(BATCH_BYTES);
        let mut untouched: Vec<u32> = (0..40).collect();
        // How many that were copied, and how many that were not, were replaced and removed.
        let mut changed = BTreeMap::new();
        for gap in 0.. {
            if !evict_batch(&cache.store, &mut eviction, 63 << 20).unwrap() {
                break;
            }
            let removes = gap % 2 == 1;
            for was_copied in [true, false] {
                let is_one = |key: &u32| (segment_of(&cache, *key) != Some(victim)) == was_copied;
                let Some(at) = untouched.iter().position(is_one) else {
                    continue;
                };
                let key = untouched.remove(at);
                *changed.entry((was_copied, removes)).or_insert(0) += 1;
                if removes {
                    assert!(other.remove(&key.to_le_bytes()).unwrap());
                    expected.insert(key, None);
                } else {
                    insert(&other, key, 0xff);
                    expected.insert(key, Some(0xff));
                }
            }
        }
        assert_eq!(changed.len(), 4, "{changed:?}");
        for (&key, &byte) in &expected {
            let found = other.get(&key.to_le_bytes()).unwrap();
            let found = found.map(|hit| hit.to_vec().unwrap());
            let byte = byte.map(|byte| vec![byte; 100_000]);
            assert!(found == byte, "{key}");
        }
        let stat = cache.stat().unwrap();
        let there = expected.values().flatten().count() as u64;
        assert_eq!((stat.entries, stat.segments), (there, 1));
    }
}
