//! The bytes of a stored policy: [`Facts`], the rows of the response's fields, the rows of the request's selecting
//! fields, and the bytes of all their names and values, in the same order.
//!
//! All numbers are little-endian and unaligned.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// In place of a number of seconds that there is not.
pub(crate) const NO_SECONDS: u32 = u32::MAX;
/// In place of a time, a position or a length that there is not.
pub(crate) const NO_NUMBER: u64 = u64::MAX;

/// What is precomputed, so that a decision looks at no field of the response.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Facts {
    /// When the response came, or was last validated.
    pub(crate) response_time: U64,
    /// `Date`, or else when the response came.
    pub(crate) date: U64,
    /// `Last-Modified`, or [`NO_NUMBER`].
    pub(crate) last_modified: U64,
    /// The number of bytes of the body that is stored.
    pub(crate) body_len: U64,
    /// The position of the body's first byte in a part of a representation, or 0.
    pub(crate) first_byte: U64,
    /// The length of the representation of which this is a part, or [`NO_NUMBER`].
    pub(crate) complete_len: U64,
    /// XXH3 of the body, with 128 bits.
    pub(crate) body_digest: [u8; 16],
    /// `corrected_initial_age` of RFC 9111, section 4.2.3.
    pub(crate) initial_age: U32,
    /// The explicit lifetime, or [`NO_SECONDS`].
    pub(crate) lifetime: U32,
    /// As the directive says, or [`NO_SECONDS`].
    pub(crate) stale_while_revalidate: U32,
    /// As the directive says, or [`NO_SECONDS`].
    pub(crate) stale_if_error: U32,
    /// Bits of [`flag`].
    pub(crate) flags: U32,
    /// The number of the response's fields.
    pub(crate) fields: U32,
    /// The number of bytes of their names and values.
    pub(crate) field_bytes: U32,
    /// Where in them the value of `ETag` is, if it is valid.
    pub(crate) etag: Span,
    /// Where in them the value of `Last-Modified` is, if it is valid.
    pub(crate) last_modified_text: Span,
    /// The number of the request's selecting fields.
    pub(crate) selectors: U16,
    /// The status.
    pub(crate) status: U16,
}

/// Bits of [`Facts::flags`].
pub(crate) mod flag {
    /// Never used without validation.
    pub(crate) const NO_CACHE: u32 = 1;
    /// Not used stale, in this mode.
    pub(crate) const MUST_REVALIDATE: u32 = 1 << 1;
    /// RFC 8246.
    pub(crate) const IMMUTABLE: u32 = 1 << 2;
    /// A lifetime may be estimated.
    pub(crate) const HEURISTIC: u32 = 1 << 3;
    /// A negative answer.
    pub(crate) const NEGATIVE: u32 = 1 << 4;
    /// A part of a representation.
    pub(crate) const PARTIAL: u32 = 1 << 5;
    /// Something changed behind it, so it must be validated.
    pub(crate) const INVALIDATED: u32 = 1 << 6;
    /// Made in shared mode.
    pub(crate) const SHARED: u32 = 1 << 7;
    /// The entity tag is strong.
    pub(crate) const STRONG_ETAG: u32 = 1 << 8;
    /// `Last-Modified` is at least a second before `Date`, so it is strong (RFC 9110, section 8.8.2.2).
    pub(crate) const STRONG_DATE: u32 = 1 << 9;
    /// The lifetime is from `s-maxage`, `max-age`, `Expires`, or a targeted field.
    pub(crate) const FROM_S_MAXAGE: u32 = 1 << 16;
    pub(crate) const FROM_MAX_AGE: u32 = 1 << 17;
    pub(crate) const FROM_EXPIRES: u32 = 1 << 18;
    pub(crate) const FROM_TARGETED: u32 = 1 << 19;
}

/// A piece of the bytes of names and values. It has no bytes if there is no such value.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Span {
    pub(crate) start: U32,
    pub(crate) len: U32,
}

/// A field of the response.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FieldRow {
    pub(crate) value_len: U32,
    pub(crate) name_len: U16,
    /// 1 if `no-cache` names the field, so that it is not sent without validation.
    pub(crate) held_back: u8,
}

/// A selecting field of the request.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SelectorRow {
    /// The number of bytes of the value as it came, if it had one line. It lies before the other form.
    pub(crate) raw_len: U32,
    /// The number of bytes of the normal form, or of the digest.
    pub(crate) value_len: U32,
    pub(crate) name_len: U16,
    /// See [`presence`].
    pub(crate) presence: u8,
}

/// How a request had a selecting field.
pub(crate) mod presence {
    pub(crate) const ABSENT: u8 = 0;
    /// The value is in its normal form.
    pub(crate) const TEXT: u8 = 1;
    /// The value is digested.
    pub(crate) const DIGEST: u8 = 2;
    /// The same, and `Vary` does not name it: it is a credential that the cache tells apart by itself.
    pub(crate) const OWN_DIGEST: u8 = 3;
}

// The documentation names this number.
const _: () = assert!(size_of::<Facts>() == 112);
