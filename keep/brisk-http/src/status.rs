//! What statuses mean to a cache.

use http::StatusCode;

/// Whether a response of this status may be stored at all.
///
/// A response to a condition (304, 412) or to a range (416) answers no other request, and 407 is of one proxy. One that
/// is not final (below 200) is no answer (RFC 9111, section 3).
pub(crate) fn may_be_stored(status: StatusCode) -> bool {
    !matches!(status.as_u16(), 0..200 | 304 | 407 | 412 | 416)
}

/// Whether this crate does all that a status asks of caches (RFC 9111, section 5.2.2.3): those of RFC 9110, and those
/// of the registry that ask for nothing.
pub(crate) fn is_understood(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200..=206 | 300..=303 | 305 | 307 | 308 | 400..=411 | 413..=415 | 417 | 421 | 422 | 426
            | 428 | 429 | 431 | 451 | 500..=505 | 511
    )
}

/// RFC 9110, section 15.1.
pub(crate) fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// Whether [`Options::negative_lifetime`](crate::Options::negative_lifetime) is about this status.
pub(crate) fn is_negative(status: StatusCode) -> bool {
    matches!(status.as_u16(), 404 | 405 | 410 | 414 | 501)
}

/// Whether it stands for a failure that a stale response may hide (RFC 5861, section 4).
pub(crate) fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
