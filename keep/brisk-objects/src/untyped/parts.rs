//! What a collection of a file is made of, and its keys and entries.

use heed::{Env, RoTxn, WithoutTls};

use super::plain::Plain;
use crate::error::Error;
use crate::key_bytes::KeyBytes;
use crate::kind::Type;
use crate::schema::Schema;
use crate::store_error::Told;
use crate::stored_record;
use crate::table::{MOST_KEY, Table};

/// A collection of a file.
pub(super) struct Parts {
    pub(super) schema: Schema,
    /// Of the layout.
    pub(super) fingerprint: u64,
    pub(super) records: Table,
    /// In the order of the schema.
    pub(super) indexes: Vec<Table>,
}

impl Parts {
    /// The record under a key of a table.
    pub(super) fn read(&self, key: &[u8], bytes: &[u8]) -> Result<Plain, Error> {
        let value = stored_record::value_of(self.fingerprint, key, bytes);
        let record = value.and_then(|value| Plain::read(&self.schema.layout, value).ok());
        record.ok_or_else(|| self.damaged(key))
    }

    /// The record of a padded key.
    pub(super) fn get(
        &self,
        env: &Env<WithoutTls>,
        txn: &RoTxn<'_>,
        key: &[u8],
    ) -> Result<Option<Plain>, Error> {
        if key.is_empty() || key.len() > MOST_KEY {
            return Ok(None);
        }
        let found = self.records.get(txn, key).told(env)?;
        found.map(|bytes| self.read(key, bytes)).transpose()
    }

    pub(super) fn damaged(&self, key: &[u8]) -> Error {
        Error::Damaged {
            collection: self.schema.collection,
            key: self.schema.key_in_words(key),
        }
    }
}

impl Schema {
    /// The types of fields, in their order.
    pub fn types_of(&self, fields: &[&str]) -> Vec<&'static Type> {
        let kinds = fields.iter().filter_map(|name| self.field(name));
        kinds.collect()
    }

    /// The values of a key that is stored. None if the bytes are no key.
    pub(super) fn decode_key(&self, mut bytes: &[u8]) -> Option<Vec<Plain>> {
        let parts = decode(&self.types_of(self.key), &mut bytes)?;
        // Up to a multiple of 8 bytes.
        let is_padding = bytes.len() < 8 && bytes.iter().all(|byte| *byte == 0);
        is_padding.then_some(parts)
    }

    /// A key as an error shows it.
    pub(super) fn key_in_words(&self, bytes: &[u8]) -> String {
        match self.decode_key(bytes).as_deref() {
            Some([one]) => one.to_string(),
            Some(several) => {
                let words: Vec<_> = several.iter().map(ToString::to_string).collect();
                format!("({})", words.join(", "))
            }
            None => format!("{bytes:02x?}"),
        }
    }

    /// Writes what fields of a record are ordered by. Returns whether none is missing.
    pub(super) fn encode_fields(
        &self,
        fields: &[&str],
        record: &Plain,
        out: &mut KeyBytes,
    ) -> bool {
        let mut is_whole = true;
        for name in fields {
            if let (Some(kind), Some(value)) = (self.field(name), record.field(name)) {
                value.encode_key(kind, out);
                is_whole &= !value.is_missing();
            }
        }
        is_whole
    }

    /// The key of a record, padded as tables have it.
    pub(super) fn key_of(&self, record: &Plain) -> KeyBytes {
        let mut key = KeyBytes::new();
        self.encode_fields(self.key, record, &mut key);
        key.pad();
        key
    }

    /// The entry of a record in an index, how many bytes of it are the fields, and whether none of those is missing.
    pub(super) fn entry_of(&self, fields: &[&str], record: &Plain) -> (KeyBytes, usize, bool) {
        let mut entry = KeyBytes::new();
        let is_whole = self.encode_fields(fields, record, &mut entry);
        let len = entry.len();
        self.encode_fields(self.key, record, &mut entry);
        (entry, len, is_whole)
    }

    /// The bytes of values that stand for the first fields.
    pub(super) fn encode_parts(
        &self,
        what: &str,
        fields: &[&str],
        parts: &[Plain],
    ) -> Result<KeyBytes, Error> {
        let kinds = self.types_of(fields);
        let mut bytes = KeyBytes::new();
        let mut pairs = kinds.iter().zip(parts);
        if parts.len() > kinds.len() || !pairs.all(|(kind, part)| part.is_of(kind)) {
            let named = fields.iter().zip(&kinds);
            let wanted: Vec<_> = named
                .map(|(name, kind)| format!("{name}: {kind}"))
                .collect();
            return Err(Error::Mismatch {
                what: what.to_owned(),
                wanted: wanted.join(", "),
            });
        }
        for (kind, part) in kinds.iter().zip(parts) {
            part.encode_key(kind, &mut bytes);
        }
        Ok(bytes)
    }
}

/// Takes values of these types from the front of bytes.
pub(super) fn decode(kinds: &[&Type], bytes: &mut &[u8]) -> Option<Vec<Plain>> {
    let parts = kinds.iter().map(|kind| Plain::decode_key(kind, bytes));
    parts.collect()
}
