use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;

use crate::database::Database;
use crate::error::Error;
use crate::key::AsKey;
use crate::record::Record;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;

/// How long a file that is wholly in memory is believed to stay there.
const BELIEVED: Duration = Duration::from_millis(100);

/// A database for programs that run on tokio.
///
/// A read runs on the task that asks, if all of the file was in memory at most 100 ms ago. Then it waits for nothing, and costs
/// as much as a call of [`Database`]. Otherwise it moves as a whole to a thread that may wait, which also looks whether the
/// file is in memory by now. What writes always moves there, because it waits for other writers and for the disk.
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
    /// Against which times are measured.
    begun: Instant,
    /// The file is believed to be in memory up to this time, in milliseconds since `begun`.
    resident_until: AtomicU64,
    /// Nobody looks before this time, after a look that found something missing.
    look_again: AtomicU64,
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
    /// The same database, for tasks.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn new(database: Database) -> Result<Self, Error> {
        let shared = Shared {
            file: database.inner.env.try_clone_inner_file()?,
            begun: Instant::now(),
            resident_until: AtomicU64::new(0),
            look_again: AtomicU64::new(0),
            inline: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        };
        Ok(Self {
            database,
            shared: Arc::new(shared),
        })
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
        self.read(move |snapshot| {
            let views = snapshot.get_many::<R, Q>(keys)?;
            Ok(views.into_iter().map(|view| view.map(R::owned)).collect())
        })
        .await
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
        work: impl FnOnce(&Snapshot) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        if self.shared.is_believed_resident() {
            self.shared.inline.fetch_add(1, Ordering::Relaxed);
            return work(&self.database.snapshot()?);
        }
        self.shared.moved.fetch_add(1, Ordering::Relaxed);
        let this = self.clone();
        moved(move || {
            let done = work(&this.database.snapshot()?);
            this.shared.look();
            done
        })
        .await
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
        moved(move || database.write(work)).await
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
    fn milliseconds(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_believed_resident(&self) -> bool {
        self.milliseconds() < self.resident_until.load(Ordering::Relaxed)
    }

    /// Looks whether all of the file is in memory. A kernel that does not say it leaves reads to threads that may wait.
    ///
    /// A look takes 0.6 ms for 80,000 pages, much longer than a read. So after one in vain, the next one waits for so long
    /// that looks take no more than a hundredth of the time.
    fn look(&self) {
        let now = self.milliseconds();
        let due = self.look_again.load(Ordering::Relaxed);
        if now < due {
            return;
        }
        let next = now.saturating_add(BELIEVED.as_millis() as u64);
        // Of several threads, one looks.
        let claimed =
            self.look_again
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_err() {
            return;
        }
        let is_resident = || {
            let len = self.file.metadata().ok()?.len();
            let pages = len.div_ceil(brisk_io::page_size() as u64);
            Some(brisk_io::cached_pages(&self.file, 0, len).ok()? >= pages)
        };
        if is_resident() == Some(true) {
            self.resident_until.fetch_max(next, Ordering::Relaxed);
        }
        let took = self.milliseconds().saturating_sub(now);
        let next = now.saturating_add(took.saturating_mul(100));
        self.look_again.fetch_max(next, Ordering::Relaxed);
    }
}

/// Runs what may wait, on a thread that may.
async fn moved<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
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
    fn a_file_that_is_not_in_memory_is_looked_at_rarely() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // Of a hole, nothing is in memory.
        file.as_file().set_len(1 << 20).unwrap();
        let shared = Shared {
            file: file.reopen().unwrap(),
            begun: Instant::now(),
            resident_until: AtomicU64::new(0),
            look_again: AtomicU64::new(0),
            inline: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        };
        shared.look();
        let due = shared.look_again.load(Ordering::Relaxed);
        assert!(due >= 100);
        for _ in 0..1000 {
            shared.look();
            // A look would move it.
            let is_same = shared.look_again.load(Ordering::Relaxed) == due;
            assert!(is_same || shared.milliseconds() >= due);
        }
        assert!(!shared.is_believed_resident());
        // When it is due, and all is in memory, reads may stay where they are.
        std::fs::write(file.path(), vec![1; 1 << 20]).unwrap();
        while shared.milliseconds() < shared.look_again.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        shared.look();
        assert!(shared.is_believed_resident());
    }
}
