//! A new index in place of the old one.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::directory::{FileId, INDEX, TAG, unfinished_name};
use crate::format::index_header::{
    BLOCK, CURRENT, IndexHeader, MARK_AT, MOST_BLOCKS, MOVING, REPLACED, SLOTS_AT,
};
use crate::format::slot::{self, Slot, WAYS};
use crate::index::Index;
use crate::random;
use crate::store::{Process, Store};
use crate::writer::Locked;

const TAG_TEXT: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n\
# This file is a cache directory tag created by brisk.\n\
# For information about cache directory tags, see https://bford.info/cachedir/\n";

impl Store {
    /// Makes the first index, or one in place of one that nobody can read. Only with the lock.
    pub(crate) fn make_index(&self, process: &Process) -> io::Result<Arc<Index>> {
        if self.directory.id_of(TAG)?.is_none() {
            let tag = self.disk.create(&self.directory, TAG)?;
            self.disk.write(tag.as_fd(), 0, TAG_TEXT)?;
        }
        if let Ok(Some((unreadable, stat))) = self.directory.file(INDEX, OFlags::RDWR)
            && u64::try_from(stat.st_size).is_ok_and(|len| len >= SLOTS_AT)
        {
            // Somebody may have it open from before it was damaged.
            self.disk.write(unreadable.as_fd(), MARK_AT, &REPLACED)?;
        }
        let header = IndexHeader {
            blocks: 1,
            seed: random::number()?,
        };
        self.replace_index(process, header, |_| Ok(Vec::new()))
    }

    /// Writes a new index and gives it the name. `block` gives the slots of a block.
    fn replace_index(
        &self,
        process: &Process,
        header: IndexHeader,
        mut block: impl FnMut(u32) -> io::Result<Vec<Slot>>,
    ) -> io::Result<Arc<Index>> {
        let name = unfinished_name(random::number()?);
        let file = self.disk.create(&self.directory, &name)?;
        let id = FileId::of(&file)?;
        let write = |number: u32, slots: Vec<Slot>| {
            if slots.is_empty() {
                return Ok(());
            }
            let at = SLOTS_AT + u64::from(number) * BLOCK;
            self.disk
                .write(file.as_fd(), at, &self.settle(header.seed, &slots))
        };
        let mut fill = || {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            self.disk.reserve(file.as_fd(), 0, header.file_len())?;
            self.disk.write(file.as_fd(), 0, &header.encode())?;
            for number in 0..header.blocks {
                write(number, block(number)?)?;
            }
            self.disk.sync(file.as_fd())?;
            self.disk.rename(&self.directory, &name, INDEX)
        };
        if let Err(e) = fill() {
            self.disk.remove(&self.directory, &name).ok();
            return Err(self.directory.told(&name, e));
        }
        // Otherwise a removal that was synced in the new one could come back with the old one.
        self.disk.sync_names(&self.directory)?;
        self.reopen_index(process)?;
        let index = process.view().index.clone();
        index.filter(|index| index.id == id).ok_or_else(|| {
            let e = io::Error::new(
                io::ErrorKind::NotFound,
                "somebody without the lock has replaced it; let only brisk write to the directory",
            );
            self.directory.told(INDEX, e)
        })
    }

    /// The bytes of a block with these slots.
    fn settle(&self, seed: u64, slots: &[Slot]) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        let (places, _) = bytes.as_chunks_mut::<{ slot::LEN }>();
        let mut used = [0u32; crate::format::index_header::SETS as usize];
        for slot in slots {
            let sets = slot.digest.sets();
            let [first, second] = sets.map(|set| used.get(set as usize).copied().unwrap_or(WAYS));
            let set = if first < 6 || first <= second {
                sets[0]
            } else {
                sets[1]
            };
            let start = (set * WAYS) as usize;
            let ways = places
                .get_mut(start..start + WAYS as usize)
                .unwrap_or_default();
            let turn = slot.digest.first_way() as usize;
            let free = (0..ways.len())
                .map(|n| (turn + n) % WAYS as usize)
                .find(|&way| ways.get(way).is_some_and(|bytes| *bytes == slot::FREE));
            match free.and_then(|way| ways.get_mut(way)) {
                Some(place) => {
                    *place = slot.encode(seed);
                    if let Some(used) = used.get_mut(set as usize) {
                        *used += 1;
                    }
                }
                // Both sets of one key are full, in an index that is half empty.
                None => self.counters.displaced.add(1),
            }
        }
        bytes
    }
}

impl Locked<'_> {
    /// Doubles the index. False if that would take the cache past its limit.
    pub(crate) fn grow(&mut self) -> io::Result<bool> {
        let old = Arc::clone(&self.index);
        let header = IndexHeader {
            blocks: old.header.blocks.saturating_mul(2),
            ..old.header
        };
        if header.blocks > MOST_BLOCKS || self.spare()? < header.file_len() {
            return Ok(false);
        }
        self.replace(&old, header, |number| {
            let slots = old.block(number % old.header.blocks)?;
            let slots = slots.into_iter().map(|(_, slot)| slot);
            Ok(slots
                .filter(|slot| slot.digest.block(header.blocks) == number)
                .collect())
        })?;
        Ok(true)
    }

    /// Puts an empty index in place of this one.
    pub(crate) fn empty(&mut self) -> io::Result<()> {
        let old = Arc::clone(&self.index);
        let header = IndexHeader {
            blocks: 1,
            ..old.header
        };
        self.replace(&old, header, |_| Ok(Vec::new()))
    }

    fn replace(
        &mut self,
        old: &Index,
        header: IndexHeader,
        block: impl FnMut(u32) -> io::Result<Vec<Slot>>,
    ) -> io::Result<()> {
        let was_unsettled = self.state.unsettled;
        self.begin_files()?;
        self.store.mark(old, MOVING)?;
        match self.store.replace_index(self.process, header, block) {
            Ok(index) => self.index = index,
            Err(e) => {
                // Which one has the name says whether the rename was done. The next writer finds that out, too.
                let named = self.store.directory.id_of(INDEX);
                let mark = match named.is_ok_and(|named| named == Some(old.id)) {
                    true => CURRENT,
                    false => REPLACED,
                };
                self.store.mark(old, mark).ok();
                return Err(e);
            }
        }
        self.store.mark(old, REPLACED)?;
        let bytes = self.state.bytes.saturating_add(header.file_len());
        self.state.bytes = bytes.saturating_sub(old.header.file_len());
        self.state.unsettled = was_unsettled;
        self.save()
    }
}
