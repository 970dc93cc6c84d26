//! What is measured: stores of values under keys, behind one face.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use brisk_cache::{About, Cache, CacheOptions, Durability, FlatTable, ValueParts};

use super::data::{Hex, Key, Row, flat_table};

/// What a process wants of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To make it. Only then may opening make directories: what is timed makes none.
    Fill,
    /// To read it.
    Read,
    /// To read and to replace values.
    Update,
}

/// How to open a store.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    /// What the process is going to do.
    pub purpose: Purpose,
    /// Whether an update is on the disk when it returns.
    pub durable: bool,
    /// At least as many bytes as all values have.
    pub bytes: u64,
}

/// A store of values under keys.
pub trait Store {
    /// Lends the value of a key to `read`, as checked as it ever is. False if there is none.
    fn get(&self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Stores a value, which replaces the one before.
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()>;

    /// Stores many values, at once if the store can do that.
    fn fill(&mut self, entries: &mut dyn Iterator<Item = (Key, Vec<u8>)>) -> Result<()> {
        for (key, value) in entries {
            self.put(&key, &value)?;
        }
        Ok(())
    }

    /// The bytes of a table with these rows, sorted by name, in the form that [`Store::look_up`] reads.
    fn table(&self, rows: &mut dyn Iterator<Item = (String, u64)>) -> Result<Vec<u8>> {
        flat_table(rows)
    }

    /// The number beside a name, in the table under a key.
    fn look_up(&self, key: &Key, name: &str) -> Result<Option<u64>> {
        let mut found = Ok(None);
        self.get(key, &mut |value| found = number_beside(value.into(), name))?;
        found
    }
}

/// Opens the store in a directory, or makes one there ([`Purpose::Fill`]).
pub type Open = fn(&Path, Opening) -> Result<Box<dyn Store>>;

/// A kind of store.
#[derive(Clone, Copy)]
pub struct StoreKind {
    /// Its name in results.
    pub name: &'static str,
    /// How to open it.
    pub open: Open,
}

/// The stores that need no other library.
pub const OWN: [StoreKind; 4] = [
    StoreKind {
        name: "brisk",
        open: |directory, opening| Ok(Box::new(Brisk::open(directory, opening, true)?)),
    },
    StoreKind {
        name: "brisk-copied",
        open: |directory, opening| Ok(Box::new(Brisk::open(directory, opening, false)?)),
    },
    StoreKind {
        name: "files",
        open: |directory, opening| Ok(Box::new(Files::open(directory, opening)?)),
    },
    StoreKind {
        name: "memory",
        open: |_, _| Ok(Box::new(Memory::default())),
    },
];

/// The number beside a name in a flat table, of which only what is touched is checked.
fn number_beside(value: ValueParts<'_>, name: &str) -> Result<Option<u64>> {
    let table = FlatTable::<Row>::view(value)?.context("the value is no table")?;
    let row = table.find(name, |row| row.name)?;
    Ok(row.map(|row| row.number.get()))
}

struct Brisk {
    cache: Cache,
    mapped: bool,
}

impl Brisk {
    fn open(directory: &Path, opening: Opening, mapped: bool) -> Result<Self> {
        let options = CacheOptions::new()
            .limit((1u64 << 30).max(opening.bytes.saturating_mul(4)))
            .durability(match opening.durable {
                true => Durability::Durable,
                false => Durability::Relaxed,
            });
        let cache = match mapped {
            #[allow(unsafe_code)] // The promise of a mapped cache.
            // SAFETY: only this experiment writes to the directory, by this same crate.
            true => unsafe { Cache::open_mapped(directory, options) }?,
            false => Cache::open(directory, options)?,
        };
        Ok(Self { cache, mapped })
    }
}

impl Store for Brisk {
    #[inline]
    fn get(&self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self.cache.get(key)? {
            Some(hit) => read(hit.bytes()?),
            None => return Ok(false),
        }
        Ok(true)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        Ok(self.cache.insert(key, value, About::default())?)
    }

    fn look_up(&self, key: &Key, name: &str) -> Result<Option<u64>> {
        let Some(hit) = self.cache.get(key)? else {
            return Ok(None);
        };
        if self.mapped {
            return number_beside(hit.parts(), name);
        }
        number_beside(hit.bytes()?.into(), name)
    }
}

/// One file for each entry, whose name is the key in hexadecimal. It is read whole.
struct Files {
    directory: PathBuf,
    durable: bool,
}

impl Files {
    fn open(directory: &Path, opening: Opening) -> Result<Self> {
        if opening.purpose == Purpose::Fill {
            fs::create_dir_all(directory)?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            durable: opening.durable,
        })
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.directory.join(&*Hex::of(key))
    }
}

impl Store for Files {
    fn get(&self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match fs::read(self.path(key)) {
            Ok(value) => read(&value),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        Ok(true)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(value)?;
        if self.durable {
            file.as_file().sync_data()?;
        }
        file.persist(self.path(key))?;
        if self.durable {
            fs::File::open(&self.directory)?.sync_all()?;
        }
        Ok(())
    }

    fn fill(&mut self, entries: &mut dyn Iterator<Item = (Key, Vec<u8>)>) -> Result<()> {
        // Nobody reads before all are there, so none needs a second name first.
        for (key, value) in entries {
            fs::write(self.path(&key), value)?;
        }
        Ok(())
    }
}

/// A table in memory of this process alone, for the scaling of the machine itself.
#[derive(Default)]
struct Memory(HashMap<Key, Vec<u8>>);

impl Store for Memory {
    fn get(&self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self.0.get(key) {
            Some(value) => read(value),
            None => return Ok(false),
        }
        Ok(true)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.0.insert(*key, value.to_vec());
        Ok(())
    }
}
