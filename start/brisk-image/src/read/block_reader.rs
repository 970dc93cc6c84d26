//! Decoding the blocks that hold the contents of files.

use std::sync::Arc;

use super::block_cache::BlockCache;
use super::stored_image::StoredImage;
use crate::error::{Allowed, Corrupt, Error, Location, Result};
use crate::format::data_block::StoredLen;

/// A block with contents of one file, or of several that share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// Where it is stored.
    pub(crate) start: u64,
    pub(crate) stored: StoredLen,
}

/// Where a block is stored, and the word that says how.
type BlockKey = (u64, u32);

/// Decodes blocks, and keeps some of them.
pub(crate) struct BlockReader {
    image: Arc<StoredImage>,
    cache: BlockCache<BlockKey, Vec<u8>>,
}

impl BlockReader {
    pub(crate) fn new(image: Arc<StoredImage>) -> Self {
        let block_size = image.superblock.block_size().into();
        Self {
            cache: BlockCache::new(image.limits.block_cache, block_size),
            image,
        }
    }

    /// Keeps at most `bytes` of decoded blocks from now on.
    pub(crate) fn set_cache(&self, bytes: u64) {
        self.cache.set_capacity(bytes);
    }

    /// Decodes `block` into `out`, and returns how many bytes it has.
    pub(crate) fn read(&self, block: Block, out: &mut [u8], what: &'static str) -> Result<usize> {
        let len = block.stored.len() as usize;
        if block.stored.is_sparse() {
            out.fill(0);
            return Ok(out.len());
        }
        if !block.stored.is_raw() {
            return self.image.decode_at(block.start, len, out, what);
        }
        let most = out.len() as u64;
        match out.get_mut(..len) {
            Some(out) => self.image.read_into(block.start, out, what)?,
            None => return Err(block.wrong_len(what, len, Allowed::AtMost(most))),
        }
        Ok(len)
    }

    /// Decodes `block`, which must have exactly `out.len()` bytes.
    pub(crate) fn read_whole(
        &self,
        block: Block,
        out: &mut [u8],
        what: &'static str,
    ) -> Result<()> {
        let n = self.read(block, out, what)?;
        if n != out.len() {
            return Err(block.wrong_len(what, n, Allowed::Only(out.len() as u64)));
        }
        Ok(())
    }

    /// As [`BlockReader::read`] of a block that is no hole, and puts its bytes as they are stored at the start of
    /// `stored`, which is as long as a block.
    #[cfg(feature = "write")]
    pub(crate) fn read_stored(
        &self,
        block: Block,
        stored: &mut [u8],
        out: &mut [u8],
        what: &'static str,
    ) -> Result<usize> {
        let (len, most) = (block.stored.len() as usize, out.len() as u64);
        let too_long = || block.wrong_len(what, len, Allowed::AtMost(most));
        let stored = stored.get_mut(..len).ok_or_else(too_long)?;
        self.image.read_into(block.start, stored, what)?;
        if block.stored.is_raw() {
            let out = out.get_mut(..len).ok_or_else(too_long)?;
            out.copy_from_slice(stored);
            return Ok(len);
        }
        self.image.with_worker(|worker| {
            let decoder = &mut worker.decoder;
            self.image
                .decode_with(decoder, stored, out, block.start, what)
        })
    }

    /// The decoded `block` of at most `most` bytes, from the cache or into it.
    pub(crate) fn cached(
        &self,
        block: Block,
        most: usize,
        what: &'static str,
    ) -> Result<Arc<Vec<u8>>> {
        self.cache.get((block.start, block.stored.encode()), || {
            let mut bytes = vec![0; most];
            let n = self.read(block, &mut bytes, what)?;
            bytes.truncate(n);
            Ok(bytes)
        })
    }
}

impl Block {
    /// The error that the block decodes to `found` bytes.
    pub(crate) fn wrong_len(&self, what: &'static str, found: usize, allowed: Allowed) -> Error {
        Error::corrupt(
            Location::Byte(self.start),
            Corrupt::DecodedLen {
                what,
                found,
                allowed,
            },
        )
    }
}
