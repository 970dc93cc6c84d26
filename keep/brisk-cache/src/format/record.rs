use std::ops::Range;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::slot::{Kind, Slot};
use super::{PAGE, UNIT, check};

/// The longest key.
pub(crate) const MOST_KEY: usize = 32 << 10;
/// The longest value that the check of its record covers.
pub(crate) const WHOLE: usize = 16 << 10;
/// A longer value is checked in chunks of this many bytes. Each record says how long its own are.
pub(crate) const fn chunk_len(kind: Kind) -> usize {
    1 << log2_chunk(kind)
}
const fn log2_chunk(kind: Kind) -> u8 {
    match kind {
        // A look-up in a table touches a few places of it, and each chunk comes from memory as a whole.
        Kind::Shared => 10,
        // The checks of these values take room that is read with each.
        Kind::Alone => 12,
    }
}
/// No chunk is longer. A record that has 0 has such chunks.
const LOG2_LONGEST_CHUNK: u8 = 14;
/// The longest value: its table of checks takes 128 MiB.
pub(crate) const MOST_VALUE: u64 = 64 << 30;

pub(crate) const HEADER: usize = size_of::<Wire>();
/// The check does not cover itself.
pub(crate) const CHECKED_FROM: usize = std::mem::offset_of!(Wire, segment);

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Wire {
    pub(super) check: U64,
    pub(super) segment: U64,
    pub(super) fingerprint: U64,
    pub(super) value_len: [u8; 5],
    /// The binary logarithm of the bytes of a chunk.
    pub(super) log2_chunk: u8,
    pub(super) key_len: U16,
}

impl Wire {
    pub(super) fn value_len(&self) -> u64 {
        let [a, b, c, d, e] = self.value_len;
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
    }

    /// None if this version does not know chunks of this length: a later one may have written them.
    pub(super) fn log2_of_chunks(&self, kind: Kind) -> Option<u8> {
        match self.log2_chunk {
            // A value without chunks may say anything.
            _ if self.value_len() <= WHOLE as u64 => Some(LOG2_LONGEST_CHUNK),
            0 => Some(LOG2_LONGEST_CHUNK),
            log2 if (log2_chunk(kind)..=LOG2_LONGEST_CHUNK).contains(&log2) => Some(log2),
            _ => None,
        }
    }

    /// None if a length is not allowed.
    pub(super) fn layout(&self, kind: Kind) -> Option<Layout> {
        let log2 = self.log2_of_chunks(kind)?;
        Layout::with_chunk(kind, self.key_len.get().into(), self.value_len(), 1 << log2)
    }
}

/// The parts of a record of known lengths, as offsets from its start.
///
/// 1. `HEADER + key_len <= table <= value <= end`, and all fit a `usize`.
/// 2. A value of at most [`WHOLE`] bytes has no table.
/// 3. A chunk has at least [`chunk_len`] bytes, a power of two, and at most 16 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    key_len: usize,
    /// Where the checks of the chunks begin.
    table: usize,
    /// Where the value begins.
    pub(crate) value: usize,
    pub(crate) value_len: usize,
    /// Bytes of a chunk.
    pub(crate) chunk: usize,
    end: usize,
}

impl Layout {
    /// That of a new record. None if one of the two is longer than allowed.
    pub(crate) fn of(kind: Kind, key_len: usize, value_len: u64) -> Option<Self> {
        Self::with_chunk(kind, key_len, value_len, chunk_len(kind))
    }

    fn with_chunk(kind: Kind, key_len: usize, value_len: u64, chunk: usize) -> Option<Self> {
        if key_len == 0 || key_len > MOST_KEY || value_len > MOST_VALUE {
            return None;
        }
        let value_len = usize::try_from(value_len).ok()?;
        let key_end = HEADER.checked_add(key_len)?;
        let (table, table_end) = if value_len > WHOLE {
            let table = key_end.checked_next_multiple_of(8)?;
            let chunks = value_len.div_ceil(chunk);
            (table, table.checked_add(chunks.checked_mul(8)?)?)
        } else {
            (key_end, key_end)
        };
        let value = match kind {
            Kind::Shared => table_end.checked_next_multiple_of(UNIT as usize)?,
            // The file has a header of one unit before the record.
            Kind::Alone => table_end
                .checked_add(UNIT as usize)?
                .checked_next_multiple_of(PAGE as usize)?
                .checked_sub(UNIT as usize)?,
        };
        Some(Self {
            key_len,
            table,
            value,
            value_len,
            chunk,
            end: value.checked_add(value_len)?,
        })
    }

    /// The numbers of the chunks that a part of the value touches.
    #[inline]
    pub(crate) fn touched(&self, part: &Range<usize>) -> Range<usize> {
        match part.is_empty() {
            true => 0..0,
            false => part.start / self.chunk..part.end.div_ceil(self.chunk),
        }
    }

    fn is_chunked(&self) -> bool {
        self.value_len > WHOLE
    }

    /// How many bytes the check of the record needs: all before the value, or with the value.
    pub(crate) fn head(&self) -> usize {
        match self.is_chunked() {
            true => self.table + self.value_len.div_ceil(self.chunk) * 8,
            false => self.end,
        }
    }

    pub(crate) fn value(&self) -> Range<usize> {
        self.value..self.end
    }

    /// The length of the record, in units of 64 bytes. None if a slot cannot say it.
    pub(crate) fn room(&self) -> Option<u32> {
        u32::try_from(self.end.div_ceil(UNIT as usize)).ok()
    }
}

/// What the caller knows about a record before it reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) kind: Kind,
    pub(crate) segment: u64,
    pub(crate) record: u64,
    /// The length of the record at most.
    pub(crate) room: usize,
    /// None if any key will do.
    pub(crate) key: Option<&'a [u8]>,
}

/// The length of the key, by a header that nobody has checked.
pub(crate) fn key_len(header: &[u8; HEADER]) -> usize {
    Wire::read_from_bytes(header).map_or(0, |wire| wire.key_len.get().into())
}

/// The fingerprint, by a header that nobody has checked.
pub(crate) fn fingerprint(header: &[u8; HEADER]) -> u64 {
    Wire::read_from_bytes(header).map_or(0, |wire| wire.fingerprint.get())
}

/// Why a record is not the wanted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It belongs to another key with the same digest.
    Foreign,
    /// It is not what was written.
    Damaged,
    /// It has chunks of a length that this version does not know.
    Unknown,
}

/// The header of a record, before its check: only good to know how much to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unchecked {
    wire: Wire,
    layout: Layout,
}

impl Unchecked {
    /// Reads the first [`HEADER`] bytes of a record.
    #[inline]
    pub(crate) fn parse(header: &[u8], expected: &Expected<'_>) -> Result<Self, Wrong> {
        let (wire, _) = Wire::read_from_prefix(header).map_err(|_| Wrong::Damaged)?;
        if wire.segment.get() != expected.segment || wire.check.get() != expected.record {
            return Err(Wrong::Damaged);
        }
        let layout = wire
            .layout(expected.kind)
            .filter(|layout| layout.end <= expected.room);
        Ok(Self {
            wire,
            layout: layout.ok_or_else(|| match wire.log2_of_chunks(expected.kind) {
                Some(_) => Wrong::Damaged,
                None => Wrong::Unknown,
            })?,
        })
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Checks the first [`Layout::head`] bytes of the record, or more of them.
    #[inline]
    pub(crate) fn check(self, bytes: &[u8], expected: &Expected<'_>) -> Result<Record, Wrong> {
        let covered = bytes.get(CHECKED_FROM..self.layout.head());
        if covered.map(check::of) != Some(expected.record) {
            return Err(Wrong::Damaged);
        }
        self.check_key(bytes, expected)
    }

    /// Compares the key of a record that has passed its check before.
    #[inline]
    pub(crate) fn check_key(self, bytes: &[u8], expected: &Expected<'_>) -> Result<Record, Wrong> {
        let key = bytes.get(HEADER..HEADER + self.layout.key_len);
        if expected.key.is_some_and(|wanted| key != Some(wanted)) {
            return Err(Wrong::Foreign);
        }
        Ok(Record {
            fingerprint: self.wire.fingerprint.get(),
            segment: expected.segment,
            layout: self.layout,
        })
    }
}

/// A record whose head passed its check, and its value too unless that has chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) fingerprint: u64,
    segment: u64,
    pub(crate) layout: Layout,
}

impl Record {
    /// A record that is nowhere: its value could not be stored.
    pub(crate) fn unstored(fingerprint: u64, value_len: usize) -> Self {
        let layout = Layout {
            key_len: 0,
            table: HEADER,
            value: HEADER,
            value_len,
            chunk: chunk_len(Kind::Alone),
            end: HEADER.saturating_add(value_len),
        };
        Self {
            fingerprint,
            segment: 0,
            layout,
        }
    }

    /// Whether a slot names this record, or one of the same segment with the same bytes. `head` is the record before the
    /// value, or more of it.
    pub(crate) fn is_named_by(&self, slot: &Slot, head: &[u8]) -> bool {
        let check = head.first_chunk().copied().map(u64::from_le_bytes);
        (slot.segment, Some(slot.record)) == (self.segment, check)
    }

    pub(crate) fn key<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        bytes.get(HEADER..HEADER + self.layout.key_len)
    }

    /// How many chunks have to be checked. 0 if the check of the record covers the value.
    pub(crate) fn chunks(&self) -> usize {
        match self.layout.is_chunked() {
            true => self.layout.value_len.div_ceil(self.layout.chunk),
            false => 0,
        }
    }

    /// Whether a chunk is what was written. `bytes` are those of the record.
    pub(crate) fn chunk_is_right(&self, number: usize, bytes: &[u8]) -> bool {
        let value = bytes.get(self.layout.value()).unwrap_or_default();
        let chunk = value.chunks(self.layout.chunk).nth(number);
        chunk.is_some_and(|chunk| self.piece_is_right(number, bytes, chunk))
    }

    /// Whether a chunk is what was written. `head` is the record before the value, or more of it.
    pub(crate) fn piece_is_right(&self, number: usize, head: &[u8], chunk: &[u8]) -> bool {
        let table = head.get(self.layout.table..self.layout.head());
        let Some((checks, _)) = table.map(<[u8]>::as_chunks::<8>) else {
            return false;
        };
        let expected = checks.get(number).copied().map(u64::from_le_bytes);
        expected == Some(chunk_check(self.segment, number, chunk))
    }

    /// Whether a value without chunks is what was written. `head` is the record before the value.
    pub(crate) fn value_is_right(&self, head: &[u8], value: &[u8]) -> bool {
        let Some((check, _)) = head.split_first_chunk() else {
            return false;
        };
        let mut covered = head.get(CHECKED_FROM..).unwrap_or_default().to_vec();
        covered.extend_from_slice(value);
        check::of(&covered) == u64::from_le_bytes(*check)
    }
}

fn chunk_check(segment: u64, number: usize, chunk: &[u8]) -> u64 {
    check::seeded(chunk_seed(segment, number), chunk)
}

fn chunk_seed(segment: u64, number: usize) -> u64 {
    segment.wrapping_add(number as u64)
}

/// The checks of the chunks of a value with a file of its own, whose bytes come one after another.
pub(crate) struct ChunkChecks {
    segment: u64,
    done: Vec<u64>,
    /// Of the chunk that is not complete.
    check: check::Running,
    /// How many bytes of that have come, less than [`CHUNK`](Self::CHUNK).
    filled: usize,
}

impl ChunkChecks {
    const CHUNK: usize = chunk_len(Kind::Alone);

    pub(crate) fn new(segment: u64) -> Self {
        Self {
            segment,
            done: Vec::new(),
            check: check::Running::new(chunk_seed(segment, 0)),
            filled: 0,
        }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let now = bytes.len().min(Self::CHUNK.saturating_sub(self.filled));
            let (part, rest) = bytes.split_at(now);
            self.check.update(part);
            self.filled = self.filled.saturating_add(now);
            if self.filled == Self::CHUNK {
                self.end_chunk();
            }
            bytes = rest;
        }
    }

    fn end_chunk(&mut self) {
        self.done.push(self.check.value());
        self.check = check::Running::new(chunk_seed(self.segment, self.done.len()));
        self.filled = 0;
    }

    /// One for each chunk. The last one may be shorter than the others.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        if self.filled > 0 {
            self.end_chunk();
        }
        self.done
    }
}

/// The bytes of a record before its value, and its check. The last part of the record is the value itself.
pub(crate) fn encode_head(
    layout: &Layout,
    segment: u64,
    fingerprint: u64,
    key: &[u8],
    value: &[u8],
) -> (Vec<u8>, u64) {
    if layout.is_chunked() {
        let chunks = value.chunks(layout.chunk).enumerate();
        let checks = chunks.map(|(number, chunk)| chunk_check(segment, number, chunk));
        return encode_chunked_head(layout, segment, fingerprint, key, checks);
    }
    let mut head = begin_head(layout, segment, fingerprint, key, layout.end);
    head.resize(layout.value, 0);
    head.extend_from_slice(value);
    let check = check::of(head.split_at(CHECKED_FROM).1);
    head.truncate(layout.value);
    head.splice(..8, check.to_le_bytes());
    (head, check)
}

/// Like [`encode_head`], for a value in chunks whose checks are known.
pub(crate) fn encode_chunked_head(
    layout: &Layout,
    segment: u64,
    fingerprint: u64,
    key: &[u8],
    checks: impl Iterator<Item = u64>,
) -> (Vec<u8>, u64) {
    let mut head = begin_head(layout, segment, fingerprint, key, layout.value);
    for check in checks {
        head.extend_from_slice(&check.to_le_bytes());
    }
    let check = check::of(head.split_at(CHECKED_FROM).1);
    head.resize(layout.value, 0);
    head.splice(..8, check.to_le_bytes());
    (head, check)
}

/// The header without its check, and the key.
fn begin_head(
    layout: &Layout,
    segment: u64,
    fingerprint: u64,
    key: &[u8],
    capacity: usize,
) -> Vec<u8> {
    let [a, b, c, d, e, _, _, _] = (layout.value_len as u64).to_le_bytes();
    let wire = Wire {
        check: 0.into(),
        segment: segment.into(),
        fingerprint: fingerprint.into(),
        value_len: [a, b, c, d, e],
        log2_chunk: match layout.is_chunked() {
            // It is a power of two.
            true => layout.chunk.trailing_zeros() as u8,
            // Nobody looks at it, but a brisk that knows no shorter chunks.
            false => log2_chunk(Kind::Alone),
        },
        // `Layout::of` has compared it.
        key_len: (layout.key_len as u16).into(),
    };
    let mut head = Vec::with_capacity(capacity);
    head.extend_from_slice(wire.as_bytes());
    head.extend_from_slice(key);
    head.resize(layout.table, 0);
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_do_not_depend_on_how_a_value_comes() {
        const CHUNK: usize = ChunkChecks::CHUNK;
        let value: Vec<u8> = (0..3 * CHUNK as u32 + 100)
            .map(|n| (n.wrapping_mul(n) >> 3) as u8)
            .collect();
        for len in [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, value.len()] {
            let value = &value[..len];
            let chunks = value.chunks(CHUNK).enumerate();
            let expected: Vec<u64> = chunks.map(|(n, chunk)| chunk_check(7, n, chunk)).collect();
            for step in [1, 100, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
                let mut checks = ChunkChecks::new(7);
                value.chunks(step).for_each(|part| checks.update(part));
                assert_eq!(checks.finish(), expected, "{len} bytes in steps of {step}");
            }
        }
    }

    fn record(kind: Kind, key: &[u8], value: &[u8]) -> (Vec<u8>, u64) {
        let layout = Layout::of(kind, key.len(), value.len() as u64).unwrap();
        let (mut bytes, check) = encode_head(&layout, 42, 7, key, value);
        bytes.extend_from_slice(value);
        (bytes, check)
    }

    fn read<'a>(bytes: &[u8], expected: &Expected<'a>) -> Result<Record, Wrong> {
        Unchecked::parse(bytes, expected)?.check(bytes, expected)
    }

    #[test]
    fn what_is_written_is_read_and_a_wrong_bit_is_found() {
        for (kind, len) in [
            (Kind::Shared, 0),
            (Kind::Shared, 1),
            (Kind::Shared, WHOLE),
            (Kind::Shared, WHOLE + 1),
            (Kind::Alone, 5),
            (Kind::Alone, 2 * WHOLE + 17),
        ] {
            let value: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            let (bytes, check) = record(kind, b"the key", &value);
            let expected = Expected {
                kind,
                segment: 42,
                record: check,
                room: bytes.len(),
                key: Some(b"the key"),
            };
            let record = read(&bytes, &expected).unwrap();
            assert_eq!(record.fingerprint, 7);
            assert_eq!(record.key(&bytes), Some(&b"the key"[..]));
            assert_eq!(bytes[record.layout.value()], value);
            let file_place = record.layout.value + UNIT as usize;
            assert!(kind == Kind::Shared || file_place.is_multiple_of(PAGE as usize));
            let chunks = record.chunks();
            assert_eq!(
                chunks,
                if len > WHOLE {
                    len.div_ceil(record.layout.chunk)
                } else {
                    0
                }
            );
            assert!((0..chunks).all(|number| record.chunk_is_right(number, &bytes)));
            assert!(!record.chunk_is_right(chunks, &bytes));
            // One bit of each byte, and not of the zeros between.
            for at in 0..bytes.len() {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1 << (at % 8);
                let found = match read(&wrong, &expected) {
                    Err(_) => true,
                    Ok(record) if at >= record.layout.value => !record
                        .chunk_is_right((at - record.layout.value) / record.layout.chunk, &wrong),
                    Ok(record) => chunks > 0 && at >= record.layout.head(),
                };
                assert!(found, "length {len}, byte {at}");
            }
        }
    }

    #[test]
    fn another_key_segment_or_record_is_not_the_wanted_one() {
        let (bytes, check) = record(Kind::Shared, b"one", b"value");
        let right = Expected {
            kind: Kind::Shared,
            segment: 42,
            record: check,
            room: bytes.len(),
            key: Some(b"one"),
        };
        assert!(read(&bytes, &right).is_ok());
        let with = |expected: Expected<'_>| read(&bytes, &expected).err();
        assert_eq!(
            with(Expected {
                key: Some(b"two"),
                ..right
            }),
            Some(Wrong::Foreign)
        );
        assert_eq!(
            with(Expected {
                segment: 43,
                ..right
            }),
            Some(Wrong::Damaged)
        );
        assert_eq!(
            with(Expected {
                record: check ^ 1,
                ..right
            }),
            Some(Wrong::Damaged)
        );
        assert_eq!(
            with(Expected {
                room: bytes.len() - 1,
                ..right
            }),
            Some(Wrong::Damaged)
        );
        assert_eq!(
            with(Expected {
                kind: Kind::Alone,
                ..right
            }),
            Some(Wrong::Damaged)
        );
        assert_eq!(
            read(
                &[0; 512],
                &Expected {
                    segment: 0,
                    ..right
                }
            )
            .err(),
            Some(Wrong::Damaged)
        );
    }

    #[test]
    fn lengths_are_bounded() {
        assert!(Layout::of(Kind::Shared, 0, 1).is_none());
        assert!(Layout::of(Kind::Shared, MOST_KEY + 1, 1).is_none());
        assert!(Layout::of(Kind::Alone, MOST_KEY, MOST_VALUE).is_some());
        assert!(Layout::of(Kind::Alone, MOST_KEY, MOST_VALUE + 1).is_none());
    }
}
