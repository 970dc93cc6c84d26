//! Counting what is there, and removing what killed writers have left.

use std::collections::HashSet;
use std::io;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::directory::{Name, unfinished_name};
use crate::format::UNIT;
use crate::format::ledger_state::LedgerState;
use crate::format::record::HEADER;
use crate::format::segment_header::{self, SegmentHeader};
use crate::format::slot::{BUCKETS, Kind};
use crate::index::Index;
use crate::segment::file_name;
use crate::writer::{Locked, Total};

/// The entries of each bucket.
pub(crate) fn totals_of(index: &Index) -> io::Result<Vec<Total>> {
    let mut totals = vec![Total::default(); usize::from(BUCKETS)];
    for number in 0..index.header.blocks {
        for (_, slot) in index.block(number)? {
            if let Some(total) = totals.get_mut(usize::from(slot.bucket)) {
                total.entries += 1;
                total.bytes += u64::from(slot.room) * UNIT;
            }
        }
    }
    Ok(totals)
}

/// A file with records.
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

impl Locked<'_> {
    /// Begins a ledger from what is in the directory. No segment is active, because nobody can say where one ends.
    pub(crate) fn recover(&mut self) -> io::Result<()> {
        self.state = LedgerState {
            home: self.home(),
            durable: self.state.durable,
            ..LedgerState::default()
        };
        self.remove_unnamed()?;
        let totals = totals_of(&self.index)?;
        // From here on, the ledger is as long as it will be, and is counted.
        self.save_totals(&totals)?;
        let files = self.files()?;
        let last = files.iter().map(|file| file.sequence).max();
        self.state.sequence = last.map_or(1, |last| last.saturating_add(1));
        self.save()
    }

    /// Tidies up behind a writer that did not come to its end.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        if self.state.durable {
            // Its copies of records may not be on the disk, and their first places may go now. Their slots follow.
            self.sync_active()?;
        }
        self.remove_unnamed()?;
        self.files()?;
        let totals = totals_of(&self.index)?;
        self.save_totals(&totals)?;
        self.end_files()
    }

    /// Removes the files with records that no slot names, but not the one that is appended to.
    fn remove_unnamed(&self) -> io::Result<()> {
        if self.state.durable {
            // The slots that named them may still be on the disk.
            self.sync_index()?;
        }
        let mut named = HashSet::from([self.state.active]);
        for number in 0..self.index.header.blocks {
            let slots = self.index.block(number)?;
            named.extend(slots.into_iter().map(|(_, slot)| slot.segment));
        }
        for listed in self.store.directory.list()? {
            let (number, name) = match listed.name {
                Name::Segment(number) => (number, file_name(Kind::Shared, number)),
                Name::Value(number) => (number, file_name(Kind::Alone, number)),
                Name::Unfinished(_) | Name::Index | Name::Small => continue,
            };
            if !named.contains(&number) {
                self.store.disk.remove(&self.store.directory, &name)?;
            }
        }
        Ok(())
    }

    /// The files with records, oldest first. Counts the bytes of all files, and removes those that nobody writes any
    /// more.
    pub(crate) fn files(&mut self) -> io::Result<Vec<Aged>> {
        let mut files = Vec::new();
        let mut bytes = 0u64;
        for listed in self.store.directory.list()? {
            let aged = |number, alone| Aged {
                sequence: self.sequence_of(number, alone),
                number,
                len: listed.len,
                alone,
            };
            match listed.name {
                Name::Segment(number) => files.push(aged(number, false)),
                Name::Value(number) => files.push(aged(number, true)),
                Name::Unfinished(number) if self.remove_if_left(&unfinished_name(number))? => {
                    continue;
                }
                Name::Unfinished(_) | Name::Index | Name::Small => {}
            }
            bytes = bytes.saturating_add(listed.len);
        }
        self.state.bytes = bytes;
        files.sort_unstable();
        Ok(files)
    }

    /// When the file was begun. 0 if its header does not say: then it goes first.
    fn sequence_of(&self, number: u64, alone: bool) -> u64 {
        let kind = if alone { Kind::Alone } else { Kind::Shared };
        let opened = self
            .store
            .directory
            .file(&file_name(kind, number), OFlags::RDONLY);
        let mut header = [0; segment_header::LEN];
        let read = opened.ok().flatten().is_some_and(|(file, _)| {
            brisk_io::ReadAt::read_exact_at(&file, 0, &mut header).is_ok()
        });
        let header = SegmentHeader::parse(&header).filter(|_| read);
        header.map_or(0, |header| header.sequence)
    }

    /// Removes an unfinished file if nobody has its lock. Returns whether it is gone.
    pub(crate) fn remove_if_left(&self, name: &str) -> io::Result<bool> {
        let Ok(Some((file, _))) = self.store.directory.file(name, OFlags::RDWR) else {
            return Ok(false);
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => self.store.disk.remove(&self.store.directory, name),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(self.store.directory.told(name, e.into())),
        }
    }
}

const _: () = assert!(HEADER < segment_header::LEN);
