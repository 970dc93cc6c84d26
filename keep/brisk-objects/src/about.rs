//! The table that says what the others are.

use heed::{Env, RoTxn, RwTxn, WithoutTls};

use crate::error::Error;
use crate::schema::Schema;
use crate::store_error::Told;
use crate::table::Table;

/// The name of the table that says what the others are.
pub(crate) const ABOUT: &str = "brisk-objects";
/// The name of the table where migrated records are until all are.
pub(crate) const SPARE: &str = "brisk-objects migration";
/// The version of all that is stored.
pub(crate) const VERSION: &[u8] = b"1";

/// The key in [`ABOUT`] under which the layout of the records of a collection is.
pub(crate) fn layout_key(schema: &Schema) -> String {
    format!("layout {}", schema.collection)
}

/// The key in [`ABOUT`] under which an index is.
pub(crate) fn index_key(schema: &Schema, index: &str) -> String {
    format!("index {}", index_table(schema.collection, index))
}

/// The name of the table of an index.
pub(crate) fn index_table(collection: &str, index: &str) -> String {
    format!("{collection}/{index}")
}

/// The fingerprint and the text of the layout that the file has of a collection.
pub(crate) fn stored_layout(
    env: &Env<WithoutTls>,
    about: &Table,
    txn: &RoTxn<'_>,
    schema: &Schema,
) -> Result<Option<(u64, String)>, Error> {
    let stored = about.get(txn, layout_key(schema).as_bytes()).told(env)?;
    let parts = stored.and_then(<[u8]>::split_first_chunk);
    Ok(parts.map(|(number, text)| {
        let text = String::from_utf8_lossy(text).into_owned();
        (u64::from_le_bytes(*number), text)
    }))
}

/// Whether a collection has this layout and these indexes in the file, and no others.
pub(crate) fn fits(
    env: &Env<WithoutTls>,
    about: &Table,
    txn: &RoTxn<'_>,
    schema: &Schema,
    layout: u64,
) -> Result<bool, Error> {
    let has = |key: String, number: u64| -> Result<bool, Error> {
        let stored = about.get(txn, key.as_bytes()).told(env)?;
        Ok(stored.is_some_and(|stored| stored.starts_with(&number.to_le_bytes())))
    };
    for index in schema.indexes {
        if !has(index_key(schema, index.name), index.fingerprint(layout))? {
            return Ok(false);
        }
    }
    Ok(has(layout_key(schema), layout)? && obsolete(env, about, txn, schema)?.is_empty())
}

/// Whether the file describes a collection in the words of this schema, which has the same layout. They also say whether keys
/// are automatic.
pub(crate) fn is_in_words(
    env: &Env<WithoutTls>,
    about: &Table,
    txn: &RoTxn<'_>,
    schema: &Schema,
) -> Result<bool, Error> {
    let stored = about.get(txn, layout_key(schema).as_bytes()).told(env)?;
    let words = stored.and_then(|stored| stored.get(size_of::<u64>()..));
    Ok(words == Some(schema.layout_text().as_bytes()))
}

/// The table that says what the others are, which is made in a new file. None if the file is of another program.
pub(crate) fn own_table(
    env: &Env<WithoutTls>,
    txn: &mut RwTxn<'_>,
) -> Result<Option<Table>, Error> {
    if let Some(about) = env.open_database(txn, Some(ABOUT)).told(env)? {
        return Ok(Some(about));
    }
    let root: Option<Table> = env.open_database(txn, None).told(env)?;
    if let Some(root) = root
        && !root.is_empty(txn).told(env)?
    {
        return Ok(None);
    }
    Ok(Some(env.create_database(txn, Some(ABOUT)).told(env)?))
}

/// The names in [`ABOUT`] of the indexes that no type has any more.
pub(crate) fn obsolete(
    env: &Env<WithoutTls>,
    about: &Table,
    txn: &RoTxn<'_>,
    schema: &Schema,
) -> Result<Vec<String>, Error> {
    let mut obsolete = Vec::new();
    let prefix = index_key(schema, "");
    for entry in about.prefix_iter(txn, prefix.as_bytes()).told(env)? {
        let name = String::from_utf8_lossy(entry.told(env)?.0).into_owned();
        let indexes = &mut schema.indexes.iter();
        if !indexes.any(|index| index_key(schema, index.name) == name) {
            obsolete.push(name);
        }
    }
    Ok(obsolete)
}
