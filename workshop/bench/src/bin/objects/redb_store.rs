//! redb, records by postcard.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use brisk_bench::objects::{Object, ObjectStore, Safety, Sums};
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};

use crate::entry::Entry;
use crate::sorted;

const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");
const BY_ACCOUNT: TableDefinition<'_, (u32, u64), ()> = TableDefinition::new("by_account");
const BY_TIME: TableDefinition<'_, (i64, u64), ()> = TableDefinition::new("by_time");

struct Redb {
    database: Database,
    safety: Safety,
}

pub fn open(directory: &Path, safety: Safety) -> Result<Box<dyn ObjectStore>> {
    let database = Database::create(directory.join("objects.redb"))?;
    let write = database.begin_write()?;
    write.open_table(RECORDS)?;
    write.open_table(BY_ACCOUNT)?;
    write.open_table(BY_TIME)?;
    write.commit()?;
    Ok(Box::new(Redb { database, safety }))
}

fn read(records: &ReadOnlyTable<u64, &[u8]>, id: u64, sums: &mut Sums) -> Result<()> {
    let record = records.get(id)?.context("a record is missing")?;
    postcard::from_bytes::<Entry>(record.value())?.add_to(sums);
    Ok(())
}

impl ObjectStore for Redb {
    fn insert(&mut self, objects: &[Object]) -> Result<()> {
        let mut write = self.database.begin_write()?;
        if self.safety == Safety::Normal {
            write.set_durability(Durability::None)?;
        }
        {
            let mut records = write.open_table(RECORDS)?;
            let mut by_account = write.open_table(BY_ACCOUNT)?;
            let mut by_time = write.open_table(BY_TIME)?;
            for object in objects {
                let bytes = postcard::to_stdvec(&Entry::of(object))?;
                records.insert(object.id, &*bytes)?;
                by_account.insert((object.account, object.id), ())?;
                by_time.insert((object.at, object.id), ())?;
            }
        }
        Ok(write.commit()?)
    }

    fn get(&self, ids: &[u64]) -> Result<Option<Sums>> {
        let records = self.database.begin_read()?.open_table(RECORDS)?;
        let mut sums = Sums::default();
        ids.iter()
            .try_for_each(|&id| read(&records, id, &mut sums))?;
        Ok(Some(sums))
    }

    fn get_one_by_one(&self, ids: &[u64]) -> Result<Option<Sums>> {
        let mut sums = Sums::default();
        for &id in ids {
            let records = self.database.begin_read()?.open_table(RECORDS)?;
            read(&records, id, &mut sums)?;
        }
        Ok(Some(sums))
    }

    fn get_many(&self, ids: &[u64]) -> Result<Option<Sums>> {
        self.get(&sorted(ids))
    }

    fn scan_keys(&self, accounts: Range<u32>) -> Result<Option<Sums>> {
        let by_account = self.database.begin_read()?.open_table(BY_ACCOUNT)?;
        let mut sums = Sums::default();
        for entry in by_account.range((accounts.start, 0)..(accounts.end, 0))? {
            sums.add_key(entry?.0.value().1);
        }
        Ok(Some(sums))
    }

    fn scan_records(&self, accounts: Range<u32>) -> Result<Option<Sums>> {
        let transaction = self.database.begin_read()?;
        let by_account = transaction.open_table(BY_ACCOUNT)?;
        let records = transaction.open_table(RECORDS)?;
        let mut sums = Sums::default();
        for entry in by_account.range((accounts.start, 0)..(accounts.end, 0))? {
            read(&records, entry?.0.value().1, &mut sums)?;
        }
        Ok(Some(sums))
    }
}
