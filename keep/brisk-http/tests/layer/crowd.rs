//! Many clients on several threads, who come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brisk_cache::{CacheOptions, CacheStat};
use brisk_http::{CacheBody, FetchErrorKind, Options, Timestamp};
use http::{Method, Response};
use http_body_util::BodyExt;
use tokio::task::{JoinSet, yield_now};
use tower::Service;

use crate::origin::Asked;
use crate::setup::{Setup, all, home, open, request, small, soon};

const CLIENTS: u64 = 8;
const REQUESTS: u64 = 250;

/// The body of the response of a number.
fn body(number: u64) -> Vec<u8> {
    let len = [10, 5_000, 150_000][number as usize % 3] + number as usize % 1000;
    vec![number as u8; len]
}

/// Answers a request as its number says: with responses of all kinds, some of which break off.
async fn answer(asked: Asked, number: u64) {
    let held = asked.field("if-none-match").map(str::to_owned);
    if let Some(tag) = held.filter(|_| number.is_multiple_of(4)) {
        return asked.answer(304, &[&format!("ETag: {tag}")], "");
    }
    if number % 13 == 5 {
        return asked.fail();
    }
    let control = [
        "max-age=2",
        "no-store",
        "max-age=1, stale-while-revalidate=5",
        "max-age=0",
        "max-age=1, stale-if-error=9",
    ][number as usize % 5];
    let body = body(number);
    let mut lines = vec![
        format!("Cache-Control: {control}"),
        format!("ETag: \"{number}\""),
        format!("X-Number: {number}"),
    ];
    if number.is_multiple_of(2) {
        lines.push(format!("Content-Length: {}", body.len()));
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let pipe = asked.begin(200, &lines);
    for (at, piece) in body.chunks(4_000).enumerate() {
        if number % 11 == 7 && at > 0 {
            return pipe.fail();
        }
        pipe.send(piece.to_vec());
        yield_now().await;
    }
}

/// Reads a body, or a part of it, which must be of the response that its head names.
async fn check(mut response: Response<CacheBody>, leaves: bool) {
    let number = response.headers()["x-number"].to_str().unwrap();
    let expected = body(number.parse().unwrap());
    if leaves {
        if let Some(Ok(frame)) = response.body_mut().frame().await {
            assert!(expected.starts_with(&frame.into_data().unwrap()));
        }
        return;
    }
    let (bytes, error) = all(&mut response).await;
    match error {
        None => assert!(bytes == expected),
        Some(error) => {
            assert!(expected.starts_with(&bytes));
            assert_eq!(error.kind(), FetchErrorKind::Upstream);
        }
    }
}

/// Clients that ask for so many URLs by one cache. What is in it then.
async fn crowd(urls: u64, options: CacheOptions) -> CacheStat {
    let home = home();
    let cache = open(home.path(), options);
    let clock = Arc::new(AtomicU64::new(1_700_000_000));
    let seconds = Arc::clone(&clock);
    let setup = Setup::over(home, cache, Options::private(), |builder| {
        let now = move || Timestamp::from_unix(seconds.load(Ordering::Relaxed));
        builder.memory(100_000).finish_below(20_000).clock(now)
    });
    let Setup {
        layer,
        service,
        mut origin,
        home: _home,
        ..
    } = setup;
    let answering = tokio::spawn(async move {
        for number in 0.. {
            tokio::spawn(answer(origin.next().await, number));
        }
    });
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (mut service, clock) = (service.clone(), Arc::clone(&clock));
        clients.spawn(async move {
            for round in 0..REQUESTS {
                let what = client * 31 + round * 17;
                let url = format!("http://example.org/{}", what % urls);
                let lines: &[&str] = match what % 7 {
                    0 => &["Cache-Control: no-cache"],
                    1 => &["Cache-Control: max-stale"],
                    _ => &[],
                };
                let answer = service.call(request(&url, Method::GET, lines));
                let answer = match what % 10 {
                    // It leaves before the head, or perhaps not.
                    0 => tokio::select! {
                        answer = answer => answer,
                        () = yield_now() => continue,
                    },
                    _ => soon(answer).await,
                };
                match answer {
                    Ok(response) => check(response, what % 10 == 1).await,
                    Err(error) => assert_eq!(error.kind(), FetchErrorKind::Upstream),
                }
                if round.is_multiple_of(20) {
                    clock.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    soon(clients.join_all()).await;
    soon(layer.idle()).await;
    answering.abort();
    let counts = layer.counts();
    assert!(counts.hits > 0 && counts.stored > 0, "{counts:?}");
    assert_eq!((counts.unstored, counts.troubles), (0, 0), "{counts:?}");
    layer.cache().stat().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_answer_is_half_of_one_and_half_of_another() {
    let stat = crowd(3, small()).await;
    assert_eq!(stat.counts.evicted, 0);
    // Each URL has its policies and at most one body, whoever stored last.
    assert!(stat.entries <= 6, "{stat:?}");
}

/// The oldest files go all the time: a policy without its body, a body without its policy, and either while it is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_answer_is_half_of_one_and_half_of_another_while_files_are_evicted() {
    let options = CacheOptions::new().limit(3 << 19).segment_len(1 << 18);
    let stat = crowd(60, options).await;
    assert!(stat.counts.evicted > 0, "{stat:?}");
}
