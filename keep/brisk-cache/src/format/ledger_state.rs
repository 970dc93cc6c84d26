use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::check;

pub(crate) const MAGIC: [u8; 8] = *b"briskldg";
pub(crate) const VERSION: u32 = 1;
/// Of the ledger's own check. `home` tells ledgers apart.
const SEED: u64 = 0x6c65_6467_6572_0001;

const UNSETTLED: u32 = 1;
const DURABLE: u32 = 2;

pub(crate) const LEN: usize = size_of::<Wire>();
/// Where the totals of the buckets begin: 8 bytes for the number of records, and 8 for their bytes.
pub(crate) const TOTALS_AT: u64 = 64;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Wire {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    pub(super) flags: U32,
    pub(super) active: U64,
    pub(super) tail: U64,
    pub(super) sequence: U64,
    pub(super) bytes: U64,
    pub(super) home: U64,
    pub(super) check: U64,
}

/// Where the next record goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LedgerState {
    /// The number of the segment that is appended to. 0 if there is none.
    pub(crate) active: u64,
    /// Where the active segment has room.
    pub(crate) tail: u64,
    /// The sequence of the next file.
    pub(crate) sequence: u64,
    /// The size of all files.
    pub(crate) bytes: u64,
    /// Whether a writer is making or removing files. If nobody has the lock, that writer was killed, or its disk failed.
    pub(crate) unsettled: bool,
    /// Whether somebody wrote to this cache who was promised that it is on the disk.
    pub(crate) durable: bool,
    /// Proves that `tail` is right: see `docs/cache-format.md`.
    pub(crate) home: u64,
}

impl LedgerState {
    /// None if the bytes are no ledger.
    pub(crate) fn parse(bytes: &[u8; LEN]) -> Option<Self> {
        let wire = Wire::read_from_bytes(bytes).ok()?;
        let right = wire.magic == MAGIC
            && wire.version.get() == VERSION
            && wire.check.get() == check_of(&wire);
        let flags = wire.flags.get();
        right.then(|| Self {
            active: wire.active.get(),
            tail: wire.tail.get(),
            sequence: wire.sequence.get(),
            bytes: wire.bytes.get(),
            unsettled: flags & UNSETTLED != 0,
            durable: flags & DURABLE != 0,
            home: wire.home.get(),
        })
    }

    pub(crate) fn encode(self) -> [u8; LEN] {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.unsettled, UNSETTLED) | flag(self.durable, DURABLE);
        let mut wire = Wire {
            magic: MAGIC,
            version: VERSION.into(),
            flags: flags.into(),
            active: self.active.into(),
            tail: self.tail.into(),
            sequence: self.sequence.into(),
            bytes: self.bytes.into(),
            home: self.home.into(),
            check: 0.into(),
        };
        wire.check = check_of(&wire).into();
        zerocopy::transmute!(wire)
    }
}

/// The check that a ledger with these fields has.
pub(super) fn check_of(wire: &Wire) -> u64 {
    check::seeded(SEED, checked(wire))
}

fn checked(wire: &Wire) -> &[u8] {
    const CHECKED: usize = std::mem::offset_of!(Wire, check);
    wire.as_bytes().split_at(CHECKED).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_with_one_wrong_bit_is_none() {
        for (unsettled, durable) in [(false, false), (false, true), (true, false), (true, true)] {
            let state = LedgerState {
                active: 1,
                tail: 2,
                sequence: 3,
                bytes: 4,
                unsettled,
                durable,
                home: 5,
            };
            let bytes = state.encode();
            assert_eq!(LedgerState::parse(&bytes), Some(state));
            for bit in 0..LEN * 8 {
                let mut bytes = bytes;
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(LedgerState::parse(&bytes), None, "bit {bit}");
            }
        }
        assert_eq!(LedgerState::parse(&[0; LEN]), None);
    }
}
