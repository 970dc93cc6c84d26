//! The contents of files.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use brisk_io::ByteSource;

use super::block_list::{BLOCK_IN_MEMORY, BlockList};
use super::block_reader::Block;
use super::image::Image;
use super::inode_reader::{File, Inode, InodeKind};
use super::meta_reader::MetaCursor;
use super::open_image::OpenImage;
use crate::error::{Allowed, Corrupt, Error, Location, Result};
use crate::format::data_block::StoredLen;
use crate::ordered;

/// The end of a file, in a block that it shares with others.
#[derive(Debug, Clone, Copy)]
struct Tail {
    /// The block's, in the table of shared blocks.
    number: u32,
    block: Block,
    /// Where in the decoded block the end of this file starts.
    offset: u32,
}

/// The contents of one file of an image, readable at any offset from many threads.
///
/// Invariants:
/// 1. `blocks` has one block for each `block_size` bytes begun, but for those of the tail.
/// 2. Without a tail, the last block may decode to less than `block_size`; all others decode to
///    exactly that.
#[derive(Clone)]
pub struct FileReader {
    image: Image,
    len: u64,
    blocks: Arc<BlockList>,
    tail: Option<Tail>,
    /// Where in the image the whole file stands, if it stands there as it is.
    contiguous: Option<u64>,
}

/// Some decoded bytes of a file: a part of a block, which the image's cache holds too, or zeros.
#[derive(Clone, Default)]
pub struct Piece {
    len: usize,
    /// None for zeros. Otherwise the block, and the byte in it where the piece starts; the block
    /// has `len` bytes from there.
    block: Option<(Arc<Vec<u8>>, usize)>,
}

impl Piece {
    fn zeros(len: usize) -> Self {
        Self { len, block: None }
    }

    /// Bytes in the piece.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a piece of no bytes. Only the end of a file gives one.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes; none if all of them are zero.
    pub fn as_slice(&self) -> Option<&[u8]> {
        let (block, start) = self.block.as_ref()?;
        Some(&block[*start..*start + self.len])
    }
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Piece")
            .field("len", &self.len)
            .field("zeros", &self.block.is_none())
            .finish()
    }
}

/// Bytes of a file, counted by how they are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredAs {
    /// Bytes in blocks of their own that are compressed.
    pub compressed: u64,
    /// Stored bytes of those blocks.
    pub compressed_stored: u64,
    /// Bytes in blocks of their own that are stored as they are.
    pub raw: u64,
    /// Bytes of blocks of zeros, which are not stored.
    pub sparse: u64,
    /// Bytes in a block shared with other files.
    pub shared: u64,
}

impl Image {
    /// The contents of the file `inode`.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the list of its blocks is damaged, `Limit` if the list passes
    /// [`Limits::memory`](crate::Limits), and `Input` if `inode` is no file.
    pub fn file(&self, inode: &Inode) -> Result<FileReader> {
        match &inode.kind {
            InodeKind::File(file) => self.read_blocks(file).map_err(|e| self.name(e)),
            _ => Err(Error::input(format!(
                "inode {} is a {} and not a file",
                inode.number,
                inode.file_type().name()
            ))),
        }
    }

    /// Checks that the list of a file's blocks is no longer than its image and the limits allow, and
    /// reads none of it.
    pub(crate) fn check_block_list(&self, file: &File) -> Result<()> {
        let list = self.inner.block_list(file);
        list.map(drop).map_err(|e| self.name(e))
    }

    fn read_blocks(&self, file: &File) -> Result<FileReader> {
        let inner = &self.inner;
        let block_size = u64::from(inner.stored.superblock.block_size());
        let (mut cursor, count) = inner.block_list(file)?;
        let location = cursor.location();
        let mut blocks = BlockList::with_capacity(count, file.blocks_start);
        inner.read_words(&mut cursor, count, |stored| {
            let (start, len) = (blocks.next_start(), stored.len().into());
            inner.stored.check_inside(start, len, "a data block")?;
            blocks.push(stored);
            Ok(())
        })?;
        let tail = match file.tail {
            Some((number, offset)) if !file.len.is_multiple_of(block_size) => Some(Tail {
                number,
                block: inner.shared_block(number, location)?,
                offset,
            }),
            _ => None,
        };
        let mut reader = FileReader {
            image: self.clone(),
            len: file.len,
            blocks: Arc::new(blocks),
            tail,
            contiguous: None,
        };
        reader.contiguous = reader.find_contiguous();
        Ok(reader)
    }
}

impl OpenImage {
    /// Calls `each` with how each of the next `count` blocks is stored.
    fn read_words(
        &self,
        cursor: &mut MetaCursor<'_>,
        count: usize,
        mut each: impl FnMut(StoredLen) -> Result<()>,
    ) -> Result<()> {
        let block_size = self.stored.superblock.block_size();
        let mut words = [0; 4096];
        let mut left = count;
        while left > 0 {
            let at = cursor.location();
            let n = left.min(words.len() / 4);
            cursor.read(&mut words[..n * 4], "the list of a file's blocks")?;
            for word in words[..n * 4].as_chunks::<4>().0 {
                each(StoredLen::parse(u32::from_le_bytes(*word), block_size, at)?)?;
            }
            left -= n;
        }
        Ok(())
    }

    /// Bytes of a file that are in no hole, and blocks that are holes. The list of its blocks is read
    /// and not kept.
    pub(crate) fn count_holes(&self, file: &File) -> Result<(u64, u64)> {
        let block_size = u64::from(self.stored.superblock.block_size());
        let (mut cursor, count) = self.block_list(file)?;
        let (mut left, mut sparse, mut holes) = (file.len, 0, 0);
        self.read_words(&mut cursor, count, |stored| {
            let len = left.min(block_size);
            left -= len;
            if stored.is_sparse() {
                sparse += len;
                holes += 1;
            }
            Ok(())
        })?;
        Ok((file.len - sparse, holes))
    }

    /// Blocks that are the file's alone.
    pub(crate) fn block_count(&self, file: &File) -> u64 {
        let block_size = u64::from(self.stored.superblock.block_size());
        match file.tail {
            Some(_) => file.len / block_size,
            None => file.len.div_ceil(block_size),
        }
    }

    /// A cursor at the list of a file's blocks, and how many it has. The image and the limits allow
    /// as many.
    fn block_list(&self, file: &File) -> Result<(MetaCursor<'_>, usize)> {
        let count = self.block_count(file);
        let cursor = self.inode_cursor_at(file.block_words)?;
        let location = cursor.location();
        // Each word takes 4 bytes of the inode table.
        let (need, have) = (
            count.saturating_mul(4),
            self.stored.superblock.most_inode_bytes(),
        );
        if need > have {
            let what = "the list of a file's blocks";
            return Err(Error::corrupt(
                location,
                Corrupt::Truncated { what, need, have },
            ));
        }
        let needs = count.saturating_mul(BLOCK_IN_MEMORY);
        let limits = &self.stored.limits;
        let allowed = limits.block_list.min(limits.memory);
        if needs > allowed {
            return Err(Error::limit("the list of a file's blocks", needs, allowed));
        }
        let count = usize::try_from(count)
            .map_err(|_| Error::limit("the list of a file's blocks", needs, usize::MAX as u64))?;
        Ok((cursor, count))
    }
}

impl FileReader {
    /// Bytes in the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for a file of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes in a block of the file's image.
    pub(crate) fn block_size(&self) -> u32 {
        self.image.block_size()
    }

    /// Reads up to `buf.len()` bytes at `offset`, and returns how many: fewer only at the end.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let left = self.len.saturating_sub(offset);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let buf = &mut buf[..n];
        let read = match self.contiguous {
            // All at once. An offset behind the end reads nothing.
            Some(start) => {
                let at = start.saturating_add(offset.min(self.len));
                let stored = &self.image.inner.stored;
                stored.read_into(at, buf, "a data block")
            }
            None => self.read_blocks(offset, buf),
        };
        read.map_err(|e| self.image.name(e))?;
        Ok(n)
    }

    /// The bytes at `offset`, at most `most`, and at most to the end of their block. Decoded bytes
    /// are not copied.
    ///
    /// This decodes the whole block, and keeps it in the image's cache. If the block is stored raw,
    /// it reads only the piece, and keeps nothing. Two threads that ask for the same block at once
    /// decode it once.
    pub fn piece(&self, offset: u64, most: usize) -> Result<Piece> {
        self.read_piece(offset, most)
            .map_err(|e| self.image.name(e))
    }

    /// The bytes of `range` from the decoded block that holds the `piece` at `offset`. None if they
    /// are in another block, or if the block is stored raw and so was not decoded whole.
    pub fn piece_beside(&self, piece: &Piece, offset: u64, range: Range<u64>) -> Option<Piece> {
        let block_size = u64::from(self.image.block_size());
        let first = offset / block_size * block_size;
        let inside = first <= range.start
            && range.start <= range.end
            && range.end <= first.saturating_add(block_size).min(self.len);
        let len = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        let (block, start) = piece.block.as_ref().filter(|_| inside)?;
        // Where in the block the file's bytes from `first` on are: those before are other files'.
        let own = start.checked_sub(usize::try_from(offset - first).ok()?)?;
        let start = own + usize::try_from(range.start - first).ok()?;
        block.get(start..start.checked_add(len)?)?;
        Some(Piece {
            len,
            block: Some((Arc::clone(block), start)),
        })
    }

    /// True if the block at `offset` belongs to this file alone and is stored raw.
    /// [`FileReader::piece`] then reads no more than it is asked for.
    pub fn is_raw_at(&self, offset: u64) -> bool {
        let i = usize::try_from(offset / u64::from(self.image.block_size()));
        let stored = i.ok().and_then(|i| self.blocks.stored(i));
        stored.is_some_and(StoredLen::is_raw)
    }

    /// As [`Image::shared_block`] of the file's inode.
    pub fn shared_block(&self) -> Option<u32> {
        let tail = self.tail.as_ref().filter(|_| self.blocks.is_empty());
        tail.map(|tail| tail.number)
    }

    /// The whole file as a slice of the mapping.
    ///
    /// None if the image is not [mapped](Image::open_mapped), or if the file is not stored raw in
    /// one piece.
    ///
    /// After [`guard_mappings`](brisk_io::guard_mappings), a page that the system cannot give reads
    /// as zeros. So call [`Image::check_mapping`] after the last use of the slice.
    pub fn as_slice(&self) -> Option<&[u8]> {
        let start = self.contiguous?;
        self.image
            .inner
            .stored
            .mapped(start, usize::try_from(self.len).ok()?)
    }

    /// All bytes of the file.
    ///
    /// # Errors
    ///
    /// `Limit` if the file is longer than [`Limits::memory`](crate::Limits), and those of reading.
    /// A long file can be read in parts ([`FileReader::read_at`], [`FileReader::stream`]) or written
    /// elsewhere ([`FileReader::copy_to`]).
    pub fn read_to_vec(&self) -> Result<Vec<u8>> {
        let limit = self.image.inner.stored.limits.memory;
        let len = usize::try_from(self.len)
            .ok()
            .filter(|_| self.len <= limit)
            .ok_or_else(|| {
                let what = "reading a whole file";
                self.image.name(Error::limit(what, self.len, limit))
            })?;
        let mut bytes = vec![0; len];
        self.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes the bytes of `range` to `out`, decoding on `threads` threads.
    ///
    /// It leaves out the part of the range behind the end of the file. At most four decoded blocks
    /// per thread exist at a time.
    ///
    /// # Errors
    ///
    /// Those of reading, and `Io` with what `out` says; some of the bytes are then written.
    pub fn copy_to(
        &self,
        range: Range<u64>,
        out: &mut impl io::Write,
        threads: usize,
    ) -> Result<u64> {
        let end = range.end.min(self.len);
        let block_size = u64::from(self.image.block_size());
        let Some(len) = end.checked_sub(range.start).filter(|&len| len > 0) else {
            return Ok(0);
        };
        let blocks = range.start / block_size..end.div_ceil(block_size);
        let parts = blocks.map(|block| {
            let from = (block * block_size).max(range.start);
            let to = (block * block_size).saturating_add(block_size).min(end);
            // A part is at most one block.
            (from, usize::try_from(to - from).unwrap_or(usize::MAX))
        });
        let mut write = |bytes: &[u8]| {
            out.write_all(bytes)
                .map_err(|e| Error::io("write the contents of a file", e))
        };
        if len <= block_size {
            // Starting threads takes longer than decoding a block.
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
            self.read_at(range.start, &mut bytes)?;
            write(&bytes)?;
            return Ok(len);
        }
        ordered::for_each(
            threads,
            threads.saturating_mul(4),
            parts,
            || (),
            |(), (from, len)| {
                let mut bytes = vec![0; len];
                self.read_at(from, &mut bytes).map(|_| bytes)
            },
            |part| write(&part?),
        )?;
        Ok(len)
    }

    /// How the bytes are stored.
    pub fn stored_as(&self) -> StoredAs {
        let mut sum = StoredAs::default();
        for (i, block) in self.blocks.iter().enumerate() {
            let len = self.block_len(i) as u64;
            if block.stored.is_sparse() {
                sum.sparse += len;
            } else if block.stored.is_raw() {
                sum.raw += len;
            } else {
                sum.compressed += len;
                sum.compressed_stored += u64::from(block.stored.len());
            }
        }
        sum.shared = self.tail_len() as u64;
        sum
    }

    /// Where blocks are stored that have `bytes` of the file: byte ranges of the image's file, one for each block. Holes are stored
    /// nowhere.
    pub fn stored_at(&self, bytes: Range<u64>) -> Vec<Range<u64>> {
        let block_size = u64::from(self.image.block_size());
        let end = bytes.end.min(self.len);
        if bytes.start >= end {
            return Vec::new();
        }
        let of_own = (bytes.start / block_size..end.div_ceil(block_size))
            .filter_map(|i| self.blocks.get(usize::try_from(i).ok()?));
        let own_end = (self.blocks.len() as u64).saturating_mul(block_size);
        let tail = self.tail.filter(|_| end > own_end).map(|tail| tail.block);
        let blocks = of_own.chain(tail).filter(|block| !block.stored.is_sparse());
        let offset = self.image.offset();
        blocks
            .map(|block| {
                let start = offset.saturating_add(block.start);
                start..start.saturating_add(block.stored.len().into())
            })
            .collect()
    }

    /// The first byte from `offset` on that is in no hole; none if only a hole follows, or nothing. A hole is a block of zeros
    /// that is not stored.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let block_size = u64::from(self.image.block_size());
        // The end of the file may be in a block that it shares.
        let behind = (self.blocks.len() as u64 * block_size).max(offset);
        let data = self.next_block(offset, false).unwrap_or(behind);
        Some(data).filter(|&data| data < self.len)
    }

    /// The first byte from `offset` on that is in a hole, or else the length of the file; none if `offset` is not in the file.
    pub fn next_hole(&self, offset: u64) -> Option<u64> {
        let hole = self.next_block(offset, true).unwrap_or(self.len);
        (offset < self.len).then_some(hole)
    }

    /// The first byte from `offset` on in a block of the file's own that is a hole or is none.
    fn next_block(&self, offset: u64, is_hole: bool) -> Option<u64> {
        let block_size = u64::from(self.image.block_size());
        let first = usize::try_from(offset / block_size).ok()?;
        let mut blocks = first..self.blocks.len();
        let is_found = |i| {
            let stored = self.blocks.stored(i);
            stored.is_some_and(|stored| stored.is_sparse() == is_hole)
        };
        let found = blocks.find(|&i| is_found(i))?;
        Some((found as u64 * block_size).max(offset))
    }

    /// True if all `len` bytes from `offset` are in blocks of zeros that are not stored.
    pub(crate) fn is_sparse(&self, offset: u64, len: u64) -> bool {
        let block_size = u64::from(self.image.block_size());
        let mut blocks = offset / block_size..offset.saturating_add(len).div_ceil(block_size);
        blocks.all(|i| {
            let stored = usize::try_from(i).ok().and_then(|i| self.blocks.stored(i));
            stored.is_some_and(StoredLen::is_sparse)
        })
    }

    /// Blocks that are this file's alone.
    pub(crate) fn blocks(&self) -> &BlockList {
        &self.blocks
    }

    /// True if the end of the file is in a block that it shares.
    pub(crate) fn has_tail(&self) -> bool {
        self.tail.is_some()
    }

    /// Decodes `block` of this file into `out`, which is as long as [`FileReader::block_len`] says,
    /// past the cache.
    pub(crate) fn read_block(&self, block: Block, out: &mut [u8]) -> Result<()> {
        self.image
            .inner
            .blocks
            .read_whole(block, out, "a data block")
            .map_err(|e| self.image.name(e))
    }

    /// How the file's block at `offset` is stored, if it is a block of the file's own and no hole.
    #[cfg(feature = "write")]
    pub(crate) fn block_at(&self, offset: u64) -> Option<Block> {
        let i = usize::try_from(offset / u64::from(self.image.block_size())).ok()?;
        let block = self.blocks.get(i)?;
        (!block.stored.is_sparse()).then_some(block)
    }

    /// The shared block that the end of the file is in, if it is in one, and the byte of it where that end starts.
    #[cfg(feature = "write")]
    pub(crate) fn tail_block_at(&self) -> Option<(Block, u32)> {
        let tail = self.tail.filter(|tail| !tail.block.stored.is_sparse())?;
        Some((tail.block, tail.offset))
    }

    /// Puts `block`, which is one of those above, at the start of `stored` as it is stored and at the start of `out`
    /// decoded, past the cache, and returns how many bytes it decodes to.
    ///
    /// `stored` is as long as a block of the image.
    #[cfg(feature = "write")]
    pub(crate) fn read_stored(
        &self,
        block: Block,
        stored: &mut [u8],
        out: &mut [u8],
        what: &'static str,
    ) -> Result<usize> {
        let blocks = &self.image.inner.blocks;
        let read = blocks.read_stored(block, stored, out, what);
        read.map_err(|e| self.image.name(e))
    }

    /// The error that `block` decodes to `found` bytes, and not to `len`.
    #[cfg(feature = "write")]
    pub(crate) fn wrong_len(&self, block: Block, found: usize, len: usize) -> Error {
        let allowed = Allowed::Only(len as u64);
        self.image
            .name(block.wrong_len("a data block", found, allowed))
    }

    /// Bytes that block `i` decodes to.
    pub(crate) fn block_len(&self, i: usize) -> usize {
        let block_size = self.image.block_size() as usize;
        let left = self.len.saturating_sub(i as u64 * block_size as u64);
        usize::try_from(left).unwrap_or(usize::MAX).min(block_size)
    }

    fn tail_len(&self) -> usize {
        match self.tail {
            Some(_) => self.block_len(self.blocks.len()),
            None => 0,
        }
    }

    fn read_blocks(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let inner = &self.image.inner;
        let block_size = u64::from(inner.stored.superblock.block_size());
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            // Blocks are at most as many as the list has, and offsets in one below 1 MiB.
            let i = usize::try_from(at / block_size).unwrap_or(usize::MAX);
            let skip = usize::try_from(at % block_size).unwrap_or(0);
            let len = self.block_len(i);
            let n = (len - skip).min(buf.len() - done);
            let out = &mut buf[done..done + n];
            match self.blocks.get(i) {
                Some(block) if block.stored.is_sparse() => out.fill(0),
                Some(block) if n == len => inner.blocks.read_whole(block, out, "a data block")?,
                Some(block) if block.stored.is_raw() => {
                    if block.stored.len() as usize != len {
                        let found = block.stored.len() as usize;
                        return Err(block.wrong_len(
                            "a data block",
                            found,
                            Allowed::Only(len as u64),
                        ));
                    }
                    inner
                        .stored
                        .read_into(block.start + skip as u64, out, "a data block")?;
                }
                Some(block) => {
                    let bytes = inner.blocks.cached(block, len, "a data block")?;
                    if bytes.len() != len {
                        let allowed = Allowed::Only(len as u64);
                        return Err(block.wrong_len("a data block", bytes.len(), allowed));
                    }
                    out.copy_from_slice(&bytes[skip..skip + n]);
                }
                None => self.read_tail(skip, out)?,
            }
            done += n;
        }
        Ok(())
    }

    fn read_piece(&self, offset: u64, most: usize) -> Result<Piece> {
        let inner = &self.image.inner;
        let block_size = u64::from(inner.stored.superblock.block_size());
        if offset >= self.len {
            return Ok(Piece::zeros(0));
        }
        // As in `read_blocks`.
        let i = usize::try_from(offset / block_size).unwrap_or(usize::MAX);
        let skip = usize::try_from(offset % block_size).unwrap_or(0);
        let whole = self.block_len(i);
        let len = (whole - skip).min(most);
        let what = "a data block";
        let Some(block) = self.blocks.get(i) else {
            let (bytes, from) = self.tail_block(len)?;
            return Ok(Piece {
                len,
                block: Some((bytes, from + skip)),
            });
        };
        if block.stored.is_sparse() {
            return Ok(Piece::zeros(len));
        }
        let wrong_len = |found| Err(block.wrong_len(what, found, Allowed::Only(whole as u64)));
        if block.stored.is_raw() {
            if block.stored.len() as usize != whole {
                return wrong_len(block.stored.len() as usize);
            }
            let mut bytes = vec![0; len];
            inner
                .stored
                .read_into(block.start + skip as u64, &mut bytes, what)?;
            return Ok(Piece {
                len,
                block: Some((Arc::new(bytes), 0)),
            });
        }
        let bytes = inner.blocks.cached(block, whole, what)?;
        if bytes.len() != whole {
            return wrong_len(bytes.len());
        }
        Ok(Piece {
            len,
            block: Some((bytes, skip)),
        })
    }

    /// Reads from byte `skip` of the tail.
    fn read_tail(&self, skip: usize, out: &mut [u8]) -> Result<()> {
        let (bytes, from) = self.tail_block(out.len())?;
        out.copy_from_slice(&bytes[from + skip..from + skip + out.len()]);
        Ok(())
    }

    /// The decoded block with the tail, for `need` bytes of it, and where in it the tail starts.
    /// The block has all of the tail.
    fn tail_block(&self, need: usize) -> Result<(Arc<Vec<u8>>, usize)> {
        let inner = &self.image.inner;
        let Some(tail) = self.tail else {
            // Invariant 1: only a tail is not in the list.
            return Err(Error::corrupt(
                Location::Byte(0),
                Corrupt::Truncated {
                    what: "a file",
                    need: need as u64,
                    have: 0,
                },
            ));
        };
        let what = "a shared block";
        let most = inner.stored.superblock.block_size() as usize;
        let bytes = inner.blocks.cached(tail.block, most, what)?;
        let from = tail.offset as usize;
        let end = from.saturating_add(self.tail_len());
        if end > bytes.len() {
            let (need, have) = (end as u64, bytes.len() as u64);
            let fault = Corrupt::Truncated { what, need, have };
            return Err(Error::corrupt(Location::Byte(tail.block.start), fault));
        }
        Ok((bytes, from))
    }

    fn find_contiguous(&self) -> Option<u64> {
        let Some(first) = self.blocks.first() else {
            let tail = self.tail?;
            let end = u64::from(tail.offset) + self.len;
            let whole = tail.block.stored.is_raw() && end <= tail.block.stored.len().into();
            return whole.then(|| tail.block.start + u64::from(tail.offset));
        };
        // Blocks follow each other without a gap, so being raw and full is enough.
        let raw = self.tail.is_none()
            && self.blocks.iter().enumerate().all(|(i, block)| {
                block.stored.is_raw() && block.stored.len() as usize == self.block_len(i)
            });
        raw.then_some(first.start)
    }
}

/// So an image can be opened from a file of another image, and a file of an image can be added to a
/// tree.
///
/// ```
/// use std::io::Cursor;
///
/// use brisk_image::{Image, ImageWriter, OpenOptions, TreeBuilder, TreeEntry};
///
/// # fn main() -> brisk_image::Result<()> {
/// let mut tree = TreeBuilder::new();
/// tree.add("hello", TreeEntry::file("hello, world"))?;
/// let mut inner = Vec::new();
/// ImageWriter::new().write_to(&tree.finish(), Cursor::new(&mut inner))?;
///
/// let mut tree = TreeBuilder::new();
/// tree.add("inner.img", TreeEntry::file(inner))?;
/// let mut outer = Vec::new();
/// ImageWriter::new().write_to(&tree.finish(), Cursor::new(&mut outer))?;
///
/// let outer = Image::from_source(outer, &OpenOptions::new())?;
/// let inner = Image::from_source(outer.file_at("inner.img")?, &OpenOptions::new())?;
/// assert_eq!(inner.read("hello")?, b"hello, world");
/// # Ok(())
/// # }
/// ```
impl ByteSource for FileReader {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        Ok(FileReader::read_at(self, offset, buf)?)
    }
}

impl std::fmt::Debug for FileReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileReader")
            .field("len", &self.len)
            .field("blocks", &self.blocks.len())
            .field("contiguous", &self.contiguous)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "write"))]
pub(in crate::read) mod tests {
    use super::*;
    use crate::read::image::OpenOptions;
    use crate::{ImageWriter, InodeRef, Limits, Tree, TreeRules};

    pub(in crate::read) const BLOCK: usize = 128 << 10;

    /// An image of files that are compressed, stored raw, with a hole, and in a shared block.
    pub(in crate::read) fn image() -> Image {
        image_with(Limits::default())
    }

    fn image_with(limits: Limits) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("text"), "brisk ".repeat(50_000)).unwrap();
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"noise");
        let mut noise = vec![0; 200_000];
        hasher.finalize_xof().fill(&mut noise);
        std::fs::write(tree.join("noise"), noise).unwrap();
        let mut holes = vec![0; 3 * BLOCK];
        holes[..5].copy_from_slice(b"start");
        holes.extend_from_slice(b"the end");
        std::fs::write(tree.join("holes"), holes).unwrap();
        std::fs::write(tree.join("one"), "one").unwrap();
        std::fs::write(tree.join("two"), "two").unwrap();
        let tree = Tree::from_directory(&tree, &TreeRules::default()).unwrap();
        let path = dir.path().join("image");
        ImageWriter::new().write(&tree, &path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        Image::from_source(bytes, &OpenOptions::new().limits(limits)).unwrap()
    }

    pub(in crate::read) fn file(image: &Image, name: &str) -> FileReader {
        image.file(&image.lookup(name).unwrap().unwrap()).unwrap()
    }

    fn bytes(piece: &Piece) -> Vec<u8> {
        match piece.as_slice() {
            Some(bytes) => bytes.to_vec(),
            None => vec![0; piece.len()],
        }
    }

    #[test]
    fn pieces_are_what_reads_return_and_end_with_their_block() {
        let image = image();
        for name in ["text", "noise", "holes", "one", "two"] {
            let file = file(&image, name);
            let len = usize::try_from(file.len()).unwrap();
            let mut whole = vec![0; len];
            assert_eq!(file.read_at(0, &mut whole).unwrap(), len);
            for (offset, most) in [
                (0, usize::MAX),
                (1, 10),
                (BLOCK - 1, 10),
                (BLOCK, BLOCK),
                (BLOCK + 1, BLOCK),
                (2 * BLOCK + 7, 1),
                (len - 1, 10),
            ] {
                if offset >= len {
                    continue;
                }
                let piece = file.piece(offset as u64, most).unwrap();
                let end = (offset / BLOCK + 1) * BLOCK;
                let expected = most.min(end.min(len) - offset);
                assert_eq!(piece.len(), expected, "{name} at {offset}");
                assert!(
                    bytes(&piece) == whole[offset..offset + expected],
                    "{name} at {offset}"
                );
            }
            for offset in [file.len(), u64::MAX] {
                assert!(file.piece(offset, 10).unwrap().is_empty());
            }
            assert_eq!(file.piece(0, 0).unwrap().len(), 0);
        }
    }

    #[test]
    fn a_new_block_is_kept_beside_blocks_that_were_used_twice() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("text"), "brisk ".repeat(16 * BLOCK / 6)).unwrap();
        let tree = Tree::from_directory(&tree, &TreeRules::default()).unwrap();
        let path = dir.path().join("image");
        ImageWriter::new().write(&tree, &path).unwrap();
        let limits = crate::Limits::new().block_cache(8 * (BLOCK as u64 + 1024));
        let image = Image::open_with(&path, &OpenOptions::new().limits(limits)).unwrap();
        let text = file(&image, "text");
        let address = |block: u64| {
            let piece = text.piece(block * BLOCK as u64, 1).unwrap();
            piece.as_slice().unwrap().as_ptr().addr()
        };
        for block in 0..8 {
            assert_eq!(address(block), address(block));
        }
        let new = text.piece(8 * BLOCK as u64, 1).unwrap();
        for block in 9..11 {
            address(block);
        }
        assert_eq!(new.as_slice().unwrap().as_ptr().addr(), address(8));
    }

    #[test]
    fn what_is_beside_a_piece_needs_no_cache_and_no_other_files_bytes() {
        let image = image();
        image.set_block_cache(0);
        let block = BLOCK as u64;
        let text = file(&image, "text");
        let len = text.len();
        let (last, behind) = (len / block * block, len - 10..len);
        for (offset, range, is_there) in [
            (5, 0..block, true),
            (block - 1, 10..20, true),
            (block + 7, block..block + 7, true),
            (last, behind.clone(), true),
            // Of another block, behind the end, and backwards.
            (5, block - 1..block + 1, false),
            (block, block - 1..block + 1, false),
            (last, len - 1..len + 1, false),
            (5, Range { start: 20, end: 10 }, false),
        ] {
            let piece = text.piece(offset, 1).unwrap();
            let beside = text.piece_beside(&piece, offset, range.clone());
            assert_eq!(beside.is_some(), is_there, "{range:?} at {offset}");
            let Some(beside) = beside else { continue };
            let mut expected = vec![0; usize::try_from(range.end - range.start).unwrap()];
            text.read_at(range.start, &mut expected).unwrap();
            assert!(bytes(&beside) == expected, "{range:?} at {offset}");
        }
        // The two share a block.
        for (name, own) in [("one", b"one"), ("two", b"two")] {
            let file = file(&image, name);
            let piece = file.piece(1, 1).unwrap();
            assert_eq!(bytes(&file.piece_beside(&piece, 1, 0..3).unwrap()), own);
            assert!(file.piece_beside(&piece, 1, 0..4).is_none());
        }
        // Nothing was decoded of a hole and of what is raw.
        for name in ["holes", "noise"] {
            let file = file(&image, name);
            let piece = file.piece(block + 9, 1).unwrap();
            assert!(
                file.piece_beside(&piece, block + 9, block..block + 9)
                    .is_none()
            );
        }
    }

    #[test]
    fn pieces_share_a_decoded_block_with_the_cache() {
        let image = image();
        let text = file(&image, "text");
        let address = |offset| {
            text.piece(offset, 1)
                .unwrap()
                .as_slice()
                .unwrap()
                .as_ptr()
                .addr()
        };
        let first = text.piece(0, 1).unwrap();
        assert_eq!(first.as_slice().unwrap().as_ptr().addr() + 5, address(5));
        image.set_block_cache(0);
        assert_ne!(first.as_slice().unwrap().as_ptr().addr() + 5, address(5));
        // A hole has no bytes to share, and of a raw block the piece alone is read.
        let holes = file(&image, "holes");
        assert!(holes.piece(BLOCK as u64, 10).unwrap().as_slice().is_none());
        assert!(!holes.is_raw_at(BLOCK as u64));
        let noise = file(&image, "noise");
        assert!(noise.is_raw_at(0) && noise.is_raw_at(199_999));
        assert!(!noise.is_raw_at(1 << 40) && !text.is_raw_at(0));
    }

    #[test]
    fn a_word_of_a_reference_leads_back_to_its_inode() {
        let image = image();
        let inode = image.lookup("text").unwrap().unwrap();
        let reference = InodeRef::from_word(inode.reference().to_word()).unwrap();
        assert_eq!(image.inode(reference).unwrap().number(), inode.number());
        assert_eq!(image.root_reference(), image.root().unwrap().reference());
        // An offset into a metadata block is below 8192.
        assert_eq!(InodeRef::from_word(8192), None);
        assert!(!image.has_xattrs());
    }
    #[test]
    fn a_file_is_read_whole_or_refused_before_it_takes_memory() {
        let image = image();
        for name in ["text", "noise", "holes", "one"] {
            let file = file(&image, name);
            let mut expected = vec![0; usize::try_from(file.len()).unwrap()];
            file.read_at(0, &mut expected).unwrap();
            assert!(file.read_to_vec().unwrap() == expected, "{name}");
            assert!(image.read(name).unwrap() == expected, "{name}");
        }
        let limits = Limits::new().memory(3 * BLOCK as u64);
        let e = image_with(limits).read("holes").unwrap_err();
        assert_eq!(
            e.to_string(),
            "reading a whole file needs 393223, which passes the limit of 393216"
        );
    }
}
