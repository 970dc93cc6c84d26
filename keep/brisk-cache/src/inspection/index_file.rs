//! The index of a cache, read by somebody who trusts no slot.

use std::fs::File;
use std::io;
use std::thread;
use std::time::Duration;

use brisk_io::ByteSource;

use crate::directory::FileId;
use crate::format::fault::Fault;
use crate::format::index_header::{self, BLOCK, IndexHeader, MARK_AT, SLOTS_AT};
use crate::format::slot::{self, Slot};

/// How often a slot that is not right is read again: it may be being written.
pub(super) const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct IndexFile {
    pub(super) file: File,
    pub(super) id: FileId,
    pub(super) header: IndexHeader,
}

/// What is at the place of a slot.
#[derive(Debug)]
pub(super) enum AtSlot {
    Slot(Slot),
    Damaged(Fault),
}

/// What an index says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexMark {
    /// There is no other.
    Current,
    /// It is being replaced, or the process that was replacing it was killed.
    Moving,
    /// There is another.
    Replaced,
    /// Something else, which readers take for one of the last two.
    Unknown,
}

impl IndexMark {
    /// A name for programs, such as `current`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Moving => "moving",
            Self::Replaced => "replaced",
            Self::Unknown => "unknown",
        }
    }
}

impl IndexFile {
    pub(super) fn mark(&self) -> io::Result<IndexMark> {
        let mut mark = [0; 8];
        self.file.read_exact_bytes_at(MARK_AT, &mut mark)?;
        Ok(match mark {
            index_header::CURRENT => IndexMark::Current,
            index_header::MOVING => IndexMark::Moving,
            index_header::REPLACED => IndexMark::Replaced,
            _ => IndexMark::Unknown,
        })
    }

    /// Shows each place of a slot that is not free.
    pub(super) fn each_slot(
        &self,
        mut visit: impl FnMut(u64, AtSlot) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut block = vec![0; BLOCK as usize];
        for number in 0..self.header.blocks {
            let start = SLOTS_AT + u64::from(number) * BLOCK;
            self.file.read_exact_bytes_at(start, &mut block)?;
            let (slots, _) = block.as_chunks::<{ slot::LEN }>();
            for (at, bytes) in (start..).step_by(slot::LEN).zip(slots) {
                if *bytes != slot::FREE
                    && let Some(found) = self.at_slot(at, *bytes)?
                {
                    visit(at, found)?;
                }
            }
        }
        Ok(())
    }

    /// What is at this place of the index, where these bytes were. None if it is free.
    pub(super) fn at_slot(
        &self,
        at: u64,
        mut bytes: [u8; slot::LEN],
    ) -> io::Result<Option<AtSlot>> {
        let seed = self.header.seed;
        for tried in 1.. {
            if let Some(slot) = Slot::parse(seed, &bytes) {
                return Ok(Some(AtSlot::Slot(slot)));
            }
            let Some(fault) = Fault::of_slot(seed, &bytes) else {
                return Ok(None);
            };
            if tried == TRIES {
                return Ok(Some(AtSlot::Damaged(fault)));
            }
            thread::sleep(PAUSE);
            self.file.read_exact_bytes_at(at, &mut bytes)?;
        }
        Ok(None)
    }

    /// The bytes at the place of a slot.
    pub(super) fn slot_bytes(&self, at: u64) -> io::Result<[u8; slot::LEN]> {
        let mut bytes = [0; slot::LEN];
        self.file.read_exact_bytes_at(at, &mut bytes)?;
        Ok(bytes)
    }
}
