//! Random operations on two handles, against a `HashMap`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use brisk_cache::{About, Cache, CacheOptions};

/// A generator that gives the same numbers for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: u64) -> u64 {
        (self.next() >> 11) % most
    }
}

/// A value that says which key and which turn it belongs to, in each part of it.
fn value(key: u64, turn: u64, len: usize) -> Vec<u8> {
    let mut numbers = Numbers(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ turn ^ 1);
    (0..len).map(|_| numbers.next().to_le_bytes()[0]).collect()
}

fn len(numbers: &mut Numbers) -> usize {
    let most = match numbers.below(20) {
        0 => 700_000,
        1 => 100_000,
        2 => 16_390,
        _ => 2_000,
    };
    numbers.below(most) as usize
}

/// Stores a value piece by piece. Its length is known, or not, or guessed.
fn put_in_pieces(cache: &Cache, key: &[u8], value: &[u8], about: About, numbers: &mut Numbers) {
    let expected = match numbers.below(3) {
        0 => None,
        1 => Some(value.len() as u64),
        _ => Some(numbers.below(500_000)),
    };
    let mut pending = cache.pending(expected).unwrap();
    // Others are begun, and never finished.
    let mut abandoned = cache.pending(None).unwrap();
    let mut rest = value;
    while !rest.is_empty() {
        let n = 1 + numbers.below(rest.len().min(90_000) as u64) as usize;
        let (part, behind) = rest.split_at(n);
        pending.write(part).unwrap();
        abandoned.write(part).unwrap();
        rest = behind;
    }
    pending.finish(key, about).unwrap();
}

/// Whether a machine with pages of 64 KiB can map all that this one has written.
fn assert_sizes(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_mapped = name == "index" || name.ends_with(".segment") || name.ends_with(".value");
        let len = entry.metadata().unwrap().len();
        assert!(
            !is_mapped || len.is_multiple_of(65_536),
            "{name} has {len} bytes"
        );
    }
}

fn run(seed: u64, limit: u64, segment_len: u64, turns: u64, exact: bool) {
    let options = CacheOptions::new().limit(limit).segment_len(segment_len);
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // SAFETY: only brisk writes to the directory.
    let mapped = unsafe { Cache::open_mapped(home.path(), options.clone()) }.unwrap();
    let copied = Cache::open(home.path(), options).unwrap();
    let mut numbers = Numbers(seed);
    let mut model: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut buf = Vec::new();
    let mut found = 0;
    for turn in 0..turns {
        let number = numbers.below(400);
        let key = format!("key {number}").into_bytes();
        let cache = if numbers.below(2) == 0 {
            &mapped
        } else {
            &copied
        };
        match numbers.below(40) {
            0..16 => {
                let value = value(number, turn, len(&mut numbers));
                let about = About {
                    fingerprint: turn,
                    bucket: (number % 3) as u16,
                };
                if numbers.below(3) > 0 {
                    cache.insert(&key, &value, about).unwrap();
                } else {
                    put_in_pieces(cache, &key, &value, about, &mut numbers);
                }
                model.insert(number, value);
            }
            16 | 17 => {
                let there = cache.remove(&key).unwrap();
                let known = model.remove(&number).is_some();
                assert!(
                    there == known || (!exact && known),
                    "seed {seed}, turn {turn}"
                );
            }
            18 => {
                cache.update_use(&key).unwrap();
            }
            19 if numbers.below(60) == 0 => {
                cache.clear().unwrap();
                model.clear();
            }
            _ => {
                let expected = model.get(&number);
                let hit = cache.get(&key).unwrap();
                let got = hit.as_ref().map(|hit| hit.bytes().unwrap());
                let into = cache.get_into(&key, &mut buf).unwrap();
                assert_eq!(got.is_some(), into.is_some());
                found += u64::from(got.is_some());
                if exact || got.is_some() {
                    assert!(
                        got == expected.map(Vec::as_slice),
                        "seed {seed}, turn {turn}"
                    );
                    assert!(
                        into == expected.map(Vec::as_slice),
                        "seed {seed}, turn {turn}"
                    );
                }
            }
        }
    }
    assert!(found > turns / 20, "only {found} hits");
    let listed: HashMap<Vec<u8>, u64> = copied
        .iter()
        .unwrap()
        .map(|entry| entry.map(|entry| (entry.key, entry.len)).unwrap())
        .collect();
    for (number, value) in &model {
        let key = format!("key {number}").into_bytes();
        match listed.get(&key) {
            Some(&len) => assert_eq!(len, value.len() as u64),
            None => assert!(!exact),
        }
    }
    assert!(listed.len() <= model.len());
    let stat = mapped.stat().unwrap();
    assert_eq!(stat.entries, listed.len() as u64);
    assert!(stat.bytes <= limit, "{stat:?}");
    assert_eq!((stat.counts.damaged, copied.counts().damaged), (0, 0));
    assert_eq!(stat.unfinished, 0);
    assert_sizes(home.path());
    if !exact {
        assert!(stat.counts.evicted + copied.counts().evicted > 0);
    }
}

#[test]
fn a_cache_with_room_is_a_map() {
    for seed in 1..5 {
        run(seed, 1 << 30, 4 << 20, 3_000, true);
    }
}

#[test]
fn a_full_cache_has_only_what_was_inserted_last_under_a_key() {
    for seed in 1..5 {
        // Rounded up to the largest pages of any machine.
        run(seed, 6 << 20, (1 << 20) - 12_345, 4_000, false);
    }
}

#[test]
fn an_index_that_grows_loses_nothing() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // SAFETY: only brisk writes to the directory.
    let mapped = unsafe { Cache::open_mapped(home.path(), CacheOptions::new()) }.unwrap();
    let reader = Cache::open(home.path(), CacheOptions::new()).unwrap();
    assert!(reader.get(b"early").unwrap().is_none());
    for number in 0..20_000u64 {
        let key = number.to_le_bytes();
        mapped
            .insert(&key, &value(number, 0, 50), About::default())
            .unwrap();
    }
    for number in 0..20_000u64 {
        let hit = reader.get(&number.to_le_bytes()).unwrap().unwrap();
        assert_eq!(hit.bytes().unwrap(), value(number, 0, 50));
    }
    let stat = reader.stat().unwrap();
    assert_eq!((stat.entries, stat.counts.displaced), (20_000, 0));
    // Two sets for each key let the index be this full.
    assert!(stat.slots <= 4 * 20_000, "{}", stat.slots);
}
