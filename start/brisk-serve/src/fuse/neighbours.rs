//! Small files that share a block.
//!
//! A block that was decoded for one file holds others too. Those that the kernel knows go into the page
//! cache at once, where they cost no request. A program that reads the files of a directory in turn then asks
//! for one file of each block.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many files are remembered, at some tens of bytes each. Later ones are read when they are asked for.
const FILES: usize = 1 << 18;

/// For each shared block, the files that the kernel knows and that were neither read nor stored.
#[derive(Default)]
pub(super) struct Neighbours {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_block: HashMap<u32, HashSet<u64>>,
    files: usize,
}

impl Neighbours {
    /// Remembers that the kernel will know this node, a file that is completely in shared block `block`.
    pub(super) fn know(&self, block: u32, nodeid: u64) {
        let mut known = self.lock();
        if known.files < FILES && known.by_block.entry(block).or_default().insert(nodeid) {
            known.files += 1;
        }
    }

    /// The other files in the block of a file that was read, in the order of their inodes. Each is given
    /// once.
    pub(super) fn take(&self, block: u32, nodeid: u64) -> Vec<u64> {
        let mut known = self.lock();
        let Some(mut nodes) = known.by_block.remove(&block) else {
            return Vec::new();
        };
        known.files -= nodes.len();
        drop(known);
        nodes.remove(&nodeid);
        let mut nodes: Vec<_> = nodes.into_iter().collect();
        nodes.sort_unstable();
        nodes
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_given_once_and_not_for_its_own_read() {
        let neighbours = Neighbours::default();
        for nodeid in [9, 3, 5, 3] {
            neighbours.know(1, nodeid);
        }
        neighbours.know(2, 4);
        assert_eq!(neighbours.take(1, 3), [5, 9]);
        assert_eq!(neighbours.take(1, 5), [0; 0]);
        neighbours.know(1, 7);
        assert_eq!(neighbours.take(1, 5), [7]);
        assert_eq!(neighbours.take(2, 4), [0; 0]);
        assert_eq!(neighbours.lock().files, 0);
    }

    #[test]
    fn there_is_a_bound() {
        let neighbours = Neighbours::default();
        for nodeid in 0..FILES as u64 + 5 {
            neighbours.know(0, nodeid);
        }
        assert_eq!(neighbours.take(0, u64::MAX).len(), FILES);
    }
}
