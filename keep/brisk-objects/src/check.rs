//! Whether records and indexes agree.

use crate::error::Error;
use crate::inner::Inner;
use crate::key_bytes::KeyBytes;
use crate::reading::Reading;
use crate::record::Record;
use crate::stored_record;
use crate::table::{Table, damaged};

pub(crate) fn check<R: Record>(reading: Reading<'_>) -> Result<u64, Error> {
    let Reading { txn, inner } = reading;
    inner.check_process()?;
    let collection = inner.collection::<R>()?;
    let mut records = 0;
    for record in collection.records.iter(txn).map_err(|e| inner.told(e))? {
        let (key, bytes) = record.map_err(|e| inner.told(e))?;
        let view = stored_record::view::<R>(key, bytes).ok_or_else(|| damaged::<R>(key))?;
        if *stored_record::key_of::<R>(&view) != *key {
            return Err(damaged::<R>(key));
        }
        for (number, index) in collection.indexes.iter().enumerate() {
            let mut entry = KeyBytes::new();
            R::encode_index_key(&view, number, &mut entry);
            R::encode_key_of(&view, &mut entry);
            if index.get(txn, &entry).map_err(|e| inner.told(e))?.is_none() {
                return Err(damaged::<R>(key));
            }
        }
        records += 1;
    }
    // Each record has one entry in each index, so others would be too many.
    for (index, schema) in collection.indexes.iter().zip(collection.schema.indexes) {
        let entries = entries(inner, reading, index)?;
        if entries != records {
            return Err(Error::Index {
                collection: R::SCHEMA.collection,
                index: schema.name,
                entries,
                records,
            });
        }
    }
    Ok(records)
}

/// The number of entries of an index, by going through them.
fn entries(inner: &Inner, reading: Reading<'_>, index: &Table) -> Result<u64, Error> {
    let entries = index.iter(reading.txn);
    let mut count = 0;
    for entry in entries.map_err(|e| inner.told(e))? {
        entry.map_err(|e| inner.told(e))?;
        count += 1;
    }
    Ok(count)
}
