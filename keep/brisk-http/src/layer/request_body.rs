use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

/// The body of a request that a [`CacheService`](super::CacheService) sends.
///
/// What the cache asks for by itself has none. Other requests go on with the body that they came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestBody<B>(Option<B>);

impl<B> RequestBody<B> {
    /// That of a request without a body.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    pub(crate) fn of(body: B) -> Self {
        Self(Some(body))
    }

    /// The body that the request came with. None if the cache asks by itself.
    pub fn into_inner(self) -> Option<B> {
        self.0
    }
}

impl<B: Body + Unpin> Body for RequestBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
