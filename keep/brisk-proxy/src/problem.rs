//! Answers of the proxy itself, when it has no other.

use std::error::Error;

use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::LengthLimitError;

use crate::body::{Body, full};
use crate::request_head::Refusal;
use crate::upstream_error::UpstreamError;

/// Why the proxy has no other answer than this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    reason: String,
    /// Whether the connection cannot be used any more.
    closes: bool,
    /// What a client of a registry knows it by.
    code: Option<&'static str>,
}

impl Problem {
    /// A problem that leaves the connection as it is.
    pub fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
            closes: false,
            code: None,
        }
    }

    /// A problem in the form in which registries of OCI images tell theirs.
    pub fn of_registry(status: StatusCode, code: &'static str, reason: impl Into<String>) -> Self {
        Self {
            code: Some(code),
            ..Self::new(status, reason)
        }
    }

    /// A request that cannot be read, so nothing behind it can be read either.
    pub fn unreadable(refusal: &Refusal) -> Self {
        Self {
            closes: true,
            ..Self::from(refusal.clone())
        }
    }

    /// What an error of a fetch means for the client.
    pub fn of_fetch(error: &(dyn Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(cause) = next {
            if let Some(error) = cause.downcast_ref::<UpstreamError>() {
                // The body of the request may be the cause of it.
                return match error.is_too_long {
                    true => Self::too_long(),
                    false => Self::new(error.status, error.reason.clone()),
                };
            }
            if cause.is::<LengthLimitError>() {
                return Self::too_long();
            }
            next = cause.source();
        }
        Self::new(StatusCode::BAD_GATEWAY, error.to_string())
    }

    /// The body of a request is too long.
    pub fn too_long() -> Self {
        Self {
            closes: true,
            ..Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body is longer than this proxy passes on; --upload-limit says how long it may be",
            )
        }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The answer.
    pub fn response(self) -> Response<Body> {
        let text = format!("brisk proxy: {}", self.reason);
        let (text, kind) = match self.code {
            Some(code) => {
                let error = serde_json::json!({ "code": code, "message": text });
                let errors = serde_json::json!({ "errors": [error] });
                (errors.to_string(), "application/json")
            }
            None => (format!("{text}\n"), "text/plain; charset=utf-8"),
        };
        let mut response = Response::new(full(text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(
                    WWW_AUTHENTICATE,
                    HeaderValue::from_static("Basic realm=\"brisk proxy\""),
                );
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            _ => {}
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.status, refusal.reason)
    }
}
