use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use crate::clock::{Minute, time_of};
use crate::format::UNIT;
use crate::format::record::{CHUNK, Record};
use crate::segment::Segment;
use crate::value_parts::ValueParts;

/// A value that was found.
///
/// It stays as it is as long as this lives, even if the entry is replaced, evicted or removed meanwhile. From a cache
/// that was opened by [`Cache::open_mapped`](crate::Cache::open_mapped) it borrows the value from a mapping, and pins
/// nothing but that. Otherwise, and if it is the first answer of a handle, it has a copy.
///
/// A borrowed value of at most 16 KiB was checked when this handle first found it. A longer one is checked in chunks of
/// 16 KiB, when a hit of this handle is first asked for them. If one is damaged, the entry is a miss from then on. A copy
/// was checked as a whole.
pub struct Hit {
    pub(crate) held: Held,
    record: Record,
    written: Minute,
    bucket: u16,
}

/// Where the bytes are.
pub(crate) enum Held {
    /// The record is in a published range of a mapped segment.
    Mapped {
        segment: Arc<Segment>,
        start: u64,
        room: usize,
    },
    /// The record.
    Copied(Vec<u8>),
    /// The value without its record, which could not be stored.
    Unstored(Vec<u8>),
}

impl Hit {
    #[inline]
    pub(crate) fn mapped(
        segment: Arc<Segment>,
        (start, room): (u64, usize),
        record: Record,
        (written, bucket): (Minute, u16),
    ) -> Self {
        Self {
            held: Held::Mapped {
                segment,
                start,
                room,
            },
            record,
            written,
            bucket,
        }
    }

    pub(crate) fn copied(bytes: Vec<u8>, record: Record, (written, bucket): (Minute, u16)) -> Self {
        Self {
            held: Held::Copied(bytes),
            record,
            written,
            bucket,
        }
    }

    pub(crate) fn unstored(
        value: Vec<u8>,
        record: Record,
        (written, bucket): (Minute, u16),
    ) -> Self {
        Self {
            held: Held::Unstored(value),
            record,
            written,
            bucket,
        }
    }

    #[inline]
    fn record_bytes(&self) -> &[u8] {
        match &self.held {
            Held::Mapped {
                segment,
                start,
                room,
            } => segment.published(*start, *room).unwrap_or_default(),
            Held::Copied(bytes) => bytes,
            Held::Unstored(_) => &[],
        }
    }

    #[inline]
    fn unchecked(&self) -> &[u8] {
        match &self.held {
            Held::Unstored(value) => value,
            _ => self
                .record_bytes()
                .get(self.record.layout.value())
                .unwrap_or_default(),
        }
    }

    /// Where the value is in its record.
    #[cfg(any(feature = "bytes", feature = "rkyv"))]
    pub(crate) fn value_range(&self) -> Range<usize> {
        self.record.layout.value()
    }

    /// The number of bytes of the value.
    #[inline]
    pub fn len(&self) -> usize {
        self.record.layout.value_len
    }

    /// Whether the value has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The fingerprint with which the value was inserted.
    pub fn fingerprint(&self) -> u64 {
        self.record.fingerprint
    }

    /// The bucket in which it was inserted.
    pub fn bucket(&self) -> u16 {
        self.bucket
    }

    /// When it was inserted, to the minute.
    pub fn written(&self) -> SystemTime {
        time_of(self.written)
    }

    /// Whether the value is borrowed from a mapping.
    pub fn is_mapped(&self) -> bool {
        matches!(self.held, Held::Mapped { .. })
    }

    /// The value. Checks what was not checked yet.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`].
    #[inline]
    pub fn bytes(&self) -> io::Result<&[u8]> {
        self.parts().all()
    }

    /// A part of the value. Each chunk of 16 KiB that it touches is checked once.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if a chunk is not what was inserted. [`io::ErrorKind::UnexpectedEof`] if a page cannot
    /// be read, after [`guard_mappings`](brisk_io::guard_mappings). After both, the entry is a miss for its handle, so
    /// [`Cache::get_or_insert_with`](crate::Cache::get_or_insert_with) fetches the value again.
    /// [`io::ErrorKind::InvalidInput`] if the value has no such part.
    pub fn part(&self, part: Range<usize>) -> io::Result<&[u8]> {
        self.parts().part(part.clone())?.ok_or_else(|| {
            let (from, to, len) = (part.start, part.end, self.len());
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("bytes {from} to {to} of a value of {len}; ask for a part of it"),
            )
        })
    }

    /// The value, to be checked where it is looked at.
    #[inline]
    pub fn parts(&self) -> ValueParts<'_> {
        ValueParts::of(self.unchecked(), self)
    }

    /// Checks the chunks of a part of the value that were not checked yet.
    #[inline]
    pub(crate) fn check(&self, part: &Range<usize>) -> io::Result<()> {
        let Held::Mapped { segment, start, .. } = &self.held else {
            return Ok(());
        };
        if self.record.chunks() == 0 || part.is_empty() {
            return Ok(());
        }
        let value_at = start.saturating_add(self.record.layout.value as u64);
        for number in part.start / CHUNK..part.end.div_ceil(CHUNK) {
            let mark = segment.verified.chunk(value_at, number);
            if !segment.verified.has(mark) {
                let checked = self.check_chunk(segment, number);
                if checked.is_err()
                    && let Ok(place) = u32::try_from(start / UNIT)
                {
                    // The next look-up finds nothing, so that somebody fetches the value again.
                    segment
                        .verified
                        .note_failure(segment.verified.record(place));
                }
                checked?;
                segment.verified.note(mark);
            }
        }
        Ok(())
    }

    #[cold]
    fn check_chunk(&self, segment: &Segment, number: usize) -> io::Result<()> {
        let right = self.record.chunk_is_right(number, self.record_bytes());
        // Zeros in place of an unreadable page are no damage of the entry.
        segment.check_pages()?;
        if right {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "bytes {} to {} of the cached value differ from their check, allowed is what was inserted; insert the \
                 value again",
                number * CHUNK,
                self.len().min((number + 1) * CHUNK)
            ),
        ))
    }

    /// A copy of the value.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`].
    pub fn to_vec(&self) -> io::Result<Vec<u8>> {
        self.bytes().map(<[u8]>::to_vec)
    }

    /// Says whether every page that was borrowed so far could be read. Only useful after
    /// [`guard_mappings`](brisk_io::guard_mappings), and after the last use of what was borrowed.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if a page could not be read, and zeros were used instead.
    pub fn check_pages(&self) -> io::Result<()> {
        match &self.held {
            Held::Mapped { segment, .. } => segment.check_pages(),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hit")
            .field("len", &self.len())
            .field("fingerprint", &self.fingerprint())
            .field("bucket", &self.bucket)
            .field("is_mapped", &self.is_mapped())
            .finish_non_exhaustive()
    }
}
