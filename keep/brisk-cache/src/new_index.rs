//! A new index, and how it gets its name.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use brisk_io::ByteSource;
use rustix::fs::{FlockOperation, OFlags, flock};

use crate::directory::{FileId, INDEX, TAG, TAG_TEXT, unfinished_name};
use crate::format::index_header::{self, BLOCK, IndexHeader, MARK_AT, REPLACED, SETS, SLOTS_AT};
use crate::format::slot::{self, Slot, WAYS};
use crate::index::{CROWDED, Index};
use crate::random;
use crate::store::{Process, Store};

/// Makes the first index, or one in place of one that nobody can read. Only with the lock.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`] if a later version has made the one that is there.
pub(crate) fn make_index(store: &Store, process: &Process) -> io::Result<Arc<Index>> {
    refuse_later_version(store)?;
    make_tag(store)?;
    if let Ok(Some((unreadable, stat))) = store.directory.file(INDEX, OFlags::RDWR)
        && u64::try_from(stat.st_size).is_ok_and(|len| len >= SLOTS_AT)
    {
        // Somebody may have it open from before it was damaged.
        store.disk.write(unreadable.as_fd(), MARK_AT, &REPLACED)?;
    }
    let header = IndexHeader {
        blocks: 1,
        seed: random::number()?,
    };
    replace_index(store, process, header, |_| Ok(Vec::new()))
}

/// Writes the tag, which says that the directory is a cache, before anything else there has contents.
fn make_tag(store: &Store) -> io::Result<()> {
    let tag = match store.directory.file(TAG, OFlags::RDWR)? {
        Some((_, stat)) if stat.st_size >= TAG_TEXT.len() as i64 => return Ok(()),
        // Its writer was killed.
        Some((tag, _)) => tag,
        None => store.disk.create(&store.directory, TAG)?,
    };
    store.disk.write(tag.as_fd(), 0, TAG_TEXT)?;
    store.disk.sync(tag.as_fd())
}

/// Refuses to put an index in place of one of a later version, whose entries this version cannot read.
fn refuse_later_version(store: &Store) -> io::Result<()> {
    let Some((file, _)) = store.directory.file(INDEX, OFlags::RDONLY)? else {
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
            Err(store.directory.told(INDEX, e))
        }
    }
}

/// Writes a new index and gives it the name. `block` gives the slots of a block.
pub(crate) fn replace_index(
    store: &Store,
    process: &Process,
    header: IndexHeader,
    mut block: impl FnMut(u32) -> io::Result<Vec<Slot>>,
) -> io::Result<Arc<Index>> {
    let name = unfinished_name(random::number()?);
    let file = store.disk.create(&store.directory, &name)?;
    let id = FileId::of(&file)?;
    let write = |number: u32, slots: Vec<Slot>| {
        if slots.is_empty() {
            return Ok(());
        }
        let at = SLOTS_AT + u64::from(number) * BLOCK;
        store
            .disk
            .write(file.as_fd(), at, &settle(store, header.seed, &slots))
    };
    let mut fill = || {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        store.disk.reserve(file.as_fd(), 0, header.file_len())?;
        store.disk.write(file.as_fd(), 0, &header.encode())?;
        for number in 0..header.blocks {
            write(number, block(number)?)?;
        }
        store.disk.sync(file.as_fd())?;
        store.disk.rename(&store.directory, &name, INDEX)
    };
    if let Err(e) = fill() {
        store.disk.remove(&store.directory, &name).ok();
        return Err(store.directory.told(&name, e));
    }
    open_new_index(store, process, id)
}

/// Opens the index that has just got the name.
pub(crate) fn open_new_index(
    store: &Store,
    process: &Process,
    id: FileId,
) -> io::Result<Arc<Index>> {
    // Otherwise a removal that was synced in the new one could come back with the old one.
    store.disk.sync_names(&store.directory)?;
    store.reopen_index(process)?;
    let index = process.view().index.clone();
    index.filter(|index| index.id == id).ok_or_else(|| {
        let e = io::Error::new(
            io::ErrorKind::NotFound,
            "somebody without the lock has replaced it; let only brisk write to the directory",
        );
        store.directory.told(INDEX, e)
    })
}

/// The bytes of a block with these slots.
pub(crate) fn settle(store: &Store, seed: u64, slots: &[Slot]) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    let (places, _) = bytes.as_chunks_mut::<{ slot::LEN }>();
    let mut used = [0u32; SETS as usize];
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
            None => store.counters.displaced.add(1),
        }
    }
    bytes
}

/// Writes a mark of an index.
pub(crate) fn mark(store: &Store, index: &Index, mark: [u8; 8]) -> io::Result<()> {
    store.disk.write(index.file().as_fd(), MARK_AT, &mark)
}
