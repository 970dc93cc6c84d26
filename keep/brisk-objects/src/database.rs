//! The handle of a database, and opening one.

use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

use crate::error::Error;
use crate::full_copy;
use crate::inner::Inner;
use crate::migration::Migrated;
use crate::opening::Ending;
use crate::options::Options;
use crate::query::Query;
use crate::record::Record;
use crate::snapshot::Snapshot;
use crate::store_error::Told;
use crate::transaction::Transaction;

/// Records of several collections in one file, and the indexes by which they are found.
///
/// A clone is another handle of the same. Any number of threads and processes read at once. Each reads a [`Snapshot`], which
/// nobody changes. One at a time writes, in a [`Transaction`].
#[derive(Clone)]
pub struct Database {
    pub(crate) inner: Arc<Inner>,
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
        Snapshot::begin(&self.inner)
    }

    /// A snapshot that borrows nothing: it keeps the database open by itself. It takes longer to begin than
    /// [`snapshot`](Self::snapshot).
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Self::snapshot).
    pub fn owned_snapshot(&self) -> Result<Snapshot<'static>, Error> {
        Snapshot::begin_owned(&self.inner)
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

    /// Begins to write. Waits until no other transaction writes.
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

impl Options {
    /// Opens a database to read it, and writes nothing: neither to the file nor beside it. So it can be on a filesystem that is
    /// mounted read-only, or belong to another user.
    ///
    /// # Errors
    ///
    /// [`Error::NeedsWriting`] if the file lacks a collection or an index of these types. [`Error::ReadOnly`] from
    /// [`Database::begin`](crate::Database::begin), and [`Error::NotFrozen`] from
    /// [`Database::snapshot`](crate::Database::snapshot) if it finds that somebody has written. Otherwise as
    /// [`open`](Self::open); no migration is run.
    ///
    /// # Safety
    ///
    /// While the database is open, nothing writes to the file, and LMDB does not, either: nobody is told that the file is being
    /// read, so a writer would use pages again that are still looked at.
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub unsafe fn open_read_only(self, path: &Path) -> Result<Database, Error> {
        // SAFETY: the caller promises it.
        unsafe { Database::open_read_only(path, &self) }
    }

    /// What [`open`](Self::open) would migrate. It does all of that, and then gives it up.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// As for [`open`](Self::open).
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub unsafe fn dry_run(self, path: &Path) -> Result<Vec<Migrated>, Error> {
        // SAFETY: the caller promises it.
        unsafe { Database::dry_run(path, &self) }
    }

    /// Opens a database, or makes one if there is no file. Another file beside it, whose name ends with `-lock`, has the
    /// readers. Indexes that the file does not have yet are built, and those that no type has any more are removed.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`] if the file has records of another layout. [`Error::Foreign`] if it is no database, [`Error::Cut`] if
    /// its end is missing, and [`Error::Pages`] if a page is wrong. [`Error::Network`], [`Error::OpenAlready`] and
    /// [`Error::SameProcessNumber`] where LMDB would destroy the file or not work. [`Error::NotUnique`] if a unique index
    /// is new, and records have equal values. Otherwise those of the system.
    ///
    /// # Safety
    ///
    /// While the database is open, nothing but LMDB writes to the file: it is mapped, and what is read borrows from the
    /// mapping. All processes use one name of it: of two hard links, each would have a lock of its own.
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub unsafe fn open(self, path: &Path) -> Result<Database, Error> {
        // SAFETY: the caller promises it.
        unsafe { Database::open(path, &self) }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("path", &self.inner.path)
            .finish_non_exhaustive()
    }
}
