use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brisk_cache::{Cache, Stored};
use http_body::Body;
use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;
use tower::retry::Retry;
use tower_service::Service;

use super::hosts::Hosts;
use super::progress::{Hook, Progress};
use super::redirect::Hop;
use super::retries::{Attempts, Retries};
use super::sender::{Connect, Sender};
use super::trust::Trust;
use crate::layer::{
    CacheBody, CacheLayer, CacheLayerBuilder, CacheService, FetchError, TableAnswer, TableError,
    TableInput, TableOptions,
};
use crate::options::Options;

/// What is asked below the cache.
pub(crate) type Below = Retry<Attempts, Sender>;

/// An HTTP client with a cache: reqwest with rustls, behind a [`CacheLayer`].
///
/// It speaks HTTP/1.1 and HTTP/2, sends idempotent requests again that fail ([`Retries`]), sends only so many requests to a
/// host at once, and follows redirects, each of which is cached for itself. When a redirect leaves its origin, credentials,
/// cookies and fields that are marked as sensitive are left out; it never leads from https to http.
///
/// A copy of it is cheap, and all are one client. It runs on tokio. Nothing is connected before the first request is sent,
/// and the system's certificates are read when the first server shows its own.
///
/// # Example
///
/// ```no_run
/// use brisk_cache::{Cache, CacheOptions};
/// use brisk_http::{Client, Options, WholeBody};
///
/// # async fn example(directory: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
/// let cache = Cache::open(directory, CacheOptions::new())?;
/// let client = Client::build(cache, Options::private()).finish();
/// let response = client.get("https://example.org/").await?;
/// println!("{:?}", response.headers()["cache-status"]);
/// let page = response.text().await?;
/// // What is being stored would be lost if the program ended now.
/// client.idle().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    service: CacheService<Below>,
    layer: CacheLayer,
    redirects: u32,
}

/// Where a response of a [`Client`] came from, after all redirects. It is among the response's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseUrl(pub String);

impl Client {
    /// Options of a client over the cache in a directory. From [`Cache::open_mapped`], hits copy nothing.
    pub fn build(cache: impl Into<Arc<Cache>>, options: Options) -> ClientBuilder {
        ClientBuilder {
            layer: CacheLayer::build(cache, options)
                .head_timeout(Some(Duration::from_secs(60)))
                .body_timeout(Some(Duration::from_secs(60))),
            connect: None,
            made: Made::default(),
            retries: Retries::default(),
            per_host: 16,
            redirects: 10,
            hook: Hook::default(),
        }
    }

    /// Gets a URL.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub async fn get(&self, url: &str) -> Result<http::Response<CacheBody>, FetchError> {
        let request = http::Request::get(url).body(reqwest::Body::from(""));
        self.send(request.map_err(FetchError::upstream)?).await
    }

    /// Answers a request from the cache, or sends it.
    ///
    /// # Errors
    ///
    /// [`FetchError`], if the origin gives no whole answer and no stored response may stand in, or if there are too many
    /// redirects. An answer of the origin is no error, whatever its status.
    pub async fn send(
        &self,
        request: http::Request<reqwest::Body>,
    ) -> Result<http::Response<CacheBody>, FetchError> {
        let (head, body) = request.into_parts();
        let mut hop = Hop::first(head, !body.is_end_stream());
        let mut body = Some(body);
        let mut service = self.service.clone();
        for _ in 0..=self.redirects {
            let body = body.take().unwrap_or_else(|| reqwest::Body::from(""));
            let mut response = service.call(hop.request(body)?).await?;
            if !hop.follow(response.status(), response.headers()) {
                response.extensions_mut().insert(ResponseUrl(hop.url));
                return Ok(response);
            }
        }
        Err(FetchError::redirects(self.redirects))
    }

    /// Gets a URL as a table: see [`CacheService::get_as`]. Redirects are followed; `make` gets the URL after them.
    ///
    /// # Errors
    ///
    /// As [`CacheService::get_as`] and [`Client::send`].
    pub async fn get_as<T, E>(
        &self,
        request: http::Request<()>,
        options: &TableOptions,
        make: impl Fn(&TableInput<'_>) -> Result<Vec<u8>, E> + Clone + Send + 'static,
    ) -> Result<TableAnswer<T>, TableError<E>>
    where
        T: Stored + 'static,
        E: Send + 'static,
    {
        let mut hop = Hop::first(request.into_parts().0, false);
        for _ in 0..=self.redirects {
            let request = hop.request(reqwest::Body::from(""))?;
            let answer = self.service.get_as(request, options, make.clone()).await?;
            let mut response = match answer {
                TableAnswer::Response(response) => response,
                table => return Ok(table),
            };
            if !hop.follow(response.status(), response.headers()) {
                response.extensions_mut().insert(ResponseUrl(hop.url));
                return Ok(TableAnswer::Response(response));
            }
        }
        Err(FetchError::redirects(self.redirects).into())
    }

    /// The cache in front of this client.
    pub fn layer(&self) -> &CacheLayer {
        &self.layer
    }

    /// Waits until all is stored that will be: see [`CacheLayer::idle`].
    pub async fn idle(&self) {
        self.layer.idle().await;
    }
}

/// Options of a [`Client`].
pub struct ClientBuilder {
    layer: CacheLayerBuilder,
    connect: Option<Arc<Connect>>,
    made: Made,
    retries: Retries,
    per_host: usize,
    redirects: u32,
    hook: Hook,
}

impl ClientBuilder {
    /// Changes the options of the layer. By default, a request has 60 s until its response begins, retries included, and 60
    /// s for each next piece of a body.
    #[must_use]
    pub fn layer(mut self, change: impl FnOnce(CacheLayerBuilder) -> CacheLayerBuilder) -> Self {
        self.layer = change(self.layer);
        self
    }

    /// What makes the client of reqwest, when the first request is sent. It should follow no redirects, because they would
    /// not be cached. By default it is one that trusts what the system trusts, and takes proxies from the environment.
    #[must_use]
    pub fn connect(
        mut self,
        connect: impl Fn() -> reqwest::Result<reqwest::Client> + Send + Sync + 'static,
    ) -> Self {
        self.connect = Some(Arc::new(connect));
        self
    }

    /// The certificates that are trusted, in place of those of the system: a file in PEM, or a directory of such files. They
    /// are read when the first server shows its own. What [`ClientBuilder::connect`] makes has its own.
    #[must_use]
    pub fn roots(mut self, roots: impl Into<PathBuf>) -> Self {
        self.made.roots = Some(roots.into());
        self
    }

    /// The proxies, in place of those of the environment. What [`ClientBuilder::connect`] makes has its own.
    #[must_use]
    pub fn proxies(mut self, proxies: impl IntoIterator<Item = reqwest::Proxy>) -> Self {
        self.made.proxies = Some(proxies.into_iter().collect());
        self
    }

    /// Speaks HTTP/1.1 only, so that requests at the same time have connections of their own. What [`ClientBuilder::connect`]
    /// makes is not changed.
    #[must_use]
    pub fn http1_only(mut self) -> Self {
        self.made.http1_only = true;
        self
    }

    /// Looks names of hosts up, in place of the system. It may refuse a name. What [`ClientBuilder::connect`] makes has its own.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn reqwest::dns::Resolve>) -> Self {
        self.made.resolver = Some(resolver);
        self
    }

    /// How often a request is sent again.
    #[must_use]
    pub fn retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// The most requests that are under way to a host at once, until their bodies have come. 16 by default.
    #[must_use]
    pub fn per_host(mut self, most: usize) -> Self {
        self.per_host = most;
        self
    }

    /// The most redirects that are followed. 10 by default; 0 for none, and then one that comes is an error.
    #[must_use]
    pub fn redirects(mut self, most: u32) -> Self {
        self.redirects = most;
        self
    }

    /// What is told of each request that is sent.
    #[must_use]
    pub fn on_progress(mut self, tell: impl Fn(&Progress<'_>) + Send + Sync + 'static) -> Self {
        self.hook = Hook::new(tell);
        self
    }

    /// The client.
    pub fn finish(self) -> Client {
        let layer = self.layer.finish();
        let made = self.made;
        let default = || -> Arc<Connect> { Arc::new(move || made.connect()) };
        let connect = self.connect.unwrap_or_else(default);
        let sender = Sender::new(connect, Hosts::new(self.per_host), self.hook.clone());
        let below = Retry::new(Attempts::new(self.retries, self.hook), sender);
        Client {
            service: tower_layer::Layer::layer(&layer, below),
            layer,
            redirects: self.redirects,
        }
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("layer", &self.layer)
            .field("retries", &self.retries)
            .field("per_host", &self.per_host)
            .field("redirects", &self.redirects)
            .finish_non_exhaustive()
    }
}

/// What the client of reqwest is made of by default.
#[derive(Default)]
struct Made {
    roots: Option<PathBuf>,
    proxies: Option<Vec<reqwest::Proxy>>,
    http1_only: bool,
    resolver: Option<Arc<dyn reqwest::dns::Resolve>>,
}

impl Made {
    fn connect(&self) -> reqwest::Result<reqwest::Client> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(10))
            .user_agent(concat!("brisk-http/", env!("CARGO_PKG_VERSION")));
        if let Some(proxies) = &self.proxies {
            // Those of the environment do not count beside them.
            builder = builder.no_proxy();
            for proxy in proxies {
                builder = builder.proxy(proxy.clone());
            }
        }
        if let Some(resolver) = &self.resolver {
            builder = builder.dns_resolver(Arc::clone(resolver));
        }
        let mut versions = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        if self.http1_only {
            builder = builder.http1_only();
            versions.remove(0);
        }
        let provider = Arc::new(default_provider());
        let tls = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions();
        match tls {
            Ok(tls) => {
                let mut tls = tls
                    // It asks the same verifier as rustls-platform-verifier would put here.
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(Trust::new(
                        provider,
                        self.roots.clone(),
                    )))
                    .with_no_client_auth();
                tls.alpn_protocols = versions;
                builder.tls_backend_preconfigured(tls).build()
            }
            // No versions of TLS: the error comes from reqwest, with its own words, if https is asked for.
            Err(_) => builder.build(),
        }
    }
}
