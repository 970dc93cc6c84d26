use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use http::header::{
    AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, DATE, ETAG, EXPIRES,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
    RANGE, SET_COOKIE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::body_name::BodyName;
use crate::cache_status::{CacheStatus, Forwarded};
use crate::date;
use crate::decision::{Action, Failure};
use crate::directives::RequestDirectives;
use crate::head::{Request, Response, add, set};
use crate::invalidation::invalidates;
use crate::options::{Mode, Options};
use crate::overrides::Overrides;
use crate::policy::{Policy, Times, remove_connection_fields};
use crate::refusal::Refusal;
use crate::reply::{Reply, Validators};
use crate::storage::{Storage, StoredBytes};
use crate::stored_policy::StoredPolicy;
use crate::target::Target;
use crate::timestamp::Timestamp;
use crate::update::NotUpdated;
use crate::variants::{MOST_VARIANTS, Variants};

/// The most bytes of a URL whose responses are stored.
const MOST_KEY_BYTES: usize = 8 * 1024;

/// How often the variants of a URL are changed anew because another one changed them, before they are just written. As many as
/// there may be can be stored at once: each time that one fails, another one has succeeded.
const TRIES: usize = 2 * MOST_VARIANTS;

/// The variants of a URL before and after a change.
struct Changed<V> {
    before: Option<V>,
    now: Vec<u8>,
}

/// A whole cache, but for the network and the clock.
///
/// [`begin`](Self::begin) looks a request up. If the origin must be asked, the caller sends what the [`Exchange`] says and
/// hands the head of the response to [`answered`](Self::answered), or calls [`failed`](Self::failed). What is to be stored
/// goes to [`keep`](Self::keep) when all of the body has come.
#[derive(Debug, Clone)]
pub struct Engine<S> {
    storage: S,
    rules: Arc<Rules>,
}

/// What engines over several storages have together.
#[derive(Debug)]
struct Rules {
    options: Options,
    overrides: Overrides,
    name: String,
}

/// What to do first with a request.
#[derive(Debug)]
#[must_use]
pub enum Step<V> {
    /// Answer with this.
    Answer(Answer<V>),
    /// Answer with this, and then carry the exchange out; nobody waits for its answer.
    AnswerAndRevalidate(Answer<V>, Box<Exchange<V>>),
    /// Ask the origin.
    Ask(Box<Exchange<V>>),
}

/// What to do with the response of an origin.
#[derive(Debug)]
#[must_use]
pub enum Outcome<V> {
    /// Answer with this. The body of the response, if it has one, is of no use.
    Answer(Answer<V>),
    /// Pass the response on.
    Pass(Box<Pass>),
    /// Ask once more, as this exchange says.
    Again(Box<Exchange<V>>),
    /// The body of the response is the rest of a stored one: read all of it and call [`Engine::complete`].
    Complete(Box<Completion<V>>),
}

/// An answer from the cache.
#[derive(Debug)]
pub struct Answer<V> {
    /// The status.
    pub status: StatusCode,
    /// The fields, with `Cache-Status`, and with `Age` where it is due.
    pub headers: HeaderMap,
    /// What was found, and the bytes of it that are the body. None: there is no body.
    pub body: Option<(V, Range<usize>)>,
    /// The name of the stored body, if the body is all of it.
    pub name: Option<BodyName>,
}

impl<V: StoredBytes> Answer<V> {
    /// The body.
    ///
    /// # Errors
    ///
    /// As [`StoredBytes::bytes`].
    pub fn body(&self) -> io::Result<&[u8]> {
        let Some((value, range)) = &self.body else {
            return Ok(&[]);
        };
        value.bytes()?.get(range.clone()).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "a stored body has fewer than {} bytes; fetch it again",
                    range.end
                ),
            )
        })
    }
}

/// A stored response that answers a request: see [`Engine::find`].
#[derive(Debug)]
pub struct Found<V> {
    /// 1. Its bytes have a policy at `at`.
    variants: V,
    at: usize,
    body: Option<V>,
}

impl<V: StoredBytes> Found<V> {
    /// The policy. None if it has been damaged since it was found.
    pub fn policy(&self) -> Option<StoredPolicy<'_>> {
        policy_at(&self.variants, self.at).map(|(_, policy)| policy)
    }

    /// The body. None if it has no bytes.
    pub fn body(&self) -> Option<&V> {
        self.body.as_ref()
    }

    /// Takes the body out.
    #[cfg(feature = "tower")]
    pub(crate) fn take_body(&mut self) -> Option<V> {
        self.body.take()
    }
}

/// A mark that differs from one invalidation of a URL to the next.
type Invalidation = [u8; 8];

/// The key of the mark: no URL has a zero byte.
fn invalidation_key(key: &str) -> String {
    format!("{key}\0")
}

/// A response to pass on.
#[derive(Debug)]
pub struct Pass {
    /// The status for the client: that of the response, or 304 if the client has it already.
    pub status: StatusCode,
    /// The fields for the client.
    pub headers: HeaderMap,
    /// Whether the client gets the body of the response.
    pub has_body: bool,
    /// What to store with the body, once all of it is there.
    pub keep: Option<Keep>,
    /// Why it is not to be stored.
    pub refused: Option<Refusal>,
}

/// A response that is to be stored: see [`Engine::keep`].
#[derive(Debug)]
pub struct Keep {
    key: String,
    request_headers: HeaderMap,
    policy: Policy,
    invalidated: Option<Invalidation>,
    options: Options,
}

/// A request to send, and what is known of it.
pub struct Exchange<V> {
    /// The method to send.
    pub method: Method,
    /// The URL to send it to.
    pub url: String,
    /// The fields to send. The connection's own are the caller's.
    pub headers: HeaderMap,
    /// The fields of the client's request.
    client: HeaderMap,
    key: Option<String>,
    held: Option<Held<V>>,
    why: Forwarded,
    /// What the storage had of invalidations when this began.
    invalidated: Option<Invalidation>,
    options: Options,
}

/// Shows no field: some are credentials.
impl<V> fmt::Debug for Exchange<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("method", &self.method)
            .field("key", &self.key)
            .field("why", &self.why)
            .finish_non_exhaustive()
    }
}

/// A stored response, and what the request asks of the origin about it.
struct Held<V> {
    variants: V,
    at: usize,
    body: Option<V>,
    asked: Asked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Nothing: the stored response only stands in for a failure.
    Nothing,
    /// Whether it holds.
    Validation,
    /// The bytes after it.
    Completion,
}

/// The rest of a body is on its way: see [`Engine::complete`].
pub struct Completion<V> {
    exchange: Box<Exchange<V>>,
    headers: HeaderMap,
    times: Times,
}

impl<V> Completion<V> {
    /// The exchange that asks for the whole instead, because the rest cannot be read.
    pub fn give_up(self) -> Box<Exchange<V>> {
        unconditional(self.exchange)
    }

    /// As [`give_up`](Self::give_up), beside this.
    #[cfg(feature = "tower")]
    pub(crate) fn spare(&self) -> Box<Exchange<V>> {
        let exchange = &self.exchange;
        unconditional(Box::new(Exchange {
            method: exchange.method.clone(),
            url: exchange.url.clone(),
            headers: HeaderMap::new(),
            client: exchange.client.clone(),
            key: exchange.key.clone(),
            held: None,
            why: exchange.why,
            invalidated: exchange.invalidated,
            options: exchange.options.clone(),
        }))
    }
}

impl<V> fmt::Debug for Completion<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completion").field(&self.exchange).finish()
    }
}

impl Keep {
    /// The name of the URL in the storage.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The policy that is to be stored.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The name that the policy will give to this body.
    #[cfg(feature = "tower")]
    pub(crate) fn body_name(&self, body: &[u8]) -> BodyName {
        BodyName {
            owner: self.policy.view().body().owner,
            ..BodyName::of(body)
        }
    }
}

/// What came of [`Engine::keep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The response is stored.
    Stored,
    /// It is not, for this reason.
    Refused(Refusal),
}

impl<V> Exchange<V> {
    /// The name of the URL in the storage. None: nothing about this exchange is stored.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Whether the response can answer other requests, too: it is to a GET for the whole, with no conditions but those
    /// of the cache, by somebody who lets it be stored.
    pub(crate) fn is_shareable(&self) -> bool {
        let validates = self
            .held
            .as_ref()
            .is_some_and(|held| held.asked == Asked::Validation);
        let own = [
            &RANGE,
            &IF_RANGE,
            &IF_MATCH,
            &IF_UNMODIFIED_SINCE,
            &IF_NONE_MATCH,
            &IF_MODIFIED_SINCE,
        ];
        self.key.is_some()
            && self.method == Method::GET
            && (validates || !own.iter().any(|name| self.headers.contains_key(*name)))
            && !RequestDirectives::of(&self.client).no_store
    }

    /// Whether [`Engine::answered`] may write, and so wait for the disk.
    #[cfg(feature = "tower")]
    pub(crate) fn may_write(&self) -> bool {
        self.held.is_some() || !crate::invalidation::is_safe(&self.method)
    }

    fn client_request(&self) -> Request<'_> {
        Request {
            method: &self.method,
            url: &self.url,
            headers: &self.client,
        }
    }
}

impl<S: Storage> Engine<S> {
    /// An engine over a storage. `name` stands in `Cache-Status`: a token of letters, digits and `-`; other characters
    /// become `-`.
    pub fn new(storage: S, options: Options, overrides: Overrides, name: &str) -> Self {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = name.chars().map(plain).collect();
        // A token starts with a letter.
        let name = match name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            true => name,
            false => format!("cache-{name}"),
        };
        Self {
            storage,
            rules: Arc::new(Rules {
                options,
                overrides,
                name,
            }),
        }
    }

    /// An engine with the same options over another storage. It copies nothing.
    #[cfg(feature = "tower")]
    pub(crate) fn over<O: Storage>(&self, storage: O) -> Engine<O> {
        Engine {
            storage,
            rules: Arc::clone(&self.rules),
        }
    }

    /// Where policies and bodies are.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    fn options(&self, url: &str) -> Cow<'_, Options> {
        self.rules.overrides.options(url, &self.rules.options)
    }

    /// Looks for a stored response that answers a GET as it is, without asking anybody. Of the request's fields,
    /// `Cache-Control` and those that select a response count; conditions and ranges do not.
    ///
    /// It makes neither fields nor an answer: a hit allocates what its two look-ups in the storage do, and nothing else if
    /// the URL is in normal form.
    ///
    /// # Errors
    ///
    /// Those of the storage.
    pub fn find(
        &self,
        request: &Request<'_>,
        now: Timestamp,
    ) -> io::Result<Option<Found<S::Value>>> {
        let options = self.options(request.url);
        let Some(key) = key_of(request.url).filter(|_| !options.ignore) else {
            return Ok(None);
        };
        let Some(variants) = self.storage.policies(key.as_str())? else {
            return Ok(None);
        };
        let secret = options.secret.as_ref();
        let selected = readable(&variants)?
            .and_then(Variants::view)
            .and_then(|variants| variants.select(request.headers, secret));
        let Some((at, policy)) = selected else {
            return Ok(None);
        };
        if policy.decide_selected(request, now, &options).action != Action::Use {
            return Ok(None);
        }
        let name = policy.body();
        let body = match name.is_empty() {
            true => None,
            false => match self.storage.body(key.as_str(), &name)? {
                Some(body) if self.is_whole(&body, &name)? => Some(body),
                _ => return Ok(None),
            },
        };
        Ok(Some(Found { variants, at, body }))
    }

    /// Looks a request up.
    ///
    /// # Errors
    ///
    /// Those of the storage. The request can be sent on as it is all the same.
    pub fn begin(&self, request: &Request<'_>, now: Timestamp) -> io::Result<Step<S::Value>> {
        let options = self.options(request.url).into_owned();
        let key = key_of(request.url)
            .filter(|_| !options.ignore)
            .map(|key| key.as_str().to_owned());
        let mut client = request.headers.clone();
        remove_connection_fields(&mut client);
        let mut exchange = Box::new(Exchange {
            method: request.method.clone(),
            url: request.url.to_owned(),
            headers: client,
            client: request.headers.clone(),
            key,
            held: None,
            why: Forwarded::UriMiss,
            invalidated: None,
            options,
        });
        if exchange.key.is_none() {
            exchange.why = Forwarded::Bypass;
            return Ok(self.ask(exchange, request));
        }
        if !matches!(*request.method, Method::GET | Method::HEAD) {
            exchange.why = Forwarded::Method;
            return Ok(self.ask(exchange, request));
        }
        let mut step = self.look_up(exchange, request, now)?;
        if let Step::Ask(exchange) | Step::AnswerAndRevalidate(_, exchange) = &mut step
            && let Some(key) = &exchange.key
        {
            exchange.invalidated = self.invalidation(key)?;
        }
        Ok(step)
    }

    /// The last invalidation of a URL that the storage has.
    fn invalidation(&self, key: &str) -> io::Result<Option<Invalidation>> {
        let found = self.storage.policies(&invalidation_key(key))?;
        let bytes = match &found {
            Some(found) => readable(found)?,
            None => None,
        };
        Ok(bytes.and_then(|bytes| bytes.last_chunk().copied()))
    }

    /// The exchange for a request that passes the cache by, for example because its storage fails. Nothing of it is
    /// stored. An unsafe method invalidates nothing, either.
    pub fn bypass(&self, request: &Request<'_>) -> Box<Exchange<S::Value>> {
        let mut headers = request.headers.clone();
        remove_connection_fields(&mut headers);
        Box::new(Exchange {
            method: request.method.clone(),
            url: request.url.to_owned(),
            headers,
            client: request.headers.clone(),
            key: None,
            held: None,
            why: Forwarded::Bypass,
            invalidated: None,
            options: self.rules.options.clone(),
        })
    }

    /// Sends a request on, unless nobody may be asked.
    fn ask(&self, exchange: Box<Exchange<S::Value>>, request: &Request<'_>) -> Step<S::Value> {
        let alone = RequestDirectives::of(request.headers).only_if_cached;
        match exchange.options.offline || alone {
            true => Step::Answer(self.gateway_timeout(exchange.why, None)),
            false => Step::Ask(exchange),
        }
    }

    fn look_up(
        &self,
        mut exchange: Box<Exchange<S::Value>>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> io::Result<Step<S::Value>> {
        let key = exchange.key.clone().unwrap_or_default();
        let Some(found) = self.storage.policies(&key)? else {
            return Ok(self.ask(exchange, request));
        };
        let variants = readable(&found)?.and_then(Variants::view);
        let options = exchange.options.clone();
        let selected = variants.and_then(|variants| {
            exchange.why = match variants.is_empty() {
                true => Forwarded::UriMiss,
                false => Forwarded::VaryMiss,
            };
            variants.select(request.headers, options.secret.as_ref())
        });
        let Some((at, policy)) = selected else {
            return Ok(self.ask(exchange, request));
        };
        let decision = policy.decide_selected(request, now, &options);
        let body = match policy.body().is_empty() {
            true => None,
            false => match self.storage.body(&key, &policy.body())? {
                Some(body) if self.is_whole(&body, &policy.body())? => Some(body),
                // The body was evicted or is damaged, so the policy is of no use.
                _ => {
                    exchange.why = Forwarded::Miss;
                    return Ok(self.ask(exchange, request));
                }
            },
        };
        match decision.action {
            Action::Use => {
                let status = CacheStatus::hit(&self.rules.name, &decision);
                let headers = unvalidated(&policy, now, &options);
                let answer = self.answer(&policy, request, headers, body, (now, &status));
                Ok(Step::Answer(answer))
            }
            Action::UseAndRevalidate => {
                let status = CacheStatus::hit(&self.rules.name, &decision);
                let headers = unvalidated(&policy, now, &options);
                let again = self.storage.body(&key, &policy.body())?;
                let answer = self.answer(&policy, request, headers, body, (now, &status));
                for name in [&IF_NONE_MATCH, &IF_MODIFIED_SINCE, &IF_RANGE, &RANGE] {
                    exchange.headers.remove(name);
                    exchange.client.remove(name);
                }
                policy.validators().apply(&mut exchange.headers);
                exchange.why = Forwarded::Stale;
                let asked = asked_by(&policy.validators());
                exchange.held = Some(Held {
                    variants: found,
                    at,
                    body: again,
                    asked,
                });
                Ok(Step::AnswerAndRevalidate(answer, exchange))
            }
            Action::Revalidate => {
                exchange.why = Forwarded::of(decision.reason);
                let validators = policy.validators();
                let mut asked = Asked::Nothing;
                if *request.method == Method::GET && !validators.is_empty() {
                    validators.apply(&mut exchange.headers);
                    asked = Asked::Validation;
                }
                exchange.held = Some(Held {
                    variants: found,
                    at,
                    body,
                    asked,
                });
                Ok(Step::Ask(exchange))
            }
            Action::Forward => {
                exchange.why = Forwarded::of(decision.reason);
                let conditions = [&RANGE, &IF_NONE_MATCH, &IF_MODIFIED_SINCE, &IF_RANGE];
                let is_plain = *request.method == Method::GET
                    && !conditions
                        .iter()
                        .any(|name| request.headers.contains_key(*name));
                let completion = policy.completion().filter(|_| is_plain);
                let asked = match completion {
                    Some((range, validator)) => {
                        set(&mut exchange.headers, RANGE, range);
                        set(&mut exchange.headers, IF_RANGE, validator);
                        Asked::Completion
                    }
                    None => Asked::Nothing,
                };
                exchange.held = Some(Held {
                    variants: found,
                    at,
                    body,
                    asked,
                });
                Ok(self.ask(exchange, request))
            }
            Action::GatewayTimeout => {
                let why = Forwarded::of(decision.reason);
                Ok(Step::Answer(self.gateway_timeout(why, None)))
            }
        }
    }

    /// Takes the head of the origin's response.
    ///
    /// # Errors
    ///
    /// Those of the storage.
    pub fn answered(
        &self,
        mut exchange: Box<Exchange<S::Value>>,
        response: &Response<'_>,
        times: Times,
    ) -> io::Result<Outcome<S::Value>> {
        // What an unsafe method changed is gone before anybody hears of it.
        if exchange.key.is_some() {
            let (method, url) = (&exchange.method, &exchange.url);
            for key in invalidates(method, url, response.status, response.headers) {
                // What is fetched at this moment may be older. Whoever stores it looks for this.
                let mark = RandomState::new().hash_one(&key).to_le_bytes();
                let marked = [0u32.to_le_bytes().as_slice(), &mark].concat();
                self.storage
                    .put_policies(&invalidation_key(&key), &marked)?;
                self.storage.remove_policies(&key)?;
                // Its own answer may be stored.
                if exchange.key.as_ref() == Some(&key) {
                    exchange.invalidated = Some(mark);
                }
            }
        }
        let Some(held) = exchange.held.take() else {
            return Ok(self.pass(&exchange, response, times));
        };
        let Some((_, policy)) = policy_at(&held.variants, held.at) else {
            return Ok(self.pass(&exchange, response, times));
        };
        let failure = Failure::Status(response.status);
        let request = exchange.client_request();
        if policy.covers(&request, failure, times.response, &exchange.options) {
            return Ok(Outcome::Answer(self.stand_in(
                &exchange,
                held,
                times.response,
                failure,
            )));
        }
        match (held.asked, response.status) {
            (Asked::Validation, StatusCode::NOT_MODIFIED) => {
                self.validated(exchange, held, response, times)
            }
            (Asked::Completion, StatusCode::PARTIAL_CONTENT) => {
                exchange.held = Some(held);
                Ok(Outcome::Complete(Box::new(Completion {
                    exchange,
                    headers: response.headers.clone(),
                    times,
                })))
            }
            // The part is not what it was, or the origin does not want to say.
            (Asked::Completion, StatusCode::RANGE_NOT_SATISFIABLE) => {
                Ok(Outcome::Again(unconditional(exchange)))
            }
            _ if exchange.method == Method::HEAD && response.status == StatusCode::OK => {
                self.head_answered(&exchange, held, response, times)
            }
            _ => Ok(self.pass(&exchange, response, times)),
        }
    }

    /// A 304 came: the stored response holds.
    fn validated(
        &self,
        exchange: Box<Exchange<S::Value>>,
        held: Held<S::Value>,
        response: &Response<'_>,
        times: Times,
    ) -> io::Result<Outcome<S::Value>> {
        let Some((variants, policy)) = policy_at(&held.variants, held.at) else {
            return Ok(Outcome::Again(unconditional(exchange)));
        };
        let request = exchange.client_request();
        let updated = policy.validated(&request, response.headers, times, &exchange.options);
        let mut status =
            CacheStatus::forwarded(&self.rules.name, exchange.why, Some(response.status));
        let answer = match updated {
            Err(NotUpdated::Other) => return Ok(Outcome::Again(unconditional(exchange))),
            // It holds for this request, but what came is not to be stored.
            Err(NotUpdated::Refused(_)) => {
                let headers = policy.merged_headers(response.headers, times);
                self.answer(
                    &policy,
                    &request,
                    headers,
                    held.body,
                    (times.response, &status),
                )
            }
            Ok(new) => {
                status.stored = self.replace(&exchange, &variants, held.at, &new)?;
                let view = new.view();
                let lifetime = view.lifetime(&exchange.options);
                let seconds = |value| i64::try_from(value).unwrap_or(i64::MAX);
                status.ttl =
                    Some(seconds(lifetime).saturating_sub(seconds(view.age(times.response))));
                let headers = view.headers(true);
                self.answer(
                    &view,
                    &request,
                    headers,
                    held.body,
                    (times.response, &status),
                )
            }
        };
        Ok(Outcome::Answer(answer))
    }

    /// Writes a policy in place of the one that was held, unless another process changed that meanwhile.
    fn replace(
        &self,
        exchange: &Exchange<S::Value>,
        held: &Variants<'_>,
        at: usize,
        new: &Policy,
    ) -> io::Result<bool> {
        let Some(key) = &exchange.key else {
            return Ok(false);
        };
        let old = held.bytes(at).and_then(StoredPolicy::view);
        let narrows = old.is_some_and(|old| new.view().is_told_apart_more_than(&old));
        let secret = exchange.options.secret.as_ref();
        let changed = self.change_variants(key, |current| {
            let current = current?;
            let same = |place: &usize| current.bytes(*place) == held.bytes(at);
            let place = (0..current.len()).find(same)?;
            Some(match narrows {
                // What the credentials of one client have shown is for them. All others keep what they have.
                true => Variants::with(Some(current), new, &exchange.client, secret),
                false => current.replaced(place, new),
            })
        })?;
        Ok(changed.is_some())
    }

    /// Stores what `change` makes of the variants of a URL. It is asked again if another one has stored others meanwhile.
    /// None if `change` wants nothing to be stored.
    fn change_variants(
        &self,
        key: &str,
        mut change: impl FnMut(Option<&Variants<'_>>) -> Option<Vec<u8>>,
    ) -> io::Result<Option<Changed<S::Value>>> {
        for tries_left in (0..TRIES).rev() {
            let found = self.storage.policies(key)?;
            let current = match &found {
                Some(found) => readable(found)?.and_then(Variants::view),
                None => None,
            };
            let Some(bytes) = change(current.as_ref()) else {
                return Ok(None);
            };
            let is_stored = match tries_left {
                // What cannot be read may be there for ever.
                0 => self.storage.put_policies(key, &bytes).map(|()| true),
                _ => self.storage.replace_policies(key, found.as_ref(), &bytes),
            };
            if is_stored? {
                return Ok(Some(Changed {
                    before: found,
                    now: bytes,
                }));
            }
        }
        Ok(None)
    }

    /// A 200 to HEAD came: it updates the stored response, or shows that it no longer holds (RFC 9111, section 4.3.5).
    fn head_answered(
        &self,
        exchange: &Exchange<S::Value>,
        held: Held<S::Value>,
        response: &Response<'_>,
        times: Times,
    ) -> io::Result<Outcome<S::Value>> {
        let Some((variants, policy)) = policy_at(&held.variants, held.at) else {
            return Ok(self.pass(exchange, response, times));
        };
        let request = exchange.client_request();
        match policy.updated_by_head(&request, response, times, &exchange.options) {
            Ok(new) => {
                let mut status =
                    CacheStatus::forwarded(&self.rules.name, exchange.why, Some(response.status));
                status.stored = self.replace(exchange, &variants, held.at, &new)?;
                let headers = new.view().headers(true);
                let view = new.view();
                let answer = self.answer(&view, &request, headers, None, (times.response, &status));
                Ok(Outcome::Answer(answer))
            }
            Err(NotUpdated::Other) => {
                if let Some(bytes) = variants.bytes(held.at) {
                    let marked = Policy::invalidated(bytes);
                    self.replace(exchange, &variants, held.at, &marked)?;
                }
                Ok(self.pass(exchange, response, times))
            }
            Err(NotUpdated::Refused(_)) => Ok(self.pass(exchange, response, times)),
        }
    }

    /// Puts a stored part and the rest of it together, stores the whole, and answers with it.
    ///
    /// # Errors
    ///
    /// Those of the storage.
    pub fn complete(
        &self,
        completion: Completion<S::Value>,
        rest: &[u8],
    ) -> io::Result<Outcome<S::Value>> {
        let Completion {
            mut exchange,
            headers,
            times,
        } = completion;
        let whole = exchange.held.take().and_then(|held| {
            let (_, policy) = policy_at(&held.variants, held.at)?;
            let mut whole = held.body.as_ref()?.bytes().ok()?.to_vec();
            whole.extend_from_slice(rest);
            let name = BodyName::of(&whole);
            let request = exchange.client_request();
            let policy = policy
                .completed(&request, &headers, name, times, &exchange.options)
                .ok()?;
            Some((policy, whole))
        });
        let (Some((policy, whole)), Some(key)) = (whole, exchange.key.clone()) else {
            return Ok(Outcome::Again(unconditional(exchange)));
        };
        let name = policy.view().body();
        let put = |name: &BodyName| self.storage.put_body(&key, name, &whole);
        let asked = (&exchange.client, exchange.invalidated);
        self.store(&key, asked, &policy, &exchange.options, put)?;
        let Some(body) = self.storage.body(&key, &name)? else {
            return Ok(Outcome::Again(unconditional(exchange)));
        };
        let partial = Some(StatusCode::PARTIAL_CONTENT);
        let mut status = CacheStatus::forwarded(&self.rules.name, exchange.why, partial);
        status.stored = true;
        let (view, request) = (policy.view(), exchange.client_request());
        let fields = view.headers(true);
        let answer = self.answer(
            &view,
            &request,
            fields,
            Some(body),
            (times.response, &status),
        );
        Ok(Outcome::Answer(answer))
    }

    /// The origin could not be reached, or its response broke off before its head. The answer is a stored one if that
    /// is allowed, and 504 otherwise.
    pub fn failed(&self, exchange: Box<Exchange<S::Value>>, now: Timestamp) -> Answer<S::Value> {
        match self.stand_in_for(exchange, Failure::Disconnected, now) {
            Ok(answer) => answer,
            Err(exchange) => self.gateway_timeout(exchange.why, None),
        }
    }

    /// The stored response that may stand in for a failure of the origin.
    ///
    /// # Errors
    ///
    /// The exchange, if there is none.
    pub(crate) fn stand_in_for(
        &self,
        mut exchange: Box<Exchange<S::Value>>,
        failure: Failure,
        now: Timestamp,
    ) -> Result<Answer<S::Value>, Box<Exchange<S::Value>>> {
        let Some(held) = exchange.held.take() else {
            return Err(exchange);
        };
        let request = exchange.client_request();
        let covers = policy_at(&held.variants, held.at)
            .is_some_and(|(_, policy)| policy.covers(&request, failure, now, &exchange.options));
        if covers {
            return Ok(self.stand_in(&exchange, held, now, failure));
        }
        exchange.held = Some(held);
        Err(exchange)
    }

    /// The head with which the response to another request answers this one, too (RFC 9211, section 2.2, `collapsed`).
    /// `body_len` is the length of its body, if that is known. None if it does not answer this request without
    /// validation.
    pub fn collapsed(
        &self,
        exchange: &Exchange<S::Value>,
        policy: &StoredPolicy<'_>,
        body_len: Option<u64>,
        now: Timestamp,
    ) -> Option<(StatusCode, HeaderMap)> {
        let request = exchange.client_request();
        let decision = policy.decide(&request, now, &exchange.options);
        if !exchange.is_shareable() || !decision.is_use() {
            return None;
        }
        let mut status =
            CacheStatus::forwarded(&self.rules.name, exchange.why, Some(policy.status()));
        status.ttl = Some(decision.ttl());
        status.collapsed = true;
        let mut headers = policy.headers(false);
        if let Some(len) = body_len {
            set(&mut headers, CONTENT_LENGTH, HeaderValue::from(len));
        }
        set(&mut headers, AGE, HeaderValue::from(policy.age(now)));
        add_status(&mut headers, &status);
        Some((policy.status(), headers))
    }

    /// A stored response in place of a failure.
    fn stand_in(
        &self,
        exchange: &Exchange<S::Value>,
        held: Held<S::Value>,
        now: Timestamp,
        failure: Failure,
    ) -> Answer<S::Value> {
        let forward_status = match failure {
            Failure::Status(status) => Some(status),
            Failure::Disconnected => None,
        };
        let Some((_, policy)) = policy_at(&held.variants, held.at) else {
            return self.gateway_timeout(exchange.why, forward_status);
        };
        let mut status = CacheStatus::forwarded(&self.rules.name, exchange.why, forward_status);
        status.detail = Some("stale-if-error");
        let request = exchange.client_request();
        status.ttl = Some(policy.decide(&request, now, &exchange.options).ttl());
        let headers = unvalidated(&policy, now, &exchange.options);
        self.answer(&policy, &request, headers, held.body, (now, &status))
    }

    /// Passes a response on, and says what to store of it.
    fn pass(
        &self,
        exchange: &Exchange<S::Value>,
        response: &Response<'_>,
        times: Times,
    ) -> Outcome<S::Value> {
        let request = exchange.client_request();
        let policy = match &exchange.key {
            Some(_) => Policy::of(&request, response, times, &exchange.options),
            None => Err(Refusal::Ignored),
        };
        let mut status =
            CacheStatus::forwarded(&self.rules.name, exchange.why, Some(response.status));
        status.stored = policy.is_ok();
        if let Ok(policy) = &policy {
            status.ttl = Some(
                policy
                    .view()
                    .decide(&request, times.response, &exchange.options)
                    .ttl(),
            );
        }
        // The conditions of the client were replaced by those of the cache, so nobody else looks at them. Only a policy
        // that is to be stored has been compared with them.
        let unmodified = policy.as_ref().is_ok_and(|policy| {
            exchange.method == Method::GET
                && policy.view().reply(&request, times.response) == Reply::NotModified
        });
        let mut headers = response.headers.clone();
        remove_connection_fields(&mut headers);
        if !headers.contains_key(DATE)
            && let Some(value) =
                date::format(times.response).and_then(|text| HeaderValue::try_from(text).ok())
        {
            set(&mut headers, DATE, value);
        }
        if unmodified {
            retain_for_not_modified(&mut headers);
        }
        add_status(&mut headers, &status);
        let (policy, refused) = match policy {
            Ok(policy) => (Some(policy), None),
            Err(refusal) => (None, Some(refusal)),
        };
        let keep = policy.zip(exchange.key.clone()).map(|(policy, key)| Keep {
            key,
            request_headers: exchange.client.clone(),
            policy,
            invalidated: exchange.invalidated,
            options: exchange.options.clone(),
        });
        Outcome::Pass(Box::new(Pass {
            status: match unmodified {
                true => StatusCode::NOT_MODIFIED,
                false => response.status,
            },
            headers,
            has_body: !unmodified && exchange.method != Method::HEAD,
            keep,
            refused,
        }))
    }

    /// Stores a response with its whole body. The body is written first, so a policy that is found names one that was
    /// there. A body that is stored already is not written again.
    ///
    /// # Errors
    ///
    /// Those of the storage. Then nothing, or a body that no policy names, was stored.
    pub fn keep(&self, keep: Keep, body: &[u8]) -> io::Result<Kept> {
        self.keep_named(keep, BodyName::of(body), |key, name| {
            self.storage.put_body(key, name, body)
        })
    }

    /// Like [`keep`](Self::keep), for a body that came piece by piece. `put` stores it under the key that it is given, in
    /// this storage. It is not called if the body is stored already.
    ///
    /// # Errors
    ///
    /// Those of the storage, and of `put`.
    pub fn keep_named(
        &self,
        keep: Keep,
        name: BodyName,
        put: impl FnOnce(&str, &BodyName) -> io::Result<()>,
    ) -> io::Result<Kept> {
        let Keep {
            key,
            request_headers,
            policy,
            invalidated,
            options,
        } = keep;
        let policy = match policy.with_body(name) {
            Ok(policy) => policy,
            Err(refusal) => return Ok(Kept::Refused(refusal)),
        };
        let put = |name: &BodyName| put(&key, name);
        let asked = (&request_headers, invalidated);
        self.store(&key, asked, &policy, &options, put)
    }

    fn store(
        &self,
        key: &str,
        (request_headers, invalidated): (&HeaderMap, Option<Invalidation>),
        policy: &Policy,
        options: &Options,
        put: impl FnOnce(&BodyName) -> io::Result<()>,
    ) -> io::Result<Kept> {
        let name = policy.view().body();
        if !name.is_empty() {
            // A damaged one would be read again and again, so this looks at all of it.
            let is_right =
                |found: S::Value| self.storage.fits(&found, &name) && found.bytes().is_ok();
            if !self.storage.body(key, &name)?.is_some_and(is_right) {
                put(&name)?;
            }
        }
        let secret = options.secret.as_ref();
        let with =
            |old: Option<&Variants<'_>>| Some(Variants::with(old, policy, request_headers, secret));
        let changed = self.change_variants(key, with)?;
        let before = changed.as_ref().and_then(|changed| changed.before.as_ref());
        let old = match before {
            Some(before) => readable(before)?.and_then(Variants::view),
            None => None,
        };
        let new = changed
            .as_ref()
            .and_then(|changed| Variants::view(&changed.now));
        let is_named = |name: &BodyName| {
            new.is_some_and(|new| new.iter().any(|(_, policy)| policy.body() == *name))
        };
        for (_, policy) in old.iter().flat_map(Variants::iter) {
            let name = policy.body();
            if !name.is_empty() && !is_named(&name) {
                self.storage.remove_body(key, &name)?;
            }
        }
        // An unsafe method may have succeeded while the response was on its way. Whoever invalidates writes the mark first
        // and then removes, so either that removes what was just stored, or this sees the mark.
        if self.invalidation(key)? != invalidated {
            self.storage.remove_policies(key)?;
            return Ok(Kept::Refused(Refusal::Invalidated));
        }
        Ok(Kept::Stored)
    }

    /// Whether what was found is the body of this name.
    fn is_whole(&self, body: &S::Value, name: &BodyName) -> io::Result<bool> {
        Ok(self.storage.fits(body, name)
            && (self.storage.is_checked_by_reader(body) || readable(body)?.is_some()))
    }

    /// The answer of a stored response to a request whose conditions and range are looked at now.
    fn answer(
        &self,
        policy: &StoredPolicy<'_>,
        request: &Request<'_>,
        mut headers: HeaderMap,
        body: Option<S::Value>,
        (now, status): (Timestamp, &CacheStatus<'_>),
    ) -> Answer<S::Value> {
        let len = usize::try_from(policy.body().len()).unwrap_or(usize::MAX);
        let mut range = 0..len;
        let reply = policy.reply(request, now);
        let code = match reply {
            Reply::Whole => policy.status(),
            Reply::NotModified => StatusCode::NOT_MODIFIED,
            Reply::Part { .. } => StatusCode::PARTIAL_CONTENT,
            Reply::NotSatisfiable { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
        };
        match reply {
            Reply::Whole => (),
            Reply::NotModified => retain_for_not_modified(&mut headers),
            Reply::Part {
                first,
                last,
                complete,
                stored_from,
            } => {
                let complete = complete.map_or("*".to_owned(), |complete| complete.to_string());
                set_text(
                    &mut headers,
                    CONTENT_RANGE,
                    &format!("bytes {first}-{last}/{complete}"),
                );
                let count = last.saturating_sub(first).saturating_add(1);
                set(&mut headers, CONTENT_LENGTH, HeaderValue::from(count));
                let from = |position: u64| {
                    usize::try_from(position.saturating_sub(stored_from)).unwrap_or(usize::MAX)
                };
                range = from(first)..from(last).saturating_add(1);
            }
            Reply::NotSatisfiable { complete } => {
                set_text(&mut headers, CONTENT_RANGE, &format!("bytes */{complete}"));
                set(&mut headers, CONTENT_LENGTH, HeaderValue::from(0));
            }
        }
        set(&mut headers, AGE, HeaderValue::from(policy.age(now)));
        add_status(&mut headers, status);
        let has_body =
            *request.method != Method::HEAD && matches!(reply, Reply::Whole | Reply::Part { .. });
        Answer {
            status: code,
            headers,
            body: body.filter(|_| has_body).map(|body| (body, range)),
            name: (has_body && reply == Reply::Whole).then(|| policy.body()),
        }
    }

    fn gateway_timeout(&self, why: Forwarded, status: Option<StatusCode>) -> Answer<S::Value> {
        let mut headers = HeaderMap::new();
        set(&mut headers, CONTENT_LENGTH, HeaderValue::from(0));
        add_status(
            &mut headers,
            &CacheStatus::forwarded(&self.rules.name, why, status),
        );
        Answer {
            status: StatusCode::GATEWAY_TIMEOUT,
            headers,
            body: None,
            name: None,
        }
    }
}

/// The fields of a stored response that nobody has validated now. In a shared cache, a cookie is of somebody else, and
/// the origin has let others have it only as long as the response is fresh.
fn unvalidated(policy: &StoredPolicy<'_>, now: Timestamp, options: &Options) -> HeaderMap {
    let mut headers = policy.headers(false);
    if options.mode == Mode::Shared && policy.age(now) >= policy.lifetime(options) {
        headers.remove(SET_COOKIE);
    }
    headers
}

/// The key of a URL. None if nothing about it is stored.
fn key_of(url: &str) -> Option<Target<'_>> {
    Target::parse(url).filter(|key| key.as_str().len() <= MOST_KEY_BYTES)
}

fn policy_at<V: StoredBytes>(value: &V, at: usize) -> Option<(Variants<'_>, StoredPolicy<'_>)> {
    let variants = Variants::view(value.bytes().ok()?)?;
    let policy = StoredPolicy::view(variants.bytes(at)?)?;
    Some((variants, policy))
}

/// None if the value is damaged: that is a miss.
fn readable<V: StoredBytes>(value: &V) -> io::Result<Option<&[u8]>> {
    match value.bytes() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(e) => Err(e),
    }
}

fn asked_by(validators: &Validators<'_>) -> Asked {
    match validators.is_empty() {
        true => Asked::Nothing,
        false => Asked::Validation,
    }
}

/// The exchange with the client's own request, and nothing that is stored.
fn unconditional<V>(mut exchange: Box<Exchange<V>>) -> Box<Exchange<V>> {
    exchange.headers = exchange.client.clone();
    remove_connection_fields(&mut exchange.headers);
    exchange.held = None;
    exchange
}

/// What a 304 has (RFC 9110, section 15.4.5).
fn retain_for_not_modified(headers: &mut HeaderMap) {
    let kept = [CACHE_CONTROL, CONTENT_LOCATION, DATE, ETAG, EXPIRES, VARY];
    let mut few = HeaderMap::new();
    for name in kept {
        for value in headers.get_all(&name) {
            add(&mut few, name.clone(), value.clone());
        }
    }
    // Without an entity tag, a client tells responses apart by their time.
    if !few.contains_key(ETAG)
        && let Some(value) = headers.get(LAST_MODIFIED)
    {
        set(&mut few, LAST_MODIFIED, value.clone());
    }
    *headers = few;
}

fn set_text(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        set(headers, name, value);
    }
}

/// Adds a member of `Cache-Status` behind those of the caches before (RFC 9211, section 2).
fn add_status(headers: &mut HeaderMap, status: &CacheStatus<'_>) {
    if let Ok(value) = HeaderValue::try_from(status.to_string()) {
        add(headers, HeaderName::from_static("cache-status"), value);
    }
}
