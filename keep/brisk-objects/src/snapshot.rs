use std::sync::Arc;

use heed::{RoTxn, WithoutTls};

use crate::check;
use crate::error::Error;
use crate::inner::Inner;
use crate::key::AsKey;
use crate::query::Query;
use crate::reading::Reading;
use crate::record::{Record, ViewOf};

/// All records of a database, as they were at one moment. It can be used by another thread.
pub struct Snapshot<'d> {
    /// Some, until this is dropped.
    txn: Option<RoTxn<'d, WithoutTls>>,
    of: Of<'d>,
}

/// The database that a snapshot is of.
enum Of<'d> {
    Borrowed(&'d Inner),
    Own(Arc<Inner>),
}

impl<'d> Snapshot<'d> {
    #[inline]
    pub(crate) fn begin(inner: &'d Inner) -> Result<Self, Error> {
        let txn = Some(inner.read(|| inner.env.read_txn())?);
        let of = Of::Borrowed(inner);
        Ok(Self { txn, of })
    }
}

impl Snapshot<'static> {
    pub(crate) fn begin_owned(inner: &Arc<Inner>) -> Result<Self, Error> {
        let txn = Some(inner.read(|| inner.env.clone().static_read_txn())?);
        let of = Of::Own(Arc::clone(inner));
        Ok(Self { txn, of })
    }
}

impl Snapshot<'_> {
    #[inline]
    fn inner(&self) -> &Inner {
        match &self.of {
            Of::Borrowed(inner) => inner,
            Of::Own(inner) => inner,
        }
    }

    /// The number of the last transaction that it sees.
    #[cfg(feature = "tokio")]
    pub(crate) fn number(&self) -> usize {
        self.txn.as_ref().expect("only drop takes it").id()
    }

    pub(crate) fn reading(&self) -> Reading<'_> {
        let inner = self.inner();
        let txn = self.txn.as_ref().expect("only drop takes it");
        Reading { txn, inner }
    }

    /// The record of a key.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if its bytes are not what was stored. [`Error::Unknown`] if the database was opened without the
    /// collection. Otherwise those of the system.
    #[inline]
    pub fn get<R: Record>(&self, key: impl AsKey<R::Key>) -> Result<Option<ViewOf<'_, R>>, Error> {
        self.reading().get::<R>(&key)
    }

    /// The records of several keys, in the order of the keys.
    ///
    /// It looks them up in the order of the database. So neighbours come from the disk by one read, which takes much less
    /// than a call for each key if the file is not in memory.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`].
    pub fn get_many<R: Record, Q: AsKey<R::Key>>(
        &self,
        keys: impl IntoIterator<Item = Q>,
    ) -> Result<Vec<Option<ViewOf<'_, R>>>, Error> {
        self.reading().get_many::<R, Q>(keys)
    }

    /// The number of records of a collection.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`].
    pub fn count<R: Record>(&self) -> Result<u64, Error> {
        self.reading().count::<R>()
    }

    /// Looks at every record of a collection and at every entry of its indexes. Returns the number of records.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] names the first record whose bytes are not what was stored, or that an index does not have.
    /// [`Error::Index`] names the first index that has more. Otherwise as [`Snapshot::get`].
    pub fn check<R: Record>(&self) -> Result<u64, Error> {
        check::check::<R>(self.reading())
    }

    /// A query of these records.
    pub fn query<R: Record>(&self) -> Query<'_, R> {
        Query::of(self.reading())
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        if self.inner().check_process().is_err() {
            // Its place among the readers is the parent's.
            std::mem::forget(self.txn.take());
        }
    }
}

impl std::fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Snapshot").field(&self.inner().path).finish()
    }
}
