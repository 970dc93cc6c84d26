//! Bodies on their way through the proxy.

use std::error::Error;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

/// What went wrong with a body.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// A body of a request or of a response.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A body without bytes.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}
