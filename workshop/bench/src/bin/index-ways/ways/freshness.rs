//! What a way of its own must know of a response to decide whether it is fresh.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use http::header::{CACHE_CONTROL, ETAG};
use http::{HeaderMap, Request, Response, StatusCode};
use http_cache_semantics::CachePolicy;

/// A request for a page, as it is sent.
pub(super) fn request(url: &str) -> Result<Request<()>> {
    Ok(Request::get(url)
        .header(http::header::ACCEPT, super::ACCEPT)
        .body(())?)
}

/// The two facts that suffice for responses of an index that has entity tags. They say nothing of `Vary`, of the request,
/// or of fields to give back, which brisk-http and uv-client store and compare.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// In seconds since 1970.
    pub(super) fresh_until: i64,
    pub(super) tag: String,
}

impl Facts {
    pub(super) fn of(url: &str, headers: &HeaderMap) -> Result<Self> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::OK;
        *response.headers_mut() = headers.clone();
        let now = SystemTime::now();
        let left = match headers.contains_key(CACHE_CONTROL) {
            true => CachePolicy::new(&request(url)?, &response).time_to_live(now),
            false => Duration::ZERO,
        };
        let tag = headers.get(ETAG).and_then(|tag| tag.to_str().ok());
        Ok(Self {
            fresh_until: seconds(now).saturating_add(i64::try_from(left.as_secs())?),
            tag: tag.unwrap_or_default().to_owned(),
        })
    }
}

/// Seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}
