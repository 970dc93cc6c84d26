//! brisk-objects by its asynchronous calls, on a runtime of one thread.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use brisk_bench::objects::{Object, ObjectStore, Safety, Sums};
use brisk_objects::AsyncDatabase;
use tokio::runtime::{Builder, Runtime};

use crate::brisk::{self, Entry};

struct Async {
    database: AsyncDatabase,
    runtime: Runtime,
}

pub fn open(directory: &Path, safety: Safety) -> Result<Box<dyn ObjectStore>> {
    Ok(Box::new(Async {
        database: AsyncDatabase::new(brisk::database(directory, safety)?)?,
        runtime: Builder::new_current_thread().build()?,
    }))
}

impl ObjectStore for Async {
    fn insert(&mut self, objects: &[Object]) -> Result<()> {
        let entries: Vec<Entry> = objects.iter().map(Entry::of).collect();
        self.runtime.block_on(self.database.write(move |tx| {
            for entry in &entries {
                tx.insert(entry)?;
            }
            Ok(())
        }))
    }

    fn get(&self, _: &[u64]) -> Result<Option<Sums>> {
        Ok(None)
    }

    fn get_one_by_one(&self, ids: &[u64]) -> Result<Option<Sums>> {
        self.runtime.block_on(async {
            let mut sums = Sums::default();
            for &id in ids {
                let entry = self.database.get::<Entry>(id).await?;
                add(&mut sums, &entry.context("a record is missing")?);
            }
            Ok(Some(sums))
        })
    }

    fn get_many(&self, ids: &[u64]) -> Result<Option<Sums>> {
        let read = self.database.get_many::<Entry, _>(ids.to_vec());
        let mut sums = Sums::default();
        for entry in self.runtime.block_on(read)? {
            add(&mut sums, &entry.context("a record is missing")?);
        }
        Ok(Some(sums))
    }

    fn scan_keys(&self, _: Range<u32>) -> Result<Option<Sums>> {
        Ok(None)
    }

    fn scan_records(&self, accounts: Range<u32>) -> Result<Option<Sums>> {
        let read = self.database.read(move |snapshot| {
            let mut sums = Sums::default();
            let query = snapshot.query::<Entry>().by(Entry::ACCOUNT).range(accounts);
            for entry in query.iter()? {
                let entry = entry?;
                sums.add(entry.id(), entry.cents(), entry.text());
            }
            anyhow::Ok(sums)
        });
        self.runtime.block_on(read).map(Some)
    }
}

fn add(sums: &mut Sums, entry: &Entry) {
    sums.add(entry.id, entry.cents, &entry.text);
}
