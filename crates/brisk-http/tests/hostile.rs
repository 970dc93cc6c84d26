//! Random and hostile fields, clocks and stored bytes: nothing panics, and what must not be used is not used.

use brisk_http::{
    Action, BodyName, Engine, Failure, MemoryStorage, Options, Outcome, Overrides, Policy, Reason,
    Request, Response, Secret, Step, StoredPolicy, Times, Timestamp, Variants, invalidates,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use proptest::prelude::*;

const NAMES: &[&str] = &[
    "age",
    "authorization",
    "cache-control",
    "cdn-cache-control",
    "connection",
    "content-length",
    "content-location",
    "content-range",
    "cookie",
    "date",
    "etag",
    "expires",
    "foo",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "last-modified",
    "location",
    "pragma",
    "range",
    "vary",
    "accept",
    "accept-language",
];

const PIECES: &[&str] = &[
    "max-age",
    "s-maxage",
    "no-store",
    "no-cache",
    "private",
    "public",
    "must-revalidate",
    "must-understand",
    "immutable",
    "stale-while-revalidate",
    "stale-if-error",
    "only-if-cached",
    "max-stale",
    "min-fresh",
    "=",
    "=",
    "=",
    ",",
    ",",
    ", ",
    "\"",
    "\\",
    ";",
    ";q=0.5",
    "*",
    "-",
    "/",
    " ",
    "\t",
    "0",
    "1",
    "60",
    "2147483648",
    "99999999999999999999",
    "bytes",
    "bytes=0-1",
    "bytes 0-1/2",
    "W/\"1\"",
    "\"1\"",
    "foo",
    "cookie",
    "Tue, 14 Nov 2023 22:13:20 GMT",
    "Tuesday, 14-Nov-23 22:13:20 GMT",
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "http://",
    "example.org",
    "..",
    "\u{FC}",
    "\u{FF}",
];

fn value() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::collection::vec(prop::sample::select(PIECES), 0..8).prop_map(|pieces| {
        pieces
            .concat()
            .chars()
            .map(|c| c as u8)
            .collect::<Vec<u8>>()
    });
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![9 => pieces, 1 => bytes]
}

fn fields() -> impl Strategy<Value = HeaderMap> {
    prop::collection::vec((prop::sample::select(NAMES), value()), 0..10).prop_map(|lines| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            if let Ok(value) = HeaderValue::from_bytes(value.trim_ascii()) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        headers
    })
}

fn time() -> impl Strategy<Value = Timestamp> {
    let near = (0u64..200).prop_map(|seconds| 1_700_000_000 + seconds);
    prop_oneof![3 => near, 1 => any::<u64>(), 1 => Just(0)].prop_map(Timestamp::from_unix)
}

fn options() -> impl Strategy<Value = Options> {
    let seconds = || prop::option::of(prop_oneof![Just(0), Just(60), any::<u32>()]);
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.1));
    (flags, seconds(), seconds(), seconds(), seconds()).prop_map(
        |((shared, secret, offline), least, most, negative, stale)| {
            let mut options = if shared {
                Options::shared()
            } else {
                Options::private()
            };
            options.secret = secret.then(|| Secret::new([1; 16]));
            options.offline = offline;
            (options.min_lifetime, options.max_lifetime) = (least, most);
            options.negative_lifetime = negative;
            (options.stale_while_revalidate, options.stale_if_error) = (stale, stale);
            options
        },
    )
}

fn request<'a>(method: &'a Method, headers: &'a HeaderMap) -> Request<'a> {
    Request {
        method,
        url: "https://example.org/a",
        headers,
    }
}

fn has(headers: &HeaderMap, name: &str, text: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .any(|value| value.as_bytes() == text.as_bytes())
}

/// Looks at a stored policy in all ways.
fn look(
    policy: &StoredPolicy<'_>,
    request: &Request<'_>,
    other: &HeaderMap,
    now: Timestamp,
    options: &Options,
) {
    let decision = policy.decide(request, now, options);
    decision.ttl();
    policy.reply(request, now);
    policy.explain(request, now, options);
    policy.covers(request, Failure::Disconnected, now, options);
    policy.headers(true);
    policy.completion();
    let times = Times::at(now);
    // Results are as they may; what counts is that there are some.
    drop(policy.validated(request, other, times, options));
    let response = Response {
        status: StatusCode::OK,
        headers: other,
    };
    drop(policy.updated_by_head(request, &response, times, options));
    drop(policy.completed(request, other, BodyName::of(b"0123456789"), times, options));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn fields_and_clocks_do_no_harm(
        (asked, answered, asked_again, other) in (fields(), fields(), fields(), fields()),
        (sent, came, now) in (time(), time(), time()),
        (status, method) in (100u16..600, prop::sample::select(&[Method::GET, Method::HEAD, Method::POST][..])),
        options in options(),
    ) {
        let status = StatusCode::from_u16(status).unwrap();
        let first = request(&method, &asked);
        let response = Response { status, headers: &answered };
        let times = Times { request: sent, response: came };
        invalidates(&method, "https://example.org/a", status, &answered);
        let Ok(policy) = Policy::of(&first, &response, times, &options) else {
            return Ok(());
        };
        prop_assert!(!has(&asked, "cache-control", "no-store"));
        prop_assert!(!has(&answered, "vary", "*"));
        let later = request(&Method::GET, &asked_again);
        look(&policy.view(), &later, &other, now, &options);
        let decision = policy.view().decide(&later, now, &options);
        if decision.is_use() && !options.offline {
            // What asks for the origin gets there.
            prop_assert!(!has(&asked_again, "cache-control", "no-cache"));
            let stale = decision.age >= decision.lifetime;
            prop_assert_eq!(stale, decision.reason != Reason::Fresh);
            if has(&answered, "cache-control", "no-cache") && !answered.contains_key("cdn-cache-control") {
                prop_assert!(false, "no-cache is used");
            }
        }
        if has(&asked_again, "cache-control", "only-if-cached") {
            prop_assert!(!matches!(decision.action, Action::Forward | Action::Revalidate));
        }
        // The request that was answered selects its response, if it is a GET without conditions.
        if method == Method::GET {
            prop_assert!(policy.view().selects(&asked, options.secret.as_ref()));
        }
    }

    #[test]
    fn damaged_bytes_do_no_harm(
        (asked, answered, asked_again, other) in (fields(), fields(), fields(), fields()),
        now in time(),
        options in options(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let first = request(&Method::GET, &asked);
        let response = Response { status: StatusCode::OK, headers: &answered };
        let Ok(policy) = Policy::of(&first, &response, Times::at(now), &options) else {
            return Ok(());
        };
        let mut bytes = Variants::with(None, &policy, &asked, None);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let later = request(&Method::GET, &asked_again);
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            let Some(variants) = Variants::view(bytes) else {
                continue;
            };
            // A count that is wrong must not make this long: views are bounded by their bytes.
            prop_assert!(variants.len() <= bytes.len());
            variants.select(&asked_again, None);
            for (at, policy) in variants.iter() {
                look(&policy, &later, &other, now, &options);
                variants.invalidated(at);
            }
        }
    }

    #[test]
    fn whole_caches_come_to_an_answer(
        exchanges in prop::collection::vec((fields(), fields(), time(), 200u16..600, any::<bool>()), 1..8),
        options in options(),
    ) {
        let engine = Engine::new(MemoryStorage::default(), options, Overrides::default(), "b");
        for (asked, answered, now, status, reachable) in exchanges {
            let step = engine.begin(&request(&Method::GET, &asked), now).unwrap();
            let mut exchange = match step {
                Step::Answer(answer) => {
                    answer.body().unwrap();
                    continue;
                }
                Step::AnswerAndRevalidate(answer, exchange) => {
                    answer.body().unwrap();
                    exchange
                }
                Step::Ask(exchange) => exchange,
            };
            for round in 0.. {
                // Asking again happens once at most.
                prop_assert!(round < 2);
                if !reachable {
                    engine.failed(exchange, now).body().unwrap();
                    break;
                }
                let validates = exchange.headers.contains_key("if-none-match");
                let status = if validates { 304 } else { status };
                let response = Response {
                    status: StatusCode::from_u16(status).unwrap(),
                    headers: &answered,
                };
                let mut outcome = engine.answered(exchange, &response, Times::at(now)).unwrap();
                if let Outcome::Complete(completion) = outcome {
                    outcome = engine.complete(*completion, b"56789").unwrap();
                }
                match outcome {
                    Outcome::Answer(answer) => {
                        answer.body().unwrap();
                        break;
                    }
                    Outcome::Pass(pass) => {
                        if let Some(keep) = pass.keep {
                            engine.keep(keep, b"01").unwrap();
                        }
                        break;
                    }
                    Outcome::Again(again) => exchange = again,
                    Outcome::Complete(_) => unreachable!("it was completed"),
                }
            }
        }
    }
}

#[test]
fn thousands_of_lines_do_no_harm() {
    let options = {
        let mut options = Options::shared();
        options.secret = Some(Secret::new([1; 16]));
        options
    };
    let many = |name: &'static str, value: &dyn Fn(usize) -> String| {
        let mut headers = HeaderMap::new();
        let name = HeaderName::from_static(name);
        for number in 0..10_000 {
            headers.append(&name, HeaderValue::try_from(value(number)).unwrap());
        }
        headers
    };
    let long = "x,".repeat(50_000);
    let quotes = "\"\\".repeat(50_000);
    let mut all = vec![
        many("cache-control", &|number| format!("max-age={number}")),
        many("cache-control", &|number| format!("no-cache=\"x{number}\"")),
        many("cdn-cache-control", &|number| format!("max-age={number}")),
        many("connection", &|number| format!("x{number}")),
        many("vary", &|number| format!("x{number}")),
        many("age", &|number| number.to_string()),
        many("if-none-match", &|number| format!("\"{number}\"")),
        many("accept", &|number| format!("x/{number};q=0.5")),
    ];
    for name in NAMES {
        for value in [&long, &quotes] {
            let mut headers = HeaderMap::new();
            headers.append(*name, HeaderValue::from_str(value).unwrap());
            all.push(headers);
        }
    }
    // Each of many fields is in the list of those of the connection.
    let mut listed = many("connection", &|number| format!("x{number}"));
    for number in 0..10_000 {
        let name = HeaderName::try_from(format!("x{number}")).unwrap();
        listed.append(name, HeaderValue::from_static("1"));
    }
    all.push(listed);
    let now = Timestamp::from_unix(1_700_000_000);
    for headers in &all {
        let asked = request(&Method::GET, headers);
        let response = Response {
            status: StatusCode::OK,
            headers,
        };
        if let Ok(policy) = Policy::of(&asked, &response, Times::at(now), &options) {
            look(&policy.view(), &asked, headers, now, &options);
        }
    }
}
