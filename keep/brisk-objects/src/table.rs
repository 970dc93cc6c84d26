//! Tables of the file, their keys, and errors about them.

use heed::types::Bytes;

use crate::error::Error;
use crate::record::Record;

/// A table of the file: keys and values, in the order of the keys.
pub(crate) type Table = heed::Database<Bytes, Bytes>;

/// The longest key of LMDB.
pub(crate) const MOST_KEY: usize = 511;

/// The key in [`ABOUT`](crate::about::ABOUT) under which the next automatic key is.
pub(crate) fn next_key(collection: &str) -> String {
    format!("next {collection}")
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
