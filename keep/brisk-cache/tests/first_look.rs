//! The first answer of a handle, which it reads without a mapping.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use brisk_cache::{About, Cache, CacheOptions};

fn home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn open(path: &Path) -> Cache {
    let options = CacheOptions::new().limit(64 << 20).segment_len(1 << 20);
    // SAFETY: only brisk writes to the directories of these tests, but for one that opens its handles afterwards.
    unsafe { Cache::open_mapped(path, options) }.unwrap()
}

fn insert(cache: &Cache, key: u32, value: &[u8]) {
    let inserted = cache.insert(&key.to_le_bytes(), value, About::default());
    inserted.unwrap();
}

/// Whether this process maps a file of the directory.
fn is_mapped(directory: &Path) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains(directory.to_str().unwrap())
}

fn descriptors(directory: &Path) -> usize {
    let there = |entry: io::Result<fs::DirEntry>| {
        let target = fs::read_link(entry.unwrap().path());
        target.is_ok_and(|target| target.starts_with(directory))
    };
    let all = fs::read_dir("/proc/self/fd").unwrap();
    all.map(there).filter(|&there| there).count()
}

#[test]
fn the_first_answer_is_a_copy_and_later_ones_are_mapped() {
    let home = home();
    let writer = open(home.path());
    let values = [vec![], vec![7; 1_000], vec![8; 16_384], vec![9; 16_385]];
    for (key, value) in (0..).zip(&values) {
        insert(&writer, key, value);
    }
    drop(writer);
    for (key, value) in (0u32..).zip(&values) {
        let cache = open(home.path());
        let first = cache.get(&key.to_le_bytes()).unwrap().unwrap();
        assert_eq!(first.bytes().unwrap(), value);
        // A long value is checked as it is touched, so it is not copied.
        let is_long = value.len() > 16_384;
        assert_eq!(first.is_mapped(), is_long);
        assert_eq!(is_mapped(home.path()), is_long);
        let second = cache.get(&key.to_le_bytes()).unwrap().unwrap();
        assert!(second.is_mapped());
        assert_eq!(second.bytes().unwrap(), value);
        drop((cache, first, second));
        assert!(!is_mapped(home.path()));
        assert_eq!(descriptors(home.path()), 0);

        let cache = open(home.path());
        let mut buf = vec![1; 100];
        let copied = cache.get_into(&key.to_le_bytes(), &mut buf).unwrap();
        assert_eq!(copied, Some(&value[..]));
        assert_eq!(is_mapped(home.path()), is_long);
    }
    // A miss takes no mapping, either, and no segment.
    let cache = open(home.path());
    assert!(cache.get(b"absent").unwrap().is_none());
    assert_eq!(cache.counts().absent, 1);
    assert!(!is_mapped(home.path()));
}

#[test]
fn a_first_answer_is_right_whatever_happened_since_the_handle_was_opened() {
    type Event = fn(&Cache);
    let replace: Event = |cache| insert(cache, 1, b"new");
    let remove: Event = |cache| assert!(cache.remove(&1u32.to_le_bytes()).unwrap());
    let grow: Event = |cache| {
        let slots = cache.stat().unwrap().slots;
        for key in 100..5_000 {
            insert(cache, key, b"other");
        }
        assert!(cache.stat().unwrap().slots > slots);
        insert(cache, 1, b"new");
    };
    let clear: Event = |cache| cache.clear().unwrap();
    let clear_and_insert: Event = |cache| {
        cache.clear().unwrap();
        insert(cache, 1, b"new");
    };
    let evict: Event = |cache| {
        for key in 100..400 {
            insert(cache, key, &[5; 250_000]);
        }
        assert!(cache.counts().evicted > 0);
    };
    let large: Event = |cache| insert(cache, 1, &[6; 600_000]);
    let events: [(Event, Option<&[u8]>); 8] = [
        (|_| (), Some(b"old")),
        (replace, Some(b"new")),
        (remove, None),
        (grow, Some(b"new")),
        (clear, None),
        (clear_and_insert, Some(b"new")),
        (evict, None),
        (large, Some(&[6; 600_000])),
    ];
    for (number, (event, expected)) in events.into_iter().enumerate() {
        let home = home();
        let writer = open(home.path());
        insert(&writer, 1, b"old");
        let handles: Vec<Cache> = (0..3).map(|_| open(home.path())).collect();
        event(&writer);
        let found = |cache: &Cache| {
            let hit = cache.get(&1u32.to_le_bytes()).unwrap();
            hit.map(|hit| hit.to_vec().unwrap())
        };
        assert_eq!(found(&handles[0]).as_deref(), expected, "event {number}");
        assert_eq!(found(&handles[0]).as_deref(), expected, "event {number}");
        let mut buf = Vec::new();
        let copied = handles[1].get_into(&1u32.to_le_bytes(), &mut buf).unwrap();
        assert_eq!(copied, expected, "event {number}");
        // One that writes first has no first look.
        insert(&handles[2], 2, b"two");
        assert_eq!(found(&handles[2]).as_deref(), expected, "event {number}");
        for cache in &handles {
            assert_eq!(cache.counts().damaged, 0, "event {number}");
        }
    }
}

#[test]
fn a_first_answer_that_is_damaged_is_a_miss_and_counted() {
    let home = home();
    let writer = open(home.path());
    insert(&writer, 1, &[7; 1_000]);
    insert(&writer, 2, &[8; 1_000]);
    drop(writer);
    let segment = fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|end| end == "segment"))
        .unwrap();
    let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(&[9], 64 + 64 + 500).unwrap();
    let get = |key: u32| {
        let cache = open(home.path());
        let hit = cache.get(&key.to_le_bytes()).unwrap();
        (hit.map(|hit| hit.to_vec().unwrap()), cache.counts().damaged)
    };
    assert_eq!(get(1), (None, 1));
    assert_eq!(get(2), (Some(vec![8; 1_000]), 0));
    file.set_len(65_536).unwrap();
    assert_eq!(get(2), (Some(vec![8; 1_000]), 0));
    fs::remove_file(&segment).unwrap();
    assert_eq!(get(2), (None, 1));
}

#[test]
fn a_forked_child_looks_first_too() {
    let home = home();
    let writer = open(home.path());
    insert(&writer, 1, b"one");
    let cache = open(home.path());
    // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`.
    let child = match unsafe { libc::fork() } {
        0 => {
            let get = || cache.get(&1u32.to_le_bytes()).ok().flatten();
            let is_right = |mapped: bool| {
                get().is_some_and(|hit| {
                    hit.is_mapped() == mapped && hit.bytes().is_ok_and(|bytes| bytes == b"one")
                })
            };
            let right = is_right(false) && is_right(true);
            // SAFETY: it takes a number and does not return.
            unsafe { libc::_exit(i32::from(!right)) }
        }
        child => child,
    };
    let mut status = 0;
    // SAFETY: it writes a number to where one is.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    // What the child did is none of the parent's.
    let hit = cache.get(&1u32.to_le_bytes()).unwrap().unwrap();
    assert!(!hit.is_mapped());
}
