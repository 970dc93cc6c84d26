//! What [`Inspection`] says about whole, damaged and hostile directories, and what [`Cache::prune`] leaves.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use brisk_cache::{About, Cache, CacheOptions, Damage, Inspection, Outcome};

fn value(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 7 + n) as u8).collect()
}

fn options() -> CacheOptions {
    CacheOptions::new().limit(4 << 20).segment_len(64 << 10)
}

/// A cache with a small, a chunked and a large value.
fn filled(directory: &Path) -> Cache {
    let cache = Cache::open(directory, options()).unwrap();
    for (n, len) in [(0, 0), (1, 400), (2, 14_000), (3, 40_000)] {
        let about = About {
            fingerprint: n,
            bucket: n as u16 % 2,
        };
        let key = format!("key {n}");
        cache.insert(key.as_bytes(), &value(n, len), about).unwrap();
    }
    cache
}

fn file(directory: &Path, end: &str) -> PathBuf {
    let mut files = fs::read_dir(directory).unwrap().map(|e| e.unwrap().path());
    files
        .find(|path| path.to_str().unwrap().ends_with(end))
        .unwrap()
}

fn verified(directory: &Path) -> (u64, Vec<Damage>) {
    let mut damages = Vec::new();
    let inspection = Inspection::open(directory).unwrap();
    let done = inspection
        .verify(|_| {}, |damage| damages.push(damage))
        .unwrap();
    assert_eq!(done.faults, damages.len() as u64);
    (done.entries, damages)
}

#[test]
fn the_limit_of_who_inserted_last_is_noted() {
    let home = tempfile::tempdir().unwrap();
    let limit = || {
        let inspection = Inspection::open(home.path()).unwrap();
        inspection.summary().unwrap().limit
    };
    let open = |limit| Cache::open(home.path(), options().limit(limit)).unwrap();
    let first = open(4 << 20);
    first.remove(b"none").unwrap();
    // Who looks and tidies up has no say.
    assert_eq!(limit(), None);
    first.insert(b"key", b"value", About::default()).unwrap();
    assert_eq!(limit(), Some(4 << 20));
    let second = open(3 << 20);
    second.prune().unwrap();
    second.clear().unwrap();
    assert_eq!(limit(), Some(4 << 20));
    let mut n = 0u32;
    while second.stat().unwrap().slots == 1024 {
        n += 1;
        second
            .insert(&n.to_le_bytes(), b"", About::default())
            .unwrap();
    }
    assert_eq!(limit(), Some(3 << 20));
    // As in the index of an older brisk.
    let index = fs::OpenOptions::new()
        .write(true)
        .open(home.path().join("index"));
    std::os::unix::fs::FileExt::write_all_at(&index.unwrap(), &[0; 16], 40).unwrap();
    assert_eq!(limit(), None);
    open(4 << 20)
        .insert(b"key", b"value", About::default())
        .unwrap();
    assert_eq!(limit(), Some(4 << 20));
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_whole_cache_is_counted_listed_and_sound() {
    let home = tempfile::tempdir().unwrap();
    let cache = filled(home.path());
    cache.remove(b"key 2").unwrap();
    let inspection = Inspection::open(home.path()).unwrap();
    let summary = inspection.summary().unwrap();
    assert_eq!((summary.entries, summary.slots), (3, 1024));
    assert_eq!((summary.damaged_slots, summary.dangling), (0, 0));
    assert_eq!(summary.bytes, cache.stat().unwrap().bytes);
    assert_eq!(summary.limit, Some(4 << 20));
    assert_eq!(summary.buckets, cache.buckets().unwrap());
    let ledger = summary.ledger.unwrap();
    assert!(ledger.is_of_this_boot);
    assert_eq!(
        (ledger.entries, ledger.entry_bytes),
        (3, summary.entry_bytes)
    );
    // A value of 40,000 bytes is more than a quarter of a segment.
    let kinds: Vec<_> = summary
        .files
        .iter()
        .map(|f| (f.alone, f.active, f.entries))
        .collect();
    assert_eq!(kinds, [(false, true, 2), (true, false, 1)]);

    let mut listed = BTreeMap::new();
    let left_out = inspection.each_entry(|entry| {
        listed.insert(
            entry.key.clone(),
            (entry.len, entry.fingerprint, entry.bucket, entry.alone),
        );
        Ok(())
    });
    assert_eq!(left_out.unwrap(), 0);
    let expected = [(0, 0, false), (1, 400, false), (3, 40_000, true)];
    let expected = expected.map(|(n, len, alone)| {
        (
            format!("key {n}").into_bytes(),
            (len, n, n as u16 % 2, alone),
        )
    });
    assert_eq!(listed, BTreeMap::from(expected));
    assert_eq!(verified(home.path()), (3, Vec::new()));

    for (n, len, chunks) in [(1, 400, 0), (3, 40_000, 10)] {
        let mut copy = Vec::new();
        let key = format!("key {n}");
        let told = inspection.write_value(key.as_bytes(), &mut copy).unwrap();
        assert_eq!(told.outcome, Outcome::Found);
        assert_eq!(told.record.unwrap().chunks, chunks);
        assert_eq!(copy, value(n, len));
    }
    let told = inspection.explain(b"key 2").unwrap();
    assert_eq!(
        (told.outcome, told.slot, told.damaged),
        (Outcome::NoSlot, None, 0)
    );
}

#[test]
fn looking_changes_nothing_and_waits_for_no_writer() {
    let home = tempfile::tempdir().unwrap();
    let cache = filled(home.path());
    let ledger = fs::File::open(home.path().join("ledger")).unwrap();
    rustix::fs::flock(&ledger, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let state = || {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(home.path()).unwrap() {
            let path = entry.unwrap().path();
            files.insert(path.clone(), fs::read(path).unwrap());
        }
        files
    };
    let before = state();
    let started = Instant::now();
    assert_eq!(verified(home.path()).0, 4);
    let inspection = Inspection::open(home.path()).unwrap();
    assert_eq!(inspection.summary().unwrap().entries, 4);
    assert_eq!(
        inspection.explain(b"key 1").unwrap().outcome,
        Outcome::Found
    );
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(state(), before);
    drop(cache);
}

#[test]
fn each_step_of_a_look_up_can_be_the_last() {
    let home = tempfile::tempdir().unwrap();
    let fresh = |name: &str| {
        let directory = home.path().join(name);
        filled(&directory);
        let inspection = Inspection::open(&directory).unwrap();
        let told = inspection.explain(b"key 3").unwrap();
        assert_eq!(told.outcome, Outcome::Found);
        (directory, told)
    };
    let outcome = |directory: &Path| {
        let inspection = Inspection::open(directory).unwrap();
        let told = inspection.explain(b"key 3").unwrap();
        assert!(inspection.write_value(b"key 3", &mut Vec::new()).unwrap() == told);
        (told.outcome, told.damage.map(|damage| damage.to_string()))
    };

    let (directory, told) = fresh("slot");
    let slot = told.slot.unwrap();
    flip(&directory.join("index"), slot.at as usize + 45);
    let (found, damage) = outcome(&directory);
    assert_eq!(found, Outcome::SlotDamaged);
    let start = format!("index, byte {}: check is ", slot.at + 56);
    assert!(damage.unwrap().starts_with(&start));

    let (directory, told) = fresh("head");
    let name = told.segment.unwrap().file;
    flip(&directory.join(&name), 65);
    let (found, damage) = outcome(&directory);
    assert_eq!(found, Outcome::RecordDamaged);
    assert!(
        damage
            .unwrap()
            .starts_with(&format!("{name}, byte 64: check is "))
    );

    let (directory, told) = fresh("value");
    let name = told.segment.unwrap().file;
    let at = told.record.unwrap().value_at + 4_096;
    flip(&directory.join(&name), at as usize + 5);
    let expected = format!(
        "{name}, byte {at}: chunk 1 of the value differs from its check, allowed is what was written"
    );
    assert_eq!(
        outcome(&directory),
        (Outcome::ValueDamaged, Some(expected.clone()))
    );
    let (entries, damages) = verified(&directory);
    let told: Vec<_> = damages
        .iter()
        .map(|damage| (damage.to_string(), damage.key.clone()))
        .collect();
    assert_eq!(
        (entries, told),
        (3, vec![(expected, Some(b"key 3".to_vec()))])
    );

    let (directory, told) = fresh("header");
    let name = told.segment.unwrap().file;
    flip(&directory.join(&name), 24);
    let (found, damage) = outcome(&directory);
    assert_eq!(found, Outcome::SegmentDamaged);
    assert!(
        damage
            .unwrap()
            .starts_with(&format!("{name}, byte 56: check is "))
    );

    let (directory, told) = fresh("gone");
    let name = told.segment.unwrap().file;
    fs::remove_file(directory.join(&name)).unwrap();
    assert_eq!(outcome(&directory), (Outcome::NoSegment, None));
    let slot = told.slot.unwrap();
    let expected = format!(
        "index, byte {}: the slot names {name}, allowed is a file that exists",
        slot.at
    );
    assert_eq!(verified(&directory).1[0].to_string(), expected);
    assert_eq!(
        Inspection::open(&directory)
            .unwrap()
            .summary()
            .unwrap()
            .dangling,
        1
    );

    let (directory, told) = fresh("cut");
    let name = told.segment.unwrap().file;
    fs::File::options()
        .write(true)
        .open(directory.join(&name))
        .unwrap()
        .set_len(70_000)
        .unwrap();
    let (found, damage) = outcome(&directory);
    assert_eq!(found, Outcome::RecordDamaged);
    let slot = told.slot.unwrap();
    let end = slot.record_at + slot.record_len;
    assert_eq!(
        damage.unwrap(),
        format!(
            "{name}, byte 64: the file's length is 70000, allowed is at least {end}, where a record ends"
        )
    );

    let (directory, _) = fresh("no index");
    fs::remove_file(directory.join("index")).unwrap();
    assert_eq!(outcome(&directory), (Outcome::NoIndex, None));
    assert_eq!(
        verified(&directory).1[0].to_string(),
        "index, byte 0: there is no such file, allowed is one; the next writer makes an empty one"
    );
}

/// Every bit that means something is checked: where it is flipped, `verify` finds it, and nothing panics.
#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("cache");
    filled(&directory);
    let told = |key: &[u8]| Inspection::open(&directory).unwrap().explain(key).unwrap();
    let slots: Vec<_> = (0..4)
        .map(|n| told(format!("key {n}").as_bytes()).slot.unwrap().at as usize)
        .collect();
    let segment = file(&directory, ".segment");
    let alone = file(&directory, ".value");
    let index = directory.join("index");
    // Parts of files, and whether `verify` must see them. The mark of an index is covered by no check.
    let mut parts = vec![(index.clone(), 0..32), (directory.join("ledger"), 0..64)];
    parts.extend(slots.iter().map(|&at| (index.clone(), at..at + 64)));
    parts.extend([(segment.clone(), 0..64), (alone.clone(), 0..160)]);
    let record = told(b"key 1").slot.unwrap();
    let from = record.record_at as usize;
    parts.push((segment, from..from + 64 + 400));
    let value_at = told(b"key 3").record.unwrap().value_at as usize;
    parts.push((alone, value_at..value_at + 64));
    for (path, part) in parts {
        let whole = fs::read(&path).unwrap();
        for at in part {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, &bytes).unwrap();
            let found = match Inspection::open(&directory) {
                Ok(inspection) => {
                    inspection.summary().unwrap();
                    inspection.each_entry(|_| Ok(())).unwrap();
                    for n in 0..4 {
                        inspection.explain(format!("key {n}").as_bytes()).unwrap();
                    }
                    inspection.verify(|_| {}, |_| {}).unwrap().faults > 0
                }
                // Another version of the format.
                Err(e) => e.kind() == std::io::ErrorKind::Unsupported,
            };
            // Bytes between a key and its value belong to nobody.
            let between = bytes[at] == 1 << (at % 8) && whole[at] == 0;
            assert!(found || between, "{}, byte {at}", path.display());
        }
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(verified(&directory).1, []);
}

#[test]
fn what_is_no_cache_or_of_another_version_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let message = |directory: &Path| Inspection::open(directory).unwrap_err().to_string();
    assert_eq!(
        message(home.path()),
        format!(
            "{}: not a cache of brisk: no file in it begins as one of a cache does; name the directory that the program \
             opens as its cache",
            home.path().display()
        )
    );
    fs::write(home.path().join("index"), "other").unwrap();
    assert!(message(home.path()).contains(": not a cache of brisk: "));
    assert!(!home.path().join("ledger").exists());
    let none = home.path().join("none");
    assert!(message(&none).contains("No such file"));
    assert!(!none.exists());

    let directory = home.path().join("cache");
    filled(&directory);
    let index = directory.join("index");
    let mut bytes = fs::read(&index).unwrap();
    bytes[8] = 9;
    fs::write(&index, bytes).unwrap();
    assert_eq!(
        message(&directory),
        format!(
            "{}: its format has version 9, allowed is 1; use the brisk that wrote it",
            index.display()
        )
    );
    // A link could lead to another's file, and a pipe would wait.
    fs::remove_file(&index).unwrap();
    symlink("/etc/passwd", &index).unwrap();
    let damages = verified(&directory).1;
    assert_eq!(
        damages[0].to_string(),
        "index, byte 0: its kind is a symbolic link, allowed is a file"
    );
}

/// Sparse files that say they are huge take no memory.
#[test]
fn huge_files_take_little_memory() {
    let home = tempfile::tempdir().unwrap();
    filled(home.path());
    let segment = file(home.path(), ".segment");
    fs::File::options()
        .write(true)
        .open(&segment)
        .unwrap()
        .set_len(1 << 42)
        .unwrap();
    let damages = verified(home.path()).1;
    assert!(damages.len() >= 3, "{damages:?}");
    assert!(
        damages[0]
            .message
            .starts_with("the file's length is 4398046511104, allowed is ")
    );
}

#[test]
fn nothing_that_writers_do_is_damage() {
    let home = tempfile::tempdir().unwrap();
    let cache = filled(home.path());
    let until = Instant::now() + Duration::from_secs(3);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while Instant::now() < until {
                n += 1;
                let len = [300, 20_000, 40_000][n as usize % 3];
                let key = format!("key {}", n % 500);
                let bytes = value(n, len);
                cache
                    .insert(key.as_bytes(), &bytes, About::default())
                    .unwrap();
                if n % 7 == 0 {
                    cache.remove(format!("key {}", n % 400).as_bytes()).unwrap();
                }
            }
            assert!(n > 100);
        });
        while Instant::now() < until {
            assert_eq!(verified(home.path()).1, []);
        }
    });
}

#[test]
fn pruning_keeps_the_limit_and_what_was_used() {
    let home = tempfile::tempdir().unwrap();
    let all = options().limit(16 << 20);
    let cache = Cache::open(home.path(), all).unwrap();
    for n in 0..400 {
        let key = format!("key {n:03}");
        cache
            .insert(key.as_bytes(), &value(n, 10_000), About::default())
            .unwrap();
    }
    let before = cache.stat().unwrap().bytes;
    assert!(before > 4_000_000);
    assert!(cache.update_use(b"key 000").unwrap());
    let small = Cache::open(home.path(), options().limit(1 << 20)).unwrap();
    let pruned = small.prune().unwrap();
    assert_eq!(pruned.bytes_before, before);
    assert!(
        pruned.bytes_after <= 1 << 20 && pruned.bytes_after > 500_000,
        "{pruned:?}"
    );
    assert_eq!(pruned.bytes_after, cache.stat().unwrap().bytes);
    assert!(cache.get(b"key 000").unwrap().is_some(), "it was used");
    assert!(cache.get(b"key 001").unwrap().is_none());
    assert!(cache.get(b"key 399").unwrap().is_some(), "it is the newest");
    let left = cache.iter().unwrap().count() as u64;
    assert_eq!(pruned.evicted, 400 - left);
    assert_eq!(verified(home.path()), (left, Vec::new()));
    // Nothing is left to do, and writing goes on.
    assert_eq!(small.prune().unwrap().evicted, 0);
    cache.insert(b"new", b"value", About::default()).unwrap();
    assert!(cache.get(b"new").unwrap().is_some());
    assert_eq!(cache.stat().unwrap().entries, left + 1);
}

#[test]
fn layouts_are_counted_by_the_headers_of_records() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::open(home.path(), CacheOptions::new()).unwrap();
    let mut about = About::default();
    for n in 0..50u32 {
        about.fingerprint = if n % 5 == 0 { 7 } else { 9 };
        // Some have chunks.
        let value = vec![7; n as usize * 1_000];
        cache.insert(&n.to_le_bytes(), &value, about).unwrap();
    }
    let layouts = |most| {
        let inspection = Inspection::open(home.path()).unwrap();
        let layouts = inspection.layouts(most).unwrap();
        let layouts = layouts.into_iter();
        layouts
            .map(|layout| (layout.fingerprint, layout.entries))
            .collect::<Vec<_>>()
    };
    assert_eq!(layouts(1_000), [(9, 40), (7, 10)]);
    let asked: u64 = layouts(20).iter().map(|&(_, entries)| entries).sum();
    assert_eq!(asked, 20);
}
