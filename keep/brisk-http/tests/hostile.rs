//! Random and hostile fields, clocks and stored bytes: nothing panics, and what must not be used is not used.

#[path = "support/hostile.rs"]
mod support;

use brisk_http::{
    Engine, MemoryStorage, Options, Outcome, Overrides, Policy, Request, Response, Secret, Step,
    Times, Timestamp, Variants,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use proptest::prelude::*;
use support::{Exchange, NAMES, PIECES, URL, look, look_at_stored};

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
    prop::collection::vec((prop::sample::select(NAMES), value()), 0..10)
        .prop_map(|lines| support::fields(lines.iter().map(|(name, value)| (*name, &value[..]))))
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
        url: URL,
        headers,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn fields_and_clocks_do_no_harm(
        (asked, answered, asked_again, newer) in (fields(), fields(), fields(), fields()),
        (sent, came, now) in (time(), time(), time()),
        (status, method) in (100u16..600, prop::sample::select(&[Method::GET, Method::HEAD, Method::POST][..])),
        options in options(),
    ) {
        let exchange = Exchange {
            method,
            asked,
            status: StatusCode::from_u16(status).unwrap(),
            answered,
            times: Times { request: sent, response: came },
            asked_again,
            newer,
            now,
            options,
        };
        exchange.exercise();
    }

    #[test]
    fn damaged_bytes_do_no_harm(
        (asked, answered, asked_again, newer) in (fields(), fields(), fields(), fields()),
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
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            look_at_stored(bytes, &asked_again, &newer, now, &options);
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
