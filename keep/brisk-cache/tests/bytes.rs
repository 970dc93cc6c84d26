//! `Bytes` that are made of hits.

use std::os::unix::fs::FileExt;
use std::path::Path;

use brisk_cache::{About, Cache, CacheOptions, Hit};
use bytes::Bytes;

fn home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn options() -> CacheOptions {
    CacheOptions::new().limit(6 << 20).segment_len(1 << 20)
}

fn mapped(path: &Path) -> Cache {
    // SAFETY: only brisk writes to the directory, and the one test that damages it borrows nothing from there.
    unsafe { Cache::open_mapped(path, options()) }.unwrap()
}

fn value(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8).collect()
}

fn insert(cache: &Cache, key: &[u8], value: &[u8]) {
    cache.insert(key, value, About::default()).unwrap();
}

fn get(cache: &Cache, key: &[u8]) -> Hit {
    cache.get(key).unwrap().unwrap()
}

#[test]
fn bytes_of_a_mapped_hit_are_those_of_the_mapping() {
    let home = home();
    let cache = mapped(home.path());
    // In a segment without chunks, in one with them, and in a file of its own.
    for len in [0, 1, 16 << 10, 100_000, 1 << 20] {
        insert(&cache, b"key", &value(len));
        let borrowed = get(&cache, b"key");
        let there = borrowed.bytes().unwrap().as_ptr_range();
        let bytes = get(&cache, b"key").into_bytes().unwrap();
        assert_eq!(bytes, value(len));
        for part in [0..len, len / 3..len / 2, len..len] {
            let part_bytes = borrowed.part_bytes(part.clone()).unwrap();
            assert_eq!(part_bytes, value(len)[part.clone()]);
            if !part.is_empty() {
                assert!(there.contains(&part_bytes.as_ptr()), "length {len}");
                assert!(there.contains(&bytes.as_ptr()), "length {len}");
            }
        }
        let e = borrowed.part_bytes(0..len + 1).unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::InvalidInput);
    }
}

#[test]
fn bytes_outlive_the_entry_its_file_and_the_cache() {
    let home = home();
    let cache = mapped(home.path());
    insert(&cache, b"key", &value(3_000));
    let bytes: Bytes = get(&cache, b"key").into_bytes().unwrap();
    let part = get(&cache, b"key").part_bytes(1_000..2_000).unwrap();
    for n in 0..2_000u32 {
        insert(&cache, &n.to_le_bytes(), &value(9_000));
    }
    assert!(cache.get(b"key").unwrap().is_none(), "it was evicted");
    drop(cache);
    drop(home);
    let elsewhere = std::thread::spawn(move || assert_eq!(bytes, value(3_000)));
    elsewhere.join().unwrap();
    assert_eq!(part, value(3_000)[1_000..2_000]);
}

#[test]
fn bytes_pin_the_file_until_the_last_one_is_dropped() {
    let home = home();
    let cache = mapped(home.path());
    insert(&cache, b"key", &value(1 << 20));
    let bytes = get(&cache, b"key").into_bytes().unwrap();
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
    let directory = home.path().to_str().unwrap().to_owned();
    let pinned = || {
        let maps = maps();
        let of_values = |line: &&str| line.contains(&directory) && line.contains(".value");
        maps.lines().filter(of_values).count()
    };
    cache.remove(b"key").unwrap();
    let again = bytes.slice(5..10);
    drop(bytes);
    assert_eq!(pinned(), 1);
    drop(again);
    assert_eq!(pinned(), 0);
}

#[test]
fn a_copied_hit_gives_its_copy_away() {
    let home = home();
    let cache = Cache::open(home.path(), options()).unwrap();
    insert(&cache, b"key", &value(30_000));
    let hit = get(&cache, b"key");
    let part = hit.part_bytes(7..20).unwrap();
    let there = hit.bytes().unwrap().as_ptr();
    let bytes = hit.into_bytes().unwrap();
    assert_eq!((bytes.as_ptr(), bytes), (there, value(30_000).into()));
    assert_eq!(part, value(30_000)[7..20]);
    // A value that cannot be stored.
    let large = value(2 << 20);
    let fetch = || std::io::Result::Ok(large.clone());
    let hit = cache
        .get_or_insert_with(b"large", About::default(), fetch)
        .unwrap();
    assert_eq!(hit.into_bytes().unwrap(), large);
}

#[test]
fn a_damaged_chunk_is_in_no_bytes() {
    let home = home();
    let cache = mapped(home.path());
    insert(&cache, b"key", &value(100_000));
    let segment = std::fs::read_dir(home.path()).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        path.extension()
            .is_some_and(|e| e == "segment")
            .then_some(path)
    });
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(segment.unwrap())
        .unwrap();
    // In the third chunk, wherever the record begins in its first KB.
    file.write_all_at(&[0xFF; 64], 40_000).unwrap();
    let hit = get(&cache, b"key");
    assert_eq!(hit.part_bytes(0..10_000).unwrap(), value(10_000));
    let e = hit.part_bytes(30_000..50_000).unwrap_err();
    assert_eq!(e.kind(), std::io::ErrorKind::InvalidData);
    assert_eq!(
        hit.into_bytes().unwrap_err().kind(),
        std::io::ErrorKind::InvalidData
    );
}
