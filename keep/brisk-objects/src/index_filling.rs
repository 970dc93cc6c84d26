//! Fills an index that is new.

use std::ops::Bound;

use heed::RwTxn;

use crate::error::Error;
use crate::inner::{Collection, Inner};
use crate::key_bytes::KeyBytes;
use crate::record::{Record, ViewOf};
use crate::store_error::Told;
use crate::stored_record;
use crate::table::{check_key_len, damaged, not_unique};

/// Bytes of entries that are sorted in memory at a time while an index is filled.
const RUN: usize = 64 << 20;

/// Writes the entries of an index of all records.
pub(crate) fn fill_index<R: Record>(
    txn: &mut RwTxn<'_>,
    inner: &Inner,
    collection: &Collection,
    number: usize,
) -> Result<(), Error> {
    fill_in_runs::<R>(txn, inner, collection, (number, RUN))
}

/// An entry of an index that is being filled.
struct NewEntry {
    bytes: KeyBytes,
    /// How many of them are the value, if it must be unique.
    unique: Option<usize>,
}

impl NewEntry {
    fn value(&self) -> Option<&[u8]> {
        self.bytes.get(..self.unique?)
    }
}

/// The same, in runs of so many bytes. Each is sorted: so neighbours are written together.
pub(crate) fn fill_in_runs<R: Record>(
    txn: &mut RwTxn<'_>,
    inner: &Inner,
    collection: &Collection,
    (number, run_bytes): (usize, usize),
) -> Result<(), Error> {
    let Some(table) = collection.indexes.get(number) else {
        return Ok(());
    };
    let mut run: Vec<NewEntry> = Vec::new();
    let mut last: Option<KeyBytes> = None;
    loop {
        let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let is_first = last.is_none();
        let end = next_run::<R>(inner, txn, collection, number, (from, run_bytes), &mut run)?;
        run.sort_unstable_by(|one, two| one.bytes.cmp(&two.bytes));
        for pair in run.windows(2) {
            if let [one, two] = pair
                && one.value().is_some()
                && one.value() == two.value()
            {
                return Err(not_unique::<R>(number, &one.bytes));
            }
        }
        for entry in &run {
            // A first run is written without a search, and its pages are full.
            let flags = match is_first {
                true => heed::PutFlags::APPEND,
                false => heed::PutFlags::empty(),
            };
            if let Some(value) = entry.value().filter(|_| !is_first) {
                let found = table.get_greater_than_or_equal_to(txn, value);
                let found = found.map_err(|e| inner.told(e))?;
                if found.is_some_and(|(found, _)| found.starts_with(value)) {
                    return Err(not_unique::<R>(number, &entry.bytes));
                }
            }
            let put = table.put_with_flags(txn, flags, &entry.bytes, &[]);
            put.map_err(|e| inner.told(e))?;
        }
        match end {
            Some(end) => last = Some(end),
            None => return Ok(()),
        }
    }
}

/// Makes the entries of the records from a key on, until they have so many bytes. Returns the last key, if there may be more.
fn next_run<R: Record>(
    inner: &Inner,
    txn: &RwTxn<'_>,
    collection: &Collection,
    number: usize,
    (from, run_bytes): (Bound<&[u8]>, usize),
    run: &mut Vec<NewEntry>,
) -> Result<Option<KeyBytes>, Error> {
    let index = collection.schema.indexes.get(number);
    let is_unique = index.is_some_and(|index| index.is_unique);
    run.clear();
    let mut bytes = 0_usize;
    let range = (from, Bound::Unbounded);
    for record in collection.records.range(txn, &range).told(&inner.env)? {
        let (key, value) = record.told(&inner.env)?;
        let view = stored_record::view::<R>(key, value);
        let view: ViewOf<'_, R> = view.ok_or_else(|| damaged::<R>(key))?;
        let mut entry = KeyBytes::new();
        let is_whole = R::encode_index_key(&view, number, &mut entry);
        let unique = Some(entry.len()).filter(|_| is_unique && is_whole);
        R::encode_key_of(&view, &mut entry);
        check_key_len::<R>("an entry of an index", entry.len())?;
        // Long ones are behind a pointer.
        bytes = bytes.saturating_add(size_of::<NewEntry>() + entry.len());
        run.push(NewEntry {
            bytes: entry,
            unique,
        });
        if bytes >= run_bytes {
            let mut last = KeyBytes::new();
            last.extend_from_slice(key);
            return Ok(Some(last));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[derive(crate::Record, Debug)]
    #[record(name = "line")]
    struct Line {
        #[key]
        id: u32,
        #[index]
        number: Option<String>,
    }

    /// The same, but no number may be there twice.
    #[derive(crate::Record, Debug)]
    #[record(name = "line")]
    struct Unique {
        #[key]
        id: u32,
        #[unique]
        number: Option<String>,
    }

    const LINES: u32 = 2_000;

    type Entries = Vec<Vec<u8>>;

    /// Fills the index of lines anew, in runs of so many bytes. Returns its entries before and after.
    fn filled<R: Record>(
        number: impl Fn(u32) -> Option<String>,
        run_bytes: usize,
    ) -> Result<(Entries, Entries), Error> {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = Options::new().collection::<Line>().limit(64 << 20);
        let path = home.path().join("lines.db");
        #[expect(unsafe_code, reason = "nothing but LMDB writes to the file")]
        // SAFETY: nothing but LMDB writes to the file.
        let db = unsafe { options.open(&path) }.unwrap();
        db.write(|tx| {
            (0..LINES).try_for_each(|id| {
                let number = number(id);
                tx.insert(&Line { id, number }).map(|_key| ())
            })
        })?;
        let inner = &*db.inner;
        let known = &inner.collections[0];
        let collection = Collection {
            schema: R::SCHEMA,
            fingerprint: known.fingerprint,
            whole_fingerprint: R::SCHEMA.whole_fingerprint(),
            records: known.records,
            indexes: known.indexes.clone(),
        };
        let table = collection.indexes[0];
        let mut txn = inner.env.write_txn().unwrap();
        let entries = |txn: &RwTxn<'_>| {
            let all = table.iter(txn).unwrap();
            all.map(|entry| entry.unwrap().0.to_vec()).collect()
        };
        let before = entries(&txn);
        table.clear(&mut txn).unwrap();
        fill_in_runs::<R>(&mut txn, inner, &collection, (0, run_bytes))?;
        Ok((before, entries(&txn)))
    }

    #[test]
    fn runs_of_any_length_make_the_same_index() {
        let mixed = |id: u32| {
            let number = id.wrapping_mul(0x9e37_79b9);
            (!id.is_multiple_of(5)).then(|| format!("{number:08x}"))
        };
        for run_bytes in [1, 1_000, 30_000, RUN] {
            let (before, after) = filled::<Line>(mixed, run_bytes).unwrap();
            assert_eq!((before.len(), &before), (LINES as usize, &after));
            let (before, after) = filled::<Unique>(mixed, run_bytes).unwrap();
            assert!(before == after, "{run_bytes}");
        }
    }

    #[test]
    fn equal_values_in_any_runs_are_refused() {
        // The first and the last record are equal, or two neighbours, wherever runs end.
        for (one, two) in [(0, LINES - 1), (999, 1_000)] {
            let number = |id: u32| Some(if id == two { one } else { id }.to_string());
            for run_bytes in [1, 1_000, 30_000, RUN] {
                let e = filled::<Unique>(number, run_bytes).unwrap_err();
                assert_eq!(
                    e.to_string(),
                    format!(
                        "another record of line has Some(\"{one}\") in the unique index number"
                    )
                );
                assert!(filled::<Line>(number, run_bytes).is_ok());
            }
        }
    }
}
