//! brisk-objects.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use brisk_bench::objects::{Object, ObjectStore, Safety, Sums};
use brisk_objects::{Database, Durability, Options, Record};

#[derive(Record, Debug)]
pub struct Entry {
    #[key]
    pub id: u64,
    #[index]
    pub account: u32,
    #[index]
    pub at: i64,
    pub cents: i64,
    pub text: String,
}

impl Entry {
    pub fn of(object: &Object) -> Self {
        Self {
            id: object.id,
            account: object.account,
            at: object.at,
            cents: object.cents,
            text: object.text.clone(),
        }
    }
}

struct Brisk(Database);

pub fn open(directory: &Path, safety: Safety) -> Result<Box<dyn ObjectStore>> {
    Ok(Box::new(Brisk(database(directory, safety)?)))
}

pub fn database(directory: &Path, safety: Safety) -> Result<Database> {
    let options = Options::new()
        .collection::<Entry>()
        .durability(match safety {
            Safety::Full => Durability::Full,
            Safety::Normal => Durability::Last,
        });
    // SAFETY: nothing else writes to the file.
    #[allow(unsafe_code)] // The promise of a mapped database.
    let database = unsafe { options.open(&directory.join("objects.db")) }?;
    Ok(database)
}

impl ObjectStore for Brisk {
    fn insert(&mut self, objects: &[Object]) -> Result<()> {
        self.0.write(|tx| {
            for object in objects {
                tx.insert(&Entry::of(object))?;
            }
            Ok(())
        })
    }

    fn get(&self, ids: &[u64]) -> Result<Option<Sums>> {
        let snapshot = self.0.snapshot()?;
        let mut sums = Sums::default();
        for &id in ids {
            let entry = snapshot.get::<Entry>(id)?.context("a record is missing")?;
            sums.add(entry.id(), entry.cents(), entry.text());
        }
        Ok(Some(sums))
    }

    fn get_one_by_one(&self, ids: &[u64]) -> Result<Option<Sums>> {
        let mut sums = Sums::default();
        for &id in ids {
            let snapshot = self.0.snapshot()?;
            let entry = snapshot.get::<Entry>(id)?.context("a record is missing")?;
            sums.add(entry.id(), entry.cents(), entry.text());
        }
        Ok(Some(sums))
    }

    fn get_many(&self, ids: &[u64]) -> Result<Option<Sums>> {
        let snapshot = self.0.snapshot()?;
        let mut sums = Sums::default();
        for entry in snapshot.get_many::<Entry, _>(ids)? {
            let entry = entry.context("a record is missing")?;
            sums.add(entry.id(), entry.cents(), entry.text());
        }
        Ok(Some(sums))
    }

    fn scan_keys(&self, accounts: Range<u32>) -> Result<Option<Sums>> {
        let query = self.0.query::<Entry>()?.by(Entry::ACCOUNT).range(accounts);
        let mut sums = Sums::default();
        for key in query.keys()? {
            sums.add_key(key?.1);
        }
        Ok(Some(sums))
    }

    fn scan_records(&self, accounts: Range<u32>) -> Result<Option<Sums>> {
        let query = self.0.query::<Entry>()?.by(Entry::ACCOUNT).range(accounts);
        let mut sums = Sums::default();
        for entry in query.iter()? {
            let entry = entry?;
            sums.add(entry.id(), entry.cents(), entry.text());
        }
        Ok(Some(sums))
    }
}
