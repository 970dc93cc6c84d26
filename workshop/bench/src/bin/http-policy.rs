//! Decides on a stored HTTP policy, in brisk-http and in http-cache-semantics, which first reads its policy back.
//!
//! Both get the response of a package index, with 20 fields, and a request with 6. They must say that it is fresh, or
//! that it is stale. The rounds of all contenders are in a random order. The figure is the median of the rounds' means.

use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brisk_http::{Action, Options, Policy, Request, Response, Times, Timestamp, Variants};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_cache_semantics::{BeforeRequest, CachePolicy};

/// Tue, 14 Nov 2023 22:13:20 GMT
const NOW: u64 = 1_700_000_000;
const ROUNDS: usize = 1_000;
const PER_ROUND: u32 = 2_000;

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

fn main() {
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
    let policy = Policy::of(&request, &response, times, &options).expect("it is storable");
    let ours = Variants::with(None, &policy, &asked, None);

    let mut parts = http::Request::new(());
    *parts.uri_mut() = url.parse().expect("a URL");
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
    let stored = postcard::to_stdvec(&theirs).expect("it serializes");

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
    let contenders: [(&str, &dyn Fn(u64) -> bool); 3] = [
        ("brisk-http, stored", &ours_decides),
        ("http-cache-semantics, stored (postcard)", &theirs_decides),
        ("http-cache-semantics, in memory", &theirs_in_memory),
    ];
    println!("stored bytes: {} and {}", ours.len(), stored.len());
    for (after, expected) in [(300, true), (700, false)] {
        let mut rounds = [const { Vec::<f64>::new() }; 3];
        for _ in 0..ROUNDS {
            let mut order = [0, 1, 2];
            fastrand::shuffle(&mut order);
            for at in order {
                let (name, decide) = contenders[at];
                assert_eq!(decide(after), expected, "{name} after {after} s");
                let started = Instant::now();
                for _ in 0..PER_ROUND {
                    black_box(decide(black_box(after)));
                }
                rounds[at].push(started.elapsed().as_nanos() as f64 / f64::from(PER_ROUND));
            }
        }
        let mut first = None;
        for ((name, _), mut rounds) in contenders.iter().zip(rounds) {
            rounds.sort_by(f64::total_cmp);
            let median = rounds[rounds.len() / 2];
            let ratio = *first.get_or_insert(median) / median;
            let (low, high) = (rounds[rounds.len() / 20], rounds[rounds.len() * 19 / 20]);
            let word = if expected { "fresh" } else { "stale" };
            println!(
                "{word}: {name}: {median:.0} ns (90 % of rounds {low:.0} to {high:.0}), ratio {ratio:.3}"
            );
        }
    }
}
