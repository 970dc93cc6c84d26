//! The files of a cache, as a handle has them open.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};

use brisk_io::{Filesystem, PerProcess};

use crate::clock::{Minute, age, now};
use crate::counters::Counters;
use crate::directory::{Directory, FileId, INDEX, NameChange};
use crate::disk::Disk;
use crate::first_files::FirstFiles;
use crate::format::PAGE;
use crate::format::index_header::{BLOCK, SLOTS_AT};
use crate::format::slot::{Kind, Slot};
use crate::index::{Index, IndexFile, is_lost};
use crate::known_damage::KnownDamage;
use crate::options::CacheOptions;
use crate::promise::Promise;
use crate::segment::{Reading, Segment, SegmentFile, file_name};
use crate::writer::Writer;

/// An index of so many blocks and more, 4 MiB, is doubled while others write. A smaller one takes a few milliseconds.
const LARGE_INDEX: u32 = 64;

/// What all parts of a handle use.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) directory: Directory,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: CacheOptions,
    /// Known from the moment on that anything is mapped or written: a first look only reads.
    filesystem: OnceLock<Filesystem>,
    promise: Option<Promise>,
    /// Values with files of their own are read, and never mapped.
    pub(crate) reads_values: bool,
    pub(crate) counters: Counters,
    /// When a use could not be noted, though nobody else was writing. 0 if that never happened.
    pub(crate) note_refused: AtomicU32,
    pub(crate) segment_len: u64,
    /// Values whose records are longer have files of their own.
    pub(crate) most_shared: u64,
    /// An index of so many blocks is doubled without the lock.
    pub(crate) large_index: u32,
    pub(crate) first_files: FirstFiles,
    process: PerProcess<Process>,
}

/// What a process has open. A forked child opens its own.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) reading: Reading,
    view: RwLock<View>,
    writer: Mutex<Option<Writer>>,
    pub(crate) damage: KnownDamage,
    /// When a hit last looked whether the files that are mapped are still there.
    looked: AtomicU32,
}

/// The files that are read, as they were when they were opened.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) index: Option<Arc<Index>>,
    pub(crate) segments: HashMap<u64, Arc<Segment>, BuildHasherDefault<NumberHasher>>,
    /// Segments that hits pinned when they left `segments`.
    pinned: Vec<Weak<Segment>>,
    /// A segment that was opened for a first look, and is not mapped. The next opening takes it, or drops it.
    kept: Option<SegmentFile>,
    /// The last change of a name, before which every file of `segments` was there.
    all_there: Option<NameChange>,
    /// How often a file was opened.
    opened: usize,
}

/// Of so many files and fewer, each opening looks whether they are still there. Of more, each such number of openings.
const LOOKED_AT: usize = 64;

/// The most values with files of their own that stay open without a hit that pins them. The system bounds mappings and
/// descriptors, and a file of a large value is opened in a small part of the time that the value takes.
const MOST_VALUES: usize = 256;

impl View {
    fn drop_values_if_many(&mut self) {
        let is_value = |segment: &Arc<Segment>| segment.header.kind == Kind::Alone;
        let values = self.segments.values().filter(|segment| is_value(segment));
        if values.count() >= MOST_VALUES {
            self.forget_where(|segment| is_value(segment));
        }
    }

    /// Gives up a segment. A hit that pins it keeps it.
    pub(crate) fn forget(&mut self, number: u64) {
        if let Some(segment) = self.segments.remove(&number) {
            self.note_pinned(segment);
        }
    }

    pub(crate) fn forget_where(&mut self, mut is_one: impl FnMut(&Arc<Segment>) -> bool) {
        let gone = self.segments.extract_if(|_, segment| is_one(segment));
        let gone: Vec<_> = gone.map(|(_, segment)| segment).collect();
        for segment in gone {
            self.note_pinned(segment);
        }
    }

    fn note_pinned(&mut self, segment: Arc<Segment>) {
        let left = Arc::downgrade(&segment);
        drop(segment);
        self.pinned.push(left);
        self.pinned.retain(|pinned| pinned.strong_count() > 0);
    }

    /// The segments that hits pin though the view has given them up.
    pub(crate) fn pinned(&self) -> impl Iterator<Item = Arc<Segment>> {
        self.pinned.iter().filter_map(Weak::upgrade)
    }
}

/// Numbers of segments are random already.
#[derive(Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// What became of the wish to read a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    /// It is in the view.
    There,
    /// There is no such file.
    Gone,
    /// The file does not have what the slot says.
    Wrong,
}

impl Store {
    pub(crate) fn open(
        path: &Path,
        options: CacheOptions,
        promise: Option<Promise>,
        disk: Arc<dyn Disk>,
    ) -> io::Result<Self> {
        let segment_len = segment_len(&options)?;
        let directory = Directory::open(path, options.group)?;
        let index = match IndexFile::open(&directory) {
            Ok(Some(index)) => Some(index),
            none => {
                directory.refuse_foreign()?;
                none?
            }
        };
        let first_files = FirstFiles::new(index);
        Ok(Self {
            directory,
            disk,
            options,
            filesystem: OnceLock::new(),
            promise,
            reads_values: false,
            counters: Counters::default(),
            note_refused: AtomicU32::new(0),
            segment_len,
            most_shared: (segment_len / 4).min(1 << 20),
            large_index: LARGE_INDEX,
            first_files,
            process: PerProcess::new(),
        })
    }

    pub(crate) fn filesystem(&self) -> io::Result<Filesystem> {
        match self.filesystem.get() {
            Some(&known) => Ok(known),
            None => {
                let found = Filesystem::of(self.directory.fd())?;
                Ok(*self.filesystem.get_or_init(|| found))
            }
        }
    }

    pub(crate) fn reading(&self) -> io::Result<Reading> {
        Ok(match (self.filesystem()?.unsure(), self.promise) {
            (Some(_), _) => Reading::Read,
            (None, Some(promise)) => Reading::Borrowed(promise),
            (None, None) => Reading::Copied,
        })
    }

    /// What this process has open.
    #[inline]
    pub(crate) fn process(&self) -> io::Result<&Process> {
        self.process.get_or_try_make(|| self.begin_process())
    }

    #[cold]
    fn begin_process(&self) -> io::Result<Process> {
        let kept = self.first_files.end();
        let reading = self.reading()?;
        let is_mapped = reading.is_mapped();
        let index = match kept.index {
            Some(file) => Index::of_file(file, is_mapped)?,
            None => Index::open(&self.directory, is_mapped)?,
        };
        Ok(Process {
            reading,
            view: RwLock::new(View {
                index: index.map(Arc::new),
                segments: HashMap::default(),
                pinned: Vec::new(),
                kept: kept.segment,
                all_there: None,
                opened: 0,
            }),
            writer: Mutex::new(None),
            damage: KnownDamage::default(),
            looked: AtomicU32::new(now()),
        })
    }

    /// What this process has open, if it has asked for that before.
    #[inline]
    pub(crate) fn begun_process(&self) -> Option<&Process> {
        self.process.get()
    }

    /// Takes the pages of all mappings out of the page table.
    pub(crate) fn release_pages(&self) -> io::Result<()> {
        let Some(process) = self.begun_process() else {
            return Ok(());
        };
        let view = process.view();
        if let Some(index) = &view.index {
            index.release()?;
        }
        for segment in view.segments.values() {
            segment.release()?;
        }
        view.pinned().try_for_each(|segment| segment.release())
    }

    /// Opens the index again if the name belongs to another one now. Returns which one the view has.
    pub(crate) fn reopen_index(&self, process: &Process) -> io::Result<Option<FileId>> {
        let named = self.directory.id_of(INDEX)?;
        let has = |view: &View| view.index.as_ref().map(|index| index.id);
        if has(&process.view()) != named || named.is_none() {
            let change = self.directory.last_change()?;
            let index = Index::open(&self.directory, process.reading.is_mapped())?;
            let mut view = process.view_mut();
            view.index = index.map(Arc::new);
            // Whoever made it may have removed files, too.
            self.drop_gone(&mut view, change, None)?;
        }
        Ok(has(&process.view()))
    }

    /// Opens the segment that a slot names, so that the view has it as far as the record reaches.
    #[cold]
    pub(crate) fn open_segment(&self, process: &Process, slot: &Slot) -> io::Result<Opened> {
        let reading = match slot.kind {
            Kind::Alone if self.reads_values => Reading::Read,
            Kind::Shared | Kind::Alone => process.reading,
        };
        #[cfg(test)]
        tests::before_opening();
        let kept = process.view_mut().kept.take();
        let change = self.directory.last_change()?;
        let opened = match kept.filter(|kept| kept.has(slot)) {
            Some(file) => Segment::of_file(file, reading),
            None => Segment::open(&self.directory, slot.kind, slot.segment, reading),
        };
        let segment = match opened {
            Ok(Some(segment)) => segment,
            Ok(None) => return Ok(Opened::Gone),
            // The file was cut, or is none, or others could have written it.
            Err(e) if is_spoilt(&e) => return Ok(Opened::Wrong),
            Err(e) => return Err(e),
        };
        if segment.range(slot).is_none() {
            return Ok(Opened::Wrong);
        }
        let mut view = process.view_mut();
        view.drop_values_if_many();
        // A shorter map of the same file.
        view.forget(slot.segment);
        view.segments.insert(slot.segment, Arc::new(segment));
        view.opened = view.opened.wrapping_add(1);
        if view.segments.len() <= LOOKED_AT || view.opened.is_multiple_of(LOOKED_AT) {
            self.drop_gone(&mut view, change, Some(slot.segment))?;
        }
        Ok(Opened::There)
    }

    /// Drops the maps of segments whose files are gone. A hit that pins one keeps it. `change` was the last one when the newest
    /// file, `but`, was not open yet.
    pub(crate) fn drop_gone(
        &self,
        view: &mut View,
        change: Option<NameChange>,
        but: Option<u64>,
    ) -> io::Result<()> {
        view.kept = None;
        if change.is_some() && change == view.all_there {
            return Ok(());
        }
        let mut gone = Vec::new();
        for (&number, segment) in &view.segments {
            if Some(number) != but && !self.has_name(segment)? {
                gone.push(number);
            }
        }
        for number in gone {
            view.forget(number);
        }
        view.all_there = change;
        Ok(())
    }

    /// Whether the file of a segment still has its name. Numbers are never used again.
    pub(crate) fn has_name(&self, segment: &Segment) -> io::Result<bool> {
        #[cfg(test)]
        tests::NAMES.set(tests::NAMES.get() + 1);
        let name = file_name(segment.header.kind, segment.header.number);
        Ok(self.directory.id_of(&name)?.is_some())
    }
}

/// A note of use is due, too, for an entry that was written this long in the future.
const FUTURE: Minute = 24 * 60;

/// How many minutes nobody tries to note a use after that was refused: the directory can only be read, or is gone.
const REFUSED: Minute = 60;

impl Store {
    #[inline]
    pub(crate) fn is_expired(&self, slot: &Slot, minute: Minute) -> bool {
        let allowed = self.options.max_age;
        allowed.is_some_and(|allowed| age(minute, slot.written) > allowed)
    }

    /// Whether a use that happens now is to be noted. `is_old` says whether the record is in the older half of the files, of
    /// which the first use is noted at once: it may go before its note is due otherwise.
    #[inline]
    pub(crate) fn is_note_due(
        &self,
        slot: &Slot,
        minute: Minute,
        is_old: impl FnOnce() -> bool,
    ) -> bool {
        let after = self.options.note_use_after;
        let due = after.is_some_and(|after| {
            age(minute, slot.last_use()) >= after || (!slot.touched && is_old())
        });
        // An entry of the future would never get old.
        let due = due || slot.last_use() > minute.saturating_add(FUTURE);
        due && minute.abs_diff(self.note_refused.load(Ordering::Relaxed)) >= REFUSED
    }
}

/// So many minutes after the last look, a hit looks again whether the files that are mapped are still there. A handle with
/// hits alone opens no file, and would otherwise keep those that others have removed.
const LOOK_AFTER: Minute = 10;

impl Store {
    /// Gives up the maps of files that are gone. What fails is tried again with the next look.
    #[cold]
    pub(crate) fn drop_old_maps(&self, process: &Process, minute: Minute) {
        process.looked.store(minute, Ordering::Relaxed);
        if self.reopen_index(process).is_ok()
            && let Ok(change) = self.directory.last_change()
        {
            self.drop_gone(&mut process.view_mut(), change, None).ok();
        }
    }
}

impl Process {
    #[inline]
    pub(crate) fn is_look_due(&self, minute: Minute) -> bool {
        minute.abs_diff(self.looked.load(Ordering::Relaxed)) >= LOOK_AFTER
    }

    #[inline]
    pub(crate) fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn view_mut(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None if another thread has it.
    pub(crate) fn try_writer(&self) -> Option<MutexGuard<'_, Option<Writer>>> {
        match self.writer.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// Whether a file of the cache cannot be what a writer of the cache has made.
fn is_spoilt(e: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, PermissionDenied};
    is_lost(e) || matches!(e.kind(), InvalidData | PermissionDenied)
}

/// The length of a segment, if the limit has room for four of them and an index.
fn segment_len(options: &CacheOptions) -> io::Result<u64> {
    let wanted = options
        .segment_len
        .unwrap_or_else(|| (options.limit / 32).clamp(1 << 20, 64 << 20));
    let len = wanted
        .max(1)
        .checked_next_multiple_of(PAGE)
        .filter(|&len| len <= 1 << 32);
    let least = len.and_then(|len| len.checked_mul(4)?.checked_add(2 * (SLOTS_AT + BLOCK)));
    match (len, least) {
        (Some(len), Some(least)) if least <= options.limit => Ok(len),
        (_, least) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "the limit is {} bytes with segments of {wanted}, allowed is a limit of at least {} with segments of at \
                 most 4 GiB; raise the limit, or set a shorter segment_len",
                options.limit,
                least.unwrap_or(u64::MAX)
            ),
        )),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::{Cell, RefCell};

    use crate::{About, Cache, CacheOptions};

    #[test]
    fn the_segment_of_a_first_look_is_mapped_only_if_more_is_asked_of_it() {
        let home = tempfile::tempdir().unwrap();
        let open = || Cache::open(home.path(), CacheOptions::new()).unwrap();
        let writer = open();
        let (short, long) = (b"short".as_slice(), b"long".as_slice());
        writer.insert(short, b"a value", About::default()).unwrap();
        // It has a file of its own.
        let value = vec![7; 3 << 20];
        writer.insert(long, &value, About::default()).unwrap();
        for second in [short, long] {
            let cache = open();
            for key in [short, second] {
                assert!(cache.get(key).unwrap().is_some());
            }
            let view = cache.store.process().unwrap().view();
            assert_eq!(view.segments.len(), 1);
            // It keeps no descriptor of a file that may be evicted.
            assert!(view.kept.is_none());
            drop(view);
            assert!(cache.get(short).unwrap().is_some());
            let mapped = cache.store.process().unwrap().view().segments.len();
            assert_eq!(mapped, if second == short { 1 } else { 2 });
        }
    }

    #[test]
    fn an_opening_asks_for_names_only_if_one_has_come_or_gone() {
        let home = tempfile::tempdir().unwrap();
        let options = CacheOptions::new().limit(16 << 20).segment_len(64 << 10);
        let open = || Cache::open(home.path(), options.clone()).unwrap();
        let writer = open();
        let keys: Vec<[u8; 1]> = (0..10).map(|n| [n]).collect();
        for key in &keys {
            writer.insert(key, &[7; 15_000], About::default()).unwrap();
        }
        let set_back = || {
            let then = rustix::fs::Timespec {
                tv_sec: brisk_io::coarse_seconds() - 100,
                tv_nsec: 0,
            };
            let times = rustix::fs::Timestamps {
                last_access: then,
                last_modification: then,
            };
            let directory = std::fs::File::open(home.path()).unwrap();
            rustix::fs::futimens(&directory, &times).unwrap();
        };
        set_back();
        let reader = open();
        NAMES.set(0);
        // In two files.
        for key in &keys[..8] {
            assert!(reader.get(key).unwrap().is_some());
        }
        let mapped = |number| {
            let view = reader.store.process().unwrap().view();
            (view.segments.len(), view.segments.contains_key(&number))
        };
        let slot = crate::lookup::slot_of(&reader.store, &keys[0], crate::lookup::Patience::Wait);
        let number = slot.unwrap().unwrap().segment;
        assert_eq!(mapped(number), (2, true));
        assert_eq!(NAMES.get(), 0);
        std::fs::remove_file(home.path().join(crate::directory::segment_name(number))).unwrap();
        // In a third file.
        assert!(reader.get(&keys[9]).unwrap().is_some());
        assert_eq!(NAMES.get(), 2);
        assert_eq!(mapped(number), (2, false));
    }

    thread_local! {
        /// How often this thread has asked whether a file has its name.
        pub(crate) static NAMES: Cell<usize> = const { Cell::new(0) };
        /// What happens in this thread, between the look at a slot and the opening of its segment, as long as it says that it
        /// happens again.
        pub(crate) static BEFORE_OPENING: RefCell<Option<Box<dyn FnMut() -> bool>>> = const { RefCell::new(None) };
    }

    pub(super) fn before_opening() {
        if let Some(mut happens) = BEFORE_OPENING.take()
            && happens()
        {
            BEFORE_OPENING.set(Some(happens));
        }
    }
}
