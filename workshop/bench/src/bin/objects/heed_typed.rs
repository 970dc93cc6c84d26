//! heed's own types: records by serde and bincode.

use std::path::Path;

use anyhow::{Context, Result};
use brisk_bench::objects::{Object, ObjectStore, Safety, Sums};
use heed::byteorder::BigEndian;
use heed::types::{SerdeBincode, U64};
use heed::{RoTxn, RwTxn};

use crate::entry::Entry;
use crate::lmdb::{Form, Table, open_with};

struct Typed;

type Records = heed::Database<U64<BigEndian>, SerdeBincode<Entry>>;

fn typed(records: &Table) -> Records {
    records.remap_types()
}

impl Form for Typed {
    fn put(records: &Table, txn: &mut RwTxn<'_>, object: &Object) -> Result<()> {
        Ok(typed(records).put(txn, &object.id, &Entry::of(object))?)
    }

    fn read(records: &Table, txn: &RoTxn<'_>, id: u64, sums: &mut Sums) -> Result<()> {
        let entry = typed(records).get(txn, &id)?;
        entry.context("a record is missing")?.add_to(sums);
        Ok(())
    }
}

pub fn open(directory: &Path, safety: Safety) -> Result<Box<dyn ObjectStore>> {
    open_with::<Typed>(directory, safety)
}
