//! Workers that are killed while they answer. What they answered must be right as far as it came, and the next try mends
//! what it was not.

mod staging;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use staging::upstream::Asked;
use staging::{Answer, Connection, HANG, Lost, Program, Random, Upstream, get};

const CONNECTIONS: usize = 64;
const WORKERS: usize = 4;
const URLS: u64 = 96;

/// The bodies of all URLs. Those with high numbers are too long for memory.
fn bodies() -> Vec<Vec<u8>> {
    let lengths = [
        300, 2_000, 9_000, 40_000, 150_000, 600_000, 1_500_000, 3_000_000,
    ];
    let number_of = |url: u64| usize::try_from(url).unwrap();
    (0..URLS)
        .map(|url| Random::new(url + 1).bytes(lengths[number_of(url % 8)] + number_of(url)))
        .collect()
}

/// What a URL says of how it is kept: some are hits, some are asked for each time, and some are never stored. The last come
/// slowly, so that at any time there is an answer to be cut.
fn answer(bodies: &[Vec<u8>], asked: &Asked) -> Answer {
    let url: u64 = asked.target.trim_start_matches('/').parse().unwrap();
    let body = bodies[usize::try_from(url).unwrap()].clone();
    let tag = format!("\"{url}\"");
    let control = match url / 8 % 4 {
        0 | 1 => "max-age=3600",
        2 => "no-cache",
        _ => "no-store",
    };
    let fields = [("cache-control", control), ("etag", &tag)];
    if asked
        .headers
        .get("if-none-match")
        .is_some_and(|known| known == tag.as_str())
    {
        return Answer::of(304, &fields, "");
    }
    if control != "no-store" {
        return Answer::of(200, &fields, body);
    }
    let length = body.len().to_string();
    let all = [&fields[..], &[("content-length", &length)]].concat();
    let (pieces, answer) = Answer::streamed(200, &all);
    tokio::spawn(async move {
        for piece in body.chunks(body.len().div_ceil(8)) {
            // The worker may have been killed.
            pieces.send(Ok(piece.to_vec().into())).ok();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    answer
}

/// What happened, in numbers.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    /// Connections that were lost with a part of an answer.
    within: AtomicU64,
    /// Connections that were lost before an answer.
    before: AtomicU64,
    hits: AtomicU64,
}

/// Checks an answer.
fn check(url: u64, bodies: &[Vec<u8>], reply: &staging::Reply, counts: &Counts) {
    assert_eq!(reply.status, 200, "/{url}: {reply:?}");
    assert!(
        reply.body == bodies[usize::try_from(url).unwrap()],
        "/{url} has wrong bytes"
    );
    counts.requests.fetch_add(1, Ordering::Relaxed);
    if reply.field("cache-status").starts_with("brisk; hit") {
        counts.hits.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG, "{what} takes too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills workers, until so many were killed within an answer and so much time has gone. Prints figures.
fn kill_workers(wanted: u64, least: Duration) {
    let bodies = Arc::new(bodies());
    let of_upstream = Arc::clone(&bodies);
    let upstream = Upstream::start(move |asked| answer(&of_upstream, asked));
    let home = Arc::new(tempfile::tempdir().unwrap());
    let map = format!("/={}", upstream.url());
    let workers = WORKERS.to_string();
    let args = ["--map", &map, "--workers", &workers];
    let mut proxy = Program::start_with(Arc::clone(&home), &args, &[]);
    let address = proxy.address;
    until("the start of workers", || proxy.children().len() == WORKERS);

    let counts = Counts::default();
    // The threads end with it, also if this thread panics.
    let running = Arc::new(());
    let alive = Arc::downgrade(&running);
    let finished: Vec<AtomicU64> = (0..CONNECTIONS).map(|_| AtomicU64::new(0)).collect();
    let begun = Instant::now();
    let (kills, hitting) = std::thread::scope(|scope| {
        let clients: Vec<_> = finished
            .iter()
            .zip(1..)
            .map(|(finished, seed)| {
                let (counts, alive, bodies) = (&counts, &alive, &bodies);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    let mut connection = Connection::new(address);
                    while alive.strong_count() > 0 {
                        let url = random.below(URLS);
                        let target = format!("/{url}");
                        let reply = match connection.get(&target, &[]) {
                            Ok(reply) => reply,
                            Err(Lost { come }) => {
                                let count = match come {
                                    0 => &counts.before,
                                    _ => &counts.within,
                                };
                                count.fetch_add(1, Ordering::Relaxed);
                                let again = connection.get(&target, &[]);
                                again.unwrap_or_else(|lost| {
                                    panic!("{target} failed twice: {lost:?}")
                                })
                            }
                        };
                        check(url, bodies, &reply, counts);
                        finished.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut random = Random::new(wanted);
        let (mut kills, mut hitting) = (0u64, 0u64);
        while hitting < wanted || begun.elapsed() < least {
            if clients
                .iter()
                .any(std::thread::ScopedJoinHandle::is_finished)
            {
                // It says why when it is joined.
                break;
            }
            let children = proxy.children();
            let within = counts.within.load(Ordering::Relaxed);
            let child = children[usize::try_from(random.below(children.len() as u64)).unwrap()];
            kill_process(child, Signal::KILL).unwrap();
            kills += 1;
            // What this kill has cut is tried again before the next one: a try that fails is then no victim of another. One
            // request of each client may have ended before the kill without being counted yet, so two have to end.
            let seen: Vec<u64> = finished.iter().map(|n| n.load(Ordering::Relaxed)).collect();
            until("a request", || {
                let now = finished.iter().map(|n| n.load(Ordering::Relaxed));
                let all = now.zip(&seen).all(|(now, seen)| now >= *seen + 2);
                all || clients
                    .iter()
                    .any(std::thread::ScopedJoinHandle::is_finished)
            });
            until("a new worker", || {
                let now = proxy.children();
                now.len() == WORKERS && !now.contains(&child)
            });
            if counts.within.load(Ordering::Relaxed) > within {
                hitting += 1;
            }
        }
        drop(running);
        (kills, hitting)
    });
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{}",
        serde_json::json!({
            "connections": CONNECTIONS,
            "workers": WORKERS,
            "seconds": (seconds * 10.0).round() / 10.0,
            "requests": counts.requests,
            "hits": counts.hits,
            "killed": kills,
            "killed_within_an_answer": hitting,
            "lost_within_an_answer": counts.within,
            "lost_before_an_answer": counts.before,
            "failed_twice": 0,
            "wrong": 0,
        })
    );
    assert!(hitting >= wanted);
    let metrics = get(address, "/-/metrics").text();
    let replaced = format!("brisk_proxy_replaced_workers_total {kills}\n");
    assert!(metrics.contains(&replaced), "{metrics}");
    // What all of them left behind is right.
    proxy.terminate();
    assert!(proxy.wait(HANG).success(), "{}", proxy.messages());
    drop(upstream);
    let proxy = Program::start_with(home, &["--map", &map, "--offline"], &[]);
    let mut stored = 0;
    for url in 0..URLS {
        let reply = get(proxy.address, &format!("/{url}"));
        if reply.status != 504 {
            check(url, &bodies, &reply, &Counts::default());
            stored += 1;
        }
    }
    assert!(stored > 0);
}

#[test]
fn requests_outlive_killed_workers() {
    kill_workers(5, Duration::ZERO);
}

#[test]
#[ignore = "60 seconds: make torture runs it"]
fn requests_outlive_fifty_killed_workers() {
    kill_workers(50, Duration::from_secs(60));
}
