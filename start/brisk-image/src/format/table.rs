//! Look-up tables: fixed-size entries in metadata blocks, found through a list of where those are.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::metadata::METADATA_BLOCK;

/// How the entries of a look-up table are spread over metadata blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableShape {
    /// Entries in the table.
    pub(crate) count: u64,
    /// Bytes of an entry, a power of two.
    pub(crate) entry_len: usize,
}

impl TableShape {
    /// Entries in a full metadata block.
    pub(crate) fn per_block(self) -> u64 {
        u64::try_from(METADATA_BLOCK)
            .unwrap_or(u64::MAX)
            .checked_div(self.entry_len_u64())
            .unwrap_or(1)
    }

    fn entry_len_u64(self) -> u64 {
        u64::try_from(self.entry_len).unwrap_or(u64::MAX)
    }

    /// Metadata blocks that the table takes, each with 8 bytes in the list of where they start.
    pub(crate) fn blocks(self) -> u64 {
        self.count.div_ceil(self.per_block())
    }

    /// Entries that a table has at most whose list takes `bytes`.
    pub(crate) fn entries_of_list(self, bytes: u64) -> u64 {
        bytes.wrapping_shr(3).saturating_mul(self.per_block())
    }

    /// The metadata block with entry `i`, and the byte in it; none if the table is shorter.
    pub(crate) fn block_and_byte(self, i: u64) -> Option<(usize, usize)> {
        if i >= self.count {
            return None;
        }
        let block = usize::try_from(i.checked_div(self.per_block())?).ok()?;
        let slot = usize::try_from(i.checked_rem(self.per_block())?).ok()?;
        Some((block, slot.checked_mul(self.entry_len)?))
    }
}

/// An entry of the fragment table: where a shared block is stored.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Fragment {
    pub(crate) start: U64,
    pub(crate) stored: U32,
    pub(crate) unused: U32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_in_their_blocks() {
        let ids = TableShape {
            count: 2049,
            entry_len: 4,
        };
        assert_eq!(ids.blocks(), 2);
        assert_eq!(ids.block_and_byte(2047), Some((0, 8188)));
        assert_eq!(ids.block_and_byte(2048), Some((1, 0)));
        assert_eq!(ids.block_and_byte(2049), None);
        let fragments = TableShape {
            count: u32::MAX.into(),
            entry_len: size_of::<Fragment>(),
        };
        assert_eq!(fragments.entry_len, 16);
        assert_eq!(fragments.blocks(), 8_388_608);
        assert_eq!(
            TableShape {
                count: 0,
                entry_len: 8
            }
            .blocks(),
            0
        );
    }
}
