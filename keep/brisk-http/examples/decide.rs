//! Says for how long an answer may be used again: `cargo run -p brisk-http --example decide -- 'max-age=60, immutable'`.

use std::env;

use brisk_http::{Options, Policy, Request, Response, StoredPolicy, Times, Timestamp};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directives = env::args().nth(1).ok_or("usage: decide CACHE-CONTROL")?;
    let none = HeaderMap::new();
    let request = Request {
        method: &Method::GET,
        url: "https://example.org/",
        headers: &none,
    };
    let mut fields = HeaderMap::new();
    fields.insert("cache-control", HeaderValue::from_str(&directives)?);
    let response = Response {
        status: StatusCode::OK,
        headers: &fields,
    };
    let options = Options::private();
    let noon = Timestamp::from_unix(1_700_000_000);
    let policy = Policy::of(&request, &response, Times::at(noon), &options)?;
    let stored = StoredPolicy::view(policy.as_bytes()).ok_or("the bytes are those of a policy")?;
    for seconds in [0, 59, 60, 3600, 86_400] {
        let decision = stored.decide(&request, noon.plus(seconds), &options);
        println!("after {seconds:>5} s: {:?}", decision.action);
    }
    Ok(())
}
