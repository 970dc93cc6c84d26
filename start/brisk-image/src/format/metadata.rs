//! Metadata blocks: up to 8 KiB of tables, stored with a 2-byte header.

use std::fmt;

use crate::error::{Allowed, Error, Location, Result};

/// Bytes in a metadata block when decoded, but for the last of a table.
pub(crate) const METADATA_BLOCK: usize = 8192;

/// Stored bytes of a metadata block that is full, at least: its header, and the shortest frame of
/// zstd that decodes to 8192 bytes. The other codecs take 20 to 60.
const LEAST_STORED: u64 = 12;

/// Bytes that `stored` bytes of metadata blocks decode to at most.
pub(crate) fn most_decoded(stored: u64) -> u64 {
    let blocks = stored.checked_div(LEAST_STORED).unwrap_or(stored);
    let block = u64::try_from(METADATA_BLOCK).unwrap_or(u64::MAX);
    blocks.saturating_add(1).saturating_mul(block)
}

/// Bytes of the header in front of each stored metadata block.
pub(crate) const HEADER: usize = 2;

const RAW: u16 = 0x8000;

/// The header of a stored metadata block.
///
/// 1. `len` is in `1..=8192`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MetadataHeader {
    len: u16,
    raw: bool,
}

impl MetadataHeader {
    /// Reads the header that is stored at byte `at` of the image.
    pub(crate) fn parse(bytes: [u8; HEADER], at: u64) -> Result<Self> {
        let word = u16::from_le_bytes(bytes);
        let (len, raw) = (word & !RAW, word & RAW != 0);
        if len == 0 || usize::from(len) > METADATA_BLOCK {
            return Err(Error::field(
                Location::Byte(at),
                "stored length of a metadata block",
                len,
                Allowed::Range(1, 8192),
            ));
        }
        Ok(Self { len, raw })
    }

    /// The header of `len` stored bytes, or none if a metadata block cannot be that long.
    pub(crate) fn new(len: usize, raw: bool) -> Option<Self> {
        let len = u16::try_from(len).ok()?;
        (len > 0 && usize::from(len) <= METADATA_BLOCK).then_some(Self { len, raw })
    }

    pub(crate) fn encode(self) -> [u8; HEADER] {
        (self.len | if self.raw { RAW } else { 0 }).to_le_bytes()
    }

    /// Stored bytes behind the header.
    pub(crate) fn len(self) -> usize {
        usize::from(self.len)
    }

    /// True if the bytes are stored as they are.
    pub(crate) fn is_raw(self) -> bool {
        self.raw
    }
}

/// A byte of a table: the metadata block by where it is stored, and the byte of its decoded form.
///
/// 1. `offset < 8192`.
/// 2. `block < 2^48`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MetaRef {
    block: u64,
    offset: u16,
}

impl MetaRef {
    /// A position whose block is stored `block` bytes after the start of its table.
    pub(crate) fn new(
        block: u64,
        offset: u16,
        found_at: Location,
        field: &'static str,
    ) -> Result<Self> {
        if usize::from(offset) >= METADATA_BLOCK {
            return Err(Error::field(found_at, field, offset, Allowed::AtMost(8191)));
        }
        if block >> 48 != 0 {
            return Err(Error::field(
                found_at,
                field,
                block,
                Allowed::AtMost((1 << 48) - 1),
            ));
        }
        Ok(Self { block, offset })
    }

    /// Takes apart `block << 16 | offset`.
    pub(crate) fn parse(word: u64, found_at: Location, field: &'static str) -> Result<Self> {
        let [low, high, ..] = word.to_le_bytes();
        Self::new(word >> 16, u16::from_le_bytes([low, high]), found_at, field)
    }

    /// `block << 16 | offset`.
    pub(crate) fn encode(self) -> u64 {
        (self.block << 16) | u64::from(self.offset)
    }

    /// Where the block is stored, in bytes from the start of the table.
    pub(crate) fn block(self) -> u64 {
        self.block
    }

    /// The byte in the decoded block.
    pub(crate) fn offset(self) -> usize {
        usize::from(self.offset)
    }
}

impl fmt::Debug for MetaRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.block, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_bits() {
        let header = MetadataHeader::parse([0x00, 0xa0], 96).unwrap();
        assert_eq!((header.len(), header.is_raw()), (8192, true));
        assert_eq!(header.encode(), [0x00, 0xa0]);
        assert_eq!(
            MetadataHeader::parse([0x00, 0x80], 96)
                .unwrap_err()
                .to_string(),
            "corrupt image at byte 96: stored length of a metadata block is 0, allowed is 1 to 8192"
        );
        assert_eq!(
            MetadataHeader::parse([0x01, 0x20], 96)
                .unwrap_err()
                .to_string(),
            "corrupt image at byte 96: stored length of a metadata block is 8193, allowed is 1 to 8192"
        );
    }

    #[test]
    fn reference_is_block_and_offset() {
        let at = Location::Byte(32);
        let r = MetaRef::parse(0x0001_2345_1fff, at, "root inode").unwrap();
        assert_eq!((r.block(), r.offset()), (0x12345, 8191));
        assert_eq!(r.encode(), 0x0001_2345_1fff);
        assert_eq!(
            MetaRef::parse(0x2000, at, "root inode")
                .unwrap_err()
                .to_string(),
            "corrupt image at byte 32: root inode is 8192, allowed is at most 8191"
        );
    }
}
