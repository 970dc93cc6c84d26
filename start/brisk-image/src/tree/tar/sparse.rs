//! Where the holes of a sparse file in a tar archive are.
//!
//! GNU tar has written them in four ways: in the header and in blocks behind it (type `S`), in PAX
//! records one by one (0.0) or as a list (0.1), and in front of the contents (1.0). In each, the
//! pieces that are not holes stand one after the other, each from a multiple of 512 bytes on.

use super::decimal::decimal;
use super::header::BLOCK;

/// Pieces that a file has at most: 24 MiB of them.
const MAX_PIECES: u64 = 1 << 20;

/// Bytes of the longest sparse file: 16 TiB, what ext4 can hold. It bounds what a few bytes of an
/// archive make the writer do.
const MAX_LEN: u64 = 1 << 44;

/// `len` bytes at `offset` that are not a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SparsePiece {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// The pieces of a file, as far as they are known.
///
/// 1. The pieces are sorted, none overlaps another, and none is empty.
/// 2. The length of each but the last is a multiple of 512.
/// 3. `end`, where the last of them ends, is at most [`MAX_LEN`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SparseMap {
    pieces: Vec<SparsePiece>,
    end: u64,
    stored: u64,
}

/// What is wrong with a map, as it goes behind "entry ... ".
pub(super) type Fault = String;

impl SparseMap {
    /// Adds a piece behind those that are there.
    pub(super) fn push(&mut self, offset: u64, len: u64) -> Result<(), Fault> {
        let end = offset.checked_add(len).filter(|end| *end <= MAX_LEN);
        let end = end.filter(|_| offset >= self.end).ok_or_else(|| {
            format!(
                "has a piece of {len} bytes at its byte {offset}, allowed are pieces from {} to {MAX_LEN}; archive it without holes",
                self.end
            )
        })?;
        self.end = end;
        if len == 0 {
            return Ok(());
        }
        // The sum is at most `end`.
        self.stored += len;
        let count = self.pieces.len() as u64;
        match self.pieces.last_mut() {
            Some(last) if !last.len.is_multiple_of(BLOCK as u64) => {
                return Err(format!(
                    "has a piece of {} bytes at its byte {} before the last, allowed is a multiple of {BLOCK}; archive it without holes",
                    last.len, last.offset
                ));
            }
            // What follows in the file as in the archive is one piece.
            Some(last) if last.offset + last.len == offset => last.len += len,
            _ if count >= MAX_PIECES => {
                return Err(format!(
                    "has more than {MAX_PIECES} pieces between holes; archive it without holes"
                ));
            }
            _ => self.pieces.push(SparsePiece { offset, len }),
        }
        Ok(())
    }

    /// The pieces of a file of `len` bytes, `stored` of which are in the archive.
    pub(super) fn finish(self, len: u64, stored: u64) -> Result<Vec<SparsePiece>, Fault> {
        if len < self.end || len > MAX_LEN {
            return Err(format!(
                "is {len} bytes long with its holes, allowed is {} to {MAX_LEN}; archive it without holes",
                self.end
            ));
        }
        if stored != self.stored {
            return Err(format!(
                "has {stored} bytes in the archive, but its pieces between holes have {}; make the archive again",
                self.stored
            ));
        }
        Ok(self.pieces)
    }
}

/// What PAX records say about holes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PaxSparse {
    major: Option<u64>,
    minor: Option<u64>,
    pub(super) name: Option<Vec<u8>>,
    /// Bytes of the file with its holes.
    len: Option<u64>,
    pieces: Option<u64>,
    /// Offsets and lengths, in turn: 0.0 has a record for each, 0.1 one for all.
    numbers: Vec<u64>,
}

/// Where the map of a file in PAX is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PaxMap {
    /// In the records, and so known.
    Known(SparseMap),
    /// In front of the contents.
    InContents,
}

impl PaxSparse {
    /// Takes over the record `GNU.sparse.` with `key`; none if it cannot be.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let pairs_are_whole = self.numbers.len().is_multiple_of(2);
        match key {
            b"major" => self.major = Some(decimal(value)?),
            b"minor" => self.minor = Some(decimal(value)?),
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.len = Some(decimal(value)?),
            b"numblocks" => self.pieces = Some(decimal(value)?),
            b"offset" if pairs_are_whole => self.numbers.push(decimal(value)?),
            b"numbytes" if !pairs_are_whole => self.numbers.push(decimal(value)?),
            b"map" if self.numbers.is_empty() => {
                let numbers = value.split(|byte| *byte == b',');
                self.numbers = numbers.map(decimal).collect::<Option<_>>()?;
            }
            _ => return None,
        }
        Some(())
    }

    /// The map and the length of the file with its holes; none if the file is not sparse.
    pub(super) fn map(&self) -> Result<Option<(PaxMap, u64)>, Fault> {
        if *self == Self::default() {
            return Ok(None);
        }
        let version = (self.major.unwrap_or(0), self.minor.unwrap_or(0));
        let len = self.len.ok_or_else(|| {
            "is sparse, but no record GNU.sparse.size or GNU.sparse.realsize says how long it is; make the archive again"
                .to_owned()
        })?;
        match version {
            (1, 0) => Ok(Some((PaxMap::InContents, len))),
            (0, 0 | 1) => {
                let (pairs, rest) = self.numbers.as_chunks::<2>();
                if !rest.is_empty() || self.pieces.is_some_and(|n| n != pairs.len() as u64) {
                    return Err(format!(
                        "has a map of holes with {} numbers, allowed are two for each of {} pieces; make the archive again",
                        self.numbers.len(),
                        self.pieces.unwrap_or(0)
                    ));
                }
                let mut map = SparseMap::default();
                for [offset, len] in pairs {
                    map.push(*offset, *len)?;
                }
                Ok(Some((PaxMap::Known(map), len)))
            }
            (major, minor) => Err(format!(
                "is sparse in format {major}.{minor}, allowed are 0.0, 0.1 and 1.0; archive it without holes"
            )),
        }
    }
}

/// Reads the map that stands in front of the contents of a file: decimal numbers, each with a line
/// end, the first of which says how many pieces follow.
#[derive(Debug, Default)]
pub(super) struct ContentsMap {
    map: SparseMap,
    /// How many pieces are still to come, once that is known.
    left: Option<u64>,
    offset: Option<u64>,
    digits: Vec<u8>,
}

impl ContentsMap {
    /// Takes over the next block; the map if it ends there.
    pub(super) fn read(&mut self, block: &[u8; BLOCK]) -> Result<Option<SparseMap>, Fault> {
        for &byte in block {
            if byte != b'\n' {
                self.digits.push(byte);
                // No number has more digits than 2^64.
                if self.digits.len() > 20 || !byte.is_ascii_digit() {
                    return Err(self.not_a_number());
                }
                continue;
            }
            let number = decimal(&self.digits).ok_or_else(|| self.not_a_number())?;
            self.digits.clear();
            match (self.left, self.offset.take()) {
                (None, _) => self.left = Some(number),
                (_, None) => self.offset = Some(number),
                (left, Some(offset)) => {
                    self.map.push(offset, number)?;
                    self.left = left.map(|left| left.saturating_sub(1));
                }
            }
            if self.left == Some(0) && self.offset.is_none() {
                // The rest of the block is padding.
                return Ok(Some(std::mem::take(&mut self.map)));
            }
        }
        Ok(None)
    }

    fn not_a_number(&self) -> Fault {
        format!(
            "has \"{}\" in its map of holes, allowed are decimal numbers below 2^64, each with a line end; make the archive again",
            self.digits.escape_ascii()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pieces: &[(u64, u64)], len: u64, stored: u64) -> Result<Vec<(u64, u64)>, Fault> {
        let mut map = SparseMap::default();
        for (offset, len) in pieces {
            map.push(*offset, *len)?;
        }
        let pieces = map.finish(len, stored)?;
        Ok(pieces
            .iter()
            .map(|piece| (piece.offset, piece.len))
            .collect())
    }

    #[test]
    fn pieces_are_sorted_and_in_the_file() {
        assert_eq!(
            map(&[(0, 512), (512, 512), (4096, 7), (9000, 0)], 9000, 1031),
            Ok(vec![(0, 1024), (4096, 7)])
        );
        assert_eq!(map(&[], 1 << 44, 0), Ok(vec![]));
        for (pieces, len, stored, fault) in [
            (
                [(512, 512), (1000, 1)],
                2000,
                513,
                "has a piece of 1 bytes at its byte 1000, allowed are pieces from 1024 to 17592186044416; archive it without holes",
            ),
            (
                [(0, 512), (u64::MAX, 1)],
                2000,
                513,
                "has a piece of 1 bytes at its byte 18446744073709551615, allowed are pieces from 512 to 17592186044416; archive it without holes",
            ),
            (
                [(0, 100), (512, 100)],
                2000,
                200,
                "has a piece of 100 bytes at its byte 0 before the last, allowed is a multiple of 512; archive it without holes",
            ),
            (
                [(0, 512), (1024, 512)],
                1535,
                1024,
                "is 1535 bytes long with its holes, allowed is 1536 to 17592186044416; archive it without holes",
            ),
            (
                [(0, 512), (1024, 512)],
                1 << 60,
                1024,
                "is 1152921504606846976 bytes long with its holes, allowed is 1536 to 17592186044416; archive it without holes",
            ),
            (
                [(0, 512), (1024, 512)],
                2000,
                1023,
                "has 1023 bytes in the archive, but its pieces between holes have 1024; make the archive again",
            ),
        ] {
            assert_eq!(map(&pieces, len, stored), Err(fault.to_owned()));
        }
    }

    #[test]
    fn a_file_has_a_bounded_number_of_pieces() {
        let mut map = SparseMap::default();
        for i in 0..MAX_PIECES {
            map.push(i * 1024, 512).unwrap();
        }
        assert_eq!(
            map.push(MAX_PIECES * 1024, 512),
            Err("has more than 1048576 pieces between holes; archive it without holes".into())
        );
    }

    #[test]
    fn a_map_in_contents_may_span_blocks() {
        let mut text = b"100\n".to_vec();
        for i in 0..100 {
            text.extend_from_slice(format!("{}\n512\n", i * 1024).as_bytes());
        }
        text.resize(text.len().next_multiple_of(BLOCK), 0);
        let mut reader = ContentsMap::default();
        let (blocks, _) = text.as_chunks::<BLOCK>();
        let (last, first) = blocks.split_last().unwrap();
        assert!(!first.is_empty());
        for block in first {
            assert_eq!(reader.read(block), Ok(None));
        }
        let map = reader.read(last).unwrap().unwrap();
        assert_eq!(map.pieces.len(), 100);
        assert_eq!(map.end, 99 * 1024 + 512);
    }

    #[test]
    fn a_map_in_contents_is_numbers() {
        for (text, shown) in [
            (b"x".as_slice(), "x"),
            (b"\n", ""),
            (b"1\n2\0", "2\\x00"),
            (b"184467440737095516150\n", "184467440737095516150"),
            (b"18446744073709551616\n", "18446744073709551616"),
        ] {
            let mut block = [0; BLOCK];
            block[..text.len()].copy_from_slice(text);
            assert_eq!(
                ContentsMap::default().read(&block),
                Err(format!(
                    "has \"{shown}\" in its map of holes, allowed are decimal numbers below 2^64, each with a line end; make the archive again"
                ))
            );
        }
    }
}
