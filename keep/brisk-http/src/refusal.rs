use std::fmt;

use http::StatusCode;

/// Why a response is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// An unsafe method has changed the resource since the request was sent.
    Invalidated,
    /// The options say so.
    Ignored,
    /// The method is not GET, and not a POST whose response stands for its URL.
    Method,
    /// No cache stores this status.
    Status(StatusCode),
    /// `must-understand`, and the status is not known here.
    NotUnderstood(StatusCode),
    /// The response has no lifetime, and its status does not allow to estimate one.
    NotCacheable(StatusCode),
    /// The response is `no-store`.
    NoStore,
    /// The request is `no-store`.
    RequestNoStore,
    /// The response is `private`, and the cache is shared.
    Private,
    /// The request has credentials, the cache is shared, and the response does not say that it is for all.
    Authorization,
    /// The response depends on credentials, and there is no secret to digest them with.
    NoSecret,
    /// `Vary` has a `*`, or something that is no name.
    VaryNothing,
    /// `no-cache`, and no validator.
    NeverUsable,
    /// A part of no single range of bytes, or one that was not asked for.
    Range,
    /// More fields or longer ones than a policy has room for.
    TooLarge,
    /// The body is not as long as the response announced.
    BodyLength {
        /// As announced.
        expected: u64,
        /// As it came.
        found: u64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalidated => f.write_str(
                "a request with an unsafe method has changed the resource since this one was sent",
            ),
            Self::Ignored => f.write_str("the options exempt this URL from the cache"),
            Self::Method => f.write_str("responses to this method are not stored"),
            Self::Status(status) => write!(f, "no cache stores a response of status {}", status.as_u16()),
            Self::NotUnderstood(status) => write!(
                f,
                "Cache-Control has must-understand, and the status {} is not known",
                status.as_u16()
            ),
            Self::NotCacheable(status) => write!(
                f,
                "the response has no lifetime, and one of status {} needs one",
                status.as_u16()
            ),
            Self::NoStore => f.write_str("Cache-Control of the response has no-store"),
            Self::RequestNoStore => f.write_str("Cache-Control of the request has no-store"),
            Self::Private => f.write_str("the response is private, and this cache is shared"),
            Self::Authorization => f.write_str(
                "the request has Authorization, and the response has none of public, s-maxage and must-revalidate",
            ),
            Self::NoSecret => f.write_str(
                "the response depends on credentials, and the cache has no secret to digest them with",
            ),
            Self::VaryNothing => f.write_str("Vary has a *, so no request would match"),
            Self::NeverUsable => f.write_str("Cache-Control has no-cache, and there is no validator"),
            Self::Range => f.write_str("the response is a part that does not fit one range of bytes"),
            Self::TooLarge => f.write_str("there are more than 4096 fields, or they have more than 256 KiB"),
            Self::BodyLength { expected, found } => write!(
                f,
                "the body has {found} bytes, but the response announced {expected}"
            ),
        }
    }
}

impl std::error::Error for Refusal {}
