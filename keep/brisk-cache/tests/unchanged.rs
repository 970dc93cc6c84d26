//! Entries that several change, each what it has found.

use std::thread;

use brisk_cache::{About, Cache, CacheOptions};

fn add(cache: &Cache, key: &[u8], line: &[u8]) -> usize {
    for tries in 1.. {
        let before = cache.get(key).unwrap();
        let mut lines = match &before {
            Some(hit) => hit.bytes().unwrap().to_vec(),
            None => Vec::new(),
        };
        lines.extend_from_slice(line);
        let done = cache.insert_if_unchanged(key, before.as_ref(), &lines, About::default());
        if done.unwrap() {
            return tries;
        }
    }
    unreachable!()
}

/// Handles stand for processes: they share nothing but the directory.
#[test]
fn what_handles_add_at_once_is_all_there() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    // The longer values have files of their own.
    let options = CacheOptions::new().segment_len(1 << 14);
    let open = || Cache::open(home.path(), options.clone()).unwrap();
    let tries: usize = thread::scope(|scope| {
        let writers: Vec<_> = (0..4u8)
            .map(|writer| {
                let open = &open;
                scope.spawn(move || {
                    let cache = open();
                    let lines = (0..100u8).map(|line| [writer, line].repeat(16));
                    lines.map(|line| add(&cache, b"key", &line)).sum::<usize>()
                })
            })
            .collect();
        writers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    assert!(tries >= 400);
    let hit = open().get(b"key").unwrap().unwrap();
    let mut lines: Vec<&[u8]> = hit.bytes().unwrap().chunks(32).collect();
    assert_eq!(lines.len(), 400);
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 400);
}

#[test]
fn what_has_changed_stays() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::open(home.path(), CacheOptions::new()).unwrap();
    let about = About::default();
    let key = b"key".as_slice();
    let get = || cache.get(key).unwrap();
    let put = |before: Option<&brisk_cache::Hit>, value: &[u8]| {
        cache
            .insert_if_unchanged(key, before, value, about)
            .unwrap()
    };
    assert!(put(None, b"first"));
    assert!(!put(None, b"second"));
    let first = get().unwrap();
    assert_eq!(first.bytes().unwrap(), b"first");
    assert!(put(Some(&first), b"second"));
    assert!(!put(Some(&first), b"third"));
    let second = get().unwrap();
    cache.insert(key, b"other", about).unwrap();
    assert!(!put(Some(&second), b"third"));
    cache.remove(key).unwrap();
    assert!(!put(Some(&second), b"third"));
    assert!(get().is_none());
    assert!(put(None, b"third"));
    // A hit of another key is never the entry of this one.
    cache.insert(b"another", b"third", about).unwrap();
    let another = cache.get(b"another").unwrap().unwrap();
    assert!(!put(Some(&another), b"fourth"));
    assert_eq!(get().unwrap().bytes().unwrap(), b"third");
}
