/*!
dm-verity hash trees: building one, and reading a file through one.

A tree has a SHA-256 digest of each block of 4096 bytes of a file, and digests of the blocks of digests, up to one
[`RootHash`]. Whoever knows the root hash can tell for each block that it is the right one, without reading the others.
The bytes are those of `veritysetup format` (version 1, hash type 1), so the kernel can use the tree too.

[`VerityTree`] builds a tree, and `append_tree` puts one behind an image. [`VerifiedFile`] is a source for
[`Image::open_verified`](crate::Image::open_verified) that compares each block with the tree before anything decodes it.
*/

mod expected;
mod hash_blocks;
mod levels;
mod root_hash;
mod search;
mod tree_file;
mod verified_file;
#[cfg(feature = "write")]
mod verity_tree;

pub use expected::{BLOCK, SUPERBLOCK_IN_SECTION, Verity};
pub use root_hash::RootHash;
pub use tree_file::{TreeFile, beside, root_hash_beside};
pub use verified_file::VerifiedFile;
#[cfg(feature = "write")]
pub use verity_tree::{VeritySummary, VerityTree, append_tree, append_tree_at};
