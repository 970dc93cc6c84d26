//! One fetch per key, over all threads and processes.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use brisk_io::try_lock_byte;

use crate::directory::FLIGHTS;
use crate::format::digest::Digest;
use crate::index::is_read_only;
use crate::store::Store;

/// The longest pause between two looks whether the other has finished.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// Of the digests that choose a byte. It is no index's, because an index can be replaced during a fetch.
const SEED: u64 = 0x666c_6967_6874_0001;

thread_local! {
    /// How many fetches this thread is inside of.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The right to fetch a key. It ends with the open file, so a killed fetcher has it no longer.
#[derive(Debug)]
pub(crate) struct Flight {
    /// None if nobody could be asked: then this fetches though another may, too.
    _lock: Option<File>,
}

/// Who fetches.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The caller. Another may have fetched meanwhile, so it looks again first.
    Own { flight: Flight },
    /// Another one does, and the caller does not want to wait.
    Other,
}

impl Store {
    /// Waits for the right to fetch a key.
    ///
    /// Inside of another fetch of this thread it does not wait: two processes that fetch each other's keys would wait for
    /// each other. Then, and after the time of the options, the caller fetches, too.
    pub(crate) fn flight(&self, key: &[u8], wait: bool) -> io::Result<Turn> {
        let own = |lock| {
            let flight = Flight { _lock: lock };
            Ok(Turn::Own { flight })
        };
        // Each opens it for itself: threads exclude each other, too.
        let file = match self.directory.open_or_create(FLIGHTS) {
            Ok((file, _)) => file,
            Err(e) if is_read_only(&e) || is_full(&e) => return own(None),
            Err(e) => return Err(e),
        };
        let byte = Digest::of(SEED, key).lock_byte();
        let started = Instant::now();
        let mut pause = Duration::from_micros(100);
        loop {
            let locked = try_lock_byte(&file, byte);
            if locked.map_err(|e| self.directory.told(FLIGHTS, e))? {
                return own(Some(file));
            }
            if !wait {
                return Ok(Turn::Other);
            }
            let nested = DEPTH.get() > 0;
            if nested || started.elapsed() >= self.options.fetch_wait {
                return own(None);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Flight {
    /// Runs a fetch. Fetches inside of it do not wait.
    pub(crate) fn fetch<R>(&self, fetch: impl FnOnce() -> R) -> R {
        struct Inside;
        impl Drop for Inside {
            fn drop(&mut self) {
                DEPTH.set(DEPTH.get() - 1);
            }
        }
        DEPTH.set(DEPTH.get() + 1);
        let _inside = Inside;
        fetch()
    }
}

/// Whether an error says that there is no room for another file.
fn is_full(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
