//! The answer to the first question of a handle, by a few reads.
//!
//! A mapping takes longer than several reads: to make it, and to touch its first page. So a program that asks for one
//! value gets a copy of it. A program that asks again probably asks more often, and gets mappings.

use brisk_io::ByteSource;

use crate::clock::{Minute, now};
use crate::format::UNIT;
use crate::format::record::{Record, Unchecked, WHOLE};
use crate::format::segment_header::{self, SegmentHeader};
use crate::format::slot::{Kind, Slot};
use crate::index::Found;
use crate::segment::{SegmentFile, expected};
use crate::store::Store;

/// The longest record that is read. A longer one has chunks, and is checked as it is touched.
const LONGEST: usize = WHOLE + 1024;

/// What was found at once.
pub(crate) enum Answer {
    /// A record, when it was written, and its bucket.
    Hit(Record, (Minute, u16)),
    Miss,
}

/// Copies the record of a key into `buf`. None if this was asked before, or if anything is not as usual: then the
/// usual way finds out what it is.
pub(crate) fn look_first(store: &Store, key: &[u8], buf: &mut Vec<u8>) -> Option<Answer> {
    let mut state = store.first_files.begin()?;
    let (found, old_before) = state.kept.index.as_ref()?.find(key).ok()??;
    let slot = match found {
        Found::Slot(_, slot) => slot,
        Found::Nothing => {
            store.counters.absent.add(1);
            return Some(Answer::Miss);
        }
        Found::Torn { .. } => return None,
    };
    let minute = now();
    let room = usize::try_from(u64::from(slot.room) * UNIT).ok()?;
    let is_usual = slot.kind == Kind::Shared
        && room <= LONGEST
        && !store.is_expired(&slot, minute)
        && !store.is_note_due(&slot, minute, || false);
    if !is_usual {
        return None;
    }
    let segment = SegmentFile::open(&store.directory, slot.kind, slot.segment).ok()??;
    let is_old = || segment.is_older_than(old_before);
    let record = match store.is_note_due(&slot, minute, is_old) {
        true => None,
        false => segment.read(&slot, room, key, buf),
    };
    state.kept.segment = Some(segment);
    Some(Answer::Hit(record?, (slot.written, slot.bucket)))
}

impl SegmentFile {
    /// Whether its header says a lower sequence. Before the first eviction, nobody asks the file.
    fn is_older_than(&self, sequence: u64) -> bool {
        let mut header = [0; segment_header::LEN];
        sequence > 0
            && self.file.read_exact_bytes_at(0, &mut header).is_ok()
            && SegmentHeader::parse(&header).is_some_and(|header| header.sequence < sequence)
    }

    /// Reads and checks a record without chunks.
    fn read(&self, slot: &Slot, room: usize, key: &[u8], buf: &mut Vec<u8>) -> Option<Record> {
        buf.clear();
        buf.resize(room, 0);
        let start = u64::from(slot.place).checked_mul(UNIT)?;
        self.file.read_exact_bytes_at(start, buf).ok()?;
        let expected = expected(slot, Some(key), room);
        // The record has the number of its segment, and its check covers that.
        let record = Unchecked::parse(buf, &expected)
            .ok()?
            .check(buf, &expected)
            .ok()?;
        (record.chunks() == 0).then_some(record)
    }
}
