//! A process without descriptors. A program of its own, because the limit is that of the process.

use std::fs::File;
use std::io;

use brisk_cache::{About, Cache, CacheOptions};

/// Does something of everything. Returns the first error.
fn use_it(directory: &std::path::Path, turn: u8) -> io::Result<()> {
    // SAFETY: only brisk writes to the directory.
    let cache = unsafe { Cache::open_mapped(directory, CacheOptions::new()) }?;
    let mut first = None;
    let mut note = |done: io::Result<()>| {
        if let Err(e) = done {
            first.get_or_insert(e);
        }
    };
    let about = About::default();
    note(cache.get(b"key").map(|hit| {
        assert_eq!(hit.unwrap().bytes().unwrap(), b"value");
    }));
    note(cache.insert(b"small", &[turn; 100], about));
    note(cache.insert(b"large", &vec![turn; 2 << 20], about));
    note(cache.update_use(b"key").map(drop));
    let fetch = || io::Result::Ok(vec![turn; 300]);
    let fetched = cache.get_or_insert_with(&[turn, 1], about, fetch);
    note(fetched.map(|hit| assert_eq!(hit.bytes().unwrap(), [turn; 300])));
    note(
        cache
            .iter()
            .and_then(|mut entries| entries.try_for_each(|entry| entry.map(drop))),
    );
    note(cache.stat().map(drop));
    note(cache.remove(b"small").map(drop));
    assert_eq!(cache.counts().damaged, 0);
    first.map_or(Ok(()), Err)
}

/// Descriptors of this number and higher ones cannot be opened.
fn allow(descriptors: u64) {
    let limit = rustix::process::Rlimit {
        current: Some(descriptors),
        maximum: rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum,
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
}

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
            allow(300);
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

    // A value that was fetched and stored, and that cannot be looked up, is returned.
    let fetch = || {
        allow(3);
        io::Result::Ok(b"fetched".to_vec())
    };
    let writer = Cache::open(home.path(), CacheOptions::new()).unwrap();
    // From then on, its insertions open nothing.
    for _ in 0..2 {
        writer.insert(b"other", b"value", About::default()).unwrap();
    }
    assert!(writer.get(b"none").unwrap().is_none());
    let hit = writer.get_or_insert_with(b"third", About::default(), fetch);
    allow(300);
    assert_eq!(hit.unwrap().bytes().unwrap(), b"fetched");
    assert_eq!(writer.counts().unstored, 1);
    assert!(writer.get(b"third").unwrap().is_some());

    // With any number of descriptors that are left, all is done, or something says that there are too few.
    let mut enough = None;
    for left in 0..20 {
        let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        taken.truncate(taken.len() - left);
        let done = use_it(home.path(), left as u8);
        drop(taken);
        match done {
            Ok(()) => enough = enough.or(Some(left)),
            Err(e) => {
                let text = e.to_string();
                assert!(
                    text.ends_with("Too many open files (os error 24)"),
                    "{left}: {text}"
                );
                assert_eq!(enough, None, "{left}");
            }
        }
        // Nothing is lost, and nothing is left.
        use_it(home.path(), 100).unwrap();
        assert_eq!(cache.stat().unwrap().unfinished, 0);
    }
    assert!(
        enough.is_some_and(|enough| (4..16).contains(&enough)),
        "{enough:?}"
    );
}
