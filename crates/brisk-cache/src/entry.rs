use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use crate::clock::{now, time_of};
use crate::format::slot::{Kind, Slot};
use crate::index::Index;
use crate::store::{Opened, Store};

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
        for _ in 0..2 {
            let segment = process.view().segments.get(&slot.segment).cloned();
            if let Some(segment) = segment.filter(|segment| segment.range(slot).is_some()) {
                let Ok((record, head)) = segment.head(slot, None)? else {
                    return Ok(None);
                };
                return Ok(record.key(&head).map(|key| Entry {
                    key: key.to_vec(),
                    len: record.layout.value_len as u64,
                    fingerprint: record.fingerprint,
                    bucket: slot.bucket,
                    written: time_of(slot.written),
                    used: time_of(slot.last_use()),
                    alone: slot.kind == Kind::Alone,
                }));
            }
            if self.store.open_segment(process, slot)? != Opened::There {
                return Ok(None);
            }
        }
        Ok(None)
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
                Err(e) => return Some(Err(e)),
            }
        }
    }
}
