//! A file of records of equal length, whose keys are their places: each is one `pread`.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use brisk_bench::objects::{Object, ObjectStore, Safety, Sums};

use crate::sorted;

struct Flat(File);

/// Bytes of a record: its key, its amount, the length of its text, and the text.
const LEN: usize = 128;

pub fn open(directory: &Path, _: Safety) -> Result<Box<dyn ObjectStore>> {
    let path = directory.join("objects.flat");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    Ok(Box::new(Flat(file)))
}

impl ObjectStore for Flat {
    fn insert(&mut self, objects: &[Object]) -> Result<()> {
        for object in objects {
            let mut record = [0; LEN];
            record[..8].copy_from_slice(&object.id.to_le_bytes());
            record[8..16].copy_from_slice(&object.cents.to_le_bytes());
            let text = object.text.as_bytes();
            record[16] = u8::try_from(text.len())?;
            record
                .get_mut(17..17 + text.len())
                .context("a text is too long")?
                .copy_from_slice(text);
            self.0.write_all_at(&record, object.id * LEN as u64)?;
        }
        Ok(())
    }

    fn get(&self, _: &[u64]) -> Result<Option<Sums>> {
        Ok(None)
    }

    fn get_one_by_one(&self, ids: &[u64]) -> Result<Option<Sums>> {
        let mut sums = Sums::default();
        for &id in ids {
            let mut record = [0; LEN];
            self.0.read_exact_at(&mut record, id * LEN as u64)?;
            let number = |at: usize| {
                let bytes = record.get(at..).and_then(|bytes| bytes.first_chunk());
                u64::from_le_bytes(bytes.copied().unwrap_or_default())
            };
            let text = record.get(17..17 + usize::from(record[16]));
            let text = std::str::from_utf8(text.context("a record is short")?)?;
            sums.add(number(0), number(8).cast_signed(), text);
        }
        Ok(Some(sums))
    }

    fn get_many(&self, ids: &[u64]) -> Result<Option<Sums>> {
        self.get_one_by_one(&sorted(ids))
    }

    fn scan_keys(&self, _: Range<u32>) -> Result<Option<Sums>> {
        Ok(None)
    }

    fn scan_records(&self, _: Range<u32>) -> Result<Option<Sums>> {
        Ok(None)
    }
}
