//! An index of twice the size in place of the one that is too small.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use brisk_io::UnsharedFile;

use crate::directory::{FLIGHTS, FileId, INDEX};
use crate::format::index_header::{
    BLOCK, CURRENT, IndexHeader, MOST_BLOCKS, MOVING, REPLACED, SLOTS_AT,
};
use crate::format::slot::{self, Slot};
use crate::index::Index;
use crate::lock::{Wait, with_lock};
use crate::locked::Locked;
use crate::new_index::{mark, open_new_index, replace_index, settle};
use crate::random;
use crate::store::Store;
use crate::unfinished::Unfinished;

/// The pause between two looks whether another has doubled the index.
const PAUSE: Duration = Duration::from_millis(1);

impl Locked<'_> {
    /// The header of an index with twice the blocks. None if that would take the cache past its limit.
    pub(crate) fn doubled(&mut self) -> io::Result<Option<IndexHeader>> {
        let header = IndexHeader {
            blocks: self.index.header.blocks.saturating_mul(2),
            ..self.index.header
        };
        let fits = header.blocks <= MOST_BLOCKS && self.spare()? >= header.file_len();
        Ok(fits.then_some(header))
    }

    /// Doubles the index. False if that would take the cache past its limit.
    pub(crate) fn grow(&mut self) -> io::Result<bool> {
        let Some(header) = self.doubled()? else {
            return Ok(false);
        };
        let (store, process, old) = (self.store, self.process, Arc::clone(&self.index));
        self.replace(&old, header, || {
            replace_index(store, process, header, |number| {
                let slots = old.block(number % old.header.blocks)?;
                let slots = slots.into_iter().map(|(_, slot)| slot);
                Ok(slots
                    .filter(|slot| slot.digest.block(header.blocks) == number)
                    .collect())
            })
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
        let (store, process) = (self.store, self.process);
        self.replace(&old, header, || {
            replace_index(store, process, header, |_| Ok(Vec::new()))
        })
    }

    /// Marks the old index while `make` gives its name to a new one.
    fn replace(
        &mut self,
        old: &Index,
        header: IndexHeader,
        make: impl FnOnce() -> io::Result<Arc<Index>>,
    ) -> io::Result<()> {
        let was_unsettled = self.state.unsettled;
        self.begin_files()?;
        mark(self.store, old, MOVING)?;
        match make() {
            Ok(index) => self.index = index,
            Err(e) => {
                // Which one has the name says whether the rename was done. The next writer finds that out, too.
                let named = self.store.directory.id_of(INDEX);
                let mark_now = match named.is_ok_and(|named| named == Some(old.id)) {
                    true => CURRENT,
                    false => REPLACED,
                };
                mark(self.store, old, mark_now).ok();
                return Err(e);
            }
        }
        mark(self.store, old, REPLACED)?;
        if let Ok(Some(limit)) = old.noted_limit() {
            // Without it, the next insertion notes its own.
            self.write_limit(limit).ok();
        }
        self.write_old_before(old.old_before()).ok();
        let bytes = self.state.bytes.saturating_add(header.file_len());
        self.state.bytes = bytes.saturating_sub(old.header.file_len());
        self.state.unsettled = was_unsettled;
        self.save()
    }
}

/// The byte of the flights that who doubles a large index has locked. No key has it.
const GROWTH_BYTE: u64 = 1 << 62;

/// How often changes are copied to the new index before the lock is taken, at most.
const PASSES: usize = 3;

/// So many slots are in a block.
const SLOTS: usize = BLOCK as usize / slot::LEN;

/// An index of twice the size that is being filled while others write to the old one.
struct Doubling {
    store: Arc<Store>,
    old: Arc<Index>,
    header: IndexHeader,
    unfinished: Unfinished,
    /// The checks of the old slots that are copied, 0 for those that are not right. So they say which have changed.
    copied: Vec<[u64; SLOTS]>,
}

/// Doubles a large index without the lock, but for the end. Others write meanwhile, and one at a time does this.
/// False if another does, and for too long, or if nobody can be asked. It waits no longer once the index is another one.
pub(crate) fn double_index(store: &Arc<Store>, narrow: FileId) -> io::Result<bool> {
    let (flights, _) = store.directory.open_or_create(FLIGHTS)?;
    // A child that is forked meanwhile must not keep the byte.
    let flights = UnsharedFile::new(flights)?;
    let started = Instant::now();
    loop {
        let file = flights.get().ok_or(io::ErrorKind::NotFound)?;
        match store.disk.try_lock_byte(file, GROWTH_BYTE) {
            Ok(true) => break,
            Ok(false) => {}
            // Locks of bytes do not work here. That of the ledger does.
            Err(_) => return Ok(false),
        }
        if store.directory.id_of(INDEX)? != Some(narrow) {
            return Ok(true);
        }
        if started.elapsed() >= store.options.write_wait {
            return Ok(false);
        }
        thread::sleep(PAUSE);
    }
    let begun = with_lock(store, Wait::Bounded, |locked| {
        if locked.index.id != narrow {
            return Ok(None);
        }
        let header = locked.doubled()?;
        Ok(header.map(|header| (Arc::clone(&locked.index), header)))
    })?;
    // Somebody has doubled it, or has taken the room.
    let Some((old, header)) = begun else {
        return Ok(true);
    };
    let mut doubling = Doubling {
        store: Arc::clone(store),
        copied: Vec::new(),
        unfinished: Unfinished::create(store, random::number()?)?,
        old,
        header,
    };
    doubling.begin()?;
    for _ in 0..PASSES {
        let changed = doubling.copy_changes()?;
        doubling.unfinished.sync()?;
        if changed <= doubling.copied.len() / 16 {
            break;
        }
    }
    with_lock(store, Wait::Bounded, |locked| doubling.end(locked))?;
    Ok(true)
}

impl Doubling {
    fn begin(&self) -> io::Result<()> {
        self.unfinished.reserve(0, self.header.file_len())?;
        self.unfinished.write(0, &self.header.encode())
    }

    /// Copies the blocks that have changed since the last time. Returns how many.
    fn copy_changes(&mut self) -> io::Result<usize> {
        let mut bytes = vec![0; BLOCK as usize];
        let mut changed = 0;
        for number in 0..self.old.header.blocks {
            self.old.read_block(number, &mut bytes)?;
            changed += usize::from(self.copy_block(number, &bytes)?);
        }
        Ok(changed)
    }

    /// Whether it has changed.
    fn copy_block(&mut self, number: u32, bytes: &[u8]) -> io::Result<bool> {
        let (places, _) = bytes.as_chunks::<{ slot::LEN }>();
        let index = number as usize;
        if let Some(known) = self.copied.get(index)
            && places.iter().map(check_of).eq(known.iter().copied())
        {
            return Ok(false);
        }
        let mut checks = [0; SLOTS];
        let mut halves = [Vec::new(), Vec::new()];
        for (place, check) in places.iter().zip(&mut checks) {
            let Some(slot) = Slot::parse(self.header.seed, place) else {
                continue;
            };
            *check = check_of(place);
            let second = slot.digest.block(self.header.blocks) != number;
            let [low, high] = &mut halves;
            if second { high } else { low }.push(slot);
        }
        let is_new = self.copied.len() <= index;
        for (half, slots) in (0..).zip(&halves) {
            // The file has zeros where nothing was written.
            if is_new && slots.is_empty() {
                continue;
            }
            let number = u64::from(number) + half * u64::from(self.old.header.blocks);
            let settled = settle(&self.store, self.header.seed, slots);
            self.unfinished.write(SLOTS_AT + number * BLOCK, &settled)?;
        }
        match self.copied.get_mut(index) {
            Some(known) => *known = checks,
            None => self.copied.push(checks),
        }
        Ok(true)
    }

    /// Copies the last changes, and puts the new index in place of the old one.
    fn end(mut self, locked: &mut Locked<'_>) -> io::Result<()> {
        if locked.index.id != self.old.id || locked.doubled()?.is_none() {
            return Ok(());
        }
        let (store, process) = (Arc::clone(&self.store), locked.process);
        let (old, header) = (Arc::clone(&self.old), self.header);
        locked.replace(&old, header, || {
            if self.copy_changes()? > 0 {
                self.unfinished.sync()?;
            }
            let id = FileId::of(self.unfinished.fd()?)?;
            self.unfinished.replace(INDEX)?;
            open_new_index(&store, process, id)
        })
    }
}

/// The check that the bytes of a slot say, 0 in a free one.
fn check_of(slot: &[u8; slot::LEN]) -> u64 {
    slot.last_chunk().copied().map_or(0, u64::from_le_bytes)
}
