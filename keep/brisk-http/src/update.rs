use std::fmt;

use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, IF_NONE_MATCH, IF_RANGE,
    LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::body_name::BodyName;
use crate::date;
use crate::entity_tag::EntityTag;
use crate::head::{Request, Response, add, set};
use crate::options::Options;
use crate::policy::{Policy, Times, is_of_connection};
use crate::range::ContentRange;
use crate::refusal::Refusal;
use crate::stored_policy::StoredPolicy;
use crate::wire::flag;

/// Why a stored response is not updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotUpdated {
    /// What came speaks of another response: a validator or the length differs.
    Other,
    /// It is this response, but as updated it may not be stored.
    Refused(Refusal),
}

impl fmt::Display for NotUpdated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("what came is about another response than the stored one"),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for NotUpdated {}

impl<'a> StoredPolicy<'a> {
    /// The policy after a 304 to a request that had this response's [validators](Self::validators), and no others (RFC
    /// 9111, section 4.3.4). The body stays as it is.
    ///
    /// A 304 without a validator counts as one for this response, since no other was asked for.
    ///
    /// # Errors
    ///
    /// [`NotUpdated::Other`] if its validators are not those of this response: it must not update it, and the request
    /// is to be sent again without conditions. [`NotUpdated::Refused`] if the response holds, but its new fields forbid
    /// to store it.
    pub fn validated(
        &self,
        request: &Request<'_>,
        not_modified: &HeaderMap,
        times: Times,
        options: &Options,
    ) -> Result<Policy, NotUpdated> {
        if !self.has_validators_of(not_modified) {
            return Err(NotUpdated::Other);
        }
        let headers = self.merged(not_modified, times);
        Policy::updated(self, request, &headers, times, options).map_err(NotUpdated::Refused)
    }

    /// The fields of this response after a 304: what the client gets.
    pub fn merged_headers(&self, not_modified: &HeaderMap, times: Times) -> HeaderMap {
        self.merged(not_modified, times)
    }

    /// A strong validator decides first, then a weak one (RFC 9111, section 4.3.4).
    fn has_validators_of(&self, headers: &HeaderMap) -> bool {
        let etag = headers
            .get(ETAG)
            .and_then(|value| EntityTag::parse(value.as_bytes()));
        if let Some(etag) = etag {
            return match (etag.weak, self.etag()) {
                (false, Some(own)) => own.is_same(&etag),
                (true, Some(own)) => own.is_alike(&etag),
                (_, None) => false,
            };
        }
        match (headers.get(LAST_MODIFIED), self.last_modified_text()) {
            (Some(new), Some(own)) => new.as_bytes() == own,
            _ => true,
        }
    }

    /// The policy after a 200 to HEAD (RFC 9111, section 4.3.5).
    ///
    /// # Errors
    ///
    /// [`NotUpdated::Other`] if the response is not the stored one: then [`Variants::invalidated`](crate::Variants::invalidated)
    /// is right.
    pub fn updated_by_head(
        &self,
        request: &Request<'_>,
        head: &Response<'_>,
        times: Times,
        options: &Options,
    ) -> Result<Policy, NotUpdated> {
        let same = |name, own: Option<&[u8]>| match head.headers.get(name) {
            Some(new) => own == Some(new.as_bytes()),
            None => true,
        };
        let length = self.body().len().to_string();
        let is_this = head.status == StatusCode::OK
            && self.status() == StatusCode::OK
            && same(&ETAG, self.etag_text())
            && same(&LAST_MODIFIED, self.last_modified_text())
            && same(&CONTENT_LENGTH, Some(length.as_bytes()));
        if !is_this {
            return Err(NotUpdated::Other);
        }
        let headers = self.merged(head.headers, times);
        Policy::updated(self, request, &headers, times, options).map_err(NotUpdated::Refused)
    }

    /// The stored fields with those of a newer response in their place (RFC 9111, section 3.2).
    ///
    /// `Content-Length`, `Content-Encoding` and `Content-Range` describe the stored bytes, so they stay. `Age` and `Date`
    /// are of the newer message, even if it has none.
    fn merged(&self, newer: &HeaderMap, times: Times) -> HeaderMap {
        let mut headers = self.headers(true);
        headers.remove(AGE);
        for name in newer.keys() {
            if is_of_connection(name)
                || *name == CONTENT_LENGTH
                || *name == CONTENT_ENCODING
                || *name == CONTENT_RANGE
            {
                continue;
            }
            headers.remove(name);
            for value in newer.get_all(name) {
                add(&mut headers, name.clone(), value.clone());
            }
        }
        if !newer.contains_key(DATE)
            && let Some(text) = date::format(times.response)
            && let Ok(value) = HeaderValue::try_from(text)
        {
            set(&mut headers, DATE, value);
        }
        headers
    }

    /// The fields with which a request for the whole is turned into one for the bytes that are missing (RFC 9111,
    /// section 3.3). None unless the stored part begins the representation, and a strong validator makes sure that the
    /// rest belongs to it.
    pub fn completion(&self) -> Option<(HeaderValue, HeaderValue)> {
        let part = self.part()?;
        let next = part.last.checked_add(1)?;
        let is_missing = part.complete.is_none_or(|complete| next < complete);
        let validator = match self.has(flag::STRONG_ETAG) {
            true => self.etag_text(),
            false => self
                .last_modified_text()
                .filter(|_| self.has(flag::STRONG_DATE)),
        };
        if part.first != 0 || !is_missing {
            return None;
        }
        let range = HeaderValue::try_from(format!("bytes={next}-")).ok()?;
        Some((range, HeaderValue::from_bytes(validator?).ok()?))
    }

    /// The policy of the whole representation, after the 206 that [`completion`](Self::completion) asked for. Its body
    /// is the stored one followed by that of the 206, and `body` is its name.
    ///
    /// # Errors
    ///
    /// [`NotUpdated::Other`] if the 206 is not the rest of this representation.
    pub fn completed(
        &self,
        request: &Request<'_>,
        rest: &HeaderMap,
        body: BodyName,
        times: Times,
        options: &Options,
    ) -> Result<Policy, NotUpdated> {
        if !self.continues(rest, body.len()) {
            return Err(NotUpdated::Other);
        }
        let mut headers = self.merged(rest, times);
        headers.remove(CONTENT_RANGE);
        set(&mut headers, CONTENT_LENGTH, HeaderValue::from(body.len()));
        let mut asked = request.headers.clone();
        for name in [&RANGE, &IF_RANGE, &IF_NONE_MATCH] {
            asked.remove(name);
        }
        let whole = Request {
            method: &Method::GET,
            headers: &asked,
            ..*request
        };
        let response = Response {
            status: StatusCode::OK,
            headers: &headers,
        };
        Policy::selected_by(Some(self), &whole, &response, times, options)
            .and_then(|policy| policy.with_body(body))
            .map_err(NotUpdated::Refused)
    }

    /// Whether a 206 has the bytes that follow the stored ones, up to the end of a representation of `len` bytes, with
    /// the same strong validator.
    fn continues(&self, rest: &HeaderMap, len: u64) -> bool {
        let range = rest
            .get(CONTENT_RANGE)
            .and_then(|value| ContentRange::parse(value.as_bytes()));
        let (Some(part), Some(range)) = (self.part(), range) else {
            return false;
        };
        let same_validator = match (rest.get(ETAG), self.etag()) {
            (Some(new), Some(own)) => {
                EntityTag::parse(new.as_bytes()).is_some_and(|new| own.is_same(&new))
            }
            (None, None) => {
                self.has(flag::STRONG_DATE)
                    && rest.get(LAST_MODIFIED).map(HeaderValue::as_bytes)
                        == self.last_modified_text()
            }
            _ => false,
        };
        same_validator
            && part.first == 0
            && part.last.checked_add(1) == Some(range.first)
            && range.complete == Some(len)
            && range.last.checked_add(1) == Some(len)
            && part.complete.is_none_or(|complete| complete == len)
    }
}
