use std::fmt;
use std::hash::Hasher;

use http::header::GetAll;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use siphasher::sip::SipHasher24;
use zerocopy::FromBytes;

use crate::body_name::BodyName;
use crate::entity_tag::EntityTag;
use crate::head::add;
use crate::options::Mode;
use crate::range::ContentRange;
use crate::secret::Secret;
use crate::selecting::write_normal;
use crate::timestamp::Timestamp;
use crate::wire::{Facts, FieldRow, NO_NUMBER, SelectorRow, flag, presence};

/// A look at the stored bytes of a policy: the facts of a request and its response that decide, and all fields of the
/// response.
///
/// Nothing is parsed before, and [`decide`](Self::decide) allocates nothing. Any bytes are safe to look at: those that
/// are cut or wrong give fewer fields, or a request that does not match. A cache checks its records before.
#[derive(Clone, Copy)]
pub struct StoredPolicy<'a> {
    pub(crate) facts: &'a Facts,
    fields: &'a [FieldRow],
    selectors: &'a [SelectorRow],
    field_bytes: &'a [u8],
    selector_bytes: &'a [u8],
}

/// A field of a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredField<'a> {
    /// The name, in lower case.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether `no-cache` names the field, so that it is not sent unless the response was validated (RFC 9111, section
    /// 5.2.2.4).
    pub held_back: bool,
}

impl<'a> StoredPolicy<'a> {
    /// The policy in these bytes. None if they are too few for its rows.
    pub fn view(bytes: &'a [u8]) -> Option<Self> {
        let (facts, rest) = Facts::ref_from_prefix(bytes).ok()?;
        let fields = usize::try_from(facts.fields.get()).ok()?;
        let (fields, rest) = <[FieldRow]>::ref_from_prefix_with_elems(rest, fields).ok()?;
        let selectors = usize::from(facts.selectors.get());
        let (selectors, rest) =
            <[SelectorRow]>::ref_from_prefix_with_elems(rest, selectors).ok()?;
        let field_bytes = usize::try_from(facts.field_bytes.get()).ok()?;
        let (field_bytes, selector_bytes) = rest.split_at_checked(field_bytes)?;
        Some(Self {
            facts,
            fields,
            selectors,
            field_bytes,
            selector_bytes,
        })
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.facts.status.get()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The fields of the response, in order.
    pub fn fields(&self) -> impl Iterator<Item = StoredField<'a>> + use<'a> {
        let mut rest = self.field_bytes;
        self.fields.iter().map_while(move |row| {
            Some(StoredField {
                name: take(&mut rest, usize::from(row.name_len.get()))?,
                value: take(&mut rest, usize::try_from(row.value_len.get()).ok()?)?,
                held_back: row.held_back != 0,
            })
        })
    }

    /// The fields of the response as a map. Those that are held back are in it only if `validated` is true.
    pub fn headers(&self, validated: bool) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(self.fields.len().min(64));
        for field in self.fields().filter(|field| validated || !field.held_back) {
            let name = HeaderName::from_bytes(field.name);
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(field.value)) {
                add(&mut headers, name, value);
            }
        }
        headers
    }

    /// The body that belongs to this response, and to no other.
    pub fn body(&self) -> BodyName {
        BodyName {
            digest: self.facts.body_digest,
            len: self.facts.body_len.get(),
            owner: self.owner(),
        }
    }

    /// A digest of the credentials on which the response depends. Zero if it depends on none.
    fn owner(&self) -> [u8; 8] {
        let is_digest =
            |row: &SelectorRow| matches!(row.presence, presence::DIGEST | presence::OWN_DIGEST);
        let mut digests = self
            .selector_pieces()
            .filter(|(row, _)| is_digest(row))
            .map(|(_, [.., digest])| digest)
            .peekable();
        if digests.peek().is_none() {
            return [0; 8];
        }
        // Each was made with the secret of the cache, so nobody can choose them.
        let mut hasher = SipHasher24::new();
        digests.for_each(|digest| hasher.write(digest));
        hasher.finish().to_le_bytes()
    }

    /// When the response came, or was last validated.
    pub fn response_time(&self) -> Timestamp {
        Timestamp::from_unix(self.facts.response_time.get())
    }

    /// Its `Date`, or when it came if it had none.
    pub fn date(&self) -> Timestamp {
        Timestamp::from_unix(self.facts.date.get())
    }

    /// The mode of the cache that stored it.
    pub fn mode(&self) -> Mode {
        match self.has(flag::SHARED) {
            true => Mode::Shared,
            false => Mode::Private,
        }
    }

    /// The number of request fields on which the response depends.
    pub fn selecting_fields(&self) -> usize {
        self.selectors.len()
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.facts.flags.get() & flag != 0
    }

    /// The seconds since the origin made or validated the response (RFC 9111, section 4.2.3).
    pub fn age(&self, now: Timestamp) -> u64 {
        u64::from(self.facts.initial_age.get()).saturating_add(now.since(self.response_time()))
    }

    pub(crate) fn etag(&self) -> Option<EntityTag<'a>> {
        EntityTag::parse(self.etag_text()?)
    }

    /// The whole value of `ETag`, if it is valid.
    pub(crate) fn etag_text(&self) -> Option<&'a [u8]> {
        self.span(self.facts.etag)
    }

    /// The value of `Last-Modified`, if it is valid.
    pub(crate) fn last_modified_text(&self) -> Option<&'a [u8]> {
        self.span(self.facts.last_modified_text)
    }

    pub(crate) fn last_modified(&self) -> Option<Timestamp> {
        let seconds = self.facts.last_modified.get();
        (seconds != NO_NUMBER).then_some(Timestamp::from_unix(seconds))
    }

    fn span(&self, span: crate::wire::Span) -> Option<&'a [u8]> {
        let start = usize::try_from(span.start.get()).ok()?;
        let len = usize::try_from(span.len.get()).ok()?;
        let text = self.field_bytes.get(start..start.checked_add(len)?)?;
        (!text.is_empty()).then_some(text)
    }

    /// The part of the representation that is stored. None if all of it is.
    pub(crate) fn part(&self) -> Option<ContentRange> {
        if !self.has(flag::PARTIAL) {
            return None;
        }
        let first = self.facts.first_byte.get();
        let complete = self.facts.complete_len.get();
        Some(ContentRange {
            first,
            last: first
                .checked_add(self.facts.body_len.get())?
                .checked_sub(1)?,
            complete: (complete != NO_NUMBER).then_some(complete),
        })
    }

    /// Whether a request has the selecting fields of the one that was answered with this response (RFC 9111, section
    /// 4.1).
    pub fn selects(&self, headers: &HeaderMap, secret: Option<&Secret>) -> bool {
        let mut rest = self.selector_bytes;
        self.selectors.iter().all(|row| {
            let name = take(&mut rest, usize::from(row.name_len.get()));
            let mut piece = |len: u32| take(&mut rest, usize::try_from(len).ok()?);
            let (raw, value) = (piece(row.raw_len.get()), piece(row.value_len.get()));
            let (Some(name), Some(raw), Some(value)) = (name, raw, value) else {
                return false;
            };
            let Ok(text) = std::str::from_utf8(name) else {
                return false;
            };
            let lines = headers.get_all(text);
            let is_absent = lines.iter().next().is_none();
            match row.presence {
                presence::ABSENT => is_absent,
                presence::TEXT if is_line(&lines, raw) => true,
                presence::TEXT if !is_absent => {
                    let mut left = Some(value);
                    write_normal(name, &lines, |piece| {
                        left = left.and_then(|left| left.strip_prefix(piece));
                        left.is_some()
                    });
                    left.is_some_and(<[u8]>::is_empty)
                }
                presence::DIGEST | presence::OWN_DIGEST if !is_absent => {
                    secret.is_some_and(|secret| {
                        secret.digest(name, lines.iter().map(HeaderValue::as_bytes)) == *value
                    })
                }
                _ => false,
            }
        })
    }

    /// Whether `Vary` named one of the selecting fields.
    pub(crate) fn varies(&self) -> bool {
        let is_named = |row: &SelectorRow| row.presence != presence::OWN_DIGEST;
        self.selectors.iter().any(is_named)
    }

    /// Whether it is for some credentials alone.
    pub(crate) fn is_told_apart(&self) -> bool {
        let is_own = |row: &SelectorRow| row.presence == presence::OWN_DIGEST;
        self.selectors.iter().any(is_own)
    }

    /// Whether the cache tells a field apart by itself that is no selecting field of `other`.
    pub(crate) fn is_told_apart_more_than(&self, other: &Self) -> bool {
        let is_other = |name| other.selecting_names().all(|(known, _)| known != name);
        self.selecting_names()
            .any(|(name, is_own)| is_own && is_other(name))
    }

    /// The names of the selecting fields, and whether the cache tells each apart by itself: `Vary` does not name it.
    pub(crate) fn selecting_names(&self) -> impl Iterator<Item = (&'a [u8], bool)> + use<'a> {
        self.selector_pieces()
            .map(|(row, [name, ..])| (name, row.presence == presence::OWN_DIGEST))
    }

    /// The rows of the selecting fields, each with its name, its value as it came, and its normal form or digest.
    fn selector_pieces(&self) -> impl Iterator<Item = (&'a SelectorRow, [&'a [u8]; 3])> + use<'a> {
        let mut rest = self.selector_bytes;
        self.selectors.iter().map_while(move |row| {
            let name = take(&mut rest, usize::from(row.name_len.get()))?;
            let raw = take(&mut rest, usize::try_from(row.raw_len.get()).ok()?)?;
            let value = take(&mut rest, usize::try_from(row.value_len.get()).ok()?)?;
            Some((row, [name, raw, value]))
        })
    }
}

/// Whether a field has one line, of these bytes, which are some.
fn is_line(lines: &GetAll<'_, HeaderValue>, raw: &[u8]) -> bool {
    let mut lines = lines.iter();
    !raw.is_empty()
        && lines.next().is_some_and(|line| line.as_bytes() == raw)
        && lines.next().is_none()
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

/// Names of fields, but no value: some are credentials.
impl fmt::Debug for StoredPolicy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self
            .fields()
            .map(|field| String::from_utf8_lossy(field.name))
            .collect();
        f.debug_struct("StoredPolicy")
            .field("status", &self.facts.status.get())
            .field("mode", &self.mode())
            .field("response_time", &self.response_time())
            .field("body", &self.body())
            .field("fields", &names)
            .finish_non_exhaustive()
    }
}
