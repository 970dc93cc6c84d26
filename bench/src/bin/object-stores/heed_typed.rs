//! heed's own types: records by serde and bincode.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use brisk_lab::{Object, ObjectStore, Safety, Sums};
use heed::byteorder::BigEndian;
use heed::types::{SerdeBincode, U64};
use heed::{Env, RoTxn, WithoutTls};

use crate::entry::Entry;
use crate::lmdb::{self, Table, account_entry, time_entry};

struct Typed {
    env: Env<WithoutTls>,
    records: heed::Database<U64<BigEndian>, SerdeBincode<Entry>>,
    by_account: Table,
    by_time: Table,
}

pub fn open(directory: &Path, safety: Safety) -> Result<Box<dyn ObjectStore>> {
    let env = lmdb::environment(directory, safety)?;
    let mut txn = env.write_txn()?;
    let records = env.create_database(&mut txn, Some("records"))?;
    let by_account = env.create_database(&mut txn, Some("by_account"))?;
    let by_time = env.create_database(&mut txn, Some("by_time"))?;
    txn.commit()?;
    Ok(Box::new(Typed {
        env,
        records,
        by_account,
        by_time,
    }))
}

impl Typed {
    fn read(&self, txn: &RoTxn<'_>, id: u64, sums: &mut Sums) -> Result<()> {
        let entry = self.records.get(txn, &id)?;
        entry.context("a record is missing")?.add_to(sums);
        Ok(())
    }
}

impl ObjectStore for Typed {
    fn insert(&mut self, objects: &[Object]) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for object in objects {
            let id = object.id;
            self.records.put(&mut txn, &id, &Entry::of(object))?;
            let entry = account_entry(object.account, id);
            self.by_account.put(&mut txn, &entry, &[])?;
            self.by_time
                .put(&mut txn, &time_entry(object.at, id), &[])?;
        }
        Ok(txn.commit()?)
    }

    fn get(&self, ids: &[u64]) -> Result<Option<Sums>> {
        let txn = self.env.read_txn()?;
        let mut sums = Sums::default();
        ids.iter()
            .try_for_each(|&id| self.read(&txn, id, &mut sums))?;
        Ok(Some(sums))
    }

    fn get_one_by_one(&self, ids: &[u64]) -> Result<Option<Sums>> {
        let mut sums = Sums::default();
        for &id in ids {
            let txn = self.env.read_txn()?;
            self.read(&txn, id, &mut sums)?;
        }
        Ok(Some(sums))
    }

    fn scan_keys(&self, accounts: Range<u32>) -> Result<Option<Sums>> {
        let txn = self.env.read_txn()?;
        let mut sums = Sums::default();
        for id in lmdb::ids(&self.by_account, &txn, accounts)? {
            sums.add_key(id?);
        }
        Ok(Some(sums))
    }

    fn scan_records(&self, accounts: Range<u32>) -> Result<Option<Sums>> {
        let txn = self.env.read_txn()?;
        let mut sums = Sums::default();
        for id in lmdb::ids(&self.by_account, &txn, accounts)? {
            self.read(&txn, id?, &mut sums)?;
        }
        Ok(Some(sums))
    }
}
