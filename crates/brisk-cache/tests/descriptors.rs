//! A process without descriptors. A program of its own, because the limit is that of the process.

use std::fs::File;

use brisk_cache::{About, Cache, CacheOptions};

#[test]
fn too_few_descriptors_are_an_error_and_the_next_try_works() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let cache = Cache::open(home.path(), CacheOptions::new()).unwrap();
    cache.insert(b"key", b"value", About::default()).unwrap();
    let fresh = Cache::open(home.path(), CacheOptions::new()).unwrap();
    let mut taken = Vec::new();
    let full = loop {
        match File::open("/dev/null") {
            Ok(file) => taken.push(file),
            Err(e) => break e,
        }
        if taken.len() == 256 {
            let limit = rustix::process::Rlimit {
                current: Some(300),
                maximum: rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum,
            };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
        }
    };
    let wanted = full.raw_os_error();
    assert_eq!(wanted, Some(libc::EMFILE));
    let e = fresh.get(b"key").unwrap_err();
    assert!(
        e.to_string().ends_with("Too many open files (os error 24)"),
        "{e}"
    );
    assert!(fresh.insert(b"other", b"", About::default()).is_err());
    assert_eq!(fresh.counts().damaged, 0);
    drop(taken);
    assert_eq!(
        fresh.get(b"key").unwrap().unwrap().bytes().unwrap(),
        b"value"
    );
    fresh.insert(b"other", b"value", About::default()).unwrap();
    assert!(cache.get(b"other").unwrap().is_some());
}
