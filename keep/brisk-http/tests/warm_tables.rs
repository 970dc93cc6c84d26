//! A hit of a table allocates nothing, but for the keys of a long URL. A binary of its own, because it counts allocations.

use std::alloc::System;
use std::convert::Infallible;

use brisk_cache::{Cache, CacheOptions, Stored, fingerprint};
use brisk_http::{CacheLayer, Options, Request, TableInput, TableOptions};
use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body_util::{Empty, Full};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tower::{Layer, service_fn};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

struct Text;

impl Stored for Text {
    const FINGERPRINT: u64 = fingerprint("a text");
    type View<'a> = &'a str;

    fn view(bytes: &[u8]) -> Option<&str> {
        std::str::from_utf8(bytes).ok()
    }
}

#[test]
fn a_hit_allocates_nothing() {
    let home = tempfile::tempdir().unwrap();
    // SAFETY: only this test and the crates that it tests write to the directory.
    #[allow(unsafe_code, reason = "the promise that open_mapped asks for")]
    let cache =
        unsafe { Cache::open_mapped(&home.path().join("http"), CacheOptions::new()) }.unwrap();
    let layer = CacheLayer::build(cache, Options::private()).finish();
    let url = "http://localhost:8080/simple/some/";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let origin = service_fn(async |_: http::Request<_>| {
            let response = Response::builder()
                .header("cache-control", "max-age=600")
                .header("vary", "accept, accept-encoding");
            Ok::<_, Infallible>(response.body(Full::new(Bytes::from("a page"))).unwrap())
        });
        let request = http::Request::get(url)
            .header("accept", "text/html")
            .body(Empty::<Bytes>::new())
            .unwrap();
        let make = |input: &TableInput<'_>| Ok::<_, Infallible>(input.body.to_vec());
        let client = layer.layer(origin);
        client
            .get_as::<Text, _, _>(request, &TableOptions::default(), make)
            .await
            .unwrap();
    });
    let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/html"))]);
    let request = Request {
        method: &Method::GET,
        url,
        headers: &headers,
    };
    // The first hits of a handle open its files and check the chunk.
    for _ in 0..3 {
        assert_eq!(
            layer.find_as::<Text>(&request).unwrap().view().unwrap(),
            "a page"
        );
    }
    let region = Region::new(ALLOCATOR);
    let found = layer.find_as::<Text>(&request).unwrap();
    let len = found.view().unwrap().len();
    let change = region.change();
    assert_eq!(len, 6);
    assert_eq!((change.allocations, change.reallocations), (0, 0));
    let other = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
    let request = Request {
        headers: &other,
        ..request
    };
    assert!(layer.find_as::<Text>(&request).is_none());
}
