//! A disk that fails, and a process that dies, at any call.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use super::{get, home, insert, named, small, value};
use crate::directory::{Directory, Name};
use crate::disk::{Disk, RealDisk};
use crate::lock::{Wait, with_lock};
use crate::locked::Locked;
use crate::lookup::Patience;
use crate::store::Store;
use crate::{About, Cache, CacheOptions, Durability};

/// Fails at one call, or from one call on.
#[derive(Debug)]
struct FailingDisk {
    calls: AtomicU64,
    from: AtomicU64,
    /// Whether later calls fail, too, as those of a dead process.
    dead: bool,
    /// The error of each lock of a byte, if it is not 0.
    lock_error: AtomicI32,
    /// Whether the next sync fails.
    fails_to_sync: AtomicBool,
    /// Whether the disk has no room for another segment.
    has_no_segment_left: AtomicBool,
}

impl FailingDisk {
    fn new(dead: bool) -> Arc<Self> {
        let never = AtomicU64::new(u64::MAX);
        Arc::new(Self {
            calls: AtomicU64::new(0),
            from: never,
            dead,
            lock_error: AtomicI32::new(0),
            fails_to_sync: AtomicBool::new(false),
            has_no_segment_left: AtomicBool::new(false),
        })
    }

    fn fail_after(&self, calls: u64) {
        self.calls.store(0, Ordering::SeqCst);
        self.from.store(calls, Ordering::SeqCst);
    }

    fn has_failed(&self) -> bool {
        self.calls.load(Ordering::SeqCst) > self.from.load(Ordering::SeqCst)
    }
}

impl Disk for FailingDisk {
    fn before(&self) -> io::Result<()> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let from = self.from.load(Ordering::SeqCst);
        if number == from || (self.dead && number > from) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(())
    }

    fn create(&self, directory: &Directory, name: &str) -> io::Result<File> {
        self.before()?;
        let is_full = self.has_no_segment_left.load(Ordering::SeqCst);
        if is_full && name.ends_with(".segment") {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        RealDisk.create(directory, name)
    }

    fn sync(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        match self.fails_to_sync.swap(false, Ordering::SeqCst) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => self.before(),
        }
    }

    fn sync_names(&self, _: &Directory) -> io::Result<()> {
        self.before()
    }

    fn try_lock_byte(&self, file: BorrowedFd<'_>, byte: u64) -> io::Result<bool> {
        match self.lock_error.load(Ordering::SeqCst) {
            0 => RealDisk.try_lock_byte(file, byte),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Fills a cache until the next keys make its index grow, and returns how many keys it has.
fn fill(cache: &Cache) -> u64 {
    for key in 0..700 {
        insert(cache, key, &value(key, 0, 20)).unwrap();
    }
    700
}

/// Whether all files are found and counted, after a writer that did not come to its end.
fn assert_tidy(cache: &Cache, when: &str) {
    with_lock(&cache.store, Wait::Bounded, |locked| {
        let named = named(locked)?;
        let mut bytes = 0;
        for listed in locked.store.directory.list()? {
            bytes += listed.len;
            match listed.name {
                Name::Value(number) => {
                    assert!(named.contains(&number), "{when}: {number:x}");
                }
                Name::Unfinished(number) => panic!("{when}: {number:x} is unfinished"),
                // A segment whose records were all replaced goes in its turn.
                Name::Segment(_) | Name::Index | Name::Small => {}
            }
        }
        assert!(
            bytes <= locked.state.bytes,
            "{when}: {bytes}, {:?}",
            locked.state
        );
        assert!(!locked.state.unsettled, "{when}");
        Ok(())
    })
    .unwrap();
}

/// Lets a writer fail at each call while it does `work`, which is repeated until nothing fails. Another handle, which was
/// open before, reads and writes after each.
fn at_each_call(
    dead: bool,
    options: &CacheOptions,
    work: impl Fn(&Cache, u64) -> io::Result<()>,
) -> u64 {
    let mut failed = 0;
    for calls in 0.. {
        let home = home();
        let disk = FailingDisk::new(dead);
        let writer = Cache::on_disk(home.path(), options.clone(), disk.clone()).unwrap();
        let keys = fill(&writer);
        let reader = Cache::open(home.path(), options.clone()).unwrap();
        let other = Cache::open(home.path(), options.clone()).unwrap();
        assert_eq!(get(&reader, 3), Some(value(3, 0, 20)));
        assert_eq!(get(&other, 4), Some(value(4, 0, 20)));
        disk.fail_after(calls);
        let done = work(&writer, keys);
        let has_failed = disk.has_failed();
        assert!(has_failed || done.is_ok(), "{done:?}");
        if dead {
            drop(writer);
        } else {
            // The same handle goes on.
            disk.fail_after(u64::MAX);
            insert(&writer, 1 << 40, b"afterwards").unwrap();
            assert_eq!(get(&writer, 1 << 40).as_deref(), Some(&b"afterwards"[..]));
        }
        insert(&other, 1 << 41, b"another").unwrap();
        assert_tidy(&other, &format!("after {calls} calls"));
        for handle in [&reader, &other] {
            assert_eq!(get(handle, 1 << 41).as_deref(), Some(&b"another"[..]));
            for key in (0..keys).step_by(7) {
                assert_eq!(
                    get(handle, key),
                    Some(value(key, 0, 20)),
                    "after {calls} calls"
                );
            }
        }
        if !has_failed {
            break;
        }
        failed += 1;
    }
    failed
}

fn grow(cache: &Cache, keys: u64) -> io::Result<()> {
    let before = cache.stat()?.slots;
    let mut key = keys;
    while cache.stat()?.slots == before {
        insert(cache, key, &value(key, 0, 20))?;
        key += 1;
    }
    Ok(())
}

#[test]
fn growth_that_dies_at_any_step_leaves_old_handles_reading_and_writing() {
    for large_index in [u32::MAX, 1] {
        for dead in [true, false] {
            let calls = at_each_call_of_growth(dead, large_index, &small());
            assert!(calls >= 9, "{calls}, {large_index}");
        }
    }
}

/// Like [`at_each_call`], for the insertion at which the index grows.
fn at_each_call_of_growth(dead: bool, large_index: u32, options: &CacheOptions) -> u64 {
    let mut failed = 0;
    for calls in 0.. {
        let home = home();
        let disk = FailingDisk::new(dead);
        let mut store = Store::open(home.path(), options.clone(), None, disk.clone()).unwrap();
        store.large_index = large_index;
        let writer = Cache::of(store);
        let mut keys = fill(&writer);
        let reader = Cache::open(home.path(), options.clone()).unwrap();
        let other = Cache::open(home.path(), options.clone()).unwrap();
        assert_eq!(get(&reader, 3), Some(value(3, 0, 20)));
        assert_eq!(get(&other, 4), Some(value(4, 0, 20)));
        let slots = reader.stat().unwrap().slots;
        // Until the next key has no room: that shows only by trying, so each try is one that may fail.
        let mut done = Ok(());
        loop {
            disk.fail_after(if writer.next_grows(keys) {
                calls
            } else {
                u64::MAX
            });
            let grows = writer.next_grows(keys);
            if done.is_ok() {
                done = insert(&writer, keys, &value(keys, 0, 20));
            }
            if grows {
                break;
            }
            keys += 1;
        }
        let has_failed = disk.has_failed();
        assert!(has_failed || done.is_ok(), "{done:?}");
        disk.fail_after(u64::MAX);
        if !dead {
            insert(&writer, 1 << 40, b"afterwards").unwrap();
            assert_eq!(get(&writer, 1 << 40).as_deref(), Some(&b"afterwards"[..]));
        }
        drop(writer);
        // Reading comes first, with whatever mark was left.
        for key in (0..keys).step_by(7) {
            assert_eq!(
                get(&reader, key),
                Some(value(key, 0, 20)),
                "after {calls} calls"
            );
        }
        insert(&other, 1 << 41, b"another").unwrap();
        assert_tidy(&other, &format!("after {calls} calls"));
        for handle in [&reader, &other] {
            assert_eq!(
                get(handle, 1 << 41).as_deref(),
                Some(&b"another"[..]),
                "after {calls} calls"
            );
            for key in (0..keys).step_by(7) {
                assert_eq!(
                    get(handle, key),
                    Some(value(key, 0, 20)),
                    "after {calls} calls"
                );
            }
        }
        grow(&other, 1 << 20).unwrap();
        assert!(reader.stat().unwrap().slots > slots);
        assert_eq!(get(&reader, 3), Some(value(3, 0, 20)));
        if !has_failed {
            break;
        }
        failed += 1;
    }
    failed
}

#[test]
fn insertions_and_removals_that_fail_at_any_call_leave_the_cache_whole() {
    for dead in [false, true] {
        for options in [small(), small().durability(Durability::Durable)] {
            let calls = at_each_call(dead, &options, |cache, keys| {
                insert(cache, keys + 1, &value(1, 1, 500))?;
                // Alone in a file.
                insert(cache, keys + 2, &value(2, 1, 300_000))?;
                insert(cache, keys + 2, &value(2, 2, 300_000))?;
                cache.remove(&(keys + 2).to_le_bytes())?;
                cache.remove(&(keys + 1).to_le_bytes())?;
                Ok(())
            });
            assert!(calls >= 20, "{calls}");
        }
    }
}

#[test]
fn values_that_arrive_on_a_disk_that_fails_at_any_call_leave_the_cache_whole() {
    for dead in [false, true] {
        for options in [small(), small().durability(Durability::Durable)] {
            let calls = at_each_call(dead, &options, |cache, keys| {
                let put = |key: u64, bytes: &[u8], expected| {
                    let mut pending = cache.pending(expected)?;
                    let reader = pending.reader();
                    for part in bytes.chunks(40_000) {
                        // A write that fails has added nothing, and can be tried again.
                        let before = pending.len();
                        let written = pending.write(part);
                        if written.is_err() {
                            assert_eq!(pending.len(), before);
                        }
                        let mut read = vec![0; 50_000];
                        let there = pending.len().min(50_000) as usize;
                        assert_eq!(reader.read_at(&mut read, 0)?, there);
                        written.or_else(|_| pending.write(part))?;
                    }
                    let done = pending.finish(&key.to_le_bytes(), About::default());
                    let mut read = vec![0; bytes.len()];
                    assert_eq!(reader.read_at(&mut read, 0)?, bytes.len());
                    assert!(read == bytes);
                    if done.is_ok() {
                        assert!(get(cache, key).as_deref() == Some(bytes));
                    }
                    done
                };
                let value = value(1, 1, 500_000);
                put(keys + 1, &value[..100_000], None)?;
                put(keys + 2, &value[..300_000], None)?;
                put(keys + 2, &value, Some(500_000))?;
                put(keys + 2, &value[..400_000], Some(500_000))?;
                cache.remove(&(keys + 2).to_le_bytes())?;
                Ok(())
            });
            assert!(calls >= 40, "{calls}");
        }
    }
}

#[test]
fn a_clear_an_eviction_and_a_new_segment_that_fail_at_any_call_leave_no_file_that_nobody_counts() {
    let full = CacheOptions::new().limit(5 << 20).segment_len(1 << 20);
    let own = [0, 1, 2, 3, 225].map(|key| (key, value(key, 0, 300_000)));
    let (long, short) = (value(4, 0, 60_000), value(225, 1, 300));
    for dead in [false, true] {
        for durability in [Durability::Relaxed, Durability::Durable] {
            let options = full.clone().durability(durability);
            let mut calls = 0;
            loop {
                let home = home();
                let disk = FailingDisk::new(dead);
                let writer = Cache::on_disk(home.path(), options.clone(), disk.clone()).unwrap();
                // Values of their own, records that were used, and little room.
                for (key, value) in &own[..4] {
                    insert(&writer, *key, value).unwrap();
                }
                for key in 4..42u64 {
                    insert(&writer, key, &long).unwrap();
                    writer.update_use(&key.to_le_bytes()).unwrap();
                }
                disk.fail_after(calls);
                let work = || {
                    for key in 200..225 {
                        insert(&writer, key, &long)?;
                    }
                    insert(&writer, own[4].0, &own[4].1)?;
                    insert(&writer, own[4].0, &short)?;
                    writer.clear()
                };
                let done = work();
                let has_failed = disk.has_failed();
                assert!(has_failed || done.is_ok(), "{done:?}");
                disk.fail_after(u64::MAX);
                let other = Cache::open(home.path(), options.clone()).unwrap();
                insert(&other, 1 << 41, b"another").unwrap();
                assert_tidy(&other, &format!("after {calls} calls"));
                for key in (4..42).chain(200..225) {
                    let found = get(&other, key);
                    assert!(
                        found.is_none() || found.as_ref() == Some(&long),
                        "key {key} after {calls} calls"
                    );
                }
                if !has_failed {
                    break;
                }
                calls += 1;
            }
            assert!(calls > 150, "{calls}");
        }
    }
}

/// Eviction makes room on a full disk, though there is none for what it would copy.
#[test]
fn a_full_disk_on_which_no_segment_can_be_begun_is_evicted_from() {
    let home = home();
    let disk = FailingDisk::new(false);
    let options = CacheOptions::new().limit(1000 << 10).segment_len(128 << 10);
    let cache = Cache::on_disk(home.path(), options, disk.clone()).unwrap();
    // 21 of them fill a segment.
    for key in 0..5 * 21 {
        insert(&cache, key, &value(key, 0, 6_000)).unwrap();
    }
    assert!(cache.update_use(&u64::to_le_bytes(0)).unwrap());
    assert_eq!(cache.counts().evicted, 0);
    disk.has_no_segment_left.store(true, Ordering::SeqCst);
    let alone = value(1_000, 0, 40_000);
    insert(&cache, 1_000, &alone).unwrap();
    assert_eq!(get(&cache, 1_000), Some(alone));
    let counts = cache.counts();
    assert_eq!((counts.evicted, counts.copied), (21, 0));
    assert_tidy(&cache, "on a full disk");
}

#[test]
fn where_bytes_cannot_be_locked_each_fetches_and_the_index_grows() {
    for error in [libc::ENOLCK, libc::EOPNOTSUPP, libc::EINVAL] {
        let home = home();
        let disk = FailingDisk::new(false);
        let mut store = Store::open(home.path(), small(), None, disk.clone()).unwrap();
        store.large_index = 1;
        let cache = Cache::of(store);
        disk.lock_error.store(error, Ordering::SeqCst);
        let fetch = || io::Result::Ok(b"fetched".to_vec());
        let hit = cache.get_or_insert_with(b"key", About::default(), fetch);
        assert_eq!(hit.unwrap().bytes().unwrap(), b"fetched");
        let counts = cache.counts();
        assert_eq!((counts.unasked, counts.unstored), (1, 0));
        let stored = cache.get(b"key").unwrap().unwrap();
        assert_eq!(stored.bytes().unwrap(), b"fetched");
        grow(&cache, 0).unwrap();
        assert_eq!(cache.counts().displaced, 0);
        disk.lock_error.store(0, Ordering::SeqCst);
        let hit = cache.get_or_insert_with(b"another", About::default(), fetch);
        assert_eq!(hit.unwrap().bytes().unwrap(), b"fetched");
        assert_eq!(cache.counts().unasked, 1);
    }
}

#[test]
fn a_segment_that_could_not_be_written_back_is_closed() {
    let home = home();
    let disk = FailingDisk::new(false);
    let options = small().durability(Durability::Durable);
    let cache = Cache::on_disk(home.path(), options, disk.clone()).unwrap();
    let other = Cache::open(home.path(), small()).unwrap();
    let segment_of = |key: u64| {
        let slot = crate::lookup::slot_of(&cache.store, &key.to_le_bytes(), Patience::Wait);
        slot.unwrap().unwrap().segment
    };
    for key in 0..10 {
        insert(&cache, key, &value(key, 0, 500)).unwrap();
    }
    let closed = segment_of(9);
    // The first sync of an insertion is that of the segment.
    disk.fails_to_sync.store(true, Ordering::SeqCst);
    let e = insert(&cache, 10, &value(10, 0, 500)).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EIO), "{e}");
    let active = |locked: &mut Locked<'_>| Ok(locked.state.active);
    let active = with_lock(&cache.store, Wait::Bounded, active);
    assert_eq!(active.unwrap(), 0);
    // Whoever writes next begins another one, and all append to that.
    insert(&other, 11, &value(11, 0, 500)).unwrap();
    insert(&cache, 12, &value(12, 0, 500)).unwrap();
    assert_ne!(segment_of(11), closed);
    assert_eq!(segment_of(11), segment_of(12));
    for key in (0..13).filter(|&key| key != 10) {
        assert_eq!(get(&other, key), Some(value(key, 0, 500)), "{key}");
    }
    assert_eq!(get(&other, 10), None);
}
