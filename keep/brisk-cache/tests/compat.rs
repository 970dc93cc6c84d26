//! Directories that earlier versions of the format have left. Never make them again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use brisk_cache::{About, Cache, CacheOptions, Inspection};

/// Reads a directory that was kept, writes to it, and reads it again. It was made with these lengths of values, of which the
/// second was removed, and with these options. Returns the limit that is noted in it.
fn read_and_write(kept: &str, lens: &[u64], options: CacheOptions) -> Option<u64> {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/compat")
        .join(kept);
    let home = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(kept).unwrap() {
        let entry = entry.unwrap();
        let copy = home.path().join(entry.file_name());
        fs::copy(entry.path(), &copy).unwrap();
        // Whoever checked it out may share files with a group.
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let inspection = Inspection::open(home.path()).unwrap();
    let verified = inspection.verify(|_| {}, |damage| panic!("{damage}"));
    let there = lens.len() as u64 - 1;
    assert_eq!(verified.unwrap().entries, there);
    let limit = inspection.summary().unwrap().limit;
    let cache = Cache::open(home.path(), options).unwrap();
    let check = || {
        for (n, &len) in (0u64..).zip(lens) {
            let hit = cache.get(format!("key {n}").as_bytes()).unwrap();
            if n == 1 {
                assert!(hit.is_none(), "it was removed");
                continue;
            }
            let hit = hit.unwrap();
            let value: Vec<u8> = (0..len).map(|at| (at * 7 + n) as u8).collect();
            assert_eq!(hit.bytes().unwrap(), value);
            assert_eq!((hit.fingerprint(), u64::from(hit.bucket())), (n, n));
        }
    };
    check();
    cache.insert(b"new", b"value", About::default()).unwrap();
    assert_eq!(
        cache.get(b"new").unwrap().unwrap().bytes().unwrap(),
        b"value"
    );
    check();
    assert_eq!(cache.stat().unwrap().entries, there + 1);
    assert_eq!(cache.counts().damaged + cache.counts().unknown, 0);
    limit
}

#[test]
fn a_directory_of_version_1_is_read_and_written() {
    let options = CacheOptions::new().limit(1 << 20).segment_len(1 << 16);
    let limit = read_and_write("v1", &[0, 1, 400, 16_000, 20_000], options);
    assert_eq!(limit, None);
}

/// Values have chunks of 1 KiB, and of 4 KiB in files of their own. The limit is noted.
#[test]
fn a_directory_of_version_1_with_short_chunks_is_read_and_written() {
    let options = CacheOptions::new().limit(2 << 20).segment_len(1 << 17);
    let lens = [0, 1, 400, 16_000, 20_000, 100_000];
    let limit = read_and_write("v1-short-chunks", &lens, options);
    assert_eq!(limit, Some(2 << 20));
}

#[test]
fn the_directory_says_to_programs_that_save_files_that_it_is_a_cache() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::open(home.path(), CacheOptions::new()).unwrap();
    cache.insert(b"key", b"value", About::default()).unwrap();
    let tag = fs::read_to_string(home.path().join("CACHEDIR.TAG")).unwrap();
    // The specification fixes the first 43 bytes.
    assert_eq!(
        tag,
        "Signature: 8a477f597d28d172789f06886806bc55\n\
         # This file is a cache directory tag created by brisk.\n\
         # For information about cache directory tags, see https://bford.info/cachedir/\n"
    );
}
