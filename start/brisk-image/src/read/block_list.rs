//! Where the blocks of one file are stored.

use super::block_reader::Block;
use crate::format::data_block::StoredLen;

/// Blocks between two whose start is kept.
const STEP: usize = 64;

/// Bytes that a list takes for each block: four of its word, and its part of a start.
pub(crate) const BLOCK_IN_MEMORY: u64 = 5;

/// Where the blocks of one file are stored: one behind the other, so that their lengths say where.
///
/// 1. `starts` has the start of each `STEP`th block, and `next` is the byte behind the last.
#[derive(Debug)]
pub(crate) struct BlockList {
    stored: Vec<StoredLen>,
    starts: Vec<u64>,
    next: u64,
}

impl BlockList {
    /// An empty list with room for `count` blocks, the first of which is stored at byte `start`. As a
    /// list that grows takes up to three times its length, there is room from the start.
    pub(crate) fn with_capacity(count: usize, start: u64) -> Self {
        Self {
            stored: Vec::with_capacity(count),
            starts: Vec::with_capacity(count.div_ceil(STEP)),
            next: start,
        }
    }

    /// Where the next block is stored.
    pub(crate) fn next_start(&self) -> u64 {
        self.next
    }

    /// Adds a block behind the last.
    pub(crate) fn push(&mut self, stored: StoredLen) {
        if self.stored.len().is_multiple_of(STEP) {
            self.starts.push(self.next);
        }
        self.stored.push(stored);
        self.next = self.next.saturating_add(stored.len().into());
    }

    pub(crate) fn len(&self) -> usize {
        self.stored.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    pub(crate) fn first(&self) -> Option<Block> {
        self.get(0)
    }

    pub(crate) fn get(&self, i: usize) -> Option<Block> {
        let stored = *self.stored.get(i)?;
        let (step, from) = (i / STEP, i / STEP * STEP);
        let before = self.stored[from..i].iter();
        // At most 63 blocks of 1 MiB.
        let before: u32 = before.map(|stored| stored.len()).sum();
        let start = self.starts[step] + u64::from(before);
        Some(Block { start, stored })
    }

    /// All blocks, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        let mut start = self.starts.first().copied().unwrap_or(self.next);
        self.stored.iter().map(move |&stored| {
            let block = Block { start, stored };
            start += u64::from(stored.len());
            block
        })
    }

    /// How block `i` is stored.
    pub(crate) fn stored(&self, i: usize) -> Option<StoredLen> {
        self.stored.get(i).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_starts_where_the_one_before_it_ends() {
        let mut list = BlockList::with_capacity(200, 96);
        let mut starts = Vec::new();
        let mut next = 96;
        for i in 0..200 {
            let len = [0, 1, 4096, 77][i % 4];
            list.push(StoredLen::new(len, i % 3 == 0, 4096).unwrap());
            starts.push(next);
            next += len as u64;
        }
        let got: Vec<_> = (0..200).map(|i| list.get(i).unwrap().start).collect();
        let all: Vec<_> = list.iter().map(|block| block.start).collect();
        assert_eq!((&got, &all), (&starts, &starts));
        assert_eq!((list.next_start(), list.len()), (next, 200));
        assert!(list.get(200).is_none());
    }
}
