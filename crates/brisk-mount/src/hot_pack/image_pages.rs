//! The pages that a hot pack lists, read from the image and not from the pack.

use std::ops::Range;

use brisk_image::hot_pack::{HotFrame, HotPack};
use brisk_image::profile::{PAGE, PageRange};
use brisk_image::{FileReader, Image, Result};
use brisk_io::AlignedBuf;

/// Reads the pages of frames from the image, for one thread.
pub(super) struct ImagePages<'a> {
    image: &'a Image,
    pack: &'a HotPack,
    /// The number of a file in the pack, and its reader. Ranges that follow each other are mostly of one file.
    reader: Option<(u32, FileReader)>,
    bytes: AlignedBuf,
}

impl<'a> ImagePages<'a> {
    pub(super) fn new(image: &'a Image, pack: &'a HotPack) -> Self {
        Self {
            image,
            pack,
            reader: None,
            bytes: AlignedBuf::zeroed(0, PAGE as usize),
        }
    }

    /// The pages of a frame, range by range.
    ///
    /// # Errors
    ///
    /// Those of reading the image. A file that the image does not have is an `Input` error.
    pub(super) fn read(
        &mut self,
        frame: &HotFrame,
    ) -> Result<impl Iterator<Item = (PageRange, &[u8])>> {
        if self.bytes.len() < frame.len {
            self.bytes = AlignedBuf::zeroed(frame.len, PAGE as usize);
        }
        let mut pieces: Vec<(PageRange, Range<usize>)> = Vec::new();
        let mut end = 0_usize;
        for range in frame
            .ranges
            .clone()
            .map_while(|number| self.pack.range(number))
        {
            let Some(file) = self.pack.file(range.file as usize) else {
                break;
            };
            // The table has checked that the range is in the file, and that the frame has room for all of its ranges.
            let start = range.first.saturating_mul(PAGE);
            let len = range
                .count
                .saturating_mul(PAGE)
                .min(file.len().saturating_sub(start));
            let place = end..end.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
            end = place.end;
            self.open(range.file)?;
            if let (Some((_, reader)), Some(bytes)) =
                (&self.reader, self.bytes.get_mut(place.clone()))
            {
                reader.read_at(start, bytes)?;
                pieces.push((range, place));
            }
        }
        let bytes = &self.bytes;
        Ok(pieces
            .into_iter()
            .map(move |(range, place)| (range, bytes.get(place).unwrap_or(&[]))))
    }

    /// Has `self.reader` read the file with this number.
    fn open(&mut self, number: u32) -> Result<()> {
        if self
            .reader
            .as_ref()
            .is_some_and(|(open, _)| *open == number)
        {
            return Ok(());
        }
        self.reader = None;
        let inode = self
            .pack
            .file(number as usize)
            .and_then(|file| file.inode());
        if let Some(inode) = inode {
            let inode = self.image.inode(inode)?;
            self.reader = Some((number, self.image.file(&inode)?));
        }
        Ok(())
    }
}
