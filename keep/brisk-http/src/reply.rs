use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::date;
use crate::entity_tag::{EntityTag, EntityTags};
use crate::head::{Request, set};
use crate::range::{ByteRange, Wanted};
use crate::stored_policy::StoredPolicy;
use crate::timestamp::Timestamp;
use crate::wire::flag;

/// The form in which a stored response answers a request, after its conditions and its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// With the stored status and the whole stored body. For HEAD, without the body.
    Whole,
    /// 304, without a body.
    NotModified,
    /// 206, with a part of the representation.
    Part {
        /// The position of its first byte in the representation.
        first: u64,
        /// The position of its last byte.
        last: u64,
        /// The length of the representation, if it is known.
        complete: Option<u64>,
        /// Where the stored body starts in the representation: 0, unless only a part is stored.
        stored_from: u64,
    },
    /// 416, without a body: the representation, of this length, has no such part.
    NotSatisfiable {
        /// The length of the representation.
        complete: u64,
    },
}

/// The conditions with which a stored response is validated (RFC 9111, section 4.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validators<'a> {
    /// For `If-None-Match`.
    pub etag: Option<&'a [u8]>,
    /// For `If-Modified-Since`.
    pub last_modified: Option<&'a [u8]>,
}

impl Validators<'_> {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }

    /// Puts the conditions in place of those that a request has.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for name in [
            &IF_NONE_MATCH,
            &IF_MODIFIED_SINCE,
            &IF_UNMODIFIED_SINCE,
            &IF_RANGE,
            &RANGE,
        ] {
            headers.remove(name);
        }
        let conditions = [
            (IF_NONE_MATCH, self.etag),
            (IF_MODIFIED_SINCE, self.last_modified),
        ];
        for (name, value) in conditions {
            if let Some(Ok(value)) = value.map(HeaderValue::from_bytes) {
                set(headers, name, value);
            }
        }
    }
}

impl<'a> StoredPolicy<'a> {
    /// The conditions with which to ask whether this response still holds. A part has none: what a condition without
    /// its range asks for is the whole (RFC 9111, section 4.3.2).
    pub fn validators(&self) -> Validators<'a> {
        if self.has(flag::PARTIAL) {
            return Validators {
                etag: None,
                last_modified: None,
            };
        }
        Validators {
            etag: self.etag_text(),
            last_modified: self.last_modified_text(),
        }
    }

    /// The form in which this response answers a request that it may be used for (RFC 9111, section 4.3.2; RFC 9110,
    /// section 13.2.2).
    pub fn reply(&self, request: &Request<'_>, now: Timestamp) -> Reply {
        if !matches!(self.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Reply::Whole;
        }
        if self.is_unmodified(request.headers, now) {
            return Reply::NotModified;
        }
        if let Some(part) = self.part() {
            return match self.wanted_part(request) {
                Some((first, last)) => Reply::Part {
                    first,
                    last,
                    complete: part.complete,
                    stored_from: part.first,
                },
                None => Reply::Whole,
            };
        }
        if *request.method != Method::GET || !self.if_range_holds(request.headers) {
            return Reply::Whole;
        }
        let range = request
            .headers
            .get(RANGE)
            .map(HeaderValue::as_bytes)
            .and_then(ByteRange::parse);
        let complete = self.body().len();
        match Wanted::of_complete(range, complete) {
            Wanted::Whole => Reply::Whole,
            Wanted::Part(first, last) => Reply::Part {
                first,
                last,
                complete: Some(complete),
                stored_from: 0,
            },
            Wanted::Nothing => Reply::NotSatisfiable { complete },
        }
    }

    /// Whether the client has this response already. `If-None-Match` counts before `If-Modified-Since`.
    fn is_unmodified(&self, headers: &HeaderMap, now: Timestamp) -> bool {
        if headers.contains_key(IF_NONE_MATCH) {
            let own = self.etag();
            return headers.get_all(IF_NONE_MATCH).iter().any(|line| {
                line.as_bytes().trim_ascii() == b"*"
                    || EntityTags(line.as_bytes())
                        .any(|tag| own.is_some_and(|own| own.is_alike(&tag)))
            });
        }
        let since = headers
            .get(IF_MODIFIED_SINCE)
            .and_then(|value| date::parse(value.as_bytes(), now));
        since.is_some_and(|since| self.last_modified().unwrap_or(self.date()) <= since)
    }

    /// Whether `If-Range` lets a range count: it is not there, or names exactly this response (RFC 9110, section
    /// 13.1.5).
    pub(crate) fn if_range_holds(&self, headers: &HeaderMap) -> bool {
        let Some(condition) = headers.get(IF_RANGE).map(HeaderValue::as_bytes) else {
            return true;
        };
        match EntityTag::parse(condition) {
            Some(tag) => self.etag().is_some_and(|own| own.is_same(&tag)),
            None => {
                self.has(flag::STRONG_DATE)
                    && self.last_modified().is_some()
                    && self.last_modified() == date::parse(condition, self.response_time())
            }
        }
    }
}
