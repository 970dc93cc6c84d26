//! One fetch per key, over all threads and processes.

use std::cell::Cell;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use brisk_io::UnsharedFile;

use crate::directory::FLIGHTS;
use crate::format::digest::Digest;
use crate::format::slot::Slot;
use crate::index::{is_full, is_gone, is_read_only};
use crate::lookup::{Patience, slot_of};
use crate::store::Store;

/// The longest pause between two looks whether the other has finished.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// Of the digests that choose a byte. It is no index's, because an index can be replaced during a fetch.
const SEED: u64 = 0x666c_6967_6874_0001;

thread_local! {
    /// How many fetches this thread is inside of.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The right to fetch a key, which one at a time of all threads and processes has. It ends when this is dropped, and when
/// the process is killed, though children that it has forked live on.
#[derive(Debug)]
pub struct Flight {
    /// None if nobody could be asked: then this fetches though another may, too.
    _lock: Option<UnsharedFile>,
}

/// Who fetches.
#[derive(Debug)]
pub(crate) enum Turn<V> {
    /// The caller. Another may have fetched meanwhile, so it looks again first.
    Own { flight: Flight },
    /// Nobody: this was found while the caller waited.
    Found(V),
}

/// An open file with which the right to fetch a key can be asked for.
#[derive(Debug)]
pub(crate) struct Queued {
    /// Each opens it for itself: threads exclude each other, too. None if nobody can be asked.
    file: Option<UnsharedFile>,
    byte: u64,
    /// The slot that the key had when [`Queued::has_news`] last looked.
    seen: Option<Slot>,
}

impl Queued {
    /// Takes the right to fetch, if nobody has it. Does not wait.
    ///
    /// Where locks do not work, nobody can be asked: to fetch twice is better than to have nothing.
    pub(crate) fn try_lock(self, store: &Store) -> Result<Flight, Self> {
        let file = self.file.as_ref().and_then(UnsharedFile::get);
        let locked = file.map(|file| store.disk.try_lock_byte(file, self.byte));
        match locked {
            Some(Ok(true)) => Ok(Flight { _lock: self.file }),
            Some(Ok(false)) => Err(self),
            Some(Err(_)) | None => Ok(Flight::unasked(store)),
        }
    }

    /// Whether the key has another record than when this was last asked. Then there may be a value to be found, though
    /// somebody still has the right to fetch it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if this would have to wait, and may not.
    pub(crate) fn has_news(
        &mut self,
        store: &Store,
        key: &[u8],
        patience: Patience,
    ) -> io::Result<bool> {
        let Some(slot) = slot_of(store, key, patience)? else {
            return Ok(false);
        };
        let is_known = |seen: &Slot| seen.names_the_record_of(&slot);
        let has_news = !self.seen.as_ref().is_some_and(is_known);
        self.seen = Some(slot);
        Ok(has_news)
    }
}

/// Opens what a fetch of a key is asked for with.
pub(crate) fn queue(store: &Store, key: &[u8]) -> io::Result<Queued> {
    let file = match store.directory.open_or_create(FLIGHTS) {
        Ok((file, _)) => Some(UnsharedFile::new(file)?),
        Err(e) if is_read_only(&e) || is_full(&e) || is_gone(&e) => None,
        Err(e) => return Err(e),
    };
    let byte = Digest::of(SEED, key).lock_byte();
    Ok(Queued {
        file,
        byte,
        seen: None,
    })
}

/// Waits for the right to fetch a key, or until `find` finds something.
///
/// Inside of another fetch of this thread it does not wait: two processes that fetch each other's keys would wait for
/// each other. Then, and after the time of the options, the caller fetches, too.
pub(crate) fn flight<V>(
    store: &Store,
    key: &[u8],
    find: impl Fn() -> io::Result<Option<V>>,
) -> io::Result<Turn<V>> {
    let mut queued = queue(store, key)?;
    let started = Instant::now();
    let mut pause = Duration::from_micros(100);
    loop {
        queued = match queued.try_lock(store) {
            Ok(flight) => return Ok(Turn::Own { flight }),
            Err(queued) => queued,
        };
        if queued.has_news(store, key, Patience::Wait)?
            && let Some(found) = find()?
        {
            return Ok(Turn::Found(found));
        }
        if Inside::is() || started.elapsed() >= store.options.fetch_wait {
            let flight = Flight::unasked(store);
            return Ok(Turn::Own { flight });
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Flight {
    /// For a fetch beside which others may fetch, too.
    pub(crate) fn unasked(store: &Store) -> Self {
        store.counters.unasked.add(1);
        Self { _lock: None }
    }

    /// Runs a fetch. Fetches inside of it do not wait.
    pub(crate) fn fetch<R>(&self, fetch: impl FnOnce() -> R) -> R {
        let _inside = Inside::enter();
        fetch()
    }
}

/// As long as one lives, its thread is inside of a fetch.
#[derive(Debug)]
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }

    /// Whether this thread is inside of a fetch.
    pub(crate) fn is() -> bool {
        DEPTH.get() > 0
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
