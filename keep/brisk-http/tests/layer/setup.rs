//! A layer over a cache in a directory of its own, an origin that the test steers, and a clock that it sets.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use brisk_cache::{Cache, CacheOptions};
use brisk_http::{
    CacheBody, CacheLayer, CacheLayerBuilder, CacheService, FetchError, Options, ResponseFuture,
    Timestamp,
};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tower::{Layer, Service};

use crate::origin::{Asked, Origin, Upstream, fields, origin};

pub const URL: &str = "http://example.org/a";

/// A forked child has what its parent had open, until it is another program: what was removed frees no room before. So who
/// starts a program shares this, and who fills a disk has it alone.
pub static FORKS: RwLock<()> = RwLock::new(());

pub type Answered = Result<Response<CacheBody>, FetchError>;

pub struct Setup {
    pub home: TempDir,
    pub layer: CacheLayer,
    pub service: CacheService<Upstream>,
    pub origin: Origin,
    clock: Arc<AtomicU64>,
}

/// What a client got in the end.
#[derive(Debug, Clone)]
pub struct Got {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub fn home() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A cache whose files are soon read.
pub fn small() -> CacheOptions {
    CacheOptions::new().limit(64 << 20).segment_len(1 << 20)
}

pub fn open(directory: &Path, options: CacheOptions) -> Cache {
    // SAFETY: only brisk writes to the directory, except for tests that damage it. Those look at what they have borrowed
    // before that, and never again.
    unsafe { Cache::open_mapped(directory, options) }.unwrap()
}

impl Setup {
    pub fn private() -> Self {
        Self::with(Options::private(), |builder| builder)
    }

    pub fn with(
        options: Options,
        tune: impl FnOnce(CacheLayerBuilder) -> CacheLayerBuilder,
    ) -> Self {
        let home = home();
        let cache = open(home.path(), small());
        Self::over(home, cache, options, tune)
    }

    pub fn over(
        home: TempDir,
        cache: Cache,
        options: Options,
        tune: impl FnOnce(CacheLayerBuilder) -> CacheLayerBuilder,
    ) -> Self {
        let clock = Arc::new(AtomicU64::new(1_700_000_000));
        let seconds = Arc::clone(&clock);
        let now = move || Timestamp::from_unix(seconds.load(Ordering::Relaxed));
        let layer = tune(CacheLayer::build(cache, options).clock(now)).finish();
        let (upstream, origin) = origin();
        Self {
            home,
            service: layer.layer(upstream),
            layer,
            origin,
            clock,
        }
    }

    /// Another handle of the same directory, with an origin of its own.
    pub fn beside(&self, options: Options) -> Self {
        let cache = open(self.home.path(), small());
        let beside = Self::over(home(), cache, options, |builder| builder);
        let seconds = self.clock.load(Ordering::Relaxed);
        beside.clock.store(seconds, Ordering::Relaxed);
        beside
    }

    /// Sets the clock on.
    pub fn later(&self, seconds: u64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }

    pub fn call(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        self.service.clone().call(request)
    }

    /// Sends a request for [`URL`], and runs it whether or not somebody waits.
    pub fn send(&self, method: Method, lines: &[&str]) -> JoinHandle<Answered> {
        self.send_to(URL, method, lines)
    }

    pub fn send_to(&self, url: &str, method: Method, lines: &[&str]) -> JoinHandle<Answered> {
        tokio::spawn(self.call(request(url, method, lines)))
    }

    pub fn get(&self, lines: &[&str]) -> JoinHandle<Answered> {
        self.send(Method::GET, lines)
    }

    /// What a request that the origin is not asked for gets, at once.
    pub fn at_once(&self, lines: &[&str]) -> Response<CacheBody> {
        let future = self.call(request(URL, Method::GET, lines));
        at_once(future).expect("it is answered at once").unwrap()
    }

    /// Sends a request, which `origin` answers if it is asked, and gets the whole answer. Then all is stored.
    pub async fn exchange(
        &mut self,
        method: Method,
        lines: &[&str],
        origin: impl FnOnce(Asked),
    ) -> Got {
        let client = self.send(method, lines);
        origin(self.origin.next().await);
        let got = read(client).await;
        self.idle().await;
        got
    }

    /// Waits until all is stored that will be.
    pub async fn idle(&self) {
        soon(self.layer.idle()).await;
    }

    /// Stores a response to a plain GET for [`URL`].
    pub async fn store(&mut self, lines: &[&str], body: impl Into<Bytes>) {
        let stored = self.layer.counts().stored;
        let origin = |asked: Asked| asked.answer(200, lines, body);
        self.exchange(Method::GET, &[], origin).await;
        assert_eq!(self.layer.counts().stored, stored + 1, "it is stored");
    }

    /// Gets [`URL`] with a request that asks for no validation. None: the origin would be asked.
    pub async fn cached(&self) -> Option<Got> {
        let lines = ["Cache-Control: only-if-cached, max-stale"];
        let got = read(self.get(&lines)).await;
        (got.status != 504).then_some(got)
    }
}

pub fn request(url: &str, method: Method, lines: &[&str]) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.method_mut() = method;
    *request.uri_mut() = url.parse().unwrap();
    *request.headers_mut() = fields(lines);
    request
}

/// The answer of a future that is polled once, by nobody who could run anything else.
pub fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// Reads a body that is there at once.
pub async fn whole(response: Response<CacheBody>) -> Got {
    let (head, body) = response.into_parts();
    Got {
        status: head.status.as_u16(),
        headers: head.headers,
        body: soon(body.collect()).await.unwrap().to_bytes(),
    }
}

pub async fn read(client: JoinHandle<Answered>) -> Got {
    whole(answer(client).await).await
}

/// The head of an answer that is no error.
pub async fn answer(client: JoinHandle<Answered>) -> Response<CacheBody> {
    soon(client).await.unwrap().unwrap()
}

pub async fn error(client: JoinHandle<Answered>) -> FetchError {
    soon(client).await.unwrap().unwrap_err()
}

/// What happens in the end. While time is paused, a test in which nothing happens any more fails at once.
pub async fn soon<F: Future>(future: F) -> F::Output {
    let ended = tokio::time::timeout(Duration::from_secs(600), future).await;
    ended.expect("nothing happens any more")
}

/// The next bytes of a body, which must be there at once.
pub fn next(response: &mut Response<CacheBody>) -> Option<Result<Bytes, FetchError>> {
    let frame = at_once(response.body_mut().frame()).expect("something has come");
    Some(frame?.map(|frame| frame.into_data().unwrap()))
}

/// All bytes of a body until it ends or fails.
pub async fn all(response: &mut Response<CacheBody>) -> (Vec<u8>, Option<FetchError>) {
    let mut bytes = Vec::new();
    while let Some(frame) = soon(response.body_mut().frame()).await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(&frame.into_data().unwrap()),
            Err(e) => return (bytes, Some(e)),
        }
    }
    (bytes, None)
}

/// Waits until all that can happen has happened. Only right while time is paused: it goes on when no task can run and no
/// thread works.
pub async fn settle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

impl Got {
    pub fn text(&self) -> (u16, &str) {
        (self.status, std::str::from_utf8(&self.body).unwrap())
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn cache_status(&self) -> &str {
        self.field("cache-status").unwrap()
    }
}

pub fn cache_status(response: &Response<CacheBody>) -> &str {
    response.headers()["cache-status"].to_str().unwrap()
}

/// The bytes of all files in a directory.
pub fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(directory).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    });
    files.collect()
}

/// Where some bytes are in the files of a directory: the file's name and the offset.
pub fn find(directory: &Path, wanted: &[u8]) -> Vec<(String, usize)> {
    let files = contents(directory).into_iter();
    let places = files.flat_map(|(name, bytes)| {
        let places = bytes.windows(wanted.len()).enumerate();
        let places = places.filter(|(_, window)| *window == wanted);
        places.map(|(at, _)| (name.clone(), at)).collect::<Vec<_>>()
    });
    places.collect()
}
