//! Values with files of their own.

use brisk_cache::{About, Cache, CacheOptions};

#[test]
fn many_large_values_keep_few_files_open() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CacheOptions::new().segment_len(1 << 16);
    // SAFETY: nothing else writes to the directory.
    let cache = unsafe { Cache::open_mapped(home.path(), options) }.unwrap();
    let value = |number: u32| number.to_le_bytes().repeat(5000);
    for number in 0..700u32 {
        let key = number.to_le_bytes();
        cache
            .insert(&key, &value(number), About::default())
            .unwrap();
    }
    let first = cache.get(&0u32.to_le_bytes()).unwrap().unwrap();
    for number in 0..700u32 {
        let hit = cache.get(&number.to_le_bytes()).unwrap().unwrap();
        assert_eq!(hit.bytes().unwrap(), value(number));
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.ends_with(".value")).count();
    assert!((100..=300).contains(&mapped), "{mapped}");
    assert_eq!(first.bytes().unwrap(), value(0));
}
