use std::fs::File;
use std::io;
use std::sync::Arc;

use brisk_io::{AppendOnlyMapping, ByteSource, Mapping};
use rustix::fs::OFlags;

use crate::directory::{Directory, segment_name, value_name};
use crate::format::UNIT;
use crate::format::record::{Expected, HEADER, Record, Unchecked, Wrong, key_len};
use crate::format::segment_header::{self, SegmentHeader};
use crate::format::slot::{Kind, Slot};
use crate::promise::Promise;
use crate::source::Source;
use crate::verified::Verified;

/// The first length of a file with many records. It doubles.
pub(crate) const FIRST_LEN: u64 = 1 << 20;

/// A file with records, as long as it was when this was made.
#[derive(Debug)]
pub(crate) struct Segment {
    source: Source,
    /// Of a mapping that is copied from: long values are read from it.
    file: Option<Arc<File>>,
    len: u64,
    pub(crate) header: SegmentHeader,
    pub(crate) verified: Verified,
}

/// How a handle reads files.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reading {
    /// It borrows from mappings.
    Borrowed(Promise),
    /// It copies from mappings.
    Copied,
    /// It reads files.
    Read,
}

impl Reading {
    pub(crate) fn is_mapped(self) -> bool {
        !matches!(self, Self::Read)
    }
}

pub(crate) fn file_name(kind: Kind, number: u64) -> String {
    match kind {
        Kind::Shared => segment_name(number),
        Kind::Alone => value_name(number),
    }
}

/// A file with records, in a list of the oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Aged {
    /// 0 if the file does not say.
    pub(crate) sequence: u64,
    pub(crate) number: u64,
    pub(crate) len: u64,
    pub(crate) alone: bool,
}

impl Aged {
    pub(crate) fn kind(&self) -> Kind {
        match self.alone {
            true => Kind::Alone,
            false => Kind::Shared,
        }
    }
}

/// The file of a segment. Nothing of it was read yet.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) file: File,
    len: u64,
    kind: Kind,
    number: u64,
}

impl SegmentFile {
    pub(crate) fn of(file: File, len: u64, kind: Kind, number: u64) -> Self {
        Self {
            file,
            len,
            kind,
            number,
        }
    }

    /// None if there is no such file.
    pub(crate) fn open(directory: &Directory, kind: Kind, number: u64) -> io::Result<Option<Self>> {
        let opened = directory.file(&file_name(kind, number), OFlags::RDONLY)?;
        Ok(opened.map(|(file, stat)| {
            let len = u64::try_from(stat.st_size).unwrap_or(0);
            Self::of(file, len, kind, number)
        }))
    }

    /// Whether it is the file that a slot names, and had the record when it was opened.
    pub(crate) fn has(&self, slot: &Slot) -> bool {
        (self.kind, self.number) == (slot.kind, slot.segment) && range(slot, self.len).is_some()
    }
}

impl Segment {
    /// None if there is no such file, or if it is not what its name says.
    pub(crate) fn open(
        directory: &Directory,
        kind: Kind,
        number: u64,
        reading: Reading,
    ) -> io::Result<Option<Self>> {
        let opened = SegmentFile::open(directory, kind, number)?;
        opened.map_or(Ok(None), |opened| Self::of_file(opened, reading))
    }

    pub(crate) fn of_file(opened: SegmentFile, reading: Reading) -> io::Result<Option<Self>> {
        let SegmentFile {
            file,
            len,
            kind,
            number,
        } = opened;
        if len < segment_header::LEN as u64 {
            return Ok(None);
        }
        // By a call, because a touch of the mapping would take longer.
        let mut header = [0; segment_header::LEN];
        file.read_exact_bytes_at(0, &mut header)?;
        let (source, file) = match reading {
            Reading::Borrowed(promise) => {
                let file = promise.append_only(file);
                let mapping = AppendOnlyMapping::within(&file, 0..len, len)?;
                (Source::Published(mapping), None)
            }
            Reading::Copied => {
                let mapping = Mapping::within(&file, 0..len, len)?;
                (Source::Copied(mapping), Some(Arc::new(file)))
            }
            Reading::Read => (Source::Read(file), None),
        };
        let len = source.size()?;
        let header = SegmentHeader::parse(&header);
        let right = header.filter(|header| header.number == number && header.kind == kind);
        Ok(right.map(|header| Self {
            source,
            file,
            len,
            header,
            verified: Verified::new(kind, len),
        }))
    }

    /// Where the record of a slot is. None if this does not reach that far.
    #[inline]
    pub(crate) fn range(&self, slot: &Slot) -> Option<(u64, usize)> {
        range(slot, self.len)
    }

    /// The bytes of a published range, if they can be borrowed.
    #[inline]
    pub(crate) fn published(&self, start: u64, len: usize) -> Option<&[u8]> {
        let Source::Published(mapping) = &self.source else {
            return None;
        };
        let start = usize::try_from(start).ok()?;
        mapping.published(start..start.checked_add(len)?)
    }

    /// Takes the pages of its mapping out of the page table.
    pub(crate) fn release(&self) -> io::Result<()> {
        self.source.release()
    }

    /// Whether every page that was touched so far could be read.
    pub(crate) fn check_pages(&self) -> io::Result<()> {
        match &self.source {
            Source::Published(mapping) => mapping.check(),
            Source::Copied(mapping) => mapping.check(),
            Source::Read(_) => Ok(()),
        }
    }

    /// The key of the first record, which may be damaged: the caller compares what it finds by it.
    pub(crate) fn key_of_first(&self) -> io::Result<Option<Vec<u8>>> {
        let mut header = [0; HEADER];
        match self.source.read_exact_bytes_at(UNIT, &mut header) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e),
        }
        let mut key = vec![0; key_len(&header)];
        match self
            .source
            .read_exact_bytes_at(UNIT + HEADER as u64, &mut key)
        {
            Ok(()) => Ok(Some(key)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn read_exact_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.source.read_exact_bytes_at(at, buf)
    }

    /// The record of a slot, and its bytes as far as its check covers them: all before the value, or with the value.
    pub(crate) fn head(
        &self,
        slot: &Slot,
        key: Option<&[u8]>,
    ) -> io::Result<Result<(Record, Vec<u8>), Wrong>> {
        let Some((start, room)) = self.range(slot).filter(|&(_, room)| room >= HEADER) else {
            return Ok(Err(Wrong::Damaged));
        };
        let expected = expected(slot, key, room);
        let mut header = [0; HEADER];
        self.source.read_exact_bytes_at(start, &mut header)?;
        let unchecked = match Unchecked::parse(&header, &expected) {
            Ok(unchecked) => unchecked,
            Err(wrong) => return Ok(Err(wrong)),
        };
        let mut head = vec![0; unchecked.layout().head()];
        self.source.read_exact_bytes_at(start, &mut head)?;
        Ok(unchecked
            .check(&head, &expected)
            .map(|record| (record, head)))
    }

    /// The file, if nothing is borrowed from it.
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.source {
            Source::Read(file) => Some(file),
            _ => self.file.as_deref(),
        }
    }

    /// The file, if it is mapped and nothing is borrowed from it.
    pub(crate) fn copied_file(&self) -> Option<&Arc<File>> {
        self.file.as_ref()
    }

    /// Copies the record of a slot into `buf`, whose former contents go, and checks all of it.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub(crate) fn copy(
        &self,
        slot: &Slot,
        key: Option<&[u8]>,
        buf: &mut Vec<u8>,
    ) -> io::Result<Result<Record, Wrong>> {
        let Some((start, room)) = self.range(slot) else {
            return Ok(Err(Wrong::Damaged));
        };
        let expected = expected(slot, key, room);
        let mut header = [0; HEADER];
        if room < HEADER {
            return Ok(Err(Wrong::Damaged));
        }
        self.source.read_exact_bytes_at(start, &mut header)?;
        let unchecked = match Unchecked::parse(&header, &expected) {
            Ok(unchecked) => unchecked,
            Err(wrong) => return Ok(Err(wrong)),
        };
        let needed = unchecked.layout().value().end;
        // A length that comes from a file may be too much for this machine.
        buf.clear();
        buf.try_reserve(needed)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        buf.resize(needed, 0);
        self.source.read_exact_bytes_at(start, buf)?;
        let record = match Unchecked::parse(buf, &expected) {
            Ok(again) => again.check(buf, &expected),
            Err(wrong) => Err(wrong),
        };
        Ok(record.and_then(|record| {
            let right = (0..record.chunks()).all(|number| record.chunk_is_right(number, buf));
            right.then_some(record).ok_or(Wrong::Damaged)
        }))
    }
}

/// Where the record of a slot is in a file of this length. None if it does not reach that far.
#[inline]
fn range(slot: &Slot, len: u64) -> Option<(u64, usize)> {
    let start = u64::from(slot.place).checked_mul(UNIT)?;
    let room = u64::from(slot.room).checked_mul(UNIT)?;
    let fits = start.checked_add(room).is_some_and(|end| end <= len);
    fits.then_some((start, usize::try_from(room).ok()?))
}

/// What a slot says about its record.
#[inline]
pub(crate) fn expected<'a>(slot: &Slot, key: Option<&'a [u8]>, room: usize) -> Expected<'a> {
    Expected {
        kind: slot.kind,
        segment: slot.segment,
        record: slot.record,
        room,
        key,
    }
}
