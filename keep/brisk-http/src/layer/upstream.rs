use bytes::Bytes;
use http_body::Body;
use tower_service::Service;

use super::fetch_error::BoxError;
use super::request_body::RequestBody;

/// What a [`CacheService`](super::CacheService) asks: any service of tower that sends requests, with bodies of `B`.
///
/// Nobody implements this: each such service has it.
pub trait Upstream<B>:
    Service<
        http::Request<RequestBody<B>>,
        Response = http::Response<Self::Body>,
        Error = Self::Failure,
        Future = Self::Answer,
    > + Clone
    + Send
    + Sync
    + 'static
{
    /// The bodies of its responses.
    type Body: Body<Data = Bytes, Error = Self::BodyError> + Send + 'static;
    /// Their errors.
    type BodyError: Into<BoxError>;
    /// Its errors.
    type Failure: Into<BoxError>;
    /// Its responses.
    type Answer: Future<Output = Result<http::Response<Self::Body>, Self::Failure>> + Send;
}

impl<B, UB, U> Upstream<B> for U
where
    U: Service<http::Request<RequestBody<B>>, Response = http::Response<UB>>
        + Clone
        + Send
        + Sync
        + 'static,
    U::Error: Into<BoxError>,
    U::Future: Send,
    UB: Body<Data = Bytes> + Send + 'static,
    UB::Error: Into<BoxError>,
{
    type Body = UB;
    type BodyError = UB::Error;
    type Failure = U::Error;
    type Answer = U::Future;
}
