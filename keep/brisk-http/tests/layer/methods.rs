//! Methods that change something.

use brisk_http::Options;
use http::{Method, Request};
use http_body_util::Full;

use crate::origin::{Asked, fields};
use crate::setup::{Setup, URL, answer, read, settle, whole};

const FRESH: &[&str] = &["Cache-Control: max-age=60"];

#[tokio::test(start_paused = true)]
async fn what_an_unsafe_method_changes_is_gone_before_its_answer_is_there() {
    // RFC 9111, section 4.4.
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
        let mut setup = Setup::private();
        setup.store(FRESH, "before").await;
        let location = "http://example.org/b";
        let client = setup.send_to(location, Method::GET, &[]);
        setup.origin.next().await.answer(200, FRESH, "before");
        read(client).await;
        setup.idle().await;
        let mut beside = setup.beside(Options::private());
        assert!(beside.cached().await.is_some());

        let client = setup.send(method.clone(), &[]);
        let asked = setup.origin.next().await;
        settle().await;
        assert!(beside.cached().await.is_some(), "nothing has happened yet");
        asked.answer(201, &["Location: /b"], "done");
        let answer = answer(client).await;
        // Its body was not looked at, and the other handle asks already.
        for url in [URL, location] {
            let client = beside.send_to(url, Method::GET, &[]);
            beside.origin.next().await.answer(200, FRESH, "after");
            assert_eq!(read(client).await.text(), (200, "after"), "{method} {url}");
        }
        let answer = whole(answer).await;
        assert_eq!(answer.text(), (201, "done"));
        assert_eq!(answer.cache_status(), "brisk; fwd=method; fwd-status=201");
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_that_failed_or_is_safe_changes_nothing() {
    for (method, status) in [
        (Method::POST, 500),
        (Method::POST, 404),
        (Method::OPTIONS, 200),
    ] {
        let mut setup = Setup::private();
        setup.store(FRESH, "before").await;
        let origin = |asked: Asked| asked.answer(status, &["Location: /a"], "");
        let got = setup.exchange(method.clone(), &[], origin).await;
        assert_eq!(got.status, status);
        let kept = read(setup.get(&[])).await;
        assert_eq!(kept.text(), (200, "before"), "{method} {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_of_requests_pass_and_their_answers_are_not_stored() {
    for method in [Method::POST, Method::GET] {
        let mut setup = Setup::private();
        for round in ["one", "two"] {
            let mut request = Request::new(Full::from("question"));
            *request.method_mut() = method.clone();
            *request.uri_mut() = URL.parse().unwrap();
            *request.headers_mut() = fields(&["X-Own: 1"]);
            let client = tokio::spawn(setup.call(request));
            let mut asked = setup.origin.next().await;
            assert_eq!((asked.method.clone(), &*asked.url), (method.clone(), URL));
            assert_eq!(asked.field("x-own"), Some("1"));
            assert_eq!(asked.body_text().await.unwrap(), "question");
            asked.answer(200, FRESH, round);
            assert_eq!(read(client).await.text(), (200, round));
        }
        setup.idle().await;
        assert!(setup.cached().await.is_none());
    }
    // A request without a body is sent without one.
    let mut setup = Setup::private();
    let client = setup.get(&[]);
    let asked = setup.origin.next().await;
    assert!(asked.body.is_none());
    asked.answer(200, FRESH, "a page");
    read(client).await;
}
