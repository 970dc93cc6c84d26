//! Credentials: whose answers are whose, and where no secret may be.

use brisk_http::{Options, Secret};
use http::Method;
use tower::{Layer, Service};

use crate::origin::{Asked, origin};
use crate::setup::{Setup, find, read, request, settle};

const FRESH: &[&str] = &["Cache-Control: max-age=60"];

fn private() -> Options {
    let mut options = Options::private();
    options.secret = Some(Secret::new([7; 16]));
    options
}

fn own_secret(options: Options) -> Setup {
    Setup::with(options, |builder| builder)
}

/// Answers with the credentials of the request.
fn echo(asked: Asked, lines: &[&str]) {
    let own = asked.field("authorization").unwrap_or("nobody").to_owned();
    asked.answer(200, lines, own);
}

const ANN: &str = "Authorization: Bearer ann-hush";
const BOB: &str = "Authorization: Bearer bob-hush";

#[tokio::test(start_paused = true)]
async fn nobody_gets_the_private_answer_of_another() {
    let mut setup = own_secret(private());
    for line in [ANN, BOB] {
        let origin = |asked: Asked| echo(asked, FRESH);
        let got = setup.exchange(Method::GET, &[line], origin).await;
        assert!(line.ends_with(got.text().1));
    }
    // Each has an answer of its own.
    assert_eq!(setup.origin.count(), 2);
    for (line, own) in [(ANN, "Bearer ann-hush"), (BOB, "Bearer bob-hush")] {
        let got = read(setup.get(&[line])).await;
        assert_eq!(
            (got.text(), got.cache_status()),
            ((200, own), "brisk; hit; ttl=60")
        );
    }
    assert_eq!(setup.origin.count(), 2);
    // Somebody else, and nobody in particular, ask.
    for (lines, own) in [
        (&["Authorization: Bearer eve"][..], "Bearer eve"),
        (&[], "nobody"),
    ] {
        let origin = |asked: Asked| echo(asked, FRESH);
        let got = setup.exchange(Method::GET, lines, origin).await;
        assert_eq!(got.text(), (200, own));
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_gets_the_private_answer_of_another_while_it_is_fetched() {
    for options in [private(), Options::private(), Options::shared()] {
        let has_secret = options.secret.is_some();
        let mut setup = own_secret(options);
        let ann = setup.get(&[ANN]);
        let asked = setup.origin.next().await;
        let too = setup.get(&[ANN]);
        let others = [setup.get(&[BOB]), setup.get(&[])];
        settle().await;
        assert_eq!(asked.field("authorization"), Some("Bearer ann-hush"));
        let pipe = asked.begin(200, FRESH);
        pipe.send("Bearer ann-hush");
        settle().await;
        let most = if has_secret { 2 } else { 3 };
        for _ in 0..most {
            let asked = setup.origin.next().await;
            echo(asked, FRESH);
        }
        drop(pipe);
        for client in [ann, too] {
            assert_eq!(read(client).await.text(), (200, "Bearer ann-hush"));
        }
        let [bob, nobody] = others;
        assert_eq!(read(bob).await.text(), (200, "Bearer bob-hush"));
        assert_eq!(read(nobody).await.text(), (200, "nobody"));
        setup.idle().await;
        assert_eq!(setup.origin.count(), 1 + most);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_secret_or_in_a_shared_cache_a_private_answer_is_not_stored() {
    for (options, control, is_stored) in [
        (Options::private(), "max-age=60", false),
        (Options::shared(), "max-age=60", false),
        // RFC 9111, section 3.5.
        (Options::shared(), "max-age=60, public", true),
    ] {
        let mut setup = own_secret(options);
        let control = format!("Cache-Control: {control}");
        let origin = |asked: Asked| echo(asked, &[&control]);
        setup.exchange(Method::GET, &[ANN], origin).await;
        assert_eq!(setup.layer.counts().stored, u64::from(is_stored));
        let client = setup.get(&[BOB]);
        settle().await;
        let asked = setup.origin.take();
        assert_eq!(asked.is_none(), is_stored, "{control}");
        if let Some(asked) = asked {
            echo(asked, &[&control]);
        }
        let expected = if is_stored { "ann" } else { "bob" };
        let got = read(client).await;
        assert_eq!(got.text(), (200, &*format!("Bearer {expected}-hush")));
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_depend_on_a_cookie_are_kept_apart() {
    let mut setup = own_secret(private());
    let lines = &["Cache-Control: max-age=60", "Vary: Cookie"];
    for round in 0..2 {
        for user in ["ann", "bob"] {
            let line = format!("Cookie: session={user}-hush");
            if round == 0 {
                let origin = |asked: Asked| asked.answer(200, lines, user);
                setup.exchange(Method::GET, &[&line], origin).await;
            }
            let got = read(setup.get(&[&line])).await;
            assert_eq!(got.text(), (200, user));
        }
    }
    assert_eq!(setup.origin.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn no_secret_is_in_the_directory_or_in_debug_texts() {
    let mut setup = own_secret(private());
    let lines = [
        "Authorization: Basic dXNlcjpodXNo-hush",
        "Proxy-Authorization: Bearer hush",
        "Cookie: session=hush",
    ];
    let url = "http://user:hush@example.org/a?b=c";
    let mut debug = Vec::new();
    for vary in ["Accept", "Authorization, Cookie, Proxy-Authorization"] {
        let vary = format!("Vary: {vary}");
        let answer_lines = ["Cache-Control: max-age=60", "ETag: \"1\"", &vary];
        let future = setup.call(request(url, Method::GET, &lines));
        debug.push(format!("{future:?}"));
        let client = tokio::spawn(future);
        let asked = setup.origin.next().await;
        asked.answer(200, &answer_lines, vec![b'x'; 200_000]);
        let response = client.await.unwrap().unwrap();
        debug.push(format!("{response:?}"));
        drop(response);
        setup.idle().await;
        setup.later(60);
        // A 304, and a hit.
        let future = setup.call(request(url, Method::GET, &lines));
        let client = tokio::spawn(future);
        let asked = setup.origin.next().await;
        asked.answer(304, &["ETag: \"1\"", "Cache-Control: max-age=60"], "");
        let response = client.await.unwrap().unwrap();
        assert_eq!(
            response.headers()["cache-status"],
            "brisk; fwd=stale; fwd-status=304; ttl=60; stored"
        );
        let hit = setup.call(request(url, Method::GET, &lines));
        debug.push(format!("{hit:?}"));
        let hit = hit.await.unwrap();
        assert_eq!(hit.headers()["cache-status"], "brisk; hit; ttl=60");
        debug.push(format!("{response:?} {hit:?} {:?}", hit.body()));
        setup.later(60);
    }
    // Fetches that fail, and one that is not stored.
    let client = setup.send_to("http://user:hush@example.net/", Method::GET, &lines);
    setup.origin.next().await.fail();
    let error = client.await.unwrap().unwrap_err();
    debug.push(format!("{error:?} {error}"));
    let client = setup.send_to("http://user:hush@example.net/", Method::POST, &lines);
    setup.origin.next().await.answer(200, &[], "done");
    client.await.unwrap().unwrap();
    let (upstream, _origin) = origin();
    let named = tower::service_fn(move |request| upstream.clone().call(request));
    let service = setup.layer.layer(named);
    debug.push(format!(
        "{service:?} {:?} {:?}",
        setup.layer,
        setup.layer.counts()
    ));
    setup.idle().await;
    for text in debug {
        assert!(!text.contains("hush") && !text.contains("dXNl"), "{text}");
        assert!(!text.contains("[7, 7"), "{text}");
    }
    // The directory has the URL, and nothing that would say who asked.
    let directory = setup.home.path();
    assert!(!find(directory, b"http://example.org/a?b=c").is_empty());
    for secret in [&b"hush"[..], b"dXNlcjpodXNo", b"user:", &[7; 16]] {
        assert_eq!(find(directory, secret), [], "{secret:?}");
    }
}
