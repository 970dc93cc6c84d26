//! What a snapshot and a transaction have in common.

use heed::RoTxn;

use crate::error::Error;
use crate::inner::Inner;
use crate::key::AsKey;
use crate::key_bytes::KeyBytes;
use crate::record::{Record, ViewOf};
use crate::stored_record;
use crate::table::{MOST_KEY, Table, damaged};

/// The records that a snapshot or a transaction sees.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'t> {
    pub(crate) txn: &'t RoTxn<'t>,
    pub(crate) inner: &'t Inner,
}

/// The bytes of a record, and the view of them.
type Stored<'t, R> = (&'t [u8], ViewOf<'t, R>);

impl<'t> Reading<'t> {
    #[inline]
    pub(crate) fn get<R: Record>(
        self,
        key: &impl AsKey<R::Key>,
    ) -> Result<Option<ViewOf<'t, R>>, Error> {
        let mut bytes = KeyBytes::new();
        key.encode_key(&mut bytes);
        bytes.pad();
        self.get_encoded::<R>(&bytes)
    }

    /// The record of a key that is padded.
    #[inline]
    pub(crate) fn get_encoded<R: Record>(self, key: &[u8]) -> Result<Option<ViewOf<'t, R>>, Error> {
        let found = self.get_stored::<R>(key)?;
        Ok(found.map(|(_bytes, view)| view))
    }

    /// The same, with its bytes in the file.
    #[inline]
    pub(crate) fn get_stored<R: Record>(self, key: &[u8]) -> Result<Option<Stored<'t, R>>, Error> {
        let collection = self.inner.collection::<R>()?;
        self.get_from::<R>(&collection.records, key)
    }

    /// The same from the table of the records.
    #[inline]
    pub(crate) fn get_from<R: Record>(
        self,
        records: &Table,
        key: &[u8],
    ) -> Result<Option<Stored<'t, R>>, Error> {
        self.inner.check_process()?;
        if key.is_empty() || key.len() > MOST_KEY {
            return Ok(None);
        }
        let found = records.get(self.txn, key);
        match found.map_err(|e| self.inner.told(e))? {
            Some(bytes) => {
                let view = stored_record::view::<R>(key, bytes);
                let view = view.ok_or_else(|| damaged::<R>(key))?;
                Ok(Some((bytes, view)))
            }
            None => Ok(None),
        }
    }

    /// The records of keys, in the order of the keys. They are looked up in the order of the database.
    pub(crate) fn get_many<R: Record, Q: AsKey<R::Key>>(
        self,
        keys: impl IntoIterator<Item = Q>,
    ) -> Result<Vec<Option<ViewOf<'t, R>>>, Error> {
        self.get_many_encoded::<R>(&encoded::<R, Q>(keys))
    }

    /// The same of keys that are padded.
    pub(crate) fn get_many_encoded<R: Record>(
        self,
        keys: &[KeyBytes],
    ) -> Result<Vec<Option<ViewOf<'t, R>>>, Error> {
        let mut found = Vec::new();
        found.resize_with(keys.len(), || None);
        let mut places: Vec<_> = keys.iter().zip(&mut found).collect();
        places.sort_unstable_by_key(|(key, _)| &***key);
        for (key, place) in places {
            *place = self.get_encoded::<R>(key)?;
        }
        Ok(found)
    }

    pub(crate) fn count<R: Record>(self) -> Result<u64, Error> {
        self.inner.check_process()?;
        let collection = self.inner.collection::<R>()?;
        let len = collection.records.len(self.txn);
        len.map_err(|e| self.inner.told(e))
    }
}

/// Keys as their table has them.
pub(crate) fn encoded<R: Record, Q: AsKey<R::Key>>(
    keys: impl IntoIterator<Item = Q>,
) -> Vec<KeyBytes> {
    let encoded = keys.into_iter().map(|key| {
        let mut bytes = KeyBytes::new();
        key.encode_key(&mut bytes);
        bytes.pad();
        bytes
    });
    encoded.collect()
}
