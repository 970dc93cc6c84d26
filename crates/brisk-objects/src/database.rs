use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::{fmt, io};

use heed::types::Bytes;
use heed::{MdbError, RoTxn, WithoutTls};

use crate::environment::Environment;
use crate::error::Error;
use crate::full_copy;
use crate::lazy_mark::LazyMark;
use crate::migration::Migrated;
use crate::opening::{Ending, fits};
use crate::options::Options;
use crate::query::Query;
use crate::record::Record;
use crate::schema::Schema;
use crate::snapshot::Snapshot;
use crate::store_error::{self, Told};
use crate::transaction::Transaction;

/// A table of the file: keys and values, in the order of the keys.
pub(crate) type Table = heed::Database<Bytes, Bytes>;

/// After so many commits, the places of readers that were killed are taken back. Until then, no page is used again that they
/// could see.
const COMMITS: u32 = 64;

/// The longest key of LMDB.
pub(crate) const MOST_KEY: usize = 511;

/// Records of several collections in one file, and the indexes by which they are found.
///
/// A clone is another handle of the same. Any number of threads and processes read at once. Each reads a [`Snapshot`], which
/// nobody changes. One at a time writes, in a [`Transaction`].
#[derive(Clone)]
pub struct Database {
    pub(crate) inner: Arc<Inner>,
}

/// What all handles of a database share.
pub(crate) struct Inner {
    pub(crate) env: Environment,
    pub(crate) path: PathBuf,
    pub(crate) about: Table,
    pub(crate) collections: Vec<Collection>,
    /// The thread that has a transaction.
    pub(crate) writer: Mutex<Option<ThreadId>>,
    /// The last transaction of the file in which its layouts and indexes were those of this program.
    pub(crate) seen: AtomicUsize,
    /// Commits of this program.
    pub(crate) commits: AtomicU32,
    /// The only transaction that a file can have that is open to be read only.
    pub(crate) frozen: Option<usize>,
    /// Says that commits wait for no disk.
    pub(crate) lazy: Option<LazyMark>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(mark) = self.lazy.take()
            && self.check_process().is_ok()
            && self.env.force_sync().is_ok()
        {
            mark.end();
        }
    }
}

/// A collection of an open database.
pub(crate) struct Collection {
    pub(crate) schema: Schema,
    /// Of the layout.
    pub(crate) fingerprint: u64,
    /// Of the layout and the indexes.
    pub(crate) whole_fingerprint: u64,
    pub(crate) records: Table,
    /// In the order of the schema.
    pub(crate) indexes: Vec<Table>,
}

/// The key in [`ABOUT`] under which the next automatic key is.
pub(crate) fn next_key(collection: &str) -> String {
    format!("next {collection}")
}

impl Database {
    /// # Safety
    ///
    /// That of [`Options::open`].
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub(crate) unsafe fn open(path: &Path, options: &Options) -> Result<Self, Error> {
        // SAFETY: the caller promises it.
        let (inner, _) = unsafe { Inner::open(path, options, Ending::Commit) }?;
        let inner = Arc::new(inner);
        Ok(Self { inner })
    }

    /// # Safety
    ///
    /// That of [`Options::open_read_only`].
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub(crate) unsafe fn open_read_only(path: &Path, options: &Options) -> Result<Self, Error> {
        // SAFETY: the caller promises it.
        let inner = Arc::new(unsafe { Inner::open_read_only(path, options) }?);
        Ok(Self { inner })
    }

    /// # Safety
    ///
    /// That of [`Options::open`].
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub(crate) unsafe fn dry_run(path: &Path, options: &Options) -> Result<Vec<Migrated>, Error> {
        if !path.exists() {
            return Ok(Vec::new());
        }
        // SAFETY: the caller promises it.
        unsafe { Inner::open(path, options, Ending::GiveUp) }.map(|(_, migrated)| migrated)
    }

    /// The records as they are now, whatever is written meanwhile.
    ///
    /// While it lives, no page that it can see is used again, so the file grows. Do not keep one longer than you read.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyReaders`], [`Error::HigherLimit`], [`Error::Forked`], and [`Error::Changed`] if another program has
    /// changed layouts or indexes.
    #[inline]
    pub fn snapshot(&self) -> Result<Snapshot<'_>, Error> {
        Snapshot::begin(self)
    }

    /// The same, which borrows nothing: it keeps the database open by itself. It takes longer to begin.
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Self::snapshot).
    pub fn owned_snapshot(&self) -> Result<Snapshot<'static>, Error> {
        Snapshot::begin_owned(self)
    }

    /// The record of a key, as a copy that borrows nothing. A [`Snapshot`] borrows it.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`].
    pub fn get<R: Record>(&self, key: impl crate::AsKey<R::Key>) -> Result<Option<R>, Error> {
        let snapshot = self.snapshot()?;
        let view = snapshot.get::<R>(key)?;
        Ok(view.map(R::owned))
    }

    /// A query of a snapshot of its own.
    ///
    /// # Errors
    ///
    /// As [`Database::snapshot`].
    pub fn query<R: Record>(&self) -> Result<Query<'static, R>, Error> {
        self.owned_snapshot().map(Query::of_own)
    }

    /// Begins to write. Waits until no other one writes.
    ///
    /// # Errors
    ///
    /// [`Error::Nested`] if this thread has a transaction already. [`Error::Forked`] and [`Error::Changed`] as for
    /// [`snapshot`](Self::snapshot). Otherwise those of the system.
    pub fn begin(&self) -> Result<Transaction<'_>, Error> {
        Transaction::begin(&self.inner)
    }

    /// Writes what `work` does, as a whole. If it returns an error, nothing is written.
    ///
    /// # Errors
    ///
    /// Those of `work` and of [`Transaction::commit`].
    pub fn write<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut transaction = self.begin()?;
        let done = work(&mut transaction)?;
        transaction.commit()?;
        Ok(done)
    }

    /// Copies all records, as they are now, to a new file, while others read and write. The file appears when it is complete and
    /// on the disk.
    ///
    /// It has no unused pages, and full ones. So it is smaller than a file that was filled in many transactions, or whose indexes
    /// were filled in another order than their own. To make a file small, close it everywhere, and give the copy its name. Until
    /// the copy is complete, there are two.
    ///
    /// # Errors
    ///
    /// [`std::io::ErrorKind::AlreadyExists`] in [`Error::Io`] if there is a file of this name. Otherwise those of the system.
    pub fn copy_to(&self, path: &Path) -> Result<(), Error> {
        self.inner.check_process()?;
        let path = std::path::absolute(path)?;
        if path.symlink_metadata().is_ok() {
            let message = format!("{} is there already; name another file", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message).into());
        }
        full_copy::write(&self.inner, &path)?.appear()
    }

    /// Waits until all that was committed is on the disk. Commits do that themselves, but for those of
    /// [`Durability::Lazy`](crate::Durability::Lazy).
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and those of the system.
    pub fn sync(&self) -> Result<(), Error> {
        self.inner.check_process()?;
        self.inner.env.force_sync().told(&self.inner.env)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("path", &self.inner.path)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Refuses to go on if another program has changed layouts or indexes since this one opened the file. `last` is the
    /// number of the last transaction that this one sees.
    pub(crate) fn check_schemas(&self, txn: &RoTxn<'_>, last: usize) -> Result<(), Error> {
        if self.seen.load(Ordering::Relaxed) == last {
            return Ok(());
        }
        for collection in &self.collections {
            if !fits(
                &self.env,
                &self.about,
                txn,
                &collection.schema,
                collection.fingerprint,
            )? {
                let path = self.path.clone();
                return Err(Error::Changed { path });
            }
        }
        self.seen.fetch_max(last, Ordering::Relaxed);
        Ok(())
    }

    /// The thread that has a transaction.
    pub(crate) fn writer(&self) -> MutexGuard<'_, Option<ThreadId>> {
        // It is replaced as a whole.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The collection of a type.
    #[inline]
    pub(crate) fn collection<R: Record>(&self) -> Result<&Collection, Error> {
        let collection = R::SCHEMA.collection;
        let is_it = |known: &&Collection| {
            let whole = const { R::SCHEMA.whole_fingerprint() };
            known.whole_fingerprint == whole && known.schema.collection == collection
        };
        let known = self.collections.iter().find(is_it);
        known.ok_or(Error::Unknown { collection })
    }

    /// An error in a child of the process that has opened the file.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.env.check_process()
    }

    /// What follows a commit of this number, which has written something.
    pub(crate) fn committed(&self, number: usize) -> Result<(), Error> {
        // It has changed no layout, so nobody need compare them.
        self.seen.fetch_max(number, Ordering::Relaxed);
        let before = self.commits.fetch_add(1, Ordering::Relaxed);
        if before % COMMITS == COMMITS - 1 {
            self.env.clear_stale_readers().told(&self.env)?;
        }
        Ok(())
    }

    /// An error of LMDB, with what this database knows.
    #[cold]
    pub(crate) fn told(&self, e: heed::Error) -> Error {
        store_error::of_open_file(&self.env, e)
    }

    /// Begins to read, by `read`.
    #[inline]
    pub(crate) fn read<'e>(
        &self,
        read: impl Fn() -> heed::Result<RoTxn<'e, WithoutTls>>,
    ) -> Result<RoTxn<'e, WithoutTls>, Error> {
        self.check_process()?;
        match read() {
            // Processes that were killed may still have their places.
            Err(heed::Error::Mdb(MdbError::ReadersFull)) => {
                self.env.clear_stale_readers().told(&self.env)?;
                read()
            }
            done => done,
        }
        .map_err(|e| self.told(e))
        .and_then(|txn| {
            if self.frozen.is_some_and(|frozen| frozen != txn.id()) {
                let path = self.path.clone();
                return Err(Error::NotFrozen { path });
            }
            self.check_schemas(&txn, txn.id())?;
            Ok(txn)
        })
    }
}

pub(crate) fn not_unique<R: Record>(number: usize, entry: &[u8]) -> Error {
    let index = R::SCHEMA.indexes.get(number);
    Error::NotUnique {
        collection: R::SCHEMA.collection,
        index: index.map_or("", |index| index.name),
        value: R::describe_index_key(number, entry),
    }
}

pub(crate) fn damaged<R: Record>(key: &[u8]) -> Error {
    Error::Damaged {
        collection: R::SCHEMA.collection,
        key: crate::key::describe_key::<R::Key>(key),
    }
}

pub(crate) fn check_key_len<R: Record>(what: &'static str, len: usize) -> Result<(), Error> {
    check_key_len_of(R::SCHEMA.collection, what, len)
}

/// The same of a collection of this name.
pub(crate) fn check_key_len_of(
    collection: &'static str,
    what: &'static str,
    len: usize,
) -> Result<(), Error> {
    match (1..=MOST_KEY).contains(&len) {
        true => Ok(()),
        false => Err(Error::TooLong {
            what,
            of: collection,
            len: len as u64,
            most: MOST_KEY as u64,
        }),
    }
}
