//! Where the hash blocks of a tree stand.

/// Digests in a hash block.
pub(super) const DIGESTS: u64 = 128;

/// The hash blocks that have the digests of one kind of block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Level {
    /// The number of its first block, counted from the first hash block of the tree.
    pub(super) first: u64,
    pub(super) blocks: u64,
}

/// The levels of a tree. The first has the digests of the data blocks, each next one those of the level before, and the
/// last is one block. In the file, the last level comes first. A tree over one data block has no level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Levels {
    levels: Vec<Level>,
    blocks: u64,
}

impl Levels {
    /// Of a tree over this many data blocks.
    pub(super) fn of(data_blocks: u64) -> Self {
        let mut sizes = Vec::new();
        let mut below = data_blocks;
        while below > 1 {
            below = below.div_ceil(DIGESTS);
            sizes.push(below);
        }
        let mut next = 0;
        let mut levels: Vec<_> = sizes
            .into_iter()
            .rev()
            .map(|blocks| {
                let first = next;
                next += blocks;
                Level { first, blocks }
            })
            .collect();
        levels.reverse();
        Self {
            levels,
            blocks: next,
        }
    }

    /// Level `number`. None above the last.
    pub(super) fn get(&self, number: usize) -> Option<Level> {
        self.levels.get(number).copied()
    }

    /// All hash blocks together.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_stand_as_veritysetup_puts_them() {
        let levels = |data_blocks| {
            let levels = Levels::of(data_blocks);
            let list: Vec<_> = levels.levels.iter().map(|l| (l.first, l.blocks)).collect();
            (list, levels.blocks())
        };
        assert_eq!(levels(1), (vec![], 0));
        assert_eq!(levels(2), (vec![(0, 1)], 1));
        assert_eq!(levels(128), (vec![(0, 1)], 1));
        assert_eq!(levels(129), (vec![(1, 2), (0, 1)], 3));
        assert_eq!(levels(128 * 128), (vec![(1, 128), (0, 1)], 129));
        let three = (vec![(3, 129), (1, 2), (0, 1)], 132);
        assert_eq!(levels(128 * 128 + 1), three);
        // The most that a superblock may say.
        assert_eq!(levels(1 << 32).0.len(), 5);
    }
}
