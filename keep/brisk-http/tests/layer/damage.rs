//! Bytes of the directory that are not what was written.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use brisk_cache::About;
use brisk_http::{CacheBody, FetchErrorKind, Options};
use http::{Method, Response};

use crate::origin::Asked;
use crate::setup::{Setup, all, answer, find, read, settle};

const FRESH: &[&str] = &["Cache-Control: max-age=60", "ETag: \"1\"", "X-Mark: marked"];

/// A body in which no 16 bytes come twice, and none that may stand in an index by chance: an
/// index is mostly zeros and small numbers.
fn body(len: usize) -> Vec<u8> {
    // An odd factor maps no two numbers to one.
    let numbers = (1..=len.div_ceil(8) as u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    numbers.flat_map(u64::to_be_bytes).take(len).collect()
}

/// Flips a bit of the one place in the directory that has these bytes.
fn flip(setup: &Setup, wanted: &[u8]) {
    let places = find(setup.home.path(), wanted);
    let [(name, at)] = &*places else {
        panic!("one place has them: {places:?}");
    };
    let path = setup.home.path().join(name);
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[wanted[0] ^ 1], *at as u64).unwrap();
}

/// Gets the whole, which the origin is asked for without conditions.
async fn fetched_again(setup: &mut Setup, expected: &[u8]) {
    let origin = |asked: Asked| {
        assert_eq!(asked.field("if-none-match"), None);
        asked.answer(200, FRESH, expected.to_vec());
    };
    let got = setup.exchange(Method::GET, &[], origin).await;
    assert!(got.body == expected);
    let count = setup.origin.count();
    assert!(read(setup.get(&[])).await.body == expected);
    assert_eq!(setup.origin.count(), count, "it is stored");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_short_body_is_fetched_again() {
    for len in [100, 60_000] {
        let stored = body(len);
        let mut writer = Setup::private();
        writer.store(FRESH, stored.clone()).await;
        flip(&writer, &stored[64..80]);
        // What was checked once in a process is not checked again, so another handle looks.
        let mut setup = writer.beside(Options::private());
        fetched_again(&mut setup, &stored).await;
        assert_eq!(setup.origin.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_long_body_is_an_error_of_its_reader_and_fetched_again_by_the_next() {
    for at in [0, 300_000, 599_984] {
        let stored = body(600_000);
        let mut writer = Setup::private();
        writer.store(FRESH, stored.clone()).await;
        flip(&writer, &stored[at..at + 16]);
        let mut setup = writer.beside(Options::private());
        let mut response = answer(setup.get(&[])).await;
        assert_eq!(response.status(), 200);
        let (bytes, error) = all(&mut response).await;
        let error = error.expect("it is damaged");
        assert_eq!(error.kind(), FetchErrorKind::Stored, "{at}");
        assert_eq!(
            error.to_string(),
            "a stored body cannot be read; fetch it again"
        );
        // No wrong byte.
        assert!(bytes.len() <= at && stored.starts_with(&bytes));
        settle().await;
        fetched_again(&mut setup, &stored).await;
        assert_eq!(setup.origin.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_value_of_a_program_is_removed() {
    let value = body(600_000);
    let writer = Setup::private();
    let about = About::default();
    writer.layer.cache().insert(b"own", &value, about).unwrap();
    for damaged in [false, true] {
        if damaged {
            flip(&writer, &value[300_000..300_016]);
        }
        let setup = writer.beside(Options::private());
        let cache = Arc::clone(setup.layer.cache());
        let hit = cache.get_unread(b"own").unwrap().unwrap();
        let own = Arc::clone(&cache);
        let mut response = Response::new(CacheBody::of_value(hit, move || {
            assert!(own.remove(b"own").unwrap());
        }));
        let (bytes, error) = all(&mut response).await;
        assert_eq!((bytes == value, error.is_some()), (!damaged, damaged));
        settle().await;
        assert_eq!(cache.get_unread(b"own").unwrap().is_none(), damaged);
    }
}

#[tokio::test(start_paused = true)]
async fn a_range_beside_the_damage_is_answered() {
    let stored = body(600_000);
    let mut writer = Setup::private();
    writer.store(FRESH, stored.clone()).await;
    flip(&writer, &stored[300_000..300_016]);
    let setup = writer.beside(Options::private());
    let got = read(setup.get(&["Range: bytes=0-99999"])).await;
    assert!(got.status == 206 && got.body == stored[..100_000]);
    let mut response = answer(setup.get(&["Range: bytes=299000-301000"])).await;
    let (bytes, error) = all(&mut response).await;
    assert!(bytes.is_empty() && error.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_damaged_policy_is_a_miss() {
    let mut writer = Setup::private();
    writer.store(FRESH, "a page").await;
    flip(&writer, b"marked");
    let mut setup = writer.beside(Options::private());
    fetched_again(&mut setup, b"a page").await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_gone_is_a_miss() {
    let mut setup = Setup::private();
    setup.store(FRESH, body(600_000)).await;
    let cache = setup.layer.cache().clone();
    let keys = cache.iter().unwrap().map(|entry| entry.unwrap().key);
    let bodies = keys.filter(|key| key.starts_with(b"body\0"));
    for key in bodies.collect::<Vec<_>>() {
        assert!(cache.remove(&key).unwrap());
    }
    fetched_again(&mut setup, &body(600_000)).await;
    assert_eq!(setup.origin.count(), 2);
}
