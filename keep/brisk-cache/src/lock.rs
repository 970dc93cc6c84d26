//! The lock, which one of all processes has while it writes.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use brisk_io::UnsharedFile;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::clock::now;
use crate::directory::{FileId, INDEX, LEDGER};
use crate::format::index_header::CURRENT;
use crate::index::Index;
use crate::locked::Locked;
use crate::new_index::{make_index, mark};
use crate::store::{Process, Store};
use crate::writer::{TryBorrow, Writer};

/// The longest pause between two tries to lock.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// How long to wait for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    /// As long as the options say.
    Bounded,
    /// As a reader that has found damage, and asks whether somebody is just writing it.
    Doubt,
}

/// How long a reader that has found damage waits. A writer needs far less for a slot.
const DOUBT: Duration = Duration::from_secs(1);

/// Runs `work` while no other thread and no other process writes.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] if another has the lock and `wait` is [`Wait::No`], [`io::ErrorKind::TimedOut`] if
/// it has it for too long. Those of the system, and of `work`.
pub(crate) fn with_lock<R>(
    store: &Store,
    wait: Wait,
    work: impl FnOnce(&mut Locked<'_>) -> io::Result<R>,
) -> io::Result<R> {
    let process = store.process()?;
    let mut guard: MutexGuard<'_, Option<Writer>> = match wait {
        Wait::Bounded => process.writer(),
        Wait::No => process.try_writer().ok_or(io::ErrorKind::WouldBlock)?,
        Wait::Doubt => writer_in_doubt(store, process)?,
    };
    loop {
        let writer = match &mut *guard {
            Some(writer) => writer,
            none => none.insert(open_writer(store)?),
        };
        let ledger = Arc::clone(&writer.ledger);
        lock(store, ledger.try_borrow()?, wait)?;
        let _unlock = Unlock(&ledger);
        let index = match known_index(process, writer) {
            None if !writer.has_name(&store.directory)? => {
                // Somebody has removed it by hand. Others lock another one, and what this one says is of files that
                // nobody finds.
                *guard = None;
                continue;
            }
            None => named_index(store, process, writer)?,
            known => known,
        };
        return with_ledger(store, process, writer, index, work);
    }
}

fn with_ledger<R>(
    store: &Store,
    process: &Process,
    writer: &mut Writer,
    index: Option<Arc<Index>>,
    work: impl FnOnce(&mut Locked<'_>) -> io::Result<R>,
) -> io::Result<R> {
    let read = writer.read(&store.directory, process.reading.is_mapped())?;
    let is_at_home = read.is_some_and(|state| state.home == writer.home);
    let mut locked = Locked {
        store,
        process,
        writer,
        index: match &index {
            Some(index) => Arc::clone(index),
            None => make_index(store, process)?,
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
/// With the lock, the mark says so: a process that gives the name to another index first marks the one that has it, and
/// takes the mark back only if that keeps the name. But somebody may remove files by hand, so a look is due once a
/// minute, too, and always where a mark may come late.
fn known_index(process: &Process, writer: &Writer) -> Option<Arc<Index>> {
    let known = process.view().index.clone()?;
    let is_known = writer.named == Some((now(), known.id))
        && known.writable
        && known.is_mapped()
        && known.is_marked_current().unwrap_or(false);
    is_known.then_some(known)
}

/// The index that the name belongs to. None if there is none.
fn named_index(
    store: &Store,
    process: &Process,
    writer: &mut Writer,
) -> io::Result<Option<Arc<Index>>> {
    let known = process.view().index.clone();
    let named = store.directory.id_of(INDEX)?;
    writer.named = named.map(|named| (now(), named));
    let index = match known.filter(|index| Some(index.id) == named) {
        Some(index) => index,
        None => {
            store.reopen_index(process)?;
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
        return Err(store.directory.told(INDEX, e));
    }
    if !index.is_marked_current().unwrap_or(false) {
        // With the lock, nobody else is growing it. Who was is dead.
        mark(store, &index, CURRENT)?;
    }
    Ok(Some(index))
}

fn longest(store: &Store, wait: Wait) -> Duration {
    match wait {
        Wait::No => Duration::ZERO,
        Wait::Bounded => store.options.write_wait,
        Wait::Doubt => store.options.write_wait.min(DOUBT),
    }
}

/// The mutex of this process, whose holder may be waiting for the lock, and for longer.
fn writer_in_doubt<'p>(
    store: &Store,
    process: &'p Process,
) -> io::Result<MutexGuard<'p, Option<Writer>>> {
    let started = Instant::now();
    loop {
        match process.try_writer() {
            Some(writer) => return Ok(writer),
            None if started.elapsed() >= longest(store, Wait::Doubt) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            None => thread::sleep(LONGEST_PAUSE),
        }
    }
}

fn lock(store: &Store, file: BorrowedFd<'_>, wait: Wait) -> io::Result<()> {
    let mut started = None;
    let mut pause = Duration::from_micros(20);
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => {}
            Err(e) => return Err(store.directory.told(LEDGER, e.into())),
        }
        if wait == Wait::No {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let waited = started.get_or_insert_with(Instant::now).elapsed();
        let longest = longest(store, wait);
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
            return Err(store.directory.told(LEDGER, e));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
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

fn open_writer(store: &Store) -> io::Result<Writer> {
    let directory = &store.directory;
    directory.refuse_foreign()?;
    let (file, stat) = directory.open_or_create(LEDGER)?;
    if let Some(kind) = store.filesystem()?.unsure() {
        let (second, _) = directory.open_or_create(LEDGER)?;
        prove_locks(&file, &second, kind).map_err(|e| directory.told(LEDGER, e))?;
    }
    let ledger_id = FileId::of_stat(&stat);
    Writer::new(file, ledger_id)
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
