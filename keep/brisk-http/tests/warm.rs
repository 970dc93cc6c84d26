//! A decision on stored bytes allocates nothing.

use std::alloc::System;

use brisk_http::{Action, Options, Policy, Request, Response, Secret, Times, Timestamp, Variants};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_decision_allocates_nothing() {
    let now = Timestamp::from_unix(1_700_000_000);
    let mut options = Options::private();
    options.secret = Some(Secret::new([1; 16]));
    let mut asked = HeaderMap::new();
    for (name, value) in [
        ("accept", "application/json, text/html;q=0.5"),
        ("accept-encoding", "gzip, br"),
        ("authorization", "Bearer something"),
        ("cache-control", "max-stale=5, min-fresh=1"),
        ("if-none-match", "\"0\", \"1\""),
        ("range", "bytes=0-1"),
        ("x-tenant", "a, b"),
    ] {
        asked.insert(name, HeaderValue::from_static(value));
    }
    let request = Request {
        method: &Method::GET,
        url: "https://example.org/a",
        headers: &asked,
    };
    let mut fields = HeaderMap::new();
    for (name, value) in [
        ("cache-control", "max-age=60, stale-while-revalidate=10"),
        ("etag", "\"1\""),
        (
            "vary",
            "accept, accept-encoding, authorization, x-tenant, x-absent",
        ),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    let response = Response {
        status: StatusCode::OK,
        headers: &fields,
    };
    let policy = Policy::of(&request, &response, Times::at(now), &options).unwrap();
    let bytes = Variants::with(None, &policy, &asked, options.secret.as_ref());

    let region = Region::new(ALLOCATOR);
    let mut actions = [Action::Forward; 4];
    for (action, after) in actions.iter_mut().zip([1, 59, 65, 99]) {
        let variants = Variants::view(&bytes).unwrap();
        let (_, policy) = variants.select(&asked, options.secret.as_ref()).unwrap();
        *action = policy.decide(&request, now.plus(after), &options).action;
        policy.reply(&request, now);
        policy.validators();
    }
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0));
    assert_eq!(
        actions,
        [
            Action::Use,
            Action::Use,
            Action::Revalidate,
            Action::Revalidate
        ]
    );
}
