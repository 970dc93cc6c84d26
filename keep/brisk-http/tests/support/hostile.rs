//! What a cache does with any messages, clocks and stored bytes. The test `hostile` and the fuzz target `http_policy` share
//! it.

use brisk_http::{
    Action, BodyName, Failure, MOST_VARIANTS, Options, Policy, Reason, Reply, Request, Response,
    StoredPolicy, Times, Timestamp, Variants, invalidates,
};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

pub const URL: &str = "https://example.org/a";

/// The names of fields that mean something to a cache, and one that does not.
pub const NAMES: &[&str] = &[
    "age",
    "authorization",
    "cache-control",
    "cdn-cache-control",
    "connection",
    "content-encoding",
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

/// What a message may have in its fields.
pub const PIECES: &[&str] = &[
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

/// Fields of these names and values. What no field can have is left out.
pub fn fields<'a>(lines: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_bytes(value.trim_ascii()),
        ) {
            headers.append(name, value);
        }
    }
    headers
}

/// A request with its response, and what comes after it.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub method: Method,
    pub asked: HeaderMap,
    pub status: StatusCode,
    pub answered: HeaderMap,
    pub times: Times,
    pub asked_again: HeaderMap,
    /// Of a 304, of an answer to HEAD, and of the rest of a part.
    pub newer: HeaderMap,
    pub now: Timestamp,
    pub options: Options,
}

fn request<'a>(method: &'a Method, headers: &'a HeaderMap) -> Request<'a> {
    Request {
        method,
        url: URL,
        headers,
    }
}

fn has(headers: &HeaderMap, name: &str, text: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .any(|value| value.as_bytes() == text.as_bytes())
}

fn lines<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a [u8]> {
    headers
        .get_all(name)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect()
}

impl Exchange {
    /// Stores the response, and looks at it in all ways. Returns the stored bytes.
    pub fn exercise(&self) -> Option<Vec<u8>> {
        let (options, secret) = (&self.options, self.options.secret.as_ref());
        let first = request(&self.method, &self.asked);
        let response = Response {
            status: self.status,
            headers: &self.answered,
        };
        invalidates(&self.method, URL, self.status, &self.answered);
        let policy = Policy::of(&first, &response, self.times, options).ok()?;
        assert!(
            !has(&self.asked, "cache-control", "no-store"),
            "no-store is stored"
        );
        assert!(
            !has(&self.answered, "vary", "*"),
            "what never matches is stored"
        );
        let body = BodyName::of(b"01234");
        let policy = policy.clone().with_body(body).unwrap_or(policy);

        // What decides is in the bytes, wherever they lie.
        let moved = [&[0], policy.as_bytes()].concat();
        let moved = StoredPolicy::view(&moved[1..]).expect("it is whole");
        let again = request(&Method::GET, &self.asked_again);
        let decision = policy.view().decide(&again, self.now, options);
        assert_eq!(moved.decide(&again, self.now, options), decision);
        assert_eq!(
            moved.reply(&again, self.now),
            policy.view().reply(&again, self.now)
        );
        assert_eq!(moved.headers(true), policy.view().headers(true));
        look(&policy.view(), &again, &self.newer, self.now, options);
        self.check_use(&policy);
        self.check_credentials(&policy);
        self.check_update(&policy);

        // The request that was answered selects its response.
        let variants = Variants::with(None, &policy, &self.asked, secret);
        let variants = Variants::view(&variants).expect("it is whole");
        assert_eq!(variants.len(), 1);
        if self.method == Method::GET {
            assert!(policy.view().selects(&self.asked, secret));
            let (at, selected) = variants.select(&self.asked, secret).expect("it is there");
            assert_eq!((at, selected.body()), (0, policy.view().body()));
        }
        let twice = Variants::with(Some(&variants), &policy, &self.asked, secret);
        let twice = Variants::view(&twice).expect("it is whole");
        assert!(twice.len() <= 2 && (self.method != Method::GET || twice.len() == 1));

        // What was invalidated asks.
        let invalidated = variants.invalidated(0);
        let invalidated = Variants::view(&invalidated).expect("it is whole");
        let (_, invalidated) = invalidated.iter().next().expect("it is there");
        let decision = invalidated.decide(&again, self.now, options);
        assert!(
            !decision.is_use() || decision.reason == Reason::Offline,
            "{decision:?}"
        );
        assert!(!invalidated.covers(&again, Failure::Disconnected, self.now, options));
        Some(policy.as_bytes().to_vec())
    }

    /// What asks for the origin gets there, and what is stale is used only if somebody allows it.
    fn check_use(&self, policy: &Policy) {
        let (view, options, now) = (policy.view(), &self.options, self.now);
        let again = request(&Method::GET, &self.asked_again);
        let decision = view.decide(&again, now, options);
        let earlier = Timestamp::from_unix(now.unix().saturating_sub(1));
        assert!(view.age(earlier) <= decision.age, "it becomes younger");
        assert!(
            view.age(self.times.response)
                >= self.times.response.since(self.times.request).min(1 << 31)
        );
        if has(&self.asked_again, "cache-control", "only-if-cached") {
            assert!(!matches!(
                decision.action,
                Action::Forward | Action::Revalidate
            ));
        }
        if !decision.is_use() {
            return;
        }
        assert!(view.selects(&self.asked_again, options.secret.as_ref()));
        let counts = |text| {
            has(&self.answered, "cache-control", text)
                && !self.answered.contains_key("cdn-cache-control")
        };
        let stale = decision.age >= decision.lifetime;
        match decision.reason {
            Reason::Fresh => assert!(!stale),
            Reason::Offline => assert!(options.offline),
            Reason::MaxStale => {
                assert!(stale && self.asked_again.contains_key(CACHE_CONTROL));
                assert!(!counts("must-revalidate"));
            }
            Reason::StaleWhileRevalidate => {
                let allowed = options.stale_while_revalidate.is_some()
                    || self.answered.contains_key(CACHE_CONTROL)
                    || self.answered.contains_key("cdn-cache-control");
                assert!(stale && allowed && !counts("must-revalidate"));
            }
            reason => panic!("it is used, because {reason}"),
        }
        if decision.reason != Reason::Offline {
            assert!(!has(&self.asked_again, "cache-control", "no-cache"));
            assert!(!counts("no-cache"), "no-cache is used");
        }
    }

    /// Credentials are in no stored byte.
    fn check_credentials(&self, policy: &Policy) {
        for credentials in self.asked.get_all(AUTHORIZATION) {
            let credentials = credentials.as_bytes();
            let is_elsewhere = |headers: &HeaderMap| {
                let others = headers.iter().filter(|(name, _)| *name != AUTHORIZATION);
                let mut texts =
                    others.flat_map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()]);
                texts.any(|text| contains(text, credentials))
            };
            // A short text may be in any bytes.
            if credentials.len() > 8 && !is_elsewhere(&self.asked) && !is_elsewhere(&self.answered)
            {
                assert!(
                    !contains(policy.as_bytes(), credentials),
                    "credentials are stored"
                );
            }
        }
    }

    /// A 304 updates all fields but those that describe the stored bytes, and leaves the body.
    fn check_update(&self, policy: &Policy) {
        let (view, options) = (policy.view(), &self.options);
        let first = request(&self.method, &self.asked);
        let times = Times::at(self.now);
        let Ok(updated) = view.validated(&first, &self.newer, times, options) else {
            return;
        };
        let new = updated.view();
        assert_eq!((new.body(), new.status()), (view.body(), view.status()));
        let (before, after) = (view.headers(true), new.headers(true));
        for name in [&CONTENT_LENGTH, &CONTENT_ENCODING, &CONTENT_RANGE] {
            // Unless the new fields say that they are of the connection, or are only for one.
            if after.contains_key(name) {
                assert_eq!(
                    lines(&after, name),
                    lines(&before, name),
                    "{name} is of the body"
                );
            }
        }
        for name in after.keys() {
            let is_kept = [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE].contains(name);
            if self.newer.contains_key(name) && !is_kept {
                assert_eq!(
                    lines(&after, name),
                    lines(&self.newer, name),
                    "{name} is updated"
                );
            }
        }
        assert!(new.response_time() == self.now);
        look(&new, &first, &self.newer, self.now, options);
        if !self.newer.contains_key(VARY) {
            assert_eq!(new.selecting_fields(), view.selecting_fields());
        }
    }
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

/// Looks at a stored policy, which may be damaged, in all ways.
pub fn look(
    policy: &StoredPolicy<'_>,
    request: &Request<'_>,
    newer: &HeaderMap,
    now: Timestamp,
    options: &Options,
) {
    let decision = policy.decide(request, now, options);
    assert_eq!(decision.ttl() > 0, decision.age < decision.lifetime);
    policy.explain(request, now, options);
    policy.covers(request, Failure::Disconnected, now, options);
    policy.headers(true);
    policy.completion();
    policy.validators().apply(&mut request.headers.clone());
    if let Reply::Part {
        first,
        last,
        complete,
        stored_from,
    } = policy.reply(request, now)
    {
        let stored_to = stored_from.saturating_add(policy.body().len());
        assert!(
            stored_from <= first && first <= last && last < stored_to,
            "a part that is not stored"
        );
        assert!(
            complete.is_none_or(|complete| last < complete),
            "a part behind the end"
        );
    }
    let times = Times::at(now);
    // Results are as they may; what counts is that there are some.
    drop(policy.validated(request, newer, times, options));
    let response = Response {
        status: StatusCode::OK,
        headers: newer,
    };
    drop(policy.updated_by_head(request, &response, times, options));
    drop(policy.completed(request, newer, BodyName::of(b"0123456789"), times, options));
}

/// Looks at bytes that may be those of [`Variants`], and changes them in all ways.
pub fn look_at_stored(
    bytes: &[u8],
    asked: &HeaderMap,
    newer: &HeaderMap,
    now: Timestamp,
    options: &Options,
) {
    let request = request(&Method::GET, asked);
    if let Some(policy) = StoredPolicy::view(bytes) {
        look(&policy, &request, newer, now, options);
    }
    let Some(variants) = Variants::view(bytes) else {
        return;
    };
    // A count that is wrong must not make this long: views are bounded by their bytes.
    assert!(variants.len() <= bytes.len());
    variants.select(asked, options.secret.as_ref());
    for (at, policy) in variants.iter().take(MOST_VARIANTS) {
        look(&policy, &request, newer, now, options);
        let invalidated = variants.invalidated(at);
        assert!(Variants::view(&invalidated).is_some());
    }
    let new = Policy::of(
        &request,
        &Response {
            status: StatusCode::OK,
            headers: newer,
        },
        Times::at(now),
        options,
    );
    if let Ok(new) = new {
        let with = Variants::with(Some(&variants), &new, asked, options.secret.as_ref());
        let with = Variants::view(&with).expect("it is whole");
        assert!((1..=MOST_VARIANTS).contains(&with.len()));
    }
}
