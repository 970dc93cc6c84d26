//! The pages under `/-/`.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Response, StatusCode};

use crate::body::{Body, empty, full};
use crate::exposition::{self, CacheSize};
use crate::map::Maps;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::status_page::{self, LargeEntry};

/// What the proxy shows of itself.
#[derive(Debug)]
pub struct OwnPages {}

impl OwnPages {
    /// The page of a path.
    pub fn answer(
        &self,
        method: &Method,
        path: &str,
        maps: &Maps,
        metrics: &Metrics,
    ) -> Result<Response<Body>, Problem> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "the pages under /-/ can only be read",
            ));
        }
        let size: Option<CacheSize> = None;
        let (kind, text) = match path {
            "/-/" => {
                let largest: [LargeEntry; 0] = [];
                let html = status_page::html(&metrics.total(), maps, size, &largest);
                ("text/html; charset=utf-8", html)
            }
            "/-/metrics" => (
                exposition::CONTENT_TYPE,
                exposition::text(&metrics.total(), size),
            ),
            _ => {
                return Err(Problem::new(
                    StatusCode::NOT_FOUND,
                    "there is no such page; /-/ and /-/metrics exist",
                ));
            }
        };
        let text = Bytes::from(text);
        let mut response = Response::new(match *method {
            Method::HEAD => empty(),
            _ => full(text),
        });
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(
                "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
            ),
        );
        Ok(response)
    }
}
