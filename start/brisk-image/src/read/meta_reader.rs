//! Reading tables out of metadata blocks.

use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use super::block_cache::{BlockCache, Decoded};
use super::stored_image::{StoredImage, Worker};
use crate::error::{Allowed, Corrupt, Error, Location, Result};
use crate::format::metadata::{HEADER, METADATA_BLOCK, MetaRef, MetadataHeader};

/// A decoded metadata block.
pub(crate) struct MetaBlock {
    /// 1 to 8192 bytes.
    pub(crate) bytes: Box<[u8]>,
    /// Where the block after it is stored.
    next: u64,
}

impl Decoded for MetaBlock {
    fn decoded_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Decodes metadata blocks, and keeps some of them.
pub(crate) struct MetaReader {
    image: Arc<StoredImage>,
    cache: BlockCache<u64, MetaBlock>,
}

impl MetaReader {
    pub(crate) fn new(image: Arc<StoredImage>) -> Self {
        Self {
            cache: BlockCache::new(image.limits.metadata_cache, METADATA_BLOCK as u64),
            image,
        }
    }

    /// The image whose blocks these are.
    pub(crate) fn image(&self) -> &StoredImage {
        &self.image
    }

    /// The metadata block that is stored at byte `at` of the image, and ends before `end`.
    pub(crate) fn block(&self, at: u64, end: u64) -> Result<Arc<MetaBlock>> {
        let block = self.cache.get(at, || self.decode(at))?;
        if block.next > end {
            let what = "a metadata block";
            let need = block.next.saturating_sub(at);
            let have = end.saturating_sub(at);
            return Err(Error::corrupt(
                Location::Byte(at),
                Corrupt::Truncated { what, need, have },
            ));
        }
        Ok(block)
    }

    fn decode(&self, at: u64) -> Result<MetaBlock> {
        let (image, what) = (&self.image, "a metadata block");
        // One read gets header and body. It reads at most 8 KiB too much.
        let have = image.superblock.bytes_used().saturating_sub(at);
        let most = usize::try_from(have)
            .unwrap_or(usize::MAX)
            .min(HEADER + METADATA_BLOCK);
        let truncated = |need: usize| {
            Error::corrupt(
                Location::Byte(at),
                Corrupt::Truncated {
                    what,
                    need: need as u64,
                    have,
                },
            )
        };
        image.with_worker(|worker| {
            let Worker { decoder, stored } = worker;
            image.with_bytes(at, most, what, stored, |stored| {
                let (header, rest) = stored
                    .split_first_chunk::<HEADER>()
                    .ok_or_else(|| truncated(HEADER))?;
                let header = MetadataHeader::parse(*header, at)?;
                let body = rest
                    .get(..header.len())
                    .ok_or_else(|| truncated(HEADER + header.len()))?;
                let bytes: Box<[u8]> = if header.is_raw() {
                    body.into()
                } else {
                    let mut decoded = [0; METADATA_BLOCK];
                    let n = image.decode_with(decoder, body, &mut decoded, at, what)?;
                    decoded[..n].into()
                };
                if bytes.is_empty() {
                    let fault = Corrupt::DecodedLen {
                        what,
                        found: 0,
                        allowed: Allowed::Range(1, 8192),
                    };
                    return Err(Error::corrupt(Location::Byte(at), fault));
                }
                // `at` and the lengths are within the image, so the sum is too.
                Ok(MetaBlock {
                    bytes,
                    next: at + (HEADER + header.len()) as u64,
                })
            })
        })
    }
}

/// A position in a table, from which one reads on across metadata blocks.
#[derive(Clone)]
pub(crate) struct MetaCursor<'a> {
    metadata: &'a MetaReader,
    /// The first byte of the image that is not of this table.
    end: u64,
    /// Where `block` is stored.
    at: u64,
    block: Arc<MetaBlock>,
    /// At most `block.bytes.len()`.
    offset: usize,
}

/// A position that a [`MetaCursor`] can come back to: the stored block and the byte in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MetaPos {
    at: u64,
    offset: usize,
}

impl<'a> MetaCursor<'a> {
    /// At `position` of the table that is stored from `start` and ends before `end`.
    pub(crate) fn new(
        metadata: &'a MetaReader,
        start: u64,
        end: u64,
        position: MetaRef,
    ) -> Result<Self> {
        let at = start.saturating_add(position.block());
        Self::at(
            metadata,
            end,
            MetaPos {
                at,
                offset: position.offset(),
            },
        )
    }

    /// At a position that [`MetaCursor::pos`] returned.
    pub(crate) fn at(metadata: &'a MetaReader, end: u64, pos: MetaPos) -> Result<Self> {
        let MetaPos { at, offset } = pos;
        if at >= end {
            let field = "start of a metadata block";
            return Err(Error::field(
                Location::Byte(at),
                field,
                at,
                Allowed::AtMost(end.saturating_sub(1)),
            ));
        }
        let block = metadata.block(at, end)?;
        if offset > block.bytes.len() {
            let found = offset as u64;
            let allowed = Allowed::AtMost(block.bytes.len() as u64);
            return Err(Error::field(
                Location::Byte(at),
                "offset into a metadata block",
                found,
                allowed,
            ));
        }
        Ok(Self {
            metadata,
            end,
            at,
            block,
            offset,
        })
    }

    pub(crate) fn pos(&self) -> MetaPos {
        MetaPos {
            at: self.at,
            offset: self.offset,
        }
    }

    /// Where the next byte stands.
    pub(crate) fn location(&self) -> Location {
        Location::Decoded {
            block: self.at,
            offset: self.offset,
        }
    }

    /// The next bytes, to the end of the block at hand.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.block.bytes[self.offset..]
    }

    /// Steps over `len` bytes of [`MetaCursor::rest`].
    pub(crate) fn skip(&mut self, len: u32) {
        let rest = self.rest().len();
        self.offset += rest.min(len as usize);
    }

    /// Fills `buf` with the next bytes.
    pub(crate) fn read(&mut self, mut buf: &mut [u8], what: &'static str) -> Result<()> {
        while !buf.is_empty() {
            if self.offset == self.block.bytes.len() {
                self.next_block(what, buf.len())?;
            }
            let rest = self.rest();
            let n = rest.len().min(buf.len());
            let (now, later) = buf.split_at_mut(n);
            now.copy_from_slice(&rest[..n]);
            self.offset += n;
            buf = later;
        }
        Ok(())
    }

    fn next_block(&mut self, what: &'static str, need: usize) -> Result<()> {
        if self.block.next >= self.end {
            let fault = Corrupt::Truncated {
                what,
                need: need as u64,
                have: 0,
            };
            return Err(Error::corrupt(self.location(), fault));
        }
        self.at = self.block.next;
        self.block = self.metadata.block(self.at, self.end)?;
        self.offset = 0;
        Ok(())
    }

    /// The next bytes as a wire struct.
    pub(crate) fn read_wire<T: FromBytes + IntoBytes>(&mut self, what: &'static str) -> Result<T> {
        let mut wire = T::new_zeroed();
        self.read(wire.as_mut_bytes(), what)?;
        Ok(wire)
    }

    /// The next `len` bytes; the caller has bounded `len`.
    pub(crate) fn read_vec(&mut self, len: usize, what: &'static str) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(&mut bytes, what)?;
        Ok(bytes)
    }
}
