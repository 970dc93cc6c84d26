//! An open file, and the collections that are open of it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use heed::{MdbError, RoTxn, WithoutTls};

use crate::about::fits;
use crate::environment::Environment;
use crate::error::Error;
use crate::lazy_mark::LazyMark;
use crate::record::Record;
use crate::schema::Schema;
use crate::store_error::{self, Told};
use crate::table::Table;

/// After so many commits, the places of readers that were killed are taken back. Until then, no page is used again that they
/// could see.
const COMMITS: u32 = 64;

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
