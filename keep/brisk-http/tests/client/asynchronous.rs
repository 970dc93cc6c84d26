//! The client: redirects, retries, bounds, progress, TLS, and its blocking face.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::origin::{Origin, response};
use brisk_cache::{Cache, CacheOptions};
use brisk_http::{
    Client, ClientBuilder, FetchError, FetchErrorKind, Options, ProgressStep, ResponseUrl, Retries,
};
use bytes::Bytes;
use http::{Method, Request, StatusCode, Version};
use http_body_util::BodyExt;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

struct Stage {
    home: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
        }
    }

    fn cache(&self) -> Cache {
        // SAFETY: only this test and the crates that it tests write to the directory.
        #[allow(unsafe_code, reason = "the promise that open_mapped asks for")]
        unsafe { Cache::open_mapped(&self.home.path().join("http"), CacheOptions::new()) }.unwrap()
    }

    fn build(&self) -> ClientBuilder {
        let pause = Duration::from_millis(1);
        Client::build(self.cache(), Options::private())
            .retries(Retries::at_most(3).pauses(pause, pause))
    }
}

async fn text(response: http::Response<brisk_http::CacheBody>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn each_hop_of_a_redirect_is_stored_for_itself() {
    let other = Origin::start(|asked| async move {
        assert!(!asked.headers.contains_key("authorization"));
        assert!(!asked.headers.contains_key("cookie"));
        assert_eq!(asked.headers["accept"], "text/plain");
        response(200, &[("cache-control", "max-age=60")], "there")
    })
    .await;
    let there = other.url("/there");
    let origin = Origin::start(move |asked| {
        let there = there.clone();
        async move {
            assert_eq!(asked.headers["authorization"], "Bearer t0ken");
            match &*asked.path {
                "/first" => response(
                    308,
                    &[("location", "second"), ("cache-control", "max-age=60")],
                    "",
                ),
                _ => response(302, &[("location", &there)], ""),
            }
        }
    })
    .await;
    let stage = Stage::new();
    let client = stage.build().finish();
    for (first, second) in [(2, 1), (1, 0)] {
        let request = Request::get(origin.url("/first"))
            .header("authorization", "Bearer t0ken")
            .header("cookie", "a=b")
            .header("accept", "text/plain")
            .body("".into())
            .unwrap();
        let response = client.send(request).await.unwrap();
        assert_eq!(
            response.extensions().get(),
            Some(&ResponseUrl(other.url("/there")))
        );
        assert_eq!(text(response).await, "there");
        client.idle().await;
        // The 302 says nothing of how long it holds, so it is asked for again. What needs credentials is stored only with
        // a secret.
        assert!(origin.take_count() >= first);
        assert_eq!(other.take_count(), second);
    }
}

#[tokio::test]
async fn a_circle_of_redirects_ends() {
    let origin = Origin::start(|_| async { response(302, &[("location", "/a")], "") }).await;
    let stage = Stage::new();
    let client = stage.build().redirects(3).finish();
    let e = client.get(&origin.url("/a")).await.unwrap_err();
    assert_eq!(e.kind(), FetchErrorKind::Redirects);
    assert_eq!(
        e.to_string(),
        "more than 3 redirects, which is what is allowed"
    );
    assert_eq!(origin.take_count(), 4);
}

#[tokio::test]
async fn what_is_idempotent_is_sent_again() {
    let origin = Origin::start(|asked| async move {
        match (&*asked.path, asked.number) {
            ("/often", _) => response(503, &[], "never"),
            ("/later", _) => response(429, &[("retry-after", "3600")], "later"),
            (_, 0) => response(503, &[], ""),
            (_, 1) => response(429, &[("retry-after", "0")], ""),
            _ => response(200, &[("cache-control", "max-age=60")], "at last"),
        }
    })
    .await;
    let stage = Stage::new();
    let client = stage.build().finish();
    let answer = client.get(&origin.url("/a")).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(text(answer).await, "at last");
    assert_eq!(origin.take_count(), 3);
    let answer = client.get(&origin.url("/often")).await.unwrap();
    assert_eq!(answer.status(), 503);
    assert_eq!(text(answer).await, "never");
    assert_eq!(origin.take_count(), 4);
    let answer = client.get(&origin.url("/later")).await.unwrap();
    assert_eq!((answer.status().as_u16(), origin.take_count()), (429, 1));
    for (method, body, count) in [
        (Method::POST, "", 1),
        (Method::PUT, "a body", 1),
        (Method::DELETE, "", 4),
    ] {
        let request = Request::builder()
            .method(&method)
            .uri(origin.url("/often"))
            .body(body.into())
            .unwrap();
        let answer = client.send(request).await.unwrap();
        let last = origin.asked().pop().unwrap();
        assert_eq!((&last.method, &last.body[..]), (&method, body.as_bytes()));
        assert_eq!(
            (answer.status().as_u16(), origin.take_count()),
            (503, count),
            "{method}"
        );
    }
}

#[tokio::test]
async fn an_origin_that_is_not_there_is_tried_again_and_then_an_error() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let stage = Stage::new();
    let client = stage
        .build()
        .on_progress(move |progress| {
            if progress.step == ProgressStep::Sent {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        })
        .finish();
    let gone = Origin::start(|_| async { response(200, &[], "") })
        .await
        .url("/");
    let e = client.get(&gone).await.unwrap_err();
    assert_eq!(e.kind(), FetchErrorKind::Upstream);
    assert_eq!(tries.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn only_so_many_requests_are_under_way_to_a_host() {
    let (open, gate) = watch::channel(false);
    let under_way = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let counts = Arc::clone(&under_way);
    let origin = Origin::start(move |_| {
        let (counts, mut gate) = (Arc::clone(&counts), gate.clone());
        async move {
            let now = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
            counts.1.fetch_max(now, Ordering::SeqCst);
            gate.wait_for(|is_open| *is_open).await.unwrap();
            counts.0.fetch_sub(1, Ordering::SeqCst);
            response(200, &[("cache-control", "max-age=60")], "body")
        }
    })
    .await;
    let stage = Stage::new();
    let client = stage.build().per_host(3).finish();
    let tasks: Vec<_> = (0..10)
        .map(|number| {
            let (client, url) = (client.clone(), origin.url(&format!("/{number}")));
            tokio::spawn(async move { text(client.get(&url).await.unwrap()).await })
        })
        .collect();
    while under_way.0.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
    open.send(true).unwrap();
    for task in tasks {
        assert_eq!(task.await.unwrap(), "body");
    }
    assert_eq!(origin.take_count(), 10);
    assert_eq!(under_way.1.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_hook_hears_of_each_request_that_is_sent() {
    let origin = Origin::start(|asked| async move {
        match asked.number {
            0 => response(503, &[], ""),
            _ => response(200, &[("cache-control", "max-age=60")], "four"),
        }
    })
    .await;
    let heard = Arc::<Mutex<Vec<ProgressStep>>>::default();
    let hook = Arc::clone(&heard);
    let url = origin.url("/a");
    let expected_url = url.clone();
    let stage = Stage::new();
    let client = stage
        .build()
        .on_progress(move |progress| {
            assert_eq!(progress.url, expected_url);
            hook.lock().unwrap().push(progress.step);
        })
        .finish();
    for _ in 0..2 {
        assert_eq!(text(client.get(&url).await.unwrap()).await, "four");
        client.idle().await;
    }
    let heard = heard.lock().unwrap();
    assert_eq!(
        heard[..],
        [
            ProgressStep::Sent,
            ProgressStep::Answered {
                status: StatusCode::SERVICE_UNAVAILABLE,
                len: Some(0)
            },
            ProgressStep::Again { tries: 1 },
            ProgressStep::Ended,
            ProgressStep::Sent,
            ProgressStep::Answered {
                status: StatusCode::OK,
                len: Some(4)
            },
            ProgressStep::Received(4),
            ProgressStep::Ended,
        ]
    );
}

/// An origin with TLS, and its certificate.
async fn tls_origin() -> (Origin, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tls = TlsAcceptor::from(Arc::new(config));
    let origin = Origin::listen(Some(tls), |_| async {
        response(200, &[("cache-control", "max-age=60")], "safe")
    })
    .await;
    (origin, made.cert.pem())
}

fn causes(e: &FetchError) -> Vec<String> {
    let mut causes = Vec::new();
    let mut cause: Option<&dyn std::error::Error> = Some(e);
    while let Some(e) = cause {
        causes.push(e.to_string());
        cause = e.source();
    }
    causes
}

#[tokio::test]
async fn an_origin_that_nobody_vouches_for_gets_no_request() {
    let (origin, _) = tls_origin().await;
    let stage = Stage::new();
    let client = stage.build().finish();
    let e = client.get(&origin.url("/a")).await.unwrap_err();
    assert_eq!(e.kind(), FetchErrorKind::Upstream);
    let causes = causes(&e);
    assert!(
        causes.iter().any(|cause| cause.contains("certificate")),
        "{causes:?}"
    );
    assert_eq!(origin.take_count(), 0);
}

#[tokio::test]
async fn certificates_of_a_file_or_a_directory_are_used_in_place_of_those_of_the_system() {
    let (origin, certificate) = tls_origin().await;
    let (_, other) = tls_origin().await;
    let stage = Stage::new();
    let home = stage.home.path();
    let directory = home.join("directory");
    std::fs::create_dir_all(directory.join("nothing")).unwrap();
    for (name, text) in [
        ("both.pem", format!("{other}\n{certificate}")),
        ("empty.pem", "no PEM".to_owned()),
    ] {
        std::fs::write(home.join(name), text).unwrap();
    }
    std::fs::write(home.join("other.pem"), other).unwrap();
    std::fs::write(directory.join("one.pem"), certificate).unwrap();
    std::fs::write(directory.join("README"), "no PEM").unwrap();
    for (roots, said) in [
        ("both.pem", None),
        ("directory", None),
        ("other.pem", Some("certificate".to_owned())),
        (
            "empty.pem",
            Some(format!(
                "the certificates of {}: there is none in PEM; name another file",
                home.join("empty.pem").display()
            )),
        ),
        (
            "none.pem",
            Some(format!(
                "the certificates of {}: ",
                home.join("none.pem").display()
            )),
        ),
    ] {
        let client = stage.build().roots(home.join(roots)).finish();
        // Each has to ask.
        let got = client.get(&origin.url(&format!("/{roots}"))).await;
        match (got, said) {
            (Ok(response), None) => assert_eq!(response.status(), 200),
            (Err(e), Some(said)) => {
                let causes = causes(&e);
                assert!(
                    causes.iter().any(|cause| cause.contains(&said)),
                    "{causes:?}"
                );
            }
            (got, said) => panic!("{roots}: {got:?}, {said:?}"),
        }
    }
    assert_eq!(origin.take_count(), 2);
}

#[tokio::test]
async fn http_2_and_certificates_of_the_system_are_used() {
    let (origin, certificate) = tls_origin().await;
    let plain = Origin::start(|_| async { response(200, &[], "plain") }).await;
    let stage = Stage::new();
    let trusted = stage.home.path().join("trusted.pem");
    std::fs::write(&trusted, certificate).unwrap();
    // What the system trusts is read from a file that the environment names, so it takes a process of its own.
    let status = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "asynchronous::child_that_trusts_a_file",
        ])
        .env("SSL_CERT_FILE", stage.home.path().join("not-yet.pem"))
        .env("BRISK_TEST_TRUSTED", &trusted)
        .env("BRISK_TEST_PLAIN", plain.url("/a"))
        .env("BRISK_TEST_URL", origin.url("/a"))
        .status()
        .await
        .unwrap();
    assert!(status.success());
    let asked = origin.asked();
    assert_eq!((asked.len(), asked[0].version), (1, Version::HTTP_2));
}

#[tokio::test]
#[ignore = "a part of the test above"]
async fn child_that_trusts_a_file() {
    let Ok(url) = std::env::var("BRISK_TEST_URL") else {
        // Called as one of all ignored tests.
        return;
    };
    let named = |name| std::env::var(name).unwrap();
    let stage = Stage::new();
    let client = stage.build().finish();
    // Without TLS, the file is not read: it comes later.
    let plain = client.get(&named("BRISK_TEST_PLAIN")).await.unwrap();
    assert_eq!(text(plain).await, "plain");
    std::fs::copy(named("BRISK_TEST_TRUSTED"), named("SSL_CERT_FILE")).unwrap();
    for _ in 0..2 {
        assert_eq!(text(client.get(&url).await.unwrap()).await, "safe");
        client.idle().await;
    }
}
