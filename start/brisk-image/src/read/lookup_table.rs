//! Entries of a look-up table by number, read when they are asked for.

use std::sync::OnceLock;

use super::meta_reader::MetaReader;
use super::stored_image::StoredImage;
use crate::error::{Allowed, Corrupt, Error, Location, Result};
use crate::format::table::TableShape;

/// Bytes of a list that are read at once: a multiple of the 8 bytes of each start.
const PART: usize = 64 << 10;

/// A table that is found through a list of where its metadata blocks start.
///
/// The list is read with the first entry, not when the image is opened.
pub(crate) struct LookupTable {
    what: &'static str,
    /// Where the list is stored.
    list: u64,
    shape: TableShape,
    /// What is wrong with a number that is too high.
    field: &'static str,
    /// The list, or what is wrong with it: a list that is damaged is not read again for each entry.
    starts: OnceLock<Starts>,
}

type Starts = std::result::Result<Box<[u64]>, Box<(Location, Corrupt)>>;

impl LookupTable {
    pub(crate) fn new(
        what: &'static str,
        field: &'static str,
        list: u64,
        shape: TableShape,
    ) -> Self {
        Self {
            what,
            list,
            shape,
            field,
            starts: OnceLock::new(),
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.shape.count
    }

    /// Fills `entry` with entry `i`, which something at `from` names.
    pub(crate) fn read(
        &self,
        metadata: &MetaReader,
        i: u64,
        entry: &mut [u8],
        from: Location,
    ) -> Result<()> {
        let Some((block, offset)) = self.shape.block_and_byte(i) else {
            let allowed = match self.shape.count.checked_sub(1) {
                Some(last) => Allowed::AtMost(last),
                None => Allowed::Text("nothing, as the table is empty"),
            };
            return Err(Error::field(from, self.field, i, allowed));
        };
        let starts = self.starts(metadata.image())?;
        // `block_and_byte` gives a block below `shape.blocks()`, which is the length of `starts`.
        let at = starts[block];
        let block = metadata.block(at, self.list)?;
        let bytes = block
            .bytes
            .get(offset..offset + entry.len())
            .ok_or_else(|| {
                let need = (offset + entry.len()) as u64;
                let have = block.bytes.len() as u64;
                Error::corrupt(
                    Location::Byte(at),
                    Corrupt::Truncated {
                        what: self.what,
                        need,
                        have,
                    },
                )
            })?;
        entry.copy_from_slice(bytes);
        Ok(())
    }

    /// Checks the list without reading an entry.
    pub(crate) fn check_list(&self, metadata: &MetaReader) -> Result<()> {
        match self.shape.count {
            0 => Ok(()),
            _ => self.starts(metadata.image()).map(drop),
        }
    }

    /// Entries in a full metadata block of the table, which are all damaged if one is.
    pub(crate) fn per_block(&self) -> u64 {
        self.shape.per_block()
    }

    fn starts(&self, image: &StoredImage) -> Result<&[u64]> {
        let starts = match self.starts.get() {
            Some(starts) => starts,
            None => {
                let starts = match self.read_starts(image) {
                    Ok(starts) => Ok(starts),
                    // Any other fault may be gone the next time.
                    Err(e) => match e.as_corrupt() {
                        Some((at, what)) => Err(Box::new((at, what.clone()))),
                        None => return Err(e),
                    },
                };
                self.starts.get_or_init(|| starts)
            }
        };
        match starts {
            Ok(starts) => Ok(starts),
            Err(fault) => {
                let (at, what) = &**fault;
                Err(Error::corrupt(*at, what.clone()))
            }
        }
    }

    fn read_starts(&self, image: &StoredImage) -> Result<Box<[u64]>> {
        // At most 2^32 entries of 16 bytes are 2^23 blocks; the image has to hold the list of them.
        let need = self.shape.blocks() * 8;
        let have = image.superblock.bytes_used().saturating_sub(self.list);
        if need > have {
            let what = self.what;
            return Err(Error::corrupt(
                Location::Byte(self.list),
                Corrupt::Truncated { what, need, have },
            ));
        }
        if need > image.limits.memory {
            return Err(Error::limit(self.what, need, image.limits.memory));
        }
        let room = || Error::limit(self.what, need, usize::MAX as u64);
        let mut left = usize::try_from(need).map_err(|_| room())?;
        // The list as it is stored is read in parts: as a whole, it would take as much again as
        // the starts that come of it.
        let mut starts = Vec::with_capacity(left / 8);
        let mut at = self.list;
        let mut scratch = Vec::new();
        while left > 0 {
            let len = left.min(PART);
            image.with_bytes(at, len, self.what, &mut scratch, |stored| {
                let (words, _) = stored.as_chunks::<8>();
                for (word, at) in words.iter().zip((at..).step_by(8)) {
                    starts.push(self.check_start(u64::from_le_bytes(*word), at)?);
                }
                Ok(())
            })?;
            at += len as u64;
            left -= len;
        }
        Ok(starts.into_boxed_slice())
    }

    /// Checks that a metadata block can start at byte `start`, as the list says at byte `at`.
    fn check_start(&self, start: u64, at: u64) -> Result<u64> {
        // The blocks of a table stand before its list.
        if (96..self.list).contains(&start) {
            return Ok(start);
        }
        let allowed = Allowed::Range(96, self.list.saturating_sub(1));
        Err(Error::field(
            Location::Byte(at),
            "start of a metadata block",
            start,
            allowed,
        ))
    }
}
