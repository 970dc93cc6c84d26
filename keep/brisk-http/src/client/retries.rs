use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, StatusCode};
use http_body::Body;
use tokio::time::{Sleep, sleep};
use tower::retry::Policy;
use tower::retry::backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff};
use tower::util::rng::HasherRng;

use super::progress::{Hook, ProgressStep};
use super::sent_body::SentBody;
use crate::date;
use crate::layer::{RequestBody, system_time};
use crate::timestamp::Timestamp;

/// How often a request is sent again, and after which pauses.
///
/// Only a request of an idempotent method (RFC 9110, section 9.2.2) without a body is sent again: if its connection fails or
/// breaks before the head of a response, and if the status is 408, 429, 500, 502, 503 or 504. The pause doubles each time, and
/// up to as much again is added by chance, so that many clients do not come back at once. `Retry-After` says it instead; if
/// it asks for more than `longest_pause`, the response is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retries {
    /// The most times that a request is sent again. 3 by default; 0 for never.
    pub most: u32,
    /// The first pause. 200 ms by default.
    pub first_pause: Duration,
    /// The longest pause. 10 s by default.
    pub longest_pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            most: 3,
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(10),
        }
    }
}

impl Retries {
    /// So many times, with the pauses by default.
    pub fn at_most(most: u32) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// The first and the longest pause.
    #[must_use]
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.first_pause = first;
        self.longest_pause = longest;
        self
    }
}

/// The retries of one request.
#[derive(Debug, Clone)]
pub(crate) struct Attempts {
    options: Retries,
    hook: Hook,
    tries: u32,
    pauses: Option<ExponentialBackoff<HasherRng>>,
}

impl Attempts {
    pub(crate) fn new(options: Retries, hook: Hook) -> Self {
        let longest = options.longest_pause.max(Duration::from_millis(1));
        let first = options.first_pause.min(longest);
        let maker = ExponentialBackoffMaker::new(first, longest, 1.0, HasherRng::new());
        Self {
            options,
            hook,
            tries: 1,
            // None if there is no pause.
            pauses: maker.ok().map(|mut maker| maker.make_backoff()),
        }
    }

    fn pause(&mut self) -> Sleep {
        match &mut self.pauses {
            Some(pauses) => pauses.next_backoff(),
            None => sleep(Duration::ZERO),
        }
    }
}

type Sent = http::Response<SentBody>;
type Asked = http::Request<RequestBody<reqwest::Body>>;

impl Policy<Asked, Sent, reqwest::Error> for Attempts {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Asked,
        result: &mut Result<Sent, reqwest::Error>,
    ) -> Option<Sleep> {
        if self.tries > self.options.most {
            return None;
        }
        let pause = match result {
            Ok(response) if !is_passing(response.status()) => return None,
            Ok(response) => match retry_after(response.headers(), system_time()) {
                Some(after) if after > self.options.longest_pause => return None,
                Some(after) => sleep(after),
                None => self.pause(),
            },
            Err(e) if e.is_builder() || e.is_body() || e.is_decode() => return None,
            Err(_) => self.pause(),
        };
        let again = ProgressStep::Again { tries: self.tries };
        self.hook.tell(&request.uri().to_string(), again);
        self.tries = self.tries.saturating_add(1);
        Some(pause)
    }

    fn clone_request(&mut self, request: &Asked) -> Option<Asked> {
        let is_idempotent =
            request.method().is_safe() || matches!(*request.method(), Method::PUT | Method::DELETE);
        if self.options.most == 0 || !is_idempotent || !request.body().is_end_stream() {
            return None;
        }
        let mut copy = http::Request::new(RequestBody::none());
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        Some(copy)
    }
}

/// Whether the next answer may be another one.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

/// How long an origin asks to wait: seconds, or a date (RFC 9110, section 10.2.3).
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.as_bytes().trim_ascii();
    let seconds = match std::str::from_utf8(value).ok()?.parse() {
        Ok(seconds) => seconds,
        Err(_) => date::parse(value, now)?.since(now),
    };
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn an_origin_says_when_to_come_again() {
        let after = |text: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            retry_after(&headers, Timestamp::from_unix(784_111_700)).map(|after| after.as_secs())
        };
        assert_eq!(after("120"), Some(120));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(77));
        assert_eq!(after("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(after("soon"), None);
        assert_eq!(after("-1"), None);
        assert_eq!(
            retry_after(&HeaderMap::new(), Timestamp::from_unix(0)),
            None
        );
    }
}
