//! How a data block or a shared block is stored.

use crate::error::{Allowed, Error, Location, Result};

const RAW: u32 = 1 << 24;

/// The word that says how a block is stored, and nothing more: lists have millions of them.
///
/// 1. Its length is at most the block size of the image.
/// 2. No other bits are set than those of the length and [`RAW`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredLen(u32);

impl StoredLen {
    /// A block of zeros, which is not stored at all.
    pub(crate) const SPARSE: Self = Self(0);

    /// Checks a word that was found at `at`.
    pub(crate) fn parse(word: u32, block_size: u32, at: Location) -> Result<Self> {
        let len = word & !RAW;
        if len > block_size {
            return Err(Error::field(
                at,
                "stored length of a block",
                len,
                Allowed::AtMost(block_size.into()),
            ));
        }
        Ok(Self(word))
    }

    /// `len` stored bytes, or none if that passes `block_size`.
    pub(crate) fn new(len: usize, raw: bool, block_size: u32) -> Option<Self> {
        let len = u32::try_from(len).ok()?;
        (len <= block_size && len < RAW).then_some(Self(len | if raw { RAW } else { 0 }))
    }

    pub(crate) fn encode(self) -> u32 {
        self.0
    }

    /// Stored bytes; zero for a block of zeros.
    pub(crate) fn len(self) -> u32 {
        self.0 & !RAW
    }

    /// True if the bytes are stored as they are.
    pub(crate) fn is_raw(self) -> bool {
        self.0 & RAW != 0
    }

    pub(crate) fn is_sparse(self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let at = Location::Byte(0);
        let raw = StoredLen::parse(0x0100_1000, 4096, at).unwrap();
        assert_eq!(
            (raw.len(), raw.is_raw(), raw.encode()),
            (4096, true, 0x0100_1000)
        );
        assert_eq!(StoredLen::parse(0, 4096, at).unwrap(), StoredLen::SPARSE);
        assert_eq!(
            StoredLen::parse(0x0200_0000, 4096, at)
                .unwrap_err()
                .to_string(),
            "corrupt image at byte 0: stored length of a block is 33554432, allowed is at most 4096"
        );
    }
}
