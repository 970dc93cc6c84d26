//! What a program knows of a collection before it is opened.

use heed::RwTxn;

use crate::error::Error;
use crate::index_filling::fill_index;
use crate::inner::{Collection, Inner};
use crate::record::Record;
use crate::schema::Schema;

/// What a program knows of a collection before it is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition {
    pub(crate) schema: Schema,
    pub(crate) fingerprint: u64,
    pub(crate) fill_index: FillIndex,
}

/// Writes the entries of an index of all records of a collection.
type FillIndex = fn(&mut RwTxn<'_>, &Inner, &Collection, usize) -> Result<(), Error>;

impl Definition {
    pub(crate) fn of<R: Record>() -> Self {
        Self {
            schema: R::SCHEMA,
            fingerprint: R::FINGERPRINT,
            fill_index: fill_index::<R>,
        }
    }

    pub(crate) fn collection(&self) -> &'static str {
        self.schema.collection
    }

    /// How many tables it has.
    pub(crate) fn tables(&self) -> u32 {
        u32::try_from(self.schema.indexes.len())
            .map_or(u32::MAX, |indexes| indexes.saturating_add(1))
    }
}
