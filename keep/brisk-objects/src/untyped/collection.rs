//! A collection whose types only the file tells.

use std::fmt;

use super::database::{TableSize, UntypedDatabase};
use super::parts::Parts;
use super::plain::Plain;
use super::query::UntypedQuery;
use crate::error::Error;
use crate::schema::Schema;
use crate::store_error::Told;
use crate::table::next_key;

/// A collection of an [`UntypedDatabase`].
#[derive(Clone, Copy)]
pub struct UntypedCollection<'d> {
    pub(super) database: &'d UntypedDatabase,
    pub(super) parts: &'d Parts,
}

impl UntypedDatabase {
    /// The collections, in the order of their names.
    pub fn collections(&self) -> impl Iterator<Item = UntypedCollection<'_>> {
        self.parts().iter().map(|parts| UntypedCollection {
            database: self,
            parts,
        })
    }

    /// The collection of a name.
    ///
    /// # Errors
    ///
    /// [`Error::NoCollection`], and [`Error::UnknownLayout`] if it cannot be read.
    pub fn collection(&self, name: &str) -> Result<UntypedCollection<'_>, Error> {
        let known = &mut self.collections();
        if let Some(found) = known.find(|known| known.schema().collection == name) {
            return Ok(found);
        }
        let unreadable = &mut self.unreadable().iter();
        if let Some((collection, found)) = unreadable.find(|(known, _)| known == name) {
            return Err(Error::UnknownLayout {
                collection: collection.clone(),
                found: found.clone(),
            });
        }
        let known = self.collections();
        Err(Error::NoCollection {
            collection: name.to_owned(),
            known: known
                .map(|one| one.schema().collection.to_owned())
                .collect(),
        })
    }
}

impl<'d> UntypedCollection<'d> {
    /// What is stored, and how it is found.
    pub fn schema(&self) -> &'d Schema {
        &self.parts.schema
    }

    /// The number of records.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn len(&self) -> Result<u64, Error> {
        self.parts
            .records
            .len(self.database.txn()?)
            .told(&self.database.env)
    }

    /// Whether there is no record.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn is_empty(&self) -> Result<bool, Error> {
        self.parts
            .records
            .is_empty(self.database.txn()?)
            .told(&self.database.env)
    }

    /// The next key that the database would choose, if one was noted.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn next_key(&self) -> Result<Option<u64>, Error> {
        let name = next_key(self.schema().collection);
        let about = self.database.about_table();
        let found = about
            .get(self.database.txn()?, name.as_bytes())
            .told(&self.database.env)?;
        let bytes = found.and_then(|bytes| bytes.try_into().ok());
        Ok(bytes.map(u64::from_le_bytes))
    }

    /// The table of the records.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn records_size(&self) -> Result<TableSize, Error> {
        self.database.size_of(&self.parts.records)
    }

    /// The tables of the indexes, in their order.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn index_sizes(&self) -> Result<Vec<TableSize>, Error> {
        let tables = self.parts.indexes.iter();
        tables.map(|table| self.database.size_of(table)).collect()
    }

    /// The record of a key.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] if the values are no key. [`Error::Damaged`] if its bytes are not what was stored.
    pub fn get(&self, key: &[Plain]) -> Result<Option<Plain>, Error> {
        let schema = self.schema();
        let what = format!("the key of {}", schema.collection);
        let mut bytes = schema.encode_parts(&what, schema.key, key)?;
        if key.len() < schema.key.len() {
            let fields = schema.key.iter();
            let wanted: Vec<_> = fields.copied().collect();
            let wanted = wanted.join(", ");
            return Err(Error::Mismatch { what, wanted });
        }
        bytes.pad();
        self.parts
            .get(&self.database.env, self.database.txn()?, &bytes)
    }

    /// A query of all records.
    pub fn query(&self) -> UntypedQuery<'d> {
        UntypedQuery::new(*self)
    }
}

impl fmt::Debug for UntypedCollection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UntypedCollection")
            .field(&self.schema().collection)
            .finish()
    }
}
