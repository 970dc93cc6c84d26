use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brisk_io::{Residency, coarse_milliseconds};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::database::Database;
use crate::error::Error;
use crate::key::AsKey;
use crate::key_bytes::KeyBytes;
use crate::reading::encoded;
use crate::record::Record;
use crate::resident_path::ResidentPath;
use crate::snapshot::Snapshot;
use crate::store_error::Told;
use crate::transaction::Transaction;

/// How many milliseconds a file that is wholly in memory is believed to stay there, at least.
const BELIEVED: u64 = 100;

/// A file of at most so many bytes is looked at when it is opened.
const LOOKED_AT_ONCE: u64 = 1 << 30;

/// For more keys than this, nobody looks at the pages of each: that would take the task's time.
const MOST_WALKS: usize = 256;

/// A database for programs that run on tokio.
///
/// A read runs on the task that asks, if all of the file was in memory a short time ago: at most 100 ms and ten times as long
/// as it takes to look, which is 4 ms for each GB. Then it waits for nothing, and costs as much as a call of [`Database`].
/// Otherwise [`get`](Self::get) and [`get_many`](Self::get_many) of up to 256 keys ask the kernel for each page on their way,
/// which takes a few microseconds, and run on the task if all of these are in memory. All else moves as a whole to a thread
/// that may wait, and another thread looks whether the file is in memory by now. What writes always moves, because it waits
/// for other writers and for the disk.
///
/// If memory is so short that the kernel takes pages away within that time, a read on a task may wait for the disk.
///
/// A copy of this is cheap, and all are one database.
#[derive(Debug, Clone)]
pub struct AsyncDatabase {
    database: Database,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: File,
    path: ResidentPath,
    /// The file is believed to be in memory up to this time, in milliseconds of the coarse clock.
    resident_until: AtomicU64,
    /// Nobody looks before this time. The largest number while somebody looks.
    look_at: AtomicU64,
    inline: AtomicU64,
    moved: AtomicU64,
}

/// How many reads ran where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadCounts {
    /// On the tasks that asked.
    pub inline: u64,
    /// On threads that may wait.
    pub moved: u64,
}

impl AsyncDatabase {
    /// The same database, for tasks. If the file has at most 1 GB, this looks whether it is in memory, for up to 15 ms. A larger
    /// one is looked at elsewhere, beginning with the first read.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn new(database: Database) -> Result<Self, Error> {
        let shared = Shared {
            file: database
                .inner
                .env
                .try_clone_inner_file()
                .told(&database.inner.env)?,
            path: ResidentPath::of(&database)?,
            resident_until: AtomicU64::new(0),
            look_at: AtomicU64::new(0),
            inline: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        };
        let shared = Arc::new(shared);
        if shared.file.metadata()?.len() <= LOOKED_AT_ONCE {
            let look = Look {
                shared: Arc::clone(&shared),
            };
            look.look();
        }
        Ok(Self { database, shared })
    }

    /// The database, for calls that may wait.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The record of a key, as a copy that borrows nothing: see [`Database::get`].
    ///
    /// # Errors
    ///
    /// As [`Database::get`].
    pub async fn get<R: Record + Send + 'static>(
        &self,
        key: impl AsKey<R::Key> + Send + 'static,
    ) -> Result<Option<R>, Error> {
        if let Some(snapshot) = self.snapshot_of::<R>(&encoded::<R, _>([&key]))? {
            return Ok(snapshot.get::<R>(key)?.map(R::owned));
        }
        self.read(move |snapshot| {
            let view = snapshot.get::<R>(key)?;
            Ok(view.map(R::owned))
        })
        .await
    }

    /// The records of several keys, in the order of the keys, as copies that borrow nothing: see
    /// [`Snapshot::get_many`].
    ///
    /// # Errors
    ///
    /// As [`Database::get`].
    pub async fn get_many<R: Record + Send + 'static, Q: AsKey<R::Key>>(
        &self,
        keys: impl IntoIterator<Item = Q> + Send + 'static,
    ) -> Result<Vec<Option<R>>, Error> {
        let keys = encoded::<R, Q>(keys);
        let found = |snapshot: &Snapshot<'_>, keys: &[KeyBytes]| {
            let views = snapshot.reading().get_many_encoded::<R>(keys)?;
            Ok(views.into_iter().map(|view| view.map(R::owned)).collect())
        };
        if let Some(snapshot) = self.snapshot_of::<R>(&keys)? {
            return found(&snapshot, &keys);
        }
        self.read(move |snapshot| found(snapshot, &keys)).await
    }

    /// A snapshot for look-ups of these keys on this task. None if they may wait, or if [`read`](Self::read) knows that they
    /// need not.
    fn snapshot_of<R: Record>(&self, keys: &[KeyBytes]) -> Result<Option<Snapshot<'_>>, Error> {
        let now = coarse_milliseconds();
        let shared = &self.shared;
        if now < shared.resident_until.load(Ordering::Relaxed) || keys.len() > MOST_WALKS {
            return Ok(None);
        }
        let mut sorted: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        sorted.sort_unstable();
        let keys = sorted.into_iter();
        let table = R::SCHEMA.collection;
        let snapshot = shared.path.snapshot(&self.database, table, keys)?;
        if snapshot.is_some() {
            shared.inline.fetch_add(1, Ordering::Relaxed);
            shared.look_if_due(now);
        }
        Ok(snapshot)
    }

    /// Reads a snapshot by `work`: any number of look-ups and queries. What must not take the task's time does not belong
    /// there.
    ///
    /// # Errors
    ///
    /// Those of `work` and of [`Database::snapshot`].
    ///
    /// # Panics
    ///
    /// If `work` does.
    pub async fn read<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        work: impl FnOnce(&Snapshot<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let now = coarse_milliseconds();
        if now < self.shared.resident_until.load(Ordering::Relaxed) {
            self.shared.look_if_due(now);
            self.shared.inline.fetch_add(1, Ordering::Relaxed);
            return work(&self.database.snapshot()?);
        }
        self.shared.moved.fetch_add(1, Ordering::Relaxed);
        let (database, shared) = (self.database.clone(), Arc::clone(&self.shared));
        let reading = spawn_blocking(move || {
            shared.path.bring_readers();
            work(&database.snapshot()?)
        });
        // Behind the read, if both wait for a thread.
        self.shared.look_if_due(now);
        finished(reading).await
    }

    /// Writes what `work` does, as a whole: see [`Database::write`]. It does so even if the future is dropped, once it was
    /// polled.
    ///
    /// # Errors
    ///
    /// As [`Database::write`].
    ///
    /// # Panics
    ///
    /// If `work` does.
    pub async fn write<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let database = self.database.clone();
        finished(spawn_blocking(move || database.write(work))).await
    }

    /// How many reads ran where.
    pub fn counts(&self) -> ReadCounts {
        ReadCounts {
            inline: self.shared.inline.load(Ordering::Relaxed),
            moved: self.shared.moved.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    /// Begins to look whether all of the file is in memory, if that is due: on another thread, because it may take long.
    fn look_if_due(self: &Arc<Self>, now: u64) {
        let due = self.look_at.load(Ordering::Relaxed);
        if now < due {
            return;
        }
        // Of several threads, one looks.
        let (relaxed, never) = (Ordering::Relaxed, u64::MAX);
        let claimed = self
            .look_at
            .compare_exchange(due, never, relaxed, relaxed)
            .is_ok();
        if claimed {
            let look = Look {
                shared: Arc::clone(self),
            };
            // Nobody waits for it.
            drop(spawn_blocking(move || look.look()));
        }
    }

    /// Whether all of the file is in memory. A kernel that does not say it leaves reads to threads that may wait. If all was in
    /// memory just before, nobody looks for pages that are still being read, which takes much longer.
    fn is_resident(&self, was_resident: bool) -> bool {
        let is_resident = || {
            let len = self.file.metadata().ok()?.len();
            let pages = len.div_ceil(brisk_io::page_size() as u64);
            // This counts pages that are still being read.
            let is_there = brisk_io::cached_pages(&self.file, 0, len).ok()? >= pages;
            if was_resident || !is_there {
                return Some(is_there);
            }
            match brisk_io::residency(&self.file).ok()? {
                Residency::Pages { resident, total } => Some(resident >= total),
                Residency::Unknown => None,
            }
        };
        is_resident() == Some(true)
    }

    fn note(&self, seen: Seen) {
        if let Some(until) = seen.resident_until {
            self.resident_until.fetch_max(until, Ordering::Relaxed);
        }
        self.look_at.store(seen.look_at, Ordering::Relaxed);
    }
}

/// The right to look. If a runtime ends before the look, another one may begin.
struct Look {
    shared: Arc<Shared>,
}

impl Look {
    fn look(self) {
        let begun = coarse_milliseconds();
        let was_resident = begun < self.shared.resident_until.load(Ordering::Relaxed);
        let is_resident = self.shared.is_resident(was_resident);
        let seen = Seen::new(is_resident, begun, coarse_milliseconds());
        self.shared.note(seen);
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        let (relaxed, never) = (Ordering::Relaxed, u64::MAX);
        // A look that has come to its end has set another time. If it has not, this does.
        self.shared
            .look_at
            .compare_exchange(never, 0, relaxed, relaxed)
            .ok();
    }
}

/// What follows from a look, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    resident_until: Option<u64>,
    look_at: u64,
}

impl Seen {
    /// A look takes 60 ms for 4 GB, and then 15 ms while all stays in memory. What it has found is believed for ten times as long and 100 ms, and looked at again when
    /// half of that is over: so reads stay where they are while somebody looks. After a look in vain, the next one waits for
    /// so long that looks take no more than a hundredth of the time.
    fn new(is_resident: bool, begun: u64, ended: u64) -> Self {
        let took = ended.saturating_sub(begun);
        if !is_resident {
            let pause = took.saturating_mul(100).max(BELIEVED);
            return Self {
                resident_until: None,
                look_at: ended.saturating_add(pause),
            };
        }
        let believed = took.saturating_mul(10).saturating_add(BELIEVED);
        Self {
            resident_until: Some(ended.saturating_add(believed)),
            look_at: ended.saturating_add(believed / 2),
        }
    }
}

/// What came of work on a thread that may wait.
async fn finished<T>(work: JoinHandle<T>) -> T {
    match work.await {
        Ok(done) => done,
        Err(e) => match e.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(e) => panic!("the runtime ended before the work did: {e}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_is_looked_at_while_that_is_believed() {
        // A look of 8 ms, as for 4 GB, and one of 200 ms, as for 100 GB.
        for took in [0, 8, 200] {
            let seen = Seen::new(true, 1000, 1000 + took);
            let until = seen.resident_until.unwrap();
            assert_eq!(until, 1000 + took + 100 + 10 * took);
            // The next look ends before that.
            assert!(seen.look_at > 1000 + took && seen.look_at + took < until);
        }
    }

    #[test]
    fn a_file_that_is_not_in_memory_is_looked_at_rarely() {
        for (took, pause) in [(0, 100), (1, 100), (8, 800), (200, 20_000)] {
            let expected = Seen {
                resident_until: None,
                look_at: 1000 + took + pause,
            };
            assert_eq!(Seen::new(false, 1000, 1000 + took), expected);
        }
    }

    /// What looks at a file, of a database without records.
    fn shared(file: File) -> Arc<Shared> {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = home.path().join("empty.db");
        #[expect(unsafe_code, reason = "nothing but LMDB writes to the file")]
        // SAFETY: nothing but LMDB writes to the file.
        let opened = unsafe { crate::Options::new().limit(1 << 20).open(&path) };
        Arc::new(Shared {
            file,
            path: ResidentPath::of(&opened.unwrap()).unwrap(),
            resident_until: AtomicU64::new(0),
            look_at: AtomicU64::new(0),
            inline: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        })
    }

    #[test]
    fn a_look_tells_whether_all_is_in_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // Of a hole, nothing is in memory.
        file.as_file().set_len(1 << 20).unwrap();
        let shared = shared(file.reopen().unwrap());
        let look = || {
            let shared = Arc::clone(&shared);
            Look { shared }.look();
        };
        look();
        let due = shared.look_at.load(Ordering::Relaxed);
        assert!(due >= coarse_milliseconds());
        assert_eq!(shared.resident_until.load(Ordering::Relaxed), 0);
        std::fs::write(file.path(), vec![1; 1 << 20]).unwrap();
        look();
        assert!(shared.resident_until.load(Ordering::Relaxed) >= due);
    }

    #[test]
    fn a_look_that_a_runtime_has_given_up_is_not_the_last_one() {
        let shared = shared(tempfile::tempfile().unwrap());
        shared.look_at.store(u64::MAX, Ordering::Relaxed);
        drop(Look {
            shared: Arc::clone(&shared),
        });
        assert_eq!(shared.look_at.load(Ordering::Relaxed), 0);
    }

    /// The thread that may wait has work already. A read that had to wait for a look behind that would never end.
    #[test]
    fn no_read_waits_for_a_look() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let shared = shared(tempfile::tempfile().unwrap());
        let (release, wait) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            let busy = spawn_blocking(move || wait.recv());
            shared.look_if_due(1);
            assert_eq!(shared.look_at.load(Ordering::Relaxed), u64::MAX);
            release.send(()).unwrap();
            finished(busy).await.unwrap();
        });
        drop(runtime);
        assert!(shared.look_at.load(Ordering::Relaxed) < u64::MAX);
    }
}
