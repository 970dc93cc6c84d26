//! Tables as they grow: metadata blocks, and the lists of where those are.

use crate::codec::{Compression, Encoder};
use crate::error::{Error, Location, Result};
use crate::format::metadata::{METADATA_BLOCK, MetaRef, MetadataHeader};

/// A run of metadata blocks, stored one after the other.
///
/// 1. `decoded` is shorter than a metadata block.
pub(crate) struct MetadataWriter {
    encoder: Encoder,
    stored: Vec<u8>,
    decoded: Vec<u8>,
    /// Where each stored block starts in `stored`.
    starts: Vec<u64>,
    scratch: Vec<u8>,
}

impl MetadataWriter {
    pub(crate) fn new(compression: &Compression) -> Result<Self> {
        Ok(Self {
            encoder: Encoder::for_metadata(compression)?,
            stored: Vec::new(),
            decoded: Vec::with_capacity(METADATA_BLOCK),
            starts: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// Where the next byte will stand.
    pub(crate) fn position(&self) -> Result<MetaRef> {
        // Invariant 1: the offset is below 8192.
        let offset = u16::try_from(self.decoded.len()).unwrap_or(u16::MAX);
        MetaRef::new(
            self.stored.len() as u64,
            offset,
            Location::Byte(0),
            "position in a table",
        )
    }

    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = METADATA_BLOCK - self.decoded.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.decoded.extend_from_slice(now);
            bytes = later;
            if self.decoded.len() == METADATA_BLOCK {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.decoded.is_empty() {
            return Ok(());
        }
        let smaller = self.encoder.encode(&self.decoded, &mut self.scratch)?;
        let body = if smaller {
            &self.scratch
        } else {
            &self.decoded
        };
        let header = MetadataHeader::new(body.len(), !smaller).ok_or_else(|| {
            Error::limit("a metadata block", body.len() as u64, METADATA_BLOCK as u64)
        })?;
        self.starts.push(self.stored.len() as u64);
        self.stored.extend_from_slice(&header.encode());
        self.stored.extend_from_slice(body);
        self.decoded.clear();
        Ok(())
    }

    /// The stored blocks, and where each of them starts among them.
    pub(crate) fn finish(mut self) -> Result<(Vec<u8>, Vec<u64>)> {
        self.flush()?;
        Ok((self.stored, self.starts))
    }

    /// The stored blocks, as they are at byte `at` of the image, followed by `header` and the list of
    /// where the blocks start; and where `header` starts.
    pub(crate) fn finish_as_table(self, at: u64, header: &[u8]) -> Result<(Vec<u8>, u64)> {
        let (mut bytes, starts) = self.finish()?;
        let list = at + bytes.len() as u64;
        bytes.extend_from_slice(header);
        for start in starts {
            bytes.extend_from_slice(&(at + start).to_le_bytes());
        }
        Ok((bytes, list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_full_but_for_the_last() {
        let mut writer = MetadataWriter::new(&Compression::None).unwrap();
        writer.append(&[7; 8000]).unwrap();
        assert_eq!(writer.position().unwrap().offset(), 8000);
        writer.append(&[8; 192]).unwrap();
        let position = writer.position().unwrap();
        assert_eq!((position.block(), position.offset()), (8194, 0));
        writer.append(&[9; 5]).unwrap();
        let (bytes, list) = writer.finish_as_table(1000, b"head").unwrap();
        assert_eq!(list, 1000 + 8194 + 7);
        assert_eq!(&bytes[..2], [0x00, 0xa0]);
        assert_eq!(&bytes[8194..8201], [5, 0x80, 9, 9, 9, 9, 9]);
        assert_eq!(&bytes[8201..8205], b"head");
        assert_eq!(
            &bytes[8205..],
            [1000u64.to_le_bytes(), 9194u64.to_le_bytes()].concat()
        );
    }

    #[test]
    fn an_empty_table_has_no_block() {
        let writer = MetadataWriter::new(&Compression::None).unwrap();
        assert_eq!(writer.finish_as_table(96, &[]).unwrap(), (vec![], 96));
    }
}
