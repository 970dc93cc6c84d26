//! What the user of a file knows of its hash tree.

use super::root_hash::RootHash;

/// Bytes of a data block and of a hash block.
pub const BLOCK: u64 = crate::format::verity_superblock::BLOCK;

/// The superblock of a tree behind an image starts this many bytes behind the start of its section.
pub const SUPERBLOCK_IN_SECTION: u64 = crate::format::verity_superblock::SUPERBLOCK_IN_SECTION;

/// What the user of a file knows of it beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verity {
    /// The root hash of its tree.
    pub root: RootHash,
    /// The number of bytes that the tree must cover. None: the tree says it.
    pub data_len: Option<u64>,
}

impl Verity {
    /// What a file whose tree has this root hash must be.
    pub fn new(root: RootHash) -> Self {
        Self {
            root,
            data_len: None,
        }
    }
}
