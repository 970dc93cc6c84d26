//! Why there is no answer of an upstream.

use std::error::Error;
use std::fmt;

use http::StatusCode;

/// Why there is no answer of an upstream.
#[derive(Debug, Clone)]
pub struct UpstreamError {
    /// What the client is told.
    pub status: StatusCode,
    /// What went wrong, in words.
    pub reason: String,
    /// Whether it is the body of the request, which is too long.
    pub is_too_long: bool,
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Error for UpstreamError {}
