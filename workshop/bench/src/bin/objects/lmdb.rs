//! LMDB by heed, as one would use it by hand: records are bytes of fixed form, and each index is a table.

use std::marker::PhantomData;
use std::ops::{Bound, Range};
use std::path::Path;

use anyhow::{Context, Result};
use brisk_bench::objects::{Object, ObjectStore, Safety, Sums};
use heed::types::Bytes;
use heed::{Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn, WithoutTls};

use crate::sorted;

pub type Table = heed::Database<Bytes, Bytes>;

/// The form of a record.
pub trait Form {
    fn put(records: &Table, txn: &mut RwTxn<'_>, object: &Object) -> Result<()>;

    fn read(records: &Table, txn: &RoTxn<'_>, id: u64, sums: &mut Sums) -> Result<()>;
}

struct Lmdb<F> {
    env: Env<WithoutTls>,
    records: Table,
    by_account: Table,
    by_time: Table,
    form: PhantomData<F>,
}

/// Bytes of fixed places.
struct ByHand;

/// An environment as brisk-objects opens it.
fn environment(directory: &Path, safety: Safety) -> Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(1 << 40).max_readers(1024).max_dbs(4);
    let mut flags = EnvFlags::NO_SUB_DIR;
    if safety == Safety::Normal {
        flags |= EnvFlags::NO_META_SYNC;
    }
    // SAFETY: the flags are about names, and about what a loss of power leaves.
    #[allow(unsafe_code)] // The promise of LMDB's flags.
    unsafe {
        options.flags(flags);
    }
    // SAFETY: nothing else writes to the file.
    #[allow(unsafe_code)] // The promise of a mapped database.
    let env = unsafe { options.open(directory.join("objects.db")) }?;
    Ok(env)
}

pub fn open(directory: &Path, safety: Safety) -> Result<Box<dyn ObjectStore>> {
    open_with::<ByHand>(directory, safety)
}

/// The same store, with records of another form.
pub fn open_with<F: Form + 'static>(
    directory: &Path,
    safety: Safety,
) -> Result<Box<dyn ObjectStore>> {
    let env = environment(directory, safety)?;
    let mut txn = env.write_txn()?;
    let records = env.create_database(&mut txn, Some("records"))?;
    let by_account = env.create_database(&mut txn, Some("by_account"))?;
    let by_time = env.create_database(&mut txn, Some("by_time"))?;
    txn.commit()?;
    Ok(Box::new(Lmdb {
        env,
        records,
        by_account,
        by_time,
        form: PhantomData::<F>,
    }))
}

/// An entry of an index of accounts: the account, and the key.
fn account_entry(account: u32, id: u64) -> [u8; 12] {
    let mut entry = [0; 12];
    entry[..4].copy_from_slice(&account.to_be_bytes());
    entry[4..].copy_from_slice(&id.to_be_bytes());
    entry
}

fn time_entry(at: i64, id: u64) -> [u8; 16] {
    let mut entry = [0; 16];
    entry[..8].copy_from_slice(&at.to_be_bytes());
    entry[8..].copy_from_slice(&id.to_be_bytes());
    entry
}

/// The entries of a range of accounts, and the keys that they have.
fn ids<'t>(
    table: &Table,
    txn: &'t RoTxn<'t>,
    accounts: Range<u32>,
) -> Result<impl Iterator<Item = Result<u64>> + use<'t>> {
    let (start, end) = (accounts.start.to_be_bytes(), accounts.end.to_be_bytes());
    let range = (Bound::Included(&start[..]), Bound::Excluded(&end[..]));
    let entries = table.range(txn, &range)?;
    Ok(entries.map(|entry| {
        let id = entry?.0.last_chunk().context("an entry is short")?;
        Ok(u64::from_be_bytes(*id))
    }))
}

/// The key, the account, the time, the amount and the text.
fn add(sums: &mut Sums, record: &[u8]) -> Result<()> {
    let number = |at: usize| -> Result<u64> {
        let bytes = record.get(at..).and_then(|bytes| bytes.first_chunk());
        Ok(u64::from_le_bytes(*bytes.context("a record is short")?))
    };
    let text = std::str::from_utf8(record.get(28..).context("a record is short")?)?;
    sums.add(number(0)?, number(20)?.cast_signed(), text);
    Ok(())
}

impl Form for ByHand {
    fn put(records: &Table, txn: &mut RwTxn<'_>, object: &Object) -> Result<()> {
        let mut record = Vec::with_capacity(28 + object.text.len());
        record.extend_from_slice(&object.id.to_le_bytes());
        record.extend_from_slice(&object.account.to_le_bytes());
        record.extend_from_slice(&object.at.to_le_bytes());
        record.extend_from_slice(&object.cents.to_le_bytes());
        record.extend_from_slice(object.text.as_bytes());
        Ok(records.put(txn, &object.id.to_be_bytes(), &record)?)
    }

    fn read(records: &Table, txn: &RoTxn<'_>, id: u64, sums: &mut Sums) -> Result<()> {
        let record = records.get(txn, &id.to_be_bytes())?;
        add(sums, record.context("a record is missing")?)
    }
}

impl<F: Form> ObjectStore for Lmdb<F> {
    fn insert(&mut self, objects: &[Object]) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for object in objects {
            let id = object.id;
            F::put(&self.records, &mut txn, object)?;
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
            .try_for_each(|&id| F::read(&self.records, &txn, id, &mut sums))?;
        Ok(Some(sums))
    }

    fn get_one_by_one(&self, ids: &[u64]) -> Result<Option<Sums>> {
        let mut sums = Sums::default();
        for &id in ids {
            let txn = self.env.read_txn()?;
            F::read(&self.records, &txn, id, &mut sums)?;
        }
        Ok(Some(sums))
    }

    fn get_many(&self, ids: &[u64]) -> Result<Option<Sums>> {
        self.get(&sorted(ids))
    }

    fn scan_keys(&self, accounts: Range<u32>) -> Result<Option<Sums>> {
        let txn = self.env.read_txn()?;
        let mut sums = Sums::default();
        for id in ids(&self.by_account, &txn, accounts)? {
            sums.add_key(id?);
        }
        Ok(Some(sums))
    }

    fn scan_records(&self, accounts: Range<u32>) -> Result<Option<Sums>> {
        let txn = self.env.read_txn()?;
        let mut sums = Sums::default();
        for id in ids(&self.by_account, &txn, accounts)? {
            F::read(&self.records, &txn, id?, &mut sums)?;
        }
        Ok(Some(sums))
    }
}
