//! A request to the origin, and what comes back.

use std::future::poll_fn;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use brisk_cache::{Hit, Pending};
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Extensions, HeaderMap, Method, StatusCode, Uri};
use http_body::Body;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::cache_body::CacheBody;
use super::directory::Directory;
use super::fetch_error::{BoxError, FetchError};
use super::fetches::{Fetched, News, Registered, Storing, Teller};
use super::long_body::LongBody;
use super::request_body::RequestBody;
use super::service::Shared;
use super::spool::Spool;
use super::unless::unless;
use super::upstream::Upstream;
use crate::body_name::{BodyHasher, BodyName};
use crate::decision::Failure;
use crate::engine::{Answer, Engine, Exchange, Keep, Kept, Outcome, Pass};
use crate::head::Response;
use crate::policy::Times;
use crate::storage::Storage;

/// How often an origin is asked for one request: a 304 of another response, or a part that does not fit, takes another.
const MOST_EXCHANGES: usize = 4;

/// The longest rest of a body that is put together with its stored part in memory.
const MOST_REST: u64 = 16 << 20;

/// What came of a request to the origin.
pub(crate) enum Carried<UB> {
    /// An answer from the cache, the URL of its body, and what others are told.
    Answer(Answer<Hit>, Option<String>, News),
    /// A response that is not stored.
    Pass(http::Response<CacheBody>),
    /// A response that is to be stored.
    Keep(Box<Kind<UB>>),
    /// None.
    Failed(FetchError, Box<Exchange<Hit>>),
}

/// A response that is to be stored, and its body.
pub(crate) struct Kind<UB> {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    extensions: Extensions,
    pub(crate) has_body: bool,
    pub(crate) keep: Keep,
    pub(crate) len: Option<u64>,
    pub(crate) body: UB,
}

impl Shared {
    /// Asks the origin, as often as it takes.
    pub(crate) async fn carry<U, B>(
        &self,
        engine: &Engine<Directory>,
        upstream: &mut U,
        mut exchange: Box<Exchange<Hit>>,
        body: Option<B>,
        extensions: &Extensions,
    ) -> Result<Carried<U::Body>, FetchError>
    where
        U: Upstream<B>,
    {
        let mut body = body.map_or_else(RequestBody::none, RequestBody::of);
        for _ in 0..MOST_EXCHANGES {
            let request_time = self.now();
            let sent = self.send(upstream, &exchange, body, extensions).await;
            body = RequestBody::none();
            let (head, upstream_body) = match sent {
                Ok(response) => response.into_parts(),
                Err(e) => return Ok(Carried::Failed(e, exchange)),
            };
            let times = Times {
                request: request_time,
                response: self.now(),
            };
            let (method, key) = (exchange.method.clone(), exchange.key().map(str::to_owned));
            let mut outcome = self
                .answered(engine, exchange, head.status, &head.headers, times)
                .await?;
            if let Outcome::Complete(completion) = outcome {
                let len = announced(&method, head.status, &head.headers);
                outcome = match rest(upstream_body, len, self.options.body_timeout).await {
                    Some(rest) => {
                        let (spare, engine) = (completion.spare(), engine.clone());
                        self.waiting(move |shared| {
                            let completed = engine.complete(*completion, &rest);
                            Ok(completed.unwrap_or_else(|e| {
                                shared.unstored(&e);
                                Outcome::Again(spare)
                            }))
                        })
                        .await?
                    }
                    None => Outcome::Again(completion.give_up()),
                };
                match outcome {
                    Outcome::Again(again) => exchange = again,
                    Outcome::Answer(answer) => {
                        return Ok(Carried::Answer(answer, key, News::Stored));
                    }
                    Outcome::Pass(_) | Outcome::Complete(_) => return Err(FetchError::ended()),
                }
                continue;
            }
            match outcome {
                Outcome::Again(again) => exchange = again,
                Outcome::Answer(answer) => {
                    let news = match head.status {
                        StatusCode::NOT_MODIFIED | StatusCode::OK => News::Stored,
                        status => News::Failed(Failure::Status(status), None),
                    };
                    return Ok(Carried::Answer(answer, key, news));
                }
                Outcome::Pass(pass) => {
                    let len = announced(&method, head.status, &head.headers);
                    let most = self.options.body_timeout;
                    return Ok(passed(*pass, (len, most), head.extensions, upstream_body));
                }
                Outcome::Complete(_) => return Err(FetchError::ended()),
            }
        }
        Err(FetchError::upstream(
            "the origin sent 304 or 206 to requests that did not ask for it",
        ))
    }

    async fn send<U, B>(
        &self,
        upstream: &mut U,
        exchange: &Exchange<Hit>,
        body: RequestBody<B>,
        extensions: &Extensions,
    ) -> Result<http::Response<U::Body>, FetchError>
    where
        U: Upstream<B>,
    {
        let mut request = http::Request::new(body);
        *request.method_mut() = exchange.method.clone();
        *request.uri_mut() = Uri::try_from(&exchange.url).map_err(FetchError::upstream)?;
        *request.headers_mut() = exchange.headers.clone();
        *request.extensions_mut() = extensions.clone();
        self.counts.add_sent();
        let answer = async {
            poll_fn(|context| upstream.poll_ready(context))
                .await
                .map_err(FetchError::upstream)?;
            upstream.call(request).await.map_err(FetchError::upstream)
        };
        match self.options.head_timeout {
            None => answer.await,
            Some(most) => match timeout(most, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(FetchError::no_head(most)),
            },
        }
    }

    /// Hands a head to the engine, on a thread that may wait if it may have to.
    async fn answered(
        &self,
        engine: &Engine<Directory>,
        exchange: Box<Exchange<Hit>>,
        status: StatusCode,
        headers: &HeaderMap,
        times: Times,
    ) -> Result<Outcome<Hit>, FetchError> {
        if !exchange.may_write() {
            let response = Response { status, headers };
            let outcome = engine.answered(exchange, &response, times);
            return outcome.map_err(FetchError::stored);
        }
        let (headers, engine) = (headers.clone(), engine.clone());
        self.waiting(move |_| {
            let response = Response {
                status,
                headers: &headers,
            };
            engine.answered(exchange, &response, times)
        })
        .await
    }

    /// Runs what may wait for the disk, on a thread that may.
    pub(crate) async fn waiting<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> io::Result<R> + Send + 'static,
    ) -> Result<R, FetchError> {
        let shared = self.clone();
        match spawn_blocking(move || work(&shared)).await {
            Ok(done) => done.map_err(FetchError::stored),
            Err(_) => Err(FetchError::ended()),
        }
    }

    /// The response to the request that a kept response was fetched for, and what reads the rest of its body.
    pub(crate) fn keep<UB>(
        &self,
        kind: Kind<UB>,
        teller: &Teller,
    ) -> (http::Response<CacheBody>, Keeping<UB>) {
        let spool = Spool::new();
        let body = match (kind.has_body, spool.reader()) {
            (true, Some(reader)) => CacheBody::of_spool(reader, kind.len, teller.interest()),
            _ => CacheBody::empty(),
        };
        teller.tell(News::Response(Arc::new(Fetched {
            policy: kind.keep.policy().clone(),
            len: kind.len,
            spool: Arc::clone(&spool),
        })));
        let response = response(kind.status, kind.headers, kind.extensions, body);
        let keeping = Keeping {
            keep: kind.keep,
            len: kind.len,
            body: kind.body,
            spool: Ending(spool),
        };
        (response, keeping)
    }

    /// Reads a body to its end, for all who want it, and stores it. `abandoned` ends when nobody wants it.
    pub(crate) async fn read<UB>(&self, keeping: Keeping<UB>, registered: Watched<'_>)
    where
        UB: Body<Data = Bytes> + Send,
        UB::Error: Into<BoxError>,
    {
        let Keeping {
            keep,
            len,
            body,
            spool,
        } = keeping;
        let mut body = std::pin::pin!(body);
        let mut reading = Reading {
            keep,
            hasher: BodyHasher::default(),
            found: 0,
            expected: len,
            is_kept: true,
            long: None,
            storing: None,
        };
        let mut is_watched = true;
        let ended = loop {
            // Dropped in between, it has lost nothing. What keeps a piece is never dropped.
            let next = async {
                spool.room().await;
                next_piece(body.as_mut(), self.options.body_timeout).await
            };
            let next = match is_watched {
                true => unless(registered.abandoned(), next).await,
                false => Some(next.await),
            };
            let Some(next) = next else {
                let left = len.map(|len| len.saturating_sub(reading.found));
                let is_little = left.is_some_and(|left| left <= self.options.finish_below);
                if !reading.is_kept || !is_little {
                    return;
                }
                is_watched = false;
                continue;
            };
            let taken = match next {
                Ok(piece) => reading.take(piece, self, &spool, &registered).await,
                Err(e) => Err(e),
            };
            match taken {
                Ok(true) => (),
                Ok(false) => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        let is_whole = ended.is_ok();
        spool.end(ended);
        if is_whole && reading.is_kept {
            let name = reading.hasher.finish();
            let whole = match reading.long {
                None => Whole::Memory(spool.pieces()),
                Some(long) => match long.end().await {
                    Ok(pending) => Whole::Directory(pending),
                    Err(e) => {
                        self.unstored(&e);
                        return;
                    }
                },
            };
            self.store(reading.keep, name, whole).await;
        }
        drop(reading.storing);
    }

    async fn store(&self, keep: Keep, name: BodyName, whole: Whole) {
        let stored = self
            .waiting(move |shared| {
                let kept = shared.engine.keep_named(keep, name, |key, name| {
                    let storage = shared.engine.storage();
                    match whole {
                        Whole::Memory(pieces) => storage.put_body(key, name, &joined(pieces))?,
                        Whole::Directory(pending) => storage.finish_body(pending, key, name)?,
                    }
                    shared.counts.add_stored(name.len());
                    Ok(())
                });
                // That it is not stored is no failure of the request.
                match kept {
                    Ok(Kept::Stored | Kept::Refused(_)) => (),
                    Err(e) => shared.unstored(&e),
                }
                Ok(())
            })
            .await;
        if stored.is_err() {
            self.troubles
                .note(&io::Error::other("the thread that stores a body ended"));
        }
    }

    /// Notes why a body is not stored.
    fn unstored(&self, error: &io::Error) {
        self.counts.add_unstored();
        // A body that is too long for the cache is no failure of it.
        if error.kind() != io::ErrorKind::InvalidInput {
            self.troubles.note(error);
        }
    }
}

/// A whole body, and where it is until it is stored.
enum Whole {
    Memory(Vec<Bytes>),
    Directory(Pending),
}

/// What reads a body that is kept.
pub(crate) struct Keeping<UB> {
    keep: Keep,
    len: Option<u64>,
    body: UB,
    spool: Ending,
}

/// The side that fills a spool. If it goes before the end, its readers are told.
struct Ending(Arc<Spool>);

impl Deref for Ending {
    type Target = Spool;

    fn deref(&self) -> &Spool {
        &self.0
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(Err(FetchError::ended()));
    }
}

/// Who is told when nobody wants a body.
pub(crate) enum Watched<'a> {
    Registered(&'a Registered),
    Alone(Teller),
}

impl Watched<'_> {
    async fn abandoned(&self) {
        match self {
            Self::Registered(registered) => registered.abandoned().await,
            Self::Alone(teller) => teller.abandoned().await,
        }
    }

    /// Lets nobody join any more.
    fn close(&self) {
        if let Self::Registered(registered) = self {
            registered.close();
        }
    }
}

struct Reading {
    keep: Keep,
    hasher: BodyHasher,
    found: u64,
    expected: Option<u64>,
    is_kept: bool,
    /// The body, once it is too long for memory.
    long: Option<LongBody>,
    /// Set when all has come.
    storing: Option<Storing>,
}

impl Reading {
    /// All has come. It is said before a reader gets the last piece.
    fn begin_storing(&mut self, shared: &Shared) {
        if self.is_kept && self.storing.is_none() {
            self.storing = Some(shared.fetches.begin_storing(self.keep.key()));
        }
    }

    /// Keeps a piece, too. A failure of the directory ends only that.
    async fn keep(&mut self, bytes: Bytes, shared: &Shared, spool: &Spool, watched: &Watched<'_>) {
        let kept = match &mut self.long {
            Some(long) => long.push(bytes).await,
            None if self.found <= shared.options.memory => return,
            None => {
                // What has come is handed over as a whole, and nobody can join who would need it.
                watched.close();
                let cache = Arc::clone(shared.cache.cache());
                let begun = LongBody::begin(cache, self.expected, spool.pieces());
                spool.stop_keeping();
                begun.await.map(|long| self.long = Some(long))
            }
        };
        if let Err(e) = kept {
            self.is_kept = false;
            self.long = None;
            shared.unstored(&e);
        }
    }

    /// Takes a piece. False: there is none.
    async fn take(
        &mut self,
        piece: Option<Option<Bytes>>,
        shared: &Shared,
        spool: &Spool,
        watched: &Watched<'_>,
    ) -> Result<bool, FetchError> {
        let Some(piece) = piece else {
            return match self.expected.filter(|expected| self.found != *expected) {
                Some(expected) => Err(FetchError::length(expected, self.found)),
                None => {
                    self.begin_storing(shared);
                    Ok(false)
                }
            };
        };
        let Some(bytes) = piece else {
            return Ok(true);
        };
        self.found = self.found.saturating_add(bytes.len() as u64);
        if let Some(expected) = self.expected.filter(|expected| self.found > *expected) {
            return Err(FetchError::length(expected, self.found));
        }
        if self.expected == Some(self.found) {
            self.begin_storing(shared);
        }
        self.hasher.update(&bytes);
        spool.push(bytes.clone());
        if self.is_kept {
            self.keep(bytes, shared, spool, watched).await;
        }
        Ok(true)
    }
}

/// The next bytes of a body. `Some(None)` for what is no bytes, such as trailers; None at its end.
pub(crate) async fn next_piece<UB>(
    mut body: std::pin::Pin<&mut UB>,
    most: Option<Duration>,
) -> Result<Option<Option<Bytes>>, FetchError>
where
    UB: Body<Data = Bytes>,
    UB::Error: Into<BoxError>,
{
    let next = poll_fn(|context| body.as_mut().poll_frame(context));
    let next = match most {
        None => next.await,
        Some(most) => match timeout(most, next).await {
            Ok(next) => next,
            Err(_) => return Err(FetchError::no_more(most)),
        },
    };
    match next {
        None => Ok(None),
        Some(Err(e)) => Err(FetchError::upstream(e)),
        Some(Ok(frame)) => Ok(Some(frame.into_data().ok())),
    }
}

/// `len` is announced, and `most` is how long the body may pause.
fn passed<UB>(
    pass: Pass,
    (len, most): (Option<u64>, Option<Duration>),
    extensions: Extensions,
    body: UB,
) -> Carried<UB>
where
    UB: Body<Data = Bytes> + Send + 'static,
    UB::Error: Into<BoxError>,
{
    match pass.keep {
        Some(keep) => Carried::Keep(Box::new(Kind {
            status: pass.status,
            headers: pass.headers,
            extensions,
            has_body: pass.has_body,
            keep,
            len,
            body,
        })),
        None => {
            let body = match pass.has_body {
                true => CacheBody::direct(body, len, most),
                false => CacheBody::empty(),
            };
            Carried::Pass(response(pass.status, pass.headers, extensions, body))
        }
    }
}

pub(crate) fn response(
    status: StatusCode,
    headers: HeaderMap,
    extensions: Extensions,
    body: CacheBody,
) -> http::Response<CacheBody> {
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    *response.extensions_mut() = extensions;
    response
}

/// The number of bytes of a body, if its head says it.
fn announced(method: &Method, status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    let has_none = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if *method == Method::HEAD || has_none {
        return None;
    }
    let text = headers.get(CONTENT_LENGTH)?.to_str().ok()?;
    text.trim().parse().ok()
}

/// The rest of a body, if it is whole, not too long, and comes in time.
async fn rest<UB>(body: UB, len: Option<u64>, most: Option<Duration>) -> Option<Bytes>
where
    UB: Body<Data = Bytes>,
    UB::Error: Into<BoxError>,
{
    let all = all_of(body, MOST_REST, most).await.ok()??;
    len.is_none_or(|len| len == all.len() as u64).then_some(all)
}

/// All of a body, in which nothing may pause longer than `pause`. None if it has more than `most` bytes.
pub(crate) async fn all_of<UB>(
    body: UB,
    most: u64,
    pause: Option<Duration>,
) -> Result<Option<Bytes>, FetchError>
where
    UB: Body<Data = Bytes>,
    UB::Error: Into<BoxError>,
{
    // If it says how long it is, nothing has to be read.
    if body.size_hint().lower() > most {
        return Ok(None);
    }
    let mut body = std::pin::pin!(body);
    let mut pieces = Vec::new();
    let mut found: u64 = 0;
    while let Some(piece) = next_piece(body.as_mut(), pause).await? {
        let Some(bytes) = piece else {
            continue;
        };
        found = found.saturating_add(bytes.len() as u64);
        if found > most {
            return Ok(None);
        }
        pieces.push(bytes);
    }
    Ok(Some(joined(pieces)))
}

pub(crate) fn joined(pieces: Vec<Bytes>) -> Bytes {
    match <[Bytes; 1]>::try_from(pieces) {
        Ok([only]) => only,
        Err(pieces) => pieces.concat().into(),
    }
}
