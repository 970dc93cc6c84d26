//! The suite's client: it sends the requests of a test through a cache, and checks what comes back.

use std::cell::RefCell;

use brisk_http::{
    Answer, Credentials, Engine, Exchange, Options, Outcome, Overrides, Request, Response, Secret,
    Step, Storage, StoredBytes, Times, Timestamp,
};
use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;

use crate::origin::{Origin, Seen, append, fixed, text_of};
use crate::suite::{Place, Test, Verdict};

/// What the client got.
struct Got {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    interim: Vec<(u16, HeaderMap)>,
}

enum Broken {
    Setup(String),
    Assertion(String),
}

/// A clock that stands still but for pauses and the time that messages take, in milliseconds since 1970.
struct Clock(RefCell<u64>);

impl Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(*self.0.borrow() / 1000)
    }

    fn pass(&self, milliseconds: u64) {
        *self.0.borrow_mut() += milliseconds;
    }
}

/// How long a message takes from one party to the next.
const TRIP: u64 = 1;

/// Runs a test against a cache over a storage. The clock starts so many milliseconds after a second began.
pub fn run<S: Storage>(test: &Test<'_>, place: Place, storage: S, phase: u64) -> Verdict {
    let options = match place {
        Place::Browser => Options::private(),
        // As `brisk proxy` has them.
        Place::Proxy => {
            let mut options = Options::shared();
            options.secret = Some(Secret::new([7; 16]));
            options.credentials = Some(Credentials::Named);
            options
        }
    };
    let engine = Engine::new(storage, options, Overrides::default(), "brisk");
    let uuid = "00000000-0000-4000-8000-000000000000";
    let mut carrier = Carrier {
        engine,
        origin: Origin::new(uuid, test.requests()),
        // Tue, 01 Jul 2025.
        clock: Clock(RefCell::new(1_751_328_000_000 + phase)),
    };
    match carrier.run(test, place, uuid) {
        Ok(()) => Verdict::Passed,
        Err(Broken::Setup(why)) => Verdict::SetupFailed(why),
        Err(Broken::Assertion(why)) => Verdict::Failed(why),
    }
}

struct Carrier<'a, S> {
    engine: Engine<S>,
    origin: Origin<'a>,
    clock: Clock,
}

impl<S: Storage> Carrier<'_, S> {
    fn run(&mut self, test: &Test<'_>, place: Place, uuid: &str) -> Result<(), Broken> {
        let mut responses: Vec<Got> = Vec::new();
        for (at, config) in test.requests().iter().enumerate() {
            let headers = request_headers(test, place, config, at, responses.last());
            let mut path = format!("/test/{uuid}");
            if let Some(name) = config["filename"].as_str() {
                path = format!("{path}/{name}");
            }
            if let Some(query) = config["query_arg"].as_str() {
                path = format!("{path}?{query}");
            }
            let method = config["request_method"].as_str().unwrap_or("GET");
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let got = self.send(&method, &format!("http://origin.example{path}"), &headers);
            check_response(test.requests(), at, &got, uuid)?;
            responses.push(got);
            if config["pause_after"] == Value::Bool(true) {
                self.clock.pass(3000);
            }
        }
        check_server(test.requests(), &responses, &self.origin.seen, place)
    }

    /// Sends a request through the cache. A revalidation behind the answer ends before this returns.
    fn send(&mut self, method: &Method, url: &str, headers: &HeaderMap) -> Got {
        let request = Request {
            method,
            url,
            headers,
        };
        self.clock.pass(TRIP);
        let step = self
            .engine
            .begin(&request, self.clock.now())
            .expect("the storage works");
        let got = match step {
            Step::Answer(answer) => got(&answer, Vec::new()),
            Step::Ask(exchange) => self.exchange(exchange),
            Step::AnswerAndRevalidate(answer, exchange) => {
                let got = got(&answer, Vec::new());
                self.exchange(exchange);
                got
            }
        };
        self.clock.pass(TRIP);
        got
    }

    fn exchange(&mut self, mut exchange: Box<Exchange<S::Value>>) -> Got {
        let mut interim = Vec::new();
        loop {
            let request_time = self.clock.now();
            self.clock.pass(TRIP);
            let path = exchange
                .url
                .strip_prefix("http://origin.example")
                .expect("its URL");
            let now = *self.clock.0.borrow();
            let sent = self
                .origin
                .serve(&exchange.method, path, &exchange.headers, now);
            self.clock.pass(sent.pause * 1000 + TRIP);
            // Whoever carries the bytes passes interim responses on.
            interim.extend(sent.interim);
            let Some((status, headers, body)) = sent.head else {
                return got(&self.engine.failed(exchange, self.clock.now()), interim);
            };
            let response = Response {
                status,
                headers: &headers,
            };
            let times = Times {
                request: request_time,
                response: self.clock.now(),
            };
            let outcome = self.engine.answered(exchange, &response, times);
            let mut outcome = outcome.expect("the storage works");
            if let Outcome::Complete(completion) = outcome {
                outcome = self
                    .engine
                    .complete(*completion, &body)
                    .expect("the storage works");
            }
            match outcome {
                Outcome::Answer(answer) => return got(&answer, interim),
                Outcome::Again(again) => exchange = again,
                Outcome::Pass(pass) => {
                    if let Some(keep) = pass.keep {
                        self.engine.keep(keep, &body).expect("the storage works");
                    }
                    return Got {
                        status: pass.status,
                        headers: pass.headers,
                        body: if pass.has_body { body } else { Vec::new() },
                        interim,
                    };
                }
                Outcome::Complete(_) => unreachable!("it was completed"),
            }
        }
    }
}

fn got<V: StoredBytes>(answer: &Answer<V>, interim: Vec<(u16, HeaderMap)>) -> Got {
    Got {
        status: answer.status,
        headers: answer.headers.clone(),
        body: answer.body().expect("the storage works").to_vec(),
        interim,
    }
}

fn request_headers(
    test: &Test<'_>,
    place: Place,
    config: &Value,
    at: usize,
    previous: Option<&Got>,
) -> HeaderMap {
    let mut headers = HeaderMap::new();
    match place {
        // As the suite's client does, so that its own platform adds nothing.
        Place::Proxy => {
            append(&mut headers, "Pragma", "foo");
            append(&mut headers, "Cache-Control", "nothing-to-see-here");
        }
        // A browser's request for a reload.
        Place::Browser if config["cache"] == *"no-cache" => {
            append(&mut headers, "Cache-Control", "max-age=0");
        }
        Place::Browser => (),
    }
    let previous = previous.and_then(|got| text_of(&got.headers, "server-now"));
    let now: u64 = previous
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    for header in config["request_headers"].as_array().into_iter().flatten() {
        let name = header[0].as_str().expect("a field has a name");
        append(&mut headers, name, &fixed(header, now, "", config));
    }
    append(&mut headers, "Test-ID", test.id());
    append(&mut headers, "Req-Num", &(at + 1).to_string());
    headers
}

fn is_setup(config: &Value, check: &str) -> bool {
    let checks = config["setup_tests"].as_array().into_iter().flatten();
    config["setup"] == Value::Bool(true) || checks.into_iter().any(|found| *found == *check)
}

fn assert(setup: bool, holds: bool, message: impl FnOnce() -> String) -> Result<(), Broken> {
    match (holds, setup) {
        (true, _) => Ok(()),
        (false, true) => Err(Broken::Setup(message())),
        (false, false) => Err(Broken::Assertion(message())),
    }
}

fn check_response(requests: &[Value], at: usize, got: &Got, uuid: &str) -> Result<(), Broken> {
    let (config, number) = (&requests[at], at + 1);
    let text = |name: &str| text_of(&got.headers, name);
    if let Some(numbers) = text("request-numbers") {
        let mut numbers: Vec<&str> = numbers.split(' ').collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert(true, numbers.len() == all, || "retry".to_owned())?;
    }
    let count: Option<usize> = text("server-request-count").and_then(|text| text.parse().ok());
    let type_setup = is_setup(config, "expected_type");
    match config["expected_type"].as_str() {
        Some("cached") if got.status != StatusCode::NOT_MODIFIED || count.is_some() => {
            assert(
                type_setup,
                count.is_some_and(|count| count < number),
                || format!("Response {number} does not come from cache"),
            )?;
        }
        Some("not_cached") => assert(type_setup, count == Some(number), || {
            format!("Response {number} comes from cache")
        })?,
        _ => (),
    }
    let status = got.status.as_u16();
    match (
        &config["expected_status"],
        config["response_status"][0].as_u64(),
    ) {
        (Value::Number(expected), _) => {
            let holds = expected.as_u64() == Some(status.into());
            assert(is_setup(config, "expected_status"), holds, || {
                format!("Response {number} status is {status}, not {expected}")
            })?;
        }
        (_, _) if config.get("expected_status").is_some() => (),
        (_, Some(expected)) => assert(true, expected == u64::from(status), || {
            format!("Response {number} status is {status}, not {expected}")
        })?,
        (_, None) if status == 999 => assert(type_setup, false, || {
            format!("Request {number} should have been conditional, but it was not.")
        })?,
        (_, None) => assert(true, status == 200, || {
            format!("Response {number} status is {status}, not 200")
        })?,
    }
    check_headers(config, number, got)?;
    check_interim(config, &got.interim)?;
    check_body(config, got, number, uuid)
}

fn check_headers(config: &Value, number: usize, got: &Got) -> Result<(), Broken> {
    let text = |name: &str| text_of(&got.headers, name);
    let setup = is_setup(config, "expected_response_headers");
    for header in config["expected_response_headers"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let name = header
            .as_str()
            .or(header[0].as_str())
            .expect("a field has a name");
        let value = text(name);
        if header.is_string() {
            assert(setup, value.is_some(), || {
                format!("Response {number} {name} header not present.")
            })?;
            continue;
        }
        let (holds, wanted) = match (header[1].as_str(), &header[2]) {
            (Some("="), other) => {
                let other = text(other.as_str().expect("a name"));
                (value.is_some() && value == other, format!("{other:?}"))
            }
            (Some(">"), least) => {
                let found: Option<i64> = value.as_ref().and_then(|value| value.parse().ok());
                (found > least.as_i64(), format!("> {least}"))
            }
            _ => {
                let now = text("server-now")
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0);
                let base = text("server-base-url").unwrap_or_default();
                let wanted = fixed(header, now, &base, config);
                (value.as_ref() == Some(&wanted), wanted)
            }
        };
        assert(setup, holds, || {
            format!("Response {number} header {name} is {value:?}, not {wanted}")
        })?;
    }
    let setup = is_setup(config, "expected_response_headers_missing");
    for header in config["expected_response_headers_missing"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let name = header
            .as_str()
            .or(header[0].as_str())
            .expect("a field has a name");
        // The suite means to look for the value, but never does.
        let holds = match header[1].as_str() {
            Some(value) => !text(name).is_some_and(|found| found.contains(value)),
            None => text(name).is_none(),
        };
        assert(setup, holds, || {
            format!(
                "Response {number} includes unexpected header {name}: {:?}",
                text(name)
            )
        })?;
    }
    Ok(())
}

fn check_interim(config: &Value, interim: &[(u16, HeaderMap)]) -> Result<(), Broken> {
    let Some(expected) = config["expected_interim_responses"].as_array() else {
        return Ok(());
    };
    let setup = is_setup(config, "expected_interim_responses");
    assert(setup, interim.len() == expected.len(), || {
        format!(
            "Received {} interim responses, expected {}",
            interim.len(),
            expected.len()
        )
    })?;
    for ((status, headers), expected) in interim.iter().zip(expected) {
        assert(setup, expected[0] == *status, || {
            format!("Interim response status is {status}")
        })?;
        for header in expected[1].as_array().into_iter().flatten() {
            let (name, value) = (header[0].as_str().expect("a name"), &header[1]);
            let found = text_of(headers, name);
            assert(setup, found.as_deref() == value.as_str(), || {
                format!("Interim response header {name} is {found:?}")
            })?;
        }
    }
    Ok(())
}

fn check_body(config: &Value, got: &Got, number: usize, uuid: &str) -> Result<(), Broken> {
    let body = String::from_utf8_lossy(&got.body);
    let differs = |wanted: &str| format!("Response {number} body is {body:?}, not {wanted:?}");
    if config["check_body"] == Value::Bool(false) {
        return Ok(());
    }
    if let Some(expected) = config.get("expected_response_text") {
        let Some(expected) = expected.as_str() else {
            return Ok(());
        };
        let setup = is_setup(config, "expected_response_text");
        return assert(setup, body == expected, || differs(expected));
    }
    if let Some(expected) = config["response_body"].as_str() {
        return assert(true, body == expected, || differs(expected));
    }
    let has_body = !matches!(got.status.as_u16(), 204 | 304);
    if has_body && config["request_method"] != *"HEAD" {
        return assert(true, body == uuid, || differs(uuid));
    }
    Ok(())
}

fn check_server(
    requests: &[Value],
    responses: &[Got],
    seen: &[Seen],
    place: Place,
) -> Result<(), Broken> {
    let mut next = 0;
    for (at, (config, got)) in requests.iter().zip(responses).enumerate() {
        let number = at + 1;
        let expected_type = config["expected_type"].as_str();
        if expected_type == Some("cached") {
            continue;
        }
        let seen = seen.get(next);
        next += 1;
        let type_setup = is_setup(config, "expected_type");
        if expected_type == Some("not_cached") {
            let found = seen.and_then(|seen| seen.number);
            assert(type_setup, found == Some(number as u64), || {
                format!("Response {number} comes from cache ({found:?} on server)")
            })?;
        }
        let condition = match expected_type {
            Some("etag_validated") => Some("if-none-match"),
            Some("lm_validated") => Some("if-modified-since"),
            _ => None,
        };
        let has = |name: &str| seen.is_some_and(|seen| seen.headers.contains_key(name));
        if let Some(name) = condition {
            assert(type_setup, has(name), || {
                format!("request {number} doesn't have {name} header")
            })?;
        }
        let lists = [
            ("expected_request_headers", true),
            ("expected_request_headers_missing", false),
        ];
        for (member, wanted) in lists {
            let setup = is_setup(config, member);
            for header in config[member].as_array().into_iter().flatten() {
                let name = header.as_str().or(header[0].as_str()).expect("a name");
                let found = seen.and_then(|seen| text_of(&seen.headers, name));
                let holds = match header[1].as_str() {
                    Some(value) => (found.as_deref() == Some(value)) == wanted,
                    None => found.is_some() == wanted,
                };
                assert(setup, holds, || {
                    format!("Request {number} header {name} is {found:?}")
                })?;
            }
        }
        let sent = seen
            .map(|seen| seen.response_headers.as_slice())
            .unwrap_or_default();
        for (name, values) in sent {
            // A browser shows no cookies.
            let hidden = place == Place::Browser && name.to_lowercase().starts_with("set-cookie");
            if hidden || name.eq_ignore_ascii_case("date") {
                continue;
            }
            let received = text_of(&got.headers, name);
            assert(true, received.as_ref() == Some(&values.join(", ")), || {
                format!("Response {number} header {name} is {received:?}, not {values:?}")
            })?;
        }
        if let Some(method) = config["expected_method"].as_str() {
            let found = seen.map(|seen| seen.method.as_str());
            assert(
                is_setup(config, "expected_method"),
                found == Some(method),
                || format!("Request {number} had method {found:?}, not {method}"),
            )?;
        }
    }
    Ok(())
}
