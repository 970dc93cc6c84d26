use twox_hash::XxHash3_128;

use super::index_header::SETS;
use super::slot::WAYS;

/// Bytes of a digest.
pub(crate) const LEN: usize = 16;

/// The digest of a key, which says where its slot can be.
///
/// Two keys may have the same, because the record has the whole key. Nobody can choose such keys without the index's
/// seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest {
    low: u64,
    high: u64,
}

impl Digest {
    #[inline]
    pub(crate) fn of(seed: u64, key: &[u8]) -> Self {
        let digest = XxHash3_128::oneshot_with_seed(seed, key);
        let (high, low) = ((digest >> 64) as u64, digest as u64);
        Self { low, high }
    }

    #[inline]
    pub(super) fn from_wire(low: u64, high: u64) -> Self {
        Self { low, high }
    }

    #[inline]
    pub(super) fn to_wire(self) -> (u64, u64) {
        (self.low, self.high)
    }

    /// As one number.
    pub(crate) fn number(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    /// Of the bytes that a slot begins with, whether they are right or not.
    #[inline]
    pub(crate) fn from_bytes(bytes: [u8; LEN]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self::from_wire(both as u64, (both >> 64) as u64)
    }

    /// The block, of a power of two of them.
    #[inline]
    pub(crate) fn block(self, blocks: u32) -> u32 {
        (self.low % u64::from(blocks.max(1))) as u32
    }

    /// The two sets in the block: first the one in which the slot more often is. They differ.
    #[inline]
    pub(crate) fn sets(self) -> [u32; 2] {
        let first = (self.high % u64::from(SETS)) as u32;
        let apart = ((self.high >> 7) % 128 % 127) as u32 + 1;
        [first, (first + apart) % SETS]
    }

    /// The byte of a file that stands for the key. An offset of a file has 63 bits.
    pub(crate) fn lock_byte(self) -> u64 {
        self.low >> 2
    }

    /// The slot of a set at which to begin to look.
    #[inline]
    pub(crate) fn first_way(self) -> u32 {
        ((self.high >> 14) % u64::from(WAYS)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_changes_the_digest_and_the_places_are_inside() {
        assert_ne!(Digest::of(1, b"key"), Digest::of(2, b"key"));
        for number in 0..10_000u32 {
            let digest = Digest::of(7, &number.to_le_bytes());
            let [first, second] = digest.sets();
            assert!(first != second && first < SETS && second < SETS);
            assert!(digest.first_way() < WAYS && digest.block(4) < 4);
        }
    }

    #[test]
    fn a_block_that_doubles_splits_in_two() {
        for number in 0..1000u32 {
            let digest = Digest::of(7, &number.to_le_bytes());
            let (before, after) = (digest.block(8), digest.block(16));
            assert!(after == before || after == before + 8);
        }
    }
}
