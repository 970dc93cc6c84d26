use std::fmt;

use http::header::{
    AGE, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE,
    DATE, ETAG, EXPIRES, HeaderName, LAST_MODIFIED, RANGE, SET_COOKIE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use zerocopy::{FromBytes, IntoBytes};

use crate::body_name::BodyName;
use crate::credentials::Credentials;
use crate::date;
use crate::directives::{Directives, MOST_SECONDS, RequestDirectives, ResponseDirectives, seconds};
use crate::entity_tag::EntityTag;
use crate::head::{Request, Response};
use crate::options::{Mode, Options};
use crate::range::{ByteRange, ContentRange, number};
use crate::refusal::Refusal;
use crate::selecting::{Vary, write_normal};
use crate::status;
use crate::stored_policy::StoredPolicy;
use crate::target::Target;
use crate::timestamp::Timestamp;
use crate::wire::{Facts, FieldRow, NO_NUMBER, NO_SECONDS, SelectorRow, Span, flag, presence};

/// The most bytes that the names and values of a response's fields, or of a request's selecting fields, may have.
const MOST_BYTES: usize = 256 * 1024;

/// The most fields of a response, and the most selecting fields.
const MOST_FIELDS: usize = 4096;

/// When a request was sent, and when its response came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// When the request was sent.
    pub request: Timestamp,
    /// When the head of the response came.
    pub response: Timestamp,
}

impl Times {
    /// Both at once.
    pub fn at(time: Timestamp) -> Self {
        Self {
            request: time,
            response: time,
        }
    }
}

/// A policy to store: the bytes of a [`StoredPolicy`].
///
/// [`Policy::of`] makes one from the heads of a request and its response; when the whole body is there,
/// [`Policy::with_body`] names it. Only then may it be stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Policy {
    bytes: Vec<u8>,
    /// The number of bytes that the body must have.
    expected: Option<u64>,
}

impl Policy {
    /// Decides whether a response may be stored (RFC 9111, section 3), and notes what later decides whether it may be
    /// used.
    ///
    /// # Errors
    ///
    /// Why the response is not stored.
    pub fn of(
        request: &Request<'_>,
        response: &Response<'_>,
        times: Times,
        options: &Options,
    ) -> Result<Self, Refusal> {
        Self::selected_by(None, request, response, times, options)
    }

    /// [`Policy::of`] a response that continues `old`: it keeps the selecting fields of that one.
    pub(crate) fn selected_by(
        old: Option<&StoredPolicy<'_>>,
        request: &Request<'_>,
        response: &Response<'_>,
        times: Times,
        options: &Options,
    ) -> Result<Self, Refusal> {
        let (status, headers) = (response.status, response.headers);
        let directives = ResponseDirectives::of(headers, options.counting_targets());
        if options.ignore {
            return Err(Refusal::Ignored);
        }
        if !status::may_be_stored(status) {
            return Err(Refusal::Status(status));
        }
        check_stored(status, &directives, request, options)?;
        let mut draft = Draft::of(status, headers, &directives, times, options);
        match *request.method {
            Method::GET => (),
            Method::POST => {
                // RFC 9110, section 9.3.3.
                let same = content_location(headers, request.url);
                if draft.lifetime.is_none() || !same || status == StatusCode::PARTIAL_CONTENT {
                    return Err(Refusal::Method);
                }
            }
            _ => return Err(Refusal::Method),
        }
        let cacheable = draft.lifetime.is_some()
            || directives.public
            || (options.mode == Mode::Private && directives.private)
            || status::is_heuristically_cacheable(status);
        if !cacheable {
            return Err(Refusal::NotCacheable(status));
        }
        if directives.no_cache && draft.etag.is_none() && draft.last_modified.is_none() {
            return Err(Refusal::NeverUsable);
        }
        let expected = match status {
            StatusCode::PARTIAL_CONTENT => Some(draft.set_part(request, headers)?),
            _ => headers
                .get(CONTENT_LENGTH)
                .and_then(|length| number(length.as_bytes())),
        };
        draft.finish(old, request, headers, expected, options)
    }

    /// Names the body, which is whole.
    ///
    /// # Errors
    ///
    /// [`Refusal::BodyLength`] if the response announced another length: it was truncated, or is not what it says.
    pub fn with_body(mut self, body: BodyName) -> Result<Self, Refusal> {
        if let Some(expected) = self.expected
            && expected != body.len
        {
            return Err(Refusal::BodyLength {
                expected,
                found: body.len,
            });
        }
        self.change(|facts| {
            facts.body_digest = body.digest;
            facts.body_len = body.len.into();
        });
        Ok(self)
    }

    /// The policy, as it will be stored.
    pub fn view(&self) -> StoredPolicy<'_> {
        StoredPolicy::view(&self.bytes).expect("a policy's bytes have its rows")
    }

    /// The bytes to store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A copy of stored bytes, marked so that the response is validated before it is used again.
    pub(crate) fn invalidated(bytes: &[u8]) -> Self {
        let mut policy = Self {
            bytes: bytes.to_vec(),
            expected: None,
        };
        policy.change(|facts| facts.flags = (facts.flags.get() | flag::INVALIDATED).into());
        policy
    }

    fn change(&mut self, change: impl FnOnce(&mut Facts)) {
        if let Ok((facts, _)) = Facts::mut_from_prefix(&mut self.bytes) {
            change(facts);
        }
    }

    /// The policy of a stored response whose fields were updated (RFC 9111, section 3.2). It has the body and the part
    /// of the old one, and its selecting fields beside those that `Vary` names now.
    ///
    /// # Errors
    ///
    /// Why the updated response may not be stored.
    pub(crate) fn updated(
        old: &StoredPolicy<'_>,
        request: &Request<'_>,
        headers: &HeaderMap,
        times: Times,
        options: &Options,
    ) -> Result<Self, Refusal> {
        let directives = ResponseDirectives::of(headers, options.counting_targets());
        check_stored(old.status(), &directives, request, options)?;
        let mut draft = Draft::of(old.status(), headers, &directives, times, options);
        draft.part = old.part();
        let mut new = draft.finish(Some(old), request, headers, None, options)?;
        let (body, first, complete) = (old.body(), old.facts.first_byte, old.facts.complete_len);
        new.change(|facts| {
            facts.body_digest = body.digest;
            facts.body_len = body.len.into();
            facts.first_byte = first;
            facts.complete_len = complete;
        });
        Ok(new)
    }
}

/// As a [`StoredPolicy`]: no values.
impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

/// Whether directives allow to store a response (RFC 9111, sections 3 and 3.5). They count anew after an update, which comes
/// from a request of its own.
fn check_stored(
    status: StatusCode,
    directives: &ResponseDirectives,
    request: &Request<'_>,
    options: &Options,
) -> Result<(), Refusal> {
    if directives.must_understand {
        // Then no-store is for caches that do not know the directive (RFC 9111, section 5.2.2.3).
        if !status::is_understood(status) {
            return Err(Refusal::NotUnderstood(status));
        }
    } else if directives.no_store {
        return Err(Refusal::NoStore);
    }
    if RequestDirectives::of(request.headers).no_store {
        return Err(Refusal::RequestNoStore);
    }
    let shared = options.mode == Mode::Shared;
    if shared && directives.private {
        return Err(Refusal::Private);
    }
    let is_authorized = request.headers.contains_key(AUTHORIZATION);
    if shared && is_authorized && !is_for_all(directives) && options.credentials.is_none() {
        return Err(Refusal::Authorization);
    }
    Ok(())
}

/// Whether a response to a request with `Authorization` is for all (RFC 9111, section 3.5).
fn is_for_all(directives: &ResponseDirectives) -> bool {
    directives.public || directives.must_revalidate || directives.s_maxage.is_some()
}

/// Whether a cache keeps what a request with this field brought for requests with the same one alone.
fn tells_apart(name: &HeaderName, directives: &ResponseDirectives, options: &Options) -> bool {
    match (options.mode, options.credentials) {
        // What one identity got is not another's.
        (Mode::Private, _) => *name == AUTHORIZATION,
        (Mode::Shared, None) => false,
        (Mode::Shared, Some(_)) if *name == AUTHORIZATION => !is_for_all(directives),
        (Mode::Shared, Some(credentials)) => credentials.has(name),
    }
}

/// What will be stored, as values.
struct Draft {
    status: StatusCode,
    response_time: Timestamp,
    date: Timestamp,
    has_date: bool,
    initial_age: u32,
    lifetime: Option<u32>,
    last_modified: Option<Timestamp>,
    etag: Option<HeaderValue>,
    part: Option<ContentRange>,
    flags: u32,
    directives: ResponseDirectives,
}

impl Draft {
    fn of(
        status: StatusCode,
        headers: &HeaderMap,
        directives: &ResponseDirectives,
        times: Times,
        options: &Options,
    ) -> Self {
        let shared = options.mode == Mode::Shared;
        let now = times.response;
        let first = |name| headers.get(name).map(HeaderValue::as_bytes);
        let date_field = first(DATE).and_then(|text| date::parse(text, now));
        let date = date_field.unwrap_or(now);
        let last_modified = first(LAST_MODIFIED).and_then(|text| date::parse(text, now));
        let etag = headers
            .get(ETAG)
            .filter(|etag| EntityTag::parse(etag.as_bytes()).is_some());
        // The first of several values counts (RFC 9111, section 5.1).
        let age = first(AGE)
            .and_then(|text| text.split(|byte| *byte == b',').next())
            .and_then(|text| seconds(text.trim_ascii()))
            .unwrap_or(0);
        let delay = times.response.since(times.request);
        let corrected = u64::from(age).saturating_add(delay);
        let initial_age = now.since(date).max(corrected);

        let expires = || {
            let text = first(EXPIRES).filter(|_| !directives.targeted)?;
            Some(date::parse(text, now).map_or(0, |expires| saturated(expires.since(date))))
        };
        let from_max_age = match directives.targeted {
            true => flag::FROM_TARGETED,
            false => flag::FROM_MAX_AGE,
        };
        let candidates = [
            (directives.s_maxage.filter(|_| shared), flag::FROM_S_MAXAGE),
            (directives.max_age, from_max_age),
            (expires(), flag::FROM_EXPIRES),
        ];
        let lifetime = candidates
            .into_iter()
            .find_map(|(lifetime, from)| Some((lifetime?, from)));
        // In shared mode, s-maxage means proxy-revalidate, too (RFC 9111, section 5.2.2.10).
        let must_revalidate = directives.must_revalidate
            || (shared && (directives.proxy_revalidate || directives.s_maxage.is_some()));
        let heuristic = status::is_heuristically_cacheable(status) || directives.public;
        let is_strong =
            etag.is_some_and(|etag| EntityTag::parse(etag.as_bytes()).is_some_and(|tag| !tag.weak));
        let strong_date =
            date_field.is_some() && last_modified.is_some_and(|modified| modified < date);
        let flags = [
            (directives.no_cache, flag::NO_CACHE),
            (must_revalidate, flag::MUST_REVALIDATE),
            (directives.immutable, flag::IMMUTABLE),
            (heuristic, flag::HEURISTIC),
            (status::is_negative(status), flag::NEGATIVE),
            (status == StatusCode::PARTIAL_CONTENT, flag::PARTIAL),
            (shared, flag::SHARED),
            (is_strong, flag::STRONG_ETAG),
            (strong_date, flag::STRONG_DATE),
        ];
        let flags = flags
            .into_iter()
            .filter(|(applies, _)| *applies)
            .fold(0, |all, (_, flag)| all | flag);
        Self {
            status,
            response_time: now,
            date,
            has_date: headers.contains_key(DATE),
            initial_age: saturated(initial_age),
            lifetime: lifetime.map(|(lifetime, _)| lifetime),
            last_modified,
            etag: etag.cloned(),
            part: None,
            flags: flags | lifetime.map_or(0, |(_, from)| from),
            directives: *directives,
        }
    }

    /// Notes which part of a representation the response has, and returns the number of its bytes.
    fn set_part(&mut self, request: &Request<'_>, headers: &HeaderMap) -> Result<u64, Refusal> {
        let asked = request.headers.get(RANGE).map(HeaderValue::as_bytes);
        let part = headers
            .get(CONTENT_RANGE)
            .and_then(|value| ContentRange::parse(value.as_bytes()))
            .filter(|_| asked.and_then(ByteRange::parse).is_some())
            .ok_or(Refusal::Range)?;
        self.part = Some(part);
        part.count().ok_or(Refusal::Range)
    }

    fn finish(
        self,
        old: Option<&StoredPolicy<'_>>,
        request: &Request<'_>,
        headers: &HeaderMap,
        expected: Option<u64>,
        options: &Options,
    ) -> Result<Policy, Refusal> {
        let selectors = Selectors::of(old, request, headers, &self.directives, options)?;
        let fields = Fields::of(headers, &self, options)?;
        let seconds = |value: Option<u32>| value.unwrap_or(NO_SECONDS).into();
        let facts = Facts {
            response_time: self.response_time.unix().into(),
            date: self.date.unix().into(),
            last_modified: self.last_modified.map_or(NO_NUMBER, Timestamp::unix).into(),
            body_len: 0.into(),
            first_byte: self.part.map_or(0, |part| part.first).into(),
            complete_len: self
                .part
                .and_then(|part| part.complete)
                .unwrap_or(NO_NUMBER)
                .into(),
            body_digest: [0; 16],
            initial_age: self.initial_age.into(),
            lifetime: seconds(self.lifetime),
            stale_while_revalidate: seconds(self.directives.stale_while_revalidate),
            stale_if_error: seconds(self.directives.stale_if_error),
            flags: self.flags.into(),
            fields: u32::try_from(fields.rows.len())
                .map_err(|_| Refusal::TooLarge)?
                .into(),
            field_bytes: u32::try_from(fields.bytes.len())
                .map_err(|_| Refusal::TooLarge)?
                .into(),
            etag: fields.etag,
            last_modified_text: fields.last_modified,
            selectors: u16::try_from(selectors.rows.len())
                .map_err(|_| Refusal::TooLarge)?
                .into(),
            status: self.status.as_u16().into(),
        };
        let mut bytes = facts.as_bytes().to_vec();
        bytes.extend_from_slice(fields.rows.as_bytes());
        bytes.extend_from_slice(selectors.rows.as_bytes());
        bytes.extend_from_slice(&fields.bytes);
        bytes.extend_from_slice(&selectors.bytes);
        Ok(Policy { bytes, expected })
    }
}

fn saturated(seconds: u64) -> u32 {
    u32::try_from(seconds).map_or(MOST_SECONDS, |seconds| seconds.min(MOST_SECONDS))
}

/// Whether `Content-Location` names the target itself.
fn content_location(headers: &HeaderMap, url: &str) -> bool {
    let location = headers
        .get(CONTENT_LOCATION)
        .and_then(|value| value.to_str().ok());
    let target = Target::parse(url);
    match (location, target) {
        (Some(location), Some(target)) => target.join(location) == Some(target),
        _ => false,
    }
}

/// The rows and bytes of the response's fields.
struct Fields {
    rows: Vec<FieldRow>,
    bytes: Vec<u8>,
    etag: Span,
    last_modified: Span,
}

const NO_SPAN: Span = Span {
    start: zerocopy::little_endian::U32::ZERO,
    len: zerocopy::little_endian::U32::ZERO,
};

impl Fields {
    fn of(headers: &HeaderMap, draft: &Draft, options: &Options) -> Result<Self, Refusal> {
        let mut fields = Self {
            rows: Vec::with_capacity(headers.len() + 1),
            bytes: Vec::new(),
            etag: NO_SPAN,
            last_modified: NO_SPAN,
        };
        let dropped = Dropped::of(headers, options.mode);
        // A cookie is for who asked, unless the origin lets a shared cache keep it, for as long as it says.
        let is_cookie = |name: &HeaderName| options.prolongs_for_all() && *name == SET_COOKIE;
        for (name, value) in headers {
            if dropped.has(name) || is_cookie(name) {
                continue;
            }
            let span = fields.push(name, value, dropped.is_held_back(name))?;
            if name == ETAG && draft.etag.as_ref() == Some(value) {
                fields.etag = span;
            }
            if name == LAST_MODIFIED
                && draft.last_modified.is_some()
                && fields.last_modified.len.get() == 0
            {
                fields.last_modified = span;
            }
        }
        // Whoever stores a response without a date adds one (RFC 9110, section 6.6.1).
        if !draft.has_date
            && let Some(value) =
                date::format(draft.date).and_then(|text| HeaderValue::try_from(text).ok())
        {
            fields.push(&DATE, &value, false)?;
        }
        Ok(fields)
    }

    /// Where the value is.
    fn push(
        &mut self,
        name: &HeaderName,
        value: &HeaderValue,
        held_back: bool,
    ) -> Result<Span, Refusal> {
        let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
        let start = self.bytes.len().saturating_add(name.len());
        let is_full = self.rows.len() >= MOST_FIELDS;
        if is_full || start.saturating_add(value.len()) > MOST_BYTES {
            return Err(Refusal::TooLarge);
        }
        let number = |len: usize| u32::try_from(len).map_err(|_| Refusal::TooLarge);
        let name_len = u16::try_from(name.len()).map_err(|_| Refusal::TooLarge)?;
        let value_len = number(value.len())?.into();
        self.rows.push(FieldRow {
            value_len,
            name_len: name_len.into(),
            held_back: held_back.into(),
        });
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        Ok(Span {
            start: number(start)?.into(),
            len: value_len,
        })
    }
}

/// Fields that are not stored (RFC 9111, section 3.1), or not sent without validation. Both lists are sorted, so many
/// names cost little.
struct Dropped {
    listed: Vec<HeaderName>,
    held_back: Vec<HeaderName>,
}

impl Dropped {
    fn of(headers: &HeaderMap, mode: Mode) -> Self {
        let connection = headers
            .get_all(CONNECTION)
            .into_iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii);
        let mut listed: Vec<&[u8]> = connection.collect();
        let mut held_back = Vec::new();
        for directive in Directives::all(headers, &CACHE_CONTROL) {
            if mode == Mode::Shared && directive.is("private") {
                listed.extend(directive.field_names().into_iter().flatten());
            }
            if directive.is("no-cache") {
                held_back.extend(directive.field_names().into_iter().flatten());
            }
        }
        Self {
            listed: sorted(&listed),
            held_back: sorted(&held_back),
        }
    }

    fn has(&self, name: &HeaderName) -> bool {
        is_of_connection(name) || *name == AGE || contains(&self.listed, name)
    }

    fn is_held_back(&self, name: &HeaderName) -> bool {
        contains(&self.held_back, name)
    }
}

fn sorted(names: &[&[u8]]) -> Vec<HeaderName> {
    let mut names: Vec<HeaderName> = names
        .iter()
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .collect();
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names
}

fn contains(names: &[HeaderName], name: &HeaderName) -> bool {
    names
        .binary_search_by(|listed| listed.as_str().cmp(name.as_str()))
        .is_ok()
}

/// Whether a field is about one connection (RFC 9110, section 7.6.1), or about one client's proxy (RFC 9111, section
/// 3.1).
pub(crate) fn is_of_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authentication-info"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Removes the fields of a message that are about one connection, and those that `Connection` names.
pub(crate) fn remove_connection_fields(headers: &mut HeaderMap) {
    let dropped = Dropped::of(headers, Mode::Private);
    let names: Vec<_> = headers
        .keys()
        .filter(|name| is_of_connection(name) || contains(&dropped.listed, name))
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
}

/// The rows and bytes of the request's selecting fields.
struct Selectors {
    rows: Vec<SelectorRow>,
    bytes: Vec<u8>,
}

impl Selectors {
    fn of(
        old: Option<&StoredPolicy<'_>>,
        request: &Request<'_>,
        headers: &HeaderMap,
        directives: &ResponseDirectives,
        options: &Options,
    ) -> Result<Self, Refusal> {
        let Vary::Names(varying) = Vary::of(headers) else {
            return Err(Refusal::VaryNothing);
        };
        let varying = varying.into_iter().map(|name| (name, false));
        let told_apart = request
            .headers
            .keys()
            .filter(|name| tells_apart(name, directives, options))
            .map(|name| (name.clone(), true));
        // The body was selected by what `Vary` said when it came. Who updates a response, as a cache on the way with a 304
        // of its own, may name fewer fields, and still knows no other body.
        let old = old.into_iter().flat_map(StoredPolicy::selecting_names);
        let old = old.filter_map(|(name, own)| Some((HeaderName::from_bytes(name).ok()?, own)));
        let mut names: Vec<(HeaderName, bool)> = varying.chain(told_apart).chain(old).collect();
        // What `Vary` names comes first of two, because it counts more.
        names.sort_unstable_by(|(a, own), (b, other)| (a.as_str(), own).cmp(&(b.as_str(), other)));
        names.dedup_by(|(next, _), (before, _)| next == before);
        if names.len() > MOST_FIELDS {
            return Err(Refusal::TooLarge);
        }
        let mut all = Self {
            rows: Vec::with_capacity(names.len()),
            bytes: Vec::new(),
        };
        for (name, is_own) in &names {
            all.push(name, *is_own, request, options)?;
        }
        Ok(all)
    }

    fn push(
        &mut self,
        name: &HeaderName,
        is_own: bool,
        request: &Request<'_>,
        options: &Options,
    ) -> Result<(), Refusal> {
        let lines = request.headers.get_all(name);
        // Credentials are never stored in clear.
        let is_digested = is_own || Credentials::Named.has(name);
        let name = name.as_str().as_bytes();
        self.bytes.extend_from_slice(name);
        // Most clients send the same bytes again, which are compared without their normal form.
        let mut raw: &[u8] = &[];
        if let (Some(line), false) = (lines.iter().next(), is_digested)
            && lines.iter().nth(1).is_none()
        {
            raw = line.as_bytes();
        }
        self.bytes.extend_from_slice(raw);
        let start = self.bytes.len();
        let presence = match (lines.iter().next(), is_digested) {
            (None, _) => presence::ABSENT,
            (Some(_), false) => {
                write_normal(name, &lines, |piece| {
                    self.bytes.extend_from_slice(piece);
                    self.bytes.len() <= MOST_BYTES
                });
                presence::TEXT
            }
            (Some(_), true) => {
                let secret = options.secret.ok_or(Refusal::NoSecret)?;
                let lines = lines.iter().map(HeaderValue::as_bytes);
                self.bytes.extend_from_slice(&secret.digest(name, lines));
                match is_own {
                    true => presence::OWN_DIGEST,
                    false => presence::DIGEST,
                }
            }
        };
        if self.bytes.len() > MOST_BYTES {
            return Err(Refusal::TooLarge);
        }
        let value_len = self.bytes.len().saturating_sub(start);
        self.rows.push(SelectorRow {
            raw_len: u32::try_from(raw.len())
                .map_err(|_| Refusal::TooLarge)?
                .into(),
            value_len: u32::try_from(value_len)
                .map_err(|_| Refusal::TooLarge)?
                .into(),
            name_len: u16::try_from(name.len())
                .map_err(|_| Refusal::TooLarge)?
                .into(),
            presence,
        });
        Ok(())
    }
}
