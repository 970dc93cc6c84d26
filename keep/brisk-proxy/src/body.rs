//! Bodies on their way through the proxy.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use brisk_http::{BodyName, CacheBody};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, SizeHint};

/// What went wrong with a body.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a request did not come in time.
#[derive(Debug)]
pub struct LateBody;

impl fmt::Display for LateBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request did not come in time")
    }
}

impl Error for LateBody {}

/// A body of a request or of a response.
pub enum Body {
    /// As the cache gives it.
    Cached(CacheBody),
    /// Any other.
    Other(UnsyncBoxBody<Bytes, BodyError>),
}

impl Body {
    /// A body of another kind.
    pub fn new<B>(body: B) -> Self
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        match body.is_end_stream() {
            true => empty(),
            false => Self::Other(body.map_err(Into::into).boxed_unsync()),
        }
    }
}

impl Body {
    /// The name of the stored body, if this is all of it.
    pub fn name(&self) -> Option<BodyName> {
        match self {
            Self::Cached(body) => body.name(),
            Self::Other(_) => None,
        }
    }
}

impl From<CacheBody> for Body {
    fn from(body: CacheBody) -> Self {
        Self::Cached(body)
    }
}

/// A body without bytes.
pub fn empty() -> Body {
    Body::Cached(CacheBody::default())
}

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Body::new(Full::new(bytes.into()))
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Cached(body) => {
                let polled = Pin::new(body).poll_frame(cx);
                polled.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Other(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Cached(body) => body.is_end_stream(),
            Self::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Cached(body) => body.size_hint(),
            Self::Other(body) => body.size_hint(),
        }
    }
}
