//! Long values that are read where they are asked for.

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use brisk_cache::{About, Cache, CacheOptions, Hit};

fn home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn open(path: &Path) -> Cache {
    let options = CacheOptions::new().limit(20 << 20).segment_len(1 << 20);
    Cache::open(path, options).unwrap()
}

fn value(len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 16) as u8)
        .collect()
}

fn unread(cache: &Cache, key: &[u8]) -> Hit {
    cache.get_unread(key).unwrap().unwrap()
}

/// In a segment, and in a file of its own.
const LENGTHS: [usize; 3] = [100_000, 131_072, 1_000_003];

#[test]
fn the_parts_of_a_long_value_are_its_bytes() {
    let home = home();
    let cache = open(home.path());
    for len in LENGTHS {
        cache.insert(b"key", &value(len), About::default()).unwrap();
        let hit = unread(&cache, b"key");
        assert_eq!(hit.len(), len);
        assert!(!hit.is_mapped());
        for part in [0..len, 1..2, 16_383..16_385, len - 1..len, 7..7, len..len] {
            let expected = &value(len)[part.clone()];
            let found = hit.part_in_file(part.clone()).unwrap().unwrap();
            let mut file = found.file();
            assert_eq!(found.len(), expected.len());
            let mut bytes = vec![0; found.len()];
            file.seek(SeekFrom::Start(found.offset())).unwrap();
            file.read_exact(&mut bytes).unwrap();
            assert!(bytes == expected, "{len}: {part:?}");
            #[cfg(feature = "bytes")]
            assert!(
                hit.part_bytes(part.clone()).unwrap() == expected,
                "{part:?}"
            );
            assert!(hit.part(part.clone()).unwrap() == expected, "{part:?}");
        }
        for wrong in [0..len + 1, len + 1..len + 1] {
            let message = format!(
                "bytes {} to {} of a value of {len}; ask for a part of it",
                wrong.start, wrong.end
            );
            let error = hit.part_in_file(wrong.clone()).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(hit.part(wrong).unwrap_err().to_string(), message);
        }
        assert!(hit.bytes().unwrap() == value(len));
        assert_eq!(hit.parts().len(), len);
        assert!(hit.parts().all().unwrap() == value(len));
        assert!(hit.to_vec().unwrap() == value(len));
    }
}

#[test]
fn a_short_value_is_copied_at_once() {
    let home = home();
    let cache = open(home.path());
    for len in [0, 1, 1024, 60_000] {
        cache.insert(b"key", &value(len), About::default()).unwrap();
        for hit in [cache.get_unread(b"key"), cache.get_unread_at_once(b"key")] {
            let hit = hit.unwrap().unwrap();
            assert!(hit.part_in_file(0..len).unwrap().is_none());
            assert!(hit.bytes().unwrap() == value(len));
        }
    }
    assert!(cache.get_unread(b"other").unwrap().is_none());
}

#[test]
fn a_part_outlives_its_entry() {
    let home = home();
    let cache = open(home.path());
    for len in LENGTHS {
        cache.insert(b"key", &value(len), About::default()).unwrap();
        let hit = unread(&cache, b"key");
        cache.remove(b"key").unwrap();
        cache.clear().unwrap();
        let part = hit.part_in_file(5..len).unwrap().unwrap();
        drop(hit);
        let mut bytes = vec![0; part.len()];
        part.file()
            .read_exact_at(&mut bytes, part.offset())
            .unwrap();
        assert!(bytes == value(len)[5..]);
    }
}

#[test]
fn damage_is_found_in_the_chunk_that_has_it() {
    let home = home();
    let cache = open(home.path());
    let len = 1_000_003;
    cache.insert(b"key", &value(len), About::default()).unwrap();
    let at = {
        let part = unread(&cache, b"key").part_in_file(0..0).unwrap().unwrap();
        part.offset()
    };
    let file = std::fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.metadata().unwrap().len() >= 1_000_000)
        .find(|path| {
            let bytes = std::fs::read(path).unwrap();
            let at = usize::try_from(at).unwrap();
            bytes
                .get(at..at + len)
                .is_some_and(|found| found == value(len))
        })
        .unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&[value(len)[40_000] ^ 1], at + 40_000)
        .unwrap();
    let hit = unread(&cache, b"key");
    let message = "bytes 36864 to 40960 of the cached value differ from their check, allowed is what was inserted; insert \
                   the value again";
    assert!(hit.part_in_file(0..36_864).unwrap().is_some());
    assert!(hit.part(0..10).is_err(), "a slice needs the whole value");
    let error = hit.part_in_file(0..40_000).unwrap_err();
    assert_eq!(error.to_string(), message);
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert_eq!(hit.bytes().unwrap_err().to_string(), message);
    #[cfg(feature = "bytes")]
    {
        assert!(hit.part_bytes(0..36_864).is_ok());
        assert_eq!(
            hit.part_bytes(36_864..36_865).unwrap_err().to_string(),
            message
        );
    }
}
