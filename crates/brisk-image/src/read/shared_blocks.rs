//! Blocks that several files share, by number and not by way of a file.

use super::file_reader::Block;
use super::image::Inner;
use crate::error::{Allowed, Corrupt, Error, Place, Result};
use crate::format::data_block::StoredLen;
use crate::format::table::Fragment;

/// Where a superblock says where the list of the fragment table is.
const FRAGMENT_TABLE: Place = Place::Byte(80);

impl Inner {
    /// Where shared block `number` is stored.
    pub(crate) fn shared_block(&self, number: u32) -> Result<Block> {
        let mut entry = [0; size_of::<Fragment>()];
        self.fragments
            .read(self, number.into(), &mut entry, FRAGMENT_TABLE)?;
        let entry: Fragment = zerocopy::transmute!(entry);
        let block_size = self.superblock.block_size();
        let stored = StoredLen::parse(entry.stored.get(), block_size, FRAGMENT_TABLE)?;
        let start = entry.start.get();
        self.check_inside(start, stored.len().into(), "a fragment block")?;
        Ok(Block { start, stored })
    }

    /// Decodes shared block `number` into `buf`, which is as long as a block.
    pub(crate) fn check_shared_block(&self, number: u32, buf: &mut [u8]) -> Result<()> {
        let Block { start, stored } = self.shared_block(number)?;
        let what = "a fragment block";
        // A word never passes the block size, so neither does the length.
        let len = stored.len() as usize;
        let found = match stored {
            sparse if sparse.is_sparse() => 0,
            raw if raw.is_raw() => {
                self.stored_into(start, &mut buf[..len], what)?;
                len
            }
            _ => self.decode_stored(start, len, buf, what)?,
        };
        if found == 0 {
            let allowed = Allowed::Range(1, buf.len() as u64);
            let fault = Corrupt::DecodedLen {
                what,
                found,
                allowed,
            };
            return Err(Error::corrupt(Place::Byte(start), fault));
        }
        Ok(())
    }
}
