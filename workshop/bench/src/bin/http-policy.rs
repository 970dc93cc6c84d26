//! Decides on a stored HTTP policy, in brisk-http and in http-cache-semantics, which first reads its policy back.
//!
//! Both get the response of a package index, with 20 fields, and a request with 6. They must say that it is fresh, or
//! that it is stale. A run is the mean of many decisions.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use brisk_bench::{Options as BenchOptions, Timed};
use brisk_http::{Action, Options, Policy, Request, Response, Times, Timestamp, Variants};
use clap::Parser;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_cache_semantics::{BeforeRequest, CachePolicy};

/// Tue, 14 Nov 2023 22:13:20 GMT
const NOW: u64 = 1_700_000_000;
/// Decisions of a run.
const PER_RUN: u32 = 20_000;

/// Measure the decision on a stored HTTP policy.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: BenchOptions,
}

const REQUEST: &[(&str, &str)] = &[
    (
        "accept",
        "application/vnd.pypi.simple.v1+json, text/html;q=0.01",
    ),
    ("accept-encoding", "gzip, br"),
    ("cache-control", "max-age=600"),
    ("host", "index.example"),
    ("user-agent", "client/1.0"),
    ("x-request", "1"),
];

const RESPONSE: &[(&str, &str)] = &[
    ("accept-ranges", "bytes"),
    ("cache-control", "max-age=600, public"),
    ("content-encoding", "gzip"),
    ("content-length", "104000"),
    (
        "content-security-policy",
        "default-src 'none'; sandbox allow-top-navigation",
    ),
    ("content-type", "application/vnd.pypi.simple.v1+json"),
    ("date", "Tue, 14 Nov 2023 22:13:20 GMT"),
    ("etag", "\"Yt+5CDuwR2n0lVh5dGq2Rw\""),
    ("last-modified", "Tue, 14 Nov 2023 21:13:20 GMT"),
    ("referrer-policy", "origin-when-cross-origin"),
    ("server", "nginx/1.13.9"),
    (
        "strict-transport-security",
        "max-age=31536000; includeSubDomains; preload",
    ),
    ("vary", "Accept, Accept-Encoding"),
    ("x-cache", "HIT, HIT"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "deny"),
    ("x-permitted-cross-domain-policies", "none"),
    ("x-pypi-last-serial", "20000000"),
    ("x-served-by", "cache-1, cache-2"),
    ("x-xss-protection", "1; mode=block"),
];

fn headers(fields: &'static [(&str, &str)]) -> HeaderMap {
    let fields = fields.iter();
    fields
        .map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        })
        .collect()
}

fn main() -> ExitCode {
    brisk_bench::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let (asked, answered) = (headers(REQUEST), headers(RESPONSE));
    let url = "https://index.example/simple/package/";
    let request = Request {
        method: &Method::GET,
        url,
        headers: &asked,
    };
    let response = Response {
        status: StatusCode::OK,
        headers: &answered,
    };
    let options = Options::private();
    let times = Times::at(Timestamp::from_unix(NOW));
    let policy =
        Policy::of(&request, &response, times, &options).context("the response is not storable")?;
    let ours = Variants::with(None, &policy, &asked, None);

    let mut parts = http::Request::new(());
    *parts.uri_mut() = url.parse()?;
    *parts.headers_mut() = asked.clone();
    let (parts, ()) = parts.into_parts();
    let mut their_response = http::Response::new(());
    *their_response.headers_mut() = answered.clone();
    let their_options = http_cache_semantics::CacheOptions {
        shared: false,
        ..http_cache_semantics::CacheOptions::default()
    };
    let came = UNIX_EPOCH + Duration::from_secs(NOW);
    let theirs = CachePolicy::new_options(&parts, &their_response, came, their_options);
    let stored = postcard::to_stdvec(&theirs)?;

    let ours_decides = |after: u64| {
        let variants = Variants::view(&ours).expect("it was stored");
        let (_, policy) = variants.select(&asked, None).expect("the request matches");
        policy
            .decide_selected(&request, Timestamp::from_unix(NOW + after), &options)
            .action
            == Action::Use
    };
    let fresh = |policy: &CachePolicy, after: u64| {
        let now: SystemTime = came + Duration::from_secs(after);
        matches!(policy.before_request(&parts, now), BeforeRequest::Fresh(_))
    };
    let theirs_decides = |after: u64| {
        let policy: CachePolicy = postcard::from_bytes(&stored).expect("it deserializes");
        fresh(&policy, after)
    };
    let theirs_in_memory = |after: u64| fresh(&theirs, after);
    let work = args.options.work()?;
    let about = serde_json::json!({ "bytes": { "ours": ours.len(), "theirs": stored.len() } });
    let processors = brisk_bench::give_processors(None)?;
    let mut bench = args.options.bench(work.path(), processors, about)?;
    for (after, is_fresh, subject) in [(300, true, "fresh"), (700, false, "stale")] {
        let peer = timed("http-cache-semantics", &theirs_decides, after, is_fresh);
        let contenders = vec![
            (
                timed("brisk-http", &ours_decides, after, is_fresh),
                Some(0.1),
            ),
            (
                timed(
                    "http-cache-semantics, not stored",
                    &theirs_in_memory,
                    after,
                    is_fresh,
                ),
                None,
            ),
        ];
        bench.compare("decision", subject, "-", peer, contenders)?;
    }
    println!("{}", bench.table());
    Ok(())
}

/// The mean time of a decision, so many seconds after the response came.
fn timed<'a>(
    name: &'static str,
    decide: &'a dyn Fn(u64) -> bool,
    after: u64,
    is_fresh: bool,
) -> Timed<'a> {
    let work = move || {
        ensure!(decide(after) == is_fresh, "wrong after {after} s");
        let started = Instant::now();
        for _ in 0..PER_RUN {
            black_box(decide(black_box(after)));
        }
        Ok(started.elapsed() / PER_RUN)
    };
    Timed {
        name,
        work: Box::new(work),
    }
}
