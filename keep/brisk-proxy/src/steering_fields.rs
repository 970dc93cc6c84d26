//! Fields with which a client tells an upstream to answer another request than the one that it sends: from another host, for
//! another path, with another method.
//!
//! Upstreams and what stands before them believe such fields, and say what they believe in links and redirects. No cache has
//! them in its key, so an answer to one client would be the answer to all.

use http::{HeaderMap, HeaderName};

/// How names of such fields begin.
const STARTS: [&str; 10] = [
    "x-accel-",
    "x-envoy-",
    "x-forwarded",
    "x-http-method",
    "x-invoke-",
    "x-middleware-",
    "x-original-",
    "x-override-",
    "x-proxy-",
    "x-rewrite-",
];

/// Whole names of others.
const NAMES: [&str; 32] = [
    "base-url",
    "cf-connecting-ip",
    "client-ip",
    "fastly-client-ip",
    "forwarded",
    "front-end-https",
    "proxy",
    "proxy-host",
    "request-uri",
    "true-client-ip",
    "uri",
    "url",
    "x-arr-ssl",
    "x-backend-host",
    "x-base-url",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forward-for",
    "x-forward-proto",
    "x-host",
    "x-host-override",
    "x-http-host-override",
    "x-method-override",
    "x-originating-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-request-uri",
    "x-scheme",
    "x-script-name",
    "x-url-scheme",
    "x-wap-profile",
];

/// Removes such fields, but those that the operator lets pass.
pub fn remove(headers: &mut HeaderMap, passed: &[HeaderName]) {
    let steering: Vec<HeaderName> = headers
        .keys()
        .filter(|name| steers(name.as_str()) && !passed.contains(name))
        .cloned()
        .collect();
    for name in steering {
        headers.remove(name);
    }
}

fn steers(name: &str) -> bool {
    NAMES.binary_search(&name).is_ok() || STARTS.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn what_steers_an_upstream_is_removed_unless_it_is_let_pass() {
        assert!(NAMES.is_sorted());
        let mut headers = HeaderMap::new();
        for name in [
            "x-forwarded-host",
            "x-forwarded",
            "forwarded",
            "x-original-url",
            "x-rewrite-url",
            "x-http-method-override",
            "x-real-ip",
            "x-request-id",
            "private-token",
            "accept",
        ] {
            headers.append(name, HeaderValue::from_static("1"));
            headers.append(name, HeaderValue::from_static("2"));
        }
        remove(&mut headers, &[HeaderName::from_static("x-real-ip")]);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(
            left,
            ["accept", "private-token", "x-real-ip", "x-request-id"]
        );
    }
}
