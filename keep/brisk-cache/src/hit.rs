use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use brisk_io::ByteSource;

use crate::clock::{Minute, time_of};
use crate::format::UNIT;
use crate::format::record::Record;
use crate::segment::Segment;
use crate::value_parts::ValueParts;

/// A value that was found.
///
/// It stays as it is as long as this lives, even if the entry is replaced, evicted or removed meanwhile. From a cache
/// that was opened by [`Cache::open_mapped`](crate::Cache::open_mapped) it borrows the value from a mapping, and pins
/// nothing but that. Otherwise, and if it is the first answer of a handle, it has a copy.
///
/// | value | checked |
/// |---|---|
/// | a copy | as a whole, before |
/// | borrowed, at most 16 KiB | when this handle first found it |
/// | borrowed, longer | in chunks of 1 KiB (4 KiB from about 1 MiB on), each when this handle is first asked for it |
/// | [unread](crate::Cache::get_unread) | in such chunks, each time it is asked for them |
///
/// A damaged chunk is an error, and the entry is a miss from then on.
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
    /// A record of which only the bytes before the value were read. In a box, because a hit of another kind would
    /// otherwise have its size.
    Unread(Box<Unread>),
}

/// A long value that is read from its file where it is asked for.
pub(crate) struct Unread {
    segment: Arc<Segment>,
    start: u64,
    head: Vec<u8>,
    /// The value, if all of it was asked for.
    whole: OnceLock<Vec<u8>>,
}

// A hit is moved several times. More bytes are moved by a call.
const _: () = assert!(size_of::<Hit>() <= 128);

/// A part of a value, in the file that has it.
///
/// The file stays open as long as this lives, and the part stays as it is.
pub struct FilePart {
    file: Arc<File>,
    offset: u64,
    len: usize,
}

impl FilePart {
    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where the part begins in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for FilePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilePart")
            .field("offset", &self.offset)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Hit {
    pub(crate) fn unread(
        segment: Arc<Segment>,
        start: u64,
        (record, head): (Record, Vec<u8>),
        (written, bucket): (Minute, u16),
    ) -> Self {
        Self {
            held: Held::Unread(Box::new(Unread {
                segment,
                start,
                head,
                whole: OnceLock::new(),
            })),
            record,
            written,
            bucket,
        }
    }

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

    /// The record, and its first bytes.
    pub(crate) fn record(&self) -> (&Record, &[u8]) {
        let head = match &self.held {
            Held::Unread(unread) => &unread.head,
            _ => self.record_bytes(),
        };
        (&self.record, head)
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
            Held::Unstored(_) | Held::Unread(_) => &[],
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

    /// A part of the value. Each chunk that it touches is checked once.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if a chunk is not what was inserted. [`io::ErrorKind::UnexpectedEof`] if a page cannot
    /// be read, after [`guard_mappings`](brisk_io::guard_mappings). After both, the entry is a miss for its handle, so
    /// [`Cache::get_or_insert_with`](crate::Cache::get_or_insert_with) fetches the value again.
    /// [`io::ErrorKind::InvalidInput`] if the value has no such part.
    pub fn part(&self, part: Range<usize>) -> io::Result<&[u8]> {
        self.check_bounds(&part)?;
        Ok(self.parts().part(part)?.unwrap_or_default())
    }

    /// Refuses a part that the value does not have.
    pub(crate) fn check_bounds(&self, part: &Range<usize>) -> io::Result<()> {
        let (from, to, len) = (part.start, part.end, self.len());
        if from <= to && to <= len {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("bytes {from} to {to} of a value of {len}; ask for a part of it"),
        ))
    }

    /// The chunks that a part of an unread value touches, which are read and checked, and where the part is in them.
    pub(crate) fn read_chunks(
        &self,
        unread: &Unread,
        part: &Range<usize>,
    ) -> io::Result<(Vec<u8>, Range<usize>)> {
        let size = self.record.layout.chunk;
        let first = part.start / size;
        let start = (first * size).min(self.len());
        let end = part.end.next_multiple_of(size).min(self.len());
        let mut bytes = vec![0; end.saturating_sub(start)];
        unread.read(unread.value_at(&self.record) + start as u64, &mut bytes)?;
        for (number, chunk) in (first..).zip(bytes.chunks(size)) {
            if !self.record.piece_is_right(number, &unread.head, chunk) {
                return Err(self.damaged(number));
            }
        }
        Ok((bytes, part.start - start..part.end - start))
    }

    /// All of an unread value.
    pub(crate) fn whole<'a>(&self, unread: &'a Unread) -> io::Result<&'a [u8]> {
        if let Some(whole) = unread.whole.get() {
            return Ok(whole);
        }
        let (bytes, _) = self.read_chunks(unread, &(0..self.len()))?;
        Ok(unread.whole.get_or_init(|| bytes))
    }

    /// A part of the value as a part of a file, to be given to another descriptor without a look at it (`sendfile`).
    /// None if this hit has a copy of the value or borrows it, and on filesystems that are not known to be local ones.
    ///
    /// Each chunk that the part touches is checked once in each handle, as for a borrowed value. What is in the
    /// file afterwards is as good as the promise of [`Cache::open_mapped`](crate::Cache::open_mapped), but nothing in this
    /// process depends on it.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`].
    pub fn part_in_file(&self, part: Range<usize>) -> io::Result<Option<FilePart>> {
        let Held::Unread(unread) = &self.held else {
            return Ok(None);
        };
        let Some(file) = unread.segment.copied_file() else {
            return Ok(None);
        };
        self.check_bounds(&part)?;
        let value_at = unread.value_at(&self.record);
        let mut chunk = Vec::new();
        let layout = &self.record.layout;
        for number in layout.touched(&part) {
            let mark = unread.segment.verified.chunk(layout, value_at, number);
            if unread.segment.verified.has(mark) {
                continue;
            }
            let start = number * layout.chunk;
            chunk.resize((self.len() - start).min(layout.chunk), 0);
            unread.read(value_at + start as u64, &mut chunk)?;
            if !self.record.piece_is_right(number, &unread.head, &chunk) {
                return Err(self.damaged(number));
            }
            unread.segment.verified.note(mark);
        }
        Ok(Some(FilePart {
            file: Arc::clone(file),
            offset: value_at + part.start as u64,
            len: part.len(),
        }))
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
        let layout = &self.record.layout;
        for number in layout.touched(part) {
            let mark = segment.verified.chunk(layout, value_at, number);
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
        Err(self.damaged(number))
    }

    fn damaged(&self, number: usize) -> io::Error {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "bytes {} to {} of the cached value differ from their check, allowed is what was inserted; insert the \
                 value again",
                number * self.record.layout.chunk,
                self.len().min((number + 1) * self.record.layout.chunk)
            ),
        )
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
            Held::Unread(unread) => unread.segment.check_pages(),
            _ => Ok(()),
        }
    }
}

impl Unread {
    fn value_at(&self, record: &Record) -> u64 {
        self.start.saturating_add(record.layout.value as u64)
    }

    /// By a call, which adds nothing to the memory of this process.
    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self.segment.file() {
            Some(file) => file.read_exact_bytes_at(at, bytes),
            None => self.segment.read_exact_at(at, bytes),
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
