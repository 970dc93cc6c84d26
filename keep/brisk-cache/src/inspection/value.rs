//! A record, checked piece by piece with little memory.

use std::io;

use super::damage::Damage;
use crate::format::UNIT;
use crate::format::fault::Fault;
use crate::format::record::{CHECKED_FROM, HEADER, Record, Unchecked};
use crate::format::slot::Slot;
use crate::segment::{Segment, expected, file_name};

/// The first bytes of a record that passed their check: without its value, if that has chunks.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) record: Record,
    /// Where the record begins in its file.
    start: u64,
    bytes: Vec<u8>,
}

impl Head {
    pub(super) fn key(&self) -> &[u8] {
        self.record.key(&self.bytes).unwrap_or_default()
    }

    /// Where the value begins in its file.
    pub(super) fn value_at(&self) -> u64 {
        self.start.saturating_add(self.record.layout.value as u64)
    }
}

/// The head of the record of a slot.
pub(super) fn head_of(segment: &Segment, slot: &Slot) -> io::Result<Result<Head, Damage>> {
    let name = file_name(slot.kind, slot.segment);
    let start = u64::from(slot.place) * UNIT;
    let too_short = |end: u64| {
        let allowed = format_args!("at least {end}, where a record ends");
        let fault = Fault::new(0, "the file's length", segment.len(), allowed);
        Ok(Err(Damage::new(&name, start, fault)))
    };
    let Some((start, room)) = segment.range(slot) else {
        return too_short(start.saturating_add(u64::from(slot.room) * UNIT));
    };
    let expected = expected(slot, None, room);
    let mut header = [0; HEADER];
    if room < HEADER {
        let fault = Fault::new(0, "room", room, format_args!("at least {HEADER}"));
        return Ok(Err(Damage::new(&name, start, fault)));
    }
    let read = |at, buf: &mut [u8]| match segment.read_exact_at(at, buf) {
        Ok(()) => Ok(true),
        // Somebody has cut it just now.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    };
    if !read(start, &mut header)? {
        return too_short(start.saturating_add(HEADER as u64));
    }
    if let Some(fault) = Fault::of_record(&header, &expected) {
        return Ok(Err(Damage::of(&name, start, &fault)));
    }
    let changed = || {
        let message = "the record changes while it is read, allowed is none that does";
        Ok(Err(Damage::new(&name, start, message)))
    };
    let Ok(unchecked) = Unchecked::parse(&header, &expected) else {
        return changed();
    };
    let mut bytes = vec![0; unchecked.layout().head()];
    if !read(start, &mut bytes)? {
        return too_short(start.saturating_add(bytes.len() as u64));
    }
    let covered = bytes.get(CHECKED_FROM..).unwrap_or_default();
    if let Some(fault) = Fault::of_record_check(covered, slot.record) {
        return Ok(Err(Damage::of(&name, start, &fault)));
    }
    match Unchecked::parse(&bytes, &expected).and_then(|again| again.check(&bytes, &expected)) {
        Ok(record) => Ok(Ok(Head {
            record,
            start,
            bytes,
        })),
        Err(_) => changed(),
    }
}

/// Reads the value of a record, checks each chunk, and then shows it.
pub(super) fn each_chunk(
    segment: &Segment,
    slot: &Slot,
    head: &Head,
    mut show: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Result<(), Damage>> {
    let layout = &head.record.layout;
    if head.record.chunks() == 0 {
        show(head.bytes.get(layout.value()).unwrap_or_default())?;
        return Ok(Ok(()));
    }
    let mut chunk = vec![0; layout.chunk];
    for number in 0..head.record.chunks() {
        let from = number * layout.chunk;
        let len = layout.value_len.saturating_sub(from).min(layout.chunk);
        let at = head.value_at().saturating_add(from as u64);
        let chunk = chunk.get_mut(..len).unwrap_or_default();
        let read = segment.read_exact_at(at, chunk);
        match read {
            Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => return Err(e),
            read if read.is_err() || !head.record.piece_is_right(number, &head.bytes, chunk) => {
                let name = file_name(slot.kind, slot.segment);
                let message = format!(
                    "chunk {number} of the value differs from its check, allowed is what was written"
                );
                return Ok(Err(Damage::new(&name, at, message)));
            }
            _ => show(chunk)?,
        }
    }
    Ok(Ok(()))
}
