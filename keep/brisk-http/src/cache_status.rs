use std::fmt;

use http::StatusCode;

use crate::decision::{Decision, Reason};

/// Why a request went on to the origin (RFC 9211, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    /// The cache was told not to handle the request.
    Bypass,
    /// The method needs the origin.
    Method,
    /// Nothing is stored for the URL.
    UriMiss,
    /// What is stored for the URL answers other requests.
    VaryMiss,
    /// What is stored cannot be used, for another reason.
    Miss,
    /// The request does not accept the fresh response that is stored.
    Request,
    /// What is stored is stale, or must be validated.
    Stale,
    /// A part is stored, and the request wants more.
    Partial,
}

impl Forwarded {
    pub(crate) fn of(reason: Reason) -> Self {
        match reason {
            Reason::Ignored => Self::Bypass,
            Reason::Method => Self::Method,
            Reason::Vary => Self::VaryMiss,
            Reason::Partial => Self::Partial,
            Reason::RequestNoCache
            | Reason::RequestMaxAge
            | Reason::MinFresh
            | Reason::Precondition => Self::Request,
            Reason::Stale | Reason::NoCache | Reason::Invalidated => Self::Stale,
            _ => Self::Miss,
        }
    }
}

/// What a cache did, as a member of `Cache-Status` (RFC 9211).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheStatus<'a> {
    pub(crate) name: &'a str,
    pub(crate) forwarded: Option<Forwarded>,
    pub(crate) forward_status: Option<StatusCode>,
    pub(crate) ttl: Option<i64>,
    pub(crate) stored: bool,
    /// Whether the response to another request answers this one, too.
    pub(crate) collapsed: bool,
    pub(crate) detail: Option<&'static str>,
}

impl<'a> CacheStatus<'a> {
    /// That of an answer from the cache, without the origin.
    pub(crate) fn hit(name: &'a str, decision: &Decision) -> Self {
        Self {
            name,
            forwarded: None,
            forward_status: None,
            ttl: Some(decision.ttl()),
            stored: false,
            collapsed: false,
            detail: match decision.reason {
                Reason::Offline => Some("offline"),
                _ => None,
            },
        }
    }

    pub(crate) fn forwarded(name: &'a str, why: Forwarded, status: Option<StatusCode>) -> Self {
        Self {
            name,
            forwarded: Some(why),
            forward_status: status,
            ttl: None,
            stored: false,
            collapsed: false,
            detail: None,
        }
    }
}

impl fmt::Display for CacheStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match self.forwarded {
            None => f.write_str("; hit")?,
            Some(why) => write!(
                f,
                "; fwd={}",
                match why {
                    Forwarded::Bypass => "bypass",
                    Forwarded::Method => "method",
                    Forwarded::UriMiss => "uri-miss",
                    Forwarded::VaryMiss => "vary-miss",
                    Forwarded::Miss => "miss",
                    Forwarded::Request => "request",
                    Forwarded::Stale => "stale",
                    Forwarded::Partial => "partial",
                }
            )?,
        }
        if let Some(status) = self.forward_status {
            write!(f, "; fwd-status={}", status.as_u16())?;
        }
        if let Some(ttl) = self.ttl {
            // The integers of structured fields have at most 15 digits.
            write!(
                f,
                "; ttl={}",
                ttl.clamp(-999_999_999_999_999, 999_999_999_999_999)
            )?;
        }
        if self.stored {
            f.write_str("; stored")?;
        }
        if self.collapsed {
            f.write_str("; collapsed")?;
        }
        match self.detail {
            Some(detail) => write!(f, "; detail={detail}"),
            None => Ok(()),
        }
    }
}
