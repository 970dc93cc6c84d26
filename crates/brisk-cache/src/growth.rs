//! A new index in place of the old one.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use brisk_io::{ByteSource, UnsharedFile};
use rustix::fs::{FlockOperation, OFlags, flock};

use crate::directory::{FLIGHTS, FileId, INDEX, TAG, TAG_TEXT, unfinished_name};
use crate::format::index_header::{
    self, BLOCK, CURRENT, IndexHeader, MARK_AT, MOST_BLOCKS, MOVING, REPLACED, SLOTS_AT,
};
use crate::format::slot::{self, Slot, WAYS};
use crate::index::{CROWDED, Index};
use crate::random;
use crate::store::{Process, Store};
use crate::unfinished::Unfinished;
use crate::writer::{Locked, Wait};

/// The pause between two looks whether another has doubled the index.
const PAUSE: Duration = Duration::from_millis(1);

impl Store {
    /// Makes the first index, or one in place of one that nobody can read. Only with the lock.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if a later version has made the one that is there.
    pub(crate) fn make_index(&self, process: &Process) -> io::Result<Arc<Index>> {
        self.refuse_later_version()?;
        self.make_tag()?;
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

    /// Writes the tag, which says that the directory is a cache, before anything else there has contents.
    fn make_tag(&self) -> io::Result<()> {
        let tag = match self.directory.file(TAG, OFlags::RDWR)? {
            Some((_, stat)) if stat.st_size >= TAG_TEXT.len() as i64 => return Ok(()),
            // Its writer was killed.
            Some((tag, _)) => tag,
            None => self.disk.create(&self.directory, TAG)?,
        };
        self.disk.write(tag.as_fd(), 0, TAG_TEXT)?;
        self.disk.sync(tag.as_fd())
    }

    /// Refuses to put an index in place of one of a later version, whose entries this version cannot read.
    fn refuse_later_version(&self) -> io::Result<()> {
        let Some((file, _)) = self.directory.file(INDEX, OFlags::RDONLY)? else {
            return Ok(());
        };
        let mut header = [0; index_header::LEN];
        if file.read_exact_bytes_at(0, &mut header).is_err() {
            return Ok(());
        }
        match IndexHeader::later_version(&header) {
            None => Ok(()),
            Some(version) => {
                let e = io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!(
                        "its version is {version}, this program writes {}; use a program with a later version of brisk, \
                         or another directory",
                        index_header::VERSION
                    ),
                );
                Err(self.directory.told(INDEX, e))
            }
        }
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
        self.open_new_index(process, id)
    }

    /// Opens the index that has just got the name.
    fn open_new_index(&self, process: &Process, id: FileId) -> io::Result<Arc<Index>> {
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
    pub(crate) fn settle(&self, seed: u64, slots: &[Slot]) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        let (places, _) = bytes.as_chunks_mut::<{ slot::LEN }>();
        let mut used = [0u32; crate::format::index_header::SETS as usize];
        for slot in slots {
            let sets = slot.digest.sets();
            let [first, second] = sets.map(|set| used.get(set as usize).copied().unwrap_or(WAYS));
            let set = if first < CROWDED || first <= second {
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
            store.replace_index(process, header, |number| {
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
            store.replace_index(process, header, |_| Ok(Vec::new()))
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
        self.store.mark(old, MOVING)?;
        match make() {
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

impl Store {
    /// Doubles a large index without the lock, but for the end. Others write meanwhile, and one at a time does this.
    /// False if another does, and for too long, or if nobody can be asked. It waits no longer once the index is another one.
    pub(crate) fn double_index(self: &Arc<Self>, narrow: FileId) -> io::Result<bool> {
        let (flights, _) = self.directory.open_or_create(FLIGHTS)?;
        // A child that is forked meanwhile must not keep the byte.
        let flights = UnsharedFile::new(flights)?;
        let started = Instant::now();
        loop {
            let file = flights.get().ok_or(io::ErrorKind::NotFound)?;
            match self.disk.try_lock_byte(file, GROWTH_BYTE) {
                Ok(true) => break,
                Ok(false) => {}
                // Locks of bytes do not work here. That of the ledger does.
                Err(_) => return Ok(false),
            }
            if self.directory.id_of(INDEX)? != Some(narrow) {
                return Ok(true);
            }
            if started.elapsed() >= self.options.write_wait {
                return Ok(false);
            }
            thread::sleep(PAUSE);
        }
        let begun = self.locked(Wait::Bounded, |locked| {
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
            store: Arc::clone(self),
            copied: Vec::new(),
            unfinished: Unfinished::create(self, random::number()?)?,
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
        self.locked(Wait::Bounded, |locked| doubling.end(locked))?;
        Ok(true)
    }
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
            let settled = self.store.settle(self.header.seed, slots);
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
            store.open_new_index(process, id)
        })
    }
}

/// The check that the bytes of a slot say, 0 in a free one.
fn check_of(slot: &[u8; slot::LEN]) -> u64 {
    slot.last_chunk().copied().map_or(0, u64::from_le_bytes)
}
