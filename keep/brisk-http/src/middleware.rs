//! The cache as a middleware of reqwest-middleware.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use http::Extensions;
use reqwest::ResponseBuilderExt;
use reqwest_middleware::{ClientWithMiddleware, Middleware, Next};
use tower_layer::Layer;
use tower_service::Service;

use crate::layer::{CacheLayer, CacheService, RequestBody};

/// A [`CacheLayer`] as the last middleware of a client of [`reqwest_middleware`].
///
/// It does not go on to what is behind it in its own client, because what it fetches outlives the request: others read the
/// same fetch, and stale responses are revalidated behind their answers. It asks the client that it is given, whose
/// middlewares are below the cache: retries, tracing.
///
/// ```no_run
/// use brisk_cache::{Cache, CacheOptions};
/// use brisk_http::{CacheLayer, CacheMiddleware, Options};
/// use reqwest_middleware::ClientBuilder;
///
/// # fn example(directory: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
/// let cache = Cache::open(directory, CacheOptions::new())?;
/// let layer = CacheLayer::build(cache, Options::private()).finish();
/// let below = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
/// let client = ClientBuilder::new(below.clone()).with(CacheMiddleware::new(&layer, below)).build();
/// # Ok(())
/// # }
/// ```
///
/// Redirects are followed below the cache if the client below follows them. Then the answer is stored under the URL that was
/// asked for first. With a client that does not, they are answers, and each is cached for itself.
#[derive(Debug, Clone)]
pub struct CacheMiddleware {
    service: CacheService<Below>,
}

impl CacheMiddleware {
    /// The middleware that asks `below` for what it does not have.
    pub fn new(layer: &CacheLayer, below: impl Into<ClientWithMiddleware>) -> Self {
        Self {
            service: layer.layer(Below(Arc::new(below.into()))),
        }
    }
}

#[async_trait]
impl Middleware for CacheMiddleware {
    async fn handle(
        &self,
        request: reqwest::Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let url = request.url().clone();
        let request = http::Request::<reqwest::Body>::try_from(request)?;
        let answered = self.service.clone().call(request).await;
        let (head, body) = answered
            .map_err(reqwest_middleware::Error::middleware)?
            .into_parts();
        let response = http::Response::builder().url(url);
        let mut response = response
            .body(reqwest::Body::wrap(body))
            .map_err(reqwest_middleware::Error::middleware)?;
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        Ok(response.into())
    }
}

/// The client below the cache.
#[derive(Debug, Clone)]
struct Below(Arc<ClientWithMiddleware>);

/// An error of the client below: that of a middleware is no [`Error`] that can be a source.
#[derive(Debug)]
pub struct MiddlewareError(reqwest_middleware::Error);

impl fmt::Display for MiddlewareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for MiddlewareError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

type Sent = Result<http::Response<reqwest::Body>, MiddlewareError>;

impl Service<http::Request<RequestBody<reqwest::Body>>> for Below {
    type Response = http::Response<reqwest::Body>;
    type Error = MiddlewareError;
    type Future = Pin<Box<dyn Future<Output = Sent> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), MiddlewareError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<RequestBody<reqwest::Body>>) -> Self::Future {
        let client = Arc::clone(&self.0);
        Box::pin(async move {
            let body = |body: RequestBody<reqwest::Body>| match body.into_inner() {
                Some(body) => body,
                None => reqwest::Body::from(""),
            };
            let request = reqwest::Request::try_from(request.map(body));
            let request = request.map_err(|e| MiddlewareError(e.into()))?;
            let response = client.execute(request).await.map_err(MiddlewareError)?;
            Ok(response.into())
        })
    }
}
