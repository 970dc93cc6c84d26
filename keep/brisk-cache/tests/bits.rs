//! Ten thousand flipped bits: each is a miss, or has no effect.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use brisk_cache::{About, Cache, CacheOptions};

#[test]
fn no_flipped_bit_is_believed() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = CacheOptions::new().limit(64 << 20).segment_len(1 << 20);
    let cache = Cache::open(home.path(), options.clone()).unwrap();
    let value = |n: usize| -> Vec<u8> {
        let len = [0, 10, 400, 1_024, 16_384, 16_385, 40_000, 270_000][n % 8];
        (0..len).map(|at| (at * 7 + n * 13) as u8).collect()
    };
    let key = |n: usize| format!("the key {n}").into_bytes();
    let values: Vec<_> = (0..32).map(value).collect();
    for (n, value) in values.iter().enumerate() {
        cache.insert(&key(n), value, About::default()).unwrap();
    }
    let files: Vec<_> = fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name == "index" || name.ends_with(".segment") || name.ends_with(".value")
        })
        .map(|path| {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap();
            // Only where something is: zeros behind it would dilute the test.
            let bytes = fs::read(&path).unwrap();
            let used: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
            (path, file, used)
        })
        .collect();
    assert_eq!(files.len(), 1 + 1 + 4);
    let mut random = 88_172_645_463_325_252u64;
    let mut buf = Vec::new();
    let mut missed = 0;
    for turn in 0..10_000usize {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Half of them hit the index, the segment's small records, or the heads of values.
        let (path, file, used) = &files[(random % files.len() as u64) as usize];
        let most = if turn % 2 == 0 {
            used.len()
        } else {
            used.len().min(4096)
        };
        let at = used[((random >> 20) % most as u64) as usize] as u64;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        let wrong = byte[0] ^ (1 << ((random >> 60) % 8));
        file.write_all_at(&[wrong], at).unwrap();
        let is_value = path.to_str().unwrap().ends_with(".value");
        let mut misses = 0;
        for n in (0..32).filter(|n| n % 8 != 7 || is_value) {
            match cache.get_into(&key(n), &mut buf).unwrap() {
                Some(bytes) => {
                    assert!(bytes == values[n], "{}: byte {at}, key {n}", path.display());
                }
                None => misses += 1,
            }
        }
        assert!(misses <= 32, "{}: byte {at}", path.display());
        missed += usize::from(misses > 0);
        file.write_all_at(&byte, at).unwrap();
    }
    // Nearly every byte that is not zero matters.
    assert!(missed > 9_000, "{missed}");
    for (n, value) in values.iter().enumerate() {
        assert_eq!(cache.get_into(&key(n), &mut buf).unwrap(), Some(&value[..]));
    }
}

#[test]
fn no_flipped_bit_is_believed_by_a_handle_that_has_mapped_the_files_before() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CacheOptions::new().limit(64 << 20).segment_len(1 << 20);
    // SAFETY: this test changes only what the handles have not yet lent.
    let open = || unsafe { Cache::open_mapped(home.path(), options.clone()) }.unwrap();
    let writer = open();
    let value = |n: usize| -> Vec<u8> {
        let len = [1, 10, 400, 1_024, 16_384, 16_385, 40_000, 270_000][n % 8];
        (0..len).map(|at| (at * 7 + n * 13) as u8).collect()
    };
    let key = |n: usize| format!("the key {n}").into_bytes();
    let values: Vec<_> = (0..16).map(value).collect();
    for (n, value) in values.iter().enumerate() {
        writer.insert(&key(n), value, About::default()).unwrap();
    }
    writer.insert(b"first", b"value", About::default()).unwrap();
    let is_long = |n: usize| n % 8 > 4;
    let files: Vec<_> = fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name == "index" || name.ends_with(".segment") || name.ends_with(".value")
        })
        .map(|path| {
            let mut file = OpenOptions::new();
            let file = file.read(true).write(true).open(&path).unwrap();
            let bytes = fs::read(&path).unwrap();
            let used: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
            (path, file, used)
        })
        .collect();
    let mut random = 88_172_645_463_325_252u64;
    let (mut wrong_hits, mut missed) = (0, 0);
    for turn in 0..10_000usize {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (path, file, used) = &files[(random % files.len() as u64) as usize];
        let most = if turn % 2 == 0 {
            used.len()
        } else {
            used.len().min(4096)
        };
        let at = used[((random >> 20) % most as u64) as usize] as u64;
        let handle = open();
        // It maps each file. Of a long value, it checks the head, and no chunk yet.
        assert!(handle.get(b"first").unwrap().is_some());
        let long: Vec<_> = (0..16)
            .filter(|&n| is_long(n))
            .map(|n| (n, handle.get(&key(n)).unwrap().unwrap()))
            .collect();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << ((random >> 60) % 8))], at)
            .unwrap();
        for (n, hit) in &long {
            match hit.bytes() {
                Ok(bytes) => assert!(bytes == values[*n], "{}: byte {at}", path.display()),
                Err(e) => {
                    assert_eq!(e.kind(), std::io::ErrorKind::InvalidData);
                    wrong_hits += 1;
                }
            }
        }
        for n in (0..16).filter(|&n| !is_long(n)) {
            match handle.get(&key(n)).unwrap() {
                Some(hit) => assert!(
                    hit.bytes().unwrap() == values[n],
                    "{}: byte {at}, key {n}",
                    path.display()
                ),
                None => missed += 1,
            }
        }
        file.write_all_at(&byte, at).unwrap();
    }
    assert!(
        wrong_hits > 2_000 && missed > 1_000,
        "{wrong_hits}, {missed}"
    );
}

#[test]
fn a_value_of_which_a_chunk_turns_out_to_be_damaged_is_fetched_again() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // The second one has a file of its own.
    for (len, end) in [(100_000, ".segment"), (3 << 20, ".value")] {
        let directory = home.path().join(&end[1..]);
        let options = CacheOptions::new().limit(64 << 20);
        // SAFETY: this test changes only what the handles have not yet lent.
        let open = || unsafe { Cache::open_mapped(&directory, options.clone()) }.unwrap();
        let (cache, other) = (open(), open());
        let value = |n: u8| vec![n; len];
        for n in 1..4 {
            cache.insert(&[n], &value(n), About::default()).unwrap();
        }
        let hits = [1, 2, 3].map(|n| cache.get(&[n]).unwrap().unwrap());
        assert!(hits.iter().all(|hit| hit.is_mapped()));
        // A byte in the fourth chunk of the second value.
        let damaged = fs::read_dir(&directory).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            let is_one = path.to_str().unwrap().ends_with(end);
            let values = bytes.windows(16_384);
            let start = (0..)
                .zip(values)
                .find(|(_, piece)| piece.iter().all(|&byte| byte == 2));
            let Some((start, _)) = start.filter(|_| is_one) else {
                return false;
            };
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[9], start + 50_000).is_ok()
        });
        assert!(damaged);
        let fetched = |cache: &Cache, n: u8| {
            let mut asked = false;
            let hit = cache.get_or_insert_with(&[n], About::default(), || {
                asked = true;
                std::io::Result::Ok(value(n))
            });
            (hit.unwrap().to_vec().map_err(|e| e.kind()), asked)
        };
        // Nobody has looked at that chunk.
        assert!(hits[1].part(0..10).unwrap() == [2; 10]);
        assert_eq!(cache.counts().damaged, 0);
        let invalid = std::io::ErrorKind::InvalidData;
        assert_eq!(fetched(&cache, 2), (Err(invalid), false));
        assert!(fetched(&cache, 2) == (Ok(value(2)), true));
        assert!(fetched(&cache, 2) == (Ok(value(2)), false));
        // It was a miss before its fetch, and when the fetch began.
        assert_eq!(cache.counts().damaged, 2);
        // For the others, too, and nothing else has gone.
        assert!(fetched(&other, 2) == (Ok(value(2)), false));
        for n in [1, 3] {
            assert!(fetched(&cache, n) == (Ok(value(n)), false));
        }
        // A hit from before stays what it is.
        assert_eq!(hits[1].bytes().unwrap_err().kind(), invalid);
    }
}
