//! The pages of the launch that a hot pack lists, read from the image and not from the pack.
//!
//! An image has them in compressed blocks, and a launch comes back to a block again and again. So each block is decoded
//! once, when the launch first needs a page of it, and gives all pages of it that the pack lists.

use std::collections::HashMap;
use std::ops::Range;

use brisk_image::hot_pack::HotPack;
use brisk_image::profile::{PAGE, PageRange};
use brisk_image::{FileReader, Image, Result};
use brisk_io::AlignedBuf;

/// Blocks of an image that have pages of a pack, in the order in which a launch needs them.
pub(super) struct ImageBlocks {
    /// Bytes of a block, at least a page of the kernel.
    block_size: u64,
    blocks: Vec<Vec<Part>>,
}

/// Pages of a range of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The number of the range.
    pub(super) number: usize,
    /// How many pages of the range are before these.
    pub(super) skipped: u64,
    /// The number of the file.
    pub(super) file: u32,
    /// The first page in the file.
    pub(super) first: u64,
    pub(super) count: u64,
}

impl Part {
    /// All pages of the range with this number.
    pub(super) fn whole(number: usize, range: PageRange) -> Self {
        Self {
            number,
            skipped: 0,
            file: range.file,
            first: range.first,
            count: range.count,
        }
    }

    /// Bytes of the pages, in a file of `len` bytes.
    pub(super) fn bytes(&self, len: u64) -> Range<u64> {
        let start = self.first.saturating_mul(PAGE);
        let end = start.saturating_add(self.count.saturating_mul(PAGE));
        start.min(len)..end.min(len)
    }
}

impl ImageBlocks {
    /// `block_size`: bytes of a block. `page`: bytes of a page of the kernel.
    pub(super) fn of(pack: &HotPack, block_size: u64, page: u64) -> Self {
        let ranges = (0..pack.launch_range_count()).map_while(|number| pack.range(number));
        let parts = ranges
            .enumerate()
            .map(|(number, range)| Part::whole(number, range));
        Self::of_parts(parts, block_size.max(page))
    }

    fn of_parts(parts: impl Iterator<Item = Part>, block_size: u64) -> Self {
        let pages_of_block = (block_size / PAGE).max(1);
        let mut places = HashMap::new();
        let mut blocks: Vec<Vec<Part>> = Vec::new();
        for mut rest in parts {
            while rest.count > 0 {
                let left = pages_of_block - rest.first % pages_of_block;
                let count = rest.count.min(left);
                let place = *places
                    .entry((rest.file, rest.first / pages_of_block))
                    .or_insert(blocks.len());
                if place == blocks.len() {
                    blocks.push(Vec::new());
                }
                if let Some(parts) = blocks.get_mut(place) {
                    parts.push(Part { count, ..rest });
                }
                rest.skipped += count;
                rest.first = rest.first.saturating_add(count);
                rest.count -= count;
            }
        }
        Self { block_size, blocks }
    }

    /// What the pack has of the block with this number.
    pub(super) fn get(&self, number: usize) -> Option<&[Part]> {
        self.blocks.get(number).map(Vec::as_slice)
    }

    /// Reads blocks, for one thread.
    pub(super) fn reader<'a>(&self, image: &'a Image, pack: &'a HotPack) -> BlockReader<'a> {
        BlockReader {
            image,
            pack,
            file: None,
            // A part is never larger than a block, whose size the image has limited to 1 MiB.
            bytes: AlignedBuf::zeroed(usize::try_from(self.block_size).unwrap_or(0), PAGE as usize),
        }
    }
}

/// Reads pages of one block at a time.
pub(super) struct BlockReader<'a> {
    image: &'a Image,
    pack: &'a HotPack,
    /// The number of a file in the pack, and its reader. Blocks that follow each other are mostly of one file.
    file: Option<(u32, FileReader)>,
    bytes: AlignedBuf,
}

impl BlockReader<'_> {
    /// The bytes from the first to the last of these parts of one block, and where in their file the bytes begin.
    ///
    /// # Errors
    ///
    /// Those of reading the image. A file that the image does not have is an `Input` error.
    pub(super) fn read(&mut self, parts: &[Part]) -> Result<(u64, &[u8])> {
        let Some(file) = parts.first().map(|part| part.file) else {
            return Ok((0, &[]));
        };
        self.open(file)?;
        let Some((_, reader)) = &self.file else {
            return Ok((0, &[]));
        };
        let bytes = parts.iter().map(|part| part.bytes(reader.len()));
        let (start, end) = bytes.fold((u64::MAX, 0), |(start, end), bytes| {
            (start.min(bytes.start), end.max(bytes.end))
        });
        let len = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let Some(out) = self.bytes.get_mut(..len) else {
            return Ok((0, &[]));
        };
        let read = reader.read_at(start, out)?;
        Ok((start, out.get(..read).unwrap_or(&[])))
    }

    /// Has `self.file` be the file with this number.
    fn open(&mut self, number: u32) -> Result<()> {
        if self.file.as_ref().is_some_and(|(open, _)| *open == number) {
            return Ok(());
        }
        self.file = None;
        let file = self.pack.file(number as usize);
        if let Some(inode) = file.and_then(|file| file.inode()) {
            let inode = self.image.inode(inode)?;
            self.file = Some((number, self.image.file(&inode)?));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: usize, file: u32, first: u64, count: u64) -> Part {
        Part {
            number,
            skipped: 0,
            file,
            first,
            count,
        }
    }

    #[test]
    fn each_block_comes_once_when_its_first_page_is_needed() {
        let ranges = [
            part(0, 0, 30, 4),
            part(1, 1, 0, 1),
            part(2, 0, 1, 2),
            part(3, 0, 60, 10),
            part(4, 0, 34, 1),
        ];
        let blocks = ImageBlocks::of_parts(ranges.into_iter(), 128 << 10).blocks;
        let of = |part: &Part| (part.number, part.skipped, part.first, part.count);
        let blocks: Vec<Vec<_>> = blocks
            .iter()
            .map(|parts| parts.iter().map(of).collect())
            .collect();
        let expected = [
            // Pages 0 to 31 of file 0.
            vec![(0, 0, 30, 2), (2, 0, 1, 2)],
            // Pages 32 to 63.
            vec![(0, 2, 32, 2), (3, 0, 60, 4), (4, 0, 34, 1)],
            vec![(1, 0, 0, 1)],
            vec![(3, 4, 64, 6)],
        ];
        assert_eq!(blocks, expected);
    }

    #[test]
    fn parts_end_with_their_file() {
        let part = part(0, 0, 2, 3);
        assert_eq!(part.bytes(100_000), 8192..20_480);
        assert_eq!(part.bytes(9000), 8192..9000);
        assert_eq!(part.bytes(10), 10..10);
    }
}
