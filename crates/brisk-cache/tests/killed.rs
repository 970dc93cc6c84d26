//! Processes that are killed while they read, write, grow and evict.

use std::time::{Duration, Instant};

use brisk_cache::{About, Cache, CacheOptions};

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }
}

const KEYS: u64 = 3_000;

/// A value that says which key it belongs to, and which number, in each part of it.
fn value(key: u64, number: u64) -> Vec<u8> {
    let mut numbers = Numbers(key * 0x9E37_79B9 + number * 7 + 1);
    let len = match number % 50 {
        0 => 300_000,
        1 | 2 => 30_000,
        _ => number % 2_000,
    };
    let mut value = number.to_le_bytes().to_vec();
    value.extend((0..len).map(|_| numbers.below(256) as u8));
    value
}

fn is_right(key: u64, found: &[u8]) -> bool {
    let number = found.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    number.is_some_and(|number| found == value(key, number))
}

/// Works until it is killed. Ends with 3 if it finds a wrong byte, with 4 at an error.
fn work(cache: &Cache, seed: u64) -> i32 {
    let mut numbers = Numbers(seed);
    let mut buf = Vec::new();
    loop {
        let key = numbers.below(KEYS);
        let name = key.to_le_bytes();
        let done = match numbers.below(30) {
            0..15 => match cache.get_into(&name, &mut buf) {
                Ok(Some(found)) if !is_right(key, found) => return 3,
                found => found.map(|_| ()),
            },
            15 => cache.remove(&name).map(|_| ()),
            16 => cache.update_use(&name).map(|_| ()),
            _ => cache.insert(&name, &value(key, numbers.below(1_000)), About::default()),
        };
        if let Err(e) = done {
            eprintln!("{e}");
            return 4;
        }
    }
}

#[test]
fn three_hundred_kills_cost_no_right_byte_and_leave_nothing_behind() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CacheOptions::new().limit(20 << 20).segment_len(1 << 20);
    // SAFETY: only brisk writes to the directory.
    let reader = unsafe { Cache::open_mapped(home.path(), options.clone()) }.unwrap();
    let begin = |seed: u64| {
        // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                let cache = Cache::open(home.path(), options.clone());
                let status = cache.map_or(4, |cache| work(&cache, seed));
                // SAFETY: it takes a number and does not return.
                unsafe { libc::_exit(status) }
            }
            child => child,
        }
    };
    let end = |child: i32| {
        let mut status = 0;
        // SAFETY: it takes two numbers.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: it writes a number to where one is.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(
            status,
            libc::SIGKILL,
            "it found a wrong byte (768) or an error (1024)"
        );
    };
    let mut numbers = Numbers(0x1234_5678_9ABC);
    let mut children: Vec<i32> = (1..5).map(begin).collect();
    let mut hits = 0u64;
    for kill in 0..300 {
        let until = Instant::now() + Duration::from_micros(500 + numbers.below(12_000));
        while Instant::now() < until {
            let key = numbers.below(KEYS);
            if let Some(hit) = reader.get(&key.to_le_bytes()).unwrap() {
                assert!(
                    is_right(key, hit.bytes().unwrap()),
                    "key {key} after {kill} kills"
                );
                hits += 1;
            }
        }
        let which = numbers.below(4) as usize;
        end(children[which]);
        children[which] = begin(100 + kill);
    }
    children.into_iter().for_each(end);
    assert!(hits > 1_000, "{hits}");
    assert_eq!(reader.counts().damaged, 0);
    // Writing on evicts, and whoever evicts counts and tidies: this is more than the limit.
    for key in 0..1_000u64 {
        reader
            .insert(&key.to_le_bytes(), &value(key, 1), About::default())
            .unwrap();
    }
    assert!(reader.counts().evicted > 0);
    let stat = reader.stat().unwrap();
    assert_eq!(stat.unfinished, 0, "{stat:?}");
    assert!(stat.bytes <= 20 << 20, "{stat:?}");
    for entry in reader.iter().unwrap() {
        let entry = entry.unwrap();
        let key = u64::from_le_bytes(entry.key[..].try_into().unwrap());
        if let Some(hit) = reader.get(&entry.key).unwrap() {
            assert!(is_right(key, hit.bytes().unwrap()));
        }
    }
}
