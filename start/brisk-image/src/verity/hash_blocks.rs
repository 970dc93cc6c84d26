//! Hash blocks that were compared with the root hash.

use std::sync::{Arc, Mutex, PoisonError};

use super::BLOCK;

/// The bytes of a hash block.
pub(super) type HashBlock = Arc<[u8; BLOCK as usize]>;

/// How many hash blocks are kept: 16 MiB, for the digests of 2 GiB of data.
const KEPT: u64 = 4096;

/// Keeps the bytes of hash blocks, and not only that they were right: what is on the disk may change.
pub(super) struct HashBlocks {
    /// Block `n` is kept in slot `n % slots.len()`, with its number.
    slots: Vec<Mutex<Option<(u64, HashBlock)>>>,
}

impl HashBlocks {
    /// Of a tree with this many hash blocks.
    pub(super) fn of(blocks: u64) -> Self {
        let slots = blocks.clamp(1, KEPT);
        Self {
            slots: (0..slots).map(|_| Mutex::default()).collect(),
        }
    }

    fn slot(&self, number: u64) -> Option<&Mutex<Option<(u64, HashBlock)>>> {
        let slot = number % self.slots.len() as u64;
        self.slots.get(usize::try_from(slot).ok()?)
    }

    pub(super) fn get(&self, number: u64) -> Option<HashBlock> {
        let slot = self.slot(number)?;
        let kept = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, block) = kept.as_ref()?;
        (*of == number).then(|| Arc::clone(block))
    }

    pub(super) fn keep(&self, number: u64, block: &HashBlock) {
        if let Some(slot) = self.slot(number) {
            let kept = Some((number, Arc::clone(block)));
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_the_same_slot_is_another_block() {
        let blocks = HashBlocks::of(1 << 20);
        let block: HashBlock = Arc::new([7; BLOCK as usize]);
        blocks.keep(3, &block);
        assert_eq!(blocks.get(3), Some(Arc::clone(&block)));
        assert_eq!(blocks.get(3 + KEPT), None);
        blocks.keep(3 + KEPT, &block);
        assert_eq!(blocks.get(3), None);
    }
}
