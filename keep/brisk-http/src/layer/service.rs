use std::fmt;
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use brisk_cache::{AsyncCache, Flight, Hit};
use bytes::Bytes;
use http::{Extensions, HeaderMap, Method};
use http_body::Body;
use tokio::sync::oneshot;
use tower_service::Service;

use super::cache_body::CacheBody;
use super::counts::Counters;
use super::directory::{Directory, Troubles};
use super::fetch::{Carried, Kind, Watched, response};
use super::fetch_error::{BoxError, FetchError};
use super::fetches::{Fetches, Interest, News, Part, Registered, Teller};
use super::unless::unless;
use super::upstream::Upstream;
use crate::decision::Failure;
use crate::engine::{Answer, Engine, Exchange, Step};
use crate::head::Request;
use crate::target::Target;
use crate::timestamp::Timestamp;

/// Above this length, a stored body is checked while it is read, and its entry removed if it is damaged.
const CHECKED_LATER: usize = 64 * 1024;

/// How often a request joins a fetch that ends without an answer.
const MOST_JOINED: usize = 3;

/// How a layer fetches.
#[derive(Debug, Clone)]
pub(crate) struct FetchOptions {
    pub(crate) head_timeout: Option<Duration>,
    pub(crate) body_timeout: Option<Duration>,
    pub(crate) finish_below: u64,
    pub(crate) memory: u64,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            head_timeout: None,
            body_timeout: None,
            finish_below: 1 << 20,
            memory: 1 << 20,
        }
    }
}

/// What all services of a layer have together.
pub(crate) struct Core {
    /// Waits for the disk.
    pub(crate) engine: Engine<Directory>,
    /// Does not.
    pub(crate) quick: Engine<Directory>,
    pub(crate) cache: AsyncCache,
    pub(crate) fetches: Arc<Fetches>,
    pub(crate) counts: Counters,
    pub(crate) options: FetchOptions,
    pub(crate) clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    pub(crate) troubles: Arc<Troubles>,
}

#[derive(Clone)]
pub(crate) struct Shared(Arc<Core>);

impl Deref for Shared {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.0
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("engine", &self.engine)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(core: Core) -> Self {
        Self(Arc::new(core))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The response of an answer from the cache. `url` is that of its body.
    pub(crate) fn respond(
        &self,
        answer: Answer<Hit>,
        url: Option<&str>,
    ) -> http::Response<CacheBody> {
        let name = answer.name;
        let body = match answer.body {
            None => CacheBody::empty(),
            Some((hit, range)) => match hit.try_into_copy() {
                Ok(copy) => CacheBody::of_copy(&copy, range),
                Err(hit) => {
                    let key = url
                        .filter(|_| hit.len() > CHECKED_LATER)
                        .and_then(Target::parse);
                    let entry =
                        key.map(|key| (self.engine.storage().clone(), key.as_str().to_owned()));
                    CacheBody::of_hit(hit, range, entry)
                }
            },
        };
        let body = body.named(name);
        response(answer.status, answer.headers, Extensions::new(), body)
    }
}

/// An HTTP client with a cache in front of it: what a [`CacheLayer`](super::CacheLayer) makes.
///
/// It takes requests with absolute URLs of `http` or `https`. It runs on tokio, with a timer. It is always ready.
///
/// 1. A hit is answered at once, and its body copies nothing. Requests with a body, and other methods than GET and HEAD,
///    pass the cache; what they change is invalidated before their answer is returned.
/// 2. Several requests for one URL share a fetch, as far as its response may answer them all. They get its body as it
///    comes. Over processes, one fetches at a time; the others wait at most
///    [`CacheOptions::fetch_wait`](brisk_cache::CacheOptions::fetch_wait).
/// 3. A body that is cut short, too long, or ends with an error is never stored, and its readers get the error.
/// 4. A fetch ends when nobody wants it, unless little is left.
/// 5. If the cache's directory fails, responses are passed on and not stored.
/// 6. A request for a URL whose response has come waits until that is stored. So a client that has read a body and asks again
///    gets a hit. The end of a body waits for no disk.
///
/// # Errors
///
/// [`FetchError`], if the client fails and no stored response may stand in. An answer of the origin is no error,
/// whatever its status.
#[derive(Debug, Clone)]
pub struct CacheService<U> {
    pub(crate) shared: Shared,
    pub(crate) upstream: U,
}

/// The response of a [`CacheService`], which is there at once for a hit.
pub struct ResponseFuture(State);

#[allow(
    clippy::large_enum_variant,
    reason = "a hit is answered without an allocation"
)]
enum State {
    Ready(Option<http::Response<CacheBody>>),
    Waiting(Pin<Box<dyn Future<Output = Answered> + Send>>),
}

type Answered = Result<http::Response<CacheBody>, FetchError>;

impl Future for ResponseFuture {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        match &mut self.0 {
            State::Ready(response) => Poll::Ready(response.take().ok_or_else(FetchError::ended)),
            State::Waiting(future) => future.as_mut().poll(context),
        }
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Ready(_) => "ResponseFuture(ready)",
            State::Waiting(_) => "ResponseFuture(waiting)",
        })
    }
}

impl<U, B> Service<http::Request<B>> for CacheService<U>
where
    U: Upstream<B>,
    B: Body + Send + 'static,
{
    type Response = http::Response<CacheBody>;
    type Error = FetchError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), FetchError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> ResponseFuture {
        let (head, body) = request.into_parts();
        let wanted = Wanted {
            method: head.method,
            url: head.uri.to_string(),
            headers: head.headers,
            extensions: head.extensions,
        };
        let is_plain = matches!(wanted.method, Method::GET | Method::HEAD);
        if !is_plain || !body.is_end_stream() {
            let service = self.clone();
            let passing = async move { service.pass(wanted, body).await };
            return ResponseFuture(State::Waiting(Box::pin(passing)));
        }
        // Whoever has read a response to its end finds it stored. So this waits, and not the end of a body, which many get
        // who never ask again.
        if let Some(stored) = self.shared.fetches.stored(&wanted.url) {
            let service = self.clone();
            let looking = async move {
                stored.await;
                service.look(wanted).await
            };
            return ResponseFuture(State::Waiting(Box::pin(looking)));
        }
        let step = self
            .shared
            .quick
            .begin(&wanted.request(), self.shared.now());
        match step {
            Ok(Step::Answer(answer)) => self.ready(answer, &wanted.url),
            Ok(Step::AnswerAndRevalidate(answer, exchange)) => {
                self.revalidate(&wanted, exchange);
                self.ready(answer, &wanted.url)
            }
            Ok(Step::Ask(exchange)) => {
                let fetching = self.clone().fetch(wanted, exchange);
                ResponseFuture(State::Waiting(Box::pin(fetching)))
            }
            // It has to wait for the disk.
            Err(_) => {
                let service = self.clone();
                let looking = async move { service.look(wanted).await };
                ResponseFuture(State::Waiting(Box::pin(looking)))
            }
        }
    }
}

/// A request without its body.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    pub(crate) extensions: Extensions,
}

impl Wanted {
    pub(crate) fn request(&self) -> Request<'_> {
        Request {
            method: &self.method,
            url: &self.url,
            headers: &self.headers,
        }
    }
}

impl<U> CacheService<U> {
    pub(crate) fn new(shared: Shared, upstream: U) -> Self {
        Self { shared, upstream }
    }

    fn ready(&self, answer: Answer<Hit>, url: &str) -> ResponseFuture {
        self.shared.counts.add_hit();
        let response = self.shared.respond(answer, Some(url));
        ResponseFuture(State::Ready(Some(response)))
    }

    /// Looks a request up on a thread that may wait.
    async fn begin(&self, wanted: &Wanted) -> Step<Hit> {
        let now = self.shared.now();
        if let Ok(step) = self.shared.quick.begin(&wanted.request(), now) {
            return step;
        }
        let (method, url, headers) = (
            wanted.method.clone(),
            wanted.url.clone(),
            wanted.headers.clone(),
        );
        let begun = self
            .shared
            .waiting(move |shared| {
                let request = Request {
                    method: &method,
                    url: &url,
                    headers: &headers,
                };
                shared.engine.begin(&request, now)
            })
            .await;
        match begun {
            Ok(step) => step,
            Err(e) => {
                self.shared.troubles.note(&io::Error::other(e));
                Step::Ask(self.shared.engine.bypass(&wanted.request()))
            }
        }
    }

    async fn look<B>(self, wanted: Wanted) -> Answered
    where
        U: Upstream<B>,
        B: Body + Send + 'static,
    {
        match self.begin(&wanted).await {
            Step::Answer(answer) => Ok(self.hit(answer, &wanted)),
            Step::AnswerAndRevalidate(answer, exchange) => {
                self.revalidate(&wanted, exchange);
                Ok(self.hit(answer, &wanted))
            }
            Step::Ask(exchange) => self.fetch(wanted, exchange).await,
        }
    }

    fn hit(&self, answer: Answer<Hit>, wanted: &Wanted) -> http::Response<CacheBody> {
        self.shared.counts.add_hit();
        self.shared.respond(answer, Some(&wanted.url))
    }

    /// Sends a request on that the cache does not answer. It may invalidate what is stored.
    async fn pass<B>(self, wanted: Wanted, body: B) -> Answered
    where
        U: Upstream<B>,
        B: Body + Send + 'static,
    {
        let plain = matches!(wanted.method, Method::GET | Method::HEAD);
        let exchange = match plain {
            // What a body means in a GET, only the origin knows.
            true => self.shared.engine.bypass(&wanted.request()),
            false => match self.begin(&wanted).await {
                Step::Ask(exchange) => exchange,
                Step::Answer(answer) | Step::AnswerAndRevalidate(answer, _) => {
                    return Ok(self.shared.respond(answer, None));
                }
            },
        };
        self.alone(&wanted, exchange, Some(body)).await
    }

    /// Gets what the cache does not have, with others that want the same.
    async fn fetch<B>(self, wanted: Wanted, mut exchange: Box<Exchange<Hit>>) -> Answered
    where
        U: Upstream<B>,
        B: Body + Send + 'static,
    {
        for _ in 0..MOST_JOINED {
            let Some(key) = exchange.key().filter(|_| exchange.is_shareable()) else {
                break;
            };
            let key = key.to_owned();
            let mut interest = match self.shared.fetches.join(&key) {
                Part::Alone => break,
                Part::Lead(registered, interest) => {
                    return self.lead(wanted, exchange, registered, interest).await;
                }
                Part::Follow(interest) => interest,
            };
            match interest.news().await {
                Some(News::Response(fetched)) => {
                    let now = self.shared.now();
                    let policy = fetched.policy.view();
                    let head = self
                        .shared
                        .engine
                        .collapsed(&exchange, &policy, fetched.len, now);
                    if let Some((status, headers)) = head
                        && let Some(reader) = fetched.spool.reader()
                    {
                        self.shared.counts.add_collapsed();
                        let body = CacheBody::of_spool(reader, fetched.len, interest);
                        return Ok(response(status, headers, Extensions::new(), body));
                    }
                    break;
                }
                Some(News::Stored) => match self.begin(&wanted).await {
                    Step::Answer(answer) | Step::AnswerAndRevalidate(answer, _) => {
                        return Ok(self.hit(answer, &wanted));
                    }
                    // It is already stale again.
                    Step::Ask(again) => {
                        self.shared.fetches.remember_alone(&key);
                        exchange = again;
                        break;
                    }
                },
                Some(News::Alone) => break,
                Some(News::Failed(failure, error)) => {
                    let now = self.shared.now();
                    match (
                        self.shared.engine.stand_in_for(exchange, failure, now),
                        error,
                    ) {
                        (Ok(answer), _) => {
                            return Ok(self.shared.respond(answer, Some(&wanted.url)));
                        }
                        (Err(_), Some(error)) => return Err(error),
                        (Err(back), None) => {
                            exchange = back;
                            break;
                        }
                    }
                }
                // It was given up, or has panicked.
                None => (),
            }
        }
        self.alone::<B>(&wanted, exchange, None).await
    }

    /// Asks the origin for this request only.
    async fn alone<B>(
        mut self,
        wanted: &Wanted,
        exchange: Box<Exchange<Hit>>,
        body: Option<B>,
    ) -> Answered
    where
        U: Upstream<B>,
        B: Body + Send + 'static,
    {
        let shared = self.shared.clone();
        let carried = shared
            .carry(
                &shared.engine,
                &mut self.upstream,
                exchange,
                body,
                &wanted.extensions,
            )
            .await?;
        match carried {
            Carried::Answer(answer, url, _) => Ok(shared.respond(answer, url.as_deref())),
            Carried::Pass(response) => Ok(response),
            Carried::Keep(kind) => Ok(shared.read_apart(*kind)),
            Carried::Failed(error, exchange) => shared.failed(exchange, error, wanted).0,
        }
    }

    /// Carries out the fetch that others wait for, too, in a task that outlives this request.
    async fn lead<B>(
        self,
        wanted: Wanted,
        exchange: Box<Exchange<Hit>>,
        registered: Registered,
        interest: Interest,
    ) -> Answered
    where
        U: Upstream<B>,
        B: Body + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let fetches = Arc::clone(&self.shared.fetches);
        fetches.spawn(self.run(wanted, exchange, registered, Some(reply)));
        let answer = answer.await;
        drop(interest);
        answer.unwrap_or_else(|_| Err(FetchError::ended()))
    }

    /// Revalidates behind an answer, unless somebody does.
    fn revalidate<B>(&self, wanted: &Wanted, exchange: Box<Exchange<Hit>>)
    where
        U: Upstream<B>,
        B: Body + Send + 'static,
    {
        let Some(key) = exchange.key() else {
            return;
        };
        if let Some(registered) = self.shared.fetches.begin(key) {
            let run = self.clone().run(wanted.clone(), exchange, registered, None);
            self.shared.fetches.spawn(run);
        }
    }

    /// The task of a fetch. Without `reply`, it runs behind an answer.
    async fn run<B>(
        mut self,
        wanted: Wanted,
        exchange: Box<Exchange<Hit>>,
        registered: Registered,
        reply: Option<oneshot::Sender<Answered>>,
    ) where
        U: Upstream<B>,
        B: Body + Send + 'static,
    {
        let shared = self.shared.clone();
        // What runs behind an answer is wanted by the cache.
        let own = reply.is_none().then(|| registered.teller.interest());
        let turn = self.take_turn::<B>(&wanted, exchange, reply.is_none());
        let Some(carried) = unless(registered.abandoned(), turn).await else {
            return;
        };
        let teller = &registered.teller;
        let answer = |reply: Option<oneshot::Sender<Answered>>, answered: Answered| {
            if let Some(reply) = reply {
                // Who asked may have left.
                reply.send(answered).ok();
            }
        };
        match carried {
            Err(e) => {
                teller.tell(News::Failed(Failure::Disconnected, Some(e.clone())));
                answer(reply, Err(e));
            }
            Ok(None) => (),
            Ok(Some((Carried::Answer(stored, url, news), _))) => {
                teller.tell(news);
                answer(reply, Ok(shared.respond(stored, url.as_deref())));
            }
            Ok(Some((Carried::Pass(response), _))) => {
                shared.fetches.remember_alone(&registered.key);
                teller.tell(News::Alone);
                answer(reply, Ok(response));
            }
            Ok(Some((Carried::Failed(error, exchange), _))) => {
                let (answered, news) = shared.failed(exchange, error, &wanted);
                teller.tell(news);
                answer(reply, answered);
            }
            Ok(Some((Carried::Keep(kind), flight))) => {
                shared.fetches.forget_alone(&registered.key);
                let (response, keeping) = shared.keep(*kind, teller);
                answer(reply, Ok(response));
                shared.read(keeping, Watched::Registered(&registered)).await;
                drop((own, flight));
            }
        }
    }

    /// Waits until no other process fetches the same, looks again, and asks the origin. None: nothing is left to do.
    async fn take_turn<B>(
        &mut self,
        wanted: &Wanted,
        exchange: Box<Exchange<Hit>>,
        is_behind: bool,
    ) -> Result<Option<(Carried<U::Body>, Option<Flight>)>, FetchError>
    where
        U: Upstream<B>,
        B: Body + Send + 'static,
    {
        let shared = self.shared.clone();
        let key = crate::storage::policies_key(exchange.key().unwrap_or_default());
        let flight = match shared.cache.flight(&key, !is_behind).await {
            Ok(Some(flight)) => Some(flight),
            // Another process revalidates.
            Ok(None) => return Ok(None),
            // Nobody can be asked, so this fetches.
            Err(e) => {
                shared.troubles.note(&e);
                None
            }
        };
        let exchange = match (self.begin(wanted).await, is_behind) {
            (Step::Ask(again), _) | (Step::AnswerAndRevalidate(_, again), true) => again,
            // Another process was faster.
            (Step::Answer(_), true) => return Ok(None),
            (Step::Answer(answer) | Step::AnswerAndRevalidate(answer, _), false) => {
                let url = Some(wanted.url.clone());
                return Ok(Some((Carried::Answer(answer, url, News::Stored), None)));
            }
        };
        let carried = shared
            .carry::<U, B>(
                &shared.engine,
                &mut self.upstream,
                exchange,
                None,
                &wanted.extensions,
            )
            .await?;
        Ok(Some((carried, flight)))
    }
}

impl Shared {
    /// The response that is kept for one request. A task reads its body and stores it.
    pub(crate) fn read_apart<UB>(&self, kind: Kind<UB>) -> http::Response<CacheBody>
    where
        UB: Body<Data = Bytes> + Send + 'static,
        UB::Error: Into<BoxError>,
    {
        let teller = Teller::new();
        let (response, keeping) = self.keep(kind, &teller);
        let reader = self.clone();
        self.fetches.spawn(async move {
            reader.read(keeping, Watched::Alone(teller)).await;
        });
        response
    }

    /// The answer if the origin failed, and what others are told.
    fn failed(
        &self,
        exchange: Box<Exchange<Hit>>,
        error: FetchError,
        wanted: &Wanted,
    ) -> (Answered, News) {
        let failure = Failure::Disconnected;
        let news = News::Failed(failure, Some(error.clone()));
        match self.engine.stand_in_for(exchange, failure, self.now()) {
            Ok(answer) => (Ok(self.respond(answer, Some(&wanted.url))), news),
            Err(_) => (Err(error), news),
        }
    }
}
