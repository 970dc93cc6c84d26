//! Answers from the cache.

use brisk_http::{BodyName, Options};
use http::Method;
use http_body::Body;

use crate::origin::Asked;
use crate::setup::{Setup, all, answer, cache_status, next, read, whole};

const FRESH: &[&str] = &["Cache-Control: max-age=60", "Content-Type: text/plain"];

/// A body of any length whose bytes differ.
fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * at) >> 5) as u8).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hit_is_answered_at_once_and_lends_the_mapping() {
    for len in [1, 1_000, 100_000, 600_000] {
        let mut setup = Setup::private();
        setup.store(FRESH, body(len)).await;
        // The first look of a handle at a file opens it.
        read(setup.get(&[])).await;

        let mut response = setup.at_once(&[]);
        assert_eq!(cache_status(&response), "brisk; hit; ttl=60");
        assert_eq!(response.headers()["content-type"], "text/plain");
        let (hit, range) = response.body().stored().unwrap();
        assert!(hit.is_mapped());
        assert_eq!(range, 0..len);
        assert_eq!(response.body().size_hint().exact(), Some(len as u64));
        let mapped = hit.bytes().unwrap().as_ptr_range();
        let mut read = Vec::new();
        while let Some(piece) = next(&mut response) {
            let piece = piece.unwrap();
            let lent = piece.as_ptr_range();
            assert!(mapped.start <= lent.start && lent.end <= mapped.end);
            read.extend_from_slice(&piece);
            let left = len - read.len();
            assert_eq!(response.body().size_hint().exact(), Some(left as u64));
        }
        assert!(read == body(len));
        assert!(response.body().is_end_stream() && response.body().stored().is_none());
        assert_eq!((setup.origin.count(), setup.layer.counts().hits), (1, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_stored_whole_says_its_name() {
    for len in [1_000, 600_000] {
        let mut setup = Setup::private();
        let client = setup.get(&[]);
        setup.origin.next().await.answer(200, FRESH, body(len));
        let fetched = answer(client).await;
        assert_eq!(fetched.body().name(), None);
        whole(fetched).await;
        setup.idle().await;
        let name = BodyName::of(&body(len));
        for (lines, expected) in [
            (&[][..], Some(name)),
            (&["Range: bytes=0-1"], None),
            (&["If-None-Match: *"], None),
        ] {
            let response = answer(setup.get(lines)).await;
            assert_eq!(response.body().name(), expected, "{lines:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_hit_lends_outlives_the_layer_and_the_entry() {
    let mut setup = Setup::private();
    setup.store(FRESH, body(600_000)).await;
    read(setup.get(&[])).await;
    let mut response = setup.at_once(&[]);
    // Another body takes its place.
    let reload = &["Cache-Control: no-cache"];
    let origin = |asked: Asked| asked.answer(200, FRESH, body(599_999));
    setup.exchange(Method::GET, reload, origin).await;
    setup.layer.cache().clear().unwrap();
    drop(setup);
    let (bytes, error) = all(&mut response).await;
    assert!(bytes == body(600_000) && error.is_none());
}

#[tokio::test(start_paused = true)]
async fn answers_without_a_body_are_stored_too() {
    for (status, line) in [
        (200, "X-Other: 1"),
        (204, "X-Other: 1"),
        (301, "Location: /b"),
        (404, "X-Other: 1"),
    ] {
        let mut setup = Setup::private();
        let lines = [FRESH, &[line]].concat();
        let origin = |asked: Asked| asked.answer(status, &lines, "");
        let first = setup.exchange(Method::GET, &[], origin).await;
        let hit = read(setup.get(&[])).await;
        assert_eq!(hit.cache_status(), "brisk; hit; ttl=60", "{status}");
        for got in [first, hit] {
            assert_eq!(got.text(), (status, ""));
            let (name, value) = line.split_once(": ").unwrap();
            assert_eq!(got.field(name), Some(value));
        }
        assert_eq!(setup.origin.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_is_answered_from_a_stored_get() {
    let mut setup = Setup::private();
    setup.store(FRESH, "a page").await;
    let head = answer(setup.send(Method::HEAD, &[])).await;
    assert_eq!(cache_status(&head), "brisk; hit; ttl=60");
    assert_eq!(head.headers()["content-length"], "6");
    let head = whole(head).await;
    assert_eq!(head.text(), (200, ""));
    assert_eq!(setup.origin.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn ranges_are_cut_from_a_stored_whole() {
    let mut setup = Setup::private();
    let stored = body(600_000);
    setup.store(FRESH, stored.clone()).await;
    for (range, expected) in [
        ("bytes=0-0", 0..1),
        ("bytes=16000-17000", 16_000..17_001),
        ("bytes=1-", 1..600_000),
        ("bytes=-300000", 300_000..600_000),
        ("bytes=599999-999999", 599_999..600_000),
    ] {
        let response = answer(setup.get(&[&format!("Range: {range}")])).await;
        let (_, stored_range) = response.body().stored().unwrap();
        assert_eq!(stored_range, expected, "{range}");
        let got = whole(response).await;
        assert_eq!(got.status, 206, "{range}");
        assert!(got.body == stored[expected.clone()], "{range}");
        let (first, last) = (expected.start, expected.end - 1);
        let content_range = format!("bytes {first}-{last}/600000");
        assert_eq!(got.field("content-range"), Some(&*content_range));
        assert_eq!(
            got.field("content-length"),
            Some(&*expected.len().to_string())
        );
    }
    let got = read(setup.get(&["Range: bytes=600000-"])).await;
    assert_eq!(got.text(), (416, ""));
    assert_eq!(got.field("content-range"), Some("bytes */600000"));
    assert_eq!(setup.origin.count(), 1);
}

/// It is stored a moment after its last byte has gone to the client.
#[tokio::test(start_paused = true)]
async fn who_got_the_whole_finds_its_parts_at_once() {
    for len in [1_000, 600_000] {
        let mut setup = Setup::private();
        let client = setup.get(&[]);
        setup.origin.next().await.answer(200, FRESH, body(len));
        assert_eq!(read(client).await.status, 200);
        let got = read(setup.get(&["Range: bytes=1-9"])).await;
        assert_eq!(got.status, 206, "{len}");
        assert!(got.body == body(len)[1..10], "{len}");
        assert_eq!(setup.origin.count(), 1, "{len}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_offline_or_by_only_if_cached() {
    let mut setup = Setup::private();
    let alone = &["Cache-Control: only-if-cached"];
    let absent = read(setup.get(alone)).await;
    assert_eq!(absent.text(), (504, ""));
    assert_eq!(absent.cache_status(), "brisk; fwd=uri-miss");
    setup.store(FRESH, "a page").await;
    let fresh = read(setup.get(alone)).await;
    assert_eq!(fresh.text(), (200, "a page"));
    setup.later(60);
    let stale = read(setup.get(alone)).await;
    assert_eq!(stale.text(), (504, ""));

    let mut options = Options::private();
    options.offline = true;
    let mut offline = setup.beside(options);
    for (after, lines) in [(0, &[][..]), (1 << 30, &["Cache-Control: no-cache"])] {
        offline.later(after);
        let any = read(offline.get(lines)).await;
        assert_eq!(any.text(), (200, "a page"));
    }
    for (method, url) in [
        (Method::GET, "http://example.org/other"),
        (Method::POST, "http://example.org/a"),
    ] {
        let refused = answer(offline.send_to(url, method, &[])).await;
        assert_eq!(whole(refused).await.text(), (504, ""), "{url}");
    }
    assert_eq!((setup.origin.count(), offline.origin.count()), (1, 0));
    assert!(offline.origin.take().is_none());
}
