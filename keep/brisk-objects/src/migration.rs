//! From records of one layout to those of another.

use std::fmt;
use std::sync::Arc;

use heed::RwTxn;

use crate::error::Error;
use crate::inner::Inner;
use crate::key::describe_key;
use crate::record::{Record, ViewOf};
use crate::schema::Schema;
use crate::store_error::Told;
use crate::stored_record;
use crate::table::{Table, check_key_len, damaged};

/// What a migration of a program may fail with.
pub(crate) type Why = Box<dyn std::error::Error + Send + Sync>;

/// Makes records of one layout from those of another.
#[derive(Clone)]
pub(crate) struct Migration {
    pub(crate) collection: &'static str,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) to_schema: Schema,
    run: Arc<Run>,
}

/// The shortest way from one layout of a collection to another. None if there is none.
pub(crate) fn steps<'m>(
    migrations: &'m [Migration],
    collection: &str,
    (from, to): (u64, u64),
) -> Option<Vec<&'m Migration>> {
    let mut ways = vec![(from, Vec::new())];
    // Each layout is reached once.
    let mut at = 0;
    while let Some((layout, steps)) = ways.get(at).cloned() {
        if layout == to {
            return Some(steps);
        }
        for migration in migrations {
            let is_next = (migration.collection, migration.from) == (collection, layout);
            if is_next && ways.iter().all(|(reached, _)| *reached != migration.to) {
                let way = [steps.as_slice(), &[migration]].concat();
                ways.push((migration.to, way));
            }
        }
        at += 1;
    }
    None
}

/// Reads the records of the first table and writes the new ones to the second. Returns their number.
type Run = dyn Fn(&mut RwTxn<'_>, &Inner, &Table, &Table) -> Result<u64, Error> + Send + Sync;

impl Migration {
    pub(crate) fn of<Old: Record, New: Record>(
        migrate: impl Fn(&ViewOf<'_, Old>) -> Result<New, Why> + Send + Sync + 'static,
    ) -> Self {
        Self {
            collection: New::SCHEMA.collection,
            from: Old::FINGERPRINT,
            to: New::FINGERPRINT,
            to_schema: New::SCHEMA,
            run: Arc::new(move |txn, inner, old, new| {
                all::<Old, New>(txn, inner, (old, new), &migrate)
            }),
        }
    }

    /// Replaces all records of a table. The other one is empty before and after.
    pub(crate) fn run(
        &self,
        txn: &mut RwTxn<'_>,
        inner: &Inner,
        records: &Table,
        spare: &Table,
    ) -> Result<u64, Error> {
        let count = (self.run)(txn, inner, records, spare)?;
        records.clear(txn).told(&inner.env)?;
        let mut last = Vec::new();
        while let Some((key, bytes)) = next_behind(inner, txn, spare, &last)? {
            let put = records.put(txn, &key, &bytes);
            put.map_err(|e| inner.told(e))?;
            last = key;
        }
        spare.clear(txn).told(&inner.env)?;
        Ok(count)
    }
}

/// A key and a record.
type Copied = (Vec<u8>, Vec<u8>);

/// The first record behind a key, copied, because what is borrowed ends with the next change.
fn next_behind(
    inner: &Inner,
    txn: &RwTxn<'_>,
    table: &Table,
    key: &[u8],
) -> Result<Option<Copied>, Error> {
    let next = match key {
        [] => table.first(txn).told(&inner.env)?,
        key => table.get_greater_than(txn, key).told(&inner.env)?,
    };
    Ok(next.map(|(key, bytes)| (key.to_vec(), bytes.to_vec())))
}

fn all<Old: Record, New: Record>(
    txn: &mut RwTxn<'_>,
    inner: &Inner,
    (old, new): (&Table, &Table),
    migrate: &impl Fn(&ViewOf<'_, Old>) -> Result<New, Why>,
) -> Result<u64, Error> {
    let (mut last, mut bytes, mut count) = (Vec::new(), Vec::new(), 0);
    while let Some((key, before)) = next_behind(inner, txn, old, &last)? {
        let refused = |why: Why| Error::Migration {
            collection: New::SCHEMA.collection,
            key: describe_key::<Old::Key>(&key),
            why,
        };
        // The copy is not aligned, and need not be.
        let view = stored_record::view_of_copy::<Old>(&key, &before);
        let view = view.ok_or_else(|| damaged::<Old>(&key))?;
        let record = migrate(&view).map_err(refused)?;
        stored_record::encode(&record, &mut bytes)?;
        let new_key = stored_record::unchecked::<New>(&bytes);
        let new_key = new_key.map(|after| stored_record::key_of::<New>(&after));
        let new_key = new_key.ok_or_else(|| damaged::<New>(&key))?;
        check_key_len::<New>("a key", new_key.len())?;
        stored_record::seal::<New>(&mut bytes, &new_key);
        let put = new.put_with_flags(txn, heed::PutFlags::NO_OVERWRITE, &new_key, &bytes);
        put.map_err(|e| match e {
            heed::Error::Mdb(heed::MdbError::KeyExist) => Error::Exists {
                collection: New::SCHEMA.collection,
                key: describe_key::<New::Key>(&new_key),
            },
            e => inner.told(e),
        })?;
        count += 1;
        last = key;
    }
    Ok(count)
}

impl fmt::Debug for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migration")
            .field("collection", &self.collection)
            .finish_non_exhaustive()
    }
}

/// What a migration has done, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// The collection.
    pub collection: &'static str,
    /// The layout of its records before.
    pub from: String,
    /// The layout after it.
    pub to: String,
    /// How many records there are.
    pub records: u64,
}
