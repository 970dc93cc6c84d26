//! Counting what is there, and removing what killed writers have left.

use std::collections::{HashMap, HashSet};
use std::io;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::directory::{Listed, Name, unfinished_name};
use crate::format::UNIT;
use crate::format::ledger_state::LedgerState;
use crate::format::record::HEADER;
use crate::format::segment_header::{self, SegmentHeader};
use crate::format::slot::{BUCKETS, Kind};
use crate::index::Index;
use crate::locked::Locked;
use crate::segment::{Aged, file_name};
use crate::store::Store;
use crate::writer::Total;

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

/// The files with records, by their numbers. For who then lists them with the lock, and shall not keep it for long.
pub(crate) fn files_ahead(store: &Store) -> io::Result<HashMap<u64, Aged>> {
    let listed = store.directory.list()?;
    let aged = |listed| aged(store, listed, &HashMap::new());
    let files = listed.iter().filter_map(aged);
    Ok(files.map(|file| (file.number, file)).collect())
}

/// None if it is no file with records.
fn aged(store: &Store, listed: &Listed, known: &HashMap<u64, Aged>) -> Option<Aged> {
    let (number, alone) = match listed.name {
        Name::Segment(number) => (number, false),
        Name::Value(number) => (number, true),
        Name::Unfinished(_) | Name::Index | Name::Small => return None,
    };
    let sequence = match known.get(&number) {
        Some(known) => known.sequence,
        None => sequence_of(store, number, alone),
    };
    Some(Aged {
        sequence,
        number,
        len: listed.len,
        alone,
    })
}

/// When the file was begun. 0 if its header does not say: then it goes first.
fn sequence_of(store: &Store, number: u64, alone: bool) -> u64 {
    #[cfg(test)]
    tests::note_header(store);
    let kind = if alone { Kind::Alone } else { Kind::Shared };
    let opened = store
        .directory
        .file(&file_name(kind, number), OFlags::RDONLY);
    let mut header = [0; segment_header::LEN];
    let read = opened.ok().flatten().is_some_and(|(file, _)| {
        brisk_io::ByteSource::read_exact_bytes_at(&file, 0, &mut header).is_ok()
    });
    let header = SegmentHeader::parse(&header).filter(|_| read);
    header.map_or(0, |header| header.sequence)
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
        self.files_but(&HashMap::new())
    }

    /// The same, without asking those files that are known, by their numbers: [`files_ahead`].
    pub(crate) fn files_but(&mut self, known: &HashMap<u64, Aged>) -> io::Result<Vec<Aged>> {
        let mut files = Vec::new();
        let mut bytes = 0u64;
        // A value that has its name never gets another length.
        let len_of = |name| match name {
            Name::Value(number) => known.get(&number).map(|aged| aged.len),
            _ => None,
        };
        for listed in self.store.directory.list_but(len_of)? {
            match listed.name {
                Name::Segment(_) | Name::Value(_) => {
                    files.extend(aged(self.store, &listed, known));
                }
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{About, Cache, CacheOptions};

    thread_local! {
        /// How many headers this thread has read, and how many of them with the lock.
        static HEADERS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }

    pub(super) fn note_header(store: &Store) {
        let process = store.begun_process();
        let with_lock = process.is_some_and(|process| process.try_writer().is_none());
        let (all, locked) = HEADERS.get();
        HEADERS.set((all + 1, locked + u64::from(with_lock)));
    }

    #[test]
    fn an_eviction_reads_each_header_once_and_none_with_the_lock() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = CacheOptions::new().limit(8 << 20).segment_len(1 << 20);
        let cache = Cache::open(home.path(), options).unwrap();
        let insert = |key: u32| {
            let key = key.to_le_bytes();
            cache.insert(&key, &[7; 300_000], About::default()).unwrap();
        };
        cache.insert(b"short", b"value", About::default()).unwrap();
        let mut key = 0;
        while cache.counts().evicted == 0 {
            insert(key);
            key += 1;
        }
        HEADERS.set((0, 0));
        let files = cache.stat().unwrap().values;
        assert!(files > 10, "{files}");
        for key in key..key + 1_000 {
            insert(key);
        }
        assert_eq!(cache.stat().unwrap().values, files);
        let (all, locked) = HEADERS.get();
        assert_eq!(locked, 0);
        // Each file is read once, and those that were younger than the list once more.
        assert!(all <= 2 * (1_000 + files), "{all}");
    }
}
