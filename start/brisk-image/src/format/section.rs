//! Sections: bytes attached behind an image without breaking its format.
//!
//! The first section starts at the first multiple of 4096 at or after `bytes_used`, each next one
//! at the first multiple of 4096 after the one before. Bytes without the magic number end the
//! list, so padding, and trailers of other programs, are no sections and no error.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Sections start at multiples of this from the start of the image.
pub(crate) const ALIGN: u64 = 4096;

/// The first bytes of every section.
pub(crate) const MAGIC: [u8; 8] = *b"brisksec";

/// What a section holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SectionKind(pub(crate) [u8; 4]);

impl SectionKind {
    /// JSON: how the image was made.
    pub(crate) const RECIPE: Self = Self(*b"rcpe");
    /// UTF-8: the absolute path of the directory that the tree belongs at.
    pub(crate) const PLACE: Self = Self(*b"plac");
    /// How the image starts its program: see [`EntryPoint`](super::entry_point::EntryPoint).
    pub(crate) const ENTRY: Self = Self(*b"entr");
    /// A hot pack, as it stands in a file of its own, too.
    pub(crate) const HOT_PACK: Self = Self(*b"hotp");
    /// A dm-verity hash tree over everything before the section.
    #[cfg(feature = "verity")]
    pub(crate) const VERITY: Self = Self(*b"vrty");
}

/// In front of the bytes of a section.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Wire {
    pub(crate) magic: [u8; 8],
    pub(crate) kind: [u8; 4],
    /// Version of the contents; 1 for all kinds so far.
    pub(crate) version: U32,
    /// Bytes that follow this header.
    pub(crate) len: U64,
    /// BLAKE3 of those bytes.
    pub(crate) digest: [u8; 32],
    pub(crate) reserved: [u8; 8],
}

/// Bytes of a section's header.
pub(crate) const HEADER: usize = size_of::<Wire>();

/// Where the first section at or after `end` may start; none past 2^64.
pub(crate) fn align_up(end: u64) -> Option<u64> {
    end.checked_next_multiple_of(ALIGN)
}

impl Wire {
    pub(crate) fn new(kind: SectionKind, contents: &[u8]) -> Self {
        Self::of_parts(kind, &[contents])
    }

    /// For contents that are these parts, one behind the other.
    pub(crate) fn of_parts(kind: SectionKind, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut len = 0_u64;
        for part in parts {
            hasher.update(part);
            len = len.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        }
        Self {
            magic: MAGIC,
            kind: kind.0,
            version: 1.into(),
            len: len.into(),
            digest: *hasher.finalize().as_bytes(),
            reserved: [0; 8],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_64_bytes() {
        assert_eq!(HEADER, 64);
        assert_eq!(align_up(1), Some(4096));
        assert_eq!(align_up(4096), Some(4096));
        assert_eq!(align_up(u64::MAX), None);
    }
}
