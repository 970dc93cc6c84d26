use std::collections::HashMap;
use std::io;

use crate::directory::Name;
use crate::format::slot::{BUCKETS, WAYS};
use crate::lock::{Wait, with_lock};
use crate::store::Store;
use crate::writer::Total;

/// What is in a cache, and what happened through a handle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheStat {
    /// Entries, by the writers' count. A writer that was killed can leave it wrong by one, until it is counted again.
    pub entries: u64,
    /// The bytes of their records.
    pub entry_bytes: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// The most that they may have.
    pub limit: u64,
    /// Files with many records.
    pub segments: u64,
    /// Values with files of their own.
    pub values: u64,
    /// Files that are being written.
    pub unfinished: u64,
    /// Slots of the index.
    pub slots: u64,
    /// Bytes of files that have no name any more and that hits of this handle still pin. A handle drops its own maps of
    /// such files when it looks at the directory: here, when it opens a file, when the index has grown, and with a hit every
    /// ten minutes.
    pub held_bytes: u64,
    /// Whether the directory is on a filesystem whose files are mapped. On others they are read.
    pub mapped: bool,
    /// The number of that filesystem (`statfs`), if it is another.
    pub filesystem: Option<u64>,
    /// What happened through this handle since it was opened.
    pub counts: CacheCounts,
}

/// What happened through a handle since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Misses: no entry.
    pub absent: u64,
    /// Misses: a slot or a record was not what was written.
    pub damaged: u64,
    /// Misses: the entry belonged to another key with the same digest.
    pub foreign: u64,
    /// Misses: the entry was too old.
    pub expired: u64,
    /// Misses: the entry had another layout than the wanted one, or a later version of brisk has written it in a way that
    /// this one does not know.
    pub unknown: u64,
    /// Entries that went because their part of the index was full and the cache at its limit.
    pub displaced: u64,
    /// Entries that went with the oldest file.
    pub evicted: u64,
    /// Entries that were copied from the oldest file to the newest, because they had been used.
    pub copied: u64,
    /// Values that were fetched but could not be stored, or could not be found after that.
    pub unstored: u64,
    /// Fetches beside which others may have fetched the same key: the directory can only be read, has no room or no locks,
    /// the fetch was inside of another one, or the others had taken too long.
    pub unasked: u64,
    /// Uses that could not be noted, because another process was writing or this user may only read. Such a
    /// handle tries once an hour.
    pub unnoted: u64,
}

/// The entries of one bucket, by the writers' count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BucketStat {
    /// The bucket.
    pub bucket: u16,
    /// How many.
    pub entries: u64,
    /// The bytes of their records.
    pub bytes: u64,
}

pub(crate) fn counts(store: &Store) -> CacheCounts {
    let counters = &store.counters;
    CacheCounts {
        absent: counters.absent.get(),
        damaged: counters.damaged.get(),
        foreign: counters.foreign.get(),
        expired: counters.expired.get(),
        unknown: counters.unknown.get(),
        displaced: counters.displaced.get(),
        evicted: counters.evicted.get(),
        copied: counters.copied.get(),
        unstored: counters.unstored.get(),
        unasked: counters.unasked.get(),
        unnoted: counters.unnoted.get(),
    }
}

pub(crate) fn stat(store: &Store) -> io::Result<CacheStat> {
    let mut stat = CacheStat {
        limit: store.options.limit,
        mapped: store.reading()?.is_mapped(),
        filesystem: store.filesystem()?.unsure(),
        counts: counts(store),
        ..CacheStat::default()
    };
    for listed in store.directory.list()? {
        stat.bytes = stat.bytes.saturating_add(listed.len);
        match listed.name {
            Name::Segment(_) => stat.segments += 1,
            Name::Value(_) => stat.values += 1,
            Name::Unfinished(_) => stat.unfinished += 1,
            Name::Index | Name::Small => {}
        }
    }
    for bucket in buckets(store)? {
        stat.entries = stat.entries.saturating_add(bucket.entries);
        stat.entry_bytes = stat.entry_bytes.saturating_add(bucket.bytes);
    }
    let process = store.process()?;
    store.reopen_index(process)?;
    let change = store.directory.last_change()?;
    let mut view = process.view_mut();
    store.drop_gone(&mut view, change, None)?;
    let sets = u64::from(crate::format::index_header::SETS);
    if let Some(index) = &view.index {
        stat.slots = u64::from(index.header.blocks) * sets * u64::from(WAYS);
    }
    // Two hits can have maps of one file, of which one is longer.
    let mut held = HashMap::new();
    for segment in view.pinned() {
        if !store.has_name(&segment)? {
            let len = held.entry(segment.header.number).or_insert(0);
            *len = segment.len().max(*len);
        }
    }
    stat.held_bytes = held.values().sum();
    Ok(stat)
}

/// The buckets that have entries.
pub(crate) fn buckets(store: &Store) -> io::Result<Vec<BucketStat>> {
    let totals: Vec<Total> = match with_lock(store, Wait::Bounded, |locked| {
        Ok((0..BUCKETS).map(|bucket| locked.total(bucket)).collect())
    }) {
        Ok(totals) => totals,
        // Who may not write cannot lock, and counts.
        Err(e) if crate::index::is_read_only(&e) => count_entries(store)?,
        Err(e) => return Err(e),
    };
    let all = (0..BUCKETS).zip(totals).map(|(bucket, total)| BucketStat {
        bucket,
        entries: total.entries,
        bytes: total.bytes,
    });
    Ok(all.filter(|bucket| bucket.entries > 0).collect())
}

fn count_entries(store: &Store) -> io::Result<Vec<Total>> {
    let process = store.process()?;
    let index = process.view().index.clone();
    match index {
        Some(index) => crate::recovery::totals_of(&index),
        None => Ok(Vec::new()),
    }
}
