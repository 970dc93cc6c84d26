//! The lock, and what its holder knows.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use brisk_io::{ByteSource, Mapping, UnsharedFile};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::ahead::cache_ahead;
use crate::clock::{Minute, now};
use crate::directory::{FileId, INDEX, LEDGER};
use crate::format::index_header::OLD_BEFORE_AT;
use crate::format::ledger_state::{self, LedgerState, TOTALS_AT};
use crate::format::noted_limit::{self, LIMIT_AT};
use crate::format::record::HEADER;
use crate::format::slot::{BUCKETS, Slot};
use crate::format::{PAGE, UNIT, check};
use crate::index::Index;
use crate::options::Durability;
use crate::random;
use crate::recovery::Aged;
use crate::store::{Process, Store};

/// The longest pause between two tries to lock.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// What a process has open to write.
#[derive(Debug)]
pub(crate) struct Writer {
    ledger: Arc<UnsharedFile>,
    ledger_id: FileId,
    /// Proves that a ledger says where its segment ends.
    home: u64,
    active: Option<Active>,
    lease: Option<Lease>,
    /// How many bytes of records this process has appended.
    appended: u64,
    totals: Vec<u8>,
    /// The start of the ledger as it is on the disk, if it is known.
    saved: Option<[u8; SAVED]>,
    /// The ledger, in a process that has written before. Only read with the lock.
    map: Option<Mapping>,
    /// When this process last looked which files have the names of the index and of the ledger, and which index had.
    named: Option<(Minute, FileId)>,
    /// The index in which this process's limit is noted.
    limit_in: Option<FileId>,
    /// The oldest files, when they were last listed, without those that this process has evicted or spared since. All others
    /// are younger.
    oldest: VecDeque<Aged>,
}

/// The segment that is appended to, if its number is still the ledger's.
#[derive(Debug)]
struct Active {
    number: u64,
    file: File,
    len: u64,
}

/// A range of a segment that the ledger has as taken, and that this process alone appends to. So most records need no
/// write to the ledger.
///
/// 1. No record and no other writer's range is in it.
#[derive(Debug, Clone, Copy)]
struct Lease {
    segment: u64,
    next: u64,
    end: u64,
}

impl Lease {
    fn has_room(&self, bytes: u64, state: &LedgerState) -> bool {
        let end = self.next.checked_add(bytes);
        // A ledger that does not have it as taken is not the one in which it was noted.
        let is_noted = self.segment == state.active && self.end <= state.tail;
        is_noted && end.is_some_and(|end| end <= self.end)
    }
}

/// The longest lease, and no more than a 64th of a segment.
const LONGEST_LEASE: u64 = 64 << 10;

/// A lease is that part of what the process has appended before. So a process leaves no larger part of a segment unused.
const LEASED_PART: u64 = 8;

/// How much of the ledger is written at once: its state, and the total of bucket 0, which follows it.
const SAVED: usize = ledger_state::LEN + 16;

/// How long to wait for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    /// As long as the options say.
    Bounded,
    /// As a reader that has found damage, and asks whether somebody is just writing it.
    Doubt,
}

/// How long a reader waits that has found damage. Who writes a slot has written it long before.
const DOUBT: Duration = Duration::from_secs(1);

/// The records of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Total {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// Holds the lock, and knows the index and the ledger as they are now.
pub(crate) struct Locked<'a> {
    pub(crate) store: &'a Store,
    pub(crate) process: &'a Process,
    writer: &'a mut Writer,
    pub(crate) index: Arc<Index>,
    pub(crate) state: LedgerState,
}

impl Store {
    /// Runs `work` while no other thread and no other process writes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if another has the lock and `wait` is [`Wait::No`], [`io::ErrorKind::TimedOut`] if
    /// it has it for too long. Those of the system, and of `work`.
    pub(crate) fn locked<R>(
        &self,
        wait: Wait,
        work: impl FnOnce(&mut Locked<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        let process = self.process()?;
        let mut guard: MutexGuard<'_, Option<Writer>> = match wait {
            Wait::Bounded => process.writer(),
            Wait::No => process.try_writer().ok_or(io::ErrorKind::WouldBlock)?,
            Wait::Doubt => self.writer_in_doubt(process)?,
        };
        loop {
            let writer = match &mut *guard {
                Some(writer) => writer,
                none => none.insert(Writer::open(self)?),
            };
            let ledger = Arc::clone(&writer.ledger);
            self.lock(ledger.try_borrow()?, wait)?;
            let _unlock = Unlock(&ledger);
            let index = match self.known_index(process, writer) {
                None if !writer.has_name(self)? => {
                    // Somebody has removed it by hand. Others lock another one, and what this one says is of files that
                    // nobody finds.
                    *guard = None;
                    continue;
                }
                None => self.named_index(process, writer)?,
                known => known,
            };
            return self.with_lock(process, writer, index, work);
        }
    }

    fn with_lock<R>(
        &self,
        process: &Process,
        writer: &mut Writer,
        index: Option<Arc<Index>>,
        work: impl FnOnce(&mut Locked<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        let read = writer.read(self)?;
        let is_at_home = read.is_some_and(|state| state.home == writer.home);
        let mut locked = Locked {
            store: self,
            process,
            writer,
            index: match &index {
                Some(index) => Arc::clone(index),
                None => self.make_index(process)?,
            },
            state: read.unwrap_or_default(),
        };
        if !is_at_home || index.is_none() {
            // What a damaged ledger said of durability, nobody knows.
            locked.state.durable |= read.is_none() && locked.writer.has_ledger();
            locked.recover()?;
        } else if locked.state.unsettled {
            locked.settle()?;
        }
        locked.promise_durability()?;
        work(&mut locked)
    }

    /// The index that this process has open, if that has the name. None if only a look at the name can tell.
    ///
    /// With the lock, the mark says so: whoever gives the name to another index first marks the one that has it, and
    /// takes the mark back only if that keeps the name. But somebody may remove files by hand, so a look is due once a
    /// minute, too, and always where a mark may come late.
    fn known_index(&self, process: &Process, writer: &Writer) -> Option<Arc<Index>> {
        let known = process.view().index.clone()?;
        let is_known = writer.named == Some((now(), known.id))
            && known.writable
            && known.is_mapped()
            && known.is_marked_current().unwrap_or(false);
        is_known.then_some(known)
    }

    /// The index that the name belongs to. None if there is none.
    fn named_index(
        &self,
        process: &Process,
        writer: &mut Writer,
    ) -> io::Result<Option<Arc<Index>>> {
        let known = process.view().index.clone();
        let named = self.directory.id_of(INDEX)?;
        writer.named = named.map(|named| (now(), named));
        let index = match known.filter(|index| Some(index.id) == named) {
            Some(index) => index,
            None => {
                self.reopen_index(process)?;
                let Some(index) = process.view().index.clone() else {
                    return Ok(None);
                };
                index
            }
        };
        if !index.writable {
            let e = io::Error::new(
                io::ErrorKind::PermissionDenied,
                "this user may only read it; let the owner of the cache write",
            );
            return Err(self.directory.told(INDEX, e));
        }
        if !index.is_marked_current().unwrap_or(false) {
            // With the lock, nobody else is growing it. Who was is dead.
            self.mark(&index, crate::format::index_header::CURRENT)?;
        }
        Ok(Some(index))
    }

    fn longest(&self, wait: Wait) -> Duration {
        match wait {
            Wait::No => Duration::ZERO,
            Wait::Bounded => self.options.write_wait,
            Wait::Doubt => self.options.write_wait.min(DOUBT),
        }
    }

    /// The mutex of this process, whose holder may be waiting for the lock, and for longer.
    fn writer_in_doubt<'p>(
        &self,
        process: &'p Process,
    ) -> io::Result<MutexGuard<'p, Option<Writer>>> {
        let started = Instant::now();
        loop {
            match process.try_writer() {
                Some(writer) => return Ok(writer),
                None if started.elapsed() >= self.longest(Wait::Doubt) => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                None => thread::sleep(LONGEST_PAUSE),
            }
        }
    }

    fn lock(&self, file: BorrowedFd<'_>, wait: Wait) -> io::Result<()> {
        let mut started = None;
        let mut pause = Duration::from_micros(20);
        loop {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => {}
                Err(e) => return Err(self.directory.told(LEDGER, e.into())),
            }
            if wait == Wait::No {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let waited = started.get_or_insert_with(Instant::now).elapsed();
            let longest = self.longest(wait);
            if waited >= longest {
                let e = io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "another process has had the lock for {} ms, allowed are {}; nothing was changed; end or \
                         continue that process (fuser names it), or raise write_wait",
                        waited.as_millis(),
                        longest.as_millis()
                    ),
                );
                return Err(self.directory.told(LEDGER, e));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    pub(crate) fn mark(&self, index: &Index, mark: [u8; 8]) -> io::Result<()> {
        let at = crate::format::index_header::MARK_AT;
        self.disk.write(index.file().as_fd(), at, &mark)
    }
}

/// Ends the lock, also if the work panics.
struct Unlock<'a>(&'a UnsharedFile);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.0.get() {
            // The lock was taken, so it can be ended.
            let ended = flock(file, FlockOperation::Unlock);
            debug_assert!(ended.is_ok(), "{ended:?}");
        }
    }
}

/// The file of an [`UnsharedFile`], which a child never uses: it has a [`Process`] of its own.
trait TryBorrow {
    fn try_borrow(&self) -> io::Result<BorrowedFd<'_>>;
}

impl TryBorrow for UnsharedFile {
    fn try_borrow(&self) -> io::Result<BorrowedFd<'_>> {
        self.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Writer {
    fn open(store: &Store) -> io::Result<Self> {
        let directory = &store.directory;
        directory.refuse_foreign()?;
        let (file, stat) = directory.open_or_create(LEDGER)?;
        if let Some(kind) = store.filesystem()?.unsure() {
            let (second, _) = directory.open_or_create(LEDGER)?;
            prove_locks(&file, &second, kind).map_err(|e| directory.told(LEDGER, e))?;
        }
        let ledger_id = FileId::of_stat(&stat);
        Ok(Self {
            ledger: Arc::new(UnsharedFile::new(file)?),
            ledger_id,
            home: home_of(ledger_id),
            active: None,
            lease: None,
            appended: 0,
            totals: Vec::new(),
            saved: None,
            map: None,
            named: None,
            limit_in: None,
            oldest: VecDeque::new(),
        })
    }

    /// Whether the ledger still has its name.
    fn has_name(&self, store: &Store) -> io::Result<bool> {
        Ok(store.directory.id_of(LEDGER)? == Some(self.ledger_id))
    }

    /// Whether the ledger that was read has anything.
    fn has_ledger(&self) -> bool {
        let state = self.totals.get(..ledger_state::LEN).unwrap_or_default();
        state.iter().any(|&byte| byte != 0)
    }

    /// The ledger as it is, of this home or of another. None if it is damaged.
    fn read(&mut self, store: &Store) -> io::Result<Option<LedgerState>> {
        const LEN: usize = TOTALS_AT as usize + BUCKETS as usize * 16;
        self.saved = None;
        if self.read_map() {
            self.saved = self.totals.first_chunk().copied();
            let state = self.totals.first_chunk::<{ ledger_state::LEN }>();
            return Ok(state.and_then(LedgerState::parse));
        }
        let again = !self.totals.is_empty();
        self.totals.clear();
        self.totals.resize(LEN, 0);
        let mut done = 0;
        while let Some(rest) = self.totals.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(self.ledger.try_borrow()?, rest, done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(store.directory.told(LEDGER, e.into())),
            }
        }
        if again && done == LEN && store.reading()?.is_mapped() {
            // A process that writes once needs no map.
            let bytes = 0..LEN as u64;
            let mapped = Mapping::within(&self.ledger.try_clone()?, bytes, LEN as u64);
            self.map = Some(mapped.map_err(|e| store.directory.told(LEDGER, e))?);
        }
        if done == LEN {
            self.saved = self.totals.first_chunk().copied();
        }
        let state = self.totals.first_chunk::<{ ledger_state::LEN }>();
        Ok(state.and_then(LedgerState::parse))
    }

    /// Copies the ledger from its map. False if there is none, or if somebody has cut the file.
    fn read_map(&mut self) -> bool {
        let Some(map) = &self.map else {
            return false;
        };
        let read = map.read_exact_bytes_at(0, &mut self.totals).is_ok();
        if !read {
            self.map = None;
        }
        read
    }
}

/// Refuses a filesystem on which a second open file gets the lock that the first one has.
fn prove_locks(first: &File, second: &File, kind: u64) -> io::Result<()> {
    match flock(first, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        // Another process has it, so locks work.
        Err(Errno::WOULDBLOCK) => return Ok(()),
        Err(e) => return Err(e.into()),
    }
    let proven = flock(second, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
    flock(first, FlockOperation::Unlock)?;
    match proven {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "its filesystem (type {kind:#x}) gives one lock to two, so this cache can only be read there; put the \
                 cache on a local disk"
            ),
        )),
    }
}

/// The check of the boot id and of the ledger's own numbers.
pub(crate) fn home_of(ledger: FileId) -> u64 {
    // Without a boot id, nobody can prove anything: a random number is the home of this process alone.
    let boot = fs::read("/proc/sys/kernel/random/boot_id");
    let boot = boot.or_else(|_| random::number().map(|number| number.to_le_bytes().to_vec()));
    let mut bytes = boot.unwrap_or_default();
    bytes.extend(ledger.device.to_le_bytes());
    bytes.extend(ledger.inode.to_le_bytes());
    check::seeded(1, &bytes)
}

impl Locked<'_> {
    pub(crate) fn home(&self) -> u64 {
        self.writer.home
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.store.options.durability == Durability::Durable
    }

    /// Notes, so that it stays, that somebody writes here to whom it matters what a loss of power leaves. From then on,
    /// nobody removes a record that was copied forward before the copy is on the disk.
    fn promise_durability(&mut self) -> io::Result<()> {
        if !self.is_durable() || self.state.durable {
            return Ok(());
        }
        self.state.durable = true;
        self.save()?;
        let synced = self.store.disk.sync(self.writer.ledger.try_borrow()?);
        synced.map_err(|e| self.store.directory.told(LEDGER, e))?;
        // The name of the segment that others began may not be on the disk.
        self.store.disk.sync_names(&self.store.directory)
    }

    /// Notes that files are about to be made or removed. If this process is killed before [`Locked::end_files`], the next
    /// one who has the lock tidies up.
    pub(crate) fn begin_files(&mut self) -> io::Result<()> {
        self.state.unsettled = true;
        self.save()
    }

    /// Notes that all files are as the index and the ledger say.
    pub(crate) fn end_files(&mut self) -> io::Result<()> {
        self.state.unsettled = false;
        self.save()
    }

    /// Writes the ledger and the total of bucket 0, unless both are on the disk already.
    pub(crate) fn save(&mut self) -> io::Result<()> {
        let state = self.state.encode();
        if let Some(start) = self.writer.totals.first_chunk_mut() {
            *start = state;
        }
        let start = self.writer.totals.first_chunk().copied();
        if start == self.writer.saved && start.is_some() {
            return Ok(());
        }
        // If it fails, nobody knows what is there.
        self.writer.saved = None;
        self.write_ledger(0, SAVED)?;
        self.writer.saved = start;
        Ok(())
    }

    /// Takes room for a record from this process's lease. None if it has none with so much room.
    pub(crate) fn take_leased(&mut self, bytes: u64) -> Option<u64> {
        let state = &self.state;
        let lease = self.writer.lease.as_mut();
        let lease = lease.filter(|lease| lease.has_room(bytes, state))?;
        let start = lease.next;
        lease.next = start.saturating_add(bytes);
        self.writer.appended = self.writer.appended.saturating_add(bytes);
        Some(start)
    }

    /// Whether the active segment has room for so many bytes.
    pub(crate) fn has_room(&mut self, bytes: u64) -> io::Result<bool> {
        if self.active()?.is_none() {
            return Ok(false);
        }
        let lease = self.writer.lease.as_ref();
        if lease.is_some_and(|lease| lease.has_room(bytes, &self.state)) {
            return Ok(true);
        }
        let end = self.state.tail.saturating_add(bytes);
        Ok(end <= self.store.segment_len && end <= self.longest_active()?)
    }

    /// How long the active segment may become. One that was begun for records of a file that was about to go may only grow
    /// within the limit.
    pub(crate) fn longest_active(&mut self) -> io::Result<u64> {
        let (most, limit) = (self.store.segment_len, self.store.options.limit);
        let bytes = self.state.bytes;
        let fits = |len: u64| bytes.saturating_add(most.saturating_sub(len)) <= limit;
        // A cache whose limit was lowered is past it already.
        if bytes > limit || fits(self.active()?.map_or(0, |(_, &mut len)| len)) {
            return Ok(most);
        }
        let len = self.active_len()?;
        match fits(len) {
            true => Ok(most),
            false => Ok(len.saturating_add((limit - bytes) / PAGE * PAGE)),
        }
    }

    /// How far the room reaches that is to be reserved for a record that ends at `end`, and for a lease behind it.
    pub(crate) fn end_of_lease(&mut self, bytes: u64, end: u64) -> io::Result<u64> {
        let most = LONGEST_LEASE.min(self.store.segment_len / 64);
        let part = (self.writer.appended / LEASED_PART).min(most);
        // Only if it has room for some more records like this one.
        let lease = match bytes <= part / 4 {
            true => part / UNIT * UNIT,
            false => 0,
        };
        Ok(end
            .saturating_add(lease)
            .min(self.longest_active()?)
            .max(end))
    }

    /// Notes that this process has appended a record, and has the range behind it for others, which the ledger on the disk
    /// has as taken.
    pub(crate) fn set_lease(&mut self, bytes: u64, next: u64, end: u64) {
        self.writer.appended = self.writer.appended.saturating_add(bytes);
        // The lease before this one may still have room for a shorter record.
        if next < end {
            self.writer.lease = Some(Lease {
                segment: self.state.active,
                next,
                end,
            });
        }
    }

    fn write_ledger(&self, at: usize, len: usize) -> io::Result<()> {
        let bytes = self.writer.totals.get(at..at + len).unwrap_or_default();
        let file = self.writer.ledger.try_borrow()?;
        let written = self.store.disk.write(file, at as u64, bytes);
        written.map_err(|e| self.store.directory.told(LEDGER, e))
    }

    /// Adds to the total of a bucket. That of bucket 0 is written by [`Locked::save`].
    pub(crate) fn count(&mut self, slot: &Slot, more: bool) -> io::Result<()> {
        let at = total_at(slot.bucket);
        let mut total = self.total(slot.bucket);
        let bytes = u64::from(slot.room) * UNIT;
        if more {
            total.entries = total.entries.saturating_add(1);
            total.bytes = total.bytes.saturating_add(bytes);
        } else {
            total.entries = total.entries.saturating_sub(1);
            total.bytes = total.bytes.saturating_sub(bytes);
        }
        self.set_total(slot.bucket, total);
        match slot.bucket {
            0 => Ok(()),
            _ => self.write_ledger(at, 16),
        }
    }

    pub(crate) fn total(&self, bucket: u16) -> Total {
        let at = total_at(bucket);
        let number = |at: usize| {
            let bytes = self.writer.totals.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        Total {
            entries: number(at),
            bytes: number(at + 8),
        }
    }

    fn set_total(&mut self, bucket: u16, total: Total) {
        let at = total_at(bucket);
        let mut put = |at: usize, number: u64| {
            if let Some(bytes) = self.writer.totals.get_mut(at..at + 8) {
                bytes.copy_from_slice(&number.to_le_bytes());
            }
        };
        put(at, total.entries);
        put(at + 8, total.bytes);
    }

    /// Writes all totals.
    pub(crate) fn save_totals(&mut self, totals: &[Total]) -> io::Result<()> {
        for (bucket, total) in (0..BUCKETS).zip(totals) {
            self.set_total(bucket, *total);
        }
        self.write_ledger(TOTALS_AT as usize, usize::from(BUCKETS) * 16)
    }

    /// The active segment, open for writing. None if the ledger has none.
    pub(crate) fn active(&mut self) -> io::Result<Option<(BorrowedFd<'_>, &mut u64)>> {
        let number = self.state.active;
        if number == 0 {
            return Ok(None);
        }
        if self
            .writer
            .active
            .as_ref()
            .is_none_or(|active| active.number != number)
        {
            let name = crate::directory::segment_name(number);
            let Some((file, stat)) = self.store.directory.file(&name, OFlags::RDWR)? else {
                return Ok(None);
            };
            let len = u64::try_from(stat.st_size).unwrap_or(0);
            if !is_free_at(&file, self.state.tail, len) {
                // The ledger is older than the segment, so nobody can say where that ends.
                self.state.active = 0;
                return Ok(None);
            }
            self.writer.active = Some(Active { number, file, len });
        }
        let active = self.writer.active.as_mut();
        Ok(active.map(|active| (active.file.as_fd(), &mut active.len)))
    }

    /// Has readers of the active segment map a range, of which nothing was written yet, with few faults.
    pub(crate) fn cache_ahead(&mut self, range: Range<u64>) -> io::Result<()> {
        if self.process.reading.is_mapped() {
            self.active()?;
            if let Some(active) = &self.writer.active {
                cache_ahead(&active.file, &range, active.len);
            }
        }
        Ok(())
    }

    /// Lets nobody append to the active segment any more, and does not keep its file open.
    pub(crate) fn close_active(&mut self) -> io::Result<()> {
        self.state.active = 0;
        self.writer.active = None;
        self.save()
    }

    pub(crate) fn set_active(&mut self, number: u64, file: File, len: u64) {
        self.writer.active = Some(Active { number, file, len });
    }

    /// How long the active segment really is: another process may have lengthened it.
    pub(crate) fn active_len(&mut self) -> io::Result<u64> {
        let Some((file, len)) = self.active()? else {
            return Ok(0);
        };
        let now = rustix::fs::fstat(file)?.st_size;
        *len = u64::try_from(now).unwrap_or(0);
        Ok(*len)
    }

    pub(crate) fn write_slot(&self, at: u64, slot: &Slot) -> io::Result<()> {
        let bytes = slot.encode(self.index.header.seed);
        let written = self.store.disk.write(self.index.file().as_fd(), at, &bytes);
        written.map_err(|e| self.store.directory.told(INDEX, e))
    }

    pub(crate) fn free_slot(&self, at: u64) -> io::Result<()> {
        let bytes = crate::format::slot::FREE;
        let written = self.store.disk.write(self.index.file().as_fd(), at, &bytes);
        written.map_err(|e| self.store.directory.told(INDEX, e))
    }

    pub(crate) fn oldest(&mut self) -> &mut VecDeque<Aged> {
        &mut self.writer.oldest
    }

    /// Notes the limit in the index, for who looks into the directory.
    pub(crate) fn note_limit(&mut self) {
        if self.writer.limit_in == Some(self.index.id) {
            return;
        }
        let limit = self.store.options.limit;
        let noted = match self.index.noted_limit() {
            Ok(known) if known == Some(limit) => Ok(()),
            _ => self.write_limit(limit),
        };
        // It is no reason to insert nothing. The next insertion tries again.
        if noted.is_ok() {
            self.writer.limit_in = Some(self.index.id);
        }
    }

    pub(crate) fn write_limit(&self, limit: u64) -> io::Result<()> {
        let bytes = noted_limit::encode(limit, self.index.header.seed);
        let file = self.index.file().as_fd();
        self.store.disk.write(file, LIMIT_AT, &bytes)
    }

    /// Notes which files are in the older half, by the sequence of the oldest one. Uses of what they have are noted early.
    pub(crate) fn note_oldest(&self, oldest: u64) {
        let younger = self.state.sequence.saturating_sub(oldest);
        let old_before = oldest.saturating_add(younger / 2);
        if self.index.old_before() != old_before {
            // It is no reason to evict nothing. The next eviction tries again.
            self.write_old_before(old_before).ok();
        }
    }

    pub(crate) fn write_old_before(&self, old_before: u64) -> io::Result<()> {
        let file = self.index.file().as_fd();
        self.store
            .disk
            .write(file, OLD_BEFORE_AT, &old_before.to_le_bytes())
    }

    pub(crate) fn sync_index(&self) -> io::Result<()> {
        let synced = self.store.disk.sync(self.index.file().as_fd());
        synced.map_err(|e| self.store.directory.told(INDEX, e))
    }
}

/// Whether nobody has written a record at the tail of a segment. Its room was reserved, so it has zeros.
///
/// A ledger can be older than its segment, though both have the boot and the numbers that they should: if a disk was
/// taken away without being unmounted, and came back.
fn is_free_at(file: &File, tail: u64, len: u64) -> bool {
    let mut start = [0; HEADER];
    let wanted = usize::try_from(len.saturating_sub(tail)).map_or(HEADER, |left| left.min(HEADER));
    let start = start.get_mut(..wanted).unwrap_or_default();
    brisk_io::ByteSource::read_exact_bytes_at(file, tail, start).is_ok()
        && start.iter().all(|&b| b == 0)
}

fn total_at(bucket: u16) -> usize {
    TOTALS_AT as usize + usize::from(bucket) * 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_that_gives_one_lock_to_two_is_refused() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(path.path()).unwrap();
        prove_locks(&open(), &open(), 0x6969).unwrap();
        // Two descriptors of one open file behave as two files do there.
        let first = open();
        let e = prove_locks(&first, &first.try_clone().unwrap(), 0x6969).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::Unsupported);
        assert_eq!(
            e.to_string(),
            "its filesystem (type 0x6969) gives one lock to two, so this cache can only be read there; put the cache on \
             a local disk"
        );
        // Somebody else's lock proves it, too.
        let holder = open();
        flock(&holder, FlockOperation::NonBlockingLockExclusive).unwrap();
        prove_locks(&first, &first.try_clone().unwrap(), 0x6969).unwrap();
    }
}
