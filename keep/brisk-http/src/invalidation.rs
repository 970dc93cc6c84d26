use http::header::{CONTENT_LOCATION, LOCATION};
use http::{HeaderMap, Method, StatusCode};

use crate::target::Target;

/// The keys of the responses that are no longer valid after a response to an unsafe method (RFC 9111, section 4.4): of
/// the target, and of `Location` and `Content-Location` if they have its origin. None for a safe method or an error.
///
/// They must be gone from the store before the response is passed on.
pub fn invalidates(
    method: &Method,
    url: &str,
    status: StatusCode,
    headers: &HeaderMap,
) -> Vec<String> {
    let Some(target) = Target::parse(url) else {
        return Vec::new();
    };
    if is_safe(method) || !(status.is_success() || status.is_redirection()) {
        return Vec::new();
    }
    let mut keys = vec![target.as_str().to_owned()];
    for name in [&LOCATION, &CONTENT_LOCATION] {
        let other = headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .and_then(|reference| target.join(reference));
        if let Some(other) = other
            && other.has_origin_of(&target)
            && !keys.iter().any(|key| key == other.as_str())
        {
            keys.push(other.as_str().to_owned());
        }
    }
    keys
}

/// Whether a method changes nothing (RFC 9110, section 9.2.1). One that is not known to be safe counts as unsafe.
pub(crate) fn is_safe(method: &Method) -> bool {
    // RFC 4918, RFC 3253 and RFC 5323. Their answers depend on the body of the request, so they are never stored.
    method.is_safe() || matches!(method.as_str(), "PROPFIND" | "REPORT" | "SEARCH")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn what_an_unsafe_method_changed_goes() {
        let url = "http://example.org/a/b";
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, HeaderValue::from_static("c"));
        headers.insert(
            CONTENT_LOCATION,
            HeaderValue::from_static("http://example.net/x"),
        );
        let keys = |method: &[u8], status: u16| {
            let method = Method::from_bytes(method).unwrap();
            let status = StatusCode::from_u16(status).unwrap();
            invalidates(&method, url, status, &headers)
        };
        let both = ["http://example.org/a/b", "http://example.org/a/c"];
        for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH"] {
            for status in [200, 201, 204, 302] {
                assert_eq!(keys(method.as_bytes(), status), both, "{method} {status}");
            }
            for status in [400, 404, 500] {
                assert_eq!(
                    keys(method.as_bytes(), status).len(),
                    0,
                    "{method} {status}"
                );
            }
        }
        for method in [
            "GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH",
        ] {
            assert_eq!(keys(method.as_bytes(), 207).len(), 0, "{method}");
        }
    }
}
