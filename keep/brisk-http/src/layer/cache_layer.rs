use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brisk_cache::{AsyncCache, Cache, Stored};
use http::StatusCode;
use tower_layer::Layer;

use super::counts::{Counters, FetchCounts};
use super::directory::{Directory, Troubles};
use super::fetches::Fetches;
use super::service::{CacheService, Core, FetchOptions, Shared};
use super::table_answer::TableOf;
use crate::engine::Engine;
use crate::head::Request;
use crate::options::Options;
use crate::overrides::Overrides;
use crate::timestamp::Timestamp;

/// A cache in front of any HTTP client, as a layer of tower.
///
/// The service that it makes takes requests with absolute URLs, answers what it can from the cache, and asks the client
/// for the rest: see [`CacheService`]. Its methods set options; [`CacheLayer::build`] ends them.
///
/// # Example
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
///
/// use brisk_cache::{Cache, CacheOptions};
/// use brisk_http::{CacheBody, CacheLayer, Options, RequestBody};
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Empty, Full};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let home = tempfile::tempdir()?;
/// # let directory = home.path().join("http");
/// let origin = service_fn(async |_: Request<RequestBody<Empty<Bytes>>>| {
///     let response = Response::builder().header("cache-control", "max-age=60");
///     Ok::<_, Infallible>(response.body(Full::from("a page")).expect("its parts are right"))
/// });
/// let cache = Cache::open(&directory, CacheOptions::new())?;
/// let layer = CacheLayer::build(cache, Options::private()).finish();
/// let client = layer.layer(origin);
/// for expected in ["example; fwd=uri-miss; fwd-status=200; ttl=60; stored", "example; hit; ttl=60"] {
///     let request = Request::get("https://example.org/").body(Empty::new())?;
///     let response = client.clone().oneshot(request).await?;
///     # let expected = expected.replace("example", "brisk");
///     assert_eq!(response.headers()["cache-status"], expected);
///     assert_eq!(response.into_body().collect().await?.to_bytes(), "a page");
///     layer.idle().await;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct CacheLayer {
    pub(crate) shared: Shared,
}

impl CacheLayer {
    /// Options of a layer over the cache in a directory. From [`Cache::open_mapped`], hits copy nothing.
    pub fn build(cache: impl Into<Arc<Cache>>, options: Options) -> CacheLayerBuilder {
        CacheLayerBuilder {
            cache: cache.into(),
            options,
            overrides: Overrides::default(),
            name: "brisk".to_owned(),
            fetching: FetchOptions::default(),
            clock: Box::new(system_time),
            tell: Box::new(|_| ()),
        }
    }

    /// What it has done so far.
    pub fn counts(&self) -> FetchCounts {
        self.shared.counts.counts(self.shared.troubles.count())
    }

    /// The cache.
    pub fn cache(&self) -> &Arc<Cache> {
        self.shared.cache.cache()
    }

    /// The table of a fresh response that is stored: see [`CacheService::get_as`]. It asks no origin, needs no runtime, and
    /// may wait for the disk. It allocates nothing, unless the URL is longer than 200 bytes. None if there is none, whatever
    /// the reason.
    pub fn find_as<T: Stored>(&self, request: &Request<'_>) -> Option<TableOf<T>> {
        self.shared.found_by(&self.shared.engine, request)
    }

    /// The status of a fresh response that is stored whole, even if no table is made of it. A stored 404, for example, tells
    /// without a request that there is nothing. It asks no origin, like [`CacheLayer::find_as`].
    pub fn find_status(&self, request: &Request<'_>) -> Option<StatusCode> {
        let found = self.shared.engine.find(request, self.shared.now()).ok()??;
        found.policy().map(|policy| policy.status())
    }

    /// Waits until no fetch runs: then all is stored that will be. A program that ends before loses what is being
    /// stored, and nothing else.
    pub async fn idle(&self) {
        self.shared.fetches.idle().await;
    }
}

impl<U> Layer<U> for CacheLayer {
    type Service = CacheService<U>;

    fn layer(&self, upstream: U) -> CacheService<U> {
        CacheService::new(self.shared.clone(), upstream)
    }
}

/// Options of a [`CacheLayer`].
pub struct CacheLayerBuilder {
    cache: Arc<Cache>,
    options: Options,
    overrides: Overrides,
    name: String,
    fetching: FetchOptions,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    tell: Box<dyn Fn(&io::Error) + Send + Sync>,
}

impl CacheLayerBuilder {
    /// Options for single hosts and URLs.
    #[must_use]
    pub fn overrides(mut self, overrides: Overrides) -> Self {
        self.overrides = overrides;
        self
    }

    /// The name in `Cache-Status`. `brisk` by default.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long the origin may take until the head of its response is there, over all hops of the client below. Then it
    /// counts as unreachable. No bound by default.
    #[must_use]
    pub fn head_timeout(mut self, most: Option<Duration>) -> Self {
        self.fetching.head_timeout = most;
        self
    }

    /// How long the origin may pause within a body. No bound by default.
    #[must_use]
    pub fn body_timeout(mut self, most: Option<Duration>) -> Self {
        self.fetching.body_timeout = most;
        self
    }

    /// A fetch that nobody waits for goes on if at most so many bytes are left. 1 MiB by default.
    #[must_use]
    pub fn finish_below(mut self, bytes: u64) -> Self {
        self.fetching.finish_below = bytes;
        self
    }

    /// The most bytes of a body that are kept in memory until they are stored. A longer one is written while it comes.
    /// 1 MiB by default.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.fetching.memory = bytes;
        self
    }

    /// What time it is. By default, the system says it.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// What is told when the cache's directory fails, at most once a minute. Requests are answered all the same.
    #[must_use]
    pub fn on_trouble(mut self, tell: impl Fn(&io::Error) + Send + Sync + 'static) -> Self {
        self.tell = Box::new(tell);
        self
    }

    /// The layer.
    pub fn finish(self) -> CacheLayer {
        let troubles = Arc::new(Troubles::new(self.tell));
        let engine = |at_once| {
            let directory = Directory {
                cache: Arc::clone(&self.cache),
                troubles: Arc::clone(&troubles),
                at_once,
                table: None,
            };
            let (options, overrides) = (self.options.clone(), self.overrides.clone());
            Engine::new(directory, options, overrides, &self.name)
        };
        let core = Core {
            engine: engine(false),
            quick: engine(true),
            cache: AsyncCache::new(Arc::clone(&self.cache)),
            fetches: Fetches::new(),
            counts: Counters::default(),
            options: self.fetching,
            clock: self.clock,
            troubles,
        };
        CacheLayer {
            shared: Shared::new(core),
        }
    }
}

impl fmt::Debug for CacheLayerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheLayerBuilder")
            .field("options", &self.options)
            .field("name", &self.name)
            .field("fetching", &self.fetching)
            .finish_non_exhaustive()
    }
}

/// What time it is, as the system says.
pub(crate) fn system_time() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::from_unix(since.map_or(0, |since| since.as_secs()))
}
