//! A cache for tasks.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use brisk_cache::{About, AsyncCache, Cache, CacheOptions, Hit};
use rustix::fs::{FlockOperation, flock};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

fn home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

const LONG: Duration = Duration::from_secs(60);

fn open(path: &Path) -> AsyncCache {
    let options = CacheOptions::new().fetch_wait(LONG);
    // SAFETY: only brisk writes to the directory.
    AsyncCache::new(unsafe { Cache::open_mapped(path, options) }.unwrap())
}

/// The answer of a future that is polled once, by nobody who could run anything else.
fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

async fn get_or_fetch(cache: &AsyncCache, key: &[u8], value: &'static [u8]) -> io::Result<Hit> {
    let fetch = async || Ok(value.to_vec());
    cache.get_or_insert_with(key, About::default(), fetch).await
}

fn assert_send<T: Send>(value: T) -> T {
    value
}

#[tokio::test(flavor = "current_thread")]
async fn hits_are_answered_at_once_and_everything_else_by_a_thread() {
    let home = home();
    let cache = open(home.path());
    assert!(cache.get(b"key").await.unwrap().is_none());
    assert_send(cache.insert(b"key", b"value", About::default()))
        .await
        .unwrap();
    // Nobody has this segment open. A thread can be so fast that the answer seems to come at once.
    let would_block = |cache: &AsyncCache| {
        let answer = cache.cache().get_at_once(b"key");
        answer.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    };
    assert!(would_block(&cache));
    let first = assert_send(cache.get(b"key")).await.unwrap().unwrap();
    assert_eq!(first.bytes().unwrap(), b"value");
    let hit = at_once(cache.get(b"key")).unwrap().unwrap().unwrap();
    assert!(hit.is_mapped());
    assert!(at_once(cache.get(b"absent")).unwrap().unwrap().is_none());
    let fetched = at_once(get_or_fetch(&cache, b"key", b"never"));
    assert_eq!(fetched.unwrap().unwrap().bytes().unwrap(), b"value");
    // One that reads from a server is never asked at once, and one that copies is.
    let copied = AsyncCache::new(Cache::open(home.path(), CacheOptions::new()).unwrap());
    copied.get(b"key").await.unwrap();
    assert!(at_once(copied.get(b"key")).is_some());
    // A use that is to be noted is a write.
    let options = CacheOptions::new().note_use_after(Some(Duration::ZERO));
    let noting = AsyncCache::new(Cache::open(home.path(), options).unwrap());
    noting.get(b"key").await.unwrap();
    assert!(would_block(&noting));
    assert!(cache.remove(b"key").await.unwrap());
    assert!(at_once(cache.get(b"key")).unwrap().unwrap().is_none());
}

#[tokio::test(flavor = "current_thread")]
async fn a_writer_that_waits_for_the_lock_stops_no_task() {
    let home = home();
    let cache = open(home.path());
    cache.insert(b"one", b"1", About::default()).await.unwrap();
    cache.get(b"one").await.unwrap();
    let ledger = std::fs::File::open(home.path().join("ledger")).unwrap();
    flock(ledger.as_fd(), FlockOperation::LockExclusive).unwrap();
    let waiting = {
        let cache = cache.clone();
        tokio::spawn(async move { cache.insert(b"two", b"2", About::default()).await })
    };
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(cache.get(b"one").await.unwrap().is_some());
    }
    assert!(!waiting.is_finished());
    flock(ledger.as_fd(), FlockOperation::Unlock).unwrap();
    waiting.await.unwrap().unwrap();
    assert!(cache.get(b"two").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_fetch_once() {
    let home = home();
    let cache = open(home.path());
    let fetched = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let (cache, fetched) = (cache.clone(), fetched.clone());
        tasks.spawn(async move {
            let fetch = async || {
                fetched.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(30)).await;
                io::Result::Ok(b"value".to_vec())
            };
            let about = About::default();
            let hit = cache.get_or_insert_with(b"key", about, fetch).await;
            assert_eq!(hit.unwrap().bytes().unwrap(), b"value");
        });
    }
    tasks.join_all().await;
    assert_eq!(fetched.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "current_thread")]
async fn a_dropped_future_lets_the_next_one_go_on_at_once() {
    let home = home();
    let cache = open(home.path());
    let (began, begun) = oneshot::channel();
    let never = {
        let cache = cache.clone();
        tokio::spawn(async move {
            let fetch = || async move {
                began.send(()).unwrap();
                std::future::pending::<io::Result<Vec<u8>>>().await
            };
            let about = About::default();
            cache.get_or_insert_with(b"key", about, fetch).await
        })
    };
    begun.await.unwrap();
    let next = {
        let cache = cache.clone();
        tokio::spawn(async move { get_or_fetch(&cache, b"key", b"mine").await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!next.is_finished(), "it waits for the other");
    let started = Instant::now();
    never.abort();
    let hit = next.await.unwrap().unwrap();
    assert_eq!(hit.bytes().unwrap(), b"mine");
    assert!(started.elapsed() < LONG / 6);
}

#[tokio::test(flavor = "current_thread")]
async fn fetches_inside_of_fetches_do_not_wait_for_each_other() {
    let home = home();
    let cache = open(home.path());
    let fetch_both = |first: &'static [u8], second: &'static [u8]| {
        let cache = cache.clone();
        async move {
            let fetch = async || {
                // Both are inside of their first fetch.
                tokio::time::sleep(Duration::from_millis(100)).await;
                let inner = get_or_fetch(&cache, second, b"inner").await?;
                assert!(!inner.is_empty());
                io::Result::Ok(b"outer".to_vec())
            };
            let about = About::default();
            cache.get_or_insert_with(first, about, fetch).await
        }
    };
    let started = Instant::now();
    let (one, two) = tokio::join!(fetch_both(b"one", b"two"), fetch_both(b"two", b"one"));
    assert!(one.is_ok() && two.is_ok());
    assert!(started.elapsed() < LONG / 6);
}

#[tokio::test(flavor = "current_thread")]
async fn a_fetch_that_fails_stores_nothing_and_what_cannot_be_stored_is_returned() {
    let home = home();
    let options = CacheOptions::new().limit(6 << 20).segment_len(1 << 20);
    let cache = AsyncCache::new(Cache::open(home.path(), options).unwrap());
    let about = About::default();
    let fail = async || Err(io::Error::from(io::ErrorKind::ConnectionRefused));
    let e = cache.get_or_insert_with(b"key", about, fail).await;
    assert_eq!(e.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    let large = async || io::Result::Ok(vec![7; 2 << 20]);
    let hit = cache.get_or_insert_with(b"key", about, large).await;
    assert_eq!(hit.unwrap().bytes().unwrap(), [7; 2 << 20]);
    assert_eq!(cache.cache().counts().unstored, 1);
    let hit = get_or_fetch(&cache, b"key", b"small").await.unwrap();
    assert_eq!(hit.bytes().unwrap(), b"small");
}

#[tokio::test(flavor = "current_thread")]
async fn a_value_is_stored_while_it_arrives_and_finished_by_a_thread() {
    let home = home();
    let cache = open(home.path());
    // The first value makes the ledger.
    let about = About::default();
    cache.insert(b"first", b"value", about).await.unwrap();
    for expected in [None, Some(3 << 20)] {
        let mut pending = assert_send(cache.pending(expected)).await.unwrap();
        let reader = pending.reader();
        for n in 0..48u8 {
            pending.write(&[n; 1 << 16]).unwrap();
            tokio::task::yield_now().await;
        }
        // Only the end needs the lock.
        let ledger = std::fs::File::open(home.path().join("ledger")).unwrap();
        flock(ledger.as_fd(), FlockOperation::LockExclusive).unwrap();
        let mut last = [0; 10];
        assert_eq!(reader.read_at(&mut last, (3 << 20) - 5).unwrap(), 5);
        assert_eq!(last[..5], [47; 5]);
        let mut finishing = pin!(cache.finish(pending, b"key", about));
        let polled = finishing
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        drop(ledger);
        assert_send(finishing).await.unwrap();
        let hit = cache.get(b"key").await.unwrap().unwrap();
        assert!(
            hit.bytes()
                .unwrap()
                .chunks(1 << 16)
                .zip(0..)
                .all(|(part, n)| part == [n; 1 << 16])
        );
        assert!(cache.remove(b"key").await.unwrap());
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_value_that_appears_ends_the_wait_though_somebody_fetches_still() {
    let home = home();
    let options = CacheOptions::new().fetch_wait(Duration::from_secs(3_600));
    // SAFETY: only brisk writes to the directory.
    let cache = AsyncCache::new(unsafe { Cache::open_mapped(home.path(), options) }.unwrap());
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
    let waiting = cache.clone();
    let waiter = tokio::spawn(async move { get_or_fetch(&waiting, b"key", b"fetched").await });
    while cache.cache().counts().absent == 0 {
        tokio::task::yield_now().await;
    }
    let about = About::default();
    cache.insert(b"key", b"inserted", about).await.unwrap();
    let hit = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
    assert_eq!(hit.unwrap().bytes().unwrap(), b"inserted");
}
