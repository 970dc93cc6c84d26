//! The ledger and the index, in the hands of the one that has the lock.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::ahead::cache_ahead;
use crate::clock::now;
use crate::directory::{INDEX, LEDGER, segment_name};
use crate::format::digest::Digest;
use crate::format::index_header::OLD_BEFORE_AT;
use crate::format::ledger_state::{LedgerState, TOTALS_AT};
use crate::format::noted_limit::{self, LIMIT_AT};
use crate::format::record::HEADER;
use crate::format::slot::{self, BUCKETS, Slot};
use crate::format::{PAGE, UNIT};
use crate::index::{Index, Place};
use crate::options::Durability;
use crate::segment::Aged;
use crate::store::{Process, Store};
use crate::writer::{Active, Lease, SAVED, Total, TryBorrow, Writer};

/// The longest lease, and no more than a 64th of a segment.
const LONGEST_LEASE: u64 = 64 << 10;

/// A lease is that part of what the process has appended before. So a process leaves no larger part of a segment unused.
const LEASED_PART: u64 = 8;

/// Holds the lock, and knows the index and the ledger as they are now.
pub(crate) struct Locked<'a> {
    pub(crate) store: &'a Store,
    pub(crate) process: &'a Process,
    pub(crate) writer: &'a mut Writer,
    pub(crate) index: Arc<Index>,
    pub(crate) state: LedgerState,
}

impl Locked<'_> {
    pub(crate) fn home(&self) -> u64 {
        self.writer.home
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.store.options.durability == Durability::Durable
    }

    /// Notes on the disk that a durable writer uses this cache. From then on,
    /// nobody removes a record that was copied forward before the copy is on the disk.
    pub(crate) fn promise_durability(&mut self) -> io::Result<()> {
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
    /// one that has the lock tidies up.
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
            let name = segment_name(number);
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
        let bytes = slot::FREE;
        let written = self.store.disk.write(self.index.file().as_fd(), at, &bytes);
        written.map_err(|e| self.store.directory.told(INDEX, e))
    }

    pub(crate) fn oldest(&mut self) -> &mut VecDeque<Aged> {
        &mut self.writer.oldest
    }

    /// Notes the limit in the index, for programs that look into the directory.
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

    pub(crate) fn digest(&self, key: &[u8]) -> Digest {
        Digest::of(self.index.header.seed, key)
    }

    /// Notes a use of the record that a slot named, if the slot still names it.
    pub(crate) fn note_use(&mut self, slot: &Slot) -> io::Result<()> {
        let Place::Same(at, present) = self.index.place_for(slot.digest)? else {
            return Ok(());
        };
        if !present.names_the_record_of(slot) {
            return Ok(());
        }
        let minute = now();
        let noted = Slot {
            used: minute,
            // A time of the future is a mistake of a clock.
            written: present.written.min(minute),
            touched: true,
            ..present
        };
        self.write_slot(at, &noted)
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
