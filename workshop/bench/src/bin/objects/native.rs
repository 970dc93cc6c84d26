//! native_db: records by bincode in redb. Each commit waits for the disk, and an index alone is not to be read.

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use brisk_bench::objects::{Object, ObjectStore, Safety, Sums};
use native_db::{Builder, Database, Models, ToKey, native_db};
use native_model::{Model, native_model};
use serde::{Deserialize, Serialize};

use crate::sorted;

#[derive(Debug, Serialize, Deserialize)]
#[native_model(id = 1, version = 1)]
#[native_db]
struct Entry {
    #[primary_key]
    id: u64,
    #[secondary_key]
    account: u32,
    #[secondary_key]
    at: i64,
    cents: i64,
    text: String,
}

impl Entry {
    fn add_to(&self, sums: &mut Sums) {
        sums.add(self.id, self.cents, &self.text);
    }
}

struct Native(Database<'static>);

pub fn open(directory: &Path, _: Safety) -> Result<Box<dyn ObjectStore>> {
    static MODELS: OnceLock<Models> = OnceLock::new();
    if MODELS.get().is_none() {
        let mut models = Models::new();
        models.define::<Entry>()?;
        // Nobody else sets it.
        MODELS.get_or_init(|| models);
    }
    let models = MODELS.get().context("there are no models")?;
    let database = Builder::new().create(models, directory.join("objects.native"))?;
    Ok(Box::new(Native(database)))
}

impl Native {
    fn read(&self, ids: &[u64]) -> Result<Sums> {
        let transaction = self.0.r_transaction()?;
        let mut sums = Sums::default();
        for &id in ids {
            let entry: Option<Entry> = transaction.get().primary(id)?;
            entry.context("a record is missing")?.add_to(&mut sums);
        }
        Ok(sums)
    }
}

impl ObjectStore for Native {
    fn insert(&mut self, objects: &[Object]) -> Result<()> {
        let transaction = self.0.rw_transaction()?;
        for object in objects {
            transaction.insert(Entry {
                id: object.id,
                account: object.account,
                at: object.at,
                cents: object.cents,
                text: object.text.clone(),
            })?;
        }
        Ok(transaction.commit()?)
    }

    fn get(&self, ids: &[u64]) -> Result<Option<Sums>> {
        self.read(ids).map(Some)
    }

    fn get_one_by_one(&self, ids: &[u64]) -> Result<Option<Sums>> {
        let mut sums = Sums::default();
        for &id in ids {
            sums.add_all(self.read(&[id])?);
        }
        Ok(Some(sums))
    }

    fn get_many(&self, ids: &[u64]) -> Result<Option<Sums>> {
        self.get(&sorted(ids))
    }

    fn scan_keys(&self, _: Range<u32>) -> Result<Option<Sums>> {
        Ok(None)
    }

    fn scan_records(&self, accounts: Range<u32>) -> Result<Option<Sums>> {
        let transaction = self.0.r_transaction()?;
        let scan = transaction.scan().secondary::<Entry>(EntryKey::account)?;
        let mut sums = Sums::default();
        for entry in scan.range(accounts)? {
            entry?.add_to(&mut sums);
        }
        Ok(Some(sums))
    }
}
