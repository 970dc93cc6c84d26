//! Requests that come together.

use brisk_http::Options;
use http::Method;
use http_body_util::BodyExt;

use crate::origin::Asked;
use crate::setup::{Setup, all, answer, at_once, cache_status, error, next, read, settle};

const FRESH: &[&str] = &["Cache-Control: max-age=60"];

#[tokio::test(start_paused = true)]
async fn requests_for_one_url_share_a_fetch_and_get_bytes_as_they_come() {
    for (len, end) in [(None, "whole\n"), (Some("Content-Length: 10"), "whole\n")] {
        let mut setup = Setup::private();
        let first = setup.get(&[]);
        let asked = setup.origin.next().await;
        let clients = [first, setup.get(&[]), setup.get(&[])];
        settle().await;
        assert!(setup.origin.take().is_none(), "one request was sent");
        let lines = [FRESH, len.as_slice()].concat();
        let pipe = asked.begin(200, &lines);
        let mut responses = Vec::new();
        for client in clients {
            // The head is there before the body.
            responses.push(answer(client).await);
        }
        assert_eq!(
            cache_status(&responses[0]),
            "brisk; fwd=uri-miss; fwd-status=200; ttl=60; stored"
        );
        for waiter in &responses[1..] {
            let status = "brisk; fwd=uri-miss; fwd-status=200; ttl=60; collapsed";
            assert_eq!(cache_status(waiter), status);
            assert_eq!(waiter.headers()["age"], "0");
        }
        pipe.send("not ");
        settle().await;
        for response in &mut responses {
            assert_eq!(next(response).unwrap().unwrap(), "not ");
        }
        // Who comes now gets what has come, too.
        responses.push(answer(setup.get(&[])).await);
        assert_eq!(
            next(responses.last_mut().unwrap()).unwrap().unwrap(),
            "not "
        );
        for response in &mut responses {
            assert!(at_once(response.body_mut().frame()).is_none());
        }
        assert!(setup.cached().await.is_none(), "half a body is not stored");
        pipe.send(end);
        drop(pipe);
        for mut response in responses {
            let (rest, error) = all(&mut response).await;
            assert_eq!((rest, error.is_none()), (end.as_bytes().to_vec(), true));
        }
        setup.idle().await;
        let counts = setup.layer.counts();
        assert_eq!((counts.sent, counts.collapsed, counts.stored), (1, 3, 1));
        assert_eq!(setup.cached().await.unwrap().text(), (200, "not whole\n"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_cannot_be_shared_is_fetched_per_request() {
    let (private, shared) = (Options::private(), Options::shared());
    for (line, options) in [
        ("Cache-Control: no-store", &private),
        ("Vary: *", &private),
        ("Cache-Control: private, max-age=60", &shared),
        ("Cache-Control: max-age=0", &private),
        ("Cache-Control: no-cache, max-age=60", &private),
    ] {
        let mut setup = Setup::with(options.clone(), |builder| builder);
        let clients = [(); 4].map(|()| setup.get(&[]));
        let first = setup.origin.next().await;
        settle().await;
        assert!(setup.origin.take().is_none(), "the others wait: {line}");
        first.answer(200, &[line, "ETag: \"0\""], "0");
        for number in 1..4 {
            let asked = setup.origin.next().await;
            let tag = format!("ETag: \"{number}\"");
            asked.answer(200, &[line, &tag], number.to_string());
        }
        let mut bodies = Vec::new();
        for client in clients {
            let got = read(client).await;
            assert!(!got.cache_status().contains("collapsed"), "{got:?}");
            bodies.push(got.text().1.to_owned());
        }
        bodies.sort_unstable();
        assert_eq!(bodies, ["0", "1", "2", "3"], "{line}");
        assert_eq!(setup.layer.counts().collapsed, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_what_could_not_be_shared_just_before() {
    let mut setup = Setup::private();
    let origin = |asked: Asked| asked.answer(200, &["Cache-Control: no-store"], "mine");
    setup.exchange(Method::GET, &[], origin).await;
    let clients = [setup.get(&[]), setup.get(&[]), setup.get(&[])];
    // All are there before any is answered.
    let all = [
        setup.origin.next().await,
        setup.origin.next().await,
        setup.origin.next().await,
    ];
    for asked in all {
        asked.answer(200, FRESH, "ours");
    }
    for client in clients {
        assert_eq!(read(client).await.text(), (200, "ours"));
    }
    setup.idle().await;
    assert_eq!(setup.cached().await.unwrap().text(), (200, "ours"));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_variant_is_another_asks_for_itself() {
    let mut setup = Setup::private();
    let html = setup.get(&["Accept: text/html"]);
    let first = setup.origin.next().await;
    let json = setup.get(&["Accept: application/json"]);
    let too = setup.get(&["Accept: text/html"]);
    settle().await;
    assert!(setup.origin.take().is_none());
    let vary = &["Cache-Control: max-age=60", "Vary: Accept"];
    first.answer(200, vary, "html");
    let second = setup.origin.next().await;
    assert_eq!(second.field("accept"), Some("application/json"));
    second.answer(200, vary, "json");
    assert_eq!(read(html).await.text(), (200, "html"));
    assert_eq!(read(json).await.text(), (200, "json"));
    let too = read(too).await;
    assert_eq!(too.text(), (200, "html"));
    assert!(too.cache_status().ends_with("collapsed"), "{too:?}");
    setup.idle().await;
    assert_eq!(setup.origin.count(), 2);
    for accept in ["text/html", "application/json"] {
        let line = format!("Accept: {accept}");
        let got = read(setup.get(&[&line])).await;
        assert!(accept.ends_with(got.text().1));
    }
    assert_eq!(setup.origin.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_asks_for_something_of_its_own_joins_no_fetch() {
    let mut setup = Setup::private();
    let first = setup.get(&[]);
    let whole_asked = setup.origin.next().await;
    for line in [
        "Range: bytes=0-1",
        "If-None-Match: \"1\"",
        "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT",
        "If-Match: \"1\"",
        "Cache-Control: no-store",
    ] {
        let client = setup.get(&[line]);
        setup.origin.next().await.answer(200, &[], "own");
        assert_eq!(read(client).await.text(), (200, "own"), "{line}");
    }
    let head = setup.send(Method::HEAD, &[]);
    let asked = setup.origin.next().await;
    assert_eq!(asked.method, Method::HEAD);
    asked.answer(200, &[], "");
    assert_eq!(read(head).await.text(), (200, ""));
    assert!(!first.is_finished());
    whole_asked.answer(200, FRESH, "whole");
    assert_eq!(read(first).await.text(), (200, "whole"));
}

#[tokio::test(start_paused = true)]
async fn a_304_answers_all_who_wait() {
    let mut setup = Setup::private();
    setup
        .store(&["Cache-Control: max-age=60", "ETag: \"1\""], "a page")
        .await;
    setup.later(60);
    let clients = [setup.get(&[]), setup.get(&[]), setup.get(&[])];
    let asked = setup.origin.next().await;
    settle().await;
    assert!(setup.origin.take().is_none());
    assert_eq!(asked.field("if-none-match"), Some("\"1\""));
    asked.answer(304, &["ETag: \"1\""], "");
    for client in clients {
        assert_eq!(read(client).await.text(), (200, "a page"));
    }
    assert_eq!(setup.origin.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_to_all_who_wait_and_nobody_tries_again() {
    let mut setup = Setup::private();
    let clients = [setup.get(&[]), setup.get(&[]), setup.get(&[])];
    let asked = setup.origin.next().await;
    settle().await;
    asked.fail();
    for client in clients {
        let error = error(client).await;
        assert_eq!(error.kind(), brisk_http::FetchErrorKind::Upstream);
        assert_eq!(error.to_string(), "the origin gave no whole answer");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, "connection reset");
    }
    settle().await;
    assert_eq!(setup.origin.count(), 1);
    // The next one tries.
    let client = setup.get(&[]);
    setup.origin.next().await.answer(200, FRESH, "a page");
    let got = read(client).await;
    assert_eq!(got.text(), (200, "a page"));
}
