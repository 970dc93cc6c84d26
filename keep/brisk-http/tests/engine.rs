//! A cache as a whole: what it sends, answers and stores.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use brisk_cache::{Cache, CacheOptions};
use brisk_http::{
    BodyName, Credentials, Engine, Exchange, Kept, MOST_VARIANTS, MemoryStorage, Options, Outcome,
    Overrides, Refusal, Request, Response, Secret, Step, Storage, StoredBytes, Times, Timestamp,
    Variants,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

const NOW: Timestamp = Timestamp::from_unix(1_700_000_000);
const URL: &str = "https://example.org/a";

fn headers(lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").expect("a field");
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    headers
}

/// A storage that counts what is written.
#[derive(Default)]
struct Counting {
    inner: MemoryStorage,
    written: RefCell<Vec<String>>,
}

impl Counting {
    fn note(&self, what: String) {
        self.written.borrow_mut().push(what);
    }

    fn take(&self) -> Vec<String> {
        self.written.take()
    }
}

impl Storage for Counting {
    type Value = Arc<[u8]>;

    fn policies(&self, key: &str) -> io::Result<Option<Arc<[u8]>>> {
        self.inner.policies(key)
    }

    fn put_policies(&self, key: &str, variants: &[u8]) -> io::Result<()> {
        self.note("policies".to_owned());
        self.inner.put_policies(key, variants)
    }

    fn replace_policies(
        &self,
        key: &str,
        before: Option<&Arc<[u8]>>,
        variants: &[u8],
    ) -> io::Result<bool> {
        self.note("policies".to_owned());
        self.inner.replace_policies(key, before, variants)
    }

    fn remove_policies(&self, key: &str) -> io::Result<()> {
        self.note(format!("remove {key}"));
        self.inner.remove_policies(key)
    }

    fn body(&self, key: &str, name: &BodyName) -> io::Result<Option<Arc<[u8]>>> {
        self.inner.body(key, name)
    }

    fn put_body(&self, key: &str, name: &BodyName, body: &[u8]) -> io::Result<()> {
        self.note(format!("body of {} bytes", body.len()));
        self.inner.put_body(key, name, body)
    }

    fn remove_body(&self, key: &str, name: &BodyName) -> io::Result<()> {
        self.note(format!("remove body of {} bytes", name.len()));
        self.inner.remove_body(key, name)
    }
}

/// What the client gets: the status, the fields and the body.
struct Got {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Got {
    fn text(&self) -> (u16, &str) {
        (self.status, std::str::from_utf8(&self.body).unwrap())
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// An origin: what it answers to the fields that it is sent. None: it cannot be reached.
type Answers<'a> = &'a dyn Fn(&HeaderMap) -> Option<(u16, HeaderMap, &'a [u8])>;

fn step<S: Storage>(
    engine: &Engine<S>,
    method: &Method,
    request: &HeaderMap,
    after: u64,
) -> Step<S::Value> {
    let request = Request {
        method,
        url: URL,
        headers: request,
    };
    engine.begin(&request, NOW.plus(after)).unwrap()
}

fn finish<S: Storage>(
    engine: &Engine<S>,
    mut exchange: Box<Exchange<S::Value>>,
    after: u64,
    origin: Answers<'_>,
) -> Got {
    let now = NOW.plus(after);
    loop {
        let Some((status, headers, body)) = origin(&exchange.headers) else {
            return got(&engine.failed(exchange, now));
        };
        let response = Response {
            status: StatusCode::from_u16(status).unwrap(),
            headers: &headers,
        };
        let mut outcome = engine
            .answered(exchange, &response, Times::at(now))
            .unwrap();
        if let Outcome::Complete(completion) = outcome {
            outcome = engine.complete(*completion, body).unwrap();
        }
        match outcome {
            Outcome::Answer(answer) => return got(&answer),
            Outcome::Again(again) => exchange = again,
            Outcome::Pass(pass) => {
                if let Some(keep) = pass.keep {
                    engine.keep(keep, body).unwrap();
                }
                let body = if pass.has_body { body } else { b"" };
                return Got {
                    status: pass.status.as_u16(),
                    headers: pass.headers,
                    body: body.to_vec(),
                };
            }
            Outcome::Complete(_) => unreachable!("it was completed"),
        }
    }
}

fn got<V: StoredBytes>(answer: &brisk_http::Answer<V>) -> Got {
    Got {
        status: answer.status.as_u16(),
        headers: answer.headers.clone(),
        body: answer.body().unwrap().to_vec(),
    }
}

fn send<S: Storage>(engine: &Engine<S>, lines: &[&str], after: u64, origin: Answers<'_>) -> Got {
    let request = headers(lines);
    match step(engine, &Method::GET, &request, after) {
        Step::Answer(answer) => got(&answer),
        Step::Ask(exchange) => finish(engine, exchange, after, origin),
        Step::AnswerAndRevalidate(answer, exchange) => {
            let got = got(&answer);
            finish(engine, exchange, after, origin);
            got
        }
    }
}

fn engine(options: Options) -> Engine<Counting> {
    Engine::new(Counting::default(), options, Overrides::default(), "brisk")
}

fn nobody(_: &HeaderMap) -> Option<(u16, HeaderMap, &'static [u8])> {
    panic!("the origin is asked")
}

fn unreachable_origin(_: &HeaderMap) -> Option<(u16, HeaderMap, &'static [u8])> {
    None
}

#[test]
fn every_answer_says_what_happened() {
    // RFC 9211.
    let engine = engine(Options::shared());
    let origin = |_: &HeaderMap| {
        let fields = [
            "Cache-Control: max-age=60",
            "ETag: \"1\"",
            "Cache-Status: upstream; hit",
        ];
        Some((200, headers(&fields), b"a page".as_slice()))
    };
    let status = |got: &Got| {
        let lines = got.headers.get_all("cache-status").into_iter();
        lines
            .map(|line| line.to_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let first = send(&engine, &[], 0, &origin);
    let miss = "brisk; fwd=uri-miss; fwd-status=200; ttl=60; stored";
    assert_eq!(status(&first), ["upstream; hit", miss]);
    assert_eq!(first.field("age"), None);
    let hit = send(&engine, &[], 20, &nobody);
    assert_eq!(status(&hit), ["upstream; hit", "brisk; hit; ttl=40"]);
    assert_eq!(
        (hit.text(), hit.field("age")),
        ((200, "a page"), Some("20"))
    );
    let not_modified = |headers: &HeaderMap| {
        assert_eq!(headers.get("if-none-match").unwrap(), "\"1\"");
        Some((
            304,
            self::headers(&["ETag: \"1\"", "Cache-Control: max-age=30"]),
            b"".as_slice(),
        ))
    };
    let validated = send(&engine, &[], 70, &not_modified);
    assert_eq!(
        status(&validated),
        [
            "upstream; hit",
            "brisk; fwd=stale; fwd-status=304; ttl=30; stored"
        ]
    );
    assert_eq!(validated.text(), (200, "a page"));
    let down = send(&engine, &[], 200, &unreachable_origin);
    assert_eq!(
        status(&down),
        [
            "upstream; hit",
            "brisk; fwd=stale; ttl=-100; detail=stale-if-error"
        ]
    );
    assert_eq!(down.text(), (200, "a page"));
    let alone = send(&engine, &["Cache-Control: only-if-cached"], 200, &nobody);
    assert_eq!(
        (alone.status, status(&alone)),
        (504, vec!["brisk; fwd=stale".to_owned()])
    );
}

#[test]
fn a_304_writes_a_policy_and_no_body() {
    let engine = engine(Options::private());
    let body = vec![b'x'; 1 << 20];
    let page = |_: &HeaderMap| {
        Some((
            200,
            headers(&["Cache-Control: max-age=1", "ETag: \"1\""]),
            &body[..],
        ))
    };
    send(&engine, &[], 0, &page);
    assert_eq!(
        engine.storage().take(),
        ["body of 1048576 bytes", "policies"]
    );
    let not_modified = |_: &HeaderMap| Some((304, headers(&["ETag: \"1\""]), b"".as_slice()));
    let got = send(&engine, &[], 2, &not_modified);
    assert_eq!((got.status, got.body.len()), (200, 1 << 20));
    assert_eq!(engine.storage().take(), ["policies"]);
    // A 200 with the body that is stored already.
    send(&engine, &[], 4, &page);
    assert_eq!(engine.storage().take(), ["policies"]);
    // Another body takes its place.
    let other = |_: &HeaderMap| {
        Some((
            200,
            headers(&["Cache-Control: max-age=1"]),
            b"other".as_slice(),
        ))
    };
    send(&engine, &[], 6, &other);
    let written = [
        "body of 5 bytes",
        "policies",
        "remove body of 1048576 bytes",
    ];
    assert_eq!(engine.storage().take(), written);
}

#[test]
fn an_update_that_names_fewer_fields_in_vary_does_not_widen_the_key() {
    for updating in [(Method::GET, 304), (Method::HEAD, 200)] {
        let engine = engine(Options::shared());
        let page = |_: &HeaderMap| {
            let fields = [
                "Cache-Control: max-age=1",
                "ETag: \"1\"",
                "Vary: Accept-Encoding, Accept",
            ];
            Some((200, headers(&fields), b"short".as_slice()))
        };
        send(&engine, &["Accept: a/short"], 0, &page);
        let update = |_: &HeaderMap| {
            let fields = [
                "Cache-Control: max-age=60",
                "ETag: \"1\"",
                "Vary: Accept-Encoding, Foo",
            ];
            Some((updating.1, headers(&fields), b"".as_slice()))
        };
        let asked = headers(&["Accept: a/short", "Foo: 1"]);
        let Step::Ask(exchange) = step(&engine, &updating.0, &asked, 5) else {
            panic!("it is fresh");
        };
        let updated = finish(&engine, exchange, 5, &update);
        assert_eq!(updated.field("vary"), Some("Accept-Encoding, Foo"));
        let again = send(&engine, &["Accept: a/short", "Foo: 1"], 6, &nobody);
        assert_eq!(again.text(), (200, "short"));
        // A 304 that names no field at all takes none away, either.
        let without = |_: &HeaderMap| Some((304, headers(&["ETag: \"1\""]), b"".as_slice()));
        send(
            &engine,
            &["Accept: a/short", "Foo: 1", "Cache-Control: no-cache"],
            7,
            &without,
        );
        let other = |_: &HeaderMap| Some((200, headers(&[]), b"full".as_slice()));
        for fields in [["Accept: a/full", "Foo: 1"], ["Accept: a/short", "Foo: 2"]] {
            let got = send(&engine, &fields, 8, &other);
            assert_eq!(got.text(), (200, "full"), "{updating:?} {fields:?}");
        }
    }
}

/// A shared cache that keeps what credentials bring for them alone.
fn apart() -> Options {
    let mut options = Options::shared();
    options.secret = Some(Secret::new([7; 16]));
    options.credentials = Some(Credentials::Unknown);
    options
}

/// Answers with all fields of the request that may be credentials.
fn mirror(sent: &HeaderMap, control: &str) -> Option<(u16, HeaderMap, &'static [u8])> {
    let own = ["authorization", "cookie", "private-token", "x-mine"];
    let text: String = own
        .iter()
        .filter_map(|name| sent.get(*name)?.to_str().ok())
        .collect();
    let fields = [control, "ETag: \"1\"", "Set-Cookie: a=b"];
    Some((200, headers(&fields), text.leak().as_bytes()))
}

#[test]
fn what_credentials_brought_is_for_them_alone() {
    for field in ["Authorization", "Cookie", "PRIVATE-TOKEN", "X-Mine"] {
        let engine = engine(apart());
        let (ann, bob) = (format!("{field}: ann-hush"), format!("{field}: bob-hush"));
        let origin = |sent: &HeaderMap| mirror(sent, "Cache-Control: max-age=60");
        for (lines, own) in [
            (&[ann.as_str()][..], "ann-hush"),
            (&[bob.as_str()], "bob-hush"),
            (&[], ""),
        ] {
            assert_eq!(send(&engine, lines, 0, &origin).text(), (200, own));
        }
        // Nobody's answer is the most recent one. It is for all.
        let engine = self::engine(apart());
        send(&engine, &[], 0, &origin);
        send(&engine, &[&ann], 30, &nobody);
        let engine = self::engine(apart());
        send(&engine, &[&ann], 0, &origin);
        assert_eq!(send(&engine, &[&ann], 1, &nobody).text(), (200, "ann-hush"));
        let stored = engine.storage().inner.policies(URL).unwrap().unwrap();
        let text = String::from_utf8_lossy(&stored).into_owned();
        assert!(!text.contains("hush"), "{text}");
    }
    // Clients send these as they like.
    let engine = engine(apart());
    let origin = |sent: &HeaderMap| mirror(sent, "Cache-Control: max-age=60");
    send(&engine, &["User-Agent: a", "npm-session: 1"], 0, &origin);
    send(&engine, &["User-Agent: b", "npm-session: 2"], 1, &nobody);
    // RFC 9111, section 3.5, is about one field.
    let public = |sent: &HeaderMap| mirror(sent, "Cache-Control: max-age=60, public");
    for (field, is_for_all) in [("Authorization", true), ("Cookie", false)] {
        let engine = self::engine(apart());
        send(&engine, &[&format!("{field}: ann")], 0, &public);
        let got = send(&engine, &[], 1, &public);
        assert_eq!(got.text(), (200, if is_for_all { "ann" } else { "" }));
    }
}

/// The digest that names bodies can be forged: whoever can choose a body finds one with the name of another one.
#[test]
fn a_body_of_one_credential_does_not_stand_for_that_of_another() {
    let engine = engine(apart());
    let page = |_: &HeaderMap| {
        let fields = headers(&["Cache-Control: max-age=60", "Vary: Accept"]);
        Some((200, fields, b"true".as_slice()))
    };
    let people: [&[&str]; 3] = [&["Cookie: ann"], &["Cookie: bob"], &[]];
    for lines in people {
        send(&engine, lines, 0, &page);
    }
    let storage = engine.storage();
    let names: Vec<_> = {
        let stored = storage.inner.policies(URL).unwrap().unwrap();
        let variants = Variants::view(&stored).unwrap();
        variants.iter().map(|(_, policy)| policy.body()).collect()
    };
    assert_eq!(names.len(), 3);
    for (at, name) in names.iter().enumerate() {
        storage.put_body(URL, name, b"fake").unwrap();
        let is_faked = |lines: &[&str]| send(&engine, lines, 1, &nobody).body == b"fake";
        assert_eq!(
            people.iter().filter(|lines| is_faked(lines)).count(),
            1,
            "{at}"
        );
        storage.put_body(URL, name, b"true").unwrap();
    }
}

#[test]
fn a_304_to_credentials_leaves_what_all_have() {
    let engine = engine(apart());
    let page = |sent: &HeaderMap| mirror(sent, "Cache-Control: max-age=1");
    send(&engine, &[], 0, &page);
    let not_modified = |_: &HeaderMap| {
        let fields = ["ETag: \"1\"", "Cache-Control: max-age=60", "X-Own: ann"];
        Some((304, headers(&fields), b"".as_slice()))
    };
    let ann = &["Authorization: ann"];
    assert_eq!(send(&engine, ann, 5, &not_modified).text(), (200, ""));
    assert_eq!(send(&engine, ann, 6, &nobody).field("x-own"), Some("ann"));
    // The others validate what they had before.
    let asked = |sent: &HeaderMap| {
        assert_eq!(sent.get("if-none-match").unwrap(), "\"1\"");
        not_modified(sent)
    };
    assert_eq!(send(&engine, &[], 7, &asked).text(), (200, ""));
    send(&engine, &[], 8, &nobody);
}

#[test]
fn a_cookie_is_given_to_others_only_as_long_as_the_origin_says() {
    let page = |sent: &HeaderMap| mirror(sent, "Cache-Control: max-age=10");
    let engine = engine(Options::shared());
    send(&engine, &[], 0, &page);
    let fresh = send(&engine, &[], 9, &nobody);
    assert_eq!(fresh.field("set-cookie"), Some("a=b"));
    let down = send(&engine, &[], 20, &unreachable_origin);
    assert_eq!((down.status, down.field("set-cookie")), (200, None));
    for prolong in [
        |options: &mut Options| options.min_lifetime = Some(60),
        |options: &mut Options| options.stale_while_revalidate = Some(60),
        |options: &mut Options| options.stale_if_error = Some(60),
    ] {
        let mut options = Options::shared();
        prolong(&mut options);
        let engine = self::engine(options);
        let first = send(&engine, &[], 0, &page);
        assert_eq!(first.field("set-cookie"), Some("a=b"));
        assert_eq!(send(&engine, &[], 1, &nobody).field("set-cookie"), None);
    }
}

#[test]
fn a_404_is_never_used_stale() {
    let mut options = Options::shared();
    options.stale_while_revalidate = Some(600);
    options.stale_if_error = Some(600);
    options.stale_when_disconnected = Some(600);
    let missing = |_: &HeaderMap| {
        let control = "Cache-Control: max-age=1, stale-while-revalidate=60, stale-if-error=60";
        Some((404, headers(&[control]), b"none".as_slice()))
    };
    let engine = engine(options);
    send(&engine, &[], 0, &missing);
    assert_eq!(send(&engine, &[], 0, &nobody).status, 404);
    let broken = |_: &HeaderMap| Some((500, headers(&[]), b"broken".as_slice()));
    assert_eq!(send(&engine, &[], 5, &broken).status, 500);
    assert_eq!(send(&engine, &[], 5, &unreachable_origin).status, 504);
    let there = |_: &HeaderMap| Some((200, headers(&[]), b"new".as_slice()));
    assert_eq!(send(&engine, &[], 5, &there).text(), (200, "new"));
}

#[test]
fn a_304_for_another_response_is_asked_again_without_conditions() {
    // RFC 9111, section 4.3.4.
    let engine = engine(Options::private());
    let page = |_: &HeaderMap| {
        Some((
            200,
            headers(&["Cache-Control: max-age=1", "ETag: \"1\""]),
            b"one".as_slice(),
        ))
    };
    send(&engine, &[], 0, &page);
    let origin = |sent: &HeaderMap| match sent.contains_key("if-none-match") {
        true => Some((304, headers(&["ETag: \"2\""]), b"".as_slice())),
        false => Some((
            200,
            headers(&["Cache-Control: max-age=9", "ETag: \"2\""]),
            b"two".as_slice(),
        )),
    };
    assert_eq!(send(&engine, &[], 2, &origin).text(), (200, "two"));
    assert_eq!(send(&engine, &[], 3, &nobody).text(), (200, "two"));
}

#[test]
fn a_reload_of_an_immutable_response_sends_nothing() {
    let engine = engine(Options::private());
    let page = |_: &HeaderMap| {
        Some((
            200,
            headers(&["Cache-Control: max-age=60, immutable"]),
            b"one".as_slice(),
        ))
    };
    send(&engine, &[], 0, &page);
    engine.storage().take();
    let reload = &["Cache-Control: max-age=0"];
    assert_eq!(send(&engine, reload, 59, &nobody).text(), (200, "one"));
    assert!(engine.storage().take().is_empty());
}

#[test]
fn conditions_of_the_client_are_answered_from_what_comes() {
    let engine = engine(Options::private());
    let page = |sent: &HeaderMap| {
        assert_eq!(
            sent.get("if-none-match").map(HeaderValue::as_bytes),
            Some(b"\"mine\"".as_slice())
        );
        Some((
            200,
            headers(&["Cache-Control: max-age=1", "ETag: \"1\""]),
            b"one".as_slice(),
        ))
    };
    let mine = &["If-None-Match: \"mine\""];
    assert_eq!(send(&engine, mine, 0, &page).text(), (200, "one"));
    // The cache's own condition takes the place of the client's, which then counts for the answer.
    let not_modified = |sent: &HeaderMap| {
        assert_eq!(sent.get("if-none-match").unwrap(), "\"1\"");
        Some((304, headers(&["ETag: \"1\""]), b"".as_slice()))
    };
    assert_eq!(send(&engine, mine, 2, &not_modified).text(), (200, "one"));
    let new = |sent: &HeaderMap| {
        assert_eq!(sent.get("if-none-match").unwrap(), "\"1\"");
        Some((
            200,
            headers(&["Cache-Control: max-age=9", "ETag: \"mine\""]),
            b"two".as_slice(),
        ))
    };
    let got = send(&engine, mine, 4, &new);
    assert_eq!(
        (got.text(), got.field("etag")),
        ((304, ""), Some("\"mine\""))
    );
    assert_eq!(send(&engine, &[], 5, &nobody).text(), (200, "two"));
    // A range of what must be validated: the whole is validated, and the part is of it.
    let range = send(
        &engine,
        &["Range: bytes=1-", "Cache-Control: no-cache"],
        6,
        &|sent| {
            assert!(!sent.contains_key("range"));
            Some((304, headers(&["ETag: \"mine\""]), b"".as_slice()))
        },
    );
    assert_eq!(
        (range.text(), range.field("content-range")),
        ((206, "wo"), Some("bytes 1-2/3"))
    );
}

#[test]
fn a_part_is_completed_if_a_strong_validator_joins_it() {
    // RFC 9111, sections 3.3 and 3.4.
    let first = |fields: &'static [&'static str]| {
        let engine = engine(Options::private());
        let part = move |_: &HeaderMap| Some((206, headers(fields), b"01234".as_slice()));
        let got = send(&engine, &["Range: bytes=0-4"], 0, &part);
        assert_eq!(got.text(), (206, "01234"));
        engine
    };
    let strong = &[
        "Cache-Control: max-age=60",
        "Content-Range: bytes 0-4/10",
        "ETag: \"1\"",
    ];
    let engine = first(strong);
    assert_eq!(
        send(&engine, &["Range: bytes=2-3"], 1, &nobody).text(),
        (206, "23")
    );
    let rest = |sent: &HeaderMap| {
        assert_eq!(sent.get("range").unwrap(), "bytes=5-");
        assert_eq!(sent.get("if-range").unwrap(), "\"1\"");
        let fields = [
            "Cache-Control: max-age=60",
            "Content-Range: bytes 5-9/10",
            "ETag: \"1\"",
        ];
        Some((206, headers(&fields), b"56789".as_slice()))
    };
    let got = send(&engine, &[], 2, &rest);
    assert_eq!(got.text(), (200, "0123456789"));
    assert_eq!(
        (got.field("content-range"), got.field("content-length")),
        (None, Some("10"))
    );
    assert_eq!(send(&engine, &[], 3, &nobody).text(), (200, "0123456789"));

    // The rest may name fewer fields in Vary: the key has those of both.
    let engine = first(&[
        "Cache-Control: max-age=60",
        "Content-Range: bytes 0-4/10",
        "ETag: \"1\"",
        "Vary: Foo",
    ]);
    let varying = |sent: &HeaderMap| {
        let (status, mut fields, body) = rest(sent)?;
        fields.insert("vary", HeaderValue::from_static("Bar"));
        Some((status, fields, body))
    };
    assert_eq!(send(&engine, &[], 2, &varying).text(), (200, "0123456789"));
    let other = |_: &HeaderMap| Some((200, headers(&[]), b"other".as_slice()));
    assert_eq!(send(&engine, &["Foo: 1"], 3, &other).text(), (200, "other"));

    // It changed: the origin sends the whole.
    let engine = first(strong);
    let whole = |_: &HeaderMap| {
        Some((
            200,
            headers(&["Cache-Control: max-age=60"]),
            b"new".as_slice(),
        ))
    };
    assert_eq!(send(&engine, &[], 2, &whole).text(), (200, "new"));
    // The rest does not fit: the whole is asked for.
    for wrong in [
        "ETag: \"2\"|Content-Range: bytes 5-9/10",
        "ETag: \"1\"|Content-Range: bytes 6-9/10",
        "ETag: \"1\"|Content-Range: bytes 5-9/11",
        "ETag: W/\"1\"|Content-Range: bytes 5-9/10",
        "X: y|Content-Range: bytes 5-9/10",
    ] {
        let engine = first(strong);
        let origin = |sent: &HeaderMap| match sent.contains_key("range") {
            true => {
                let fields: Vec<&str> = wrong.split('|').collect();
                Some((206, headers(&fields), b"56789".as_slice()))
            }
            false => Some((200, headers(&[]), b"whole".as_slice())),
        };
        assert_eq!(
            send(&engine, &[], 2, &origin).text(),
            (200, "whole"),
            "{wrong}"
        );
    }
    // Nothing joins them.
    let engine = first(&[
        "Cache-Control: max-age=60",
        "Content-Range: bytes 0-4/10",
        "ETag: W/\"1\"",
    ]);
    let whole = |sent: &HeaderMap| {
        assert!(!sent.contains_key("range"));
        Some((200, headers(&[]), b"whole".as_slice()))
    };
    assert_eq!(send(&engine, &[], 2, &whole).text(), (200, "whole"));
}

#[test]
fn what_an_unsafe_method_changed_is_gone_before_the_answer() {
    // RFC 9111, section 4.4.
    let engine = engine(Options::private());
    let page = |_: &HeaderMap| {
        Some((
            200,
            headers(&["Cache-Control: max-age=60"]),
            b"one".as_slice(),
        ))
    };
    send(&engine, &[], 0, &page);
    engine.storage().take();
    let none = HeaderMap::new();
    let Step::Ask(exchange) = step(&engine, &Method::POST, &none, 1) else {
        panic!("an unsafe method is written through");
    };
    let fields = headers(&["Location: /b", "Content-Location: https://example.net/a"]);
    let response = Response {
        status: StatusCode::CREATED,
        headers: &fields,
    };
    let outcome = engine
        .answered(exchange, &response, Times::at(NOW.plus(1)))
        .unwrap();
    // The mark first, so that what is on its way is not stored behind it.
    let removed = [
        "policies",
        "remove https://example.org/a",
        "policies",
        "remove https://example.org/b",
    ];
    assert_eq!(engine.storage().take(), removed);
    assert!(matches!(outcome, Outcome::Pass(pass) if pass.refused == Some(Refusal::Method)));
    assert!(matches!(
        step(&engine, &Method::GET, &none, 2),
        Step::Ask(_)
    ));
}

#[test]
fn a_truncated_body_is_not_stored() {
    let engine = engine(Options::private());
    let none = HeaderMap::new();
    let Step::Ask(exchange) = step(&engine, &Method::GET, &none, 0) else {
        panic!("nothing is stored");
    };
    let fields = headers(&["Cache-Control: max-age=60", "Content-Length: 10"]);
    let response = Response {
        status: StatusCode::OK,
        headers: &fields,
    };
    let Outcome::Pass(pass) = engine
        .answered(exchange, &response, Times::at(NOW))
        .unwrap()
    else {
        panic!("a 200 is passed on");
    };
    let kept = engine.keep(pass.keep.unwrap(), b"012345678").unwrap();
    let refusal = Refusal::BodyLength {
        expected: 10,
        found: 9,
    };
    assert_eq!(kept, Kept::Refused(refusal));
    assert!(engine.storage().take().is_empty());
}

#[test]
fn an_evicted_body_is_a_miss_and_nothing_is_validated() {
    let engine = engine(Options::private());
    let page = |_: &HeaderMap| {
        Some((
            200,
            headers(&["Cache-Control: max-age=60", "ETag: \"1\""]),
            b"one".as_slice(),
        ))
    };
    send(&engine, &[], 0, &page);
    engine
        .storage()
        .remove_body(URL, &BodyName::of(b"one"))
        .unwrap();
    let again = |sent: &HeaderMap| {
        assert!(!sent.contains_key("if-none-match"));
        Some((
            200,
            headers(&["Cache-Control: max-age=60"]),
            b"two".as_slice(),
        ))
    };
    assert_eq!(send(&engine, &[], 1, &again).text(), (200, "two"));
}

#[test]
fn a_304_does_not_undo_what_another_process_stored() {
    let engine = engine(Options::private());
    let none = HeaderMap::new();
    let page = |_: &HeaderMap| {
        Some((
            200,
            headers(&["Cache-Control: max-age=1", "ETag: \"1\""]),
            b"one".as_slice(),
        ))
    };
    send(&engine, &[], 0, &page);
    let Step::Ask(late) = step(&engine, &Method::GET, &none, 2) else {
        panic!("it is stale");
    };
    let newer = |_: &HeaderMap| {
        Some((
            200,
            headers(&["Cache-Control: max-age=60", "ETag: \"2\""]),
            b"two".as_slice(),
        ))
    };
    send(&engine, &[], 2, &newer);
    let origin = |_: &HeaderMap| Some((304, headers(&["ETag: \"1\""]), b"".as_slice()));
    assert_eq!(finish(&engine, late, 3, &origin).text(), (200, "one"));
    assert_eq!(send(&engine, &[], 4, &nobody).text(), (200, "two"));
}

#[test]
fn variants_live_side_by_side() {
    let engine = engine(Options::private());
    let origin = |sent: &HeaderMap| {
        let body: &[u8] = match sent.get("accept").map(HeaderValue::as_bytes) {
            Some(b"text/html") => b"html",
            _ => b"json",
        };
        Some((
            200,
            headers(&["Cache-Control: max-age=60", "Vary: Accept"]),
            body,
        ))
    };
    let (html, json) = (&["Accept: text/html"], &["Accept: application/json"]);
    assert_eq!(send(&engine, html, 0, &origin).text(), (200, "html"));
    assert_eq!(send(&engine, json, 0, &origin).text(), (200, "json"));
    assert_eq!(send(&engine, html, 1, &nobody).text(), (200, "html"));
    assert_eq!(send(&engine, json, 1, &nobody).text(), (200, "json"));
    // The bound on variants holds, and the last ones are there.
    for number in 0..40 {
        send(&engine, &[&format!("Accept: x/{number}")], 2, &origin);
    }
    let last: Vec<String> = (24..40)
        .map(|number| format!("Accept: x/{number}"))
        .collect();
    for line in &last {
        assert_eq!(send(&engine, &[line], 3, &nobody).text(), (200, "json"));
    }
}

fn variants_stored_at_once_are_all_kept<S: Storage + Sync>(storage: &Arc<S>)
where
    Arc<S>: Send,
{
    let vary = headers(&["Cache-Control: max-age=60", "Vary: Accept"]);
    let origin = |sent: &HeaderMap| {
        let body: &[u8] = match sent.get("accept").map(HeaderValue::as_bytes) {
            Some(b"x/0") => b"zero",
            _ => b"another",
        };
        Some((200, vary.clone(), body))
    };
    let line = |number: usize| format!("Accept: x/{number}");
    let engine = || {
        let (options, rules) = (Options::private(), Overrides::default());
        Engine::new(Arc::clone(storage), options, rules, "brisk")
    };
    std::thread::scope(|scope| {
        for number in 0..MOST_VARIANTS {
            let (engine, origin) = (engine(), &origin);
            scope.spawn(move || send(&engine, &[&line(number)], 0, origin));
        }
    });
    for number in 0..MOST_VARIANTS {
        let body = if number == 0 { "zero" } else { "another" };
        assert_eq!(
            send(&engine(), &[&line(number)], 1, &nobody).text(),
            (200, body)
        );
    }
}

#[test]
fn variants_stored_at_once_are_all_kept_in_memory() {
    for _ in 0..20 {
        variants_stored_at_once_are_all_kept(&Arc::<MemoryStorage>::default());
    }
}

#[test]
fn variants_stored_at_once_are_all_kept_in_a_directory() {
    for _ in 0..20 {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let cache = Cache::open(home.path(), CacheOptions::new()).unwrap();
        variants_stored_at_once_are_all_kept(&Arc::new(cache));
    }
}

#[test]
fn credentials_stay_out_of_messages_and_keys() {
    let engine = engine(Options::private());
    let request = headers(&["Authorization: Bearer hush"]);
    let request = Request {
        method: &Method::GET,
        url: "https://user:hush@example.org/a",
        headers: &request,
    };
    let Step::Ask(exchange) = engine.begin(&request, NOW).unwrap() else {
        panic!("nothing is stored");
    };
    assert!(!format!("{exchange:?}").contains("hush"));
}

/// Threads replace, validate, remove and read one URL. The field `X-Body` says which body belongs to a response.
#[test]
fn no_answer_mixes_two_responses() {
    let home = tempfile::tempdir().unwrap();
    // Small enough that bodies are evicted all the time.
    let options = CacheOptions::new().limit(4 << 20).segment_len(1 << 18);
    let cache = Arc::new(Cache::open(home.path(), options).unwrap());
    let body_of = |number: usize| vec![b'a' + (number % 26) as u8; 1000 + number % 50_000];
    // The threads end with it, also if this thread panics.
    let running = Arc::new(());
    let alive = Arc::downgrade(&running);
    let answers = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let engine = Engine::new(
                    cache.clone(),
                    Options::private(),
                    Overrides::default(),
                    "brisk",
                );
                let alive = &alive;
                scope.spawn(move || {
                    let mut answers = 0;
                    while alive.strong_count() > 0 {
                        let request = headers(&["Cache-Control: max-stale"]);
                        if let Step::Answer(answer) = step(&engine, &Method::GET, &request, 0) {
                            let number = answer.headers["x-body"].to_str().unwrap();
                            let number: usize = number.parse().unwrap();
                            assert!(answer.body().unwrap() == body_of(number), "{number}");
                            answers += 1;
                        }
                    }
                    answers
                })
            })
            .collect();
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let engine = Engine::new(
                    cache.clone(),
                    Options::private(),
                    Overrides::default(),
                    "brisk",
                );
                scope.spawn(move || {
                    for round in 0..400 {
                        let number = round * 2 + writer;
                        let body = body_of(number);
                        let origin = |sent: &HeaderMap| {
                            let own = format!("ETag: \"{number}\"");
                            match sent.get("if-none-match") {
                                // A 304 for the response that is held.
                                Some(tag) if number % 3 == 0 => {
                                    let held = format!("ETag: {}", tag.to_str().unwrap());
                                    Some((304, headers(&[&held, "X-Round: 1"]), &[][..]))
                                }
                                _ => {
                                    let number = format!("X-Body: {number}");
                                    Some((
                                        200,
                                        headers(&["Cache-Control: max-age=0", &own, &number]),
                                        &body[..],
                                    ))
                                }
                            }
                        };
                        send(&engine, &[], 0, &origin);
                        if number % 50 == 0 {
                            engine.storage().remove_policies(URL).unwrap();
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        drop(running);
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .sum::<u32>()
    });
    assert!(answers > 0);
}

#[test]
fn what_was_asked_for_before_an_invalidation_is_not_stored_after_it() {
    let engine = Engine::new(
        MemoryStorage::default(),
        Options::private(),
        Overrides::default(),
        "test",
    );
    let none = HeaderMap::new();
    let fresh = headers(&["Cache-Control: max-age=60", "ETag: \"1\""]);
    let get = Request {
        method: &Method::GET,
        url: URL,
        headers: &none,
    };
    let ask = |request: &Request<'_>| match engine.begin(request, NOW).unwrap() {
        Step::Ask(exchange) => exchange,
        other => panic!("{other:?}"),
    };
    let answer = |exchange: Box<Exchange<_>>, headers: &HeaderMap| {
        let response = Response {
            status: StatusCode::OK,
            headers,
        };
        match engine
            .answered(exchange, &response, Times::at(NOW))
            .unwrap()
        {
            Outcome::Pass(pass) => pass,
            other => panic!("{other:?}"),
        }
    };
    for _ in 0..2 {
        let before = answer(ask(&get), &fresh).keep.unwrap();
        let delete = Request {
            method: &Method::DELETE,
            url: URL,
            headers: &none,
        };
        answer(ask(&delete), &none);
        assert_eq!(
            engine.keep(before, b"old").unwrap(),
            Kept::Refused(Refusal::Invalidated)
        );
        // It is as if it had never come.
        let after = answer(ask(&get), &fresh).keep.unwrap();
        assert_eq!(engine.keep(after, b"new").unwrap(), Kept::Stored);
        let Step::Answer(stored) = engine.begin(&get, NOW).unwrap() else {
            panic!("it was stored");
        };
        assert_eq!(stored.body().unwrap(), b"new");
        // Once more, from what is stored.
        answer(ask(&delete), &none);
    }
}
