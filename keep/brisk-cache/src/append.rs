//! Records behind each other in the active segment, and the slots that name them.

use std::io;
use std::os::fd::AsFd;

use crate::ahead::LARGE;
use crate::clock::Minute;
use crate::directory::{segment_name, value_name};
use crate::format::digest::Digest;
use crate::format::record::{HEADER, Layout, Unchecked, encode_head};
use crate::format::segment_header::{self, SegmentHeader};
use crate::format::slot::{Kind, Slot};
use crate::format::{PAGE, UNIT};
use crate::index::{Place, is_full};
use crate::locked::Locked;
use crate::random;
use crate::segment::{FIRST_LEN, expected};

/// Up to this many bytes, a record is copied together and written by one call.
const GATHERED: usize = 64 << 10;

/// A value to insert.
#[derive(Debug, Clone, Copy)]
pub(crate) struct New<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) fingerprint: u64,
    pub(crate) bucket: u16,
}

/// Where a record has been put.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Put {
    pub(crate) kind: Kind,
    pub(crate) segment: u64,
    pub(crate) place: u32,
    pub(crate) room: u32,
    pub(crate) record: u64,
}

/// Where a record goes in the active segment, and where a lease behind it begins and ends if that is new.
type Taken = (u64, Option<(u64, u64)>);

impl Locked<'_> {
    /// Bytes that are left within the limit, if the active segment grows to its full length.
    pub(crate) fn spare(&mut self) -> io::Result<u64> {
        let to_come = match self.active()? {
            Some((_, &mut len)) => self.store.segment_len.saturating_sub(len),
            None => 0,
        };
        let taken = self.state.bytes.saturating_add(to_come);
        Ok(self.store.options.limit.saturating_sub(taken))
    }

    /// Notes in the ledger's totals, without writing that of bucket 0, that a record replaces what was at a place.
    pub(crate) fn count_replacement(
        &mut self,
        (key, bucket): (&[u8], u16),
        put: &Put,
        at: &Place,
    ) -> io::Result<()> {
        if let Place::Same(_, before) | Place::Full(_, before) = at {
            if (before.bucket, before.room) == (bucket, put.room) {
                return Ok(());
            }
            self.count(before, false)?;
        }
        let digest = Digest::of(self.index.header.seed, key);
        self.count(&slot_of(put, digest, bucket, (0, 0)), true)
    }

    /// Writes a record behind the others of the active segment, which nobody finds yet. None if no segment has room.
    pub(crate) fn append(
        &mut self,
        new: &New<'_>,
        layout: &Layout,
        at: &Place,
    ) -> io::Result<Option<Put>> {
        let room = layout.room().ok_or(io::ErrorKind::InvalidInput)?;
        let bytes = u64::from(room) * UNIT;
        let Some((start, lease)) = self.take_room(bytes)? else {
            return Ok(None);
        };
        let segment = self.state.active;
        let (mut head, record) = encode_head(layout, segment, new.fingerprint, new.key, new.value);
        let put = Put {
            kind: Kind::Shared,
            segment,
            place: u32::try_from(start / UNIT).map_err(|_| io::ErrorKind::InvalidInput)?,
            room,
            record,
        };
        self.count_replacement((new.key, new.bucket), &put, at)?;
        // The file of the value that is replaced goes.
        self.state.unsettled |= has_file(at);
        self.save()?;
        let disk = &self.store.disk.clone();
        let directory = &self.store.directory;
        let (file, _) = self.active()?.ok_or(io::ErrorKind::NotFound)?;
        let written = if head.len() + new.value.len() <= GATHERED {
            head.extend_from_slice(new.value);
            disk.write(file, start, &head)
        } else {
            let value_at = start + layout.value as u64;
            disk.write(file, start, &head)
                .and_then(|()| disk.write(file, value_at, new.value))
        };
        written.map_err(|e| directory.told(&segment_name(segment), e))?;
        if let Some((next, end)) = lease {
            self.set_lease(bytes, next, end);
        }
        if self.is_durable() {
            self.sync_active()?;
        }
        Ok(Some(put))
    }

    /// Takes room for a record in the active segment, or in a new one. None if no segment has room.
    fn take_room(&mut self, bytes: u64) -> io::Result<Option<Taken>> {
        if self.has_room(bytes)? {
            match self.take_active(bytes) {
                // A new segment is short, and takes less of a full disk than this one to grow.
                Err(e) if is_full(&e) => {}
                taken => return taken.map(Some),
            }
        }
        if self.spare()? < self.store.segment_len {
            return Ok(None);
        }
        self.begin_segment(FIRST_LEN.min(self.store.segment_len))?;
        self.take_active(bytes).map(Some)
    }

    /// As [`take_room`](Self::take_room), in the active segment.
    fn take_active(&mut self, bytes: u64) -> io::Result<Taken> {
        if let Some(start) = self.take_leased(bytes) {
            return Ok((start, None));
        }
        // Always the tail, though a lease may have room before it: then a ledger that is older than the segment
        // names the start of a record, which is not zero, and nobody believes that ledger.
        let start = self.state.tail;
        let end = start.saturating_add(bytes);
        let until = self.end_of_lease(bytes, end)?;
        self.reserve(until)?;
        if bytes >= LARGE {
            self.cache_ahead(start..until)?;
        }
        // Once this is saved, the range is this writer's, whatever happens.
        self.state.tail = until;
        Ok((start, Some((end, until))))
    }

    /// Waits until the active segment is on the disk. If that fails, nobody knows what is there, and the segment is
    /// closed.
    pub(crate) fn sync_active(&mut self) -> io::Result<()> {
        let disk = self.store.disk.clone();
        let Some((file, _)) = self.active()? else {
            return Ok(());
        };
        let synced = disk.sync(file);
        if synced.is_err() {
            self.state.active = 0;
            self.save()?;
        }
        synced
    }

    /// Makes sure that the active segment has this length, which it may have.
    fn reserve(&mut self, end: u64) -> io::Result<()> {
        if end <= self.active()?.map_or(0, |(_, &mut len)| len) {
            return Ok(());
        }
        let from = self.active_len()?;
        if end <= from {
            return Ok(());
        }
        let (most, disk) = (self.longest_active()?, self.store.disk.clone());
        let name = segment_name(self.state.active);
        let directory = &self.store.directory;
        let to = (from * 2)
            .max(FIRST_LEN)
            .max(end.next_multiple_of(PAGE))
            .min(most);
        // Counted first: whoever is killed here leaves a ledger that counts too much, until it is counted again.
        self.state.bytes = self.state.bytes.saturating_add(to - from);
        self.save()?;
        let Some((file, len)) = self.active()? else {
            return Err(io::ErrorKind::NotFound.into());
        };
        match disk.reserve(file, from, to) {
            Ok(()) => {
                *len = to;
                Ok(())
            }
            Err(e) => {
                self.state.bytes = self.state.bytes.saturating_sub(to - from);
                self.save()?;
                Err(directory.told(&name, e))
            }
        }
    }

    /// Begins a segment of this length, which becomes the active one.
    fn begin_segment(&mut self, len: u64) -> io::Result<()> {
        let number = random::number()?;
        let name = segment_name(number);
        let store = self.store;
        let header = SegmentHeader {
            kind: Kind::Shared,
            number,
            sequence: self.state.sequence,
        };
        // Who evicts may be about to remove a file.
        let was_unsettled = self.state.unsettled;
        self.begin_files()?;
        let file = store.disk.create(&store.directory, &name)?;
        let begin = || {
            store.disk.reserve(file.as_fd(), 0, len)?;
            store.disk.write(file.as_fd(), 0, &header.encode())?;
            if self.state.durable {
                // Others will write records to it that must last.
                store.disk.sync(file.as_fd())?;
                store.disk.sync_names(&store.directory)?;
            }
            Ok(())
        };
        if let Err(e) = begin() {
            // If that fails, too, the next one tidies up.
            if store.disk.remove(&store.directory, &name).is_ok() {
                self.state.unsettled = was_unsettled;
                self.save()?;
            }
            return Err(store.directory.told(&name, e));
        }
        self.state.active = number;
        self.state.tail = segment_header::LEN as u64;
        self.state.sequence = self.state.sequence.saturating_add(1);
        self.state.bytes = self.state.bytes.saturating_add(len);
        self.set_active(number, file, len);
        self.state.unsettled = was_unsettled;
        self.save()
    }

    /// Begins a segment that has room for so many bytes, in what is left within the limit, though that be too little for a
    /// segment of full length. Only for records of a file that is about to go. Returns whether there was room.
    fn begin_short_segment(&mut self, bytes: u64) -> io::Result<bool> {
        let left = self.store.options.limit.saturating_sub(self.state.bytes);
        let len = FIRST_LEN
            .min(self.store.segment_len)
            .min(left / PAGE * PAGE);
        if segment_header::LEN as u64 + bytes > len {
            return Ok(false);
        }
        if self.state.durable {
            // Who has copied syncs the active segment alone, and that is another one from here on.
            self.sync_active()?;
        }
        match self.begin_segment(len) {
            Ok(()) => Ok(true),
            // The file that is about to go makes room.
            Err(e) if is_full(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Makes a record findable, in the place that was chosen for it.
    pub(crate) fn publish(
        &mut self,
        (key, bucket): (&[u8], u16),
        put: &Put,
        place: Place,
        times: (Minute, Minute),
    ) -> io::Result<()> {
        let digest = Digest::of(self.index.header.seed, key);
        let slot = slot_of(put, digest, bucket, times);
        let (at, before) = match place {
            Place::Free(at) => (at, None),
            Place::Same(at, before) => (at, Some(before)),
            Place::Full(at, before) => {
                self.store.counters.displaced.add(1);
                (at, Some(before))
            }
        };
        self.note_limit();
        self.write_slot(at, &slot)?;
        if self.is_durable() {
            self.sync_index()?;
        }
        match before {
            Some(before) => self.discard(&before),
            None => Ok(()),
        }
    }

    /// Removes the file of a record that no slot names any more, if it has one of its own.
    pub(crate) fn discard(&mut self, slot: &Slot) -> io::Result<()> {
        if slot.kind != Kind::Alone {
            return Ok(());
        }
        let name = value_name(slot.segment);
        let store = self.store;
        let Some((_, stat)) = store.directory.file(&name, rustix::fs::OFlags::RDONLY)? else {
            return self.end_files();
        };
        if store.disk.remove(&store.directory, &name)? {
            let len = u64::try_from(stat.st_size).unwrap_or(0);
            self.state.bytes = self.state.bytes.saturating_sub(len);
        }
        self.end_files()?;
        self.process.view_mut().forget(slot.segment);
        Ok(())
    }

    /// Copies a record to the active segment and its slot with it. Returns whether there was room.
    pub(crate) fn copy_forward(&mut self, at: u64, slot: &Slot, record: &[u8]) -> io::Result<bool> {
        let expected = expected(slot, None, record.len());
        let checked = Unchecked::parse(record, &expected)
            .and_then(|unchecked| unchecked.check(record, &expected));
        let Ok(checked) = checked else {
            return Ok(false);
        };
        let (Some(key), Some(value)) = (checked.key(record), record.get(checked.layout.value()))
        else {
            return Ok(false);
        };
        let new = New {
            key,
            value,
            fingerprint: checked.fingerprint,
            bucket: slot.bucket,
        };
        let bytes = u64::from(slot.room) * UNIT;
        if !self.has_room(bytes)? && !self.begin_short_segment(bytes)? {
            return Ok(false);
        }
        let place = Place::Same(at, *slot);
        let put = match self.append(&new, &checked.layout, &place) {
            Ok(Some(put)) => put,
            Ok(None) => return Ok(false),
            // The file that is about to go makes room.
            Err(e) if is_full(&e) => return Ok(false),
            Err(e) => return Err(e),
        };
        let copied = slot_of(&put, slot.digest, slot.bucket, (slot.written, slot.used));
        self.write_slot(at, &copied)?;
        Ok(true)
    }
}

/// Whether a value is replaced that is a file of its own.
fn has_file(at: &Place) -> bool {
    matches!(at, Place::Same(_, slot) | Place::Full(_, slot) if slot.kind == Kind::Alone)
}

fn slot_of(put: &Put, digest: Digest, bucket: u16, (written, used): (Minute, Minute)) -> Slot {
    Slot {
        digest,
        segment: put.segment,
        place: put.place,
        room: put.room,
        record: put.record,
        written,
        used,
        bucket,
        kind: put.kind,
        touched: false,
    }
}

// A record begins with its header, and a slot's place is a multiple of 64.
const _: () = assert!(HEADER as u64 <= UNIT && segment_header::LEN as u64 == UNIT);
