//! What a revalidation writes, and what is not asked at all.

use std::collections::BTreeMap;

use http::Method;

use crate::origin::Asked;
use crate::setup::{Setup, contents, read};

const MINUTE: &[&str] = &["Cache-Control: max-age=60", "ETag: \"1\"", "X-Round: 1"];

/// How many bytes of a directory differ. A cache writes no byte twice, so a body that is written again is among them.
fn changed(before: &BTreeMap<String, Vec<u8>>, after: &BTreeMap<String, Vec<u8>>) -> usize {
    let none = Vec::new();
    let files = after.iter().map(|(name, after)| {
        let before = before.get(name).unwrap_or(&none);
        let beyond = after.get(before.len()..).unwrap_or_default();
        let both = after.iter().zip(before);
        both.filter(|(after, before)| after != before).count()
            + beyond.iter().filter(|byte| **byte != 0).count()
    });
    files.sum()
}

/// A body without a zero, so that each byte of it that is written counts.
fn body() -> Vec<u8> {
    (0..1_000_000u32)
        .map(|at| (at.wrapping_mul(at) >> 8) as u8 | 1)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_304_updates_fields_and_writes_no_body() {
    let mut setup = Setup::private();
    let empty = contents(setup.home.path());
    setup.store(MINUTE, body()).await;
    let before = contents(setup.home.path());
    assert!(changed(&empty, &before) > 900_000, "a body counts");
    setup.later(60);
    let origin = |asked: Asked| {
        assert_eq!(asked.field("if-none-match"), Some("\"1\""));
        asked.answer(
            304,
            &["ETag: \"1\"", "X-Round: 2", "Cache-Control: max-age=30"],
            "",
        );
    };
    let got = setup.exchange(Method::GET, &[], origin).await;
    assert!(got.status == 200 && got.body == body());
    assert_eq!(got.field("x-round"), Some("2"));
    assert_eq!(
        got.cache_status(),
        "brisk; fwd=stale; fwd-status=304; ttl=30; stored"
    );
    let written = changed(&before, &contents(setup.home.path()));
    assert!((1..=1024).contains(&written), "{written} bytes");
    assert_eq!(setup.layer.counts().stored, 1);
    // It is fresh again, for as long as the 304 says.
    setup.later(29);
    let fresh = read(setup.get(&[])).await;
    assert_eq!(fresh.cache_status(), "brisk; hit; ttl=1");
    assert!(fresh.field("x-round") == Some("2") && fresh.body == body());
    assert_eq!(setup.origin.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_200_with_the_same_body_writes_no_body() {
    // In memory, and in the directory.
    for memory in [16 << 20, 1 << 16] {
        let mut setup = Setup::with(brisk_http::Options::private(), |builder| {
            builder.memory(memory)
        });
        setup.store(MINUTE, body()).await;
        let before = contents(setup.home.path());
        setup.later(60);
        let lines = ["Cache-Control: max-age=60", "ETag: \"2\"", "X-Round: 2"];
        let origin = |asked: Asked| asked.answer(200, &lines, body());
        let got = setup.exchange(Method::GET, &[], origin).await;
        assert!(got.status == 200 && got.body == body());
        let written = changed(&before, &contents(setup.home.path()));
        assert!((1..=1024).contains(&written), "{written} bytes");
        assert_eq!(setup.layer.counts().stored, 1);
        let fresh = read(setup.get(&[])).await;
        assert_eq!(fresh.cache_status(), "brisk; hit; ttl=60");
        assert_eq!(fresh.field("etag"), Some("\"2\""));
        assert!(fresh.body == body());
    }
}

#[tokio::test(start_paused = true)]
async fn another_body_takes_the_place_of_the_old_one() {
    let mut setup = Setup::private();
    setup.store(MINUTE, body()).await;
    setup.later(60);
    setup.store(&["Cache-Control: max-age=60"], "short").await;
    assert_eq!(setup.cached().await.unwrap().text(), (200, "short"));
    assert_eq!(setup.layer.cache().stat().unwrap().entries, 2);
}

#[tokio::test(start_paused = true)]
async fn a_reload_of_what_never_changes_sends_nothing() {
    // RFC 8246, section 2.
    let mut setup = Setup::private();
    let immutable = &["Cache-Control: max-age=60, immutable", "ETag: \"1\""];
    setup.store(immutable, body()).await;
    let before = contents(setup.home.path());
    setup.later(59);
    let reload = read(setup.get(&["Cache-Control: max-age=0"])).await;
    assert!(reload.body == body());
    assert_eq!(reload.cache_status(), "brisk; hit; ttl=1");
    let counts = setup.layer.counts();
    assert_eq!((setup.origin.count(), counts.sent, counts.hits), (1, 1, 1));
    assert_eq!(changed(&before, &contents(setup.home.path())), 0);
    // One by force is sent, and one of what has become stale.
    for (after, line) in [
        (0, "Cache-Control: no-cache"),
        (60, "Cache-Control: max-age=0"),
    ] {
        setup.later(after);
        let origin = |asked: Asked| {
            assert_eq!(asked.field("if-none-match"), Some("\"1\""));
            asked.answer(304, immutable, "");
        };
        let got = setup.exchange(Method::GET, &[line], origin).await;
        assert!(got.body == body());
    }
}

#[tokio::test(start_paused = true)]
async fn a_reload_of_what_may_change_is_sent() {
    let mut setup = Setup::private();
    setup.store(MINUTE, "a page").await;
    let origin = |asked: Asked| asked.answer(304, &["ETag: \"1\""], "");
    let reload = &["Cache-Control: max-age=0"];
    let got = setup.exchange(Method::GET, reload, origin).await;
    assert_eq!(got.text(), (200, "a page"));
    assert_eq!(setup.origin.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_304_to_a_request_without_conditions_ends() {
    let mut setup = Setup::private();
    let client = setup.get(&[]);
    setup.origin.next().await.answer(304, &[], "");
    // A 304 is no answer to this request, but it is what the origin said.
    let got = read(client).await;
    assert_eq!(got.text(), (304, ""));
    assert!(setup.cached().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_origin_that_answers_another_304_for_ever_is_given_up() {
    let mut setup = Setup::private();
    setup.store(MINUTE, "a page").await;
    setup.later(60);
    let client = setup.get(&[]);
    let asked = setup.origin.next().await;
    assert_eq!(asked.field("if-none-match"), Some("\"1\""));
    asked.answer(304, &["ETag: \"2\""], "");
    let again = setup.origin.next().await;
    assert_eq!(again.field("if-none-match"), None);
    again.answer(200, &["Cache-Control: max-age=60", "ETag: \"2\""], "new");
    assert_eq!(read(client).await.text(), (200, "new"));
    setup.idle().await;
    assert_eq!(setup.cached().await.unwrap().text(), (200, "new"));
}

#[tokio::test(start_paused = true)]
async fn a_part_is_completed_in_the_directory() {
    // RFC 9111, section 3.4.
    let mut setup = Setup::private();
    let whole = body();
    let part = whole[..300_000].to_vec();
    let lines = |range: &str| -> Vec<String> {
        vec![
            "Cache-Control: max-age=60".to_owned(),
            "ETag: \"1\"".to_owned(),
            format!("Content-Range: bytes {range}/1000000"),
        ]
    };
    let answer = |asked: Asked, range: &str, body: Vec<u8>| {
        let lines = lines(range);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        asked.answer(206, &lines, body);
    };
    let origin = |asked: Asked| answer(asked, "0-299999", part);
    let first = &["Range: bytes=0-299999"];
    let got = setup.exchange(Method::GET, first, origin).await;
    assert_eq!((got.status, got.body.len()), (206, 300_000));
    let origin = |asked: Asked| {
        assert_eq!(asked.field("range"), Some("bytes=300000-"));
        assert_eq!(asked.field("if-range"), Some("\"1\""));
        answer(asked, "300000-999999", whole[300_000..].to_vec());
    };
    let got = setup.exchange(Method::GET, &[], origin).await;
    assert!(got.status == 200 && got.body == whole);
    assert!(setup.cached().await.unwrap().body == whole);
    assert_eq!(setup.origin.count(), 2);
}
