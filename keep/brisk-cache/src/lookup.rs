//! Finding a value without a lock.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::now;
use crate::first_look::{Answer, look_first};
use crate::format::digest::Digest;
use crate::format::record::{Record, Unchecked, Wrong};
use crate::format::slot::Slot;
use crate::hit::Hit;
use crate::index::{Found, Index, is_lost};
use crate::known_damage::Damaged;
use crate::lock::{Wait, with_lock};
use crate::segment::{Segment, expected};
use crate::store::{Opened, Process, Store};

/// How often a slot or a record that is not right is read again before the lock is taken.
const TRIES: usize = 3;

/// What has more room than this is long.
const LONG: usize = 64 * 1024;

/// What a look-up does with a long value that it cannot borrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Long {
    Copy,
    LeaveUnread,
}

/// Whether a look-up may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// For files that it opens, and for a lock.
    Wait,
    /// It ends where it would have to.
    AtOnce,
}

impl Patience {
    /// An error if it may not wait.
    fn ask(self) -> io::Result<()> {
        match self {
            Self::Wait => Ok(()),
            Self::AtOnce => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Looks for a key, and lets `take` have its record. None is a miss.
#[inline]
pub(crate) fn look_up<R>(
    store: &Store,
    key: &[u8],
    patience: Patience,
    take: impl FnMut(&Arc<Segment>, &Slot) -> io::Result<Result<R, Wrong>>,
) -> io::Result<Option<R>> {
    let process = match store.begun_process() {
        Some(process) => process,
        None => {
            patience.ask()?;
            store.process()?
        }
    };
    look_up_in(store, process, key, patience, take)
}

#[inline]
fn look_up_in<R>(
    store: &Store,
    process: &Process,
    key: &[u8],
    patience: Patience,
    mut take: impl FnMut(&Arc<Segment>, &Slot) -> io::Result<Result<R, Wrong>>,
) -> io::Result<Option<R>> {
    if !process.reading.is_mapped() {
        // It waits for a server.
        patience.ask()?;
    }
    let mut trusted = None;
    let mut tries = 0;
    loop {
        let view = process.view();
        let Some(index) = &view.index else {
            patience.ask()?;
            drop(view);
            if store.reopen_index(process)?.is_some() {
                continue;
            }
            store.counters.absent.add(1);
            return Ok(None);
        };
        if trusted != Some(index.id) && !index.is_marked_current().unwrap_or(false) {
            // It has been replaced, or is about to be, or somebody has cut it.
            patience.ask()?;
            drop(view);
            trusted = store.reopen_index(process)?;
            continue;
        }
        let digest = Digest::of(index.header.seed, key);
        let slot = match index.find(digest) {
            Ok(Found::Slot(_, slot)) => slot,
            Ok(Found::Nothing) => {
                store.counters.absent.add(1);
                return Ok(None);
            }
            Ok(Found::Torn { check }) => {
                drop(view);
                let damaged = Damaged::Slot(check);
                match once_more(store, process, digest, damaged, patience, &mut tries)? {
                    true => continue,
                    false => return Ok(None),
                }
            }
            // Somebody has cut it, or its disk fails.
            Err(e) if is_lost(&e) => {
                drop(view);
                store.counters.damaged.add(1);
                process.view_mut().index = None;
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let minute = now();
        if store.is_expired(&slot, minute) {
            store.counters.expired.add(1);
            return Ok(None);
        }
        if process.is_look_due(minute) {
            patience.ask()?;
            drop(view);
            store.drop_old_maps(process, minute);
            continue;
        }
        let segment = view.segments.get(&slot.segment);
        let Some(segment) = segment.filter(|segment| segment.range(&slot).is_some()) else {
            patience.ask()?;
            drop(view);
            match store.open_segment(process, &slot)? {
                Opened::There => continue,
                // The slot may have been read just before its segment went. Then the key has another now, or none.
                Opened::Gone => {
                    let damaged = Damaged::record(&slot);
                    match once_more(store, process, digest, damaged, patience, &mut tries)? {
                        true => continue,
                        false => return Ok(None),
                    }
                }
                Opened::Wrong => {
                    store.counters.damaged.add(1);
                    return Ok(None);
                }
            }
        };
        let is_old = || segment.header.sequence < index.old_before();
        let note = store.is_note_due(&slot, minute, is_old);
        if note {
            patience.ask()?;
        }
        match take(segment, &slot) {
            Ok(Ok(taken)) => {
                drop(view);
                if note {
                    try_note_use(store, &slot);
                }
                return Ok(Some(taken));
            }
            Ok(Err(Wrong::Foreign)) => {
                store.counters.foreign.add(1);
                return Ok(None);
            }
            Ok(Err(Wrong::Unknown)) => {
                store.counters.unknown.add(1);
                return Ok(None);
            }
            Ok(Err(Wrong::Damaged)) => {
                drop(view);
                let damaged = Damaged::record(&slot);
                if !once_more(store, process, digest, damaged, patience, &mut tries)? {
                    return Ok(None);
                }
            }
            // Somebody has cut the file, or its disk fails.
            Err(e) if is_lost(&e) => {
                drop(view);
                store.counters.damaged.add(1);
                process.view_mut().forget(slot.segment);
                return Ok(None);
            }
            Err(e) => return Err(e),
        }
    }
}

/// The slot of a key as it is now. Counts nothing. None if there is none, or none that passes its check.
///
/// # Errors
///
/// As [`index_now`].
pub(crate) fn slot_of(store: &Store, key: &[u8], patience: Patience) -> io::Result<Option<Slot>> {
    let Some(index) = index_now(store, patience)? else {
        return Ok(None);
    };
    let digest = Digest::of(index.header.seed, key);
    Ok(match index.find(digest) {
        Ok(Found::Slot(_, slot)) => Some(slot),
        // A look-up says what is wrong.
        _ => None,
    })
}

/// The index as it is now. None if there is none.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] if this would have to wait, and may not. Those of opening the index.
pub(crate) fn index_now(store: &Store, patience: Patience) -> io::Result<Option<Arc<Index>>> {
    let process = match store.begun_process() {
        Some(process) => process,
        None => {
            patience.ask()?;
            store.process()?
        }
    };
    let index = process.view().index.clone();
    let is_current =
        |index: &Arc<Index>| index.is_mapped() && index.is_marked_current().unwrap_or(false);
    Ok(match index.filter(is_current) {
        Some(index) => Some(index),
        None => {
            patience.ask()?;
            store.reopen_index(process)?;
            process.view().index.clone()
        }
    })
}

/// Whether to look again after something that is not right: three times as it is, and then unless the slot is the same when
/// nobody writes. What is not right then is known, and is a miss at once.
#[cold]
fn once_more(
    store: &Store,
    process: &Process,
    digest: Digest,
    damaged: Damaged,
    patience: Patience,
    tries: &mut usize,
) -> io::Result<bool> {
    let is_known = *tries == 0 && process.damage.has(damaged);
    if !is_known {
        patience.ask()?;
        *tries += 1;
        if *tries <= TRIES {
            std::hint::spin_loop();
            return Ok(true);
        }
        let is_the_same = with_lock(store, Wait::Doubt, |locked| {
            Ok(Damaged::found(&locked.index.find(digest)?) == Some(damaged))
        });
        // Who cannot lock sees no more than it has seen.
        if !is_the_same.unwrap_or(true) {
            return Ok(true);
        }
        process.damage.note(damaged);
    }
    store.counters.damaged.add(1);
    Ok(false)
}

/// Notes a use if nobody else is writing. Otherwise the next use notes it.
#[cold]
fn try_note_use(store: &Store, slot: &Slot) {
    let Err(e) = with_lock(store, Wait::No, |locked| locked.note_use(slot)) else {
        return;
    };
    store.counters.unnoted.add(1);
    if e.kind() != io::ErrorKind::WouldBlock {
        // Otherwise each hit would find that out again, by several system calls.
        store.note_refused.store(now(), Ordering::Relaxed);
    }
}

/// The value of a key: borrowed if the handle borrows, otherwise a copy. That of the first key is a copy, too.
#[inline]
pub(crate) fn get(
    store: &Store,
    key: &[u8],
    patience: Patience,
    long: Long,
) -> io::Result<Option<Hit>> {
    match store.begun_process() {
        Some(process) => get_in(store, process, key, patience, long),
        None => get_first(store, key, patience, long),
    }
}

#[cold]
fn get_first(store: &Store, key: &[u8], patience: Patience, long: Long) -> io::Result<Option<Hit>> {
    patience.ask()?;
    let mut copy = Vec::new();
    match look_first(store, key, &mut copy) {
        Some(Answer::Hit(record, about)) => Ok(Some(Hit::copied(copy, record, about))),
        Some(Answer::Miss) => Ok(None),
        None => get_in(store, store.process()?, key, patience, long),
    }
}

#[inline]
fn get_in(
    store: &Store,
    process: &Process,
    key: &[u8],
    patience: Patience,
    long: Long,
) -> io::Result<Option<Hit>> {
    look_up_in(store, process, key, patience, |segment, slot| {
        let about = (slot.written, slot.bucket);
        let Some((start, room)) = segment.range(slot) else {
            return Ok(Err(Wrong::Damaged));
        };
        let Some(bytes) = segment.published(start, room) else {
            if long == Long::LeaveUnread && room > LONG {
                let head = segment.head(slot, Some(key))?;
                return Ok(head.map(|(record, head)| match record.chunks() {
                    // A short value in a file of its own. Its check covers all of it, so all of it was read.
                    0 => Hit::copied(head, record, about),
                    _ => Hit::unread(Arc::clone(segment), start, (record, head), about),
                }));
            }
            let mut copy = Vec::new();
            let record = segment.copy(slot, Some(key), &mut copy)?;
            return Ok(record.map(|record| Hit::copied(copy, record, about)));
        };
        let expected = expected(slot, Some(key), room);
        let record = Unchecked::parse(bytes, &expected).and_then(|unchecked| {
            let mark = segment.verified.record(slot.place);
            if segment.verified.has(mark) {
                return unchecked.check_key(bytes, &expected);
            }
            if segment.verified.has_failed(mark) {
                return Err(Wrong::Damaged);
            }
            let record = unchecked.check(bytes, &expected)?;
            segment.verified.note(mark);
            Ok(record)
        });
        Ok(record.map(|record| Hit::mapped(Arc::clone(segment), (start, room), record, about)))
    })
}

/// Copies the record of a key into `buf`.
#[inline]
pub(crate) fn get_into(store: &Store, key: &[u8], buf: &mut Vec<u8>) -> io::Result<Option<Record>> {
    let process = match store.begun_process() {
        Some(process) => process,
        None => match look_first(store, key, buf) {
            Some(Answer::Hit(record, _)) => return Ok(Some(record)),
            Some(Answer::Miss) => return Ok(None),
            None => store.process()?,
        },
    };
    look_up_in(store, process, key, Patience::Wait, |segment, slot| {
        segment.copy(slot, Some(key), buf)
    })
}
