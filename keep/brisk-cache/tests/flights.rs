//! One fetch per key, over threads and processes.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use brisk_cache::{About, Cache, CacheOptions};

fn home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn open(home: &tempfile::TempDir, wait: Duration) -> Cache {
    let options = CacheOptions::new().fetch_wait(wait);
    Cache::open(home.path(), options).unwrap()
}

const LONG: Duration = Duration::from_secs(60);

/// Runs `child` in a forked child, and returns its id and a pipe to which the child writes a byte by [`tell`].
fn fork(child: impl FnOnce(&mut io::PipeWriter)) -> (i32, io::PipeReader) {
    let (reader, mut writer) = io::pipe().unwrap();
    // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            drop(reader);
            child(&mut writer);
            // SAFETY: it takes a number and does not return.
            unsafe { libc::_exit(0) }
        }
        pid => (pid, reader),
    }
}

fn tell(writer: &mut io::PipeWriter) {
    writer.write_all(&[1]).unwrap();
}

fn signal(pid: i32, number: i32) {
    // SAFETY: it takes two numbers.
    assert_eq!(unsafe { libc::kill(pid, number) }, 0);
}

fn wait_for(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: it writes a number to where one is.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status
}

#[test]
fn below_a_directory_that_was_removed_all_is_fetched() {
    let home = home();
    let directory = home.path().join("cache");
    let cache = Cache::open(&directory, CacheOptions::new()).unwrap();
    cache.insert(b"there", b"value", About::default()).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    // A handle that knew the files, and one that has never opened any.
    std::fs::create_dir(&directory).unwrap();
    let second = Cache::open(&directory, CacheOptions::new()).unwrap();
    std::fs::remove_dir(&directory).unwrap();
    for cache in [cache, second] {
        for turn in 1..4 {
            let fetch = || io::Result::Ok(b"fetched".to_vec());
            let hit = cache.get_or_insert_with(b"key", About::default(), fetch);
            assert_eq!(hit.unwrap().bytes().unwrap(), b"fetched");
            let counts = cache.counts();
            assert_eq!(counts.unasked, turn);
        }
    }
}

#[test]
fn eight_threads_fetch_once() {
    let home = home();
    let cache = open(&home, LONG);
    let fetched = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let hit = cache.get_or_insert_with(b"key", About::default(), || {
                    fetched.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(50));
                    io::Result::Ok(b"value".to_vec())
                });
                assert_eq!(hit.unwrap().bytes().unwrap(), b"value");
            });
        }
    });
    assert_eq!(fetched.load(Ordering::SeqCst), 1);
}

#[test]
fn a_killed_fetcher_lets_the_next_one_go_on_at_once() {
    let home = home();
    let cache = open(&home, LONG);
    let (pid, mut told) = fork(|writer| {
        let never = cache.get_or_insert_with(b"key", About::default(), || {
            tell(writer);
            thread::sleep(LONG);
            io::Result::Ok(b"too late".to_vec())
        });
        drop(never);
    });
    told.read_exact(&mut [0]).unwrap();
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            signal(pid, libc::SIGKILL);
        });
        let fetch = || io::Result::Ok(b"mine".to_vec());
        let hit = cache
            .get_or_insert_with(b"key", About::default(), fetch)
            .unwrap();
        assert_eq!(hit.bytes().unwrap(), b"mine");
    });
    let waited = started.elapsed();
    assert!(
        waited >= Duration::from_millis(190) && waited < Duration::from_secs(20),
        "{waited:?}"
    );
    wait_for(pid);
}

/// Who waits so long has waited for something that did not come.
const HOUR: Duration = Duration::from_secs(3_600);

/// Asks for the key in another thread, and returns when that has found nothing and so waits for who fetches it, or
/// fetches.
fn ask(home: &tempfile::TempDir) -> Receiver<Vec<u8>> {
    let cache = Arc::new(open(home, HOUR));
    let (sender, receiver) = channel();
    let asking = Arc::clone(&cache);
    thread::spawn(move || {
        let fetch = || io::Result::Ok(b"fetched by who waited".to_vec());
        let hit = asking.get_or_insert_with(b"key", About::default(), fetch);
        sender.send(hit.unwrap().to_vec().unwrap()).unwrap();
    });
    while cache.counts().absent == 0 {
        thread::yield_now();
    }
    receiver
}

/// Fetches the key in a child, which forks a child of its own within the fetch, and ends the fetch when it is told to.
/// Returns its id, and the pipes: `go` ends the fetch, and `end` the child of the child.
fn fetch_and_fork(home: &tempfile::TempDir) -> (i32, io::PipeWriter, io::PipeWriter) {
    let ((mut going, go), (mut ending, end)) = (io::pipe().unwrap(), io::pipe().unwrap());
    let mut end = Some(end);
    let cache = open(home, HOUR);
    let (pid, mut told) = fork(|writer| {
        let stored = cache.get_or_insert_with(b"key", About::default(), || {
            fork(|_| {
                // Otherwise it would wait for ever if this test failed.
                drop(end.take());
                ending.read_exact(&mut [0]).ok();
            });
            tell(writer);
            going.read_exact(&mut [0])?;
            io::Result::Ok(b"fetched first".to_vec())
        });
        assert!(stored.is_ok());
    });
    told.read_exact(&mut [0]).unwrap();
    (pid, go, end.take().unwrap())
}

#[test]
fn a_child_that_is_forked_in_a_fetch_lets_who_waits_go_on_when_its_parent_has_fetched() {
    let home = home();
    let (fetcher, mut go, mut end) = fetch_and_fork(&home);
    let answer = ask(&home);
    tell(&mut go);
    assert_eq!(wait_for(fetcher), 0);
    assert_eq!(answer.recv_timeout(LONG).unwrap(), b"fetched first");
    tell(&mut end);
}

#[test]
fn a_child_that_is_forked_in_a_fetch_lets_who_waits_fetch_when_its_parent_is_killed() {
    let home = home();
    let (fetcher, _go, mut end) = fetch_and_fork(&home);
    let answer = ask(&home);
    signal(fetcher, libc::SIGKILL);
    wait_for(fetcher);
    assert_eq!(answer.recv_timeout(LONG).unwrap(), b"fetched by who waited");
    tell(&mut end);
}

#[test]
fn a_value_that_appears_ends_the_wait_though_somebody_fetches_still() {
    let home = home();
    let cache = open(&home, HOUR);
    cache.insert(b"other", b"value", About::default()).unwrap();
    cache.remove(b"key").unwrap();
    let flights = std::fs::File::create(home.path().join("flights")).unwrap();
    // Each byte, so that of the key, too.
    let all = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: it reads the lock, and the file is open.
    let locked = unsafe { libc::fcntl(flights.as_raw_fd(), libc::F_OFD_SETLK, &raw const all) };
    assert_eq!(locked, 0);
    let answer = ask(&home);
    cache.insert(b"key", b"inserted", About::default()).unwrap();
    assert_eq!(answer.recv_timeout(LONG).unwrap(), b"inserted");
}

#[test]
fn a_stopped_fetcher_is_waited_for_no_longer_than_the_options_say() {
    let home = home();
    let cache = open(&home, Duration::from_millis(300));
    let (pid, _told) = fork(|_| {
        let late = cache.get_or_insert_with(b"key", About::default(), || {
            // SAFETY: it takes a number.
            assert_eq!(unsafe { libc::raise(libc::SIGSTOP) }, 0);
            io::Result::Ok(b"value of the child".to_vec())
        });
        // What it fetched is newer than what was stored meanwhile.
        let found = late.unwrap();
        assert_eq!(found.bytes().unwrap(), b"value of the child");
    });
    let mut status = 0;
    // SAFETY: it writes a number to where one is.
    let stopped = unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) };
    assert!(stopped == pid && libc::WIFSTOPPED(status), "{status:x}");
    let started = Instant::now();
    let fetch = || io::Result::Ok(b"mine".to_vec());
    let hit = cache
        .get_or_insert_with(b"key", About::default(), fetch)
        .unwrap();
    let waited = started.elapsed();
    assert_eq!(hit.bytes().unwrap(), b"mine");
    assert!(
        waited >= Duration::from_millis(300) && waited < Duration::from_secs(20),
        "{waited:?}"
    );
    // Reading and writing wait for nobody who fetches.
    cache.insert(b"other", b"value", About::default()).unwrap();
    assert!(cache.get(b"other").unwrap().is_some());
    signal(pid, libc::SIGCONT);
    assert_eq!(wait_for(pid), 0);
    assert_eq!(
        cache.get(b"key").unwrap().unwrap().bytes().unwrap(),
        b"value of the child"
    );
}

#[test]
fn two_processes_that_fetch_each_others_keys_do_not_wait_for_each_other() {
    let home = home();
    let cache = open(&home, LONG);
    let fetch_both = |first: &'static [u8], second: &'static [u8]| {
        let outer = cache.get_or_insert_with(first, About::default(), || {
            // Both are inside of their first fetch.
            thread::sleep(Duration::from_millis(200));
            let inner = cache.get_or_insert_with(second, About::default(), || {
                io::Result::Ok(b"inner".to_vec())
            })?;
            assert!(!inner.is_empty());
            io::Result::Ok(b"outer".to_vec())
        });
        outer.is_ok()
    };
    let started = Instant::now();
    let (pid, _told) = fork(|_| {
        // SAFETY: it takes a number and does not return.
        unsafe { libc::_exit(i32::from(!fetch_both(b"one", b"two"))) }
    });
    assert!(fetch_both(b"two", b"one"));
    assert_eq!(wait_for(pid), 0);
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_fetch_that_fails_stores_nothing_and_the_next_one_tries() {
    let home = home();
    let cache = open(&home, LONG);
    let fail = || -> io::Result<Vec<u8>> { Err(io::ErrorKind::ConnectionRefused.into()) };
    let e = cache
        .get_or_insert_with(b"key", About::default(), fail)
        .unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused);
    let fetch = || io::Result::Ok(b"value".to_vec());
    assert!(
        cache
            .get_or_insert_with(b"key", About::default(), fetch)
            .is_ok()
    );
}
