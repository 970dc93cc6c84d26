//! Putting a value under a key.

use std::io;
use std::sync::Arc;

use crate::append::{New, Put};
use crate::clock::{Minute, now};
use crate::directory::{FileId, value_name};
use crate::eviction::{TRIES, make_room, with_room_on_disk};
use crate::format::digest::Digest;
use crate::format::record::{Layout, MOST_KEY, MOST_VALUE, Record, encode_head};
use crate::format::segment_header::SegmentHeader;
use crate::format::slot::{BUCKETS, Kind};
use crate::format::{PAGE, UNIT};
use crate::growth::double_index;
use crate::index::Place;
use crate::lock::{Wait, with_lock};
use crate::locked::Locked;
use crate::random;
use crate::segment::FIRST_LEN;
use crate::store::Store;
use crate::unfinished::Unfinished;

/// The record of an entry that was found before: what is known of it, and its first bytes.
pub(crate) type Before<'a> = (&'a Record, &'a [u8]);

/// Which entry of its key a value takes the place of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Instead<'a> {
    OfAny,
    /// Of this one, or where there is none.
    Of(Option<Before<'a>>),
}

/// What came of an insertion.
enum Outcome {
    /// It is done. `crowded`: the next segment needs room that is not there yet.
    Done { crowded: bool },
    /// There is another entry than that whose place the value was to take.
    Changed,
    /// There is no room for so many bytes.
    NoRoom(u64),
    /// This index is too narrow, and large.
    Narrow(FileId),
}

/// A value in a file of its own, without its final name.
pub(crate) struct Prepared {
    pub(crate) unfinished: Unfinished,
    pub(crate) put: Put,
    pub(crate) len: u64,
    pub(crate) sequence: u64,
}

pub(crate) fn insert(store: &Arc<Store>, new: New<'_>) -> io::Result<()> {
    insert_instead(store, new, Instead::OfAny).map(|_always| ())
}

/// Returns whether the value was inserted. It is not if there is another entry than that whose place it was to take.
pub(crate) fn insert_instead(
    store: &Arc<Store>,
    new: New<'_>,
    instead: Instead<'_>,
) -> io::Result<bool> {
    check_names(new.key, new.bucket)?;
    let value_len = new.value.len() as u64;
    check_len(store, value_len, "")?;
    match layout_among_others(store, new.key, value_len) {
        Some(layout) => insert_shared(store, new, layout, instead),
        None => {
            let prepared = prepare(store, &new)?;
            publish_alone(store, prepared, (new.key, new.bucket), instead)
        }
    }
}

/// Refuses a value that is too long. `but`: what is known of its length, as `"at least "`.
pub(crate) fn check_len(store: &Store, value_len: u64, but: &str) -> io::Result<()> {
    let most = MOST_VALUE.min(store.options.limit / 4);
    if value_len > most {
        return refuse(format!(
            "a value of {but}{value_len} bytes, allowed are {most}, a quarter of the cache's limit; raise the limit"
        ));
    }
    Ok(())
}

/// The layout of a record with other records beside it. None if it is so long that it has a file of its own.
pub(crate) fn layout_among_others(store: &Store, key: &[u8], value_len: u64) -> Option<Layout> {
    let is_small = |layout: &Layout| (layout.value().end as u64) <= store.most_shared;
    Layout::of(Kind::Shared, key.len(), value_len).filter(is_small)
}

fn insert_shared(
    store: &Arc<Store>,
    new: New<'_>,
    layout: Layout,
    instead: Instead<'_>,
) -> io::Result<bool> {
    let on_disk = FIRST_LEN.min(store.segment_len);
    try_insert(store, on_disk, |locked, waits| {
        let minute = now();
        let Some(at) = locked.place_for(new.key, waits)? else {
            return Ok(Outcome::Narrow(locked.index.id));
        };
        if locked.is_changed(&at, instead, minute) {
            return Ok(Outcome::Changed);
        }
        let Some(put) = locked.append(&new, &layout, &at)? else {
            return Ok(Outcome::NoRoom(locked.store.segment_len));
        };
        locked.publish((new.key, new.bucket), &put, at, (minute, minute))?;
        Ok(Outcome::Done {
            crowded: locked.is_crowded()?,
        })
    })
}

/// Makes a value findable that has a file of its own. Returns as [`insert_instead`].
pub(crate) fn publish_alone(
    store: &Arc<Store>,
    mut prepared: Prepared,
    (key, bucket): (&[u8], u16),
    instead: Instead<'_>,
) -> io::Result<bool> {
    // Its bytes are there. It wants a name.
    try_insert(store, PAGE, |locked, waits| {
        let minute = now();
        let spare = locked.spare()?;
        if spare < prepared.len {
            return Ok(Outcome::NoRoom(prepared.len));
        }
        let Some(at) = locked.place_for(key, waits)? else {
            return Ok(Outcome::Narrow(locked.index.id));
        };
        if locked.is_changed(&at, instead, minute) {
            return Ok(Outcome::Changed);
        }
        let name = value_name(prepared.put.segment);
        // It goes as if it had been written now.
        prepared.sequence = prepared.sequence.max(locked.state.sequence);
        locked.state.sequence = prepared.sequence.saturating_add(1);
        locked.state.bytes = locked.state.bytes.saturating_add(prepared.len);
        locked.count_replacement((key, bucket), &prepared.put, &at)?;
        locked.begin_files()?;
        prepared.unfinished.rename(&name)?;
        if locked.is_durable() {
            locked.store.disk.sync_names(&locked.store.directory)?;
        }
        let put = prepared.put;
        locked.publish((key, bucket), &put, at, (minute, minute))?;
        locked.end_files()?;
        Ok(Outcome::Done {
            crowded: locked.is_crowded()?,
        })
    })
}

/// Runs `work`, which wants `on_disk` bytes of the disk, until it is done, or the entry has changed. Returns whether it is
/// done. The second argument of `work` says whether it may wait for a large index to be doubled.
fn try_insert(
    store: &Arc<Store>,
    on_disk: u64,
    mut work: impl FnMut(&mut Locked<'_>, bool) -> io::Result<Outcome>,
) -> io::Result<bool> {
    let mut waits = true;
    for _ in 0..TRIES {
        let outcome = with_room_on_disk(store, on_disk, || {
            with_lock(store, Wait::Bounded, |locked| work(locked, waits))
        });
        match outcome? {
            Outcome::Done { crowded } => {
                if crowded {
                    make_room(store, store.segment_len)?;
                }
                return Ok(true);
            }
            Outcome::Changed => return Ok(false),
            Outcome::NoRoom(needed) => make_room(store, needed)?,
            Outcome::Narrow(index) => {
                waits = with_room_on_disk(store, on_disk, || double_index(store, index))?;
            }
        }
    }
    Err(io::Error::new(
        io::ErrorKind::StorageFull,
        format!(
            "no room within the limit of {} bytes after {TRIES} tries: others fill the cache as fast; raise the limit",
            store.options.limit
        ),
    ))
}

/// Writes a value into a file of its own, without the lock.
fn prepare(store: &Arc<Store>, new: &New<'_>) -> io::Result<Prepared> {
    let number = random::number()?;
    let layout = Layout::of(Kind::Alone, new.key.len(), new.value.len() as u64);
    let layout = layout.ok_or(io::ErrorKind::InvalidInput)?;
    let (head, record) = encode_head(&layout, number, new.fingerprint, new.key, new.value);
    let len = file_len(&layout);
    let unfinished = with_room_on_disk(store, len, || {
        let unfinished = Unfinished::create(store, number)?;
        unfinished.reserve(0, len)?;
        unfinished.write(UNIT + layout.value as u64, new.value)?;
        Ok(unfinished)
    })?;
    seal(store, unfinished, number, &layout, &head, record)
}

/// Writes what comes before a value into its file, which has room for all of it.
pub(crate) fn seal(
    store: &Store,
    unfinished: Unfinished,
    number: u64,
    layout: &Layout,
    head: &[u8],
    record: u64,
) -> io::Result<Prepared> {
    let room = layout.room().ok_or(io::ErrorKind::InvalidInput)?;
    let sequence = with_lock(store, Wait::Bounded, |locked| Ok(locked.state.sequence))?;
    let header = SegmentHeader {
        kind: Kind::Alone,
        number,
        sequence,
    };
    // A value that arrived may have nothing before it.
    with_room_on_disk(store, PAGE, || {
        unfinished.write(0, &header.encode())?;
        unfinished.write(UNIT, head)
    })?;
    if store.options.durability == crate::Durability::Durable {
        unfinished.sync()?;
    }
    Ok(Prepared {
        unfinished,
        put: Put {
            kind: Kind::Alone,
            segment: number,
            place: 1,
            room,
            record,
        },
        len: file_len(layout),
        sequence,
    })
}

impl Locked<'_> {
    /// Where the slot of a key goes. The index grows if it has to and may. None if it has to, but is so large that others
    /// would wait for long: then the caller doubles it without the lock, if it `waits`.
    pub(crate) fn place_for(&mut self, key: &[u8], waits: bool) -> io::Result<Option<Place>> {
        loop {
            let digest = Digest::of(self.index.header.seed, key);
            let place = self.index.place_for(digest)?;
            if !matches!(place, Place::Full(..)) {
                return Ok(Some(place));
            }
            let is_large = self.index.header.blocks >= self.store.large_index;
            if waits && is_large && self.doubled()?.is_some() {
                return Ok(None);
            }
            if !self.grow()? {
                return Ok(Some(place));
            }
        }
    }

    /// Whether the entry at a place is another one than that whose place a value takes. One that is too old is none.
    fn is_changed(&self, at: &Place, instead: Instead<'_>, minute: Minute) -> bool {
        let there = match at {
            Place::Same(_, slot) => Some(slot).filter(|slot| !self.store.is_expired(slot, minute)),
            Place::Free(_) | Place::Full(..) => None,
        };
        match instead {
            Instead::OfAny => false,
            Instead::Of(None) => there.is_some(),
            Instead::Of(Some((record, head))) => {
                !there.is_some_and(|slot| record.is_named_by(slot, head))
            }
        }
    }

    /// Whether the next segment has no room.
    fn is_crowded(&mut self) -> io::Result<bool> {
        Ok(self.spare()? < self.store.segment_len)
    }
}

fn refuse<T>(what: String) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Refuses a key or a bucket that no slot can have.
pub(crate) fn check_names(key: &[u8], bucket: u16) -> io::Result<()> {
    if bucket >= BUCKETS {
        return refuse(format!("bucket {bucket}, allowed are 0 to {}", BUCKETS - 1));
    }
    let key_len = key.len();
    if key_len == 0 || key_len > MOST_KEY {
        return refuse(format!(
            "a key of {key_len} bytes, allowed are 1 to {MOST_KEY}; use a digest of it"
        ));
    }
    Ok(())
}

/// The length of a file that has one record.
pub(crate) fn file_len(layout: &Layout) -> u64 {
    (UNIT + layout.value().end as u64).next_multiple_of(PAGE)
}
