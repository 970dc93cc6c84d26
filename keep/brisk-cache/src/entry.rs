use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use crate::clock::{now, time_of};
use crate::format::record::Wrong;
use crate::format::slot::{Kind, Slot};
use crate::index::{Found, Index, is_lost};
use crate::lookup::{Patience, index_now};
use crate::segment::Segment;
use crate::store::{Opened, Process, Store};

/// An entry, as [`Cache::iter`](crate::Cache::iter) lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The whole key.
    pub key: Vec<u8>,
    /// The number of bytes of the value.
    pub len: u64,
    /// The fingerprint with which the value was inserted.
    pub fingerprint: u64,
    /// The bucket in which it was inserted.
    pub bucket: u16,
    /// When it was inserted, to the minute.
    pub written: SystemTime,
    /// When a use was last noted, or when it was inserted.
    pub used: SystemTime,
    /// Whether the value has a file of its own.
    pub alone: bool,
}

/// The entries of a cache: see [`Cache::iter`](crate::Cache::iter).
#[derive(Debug)]
pub struct Entries<'a> {
    store: &'a Store,
    index: Option<Arc<Index>>,
    next_block: u32,
    slots: std::vec::IntoIter<(u64, Slot)>,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(store: &'a Store) -> io::Result<Self> {
        let process = store.process()?;
        store.reopen_index(process)?;
        let index = process.view().index.clone();
        Ok(Self {
            store,
            index,
            next_block: 0,
            slots: Vec::new().into_iter(),
        })
    }

    /// None if the entry is gone, damaged or too old.
    fn entry(&self, slot: &Slot) -> io::Result<Option<Entry>> {
        let process = self.store.process()?;
        if self.store.is_expired(slot, now()) {
            return Ok(None);
        }
        let mut slot = *slot;
        loop {
            let segment = process.view().segments.get(&slot.segment).cloned();
            if let Some(segment) = segment.filter(|segment| segment.range(&slot).is_some()) {
                return self.entry_in(process, &segment, &slot);
            }
            match self.store.open_segment(process, &slot)? {
                Opened::There => {}
                // It may have been copied forward since its slot was read.
                Opened::Gone => match self.slot_now(&slot)? {
                    Some(now) if !now.names_the_record_of(&slot) => slot = now,
                    _ => return Ok(None),
                },
                Opened::Wrong => return Ok(None),
            }
        }
    }

    fn entry_in(
        &self,
        process: &Process,
        segment: &Segment,
        slot: &Slot,
    ) -> io::Result<Option<Entry>> {
        let (record, head) = match segment.head(slot, None) {
            Ok(Ok(found)) => found,
            Ok(Err(wrong)) => {
                let counters = &self.store.counters;
                let counter = match wrong {
                    Wrong::Foreign => &counters.foreign,
                    Wrong::Damaged => &counters.damaged,
                    Wrong::Unknown => &counters.unknown,
                };
                counter.add(1);
                return Ok(None);
            }
            // Somebody has cut the file, or its disk fails.
            Err(e) if is_lost(&e) => {
                self.store.counters.damaged.add(1);
                process.view_mut().forget(slot.segment);
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        Ok(record.key(&head).map(|key| Entry {
            key: key.to_vec(),
            len: record.layout.value_len as u64,
            fingerprint: record.fingerprint,
            bucket: slot.bucket,
            written: time_of(slot.written),
            used: time_of(slot.last_use()),
            alone: slot.kind == Kind::Alone,
        }))
    }

    /// The slot that the key of a slot has now, in whichever index.
    fn slot_now(&self, slot: &Slot) -> io::Result<Option<Slot>> {
        let seed = self.index.as_ref().map(|index| index.header.seed);
        let index = index_now(self.store, Patience::Wait)?;
        // Another seed gives the key another digest: then somebody has begun the cache anew.
        let index = index.filter(|index| Some(index.header.seed) == seed);
        Ok(index.and_then(|index| match index.find(slot.digest) {
            Ok(Found::Slot(_, slot)) => Some(slot),
            _ => None,
        }))
    }
}

impl Iterator for Entries<'_> {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some((_, slot)) = self.slots.next() {
                match self.entry(&slot).transpose() {
                    Some(entry) => return Some(entry),
                    None => continue,
                }
            }
            let index = self.index.as_ref()?;
            if self.next_block >= index.header.blocks {
                return None;
            }
            let block = index.block(self.next_block);
            self.next_block += 1;
            match block {
                Ok(slots) => self.slots = slots.into_iter(),
                // Somebody has cut it, or its disk fails.
                Err(e) if is_lost(&e) => self.store.counters.damaged.add(1),
                Err(e) => return Some(Err(e)),
            }
        }
    }
}
