//! Whether records, keys and indexes agree.

use std::fmt;

use super::collection::UntypedCollection;
use super::parts::decode;
use super::plain::Plain;
use crate::error::Error;
use crate::key_bytes::KeyBytes;
use crate::schema::IndexSchema;
use crate::store_error::Told;
use crate::stored_record;

/// Something in a collection that is not what was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The collection.
    pub collection: &'static str,
    /// The index, if it is in one.
    pub index: Option<&'static str>,
    /// The key of the record, in words.
    pub key: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}, index {index}, ", self.collection)?,
            None => write!(f, "{}, ", self.collection)?,
        }
        write!(f, "key {}: {}", self.key, self.what)
    }
}

impl UntypedCollection<'_> {
    /// Looks at every record and every entry of the indexes, and calls `found` for each that is wrong. Returns the number of
    /// records.
    ///
    /// # Errors
    ///
    /// Those of the system, and those of `found`.
    pub fn check<E: From<Error>>(
        &self,
        mut found: impl FnMut(Fault) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut records = 0u64;
        let txn = self.database.txn()?;
        for row in self.parts.records.iter(txn).told(&self.database.env)? {
            let (key, bytes) = row.told(&self.database.env)?;
            records = records.saturating_add(1);
            let what = match self.record(key, bytes) {
                Ok(record) => {
                    for fault in self.missing_entries(key, &record)? {
                        found(fault)?;
                    }
                    continue;
                }
                Err(what) => what,
            };
            found(self.fault(None, key, what))?;
        }
        for number in 0..self.schema().indexes.len() {
            self.check_index(number, &mut found)?;
        }
        Ok(records)
    }

    fn fault(&self, index: Option<&IndexSchema>, key: &[u8], what: String) -> Fault {
        let schema = self.schema();
        Fault {
            collection: schema.collection,
            index: index.map(|index| index.name),
            key: schema.key_in_words(key),
            what,
        }
    }

    /// A record that is right, or what is wrong with it.
    fn record(&self, key: &[u8], bytes: &[u8]) -> Result<Plain, String> {
        let value = stored_record::value_of(self.parts.fingerprint, key, bytes);
        let value = value.ok_or("its bytes are not what was stored")?;
        let record = Plain::read(&self.schema().layout, value);
        let record = record.map_err(|e| format!("its check is right, but of its field {e}"))?;
        let own = self.schema().key_of(&record);
        match *own == *key {
            true => Ok(record),
            false => Err(format!(
                "its own key is {}",
                self.schema().key_in_words(&own)
            )),
        }
    }

    fn missing_entries(&self, key: &[u8], record: &Plain) -> Result<Vec<Fault>, Error> {
        let mut faults = Vec::new();
        let pairs = self.schema().indexes.iter().zip(&self.parts.indexes);
        for (index, table) in pairs {
            let (entry, ..) = self.schema().entry_of(index.fields, record);
            let is_there = entry.len() <= crate::table::MOST_KEY
                && table
                    .get(self.database.txn()?, &entry)
                    .told(&self.database.env)?
                    .is_some();
            if !is_there {
                let what = "there is no entry for this record".to_owned();
                faults.push(self.fault(Some(index), key, what));
            }
        }
        Ok(faults)
    }

    fn check_index<E: From<Error>>(
        &self,
        number: usize,
        found: &mut impl FnMut(Fault) -> Result<(), E>,
    ) -> Result<(), E> {
        let schema = self.schema();
        let index = schema.indexes.get(number);
        let (Some(index), Some(table)) = (index, self.parts.indexes.get(number)) else {
            return Ok(());
        };
        let txn = self.database.txn()?;
        let kinds = schema.types_of(index.fields);
        // The value of the entry before, if no part of it is missing.
        let mut last: Option<Vec<u8>> = None;
        for row in table.iter(txn).told(&self.database.env)? {
            let (entry, value) = row.told(&self.database.env)?;
            let mut rest = entry;
            let Some(parts) = decode(&kinds, &mut rest) else {
                let what = "its bytes are no value of the index".to_owned();
                found(self.fault(Some(index), entry, what))?;
                continue;
            };
            let mut key = KeyBytes::new();
            key.extend_from_slice(rest);
            key.pad();
            if !value.is_empty() {
                let what = format!(
                    "its entry has a value of {} bytes, allowed is none",
                    value.len()
                );
                found(self.fault(Some(index), &key, what))?;
            }
            if let Some(what) = self.wrong_entry(index, entry, &key)? {
                found(self.fault(Some(index), &key, what))?;
            }
            let value = entry.get(..entry.len().saturating_sub(rest.len()));
            let is_whole = !parts.iter().any(Plain::is_missing);
            let value = value.filter(|_| index.is_unique && is_whole);
            if value.is_some() && value == last.as_deref() {
                let what = "another record has the same values, but the index is unique".to_owned();
                found(self.fault(Some(index), &key, what))?;
            }
            last = value.map(<[u8]>::to_vec);
        }
        Ok(())
    }

    /// What is wrong with an entry that leads to a key.
    fn wrong_entry(
        &self,
        index: &IndexSchema,
        entry: &[u8],
        key: &[u8],
    ) -> Result<Option<String>, Error> {
        let allowed = 1..=crate::table::MOST_KEY;
        let txn = self.database.txn()?;
        let bytes = match allowed.contains(&key.len()) {
            true => self.parts.records.get(txn, key).told(&self.database.env)?,
            false => None,
        };
        let Some(bytes) = bytes else {
            return Ok(Some("its entry leads to no record".to_owned()));
        };
        // A record that is wrong was told.
        let Ok(record) = self.record(key, bytes) else {
            return Ok(None);
        };
        let (own, ..) = self.schema().entry_of(index.fields, &record);
        Ok((*own != *entry).then(|| "its entry has other values than the record".to_owned()))
    }
}
