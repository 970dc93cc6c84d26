//! Changes to entries that are there: noting a use, and removing.

use std::io;

use crate::directory::{Name, segment_name, unfinished_name, value_name};
use crate::format::slot::{BUCKETS, Kind};
use crate::index::Place;
use crate::lock::{Wait, with_lock};
use crate::store::Store;
use crate::writer::Total;

/// Notes that a key is used now. Returns whether it was there.
pub(crate) fn update_use(store: &Store, key: &[u8]) -> io::Result<bool> {
    with_lock(store, Wait::Bounded, |locked| {
        match locked.index.place_for(locked.digest(key))? {
            Place::Same(_, slot) => locked.note_use(&slot).map(|()| true),
            Place::Free(_) | Place::Full(..) => Ok(false),
        }
    })
}

/// Removes a key. Returns whether it was there. It is gone from the disk, too, when this returns.
pub(crate) fn remove(store: &Store, key: &[u8]) -> io::Result<bool> {
    with_lock(store, Wait::Bounded, |locked| {
        let Place::Same(at, slot) = locked.index.place_for(locked.digest(key))? else {
            // It may have been evicted, and that may not be on the disk.
            locked.sync_index()?;
            return Ok(false);
        };
        locked.count(&slot, false)?;
        locked.state.unsettled = slot.kind == Kind::Alone;
        locked.save()?;
        locked.free_slot(at)?;
        locked.sync_index()?;
        locked.discard(&slot)?;
        Ok(true)
    })
}

/// Removes everything. It is gone from the disk, too, when this returns.
pub(crate) fn clear(store: &Store) -> io::Result<()> {
    with_lock(store, Wait::Bounded, |locked| {
        // From here on, a killed writer leaves a ledger that has no active segment.
        locked.state.active = 0;
        locked.begin_files()?;
        locked.empty()?;
        for listed in store.directory.list()? {
            let name = match listed.name {
                Name::Segment(number) => segment_name(number),
                Name::Value(number) => value_name(number),
                // Somebody may still be writing it.
                Name::Unfinished(number) => {
                    locked.remove_if_left(&unfinished_name(number))?;
                    continue;
                }
                Name::Index | Name::Small => continue,
            };
            store.disk.remove(&store.directory, &name)?;
        }
        store.disk.sync_names(&store.directory)?;
        locked.process.view_mut().forget_where(|_| true);
        locked.files()?;
        locked.save_totals(&vec![Total::default(); usize::from(BUCKETS)])?;
        locked.end_files()
    })
}
