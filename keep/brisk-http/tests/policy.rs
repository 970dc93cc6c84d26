//! The rules, one table each, with the section that has them.

use brisk_http::{
    Action, Failure, NotUpdated, Options, Policy, Reason, Refusal, Reply, Request, Response,
    Secret, StoredPolicy, Times, Timestamp,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

/// Tue, 14 Nov 2023 22:13:20 GMT
const NOW: Timestamp = Timestamp::from_unix(1_700_000_000);
const DATE: &str = "Date: Tue, 14 Nov 2023 22:13:20 GMT";
const HOUR_BEFORE: &str = "Last-Modified: Tue, 14 Nov 2023 21:13:20 GMT";
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

fn get<'a>(headers: &'a HeaderMap) -> Request<'a> {
    Request {
        method: &Method::GET,
        url: URL,
        headers,
    }
}

fn policy_of(
    status: u16,
    request: &[&str],
    response: &[&str],
    options: &Options,
) -> Result<Policy, Refusal> {
    let (request, response) = (headers(request), headers(response));
    let response = Response {
        status: StatusCode::from_u16(status).unwrap(),
        headers: &response,
    };
    Policy::of(&get(&request), &response, Times::at(NOW), options)
}

fn stored(response: &[&str], options: &Options) -> Policy {
    policy_of(200, &[], response, options).unwrap()
}

/// The action for a request so many seconds later.
fn decided(policy: &Policy, request: &[&str], after: u64, options: &Options) -> (Action, Reason) {
    let request = headers(request);
    let decision = policy
        .view()
        .decide(&get(&request), NOW.plus(after), options);
    (decision.action, decision.reason)
}

#[test]
fn lifetimes_are_taken_in_order() {
    // RFC 9111, section 4.2.1.
    let expires = "Expires: Tue, 14 Nov 2023 22:15:00 GMT";
    for (lines, shared, private) in [
        (&["Cache-Control: max-age=60, s-maxage=30"][..], 30, 60),
        (&["Cache-Control: s-maxage=30", DATE, expires], 30, 100),
        (&["Cache-Control: max-age=60", DATE, expires], 60, 60),
        (&[DATE, expires], 100, 100),
        (&[expires], 100, 100),
        (&["Cache-Control: public", "Expires: 0"], 0, 0),
        (&[DATE, HOUR_BEFORE], 360, 360),
        (&[HOUR_BEFORE], 360, 360),
        (&["Last-Modified: yesterday"], 0, 0),
        (
            &["Last-Modified: Mon, 14 Nov 2022 22:13:20 GMT"],
            86_400,
            86_400,
        ),
        // RFC 9213, section 2.2.
        (
            &[
                "CDN-Cache-Control: max-age=5",
                "Cache-Control: max-age=60",
                expires,
            ],
            5,
            60,
        ),
        (
            &["CDN-Cache-Control: no-cache=?0", "ETag: \"1\"", expires],
            0,
            100,
        ),
    ] {
        for (options, expected) in [(Options::shared(), shared), (Options::private(), private)] {
            let policy = stored(lines, &options);
            assert_eq!(
                policy.view().lifetime(&options),
                expected,
                "{lines:?} {:?}",
                options.mode
            );
        }
    }
    // RFC 9111, section 4.2.2: other statuses have no estimated lifetime, unless they are public.
    let options = Options::private();
    let refused = policy_of(403, &[], &[DATE, HOUR_BEFORE], &options).unwrap_err();
    assert_eq!(refused, Refusal::NotCacheable(StatusCode::FORBIDDEN));
    let lines = &[DATE, HOUR_BEFORE, "Cache-Control: public"];
    let public = policy_of(403, &[], lines, &options).unwrap();
    assert_eq!(public.view().lifetime(&options), 360);
    // Switched off.
    let mut options = Options::private();
    options.heuristic = None;
    assert_eq!(
        stored(&[DATE, HOUR_BEFORE], &options)
            .view()
            .lifetime(&options),
        0
    );
}

#[test]
fn ages_add_up_and_saturate() {
    // RFC 9111, section 4.2.3.
    let options = Options::private();
    for (lines, delay, age) in [
        (&[][..], 0, 0),
        (&[DATE], 0, 0),
        (&["Date: Tue, 14 Nov 2023 22:13:10 GMT"], 0, 10),
        (&["Date: Tue, 14 Nov 2023 22:13:30 GMT"], 0, 0),
        (&["Date: Tue, 14 Nov 2023 22:13:10 GMT", "Age: 7"], 0, 10),
        (&["Date: Tue, 14 Nov 2023 22:13:10 GMT", "Age: 7"], 5, 12),
        (&["Date: x", "Age: 7, 9"], 0, 7),
        (&["Age: 7", "Age: 9"], 1, 8),
        (&["Age: x"], 1, 1),
        (
            &["Age: 99999999999999999999"],
            u64::MAX,
            u64::from(u32::MAX - 1),
        ),
    ] {
        let (request, response) = (HeaderMap::new(), headers(lines));
        let response = Response {
            status: StatusCode::OK,
            headers: &response,
        };
        let times = Times {
            request: Timestamp::from_unix(NOW.unix().saturating_sub(delay)),
            response: NOW,
        };
        let policy = Policy::of(&get(&request), &response, times, &options).unwrap();
        assert_eq!(policy.view().age(NOW), age, "{lines:?}");
        assert_eq!(policy.view().age(NOW.plus(3)), age + 3);
        // A clock that was set back makes nothing younger than it was.
        assert_eq!(policy.view().age(Timestamp::from_unix(0)), age);
        assert_eq!(
            policy.view().age(Timestamp::from_unix(u64::MAX)),
            (u64::MAX - NOW.unix()).saturating_add(age)
        );
    }
}

#[test]
fn an_age_that_equals_the_lifetime_is_stale() {
    let options = Options::private();
    let policy = stored(&["Cache-Control: max-age=60", "ETag: \"1\""], &options);
    assert_eq!(
        decided(&policy, &[], 59, &options),
        (Action::Use, Reason::Fresh)
    );
    assert_eq!(
        decided(&policy, &[], 60, &options),
        (Action::Revalidate, Reason::Stale)
    );
    let decision = policy
        .view()
        .decide(&get(&HeaderMap::new()), NOW.plus(61), &options);
    assert_eq!(
        (decision.age, decision.lifetime, decision.ttl()),
        (61, 60, -1)
    );
}

#[test]
fn what_may_be_stored() {
    // RFC 9111, section 3.
    use Refusal as R;
    let status = |status| StatusCode::from_u16(status).unwrap();
    let fresh = "Cache-Control: max-age=60";
    for (code, request, response, private, shared) in [
        (200, &[][..], &[][..], None, None),
        (
            200,
            &[],
            &["Cache-Control: no-store, max-age=60"],
            Some(R::NoStore),
            Some(R::NoStore),
        ),
        (
            200,
            &["Cache-Control: no-store"],
            &[fresh],
            Some(R::RequestNoStore),
            Some(R::RequestNoStore),
        ),
        (
            200,
            &[],
            &["Cache-Control: private, max-age=60"],
            None,
            Some(R::Private),
        ),
        (
            200,
            &[],
            &["Cache-Control: private=\"x-a\", max-age=60"],
            None,
            None,
        ),
        (
            200,
            &[],
            &["Vary: *", fresh],
            Some(R::VaryNothing),
            Some(R::VaryNothing),
        ),
        (
            200,
            &[],
            &["Cache-Control: no-cache"],
            Some(R::NeverUsable),
            Some(R::NeverUsable),
        ),
        (
            200,
            &[],
            &["Cache-Control: no-cache", "ETag: \"1\""],
            None,
            None,
        ),
        (
            200,
            &[],
            &["Cache-Control: no-cache", "ETag: 1"],
            Some(R::NeverUsable),
            Some(R::NeverUsable),
        ),
        // Section 5.2.2.3.
        (
            200,
            &[],
            &["Cache-Control: no-store, must-understand, max-age=60"],
            None,
            None,
        ),
        (
            299,
            &[],
            &["Cache-Control: must-understand, max-age=60"],
            Some(R::NotUnderstood(status(299))),
            Some(R::NotUnderstood(status(299))),
        ),
        (299, &[], &[fresh], None, None),
        (
            302,
            &[],
            &[],
            Some(R::NotCacheable(status(302))),
            Some(R::NotCacheable(status(302))),
        ),
        (
            302,
            &[],
            &["Cache-Control: s-maxage=60"],
            Some(R::NotCacheable(status(302))),
            None,
        ),
        (404, &[], &[], None, None),
        (
            500,
            &[],
            &[],
            Some(R::NotCacheable(status(500))),
            Some(R::NotCacheable(status(500))),
        ),
        (500, &[], &[fresh], None, None),
        (
            304,
            &[],
            &[fresh],
            Some(R::Status(status(304))),
            Some(R::Status(status(304))),
        ),
        (
            103,
            &[],
            &[fresh],
            Some(R::Status(status(103))),
            Some(R::Status(status(103))),
        ),
        (
            416,
            &[],
            &[fresh],
            Some(R::Status(status(416))),
            Some(R::Status(status(416))),
        ),
        (
            206,
            &["Range: bytes=0-1"],
            &[fresh],
            Some(R::Range),
            Some(R::Range),
        ),
        (
            206,
            &["Range: bytes=0-1"],
            &[fresh, "Content-Range: bytes 0-1/9"],
            None,
            None,
        ),
        (
            206,
            &[],
            &[fresh, "Content-Range: bytes 0-1/9"],
            Some(R::Range),
            Some(R::Range),
        ),
        // Section 3.5. Without a secret, a private cache stores nothing that credentials got.
        (
            200,
            &["Authorization: A"],
            &[fresh],
            Some(R::NoSecret),
            Some(R::Authorization),
        ),
        (
            200,
            &["Authorization: A"],
            &["Cache-Control: public, max-age=60"],
            Some(R::NoSecret),
            None,
        ),
        (
            200,
            &["Authorization: A"],
            &["Cache-Control: s-maxage=60"],
            Some(R::NoSecret),
            None,
        ),
        (
            200,
            &["Authorization: A"],
            &["Cache-Control: must-revalidate, max-age=9"],
            Some(R::NoSecret),
            None,
        ),
        (200, &["Cookie: a=b"], &[fresh], None, None),
        (
            200,
            &["Cookie: a=b"],
            &[fresh, "Vary: cookie"],
            Some(R::NoSecret),
            Some(R::NoSecret),
        ),
        (200, &[], &[fresh, "Vary: cookie"], None, None),
    ] {
        for (options, expected) in [(Options::private(), private), (Options::shared(), shared)] {
            let refusal = policy_of(code, request, response, &options).err();
            assert_eq!(
                refusal, expected,
                "{code} {request:?} {response:?} {:?}",
                options.mode
            );
        }
    }
    let mut ignoring = Options::private();
    ignoring.ignore = true;
    assert_eq!(
        policy_of(200, &[], &[fresh], &ignoring).unwrap_err(),
        R::Ignored
    );
}

#[test]
fn methods_that_are_stored() {
    let options = Options::private();
    let of = |method: Method, lines: &[&str]| {
        let (request, response) = (HeaderMap::new(), headers(lines));
        let request = Request {
            method: &method,
            ..get(&request)
        };
        let response = Response {
            status: StatusCode::OK,
            headers: &response,
        };
        Policy::of(&request, &response, Times::at(NOW), &options).err()
    };
    let fresh = "Cache-Control: max-age=60";
    for method in [
        Method::HEAD,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::PATCH,
    ] {
        assert_eq!(of(method, &[fresh]), Some(Refusal::Method));
    }
    // RFC 9110, section 9.3.3.
    assert_eq!(of(Method::POST, &[fresh]), Some(Refusal::Method));
    assert_eq!(
        of(Method::POST, &[fresh, "Content-Location: /b"]),
        Some(Refusal::Method)
    );
    assert_eq!(
        of(Method::POST, &["Content-Location: /a"]),
        Some(Refusal::Method)
    );
    assert_eq!(of(Method::POST, &[fresh, "Content-Location: a"]), None);
}

#[test]
fn requests_narrow_and_widen() {
    // RFC 9111, section 5.2.1.
    use Action as A;
    use Reason as R;
    let options = Options::private();
    let lenient = stored(&["Cache-Control: max-age=60", "ETag: \"1\""], &options);
    let strict = stored(&["Cache-Control: max-age=60, must-revalidate"], &options);
    let never = stored(
        &["Cache-Control: max-age=60, no-cache", "ETag: \"1\""],
        &options,
    );
    for (policy, request, after, expected) in [
        (&lenient, "no-cache", 1, (A::Revalidate, R::RequestNoCache)),
        (&lenient, "max-age=0", 0, (A::Revalidate, R::RequestMaxAge)),
        (&lenient, "max-age=10", 9, (A::Use, R::Fresh)),
        (
            &lenient,
            "max-age=10",
            10,
            (A::Revalidate, R::RequestMaxAge),
        ),
        (&lenient, "max-age=x", 0, (A::Revalidate, R::RequestMaxAge)),
        (&lenient, "min-fresh=10", 50, (A::Use, R::Fresh)),
        (&lenient, "min-fresh=10", 51, (A::Revalidate, R::MinFresh)),
        (&lenient, "max-stale", 1_000_000, (A::Use, R::MaxStale)),
        (&lenient, "max-stale=10", 70, (A::Use, R::MaxStale)),
        (&lenient, "max-stale=10", 71, (A::Revalidate, R::Stale)),
        (
            &lenient,
            "max-stale, max-age=65",
            65,
            (A::Revalidate, R::RequestMaxAge),
        ),
        (&lenient, "max-stale, max-age=65", 64, (A::Use, R::MaxStale)),
        (&lenient, "only-if-cached", 59, (A::Use, R::Fresh)),
        (
            &lenient,
            "only-if-cached",
            60,
            (A::GatewayTimeout, R::Stale),
        ),
        (
            &lenient,
            "only-if-cached, max-stale",
            60,
            (A::Use, R::MaxStale),
        ),
        (&lenient, "no-store", 1, (A::Use, R::Fresh)),
        (&strict, "max-stale", 59, (A::Use, R::Fresh)),
        (&strict, "max-stale", 60, (A::Revalidate, R::Stale)),
        (&never, "max-stale", 1, (A::Revalidate, R::NoCache)),
    ] {
        let line = format!("Cache-Control: {request}");
        assert_eq!(
            decided(policy, &[&line], after, &options),
            expected,
            "{request} after {after}"
        );
    }
    // Pragma is not a directive any more (section 5.4).
    assert_eq!(
        decided(&lenient, &["Pragma: no-cache"], 1, &options),
        (A::Use, R::Fresh)
    );
}

#[test]
fn a_reload_sends_nothing_for_what_never_changes() {
    // RFC 8246, section 2.
    use Action as A;
    use Reason as R;
    let options = Options::private();
    let policy = stored(
        &["Cache-Control: max-age=60, immutable", "ETag: \"1\""],
        &options,
    );
    let of = |request: &str, after| {
        decided(
            &policy,
            &[&format!("Cache-Control: {request}")],
            after,
            &options,
        )
    };
    assert_eq!(of("max-age=0", 59), (A::Use, R::Fresh));
    assert_eq!(of("max-age=0", 60), (A::Revalidate, R::RequestMaxAge));
    assert_eq!(of("max-age=5", 6), (A::Revalidate, R::RequestMaxAge));
    assert_eq!(of("no-cache", 1), (A::Revalidate, R::RequestNoCache));
}

#[test]
fn stale_responses_within_their_windows() {
    // RFC 5861, sections 3 and 4.
    use Action as A;
    use Reason as R;
    let options = Options::private();
    let policy = stored(
        &["Cache-Control: max-age=60, stale-while-revalidate=10, stale-if-error=20"],
        &options,
    );
    let behind = (A::UseAndRevalidate, R::StaleWhileRevalidate);
    assert_eq!(decided(&policy, &[], 69, &options), behind);
    assert_eq!(
        decided(&policy, &[], 70, &options),
        (A::Revalidate, R::Stale)
    );
    let alone = &["Cache-Control: only-if-cached"];
    assert_eq!(
        decided(&policy, alone, 69, &options),
        (A::Use, R::StaleWhileRevalidate)
    );

    let covers = |policy: &Policy, request: &[&str], failure, after, options: &Options| {
        let request = headers(request);
        policy
            .view()
            .covers(&get(&request), failure, NOW.plus(after), options)
    };
    let status = |code| Failure::Status(StatusCode::from_u16(code).unwrap());
    for (failure, after, expected) in [
        (status(500), 79, true),
        (status(503), 79, true),
        (status(503), 80, false),
        (status(501), 61, false),
        (status(404), 61, false),
        (Failure::Disconnected, 80, true),
        (Failure::Disconnected, 60 + 86_399, true),
        (Failure::Disconnected, 60 + 86_400, false),
    ] {
        assert_eq!(
            covers(&policy, &[], failure, after, &options),
            expected,
            "{failure:?} {after}"
        );
    }
    let plain = stored(&["Cache-Control: max-age=60"], &options);
    assert!(!covers(&plain, &[], status(503), 61, &options));
    assert!(covers(
        &plain,
        &["Cache-Control: stale-if-error=9"],
        status(503),
        61,
        &options
    ));
    let mut lasting = Options::private();
    (lasting.stale_if_error, lasting.stale_when_disconnected) = (Some(9), None);
    assert!(covers(&plain, &[], status(503), 68, &lasting));
    // Who asks too often is bridged only where the options say so.
    assert!(covers(&plain, &[], status(429), 68, &lasting));
    assert!(!covers(&plain, &[], status(429), 69, &lasting));
    assert!(!covers(&policy, &[], status(429), 61, &options));
    assert!(!covers(&plain, &[], Failure::Disconnected, 69, &lasting));

    // What must be validated is never stale (RFC 9111, section 4.2.4).
    for (line, mode) in [
        (
            "max-age=1, stale-if-error=99, stale-while-revalidate=99, must-revalidate",
            None,
        ),
        (
            "max-age=1, stale-if-error=99, stale-while-revalidate=99, no-cache",
            None,
        ),
        (
            "max-age=1, stale-if-error=99, stale-while-revalidate=99, proxy-revalidate",
            Some(()),
        ),
        (
            "s-maxage=1, stale-if-error=99, stale-while-revalidate=99",
            Some(()),
        ),
    ] {
        let options = mode.map_or_else(Options::private, |()| Options::shared());
        let line = format!("Cache-Control: {line}");
        let policy = stored(&[&line, "ETag: \"1\""], &options);
        assert_eq!(
            decided(&policy, &[], 2, &options).0,
            A::Revalidate,
            "{line}"
        );
        assert!(
            !covers(&policy, &[], Failure::Disconnected, 2, &options),
            "{line}"
        );
    }
}

#[test]
fn overrides_count_more_than_responses() {
    use Action as A;
    use Reason as R;
    let plain = Options::private();
    let policy = stored(&["Cache-Control: max-age=60", "ETag: \"1\""], &plain);
    let with = |change: fn(&mut Options)| {
        let mut options = Options::private();
        change(&mut options);
        options
    };
    let least = with(|options| options.min_lifetime = Some(100));
    assert_eq!(decided(&policy, &[], 99, &least), (A::Use, R::Fresh));
    let most = with(|options| options.max_lifetime = Some(10));
    assert_eq!(decided(&policy, &[], 10, &most), (A::Revalidate, R::Stale));
    let offline = with(|options| options.offline = true);
    assert_eq!(
        decided(&policy, &[], 1_000_000, &offline),
        (A::Use, R::Offline)
    );
    let other = &["If-Match: \"1\""];
    assert_eq!(
        decided(&policy, other, 1, &offline),
        (A::GatewayTimeout, R::Precondition)
    );
    let ignore = with(|options| options.ignore = true);
    assert_eq!(decided(&policy, &[], 1, &ignore), (A::Forward, R::Ignored));

    let negative = with(|options| options.negative_lifetime = Some(30));
    let missing = policy_of(404, &[], &[], &negative).unwrap();
    assert_eq!(decided(&missing, &[], 29, &negative), (A::Use, R::Fresh));
    let own = policy_of(404, &[], &["Cache-Control: max-age=5"], &negative).unwrap();
    assert_eq!(decided(&own, &[], 5, &negative), (A::Revalidate, R::Stale));
    assert_eq!(stored(&[], &negative).view().lifetime(&negative), 0);

    let shared = Options::shared();
    assert_eq!(decided(&policy, &[], 1, &shared), (A::Forward, R::Mode));
}

#[test]
fn selecting_fields_decide() {
    // RFC 9111, section 4.1.
    let options = Options::private();
    let lines = &[
        "Cache-Control: max-age=60",
        "Vary: Accept, Foo",
        "Vary: bar",
    ];
    let policy = policy_of(
        200,
        &["Accept: a/b, C/d", "Foo: 1", "Foo: 2"],
        lines,
        &options,
    )
    .unwrap();
    let matches = |request: &[&str]| decided(&policy, request, 1, &options).0 == Action::Use;
    assert!(matches(&["Accept: c/d,A/B", "Foo: 1,2"]));
    assert!(matches(&[
        "accept: c/d",
        "accept: a/b",
        "foo: 1 , 2",
        "Other: x"
    ]));
    assert!(!matches(&["Accept: c/d,a/b", "Foo: 1"]));
    assert!(!matches(&["Accept: c/d,a/b", "Foo: 1,2,3"]));
    assert!(!matches(&["Accept: c/d,a/b"]));
    assert!(!matches(&["Accept: c/d,a/b", "Foo: 1,2", "Bar: "]));
    assert_eq!(
        decided(&policy, &[], 1, &options),
        (Action::Forward, Reason::Vary)
    );
}

#[test]
fn credentials_are_digested() {
    let mut options = Options::private();
    options.secret = Some(Secret::new([7; 16]));
    let fresh = &["Cache-Control: max-age=60", "Vary: Cookie"];
    let request = &["Authorization: Bearer hush-hush", "Cookie: id=hush-hush"];
    let policy = policy_of(200, request, fresh, &options).unwrap();
    let text = String::from_utf8_lossy(policy.as_bytes());
    assert!(!text.contains("hush"));
    assert!(!format!("{policy:?} {:?}", policy.view()).contains("hush"));
    let explained = policy
        .view()
        .explain(&get(&headers(request)), NOW, &options);
    assert!(!explained.contains("hush"));
    assert!(
        explained.contains("depends on the request's authorization, cookie"),
        "{explained}"
    );

    let matches = |request: &[&str], options: &Options| {
        decided(&policy, request, 1, options).0 == Action::Use
    };
    assert!(matches(request, &options));
    assert!(!matches(
        &["Authorization: Bearer other", "Cookie: id=hush-hush"],
        &options
    ));
    assert!(!matches(&["Cookie: id=hush-hush"], &options));
    assert!(!matches(&["Authorization: Bearer hush-hush"], &options));
    // Another cache's secret, or none.
    let mut other = options.clone();
    other.secret = Some(Secret::new([8; 16]));
    assert!(!matches(request, &other));
    other.secret = None;
    assert!(!matches(request, &other));
}

#[test]
fn fields_of_the_connection_are_not_stored() {
    // RFC 9111, section 3.1.
    let lines = &[
        "Cache-Control: max-age=60, private=\"x-private\"",
        "Cache-Control: no-cache=\"set-cookie, x-held\"",
        "Connection: x-hop, close",
        "Keep-Alive: 5",
        "Proxy-Authenticate: Basic",
        "TE: trailers",
        "Transfer-Encoding: chunked",
        "Upgrade: h2c",
        "Age: 3",
        "X-Hop: 1",
        "X-Private: 1",
        "X-Held: 1",
        "Set-Cookie: a=b",
        "Set-Cookie: c=d",
        "X-Kept: 1",
    ];
    let names = |options: &Options, validated| -> Vec<String> {
        let policy = stored(lines, options);
        let headers = policy.view().headers(validated);
        let mut names: Vec<_> = headers.iter().map(|(name, _)| name.to_string()).collect();
        names.sort();
        names
    };
    // A date is added (RFC 9110, section 6.6.1).
    let plain = ["cache-control", "cache-control", "date", "x-kept"];
    assert_eq!(names(&Options::shared(), false), plain);
    let held = [
        "cache-control",
        "cache-control",
        "date",
        "set-cookie",
        "set-cookie",
        "x-held",
        "x-kept",
    ];
    assert_eq!(names(&Options::shared(), true), held);
    assert!(names(&Options::private(), false).contains(&"x-private".to_owned()));
}

#[test]
fn conditions_of_clients() {
    // RFC 9111, section 4.3.2.
    let options = Options::private();
    let before = "If-Modified-Since: Tue, 14 Nov 2023 21:13:19 GMT";
    let then = "If-Modified-Since: Tue, 14 Nov 2023 21:13:20 GMT";
    let tagged = stored(&[DATE, HOUR_BEFORE, "ETag: W/\"1\""], &options);
    let dated = stored(&[DATE, HOUR_BEFORE], &options);
    let bare = stored(&[DATE], &options);
    for (policy, request, expected) in [
        (&tagged, &["If-None-Match: \"0\", W/\"1\""][..], true),
        (&tagged, &["If-None-Match: \"1\""], true),
        (
            &tagged,
            &["If-None-Match: \"0\"", "If-None-Match: \"1\""],
            true,
        ),
        (&tagged, &["If-None-Match: *"], true),
        (&tagged, &["If-None-Match: 1"], false),
        (&tagged, &["If-None-Match: \"0\"", then], false),
        (&tagged, &["If-None-Match: \"1\"", before], true),
        (&dated, &[then], true),
        (&dated, &[before], false),
        (&dated, &["If-Modified-Since: then"], false),
        (&dated, &["If-None-Match: \"1\"", then], false),
        (&bare, &[then], false),
        (
            &bare,
            &["If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT"],
            true,
        ),
    ] {
        let reply = policy.view().reply(&get(&headers(request)), NOW);
        let expected = if expected {
            Reply::NotModified
        } else {
            Reply::Whole
        };
        assert_eq!(reply, expected, "{request:?}");
    }
    // Conditions for the origin go to the origin.
    for line in [
        "If-Match: \"1\"",
        "If-Unmodified-Since: Tue, 14 Nov 2023 21:13:20 GMT",
    ] {
        let forward = (Action::Forward, Reason::Precondition);
        assert_eq!(decided(&tagged, &[line], 1, &options), forward);
    }
}

#[test]
fn ranges_of_a_whole() {
    // RFC 9110, section 14.
    let options = Options::private();
    let body = brisk_http::BodyName::of(b"0123456789");
    let of = |lines: &[&str]| stored(lines, &options).with_body(body).unwrap();
    let tagged = of(&[
        "Cache-Control: max-age=60",
        "ETag: \"1\"",
        DATE,
        HOUR_BEFORE,
    ]);
    let weak = of(&["Cache-Control: max-age=60", "ETag: W/\"1\""]);
    let part = |first, last| Reply::Part {
        first,
        last,
        complete: Some(10),
        stored_from: 0,
    };
    let missing = Reply::NotSatisfiable { complete: 10 };
    for (policy, request, expected) in [
        (&tagged, &["Range: bytes=2-4"][..], part(2, 4)),
        (&tagged, &["Range: bytes=8-99"], part(8, 9)),
        (&tagged, &["Range: bytes=-3"], part(7, 9)),
        (&tagged, &["Range: bytes=10-"], missing),
        (&tagged, &["Range: bytes=0-1,3-4"], Reply::Whole),
        (&tagged, &["Range: lines=0-1"], Reply::Whole),
        (
            &tagged,
            &["Range: bytes=2-4", "If-Range: \"1\""],
            part(2, 4),
        ),
        (
            &tagged,
            &["Range: bytes=2-4", "If-Range: \"2\""],
            Reply::Whole,
        ),
        (
            &tagged,
            &["Range: bytes=2-4", "If-Range: W/\"1\""],
            Reply::Whole,
        ),
        (
            &weak,
            &["Range: bytes=2-4", "If-Range: W/\"1\""],
            Reply::Whole,
        ),
        (
            &tagged,
            &[
                "Range: bytes=2-4",
                "If-Range: Tue, 14 Nov 2023 21:13:20 GMT",
            ],
            part(2, 4),
        ),
        (
            &tagged,
            &[
                "Range: bytes=2-4",
                "If-Range: Tue, 14 Nov 2023 21:13:21 GMT",
            ],
            Reply::Whole,
        ),
        (
            &tagged,
            &["Range: bytes=2-4", "If-None-Match: \"1\""],
            Reply::NotModified,
        ),
    ] {
        let reply = policy.view().reply(&get(&headers(request)), NOW);
        assert_eq!(reply, expected, "{request:?}");
    }
}

#[test]
fn ranges_of_a_part() {
    // RFC 9111, section 3.3.
    let options = Options::private();
    let lines = &[
        "Cache-Control: max-age=60",
        "Content-Range: bytes 4-7/10",
        "ETag: \"1\"",
    ];
    let policy = policy_of(206, &["Range: bytes=4-7"], lines, &options).unwrap();
    let wrong = policy
        .clone()
        .with_body(brisk_http::BodyName::of(b"456"))
        .unwrap_err();
    assert_eq!(
        wrong,
        Refusal::BodyLength {
            expected: 4,
            found: 3
        }
    );
    let policy = policy.with_body(brisk_http::BodyName::of(b"4567")).unwrap();
    for (request, fits) in [
        (&["Range: bytes=4-7"][..], true),
        (&["Range: bytes=5-6"], true),
        (&["Range: bytes=5-6", "If-Range: \"1\""], true),
        (&["Range: bytes=5-6", "If-Range: \"2\""], false),
        (&["Range: bytes=4-8"], false),
        (&["Range: bytes=3-7"], false),
        (&["Range: bytes=4-"], false),
        (&["Range: bytes=-3"], false),
        (&[], false),
    ] {
        let expected = match fits {
            true => (Action::Use, Reason::Fresh),
            false => (Action::Forward, Reason::Partial),
        };
        assert_eq!(
            decided(&policy, request, 1, &options),
            expected,
            "{request:?}"
        );
    }
    // A part has no condition of its own, and one that does not begin the whole cannot be completed.
    assert!(policy.view().validators().is_empty());
    assert_eq!(policy.view().completion(), None);
}

#[test]
fn a_304_updates_fields_and_leaves_the_body() {
    // RFC 9111, sections 3.2 and 4.3.4.
    let options = Options::private();
    let body = brisk_http::BodyName::of(b"a page");
    let old = stored(
        &[
            "Cache-Control: max-age=60",
            "ETag: \"1\"",
            "Content-Length: 6",
            "Content-Encoding: identity",
            "X-A: old",
            "X-A: older",
            "X-B: kept",
            "Age: 50",
            DATE,
        ],
        &options,
    )
    .with_body(body)
    .unwrap();
    let later = NOW.plus(100);
    let update = |lines: &[&str]| {
        old.view().validated(
            &get(&HeaderMap::new()),
            &headers(lines),
            Times::at(later),
            &options,
        )
    };
    let new = update(&[
        "ETag: \"1\"",
        "Cache-Control: max-age=90",
        "Content-Length: 0",
        "Content-Encoding: gzip",
        "X-A: new",
        "Connection: x-hop",
        "X-Hop: 1",
    ])
    .unwrap();
    let view = new.view();
    assert_eq!(view.body(), body);
    assert_eq!((view.age(later), view.lifetime(&options)), (0, 90));
    let fields = view.headers(true);
    let all = |name: &str| {
        fields
            .get_all(name)
            .iter()
            .map(|v| v.to_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(all("x-a"), ["new"]);
    assert_eq!(all("x-b"), ["kept"]);
    assert_eq!(all("content-length"), ["6"]);
    assert_eq!(all("content-encoding"), ["identity"]);
    assert_eq!(all("date"), ["Tue, 14 Nov 2023 22:15:00 GMT"]);
    assert!(all("connection").is_empty() && all("age").is_empty());
    // A rewritten policy is small, whatever the body is.
    assert!(new.as_bytes().len() < 512, "{}", new.as_bytes().len());

    assert_eq!(update(&["ETag: \"2\""]).unwrap_err(), NotUpdated::Other);
    assert_eq!(update(&["ETag: W/\"2\""]).unwrap_err(), NotUpdated::Other);
    assert!(update(&["ETag: W/\"1\""]).is_ok());
    assert!(update(&[]).is_ok());
    let refused = update(&["ETag: \"1\"", "Cache-Control: no-store"]).unwrap_err();
    assert_eq!(refused, NotUpdated::Refused(Refusal::NoStore));
}

#[test]
fn an_update_must_allow_to_store_what_credentials_got() {
    // RFC 9111, section 3.5: the new fields decide, as they do for a new response.
    let options = Options::shared();
    let (asked, none) = (headers(&["Authorization: Basic a"]), HeaderMap::new());
    let lines = &["Cache-Control: max-age=60, public", "ETag: \"1\""];
    let policy = policy_of(200, &["Authorization: Basic a"], lines, &options).unwrap();
    for (control, refusal) in [
        ("max-age=60", Some(Refusal::Authorization)),
        ("max-age=60, private", Some(Refusal::Private)),
        ("max-age=60, must-revalidate", None),
        ("s-maxage=60", None),
        ("public", None),
    ] {
        let line = format!("Cache-Control: {control}");
        let new = headers(&[&line]);
        let times = Times::at(NOW.plus(60));
        let updated = |asked| policy.view().validated(&get(asked), &new, times, &options);
        let expected = refusal.map(NotUpdated::Refused);
        assert_eq!(updated(&asked).err(), expected, "{control}");
        // Nobody's credentials got this one.
        if refusal != Some(Refusal::Private) {
            assert!(updated(&none).is_ok(), "{control}");
        }
    }
    // A 304 that says nothing leaves what the stored response says.
    assert!(
        policy
            .view()
            .validated(&get(&asked), &none, Times::at(NOW), &options)
            .is_ok()
    );
    // RFC 9111, section 5.2.2.3.
    let policy = policy_of(
        599,
        &[],
        &["Cache-Control: max-age=60", "ETag: \"1\""],
        &options,
    )
    .unwrap();
    let new = headers(&["Cache-Control: max-age=60, must-understand"]);
    let refused = policy
        .view()
        .validated(&get(&none), &new, Times::at(NOW), &options)
        .unwrap_err();
    let status = StatusCode::from_u16(599).unwrap();
    assert_eq!(refused, NotUpdated::Refused(Refusal::NotUnderstood(status)));
}

#[test]
fn a_head_updates_or_invalidates() {
    // RFC 9111, section 4.3.5.
    let options = Options::private();
    let body = brisk_http::BodyName::of(b"a page");
    let old = stored(&["Cache-Control: max-age=60", "ETag: \"1\""], &options)
        .with_body(body)
        .unwrap();
    let update = |status: u16, lines: &[&str]| {
        let lines = headers(lines);
        let head = Response {
            status: StatusCode::from_u16(status).unwrap(),
            headers: &lines,
        };
        let request = HeaderMap::new();
        let request = Request {
            method: &Method::HEAD,
            ..get(&request)
        };
        old.view()
            .updated_by_head(&request, &head, Times::at(NOW.plus(70)), &options)
    };
    let fresh = "Cache-Control: max-age=90";
    let new = update(200, &[fresh, "ETag: \"1\"", "Content-Length: 6"]).unwrap();
    assert_eq!(
        decided(&new, &[], 70 + 89, &options),
        (Action::Use, Reason::Fresh)
    );
    assert!(update(200, &[fresh]).is_ok());
    for (status, line) in [
        (200, "ETag: \"2\""),
        (200, "Content-Length: 7"),
        (200, "Last-Modified: Tue, 14 Nov 2023 21:13:20 GMT"),
        (410, "ETag: \"1\""),
    ] {
        assert_eq!(
            update(status, &[line]).unwrap_err(),
            NotUpdated::Other,
            "{status} {line}"
        );
    }
}

#[test]
fn explanations_are_in_words() {
    let options = Options::private();
    let lines = &[
        "Cache-Control: max-age=60, immutable",
        "ETag: \"1\"",
        "Vary: Accept",
    ];
    let policy = stored(lines, &options)
        .with_body(brisk_http::BodyName::of(b"a page"))
        .unwrap();
    let explain = |after| {
        policy
            .view()
            .explain(&get(&HeaderMap::new()), NOW.plus(after), &options)
    };
    assert_eq!(
        explain(20),
        "used without asking the origin, because it is fresh\n\
         status 200, age 20 s, lifetime 60 s (from max-age), fresh for 40 s\n\
         validated by a strong entity tag\n\
         depends on the request's accept\n\
         immutable: a reload does not ask for it while it is fresh\n\
         body of 6 bytes"
    );
    assert!(explain(61).starts_with("revalidated with the origin, because it is stale\n"));
    assert!(explain(61).contains("stale for 1 s"));
}

#[test]
fn a_stored_policy_is_read_at_any_alignment() {
    let options = Options::private();
    let policy = stored(&["Cache-Control: max-age=60"], &options);
    for shift in 0..9 {
        let mut bytes = vec![0; shift];
        bytes.extend_from_slice(policy.as_bytes());
        let view = StoredPolicy::view(&bytes[shift..]).unwrap();
        assert_eq!(view.fields().count(), 2);
    }
}
