//! The blocks that several files share, found by their number.

use super::block_reader::Block;
use super::image::Image;
use super::inode_reader::{Inode, InodeKind};
use super::open_image::OpenImage;
use crate::error::{Corrupt, Error, Location, Result};
use crate::format::data_block::StoredLen;
use crate::format::table::Fragment;

/// Where the superblock says where the fragment table is.
pub(crate) const FRAGMENT_TABLE: Location = Location::Byte(80);

impl OpenImage {
    /// Entry `number` of the fragment table, which something at `from` names.
    pub(crate) fn fragment(&self, number: u32, from: Location) -> Result<Fragment> {
        let mut entry = [0; size_of::<Fragment>()];
        self.fragments
            .read(&self.metadata, number.into(), &mut entry, from)?;
        Ok(zerocopy::transmute!(entry))
    }

    /// Where shared block `number`, which something at `from` names, is stored.
    pub(crate) fn shared_block(&self, number: u32, from: Location) -> Result<Block> {
        let entry = self.fragment(number, from)?;
        let block_size = self.stored.superblock.block_size();
        let stored = StoredLen::parse(entry.stored.get(), block_size, from)?;
        let start = entry.start.get();
        self.stored
            .check_inside(start, stored.len().into(), "a shared block")?;
        Ok(Block { start, stored })
    }
}

impl Image {
    /// Blocks that hold the contents of several small files.
    pub fn shared_block_count(&self) -> u32 {
        self.inner.stored.superblock.fragment_count()
    }

    /// The number of the shared block that holds all of the file `inode`; none if the file has a block of
    /// its own, and if `inode` is no file.
    pub fn shared_block(&self, inode: &Inode) -> Option<u32> {
        match &inode.kind {
            InodeKind::File(file) => Some(file.shared_block(self.block_size())?.0),
            _ => None,
        }
    }

    /// Where shared block `number` is stored, for sorting; the highest number if it is nowhere.
    pub(crate) fn shared_block_start(&self, number: u32) -> u64 {
        self.inner
            .shared_block(number, FRAGMENT_TABLE)
            .map_or(u64::MAX, |block| block.start)
    }

    /// Decodes shared block `number` into `out`, which is as long as a block, and returns how many bytes
    /// it has. The cache is neither asked nor filled.
    pub(crate) fn read_shared_block(&self, number: u32, out: &mut [u8]) -> Result<usize> {
        self.inner
            .shared_block(number, FRAGMENT_TABLE)
            .and_then(|block| self.inner.blocks.read(block, out, "a shared block"))
            .map_err(|e| self.name(e))
    }

    /// The error that shared block `number` has only `have` bytes, and a file needs `need`.
    pub(crate) fn short_shared_block(&self, number: u32, need: usize, have: usize) -> Error {
        let fault = Corrupt::Truncated {
            what: "a shared block",
            need: need as u64,
            have: have as u64,
        };
        let start = self.shared_block_start(number);
        self.name(Error::corrupt(Location::Byte(start), fault))
    }
}
