use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::check;
use super::slot::Kind;

pub(crate) const MAGIC: [u8; 8] = *b"brisksgm";
pub(crate) const VERSION: u32 = 1;

pub(crate) const LEN: usize = size_of::<Wire>();

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Wire {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    pub(super) kind: U32,
    pub(super) number: U64,
    pub(super) sequence: U64,
    pub(super) reserved: [u8; 24],
    pub(super) check: U64,
}

/// The header of a file with records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) kind: Kind,
    pub(crate) number: u64,
    /// The file with the lowest goes first.
    pub(crate) sequence: u64,
}

impl SegmentHeader {
    /// None if the bytes are not such a header.
    pub(crate) fn parse(bytes: &[u8; LEN]) -> Option<Self> {
        let wire = Wire::read_from_bytes(bytes).ok()?;
        let number = wire.number.get();
        let right = wire.magic == MAGIC
            && wire.version.get() == VERSION
            && number != 0
            && wire.check.get() == check::seeded(number, checked(&wire));
        if !right {
            return None;
        }
        Some(Self {
            kind: Kind::from_wire(wire.kind.get())?,
            number,
            sequence: wire.sequence.get(),
        })
    }

    pub(crate) fn encode(self) -> [u8; LEN] {
        let mut wire = Wire {
            magic: MAGIC,
            version: VERSION.into(),
            kind: u32::from(self.kind.to_wire()).into(),
            number: self.number.into(),
            sequence: self.sequence.into(),
            reserved: [0; 24],
            check: 0.into(),
        };
        wire.check = check::seeded(self.number, checked(&wire)).into();
        zerocopy::transmute!(wire)
    }
}

fn checked(wire: &Wire) -> &[u8] {
    const CHECKED: usize = std::mem::offset_of!(Wire, check);
    wire.as_bytes().split_at(CHECKED).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_one_wrong_bit_is_none() {
        let header = SegmentHeader {
            kind: Kind::Shared,
            number: 77,
            sequence: 5,
        };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::parse(&bytes), Some(header));
        assert_eq!(SegmentHeader::parse(&[0; LEN]), None);
        for bit in 0..LEN * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::parse(&bytes), None, "bit {bit}");
        }
    }
}
