//! Each race of `docs/cache-format.md`, forced.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::hooked_disk::{Deed, HookedDisk};
use super::{doubling, get, home, insert, small, value};
use crate::clock::tests::FAKE;
use crate::directory::segment_name;
use crate::disk::{Disk, RealDisk};
use crate::format::digest::Digest;
use crate::format::index_header::tests::of_version;
use crate::format::slot::FREE;
use crate::index::{Found, Place};
use crate::lock::{Wait, with_lock};
use crate::locked::Locked;
use crate::store::tests::BEFORE_OPENING;
use crate::{About, Cache, CacheOptions};

impl Cache {
    /// Whether the insertion of a new key makes the index grow.
    pub(super) fn next_grows(&self, key: u64) -> bool {
        let process = self.store.process().unwrap();
        let index = process.view().index.clone().unwrap();
        let digest = Digest::of(index.header.seed, &key.to_le_bytes());
        matches!(index.place_for(digest).unwrap(), Place::Full(..))
    }

    /// Where the slot of a key is.
    fn slot_of(&self, key: u64) -> (u64, crate::format::slot::Slot) {
        let process = self.store.process().unwrap();
        let index = process.view().index.clone().unwrap();
        let digest = Digest::of(index.header.seed, &key.to_le_bytes());
        match index.find(digest).unwrap() {
            Found::Slot(at, slot) => (at, slot),
            other => panic!("{other:?}"),
        }
    }

    /// Writes the bytes of a slot, as a writer that is in the middle of it.
    fn write_bytes_of_slot(&self, at: u64, bytes: &[u8]) {
        let process = self.store.process().unwrap();
        let index = process.view().index.clone().unwrap();
        RealDisk.write(index.file().as_fd(), at, bytes).unwrap();
    }

    fn seed(&self) -> u64 {
        let process = self.store.process().unwrap();
        let view = process.view();
        view.index.as_ref().unwrap().header.seed
    }
}

fn mapped(path: &std::path::Path, options: CacheOptions) -> Cache {
    // SAFETY: only brisk writes to the directories of these tests.
    #[allow(unsafe_code)]
    unsafe { Cache::open_mapped(path, options) }.unwrap()
}

#[test]
fn a_slot_that_is_being_written_is_read_again() {
    let home = home();
    let writer = mapped(home.path(), small());
    let reader = mapped(home.path(), small());
    insert(&writer, 1, &value(1, 0, 100)).unwrap();
    let (at, slot) = writer.slot_of(1);
    let whole = slot.encode(writer.seed());
    // Half of a slot, of a writer that goes on at some time.
    let mut half = whole;
    half[40..48].fill(0xAA);
    writer.write_bytes_of_slot(at, &half);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            with_lock(&writer.store, Wait::Bounded, |_| {
                std::thread::sleep(Duration::from_millis(100));
                writer.write_bytes_of_slot(at, &whole);
                done.store(true, Ordering::SeqCst);
                Ok(())
            })
            .unwrap();
        });
        std::thread::sleep(Duration::from_millis(20));
        // It waits for the lock, and then the slot is whole.
        assert_eq!(get(&reader, 1), Some(value(1, 0, 100)));
        assert!(done.load(Ordering::SeqCst));
    });
    // One that nobody goes on with is a miss.
    writer.write_bytes_of_slot(at, &half);
    assert_eq!(get(&reader, 1), None);
    assert_eq!(reader.counts().damaged, 1);
    // The next insertion has the slot.
    insert(&writer, 1, &value(1, 1, 100)).unwrap();
    assert_eq!(get(&reader, 1), Some(value(1, 1, 100)));
}

#[test]
fn damage_that_is_known_is_a_miss_without_the_lock() {
    let home = home();
    let writer = mapped(home.path(), small());
    let reader = mapped(home.path(), small().write_wait(Duration::from_millis(50)));
    for key in 0..4 {
        insert(&writer, key, &value(key, 0, 100)).unwrap();
    }
    // The slot of one, and the record of another.
    let (at, slot) = writer.slot_of(1);
    let mut half = slot.encode(writer.seed());
    half[40..48].fill(0xAA);
    writer.write_bytes_of_slot(at, &half);
    let (_, slot) = writer.slot_of(2);
    let segment = std::fs::OpenOptions::new()
        .write(true)
        .open(home.path().join(segment_name(slot.segment)));
    let at = u64::from(slot.place) * 64 + 70;
    std::os::unix::fs::FileExt::write_all_at(&segment.unwrap(), b"damaged", at).unwrap();
    // Not the first question, which is answered in another way.
    assert!(get(&reader, 0).is_some() && get(&reader, 3).is_some());
    let at_once = |key: u64| reader.get_at_once(&key.to_le_bytes());
    for (n, key) in (1..).zip([1, 2]) {
        let e = at_once(key).unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock);
        assert_eq!(get(&reader, key), None);
        assert!(at_once(key).unwrap().is_none());
        assert_eq!(reader.counts().damaged, 2 * n);
    }
    for key in [1, 2] {
        insert(&writer, key, &value(key, 1, 100)).unwrap();
        assert_eq!(get(&reader, key), Some(value(key, 1, 100)));
    }
}

#[test]
fn who_finds_damage_waits_for_the_lock_no_longer_than_a_second() {
    let home = home();
    let options = small().write_wait(Duration::from_secs(3_600));
    let (writer, reader) = (mapped(home.path(), small()), mapped(home.path(), options));
    insert(&writer, 1, b"one").unwrap();
    let (at, slot) = writer.slot_of(1);
    let mut half = slot.encode(writer.seed());
    half[40..48].fill(0xAA);
    writer.write_bytes_of_slot(at, &half);
    let locked = with_lock(&writer.store, Wait::Bounded, |_| {
        assert_eq!(get(&reader, 1), None);
        Ok(())
    });
    locked.unwrap();
    // Another thread of the process waits for the lock.
    let second = Cache::open(home.path(), small().write_wait(Duration::from_secs(3_600))).unwrap();
    let waiting = second.store.process().unwrap().writer();
    std::thread::scope(|scope| {
        let found = scope.spawn(|| get(&second, 1));
        assert_eq!(found.join().unwrap(), None);
    });
    drop(waiting);
}

#[test]
fn readers_beside_a_writer_see_whole_values() {
    let home = home();
    let options = CacheOptions::new().limit(6 << 20).segment_len(1 << 20);
    let writer = mapped(home.path(), options.clone());
    let readers = [
        mapped(home.path(), options.clone()),
        Cache::open(home.path(), options).unwrap(),
    ];
    // The threads end with it, also if this thread panics.
    let running = Arc::new(());
    let alive = Arc::downgrade(&running);
    std::thread::scope(|scope| {
        for reader in &readers {
            scope.spawn(|| {
                let mut hits = 0u64;
                while alive.strong_count() > 0 {
                    for key in 0..8 {
                        let Some(found) = get(reader, key) else {
                            continue;
                        };
                        // The first bytes say the turn.
                        let turn = u64::from_le_bytes(found[..8].try_into().unwrap());
                        assert!(found[8..] == value(key, turn, found.len() - 8));
                        hits += 1;
                    }
                }
                assert!(hits > 100, "{hits}");
                assert_eq!(reader.counts().damaged, 0);
            });
        }
        let started = std::time::Instant::now();
        let mut turn = 0u64;
        while started.elapsed() < Duration::from_secs(2) {
            let key = turn % 8;
            let mut bytes = turn.to_le_bytes().to_vec();
            bytes.extend(value(key, turn, (turn % 3_000) as usize));
            insert(&writer, key, &bytes).unwrap();
            turn += 1;
        }
        drop(running);
        assert!(writer.stat().unwrap().segments <= 6);
    });
}

#[test]
fn a_slot_of_an_evicted_segment_is_a_miss_and_a_hit_from_it_stays() {
    let home = home();
    let writer = mapped(home.path(), small());
    let (fresh, known) = (mapped(home.path(), small()), mapped(home.path(), small()));
    insert(&writer, 1, &value(1, 0, 1000)).unwrap();
    let hit = known.get(&1u64.to_le_bytes()).unwrap().unwrap();
    assert!(hit.is_mapped());
    let (at, slot) = writer.slot_of(1);
    writer.clear().unwrap();
    assert_eq!(hit.bytes().unwrap(), value(1, 0, 1000));
    assert_eq!(get(&known, 1), None);
    // The slot again, as a reader saw it that was slow.
    insert(&writer, 2, b"two").unwrap();
    assert_eq!(get(&fresh, 2).unwrap(), b"two");
    writer.write_bytes_of_slot(at, &slot.encode(writer.seed()));
    assert_eq!(get(&fresh, 1), None);
    assert_eq!(fresh.counts().damaged, 1);
    drop(hit);
}

#[test]
fn a_key_whose_segment_is_evicted_before_it_is_opened_is_looked_up_once_more() {
    for was_used in [true, false] {
        let home = home();
        let writer = Arc::new(mapped(home.path(), small()));
        let reader = mapped(home.path(), small());
        for key in 1..=20 {
            insert(&writer, key, &value(key, 0, 80_000)).unwrap();
        }
        if was_used {
            assert!(writer.update_use(&1u64.to_le_bytes()).unwrap());
        }
        let before = writer.slot_of(1).1.segment;
        // The first look of a handle is another one.
        assert_eq!(get(&reader, 1_000), None);
        let evicting = writer.clone();
        BEFORE_OPENING.set(Some(Box::new(move || {
            let spare = with_lock(&evicting.store, Wait::Bounded, |locked| locked.spare());
            crate::eviction::make_room(&evicting.store, spare.unwrap() + 1).unwrap();
            false
        })));
        let found = get(&reader, 1);
        assert!(BEFORE_OPENING.take().is_none());
        let gone = home.path().join(crate::directory::segment_name(before));
        assert!(!gone.exists());
        let (copied, absent) = match was_used {
            true => (1, 1),
            false => (0, 2),
        };
        assert_eq!(found, was_used.then(|| value(1, 0, 80_000)));
        assert_eq!(writer.counts().copied, copied);
        let counts = reader.counts();
        assert_eq!((counts.absent, counts.damaged), (absent, 0));
    }
}

#[test]
fn a_key_whose_segments_are_evicted_before_they_are_opened_is_found_in_the_end() {
    for times in 1..=8 {
        let home = home();
        let writer = Arc::new(mapped(home.path(), small()));
        let reader = mapped(home.path(), small());
        for key in 1..=20 {
            insert(&writer, key, &value(key, 0, 80_000)).unwrap();
        }
        // The first look of a handle is another one.
        assert_eq!(get(&reader, 1_000), None);
        let evicting = writer.clone();
        let (mut left, mut others) = (times, 100..);
        BEFORE_OPENING.set(Some(Box::new(move || {
            let before = evicting.slot_of(1).1.segment;
            while evicting.slot_of(1).1.segment == before {
                evicting.update_use(&1u64.to_le_bytes()).unwrap();
                insert(&evicting, others.next().unwrap(), &[7; 80_000]).unwrap();
            }
            left -= 1;
            left > 0
        })));
        assert!(get(&reader, 1) == Some(value(1, 0, 80_000)), "{times}");
        assert!(BEFORE_OPENING.take().is_none());
        assert_eq!(reader.counts().damaged, 0);
    }
}

/// The files of a directory that have no names any more and that this process maps.
fn mapped_without_names(directory: &std::path::Path) -> HashSet<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let there = directory.to_str().unwrap();
    let gone = maps.lines().filter_map(|line| {
        let (_, file) = line.split_once(there)?;
        file.trim_start_matches('/').strip_suffix(" (deleted)")
    });
    gone.map(str::to_owned).collect()
}

#[test]
fn only_what_hits_pin_of_files_without_names_is_held() {
    use crate::directory::{segment_name, value_name};
    for looks in [true, false] {
        let home = home();
        let (writer, reader) = (mapped(home.path(), small()), mapped(home.path(), small()));
        // Two segments and two values.
        let len = |key: u64| if key < 20 { 80_000 } else { 500_000 };
        for key in 0..22 {
            insert(&writer, key, &value(key, 0, len(key))).unwrap();
        }
        let numbers: Vec<u64> = [0, 19, 20, 21]
            .map(|key| writer.slot_of(key).1.segment)
            .into();
        assert_ne!(numbers[0], numbers[1]);
        assert_eq!(get(&reader, 1_000), None);
        let mut hits: Vec<_> = [0, 19, 20, 21]
            .into_iter()
            .map(|key: u64| reader.get(&key.to_le_bytes()).unwrap().unwrap())
            .collect();
        assert!(hits.iter().all(|hit| hit.is_mapped()));
        let file_len = |name: &str| home.path().join(name).metadata().unwrap().len();
        let of_segment = file_len(&segment_name(numbers[0]));
        let held = of_segment + file_len(&value_name(numbers[3]));
        // The second and the third are only the handle's now.
        hits.drain(1..3);
        // With the same index.
        assert!(writer.remove(&20u64.to_le_bytes()).unwrap());
        let removed = HashSet::from([value_name(numbers[2])]);
        assert_eq!(mapped_without_names(home.path()), removed);
        assert_eq!(reader.stat().unwrap().held_bytes, 0);
        assert_eq!(mapped_without_names(home.path()), HashSet::new());
        writer.clear().unwrap();
        // The reader's index, and three files.
        assert_eq!(mapped_without_names(home.path()).len(), 1 + 3);
        if looks {
            assert_eq!(reader.stat().unwrap().held_bytes, held);
        } else {
            // It finds another index.
            assert_eq!(get(&reader, 1_000), None);
        }
        let pinned = HashSet::from([segment_name(numbers[0]), value_name(numbers[3])]);
        assert_eq!(mapped_without_names(home.path()), pinned);
        assert_eq!(reader.stat().unwrap().held_bytes, held);
        assert_eq!(hits[0].bytes().unwrap(), value(0, 0, len(0)));
        hits.truncate(1);
        assert_eq!(reader.stat().unwrap().held_bytes, of_segment);
        hits.clear();
        assert_eq!(reader.stat().unwrap().held_bytes, 0);
        assert_eq!(mapped_without_names(home.path()), HashSet::new());
    }
}

#[test]
fn what_a_hit_pins_is_counted_though_its_own_handle_removes_the_file() {
    let home = home();
    let cache = mapped(home.path(), small());
    for key in 0..2 {
        insert(&cache, key, &value(key, 0, 500_000)).unwrap();
    }
    let hits = [0u64, 1].map(|key| cache.get(&key.to_le_bytes()).unwrap().unwrap());
    let [first, second] = hits;
    let len = |hit: &crate::Hit| match &hit.held {
        crate::hit::Held::Mapped { segment, .. } => segment.len(),
        _ => panic!("the hit is a copy"),
    };
    let both = len(&first) + len(&second);
    assert!(cache.remove(&0u64.to_le_bytes()).unwrap());
    assert_eq!(cache.stat().unwrap().held_bytes, len(&first));
    cache.clear().unwrap();
    assert_eq!(cache.stat().unwrap().held_bytes, both);
    drop(first);
    assert_eq!(cache.stat().unwrap().held_bytes, both - len(&second));
    drop(second);
    assert_eq!(cache.stat().unwrap().held_bytes, 0);
}

#[test]
fn a_segment_that_grows_is_mapped_again() {
    let home = home();
    let options = CacheOptions::new().limit(64 << 20).segment_len(4 << 20);
    let writer = mapped(home.path(), options.clone());
    let reader = mapped(home.path(), options);
    insert(&writer, 0, &value(0, 0, 1000)).unwrap();
    let first = reader.get(&0u64.to_le_bytes()).unwrap().unwrap();
    let segments: HashSet<u64> = (1..400)
        .map(|key| {
            insert(&writer, key, &value(key, 0, 9_000)).unwrap();
            assert_eq!(get(&reader, key), Some(value(key, 0, 9_000)));
            writer.slot_of(key).1.segment
        })
        .collect();
    assert_eq!(segments.len(), 1);
    assert_eq!(first.bytes().unwrap(), value(0, 0, 1000));
}

#[test]
fn of_two_keys_with_one_digest_the_later_has_the_slot() {
    let home = home();
    let cache = mapped(home.path(), small());
    insert(&cache, 1, b"one").unwrap();
    let (_, of_one) = cache.slot_of(1);
    // The slot of key 2 with the record of key 1.
    insert(&cache, 2, b"two").unwrap();
    let (at, of_two) = cache.slot_of(2);
    let forged = crate::format::slot::Slot {
        digest: of_two.digest,
        ..of_one
    };
    cache.write_bytes_of_slot(at, &forged.encode(cache.seed()));
    assert_eq!(get(&cache, 2), None);
    assert_eq!(cache.counts().foreign, 1);
    assert_eq!(get(&cache, 1).unwrap(), b"one");
    insert(&cache, 2, b"two again").unwrap();
    assert_eq!(get(&cache, 2).unwrap(), b"two again");
}

#[test]
fn a_note_of_use_that_comes_after_its_record_was_replaced_changes_nothing() {
    let home = home();
    let cache = mapped(home.path(), small());
    insert(&cache, 1, b"old").unwrap();
    let (_, before) = cache.slot_of(1);
    insert(&cache, 1, b"new").unwrap();
    // A note of use of the old record comes too late.
    with_lock(&cache.store, Wait::Bounded, |locked| {
        locked.note_use(&before)
    })
    .unwrap();
    let (_, now) = cache.slot_of(1);
    assert_eq!(get(&cache, 1).unwrap(), b"new");
    assert!(!now.touched, "the use was of another record");
}

#[test]
fn clocks_that_jump_leave_entries_neither_for_ever_nor_lost() {
    const DAY: u32 = 24 * 60;
    let home = home();
    let options = small().max_age(Some(Duration::from_secs(10 * 86_400)));
    let cache = mapped(home.path(), options);
    let at = |day: u32| FAKE.set(Some(day * DAY));
    at(1_000);
    insert(&cache, 1, b"one").unwrap();
    at(1_011);
    assert_eq!(get(&cache, 1), None);
    assert_eq!(cache.counts().expired, 1);
    // Ten years ahead, and back: the entry is there again.
    at(5_000);
    assert_eq!(get(&cache, 1), None);
    at(1_002);
    assert_eq!(get(&cache, 1).unwrap(), b"one");
    // Written in the future: the first use gives it the present time, and it ages from there.
    at(9_000);
    insert(&cache, 2, b"two").unwrap();
    at(1_003);
    assert_eq!(get(&cache, 2).unwrap(), b"two");
    at(1_014);
    assert_eq!(get(&cache, 2), None);
    FAKE.set(None);
}

#[test]
fn uses_are_noted_seldom() {
    let home = home();
    let cache = mapped(home.path(), small());
    FAKE.set(Some(1_000_000));
    insert(&cache, 1, b"one").unwrap();
    let touched = || cache.slot_of(1).1.touched;
    get(&cache, 1);
    assert!(!touched());
    FAKE.set(Some(1_000_000 + 6 * 60));
    get(&cache, 1);
    assert!(touched());
    assert_eq!(cache.slot_of(1).1.used, 1_000_000 + 6 * 60);
    FAKE.set(Some(1_000_000 + 7 * 60));
    get(&cache, 1);
    assert_eq!(cache.slot_of(1).1.used, 1_000_000 + 6 * 60);
    FAKE.set(None);
}

#[test]
fn in_a_full_cache_what_is_used_in_the_older_half_is_noted_at_once_and_outlives_its_segment() {
    const HOT: u64 = 20;
    let home = home();
    let options = CacheOptions::new().limit(8 << 20).segment_len(1 << 20);
    FAKE.set(Some(1_000_000));
    let writer = mapped(home.path(), options.clone());
    let notes = Arc::new(AtomicU64::new(0));
    let noted = notes.clone();
    let disk = HookedDisk::new(move |deed| {
        assert!(matches!(deed, Deed::Write(bytes) if bytes.len() == 64));
        noted.fetch_add(1, Ordering::SeqCst);
    });
    let reader = Cache::on_disk(home.path(), options.clone(), disk).unwrap();
    let mut missed = 0;
    for key in 100..4_000 {
        insert(&writer, key, &value(key, 0, 15_000)).unwrap();
        // One is looked for by a process that begins, and ends.
        let one = Cache::open(home.path(), options.clone()).unwrap();
        for hot in 0..HOT {
            let by = if hot == 0 { &one } else { &reader };
            if get(by, hot).is_none() {
                missed += 1;
                insert(&writer, hot, &value(hot, 0, 15_000)).unwrap();
            }
        }
    }
    // Each at the beginning, and with the first segment that goes.
    assert!((HOT..=2 * HOT).contains(&missed), "{missed}");
    let copied = writer.counts().copied;
    assert!(copied > 100, "{copied}");
    // No more than one for each place that a record has had.
    let notes = notes.load(Ordering::SeqCst);
    assert!(notes <= copied + missed, "{notes}, {copied}, {missed}");
    FAKE.set(None);
}

#[test]
fn a_handle_that_opens_no_file_gives_up_those_that_are_gone() {
    let home = home();
    let options = CacheOptions::new().limit(6 << 20).segment_len(1 << 20);
    FAKE.set(Some(1_000_000));
    let writer = mapped(home.path(), options.clone());
    // Notes would open files.
    let reader = mapped(home.path(), options.note_use_after(None));
    insert(&writer, 0, b"in the first segment").unwrap();
    let (_, first) = writer.slot_of(0);
    let mut key = 1;
    while writer.slot_of(key - 1).1.segment == first.segment {
        insert(&writer, key, &value(key, 0, 15_000)).unwrap();
        key += 1;
    }
    let in_second = key - 1;
    for key in [0, 0, in_second] {
        assert!(get(&reader, key).is_some());
    }
    while writer.counts().evicted == 0 {
        insert(&writer, key, &value(key, 0, 15_000)).unwrap();
        key += 1;
    }
    for (minute, maps) in [(1_000_009, 2), (1_000_010, 1)] {
        FAKE.set(Some(minute));
        let hit = reader.get_unread_at_once(&in_second.to_le_bytes());
        assert_eq!(hit.is_ok(), maps == 2);
        assert!(get(&reader, in_second).is_some());
        let view = reader.store.process().unwrap().view();
        assert_eq!(view.segments.len(), maps);
    }
    FAKE.set(None);
}

#[test]
fn of_full_sets_at_the_limit_the_entry_that_was_not_used_for_longest_goes() {
    const BEGIN: u32 = 1_000_000;
    let home = home();
    let options = CacheOptions::new().limit(512 << 10).segment_len(64 << 10);
    let cache = mapped(home.path(), options);
    // Makes the index, whose seed says which keys have the same two sets.
    cache.remove(b"none").unwrap();
    let seed = cache.seed();
    let sets = |key: &u64| {
        let mut sets = Digest::of(seed, &key.to_le_bytes()).sets();
        sets.sort_unstable();
        sets
    };
    let full = sets(&0);
    let keys: Vec<u64> = (0..).filter(|key| sets(key) == full).take(18).collect();
    // Not too many bytes for another segment, but for an index of twice the size.
    FAKE.set(Some(BEGIN));
    let has_room = |locked: &mut Locked<'_>| Ok(locked.doubled()?.is_some());
    let others = (1 << 40..).filter(|key| !sets(key).iter().any(|set| full.contains(set)));
    for key in others {
        if !with_lock(&cache.store, Wait::Bounded, has_room).unwrap() {
            break;
        }
        insert(&cache, key, &[0; 10_000]).unwrap();
    }
    for (minute, key) in (BEGIN + 1..).zip(&keys[..16]) {
        FAKE.set(Some(minute));
        insert(&cache, *key, &value(*key, 0, 100)).unwrap();
    }
    assert_eq!(cache.counts().displaced, 0);
    FAKE.set(Some(BEGIN + 100));
    for key in [keys[0], keys[2]] {
        assert!(cache.update_use(&key.to_le_bytes()).unwrap());
    }
    for (key, gone) in [(keys[16], keys[1]), (keys[17], keys[3])] {
        assert!(get(&cache, gone).is_some());
        insert(&cache, key, &value(key, 0, 100)).unwrap();
        assert_eq!(get(&cache, gone), None);
    }
    for (n, key) in keys.iter().enumerate() {
        let there = (n != 1 && n != 3).then(|| value(*key, 0, 100));
        assert_eq!(get(&cache, *key), there, "{n}");
    }
    let counts = cache.counts();
    assert_eq!((counts.displaced, counts.evicted), (2, 0));
    assert_eq!(cache.stat().unwrap().slots, 1024);
    FAKE.set(None);
}

#[test]
fn what_was_used_outlives_its_segment() {
    let home = home();
    let options = CacheOptions::new().limit(6 << 20).segment_len(1 << 20);
    let cache = mapped(home.path(), options);
    for key in 0..20 {
        insert(&cache, key, &value(key, 0, 5_000)).unwrap();
    }
    for key in 0..10u64 {
        assert!(cache.update_use(&key.to_le_bytes()).unwrap());
    }
    let mut key = 100;
    while cache.counts().evicted == 0 {
        insert(&cache, key, &value(key, 0, 5_000)).unwrap();
        key += 1;
    }
    for key in 0..10 {
        assert_eq!(get(&cache, key), Some(value(key, 0, 5_000)), "{key}");
    }
    for key in 10..20 {
        assert_eq!(get(&cache, key), None, "{key}");
    }
    let counts = cache.counts();
    assert_eq!((counts.copied, counts.displaced), (10, 0));
    let stat = cache.stat().unwrap();
    assert!(stat.bytes <= 6 << 20);
    assert_eq!(stat.entries, cache.iter().unwrap().count() as u64);
}

#[test]
fn what_is_copied_forward_while_entries_are_listed_is_listed() {
    let home = home();
    let options = CacheOptions::new().limit(6 << 20).segment_len(1 << 20);
    let writer = mapped(home.path(), options.clone());
    for key in 0..20 {
        insert(&writer, key, &value(key, 0, 5_000)).unwrap();
    }
    for key in 0..10u64 {
        assert!(writer.update_use(&key.to_le_bytes()).unwrap());
    }
    let reader = Cache::open(home.path(), options).unwrap();
    let mut entries = reader.iter().unwrap();
    // It has read the slots, and gives up the segment.
    let first = entries.next().unwrap().unwrap();
    let process = reader.store.process().unwrap();
    process.view_mut().forget_where(|_| true);
    let mut key = 100;
    while writer.counts().evicted == 0 {
        insert(&writer, key, &value(key, 0, 5_000)).unwrap();
        key += 1;
    }
    let mut listed: HashSet<Vec<u8>> = entries.map(|entry| entry.unwrap().key).collect();
    listed.insert(first.key);
    for key in 0..10u64 {
        assert!(listed.contains(key.to_le_bytes().as_slice()), "{key}");
    }
    assert_eq!(reader.counts().damaged, 0);
}

#[test]
fn an_eviction_in_several_batches_keeps_the_totals() {
    let home = home();
    let options = CacheOptions::new().limit(6 << 20).segment_len(1 << 20);
    // A batch ends after 5 ms, so each frees one slot or a few.
    let slow = HookedDisk::new(|deed| {
        if deed == Deed::Write(FREE.to_vec()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let cache = Cache::on_disk(home.path(), options, slow).unwrap();
    let mut key = 0;
    while cache.counts().evicted == 0 {
        insert(&cache, key, &value(key, 0, 20_000)).unwrap();
        key += 1;
    }
    assert!(cache.counts().evicted > 10);
    let listed = cache.iter().unwrap().count() as u64;
    assert_eq!(cache.stat().unwrap().entries, listed);
}

#[test]
fn an_unfinished_file_is_not_removed_before_its_writer_has_locked_it() {
    let home = home();
    let path = home.path().to_owned();
    let others = AtomicBool::new(false);
    let others = Arc::new(others);
    let seen = others.clone();
    let disk = HookedDisk::new(move |deed| {
        let Deed::Created(name) = deed else {
            return;
        };
        if !name.starts_with(".new-") || !path.join("index").exists() {
            return;
        }
        // Another process that removes what nobody writes: it comes when the file is there, and has no lock yet.
        let options = small().write_wait(Duration::from_millis(50));
        let other = Cache::open(&path, options).unwrap();
        let removed = with_lock(&other.store, Wait::Bounded, |locked| locked.files());
        assert_eq!(removed.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        seen.store(true, Ordering::SeqCst);
    });
    let cache = Cache::on_disk(home.path(), small(), disk).unwrap();
    insert(&cache, 1, &value(1, 0, 100)).unwrap();
    insert(&cache, 2, &value(2, 0, 2 << 20)).unwrap();
    assert!(others.load(Ordering::SeqCst));
    assert_eq!(get(&cache, 2), Some(value(2, 0, 2 << 20)));
    assert_eq!(cache.stat().unwrap().unfinished, 0);
}

#[test]
fn a_writer_sees_that_its_index_has_lost_the_name() {
    let home = home();
    let cache = mapped(home.path(), small());
    FAKE.set(Some(1_000_000));
    for key in 0..3 {
        insert(&cache, key, b"before").unwrap();
    }
    // Damaged in a header that this handle does not read again. Who opens it then makes another index.
    let damaged = std::fs::OpenOptions::new()
        .write(true)
        .open(home.path().join("index"))
        .unwrap();
    RealDisk.write(damaged.as_fd(), 12, &[0xFF]).unwrap();
    let other = mapped(home.path(), small());
    insert(&other, 10, b"of the other").unwrap();
    insert(&cache, 4, b"after").unwrap();
    assert_eq!(get(&other, 4).as_deref(), Some(&b"after"[..]));
    assert_eq!(get(&cache, 10).as_deref(), Some(&b"of the other"[..]));
    // Removed by hand: nothing says so but the name.
    std::fs::remove_file(home.path().join("index")).unwrap();
    FAKE.set(Some(1_000_001));
    insert(&cache, 5, b"later").unwrap();
    let third = mapped(home.path(), small());
    assert_eq!(get(&third, 5).as_deref(), Some(&b"later"[..]));
    FAKE.set(None);
}

#[test]
fn a_writer_whose_files_were_removed_by_hand_writes_where_others_find_it() {
    let home = home();
    let options = small().write_wait(Duration::from_millis(50));
    for looks_at_once in [false, true] {
        let cache = mapped(home.path(), options.clone());
        FAKE.set(Some(1_000_000));
        for key in 0..3 {
            insert(&cache, key, b"before").unwrap();
        }
        for file in std::fs::read_dir(home.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        let other = mapped(home.path(), options.clone());
        insert(&other, 10, b"of the other").unwrap();
        if looks_at_once {
            // A look at the directory finds the new index, in the minute in which the ledger was last looked at.
            assert_eq!(cache.iter().unwrap().count(), 1);
        } else {
            FAKE.set(Some(1_000_001));
        }
        for key in 4..100 {
            insert(&cache, key, b"after").unwrap();
        }
        for key in 4..100 {
            assert_eq!(get(&other, key).as_deref(), Some(&b"after"[..]), "{key}");
            assert_eq!(get(&cache, key).as_deref(), Some(&b"after"[..]), "{key}");
        }
        assert_eq!((get(&cache, 1), other.counts().damaged), (None, 0));
        let locked = with_lock(&other.store, Wait::Bounded, |_| {
            Ok(insert(&cache, 5, b"beside the other"))
        });
        let e = locked.unwrap().unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::TimedOut);
        other.clear().unwrap();
    }
    FAKE.set(None);
}

/// The names and the contents of all files.
fn contents(directory: &std::path::Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let files = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let mut contents: Vec<_> = files
        .map(|file| (file.file_name(), std::fs::read(file.path()).unwrap()))
        .collect();
    contents.sort();
    contents
}

#[test]
fn an_index_of_a_later_version_is_read_as_misses_and_left_alone() {
    let home = home();
    insert(&mapped(home.path(), small()), 1, b"one").unwrap();
    let write = |header: &[u8]| {
        let index = std::fs::OpenOptions::new()
            .write(true)
            .open(home.path().join("index"));
        RealDisk.write(index.unwrap().as_fd(), 0, header).unwrap();
    };
    let mut header = of_version(7);
    write(&header);
    let before = contents(home.path());
    let cache = mapped(home.path(), small());
    assert_eq!((get(&cache, 1), get(&cache, 2)), (None, None));
    assert_eq!(cache.iter().unwrap().count(), 0);
    let refused = [
        insert(&cache, 1, b"another"),
        cache.remove(&1u64.to_le_bytes()).map(drop),
        cache.clear(),
        cache.prune().map(drop),
    ];
    for refused in refused {
        let e = refused.unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::Unsupported);
        let text = e.to_string();
        assert!(
            text.ends_with("index: its version is 7, this program writes 1; use a program with a later version of brisk, or another directory"),
            "{text}"
        );
    }
    let fetch = || std::io::Result::Ok(b"fetched".to_vec());
    let hit = cache.get_or_insert_with(b"key", About::default(), fetch);
    assert_eq!(hit.unwrap().bytes().unwrap(), b"fetched");
    let mut after = contents(home.path());
    // Empty: for who fetches.
    after.retain(|(name, _)| name != "flights");
    assert!(after == before);
    // A version that was not written is damage.
    header[24] ^= 1;
    write(&header);
    insert(&cache, 1, b"after").unwrap();
    assert_eq!(get(&cache, 1).as_deref(), Some(&b"after"[..]));
}

#[test]
fn a_record_with_chunks_that_nobody_knows_is_a_miss_without_the_lock() {
    let home = home();
    let cache = mapped(home.path(), small());
    insert(&cache, 1, &value(1, 0, 20_000)).unwrap();
    assert!(get(&cache, 1).is_some());
    let (_, slot) = cache.slot_of(1);
    let segment = std::fs::OpenOptions::new()
        .write(true)
        .open(home.path().join(segment_name(slot.segment)))
        .unwrap();
    let at = u64::from(slot.place) * 64 + 29;
    RealDisk.write(segment.as_fd(), at, &[9]).unwrap();
    for n in 1..4 {
        assert!(cache.get_at_once(&1u64.to_le_bytes()).unwrap().is_none());
        let counts = cache.counts();
        assert_eq!((counts.unknown, counts.damaged), (n, 0));
    }
    assert_eq!(cache.iter().unwrap().count(), 0);
}

#[test]
fn a_child_works_though_a_thread_of_its_parent_was_writing() {
    let home = home();
    let cache = mapped(home.path(), small());
    insert(&cache, 1, b"one").unwrap();
    // The thread ends with it, also if this one panics.
    let running = Arc::new(());
    let alive = Arc::downgrade(&running);
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0;
            while alive.strong_count() > 0 {
                // All rounds together write less than the limit, so that nothing is evicted.
                if turn >= 2_000 * rounds.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                    continue;
                }
                insert(&cache, 2 + turn % 50, &value(2 + turn % 50, turn, 200)).unwrap();
                turn += 1;
            }
        });
        for round in 0..40u64 {
            rounds.store(round + 1, Ordering::Relaxed);
            let (mut reader, mut writer) = std::io::pipe().unwrap();
            // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`. It takes no lock that
            // the other thread of this process may have held: that is what this test is about.
            #[allow(unsafe_code)]
            match unsafe { libc::fork() } {
                0 => {
                    let key = (1 << 50) + round;
                    let work = || {
                        get(&cache, 1).as_deref() == Some(b"one")
                            && insert(&cache, key, b"of the child").is_ok()
                            && get(&cache, key).as_deref() == Some(b"of the child")
                    };
                    // A panic would end in the scope of threads, and the child does not have them.
                    let right = std::panic::catch_unwind(AssertUnwindSafe(work));
                    writer
                        .write_all(&[u8::from(right.is_ok_and(|right| right))])
                        .ok();
                    // SAFETY: it takes a number and does not return.
                    #[allow(unsafe_code)]
                    unsafe {
                        libc::_exit(0)
                    }
                }
                child => {
                    drop(writer);
                    let mut answer = [0];
                    let told = reader.read(&mut answer);
                    let mut status = 0;
                    // SAFETY: it writes a number to where one is.
                    #[allow(unsafe_code)]
                    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
                    assert_eq!((waited, status), (child, 0));
                    assert_eq!((told.unwrap(), answer), (1, [1]), "round {round}");
                }
            }
            let key = (1 << 50) + round;
            assert_eq!(get(&cache, key).as_deref(), Some(&b"of the child"[..]));
        }
        drop(running);
    });
}

#[test]
fn what_changes_while_an_index_is_doubled_is_in_the_new_one() {
    let home = home();
    let options = small();
    let other = Cache::open(home.path(), options.clone()).unwrap();
    let changes = AtomicU64::new(0);
    let (there, options_of_other) = (home.path().to_owned(), options.clone());
    let hook = move |deed: Deed| {
        // The blocks of the new index. Those that are written with the lock find it taken.
        if !matches!(&deed, Deed::Write(bytes) if bytes.len() == 65_536) {
            return;
        }
        let options = options_of_other.clone().write_wait(Duration::ZERO);
        let other = Cache::open(&there, options).unwrap();
        let n = changes.fetch_add(1, Ordering::SeqCst);
        if insert(&other, n % 100, b"changed").is_ok() {
            other.remove(&(100 + n % 100).to_le_bytes()).unwrap();
            insert(&other, 1_000_000 + n, b"added").unwrap();
        }
    };
    let cache = doubling(home.path(), &options, HookedDisk::new(hook)).unwrap();
    for key in 0..20_000 {
        insert(&cache, key, &value(key, 1, 30)).unwrap();
    }
    let (mut changed, mut removed, mut added) = (0, 0, 0);
    for key in 0..20_000 {
        let found = get(&other, key);
        assert_eq!(found, get(&cache, key));
        match found {
            Some(found) if key < 100 && found == b"changed" => changed += 1,
            None if (100..200).contains(&key) => removed += 1,
            found => assert_eq!(found, Some(value(key, 1, 30)), "{key}"),
        }
    }
    for key in 1_000_000..1_000_100 {
        let found = get(&other, key);
        added += u32::from(found.is_some());
        assert!(found.is_none_or(|found| found == b"added"));
    }
    assert!(
        changed > 20 && removed > 20 && added > 20,
        "{changed}, {removed}, {added}"
    );
    assert_eq!((cache.counts().displaced, other.counts().displaced), (0, 0));
    let stat = cache.stat().unwrap();
    assert_eq!(
        (stat.unfinished, stat.entries),
        (0, cache.iter().unwrap().count() as u64)
    );
    assert!(stat.slots >= 32_768);
}

#[test]
fn an_index_that_is_cleared_while_it_is_doubled_stays_clear() {
    let home = home();
    let options = small();
    let (there, options_of_other) = (home.path().to_owned(), options.clone());
    let blocks = AtomicU64::new(0);
    let hook = move |deed: Deed| {
        if matches!(&deed, Deed::Write(bytes) if bytes.len() == 65_536)
            && blocks.fetch_add(1, Ordering::SeqCst) == 0
        {
            let other = Cache::open(&there, options_of_other.clone()).unwrap();
            other.clear().unwrap();
        }
    };
    let cache = doubling(home.path(), &options, HookedDisk::new(hook)).unwrap();
    let mut key = 0;
    while key < 2 || cache.stat().unwrap().entries > 1 {
        insert(&cache, key, &value(key, 1, 30)).unwrap();
        key += 1;
    }
    assert!(key > 500, "{key}");
    // The one at which the index was to grow is the only one.
    assert_eq!(cache.iter().unwrap().count(), 1);
    assert_eq!(get(&cache, key - 1), Some(value(key - 1, 1, 30)));
    assert_eq!(
        (
            cache.stat().unwrap().slots,
            cache.stat().unwrap().unfinished
        ),
        (1024, 0)
    );
}

#[test]
fn who_waits_too_long_for_another_that_doubles_the_index_does_it() {
    let home = home();
    let options = small().write_wait(Duration::from_millis(30));
    let cache = doubling(home.path(), &options, Arc::new(RealDisk)).unwrap();
    insert(&cache, 0, b"first").unwrap();
    let (flights, _) = cache.store.directory.open_or_create("flights").unwrap();
    assert!(brisk_io::try_lock_byte(&flights, 1 << 62).unwrap());
    let mut key = 1;
    while !cache.next_grows(key) {
        insert(&cache, key, &value(key, 1, 30)).unwrap();
        key += 1;
    }
    let started = std::time::Instant::now();
    insert(&cache, key, &value(key, 1, 30)).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(30));
    assert_eq!(cache.stat().unwrap().slots, 2048);
    for key in 1..=key {
        assert_eq!(get(&cache, key), Some(value(key, 1, 30)));
    }
    // Another process that ends gives it up.
    drop(flights);
    while cache.stat().unwrap().slots == 2048 {
        key += 1;
        insert(&cache, key, &value(key, 1, 30)).unwrap();
    }
}

#[test]
fn a_child_that_is_forked_while_an_index_is_doubled_lets_the_next_one_double_it() {
    let home = home();
    // Who waits so long has waited for something that did not come.
    let options = small().write_wait(Duration::from_secs(3_600));
    let (ending, end) = std::io::pipe().unwrap();
    let end = std::sync::Mutex::new(Some(end));
    let children = Arc::new(AtomicU64::new(0));
    let forked = children.clone();
    let hook = move |deed: Deed| {
        // The blocks of the new index.
        if !matches!(&deed, Deed::Write(bytes) if bytes.len() == 65_536)
            || forked.fetch_add(1, Ordering::SeqCst) > 0
        {
            return;
        }
        // SAFETY: the child waits for the end of the test, and ends by `_exit`.
        #[allow(unsafe_code)]
        if unsafe { libc::fork() } == 0 {
            drop(end.lock().map(|mut end| end.take()));
            (&ending).read_exact(&mut [0]).ok();
            // SAFETY: it takes a number and does not return.
            #[allow(unsafe_code)]
            unsafe {
                libc::_exit(0)
            }
        }
    };
    let cache = doubling(home.path(), &options, HookedDisk::new(hook)).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut key = 0;
        while cache.stat().unwrap().slots < 4096 {
            insert(&cache, key, &value(key, 1, 30)).unwrap();
            key += 1;
        }
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(children.load(Ordering::SeqCst) > 1);
}

#[test]
fn who_waits_for_another_that_doubles_the_index_waits_no_longer_when_it_is_doubled() {
    let home = home();
    let options = small().write_wait(Duration::from_secs(3_600));
    let cache = doubling(home.path(), &options, Arc::new(RealDisk)).unwrap();
    let index = |cache: &Cache| {
        let process = cache.store.process().unwrap();
        let view = process.view();
        view.index.as_ref().unwrap().id
    };
    insert(&cache, 0, b"first").unwrap();
    let narrow = index(&cache);
    // This one grows it with the lock.
    let other = Cache::open(home.path(), options).unwrap();
    let mut key = 1;
    while index(&other) == narrow {
        insert(&other, key, &value(key, 1, 30)).unwrap();
        key += 1;
    }
    // Somebody keeps the right to double it.
    let (flights, _) = cache.store.directory.open_or_create("flights").unwrap();
    assert!(brisk_io::try_lock_byte(&flights, 1 << 62).unwrap());
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        sender
            .send(crate::growth::double_index(&cache.store, narrow))
            .unwrap();
    });
    let doubled = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(doubled.unwrap());
    assert_ne!(index(&other), narrow);
}

#[test]
fn a_value_that_arrives_in_a_file_with_a_name_stays_until_its_writer_is_killed() {
    let home = home();
    let cache = Cache::on_disk(home.path(), small(), HookedDisk::new(|_| ())).unwrap();
    insert(&cache, 1, b"one").unwrap();
    let unfinished = || cache.stat().unwrap().unfinished;
    let count_files = || {
        let counted = |locked: &mut Locked<'_>| locked.files().map(drop);
        with_lock(&cache.store, Wait::Bounded, counted).unwrap();
        unfinished()
    };
    let mut own = cache.pending(Some(300_000)).unwrap();
    own.write(&[7; 100_000]).unwrap();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`.
    #[allow(unsafe_code)]
    let child = match unsafe { libc::fork() } {
        0 => {
            // What the parent writes is not the child's to remove.
            drop(own);
            let pending = cache.pending(None).and_then(|mut pending| {
                pending.write(&[8; 700_000])?;
                Ok(pending)
            });
            writer.write_all(&[u8::from(pending.is_ok())]).ok();
            std::thread::sleep(Duration::from_secs(60));
            // SAFETY: it takes a number and does not return.
            #[allow(unsafe_code)]
            unsafe {
                libc::_exit(1)
            }
        }
        child => child,
    };
    let mut answer = [0];
    reader.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [1]);
    assert_eq!((unfinished(), count_files()), (2, 2));
    let mut status = 0;
    // SAFETY: it takes two numbers.
    #[allow(unsafe_code)]
    let killed = unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: it writes a number to where one is.
    #[allow(unsafe_code)]
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((killed, waited), (0, child));
    assert_eq!((unfinished(), count_files()), (2, 1));
    own.write(&[7; 200_000]).unwrap();
    own.finish(&2u64.to_le_bytes(), About::default()).unwrap();
    assert!(get(&cache, 2) == Some(vec![7; 300_000]));
    let mut given_up = cache.pending(None).unwrap();
    given_up.write(&[9; 300_000]).unwrap();
    assert_eq!(unfinished(), 1);
    drop(given_up);
    assert_eq!(unfinished(), 0);
}

#[test]
fn eight_threads_share_a_handle() {
    let home = home();
    let cache = mapped(home.path(), small());
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let cache = &cache;
            scope.spawn(move || {
                for turn in 0..500 {
                    let key = thread * 1_000 + turn % 100;
                    insert(cache, key, &value(key, turn, 700)).unwrap();
                    assert_eq!(get(cache, key), Some(value(key, turn, 700)));
                }
            });
        }
    });
    assert_eq!(cache.iter().unwrap().count(), 800);
    assert_eq!(cache.stat().unwrap().entries, 800);
}

#[test]
fn a_writer_that_waits_too_long_says_so() {
    let home = home();
    let options = small().write_wait(Duration::from_millis(50));
    let (holder, waiter) = (mapped(home.path(), small()), mapped(home.path(), options));
    with_lock(&holder.store, Wait::Bounded, |_| {
            let e = insert(&waiter, 1, b"one").unwrap_err();
            assert_eq!(e.kind(), std::io::ErrorKind::TimedOut);
            let text = e.to_string();
            assert!(text.contains("ledger: another process has had the lock for "), "{text}");
            assert!(text.ends_with("allowed are 50; nothing was changed; end or continue that process (fuser names it), or raise write_wait"), "{text}");
            // Reading does not wait.
            assert_eq!(get(&waiter, 1), None);
            Ok(())
        })
        .unwrap();
    insert(&waiter, 1, b"one").unwrap();
    assert_eq!(
        waiter.get(&1u64.to_le_bytes()).unwrap().unwrap().bucket(),
        About::default().bucket
    );
}

#[test]
fn an_entry_of_the_future_gets_old_though_no_uses_are_noted() {
    const DAY: u32 = 24 * 60;
    let home = home();
    let age = Duration::from_secs(10 * 86_400);
    let options = small().max_age(Some(age)).note_use_after(None);
    let cache = mapped(home.path(), options);
    FAKE.set(Some(9_000 * DAY));
    insert(&cache, 1, b"one").unwrap();
    FAKE.set(Some(1_000 * DAY));
    assert_eq!(get(&cache, 1).unwrap(), b"one");
    FAKE.set(Some(1_011 * DAY));
    assert_eq!(get(&cache, 1), None);
    assert_eq!(cache.counts().expired, 1);
    FAKE.set(None);
}

#[test]
fn a_ledger_that_is_older_than_its_segment_lets_nobody_write_over_a_record() {
    let home = home();
    let ledger = home.path().join("ledger");
    insert(&mapped(home.path(), small()), 1, b"one").unwrap();
    let before = std::fs::read(&ledger).unwrap();
    let writer = mapped(home.path(), small());
    insert(&writer, 2, &value(2, 0, 1_000)).unwrap();
    let hit = writer.get(&2u64.to_le_bytes()).unwrap().unwrap();
    // As after a disk that came back without what was not written to it: the file is the same one.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&ledger)
        .unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &before, 0).unwrap();
    let later = mapped(home.path(), small());
    for key in 3..20 {
        insert(&later, key, &value(key, 0, 1_000)).unwrap();
    }
    assert_eq!(hit.bytes().unwrap(), value(2, 0, 1_000));
    for key in 2..20 {
        assert_eq!(get(&later, key), Some(value(key, 0, 1_000)));
    }
    assert_eq!(
        (later.counts().damaged, later.stat().unwrap().segments),
        (0, 2)
    );
}

#[test]
fn no_older_ledger_lets_anybody_write_over_a_record_of_zeros() {
    let len = |key: u64| match key % 40 {
        39 => 20_000,
        19 => 3_000,
        _ => 400,
    };
    // Returns each ledger that there was.
    let fill = |home: &tempfile::TempDir| {
        let writers = [mapped(home.path(), small()), mapped(home.path(), small())];
        let mut ledgers = vec![Vec::new()];
        for key in 0..400 {
            let writer = &writers[usize::from(key % 60 > 50)];
            insert(writer, key, &vec![0; len(key)]).unwrap();
            let now = std::fs::read(home.path().join("ledger")).unwrap();
            // Those that say something else than totals.
            if ledgers
                .last()
                .is_none_or(|last| last.get(..64) != now.get(..64))
            {
                ledgers.push(now);
            }
        }
        ledgers
    };
    let versions = fill(&home()).len();
    assert!(versions > 40, "{versions}");
    for version in 1..versions {
        let home = home();
        let ledgers = fill(&home);
        let ledger = std::fs::OpenOptions::new()
            .write(true)
            .open(home.path().join("ledger"));
        std::os::unix::fs::FileExt::write_all_at(&ledger.unwrap(), &ledgers[version], 0).unwrap();
        let later = mapped(home.path(), small());
        for key in 1_000..1_100 {
            insert(&later, key, &value(key, 0, 1_000)).unwrap();
        }
        for key in 0..400 {
            assert_eq!(get(&later, key), Some(vec![0; len(key)]), "{version}");
        }
        assert_eq!(later.counts().damaged, 0);
    }
}
