use std::fs::File;
use std::io;
use std::ops::Range;

use crate::format::UNIT;
use crate::format::record::{Record, Wrong};
use crate::format::slot::{Kind, Slot};
use crate::lookup::{Patience, look_up};
use crate::segment::Segment;
use crate::store::Store;

/// A value that has a file of its own, and the checks of its pieces. The value is not checked yet.
#[derive(Debug)]
pub(crate) struct ValueFile {
    pub(crate) file: File,
    /// Where the value is. It begins at a multiple of 64 KiB.
    pub(crate) value: Range<u64>,
    pub(crate) fingerprint: u64,
    pub(crate) checks: Checks,
}

/// What the pieces of a value must be.
#[derive(Debug)]
pub(crate) struct Checks {
    record: Record,
    /// The record before the value.
    head: Vec<u8>,
}

impl Checks {
    /// How many pieces the value has, at least one.
    pub(crate) fn pieces(&self) -> usize {
        self.record.chunks().max(1)
    }

    /// Where a piece is in a value of this length.
    pub(crate) fn piece(&self, number: usize, len: usize) -> Range<usize> {
        let size = match self.record.chunks() {
            0 => len,
            _ => self.record.layout.chunk,
        };
        let start = number.saturating_mul(size).min(len);
        start..start.saturating_add(size).min(len)
    }

    /// The numbers of the pieces that a part of the value touches.
    pub(crate) fn touched(&self, part: &Range<usize>) -> Range<usize> {
        match self.record.chunks() {
            0 => 0..usize::from(!part.is_empty()),
            _ => self.record.layout.touched(part),
        }
    }

    /// Whether a piece is what was inserted.
    pub(crate) fn is_right(&self, number: usize, piece: &[u8]) -> bool {
        match self.record.chunks() {
            0 => number == 0 && self.record.value_is_right(&self.head, piece),
            _ => self.record.piece_is_right(number, &self.head, piece),
        }
    }
}

impl Segment {
    /// The value of a slot, if it has this file to itself and the handle borrows nothing from it.
    fn value_file(&self, slot: &Slot, key: &[u8]) -> io::Result<Result<ValueFile, Wrong>> {
        let (Kind::Alone, Some(file)) = (slot.kind, self.file()) else {
            return Ok(Err(Wrong::Damaged));
        };
        let (record, mut head) = match self.head(slot, Some(key))? {
            Ok(head) => head,
            Err(wrong) => return Ok(Err(wrong)),
        };
        // That of a short record has the value, too.
        head.truncate(record.layout.value);
        let start = u64::from(slot.place)
            .saturating_mul(UNIT)
            .saturating_add(record.layout.value as u64);
        Ok(Ok(ValueFile {
            file: file.try_clone()?,
            value: start..start.saturating_add(record.layout.value_len as u64),
            fingerprint: record.fingerprint,
            checks: Checks { record, head },
        }))
    }
}

/// Looks for the file of a value, which has one to itself. Its head is checked, and the value is not.
pub(crate) fn value_file(store: &Store, key: &[u8]) -> io::Result<Option<ValueFile>> {
    let mut number = None;
    let found = look_up(store, key, Patience::Wait, |segment, slot| {
        number = Some(slot.segment);
        segment.value_file(slot, key)
    });
    // Its descriptor would stay open as long as this handle.
    if let Some(number) = number {
        store.process()?.view_mut().forget(number);
    }
    found
}
