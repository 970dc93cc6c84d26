use std::fmt;

use http::header::{IF_MATCH, IF_UNMODIFIED_SINCE, RANGE};
use http::{HeaderValue, Method, StatusCode};

use crate::directives::RequestDirectives;
use crate::head::Request;
use crate::options::Options;
use crate::range::{ByteRange, Wanted};
use crate::status;
use crate::stored_policy::StoredPolicy;
use crate::timestamp::Timestamp;
use crate::wire::{NO_SECONDS, flag};

/// What to do with a request for which a response is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Use the stored response, and ask nobody.
    Use,
    /// Use the stored response, and revalidate it behind the answer (RFC 5861, section 3).
    UseAndRevalidate,
    /// Ask the origin whether the stored response still holds, with its
    /// [`validators`](StoredPolicy::validators) if it has some.
    Revalidate,
    /// Send the request on as it is: the stored response cannot answer it.
    Forward,
    /// Answer 504: nothing that is stored may be used, and the origin may not be asked.
    GatewayTimeout,
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Its lifetime is not over.
    Fresh,
    /// It is stale, and `max-stale` of the request accepts that.
    MaxStale,
    /// It is stale, and `stale-while-revalidate` allows that.
    StaleWhileRevalidate,
    /// The options say that no origin is to be asked.
    Offline,
    /// Its lifetime is over.
    Stale,
    /// It has `no-cache`.
    NoCache,
    /// It was invalidated.
    Invalidated,
    /// The request has `no-cache`.
    RequestNoCache,
    /// It is older than `max-age` of the request.
    RequestMaxAge,
    /// It will be stale too soon for `min-fresh` of the request.
    MinFresh,
    /// Another request was answered with it: a field that `Vary` names differs.
    Vary,
    /// A cache of the other mode stored it.
    Mode,
    /// The method is neither GET nor HEAD.
    Method,
    /// It is a part, which does not have all that is asked for.
    Partial,
    /// The request has a condition that only the origin decides.
    Precondition,
    /// The options say that these requests pass the cache by.
    Ignored,
}

/// A decision, with the figures that led to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: Reason,
    /// The age of the stored response, in seconds.
    pub age: u64,
    /// Its lifetime, in seconds. It is fresh while its age is less.
    pub lifetime: u64,
}

impl Decision {
    /// For how many seconds it is fresh. Less than 0 if it is stale.
    pub fn ttl(&self) -> i64 {
        let seconds = |value| i64::try_from(value).unwrap_or(i64::MAX);
        seconds(self.lifetime).saturating_sub(seconds(self.age))
    }

    /// Whether the stored response may be used as it is.
    pub fn is_use(&self) -> bool {
        matches!(self.action, Action::Use | Action::UseAndRevalidate)
    }
}

/// How the origin failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It could not be reached, or its answer broke off.
    Disconnected,
    /// It answered with this status.
    Status(StatusCode),
}

impl<'a> StoredPolicy<'a> {
    /// Decides what to do with a request, on the stored bytes. Allocates nothing.
    pub fn decide(&self, request: &Request<'_>, now: Timestamp, options: &Options) -> Decision {
        let selected = self.selects(request.headers, options.secret.as_ref());
        self.decide_as(selected, request, now, options)
    }

    /// Like [`decide`](Self::decide), for the policy that [`Variants::select`](crate::Variants::select) chose for this
    /// request: it does not compare the selecting fields again.
    pub fn decide_selected(
        &self,
        request: &Request<'_>,
        now: Timestamp,
        options: &Options,
    ) -> Decision {
        self.decide_as(true, request, now, options)
    }

    fn decide_as(
        &self,
        selected: bool,
        request: &Request<'_>,
        now: Timestamp,
        options: &Options,
    ) -> Decision {
        let age = self.age(now);
        let lifetime = self.lifetime(options);
        let decision = |action, reason| Decision {
            action,
            reason,
            age,
            lifetime,
        };
        if options.ignore {
            return decision(Action::Forward, Reason::Ignored);
        }
        let directives = RequestDirectives::of(request.headers);
        let alone = options.offline || directives.only_if_cached;
        let judged = self
            .unfit(selected, request, options)
            .map(|reason| (Action::Forward, reason))
            .unwrap_or_else(|| self.judge(&directives, age, lifetime, options));
        match judged {
            (Action::Revalidate, _) if options.offline => decision(Action::Use, Reason::Offline),
            (Action::UseAndRevalidate, _) if alone => {
                decision(Action::Use, Reason::StaleWhileRevalidate)
            }
            (Action::Revalidate | Action::Forward, reason) if alone => {
                decision(Action::GatewayTimeout, reason)
            }
            (action, reason) => decision(action, reason),
        }
    }

    /// Why the response cannot answer the request, however fresh it is (RFC 9111, section 4).
    fn unfit(&self, selected: bool, request: &Request<'_>, options: &Options) -> Option<Reason> {
        if self.mode() != options.mode {
            return Some(Reason::Mode);
        }
        if !matches!(*request.method, Method::GET | Method::HEAD) {
            return Some(Reason::Method);
        }
        if !selected {
            return Some(Reason::Vary);
        }
        // Conditions that only the origin evaluates (RFC 9111, section 4.3.2).
        let headers = request.headers;
        if headers.contains_key(IF_MATCH) || headers.contains_key(IF_UNMODIFIED_SINCE) {
            return Some(Reason::Precondition);
        }
        if self.has(flag::PARTIAL) && self.wanted_part(request).is_none() {
            return Some(Reason::Partial);
        }
        None
    }

    /// The positions that a request wants, if this is a part that has them.
    pub(crate) fn wanted_part(&self, request: &Request<'_>) -> Option<(u64, u64)> {
        if *request.method != Method::GET || !self.if_range_holds(request.headers) {
            return None;
        }
        let range = request
            .headers
            .get(RANGE)
            .map(HeaderValue::as_bytes)
            .and_then(ByteRange::parse);
        Wanted::of_part(range, self)
    }

    /// RFC 9111, sections 4.2 and 5.2.1.
    fn judge(
        &self,
        request: &RequestDirectives,
        age: u64,
        lifetime: u64,
        options: &Options,
    ) -> (Action, Reason) {
        if self.has(flag::INVALIDATED) {
            return (Action::Revalidate, Reason::Invalidated);
        }
        if self.has(flag::NO_CACHE) {
            return (Action::Revalidate, Reason::NoCache);
        }
        if request.no_cache {
            return (Action::Revalidate, Reason::RequestNoCache);
        }
        let fresh = age < lifetime;
        // A reload sends max-age=0, and need not ask for what never changes (RFC 8246, section 2). Other ages are wishes
        // of their own. The age may be a fraction of a second more than it says, so one that is equal is too old.
        let reload = fresh && self.has(flag::IMMUTABLE);
        if let Some(most) = request.max_age
            && age >= u64::from(most)
            && !(most == 0 && reload)
        {
            return (Action::Revalidate, Reason::RequestMaxAge);
        }
        let left = lifetime.saturating_sub(age);
        if let Some(least) = request.min_fresh
            && left < u64::from(least)
        {
            return (Action::Revalidate, Reason::MinFresh);
        }
        if fresh {
            return (Action::Use, Reason::Fresh);
        }
        if self.has(flag::MUST_REVALIDATE) {
            return (Action::Revalidate, Reason::Stale);
        }
        let stale = age.saturating_sub(lifetime);
        if request
            .max_stale
            .is_some_and(|most| stale <= u64::from(most))
        {
            return (Action::Use, Reason::MaxStale);
        }
        // What was missing may be there now.
        if self.has(flag::NEGATIVE) && !options.stale_negative {
            return (Action::Revalidate, Reason::Stale);
        }
        let own = self.facts.stale_while_revalidate.get();
        let window = known(own).or(options.stale_while_revalidate);
        if window.is_some_and(|most| stale < u64::from(most)) {
            return (Action::UseAndRevalidate, Reason::StaleWhileRevalidate);
        }
        (Action::Revalidate, Reason::Stale)
    }

    /// The lifetime in seconds (RFC 9111, section 4.2.1).
    pub fn lifetime(&self, options: &Options) -> u64 {
        let explicit = known(self.facts.lifetime.get());
        let negative = options
            .negative_lifetime
            .filter(|_| self.has(flag::NEGATIVE));
        let lifetime = explicit
            .or(negative)
            .map_or_else(|| self.heuristic_lifetime(options), u64::from);
        let least = options.min_lifetime.map_or(0, u64::from);
        let most = options.max_lifetime.map_or(u64::MAX, u64::from);
        lifetime.max(least).min(most)
    }

    fn heuristic_lifetime(&self, options: &Options) -> u64 {
        let (Some(heuristic), Some(modified), true) = (
            options.heuristic,
            self.last_modified(),
            self.has(flag::HEURISTIC),
        ) else {
            return 0;
        };
        let unchanged = self.date().since(modified);
        (unchanged.saturating_mul(u64::from(heuristic.percent)) / 100).min(heuristic.most.into())
    }

    /// Whether the response may stand in for an answer that the origin failed to give (RFC 5861, section 4; RFC 9111,
    /// section 4.2.4).
    pub fn covers(
        &self,
        request: &Request<'_>,
        failure: Failure,
        now: Timestamp,
        options: &Options,
    ) -> bool {
        let is_failure = match failure {
            Failure::Disconnected => true,
            Failure::Status(StatusCode::TOO_MANY_REQUESTS) => options.stale_if_error.is_some(),
            Failure::Status(status) => status::is_failure(status),
        };
        let forbidden = flag::NO_CACHE | flag::MUST_REVALIDATE | flag::INVALIDATED;
        let selected = self.selects(request.headers, options.secret.as_ref());
        if !is_failure || self.has(forbidden) || self.unfit(selected, request, options).is_some() {
            return false;
        }
        let (age, lifetime) = (self.age(now), self.lifetime(options));
        // That nothing was there says nothing of what the origin would say now.
        if self.has(flag::NEGATIVE) && age >= lifetime && !options.stale_negative {
            return false;
        }
        let stale = age.saturating_sub(lifetime);
        let own = known(self.facts.stale_if_error.get()).or(options.stale_if_error);
        let wish = RequestDirectives::of(request.headers).stale_if_error;
        let disconnected = options
            .stale_when_disconnected
            .filter(|_| failure == Failure::Disconnected);
        own.max(wish)
            .max(disconnected)
            .is_some_and(|most| stale < u64::from(most))
    }

    /// Where the lifetime comes from, in words.
    pub(crate) fn lifetime_source(&self, options: &Options) -> &'static str {
        let sources = [
            (flag::FROM_S_MAXAGE, "s-maxage"),
            (flag::FROM_TARGETED, "a targeted field"),
            (flag::FROM_MAX_AGE, "max-age"),
            (flag::FROM_EXPIRES, "Expires"),
        ];
        let explicit = sources.iter().find(|(from, _)| self.has(*from));
        match explicit {
            Some((_, source)) => source,
            None if options.negative_lifetime.is_some() && self.has(flag::NEGATIVE) => {
                "the options for negative answers"
            }
            None if self.heuristic_lifetime(options) > 0 => "an estimate from Last-Modified",
            None => "nothing",
        }
    }
}

fn known(seconds: u32) -> Option<u32> {
    (seconds != NO_SECONDS).then_some(seconds)
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fresh => "it is fresh",
            Self::MaxStale => "it is stale, and the request accepts that with max-stale",
            Self::StaleWhileRevalidate => "it is stale, and may be used while it is revalidated",
            Self::Offline => "no origin is to be asked",
            Self::Stale => "it is stale",
            Self::NoCache => "the response has no-cache",
            Self::Invalidated => "its URL was changed after it was stored",
            Self::RequestNoCache => "the request has no-cache",
            Self::RequestMaxAge => "it is older than max-age of the request",
            Self::MinFresh => "it is not fresh for as long as min-fresh of the request says",
            Self::Vary => "it answers requests with other selecting fields",
            Self::Mode => "a cache of the other mode stored it",
            Self::Method => "the method is neither GET nor HEAD",
            Self::Partial => "it is a part that does not have all that is asked for",
            Self::Precondition => "the request has a condition that only the origin decides",
            Self::Ignored => "the options exempt this URL from the cache",
        })
    }
}
