use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PAGE, check};

pub(crate) const MAGIC: [u8; 8] = *b"briskidx";
pub(crate) const VERSION: u32 = 1;

/// Sets in a block.
pub(crate) const SETS: u32 = 128;
/// Bytes in a block. The kernel maps as many around a page that is touched.
pub(crate) const BLOCK: u64 = 64 << 10;
/// Where the slots begin.
pub(crate) const SLOTS_AT: u64 = PAGE;
/// 64 million slots, in 4 GiB.
pub(crate) const MOST_BLOCKS: u32 = 1 << 16;
/// The offset of the mark.
pub(crate) const MARK_AT: u64 = 32;

/// Where the number is below which the sequence of a file says that it is in the older half. It is a hint, so no check
/// covers it: a wrong one lets uses be noted sooner or later.
pub(crate) const OLD_BEFORE_AT: u64 = 56;

/// The index is growing.
pub(crate) const MOVING: [u8; 8] = *b"moving\0\0";
/// There is another index.
pub(crate) const REPLACED: [u8; 8] = *b"replaced";
/// The index is the current one.
pub(crate) const CURRENT: [u8; 8] = [0; 8];

pub(crate) const LEN: usize = size_of::<Wire>();

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Wire {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    pub(super) blocks: U32,
    pub(super) seed: U64,
    pub(super) check: U64,
    pub(super) mark: [u8; 8],
}

/// The header of an index that has all its blocks.
///
/// 1. `blocks` is a power of two, at most [`MOST_BLOCKS`].
/// 2. `seed` is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexHeader {
    pub(crate) blocks: u32,
    pub(crate) seed: u64,
}

impl IndexHeader {
    /// None if the bytes are not the header of an index in a file of this length.
    pub(crate) fn parse(bytes: &[u8; LEN], file_len: u64) -> Option<Self> {
        let wire = Wire::read_from_bytes(bytes).ok()?;
        let header = Self {
            blocks: wire.blocks.get(),
            seed: wire.seed.get(),
        };
        let right = wire.magic == MAGIC
            && wire.version.get() == VERSION
            && header.seed != 0
            && wire.check.get() == check::seeded(header.seed, checked(&wire))
            && header.blocks.is_power_of_two()
            && header.blocks <= MOST_BLOCKS
            && header.file_len() == file_len;
        right.then_some(header)
    }

    /// The version of the bytes, if they are the header of an index of a later version. In all versions, the fields before the
    /// mark are where they are in this one.
    pub(crate) fn later_version(bytes: &[u8; LEN]) -> Option<u32> {
        let wire = Wire::read_from_bytes(bytes).ok()?;
        let (version, seed) = (wire.version.get(), wire.seed.get());
        let right = wire.magic == MAGIC
            && version > VERSION
            && seed != 0
            && wire.check.get() == check::seeded(seed, checked(&wire));
        right.then_some(version)
    }

    pub(crate) fn encode(self) -> [u8; LEN] {
        let mut wire = Wire {
            magic: MAGIC,
            version: VERSION.into(),
            blocks: self.blocks.into(),
            seed: self.seed.into(),
            check: 0.into(),
            mark: CURRENT,
        };
        wire.check = check::seeded(self.seed, checked(&wire)).into();
        zerocopy::transmute!(wire)
    }

    /// The length of a file with this many blocks.
    pub(crate) fn file_len(self) -> u64 {
        SLOTS_AT + u64::from(self.blocks) * BLOCK
    }
}

fn checked(wire: &Wire) -> &[u8] {
    const CHECKED: usize = std::mem::offset_of!(Wire, check);
    wire.as_bytes().split_at(CHECKED).0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The header of an index that another version has made.
    pub(crate) fn of_version(version: u32) -> [u8; LEN] {
        let mut wire = Wire {
            version: version.into(),
            ..zerocopy::transmute!(IndexHeader { blocks: 4, seed: 9 }.encode())
        };
        wire.check = check::seeded(9, checked(&wire)).into();
        zerocopy::transmute!(wire)
    }

    #[test]
    fn only_a_later_version_with_a_right_check_is_one() {
        let bytes = of_version(2);
        assert_eq!(IndexHeader::later_version(&bytes), Some(2));
        assert_eq!(IndexHeader::later_version(&of_version(VERSION)), None);
        assert_eq!(IndexHeader::later_version(&of_version(0)), None);
        for bit in 0..MARK_AT as usize * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(IndexHeader::later_version(&bytes), None, "bit {bit}");
        }
    }

    #[test]
    fn a_header_agrees_with_itself_and_with_its_file() {
        let header = IndexHeader { blocks: 4, seed: 9 };
        let len = SLOTS_AT + 4 * BLOCK;
        let bytes = header.encode();
        assert_eq!(IndexHeader::parse(&bytes, len), Some(header));
        assert_eq!(IndexHeader::parse(&bytes, len - 1), None);
        assert_eq!(IndexHeader::parse(&[0; LEN], len), None);
        // The mark is written without the rest, so no check covers it.
        for at in 0..MARK_AT as usize {
            for bit in 0..8 {
                let mut bytes = bytes;
                bytes[at] ^= 1 << bit;
                assert_eq!(
                    IndexHeader::parse(&bytes, len),
                    None,
                    "byte {at}, bit {bit}"
                );
            }
        }
        assert_eq!(IndexHeader::later_version(&bytes), None);
        let odd = IndexHeader { blocks: 3, seed: 9 };
        assert_eq!(IndexHeader::parse(&odd.encode(), odd.file_len()), None);
    }
}
