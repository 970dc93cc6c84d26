//! Values that are stored while they arrive.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use brisk_cache::{About, Cache, CacheOptions, Pending};

fn home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Values whose records are longer than 256 KiB have files of their own.
fn small() -> CacheOptions {
    CacheOptions::new().limit(64 << 20).segment_len(1 << 20)
}

fn value(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn read_all(reader: &brisk_cache::PendingReader) -> Vec<u8> {
    let mut value = Vec::new();
    let mut buf = vec![0; 10_000];
    loop {
        match reader.read_at(&mut buf, value.len() as u64).unwrap() {
            0 => return value,
            n => value.extend_from_slice(&buf[..n]),
        }
    }
}

#[test]
fn what_arrives_in_pieces_is_found_as_a_whole() {
    let home = home();
    // SAFETY: only brisk writes to the directory.
    let mapped = unsafe { Cache::open_mapped(home.path(), small()) }.unwrap();
    let copied = Cache::open(home.path(), small()).unwrap();
    let lens = [
        0, 1, 16_384, 16_385, 65_535, 65_536, 65_537, 200_000, 259_000, 262_144, 300_000, 3_000_001,
    ];
    for (turn, len) in lens.into_iter().enumerate() {
        let expected = [
            None,
            Some(len),
            Some(len / 2),
            Some(len + 1),
            Some(len + 400_000),
        ];
        for (n, expected) in expected.into_iter().enumerate() {
            let step = [len.max(1), 1_000, 70_000, 16_384, 16_385][(turn + n) % 5];
            let what = format!("{len} bytes, expected {expected:?}, in steps of {step}");
            let value = value(len as u32 + n as u32, len);
            let key = vec![n as u8; 1 + turn * 100];
            let mut pending = copied.pending(expected.map(|len| len as u64)).unwrap();
            let reader = pending.reader();
            for (n, part) in value.chunks(step).enumerate() {
                pending.write(part).unwrap();
                pending.write(b"").unwrap();
                assert_eq!(pending.len(), (n * step + part.len()) as u64, "{what}");
            }
            assert!(mapped.get(&key).unwrap().is_none(), "{what}");
            let about = About {
                fingerprint: len as u64,
                bucket: 3,
            };
            pending.finish(&key, about).unwrap();
            for cache in [&mapped, &copied] {
                let hit = cache.get(&key).unwrap().unwrap();
                assert!(hit.bytes().unwrap() == value, "{what}");
                assert_eq!((hit.fingerprint(), hit.bucket()), (len as u64, 3), "{what}");
            }
            assert!(read_all(&reader) == value, "{what}");
        }
    }
    let stat = mapped.stat().unwrap();
    // Two lengths are above 256 KiB, and the record of 262144 bytes is, too.
    assert_eq!((stat.entries, stat.values), (60, 15), "{stat:?}");
    assert_eq!((stat.unfinished, stat.counts.damaged), (0, 0));
    // Each file is as long as its value needs.
    let shared = 1 << 20;
    let most = 5 * (2 * (393_216) + 3_080_192) + stat.segments * shared + (2 << 16) + 20_000;
    assert!(stat.bytes <= most, "{stat:?}, {most}");
}

#[test]
fn a_value_whose_record_gets_longer_than_was_believed_is_copied_to_its_place() {
    let home = home();
    let cache = Cache::open(home.path(), CacheOptions::new()).unwrap();
    let piece = value(7, 1 << 20);
    // Their checks and such a key have more than 64 KiB. So the value cannot begin there.
    for expected in [None, Some(70 << 20)] {
        let key = vec![7; 32_768];
        let mut pending = cache.pending(expected).unwrap();
        for _ in 0..70 {
            pending.write(&piece).unwrap();
        }
        let reader = pending.reader();
        pending.finish(&key, About::default()).unwrap();
        let hit = cache.get(&key).unwrap().unwrap();
        let bytes = hit.bytes().unwrap();
        assert_eq!(bytes.len(), 70 << 20);
        assert!(bytes.chunks(1 << 20).all(|part| part == piece));
        let mut read = vec![0; 1 << 20];
        assert_eq!(reader.read_at(&mut read, 69 << 20).unwrap(), 1 << 20);
        assert!(read == piece);
    }
    let stat = cache.stat().unwrap();
    assert_eq!((stat.values, stat.unfinished), (1, 0));
}

#[test]
fn threads_read_what_has_come_while_more_comes() {
    let home = home();
    let cache = Cache::open(home.path(), small()).unwrap();
    let value = value(1, 2_000_000);
    for finished in [true, false] {
        let mut pending = cache.pending(None).unwrap();
        let done = AtomicBool::new(false);
        let waiting = AtomicUsize::new(0);
        let readers: Vec<_> = (0..3).map(|_| pending.reader()).collect();
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for reader in &readers {
                let (value, done, waiting) = (&value, &done, &waiting);
                threads.push(scope.spawn(move || {
                    let mut at = 0;
                    let mut buf = vec![0; 50_000];
                    let mut waited = false;
                    while at < value.len() {
                        let ended = done.load(Ordering::SeqCst);
                        let there = reader.len() as usize;
                        let n = reader.read_at(&mut buf, at as u64).unwrap();
                        assert!(buf[..n] == value[at..at + n], "at {at}");
                        assert!(n > 0 || there <= at, "at {at}");
                        assert!(n > 0 || !ended, "at {at}");
                        if n == 0 && !waited {
                            waited = true;
                            waiting.fetch_add(1, Ordering::SeqCst);
                        }
                        at += n;
                        // The same from the beginning, too.
                        let n = reader.clone().read_at(&mut buf[..10], 0).unwrap();
                        assert!(buf[..n] == value[..n]);
                    }
                }));
            }
            let parts: Vec<_> = value.chunks(9_999).collect();
            for (at, part) in parts.iter().enumerate() {
                pending.write(part).unwrap();
                if pending.len().is_multiple_of(7) {
                    thread::yield_now();
                }
                // More comes only when each reader has been at the end of what is there.
                while at == parts.len() / 2 && waiting.load(Ordering::SeqCst) < readers.len() {
                    assert!(threads.iter().all(|thread| !thread.is_finished()));
                    thread::yield_now();
                }
            }
            match finished {
                true => pending.finish(b"key", About::default()).unwrap(),
                false => drop(pending),
            }
            done.store(true, Ordering::SeqCst);
        });
        cache.clear().unwrap();
        assert!(read_all(&readers[0]) == value);
        assert_eq!(
            readers[0]
                .read_at(&mut [0; 10], value.len() as u64)
                .unwrap(),
            0
        );
        assert_eq!(readers[0].read_at(&mut [0; 10], u64::MAX).unwrap(), 0);
    }
}

#[test]
fn what_is_given_up_leaves_nothing() {
    let home = home();
    let cache = Cache::open(home.path(), small()).unwrap();
    cache.insert(b"key", b"value", About::default()).unwrap();
    let (before, files) = (cache.stat().unwrap(), names(home.path()));
    for len in [100, 100_000, 1_000_000] {
        let mut pending = cache.pending(Some(len)).unwrap();
        pending.write(&value(1, len as usize / 2)).unwrap();
        let writers: Vec<Pending> = (0..20).map(|_| cache.pending(Some(len)).unwrap()).collect();
        drop(pending);
        drop(writers);
    }
    // A key that cannot be stored gives it up, too.
    let mut pending = cache.pending(None).unwrap();
    pending.write(&value(1, 1_000_000)).unwrap();
    let e = pending.finish(b"", About::default()).unwrap_err();
    assert_eq!(
        e.to_string(),
        "a key of 0 bytes, allowed are 1 to 32768; use a digest of it"
    );
    let about = About {
        fingerprint: 0,
        bucket: 256,
    };
    let e = cache.pending(None).unwrap().finish(b"key", about);
    assert_eq!(
        e.unwrap_err().to_string(),
        "bucket 256, allowed are 0 to 255"
    );
    assert_eq!(cache.stat().unwrap().bytes, before.bytes);
    assert_eq!(names(home.path()), files);
    assert_eq!(
        cache.get(b"key").unwrap().unwrap().bytes().unwrap(),
        b"value"
    );
}

#[test]
fn a_value_over_the_limit_is_an_error_of_the_write_that_passes_it() {
    let home = home();
    let cache = Cache::open(home.path(), CacheOptions::new().limit(8 << 20)).unwrap();
    let e = cache.pending(Some((2 << 20) + 1)).unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(
        e.to_string(),
        "a value of 2097153 bytes, allowed are 2097152, a quarter of the cache's limit; raise the limit"
    );
    let mut pending = cache.pending(None).unwrap();
    let value = value(1, 2 << 20);
    for part in value.chunks(100_000) {
        pending.write(part).unwrap();
    }
    let e = pending.write(b"1").unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(
        e.to_string(),
        "a value of at least 2097153 bytes, allowed are 2097152, a quarter of the cache's limit; raise the limit"
    );
    // What was there before is there.
    assert_eq!(pending.len(), 2 << 20);
    pending.finish(b"key", About::default()).unwrap();
    assert!(cache.get(b"key").unwrap().unwrap().bytes().unwrap() == value);
}

#[test]
fn values_that_fill_the_cache_let_the_oldest_go() {
    let home = home();
    let options = CacheOptions::new().limit(8 << 20).segment_len(1 << 20);
    let cache = Cache::open(home.path(), options).unwrap();
    // All arrive at once, and are finished one after another.
    let mut all: Vec<Pending> = (0..20).map(|_| cache.pending(None).unwrap()).collect();
    for n in 0..10 {
        for (number, pending) in (0..).zip(&mut all) {
            pending
                .write(&value(number, 100_000 * (number as usize % 2 + 1))[n * 10_000..][..10_000])
                .unwrap();
        }
    }
    for (number, pending) in (0u32..).zip(all) {
        pending
            .finish(&number.to_le_bytes(), About::default())
            .unwrap();
        assert!(cache.stat().unwrap().bytes <= 8 << 20);
    }
    for number in 20..60u32 {
        let mut pending = cache.pending(Some(700_000)).unwrap();
        pending.write(&value(number, 700_000)).unwrap();
        pending
            .finish(&number.to_le_bytes(), About::default())
            .unwrap();
        let stat = cache.stat().unwrap();
        assert!(stat.bytes <= 8 << 20, "{stat:?}");
        let hit = cache.get(&number.to_le_bytes()).unwrap().unwrap();
        assert!(hit.bytes().unwrap() == value(number, 700_000));
    }
    assert!(cache.counts().evicted > 20);
}

#[test]
fn a_forked_child_neither_writes_nor_reads_what_its_parent_stores() {
    let home = home();
    let cache = Cache::open(home.path(), small()).unwrap();
    let value = value(5, 400_000);
    for len in [100, 400_000] {
        let mut pending = cache.pending(Some(len)).unwrap();
        let (first, rest) = value[..len as usize].split_at(50);
        pending.write(first).unwrap();
        let reader = pending.reader();
        // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                let refused = |e: io::Error| e.kind() == io::ErrorKind::Unsupported;
                let right = pending.write(b"of the child").is_err_and(refused)
                    && reader.read_at(&mut [0; 10], 0).is_err_and(refused)
                    && pending
                        .finish(b"child", About::default())
                        .is_err_and(refused)
                    && cache.insert(b"of a child", b"", About::default()).is_ok();
                // SAFETY: it takes a number and does not return.
                unsafe { libc::_exit(i32::from(!right)) }
            }
            child => {
                let mut status = 0;
                // SAFETY: it writes a number to where one is.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(status, 0);
            }
        }
        pending.write(rest).unwrap();
        pending.finish(b"key", About::default()).unwrap();
        let hit = cache.get(b"key").unwrap().unwrap();
        assert!(hit.bytes().unwrap() == &value[..len as usize]);
        assert!(cache.get(b"child").unwrap().is_none());
        assert!(cache.get(b"of a child").unwrap().is_some());
    }
}
