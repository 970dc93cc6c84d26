//! Stale answers, and origins that fail or say nothing.

use std::time::Duration;

use brisk_http::{FetchErrorKind, Options};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;

use crate::origin::Asked;
use crate::setup::{Setup, all, answer, error, next, read, settle, whole};

const WHILE_REVALIDATING: &[&str] = &[
    "Cache-Control: max-age=60, stale-while-revalidate=30",
    "ETag: \"1\"",
];

/// A setup whose origin may take 5 seconds until its head, and pause 5 seconds in a body.
fn impatient() -> Setup {
    Setup::with(Options::private(), |builder| {
        let most = Some(Duration::from_secs(5));
        builder.head_timeout(most).body_timeout(most)
    })
}

async fn at_once(setup: &Setup) -> (String, String) {
    let got = whole(setup.at_once(&[])).await;
    (got.text().1.to_owned(), got.cache_status().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_stale_page_is_used_at_once_and_revalidated_once() {
    let mut setup = Setup::private();
    setup.store(WHILE_REVALIDATING, "old").await;
    setup.cached().await.unwrap();
    setup.later(60);
    for _ in 0..3 {
        let (text, status) = at_once(&setup).await;
        assert_eq!((&*text, &*status), ("old", "brisk; hit; ttl=0"));
    }
    let asked = setup.origin.next().await;
    settle().await;
    assert!(setup.origin.take().is_none());
    assert_eq!(asked.field("if-none-match"), Some("\"1\""));
    assert_eq!(at_once(&setup).await.0, "old");
    let pipe = asked.begin(200, &["Cache-Control: max-age=60"]);
    settle().await;
    // Not before all of it has come.
    assert_eq!(at_once(&setup).await.0, "old");
    pipe.send("new");
    drop(pipe);
    setup.idle().await;
    let got = read(setup.get(&[])).await;
    assert_eq!(
        (got.text(), got.cache_status()),
        ((200, "new"), "brisk; hit; ttl=60")
    );
    assert_eq!(setup.origin.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_revalidation_that_fails_leaves_the_stale_page_and_the_next_one_tries() {
    let mut setup = Setup::private();
    setup.store(WHILE_REVALIDATING, "old").await;
    setup.cached().await.unwrap();
    setup.later(60);
    let failures: [fn(Asked); 4] = [
        Asked::fail,
        |asked| asked.answer(500, &[], "broken"),
        |asked| asked.begin(200, &["Content-Length: 10"]).send("half"),
        |asked| asked.begin(200, &["Cache-Control: max-age=60"]).fail(),
    ];
    for failure in failures {
        assert_eq!(at_once(&setup).await.0, "old");
        failure(setup.origin.next().await);
        setup.idle().await;
    }
    assert_eq!(at_once(&setup).await.0, "old");
    setup.origin.next().await.answer(304, &["ETag: \"1\""], "");
    setup.idle().await;
    let (text, status) = at_once(&setup).await;
    assert_eq!((&*text, &*status), ("old", "brisk; hit; ttl=60"));
    assert_eq!(setup.origin.count(), 6);
    // Beyond its window, it is not used before the origin was asked.
    setup.later(90);
    let client = setup.get(&[]);
    setup.origin.next().await.answer(200, &[], "new");
    assert_eq!(read(client).await.text(), (200, "new"));
}

#[tokio::test(start_paused = true)]
async fn a_stale_page_stands_in_for_errors_as_far_as_it_says() {
    for (control, after, status, stands_in) in [
        ("max-age=60, stale-if-error=30", 89, 500, true),
        ("max-age=60, stale-if-error=30", 89, 503, true),
        ("max-age=60, stale-if-error=30", 90, 500, false),
        ("max-age=60, stale-if-error=30", 89, 404, false),
        ("max-age=60", 60, 500, false),
    ] {
        let case = (control, after, status);
        let mut setup = Setup::private();
        let control = format!("Cache-Control: {control}");
        setup.store(&[&control, "ETag: \"1\""], "old").await;
        setup.later(after);
        let clients = [setup.get(&[]), setup.get(&[])];
        let asked = setup.origin.next().await;
        settle().await;
        asked.answer(status, &["Cache-Control: no-store"], "broken");
        if !stands_in {
            let again = setup.origin.next().await;
            again.answer(status, &["Cache-Control: no-store"], "broken");
        }
        for client in clients {
            let got = read(client).await;
            match stands_in {
                true => {
                    assert_eq!(got.text(), (200, "old"), "{case:?}");
                    assert!(got.cache_status().ends_with("; detail=stale-if-error"));
                }
                false => assert_eq!(got.text(), (status, "broken"), "{case:?}"),
            }
        }
        setup.idle().await;
        assert_eq!(setup.origin.count(), 3 - usize::from(stands_in));
        assert_eq!(setup.cached().await.unwrap().text(), (200, "old"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_page_stands_in_for_an_origin_that_cannot_be_reached() {
    let mut strict = Options::private();
    strict.stale_when_disconnected = None;
    let lenient = Options::private();
    for (control, options, stands_in) in [
        ("max-age=60", &lenient, true),
        ("max-age=60", &strict, false),
        ("max-age=60, must-revalidate", &lenient, false),
        ("max-age=60, stale-if-error=30", &strict, true),
    ] {
        for silent in [false, true] {
            let mut setup = Setup::with(options.clone(), |builder| {
                builder.head_timeout(Some(Duration::from_secs(5)))
            });
            setup
                .store(&[&format!("Cache-Control: {control}")], "old")
                .await;
            setup.later(61);
            let clients = [setup.get(&[]), setup.get(&[])];
            let asked = setup.origin.next().await;
            settle().await;
            match silent {
                true => {
                    settle().await;
                    assert!(!asked.is_given_up());
                }
                false => asked.fail(),
            }
            for client in clients {
                if stands_in {
                    let got = read(client).await;
                    assert_eq!(got.text(), (200, "old"), "{control}");
                    assert_eq!(
                        got.cache_status(),
                        "brisk; fwd=stale; ttl=-1; detail=stale-if-error"
                    );
                    continue;
                }
                let error = error(client).await;
                let (kind, says) = match silent {
                    true => (
                        FetchErrorKind::TimedOut,
                        "the origin sent no answer for 5.0 s",
                    ),
                    false => (FetchErrorKind::Upstream, "the origin gave no whole answer"),
                };
                assert_eq!(
                    (error.kind(), &*error.to_string()),
                    (kind, says),
                    "{control}"
                );
            }
            assert_eq!(setup.origin.count(), 2, "{control}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_origin_that_says_nothing_is_given_up() {
    let mut setup = impatient();
    for method in [Method::GET, Method::HEAD, Method::POST] {
        let client = setup.send(method.clone(), &[]);
        let asked = setup.origin.next().await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(!asked.is_given_up());
        let error = error(client).await;
        assert_eq!(error.kind(), FetchErrorKind::TimedOut, "{method}");
        settle().await;
        assert!(asked.is_given_up());
    }
}

#[tokio::test(start_paused = true)]
async fn an_origin_that_pauses_too_long_in_a_body_is_given_up() {
    // Stored in memory, stored in the directory, and not stored.
    for (control, len) in [
        ("Cache-Control: max-age=60", 10),
        ("Cache-Control: max-age=60", 2 << 20),
        ("Cache-Control: no-store", 10),
    ] {
        let mut setup = impatient();
        let client = setup.get(&[]);
        let pipe = setup.origin.next().await.begin(200, &[control]);
        let mut response = answer(client).await;
        // Each pause is short enough.
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(4)).await;
            pipe.send(vec![b'x'; len]);
            settle().await;
            assert_eq!(next(&mut response).unwrap().unwrap().len(), len);
        }
        let (rest, error) = all(&mut response).await;
        let error = error.unwrap();
        assert!(rest.is_empty());
        assert_eq!(error.kind(), FetchErrorKind::TimedOut, "{control} {len}");
        assert_eq!(
            error.to_string(),
            "the origin sent nothing more of a body for 5.0 s"
        );
        setup.idle().await;
        assert!(pipe.is_given_up());
        assert!(setup.cached().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn an_origin_that_pauses_too_long_in_the_rest_of_a_part_is_given_up() {
    let mut setup = impatient();
    let lines = ["Cache-Control: max-age=60", "ETag: \"1\""];
    let [first, rest] = ["0-4", "5-9"].map(|range| format!("Content-Range: bytes {range}/10"));
    let first = [&lines[..], &[&*first]].concat();
    let origin = |asked: Asked| asked.answer(206, &first, "01234");
    let part = &["Range: bytes=0-4"];
    setup.exchange(Method::GET, part, origin).await;
    let client = setup.get(&[]);
    let rest = [&lines[..], &[&*rest]].concat();
    let pipe = setup.origin.next().await.begin(206, &rest);
    pipe.send("56");
    // The whole is asked for instead.
    let again = setup.origin.next().await;
    assert!(pipe.is_given_up() && again.field("range").is_none());
    again.answer(200, &["Cache-Control: max-age=60"], "0123456789");
    assert_eq!(read(client).await.text(), (200, "0123456789"));
}

#[tokio::test(start_paused = true)]
async fn a_reader_may_pause_as_long_as_it_likes() {
    let mut setup = impatient();
    let client = setup.get(&[]);
    let asked = setup.origin.next().await;
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    asked.flood(&["Cache-Control: max-age=60"], piece, 8);
    let mut response = answer(client).await;
    let mut read = 0;
    while let Some(frame) = response.body_mut().frame().await {
        read += frame.unwrap().into_data().unwrap().len();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(read, 8 << 20);
}
