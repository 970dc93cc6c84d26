use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::check;
use super::digest::Digest;

/// Bytes of a slot.
pub(crate) const LEN: usize = size_of::<Wire>();
/// Slots in a set.
pub(crate) const WAYS: u32 = 8;
/// How many buckets there are.
pub(crate) const BUCKETS: u16 = 256;
/// A slot without an entry.
pub(crate) const FREE: [u8; LEN] = [0; LEN];

const TOUCHED: u8 = 1;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Wire {
    pub(super) digest: [U64; 2],
    pub(super) segment: U64,
    pub(super) place: U32,
    pub(super) room: U32,
    pub(super) record: U64,
    pub(super) written: U32,
    pub(super) used: U32,
    pub(super) bucket: U16,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) reserved: U32,
    pub(super) check: U64,
}

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In a segment, with others.
    Shared,
    /// In a file of its own.
    Alone,
}

impl Kind {
    pub(crate) fn to_wire(self) -> u8 {
        match self {
            Self::Shared => 1,
            Self::Alone => 2,
        }
    }

    pub(super) fn from_wire(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Shared),
            2 => Some(Self::Alone),
            _ => None,
        }
    }
}

/// A slot that passed its check.
///
/// 1. `segment` is not zero, and `bucket` is less than [`BUCKETS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) digest: Digest,
    pub(crate) segment: u64,
    /// The offset of the record, in units of 64 bytes.
    pub(crate) place: u32,
    /// The length of the record, in units of 64 bytes.
    pub(crate) room: u32,
    /// The check of the record.
    pub(crate) record: u64,
    /// Minutes since 1970.
    pub(crate) written: u32,
    /// Minutes since 1970.
    pub(crate) used: u32,
    pub(crate) bucket: u16,
    pub(crate) kind: Kind,
    /// Whether a use was noted since the record was put there.
    pub(crate) touched: bool,
}

impl Slot {
    /// None if the slot is free or damaged.
    #[inline]
    pub(crate) fn parse(seed: u64, bytes: &[u8; LEN]) -> Option<Self> {
        let wire = Wire::read_from_bytes(bytes).ok()?;
        let segment = wire.segment.get();
        if segment == 0 || wire.check.get() != check::seeded(seed, checked(&wire)) {
            return None;
        }
        let bucket = wire.bucket.get();
        if bucket >= BUCKETS || wire.flags & !TOUCHED != 0 || wire.reserved.get() != 0 {
            return None;
        }
        let [low, high] = wire.digest;
        Some(Self {
            digest: Digest::from_wire(low.get(), high.get()),
            segment,
            place: wire.place.get(),
            room: wire.room.get(),
            record: wire.record.get(),
            written: wire.written.get(),
            used: wire.used.get(),
            bucket,
            kind: Kind::from_wire(wire.kind.into())?,
            touched: wire.flags & TOUCHED != 0,
        })
    }

    pub(crate) fn encode(&self, seed: u64) -> [u8; LEN] {
        let (low, high) = self.digest.to_wire();
        let mut wire = Wire {
            digest: [low.into(), high.into()],
            segment: self.segment.into(),
            place: self.place.into(),
            room: self.room.into(),
            record: self.record.into(),
            written: self.written.into(),
            used: self.used.into(),
            bucket: self.bucket.into(),
            kind: self.kind.to_wire(),
            flags: if self.touched { TOUCHED } else { 0 },
            reserved: 0.into(),
            check: 0.into(),
        };
        wire.check = check::seeded(seed, checked(&wire)).into();
        zerocopy::transmute!(wire)
    }

    /// Whether both name the same record, wherever each says when it was used.
    pub(crate) fn names_the_record_of(&self, other: &Self) -> bool {
        (self.segment, self.place, self.record) == (other.segment, other.place, other.record)
    }

    /// The minute in which somebody last wrote or used it.
    pub(crate) fn last_use(&self) -> u32 {
        self.written.max(self.used)
    }
}

#[inline]
fn checked(wire: &Wire) -> &[u8] {
    const CHECKED: usize = std::mem::offset_of!(Wire, check);
    wire.as_bytes().split_at(CHECKED).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_with_one_wrong_bit_is_free() {
        let slot = Slot {
            digest: Digest::of(3, b"key"),
            segment: 0x1234_5678_9abc_def0,
            place: 7,
            room: 9,
            record: 11,
            written: 13,
            used: 15,
            bucket: 255,
            kind: Kind::Alone,
            touched: true,
        };
        let bytes = slot.encode(5);
        assert_eq!(Slot::parse(5, &bytes), Some(slot));
        assert_eq!(
            Digest::from_bytes(*bytes.first_chunk().unwrap()),
            slot.digest
        );
        assert_eq!(Slot::parse(6, &bytes), None);
        assert_eq!(Slot::parse(5, &FREE), None);
        for at in 0..LEN {
            for bit in 0..8 {
                let mut bytes = bytes;
                bytes[at] ^= 1 << bit;
                assert_eq!(Slot::parse(5, &bytes), None, "byte {at}, bit {bit}");
            }
        }
    }
}
