//! Databases and caches of others, as their own documents say how to use them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use brisk_lab::{CacheKey, CacheKind, CacheOpening, CacheStore};
use heed::types::Bytes;
use heed::{EnvFlags, EnvOpenOptions};
use redb::{Durability, ReadableDatabase, TableDefinition};
use rkyv::rancor;
use rkyv::util::AlignedVec;
use rusqlite::{Connection, OptionalExtension};

/// All of them.
pub(crate) const RIVALS: [CacheKind; 5] = [
    CacheKind {
        name: "lmdb",
        open: |directory, opening| Ok(Box::new(Lmdb::open(directory, opening)?)),
    },
    CacheKind {
        name: "redb",
        open: |directory, opening| Ok(Box::new(Redb::open(directory, opening)?)),
    },
    CacheKind {
        name: "sqlite",
        open: |directory, opening| Ok(Box::new(Sqlite::open(directory, opening)?)),
    },
    CacheKind {
        name: "cacache",
        open: |directory, _| Ok(Box::new(Cacache(directory.to_owned()))),
    },
    CacheKind {
        name: "files-rkyv",
        open: |directory, _| Ok(Box::new(FilesRkyv::open(directory)?)),
    },
];

type Entries<'a> = dyn Iterator<Item = (CacheKey, Vec<u8>)> + 'a;

struct Lmdb {
    env: heed::Env,
    database: heed::Database<Bytes, Bytes>,
}

impl Lmdb {
    fn open(directory: &Path, opening: CacheOpening) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let mut options = EnvOpenOptions::new();
        let size = (1 << 30)
            .max(opening.bytes.saturating_mul(4))
            .next_multiple_of(1 << 20);
        options.map_size(usize::try_from(size)?);
        if !opening.durable {
            #[allow(unsafe_code)] // The promise of LMDB's flags.
            // SAFETY: without a sync, only a loss of power can damage the database, and nobody reads this one then.
            unsafe {
                options.flags(EnvFlags::NO_SYNC);
            }
        }
        #[allow(unsafe_code)] // The promise of a mapped database.
        // SAFETY: only this experiment writes to the directory, by this same library.
        let env = unsafe { options.open(directory) }?;
        let found = {
            let txn = env.read_txn()?;
            let found = env.open_database(&txn, None)?;
            // Otherwise the handle of the database ends with the transaction.
            txn.commit()?;
            found
        };
        let database = match found {
            Some(database) => database,
            None => {
                let mut txn = env.write_txn()?;
                let database = env.create_database(&mut txn, None)?;
                txn.commit()?;
                database
            }
        };
        Ok(Self { env, database })
    }
}

impl CacheStore for Lmdb {
    fn get(&self, key: &CacheKey, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let txn = self.env.read_txn()?;
        match self.database.get(&txn, key)? {
            Some(value) => read(value),
            None => return Ok(false),
        }
        Ok(true)
    }

    fn put(&mut self, key: &CacheKey, value: &[u8]) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        self.database.put(&mut txn, key, value)?;
        Ok(txn.commit()?)
    }

    fn fill(&mut self, entries: &mut Entries<'_>) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for (key, value) in entries {
            self.database.put(&mut txn, &key, &value)?;
        }
        Ok(txn.commit()?)
    }
}

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("values");

struct Redb {
    database: redb::Database,
    durable: bool,
}

impl Redb {
    fn open(directory: &Path, opening: CacheOpening) -> Result<Self> {
        fs::create_dir_all(directory)?;
        Ok(Self {
            database: redb::Database::create(directory.join("values.redb"))?,
            durable: opening.durable,
        })
    }

    fn write(&self, durable: bool, entries: &mut Entries<'_>) -> Result<()> {
        let mut txn = self.database.begin_write()?;
        txn.set_durability(match durable {
            true => Durability::Immediate,
            false => Durability::None,
        })?;
        {
            let mut table = txn.open_table(TABLE)?;
            for (key, value) in entries {
                table.insert(&key[..], &value[..])?;
            }
        }
        Ok(txn.commit()?)
    }
}

impl CacheStore for Redb {
    fn get(&self, key: &CacheKey, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let txn = self.database.begin_read()?;
        let table = txn.open_table(TABLE)?;
        match table.get(&key[..])? {
            Some(value) => read(value.value()),
            None => return Ok(false),
        }
        Ok(true)
    }

    fn put(&mut self, key: &CacheKey, value: &[u8]) -> Result<()> {
        let entry = (*key, value.to_vec());
        self.write(self.durable, &mut std::iter::once(entry))
    }

    fn fill(&mut self, entries: &mut Entries<'_>) -> Result<()> {
        self.write(true, entries)
    }
}

struct Sqlite {
    connection: Connection,
    durable: bool,
    /// Only a connection that writes asks for that.
    prepared: bool,
}

const PUT: &str = "INSERT OR REPLACE INTO kv (k, v) VALUES (?1, ?2)";

impl Sqlite {
    fn open(directory: &Path, opening: CacheOpening) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let path = directory.join("values.sqlite");
        let new = !path.exists();
        let connection = Connection::open(path)?;
        if new {
            // The file keeps both.
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.execute_batch(
                "CREATE TABLE kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID",
            )?;
        }
        Ok(Self {
            connection,
            durable: opening.durable,
            prepared: false,
        })
    }

    fn prepare(&mut self) -> Result<()> {
        if !self.prepared {
            let level = if self.durable { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.prepared = true;
        }
        Ok(())
    }
}

impl CacheStore for Sqlite {
    fn get(&self, key: &CacheKey, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut get = self
            .connection
            .prepare_cached("SELECT v FROM kv WHERE k = ?1")?;
        let found = get.query_row([&key[..]], |row| {
            read(row.get_ref(0)?.as_blob()?);
            Ok(())
        });
        Ok(found.optional()?.is_some())
    }

    fn put(&mut self, key: &CacheKey, value: &[u8]) -> Result<()> {
        self.prepare()?;
        self.connection
            .prepare_cached(PUT)?
            .execute((&key[..], value))?;
        Ok(())
    }

    fn fill(&mut self, entries: &mut Entries<'_>) -> Result<()> {
        self.prepare()?;
        let txn = self.connection.transaction()?;
        {
            let mut put = txn.prepare_cached(PUT)?;
            for (key, value) in entries {
                put.execute((&key[..], &value[..]))?;
            }
        }
        Ok(txn.commit()?)
    }
}

/// The cache of npm in Rust: an index of text files, and contents by their SHA-256, which it checks.
struct Cacache(PathBuf);

fn hex(key: &CacheKey) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl CacheStore for Cacache {
    fn get(&self, key: &CacheKey, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match cacache::read_sync(&self.0, hex(key)) {
            Ok(value) => read(&value),
            Err(cacache::Error::EntryNotFound(..)) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        Ok(true)
    }

    fn put(&mut self, key: &CacheKey, value: &[u8]) -> Result<()> {
        cacache::write_sync(&self.0, hex(key), value)?;
        Ok(())
    }
}

/// One file for each entry, read whole, and checked by rkyv.
struct FilesRkyv(PathBuf);

#[derive(rkyv::Archive, rkyv::Serialize)]
struct Table {
    rows: Vec<Row>,
}

#[derive(rkyv::Archive, rkyv::Serialize)]
struct Row {
    name: String,
    number: u64,
}

impl FilesRkyv {
    fn open(directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory)?;
        Ok(Self(directory.to_owned()))
    }

    fn read(&self, key: &CacheKey) -> Result<AlignedVec> {
        let mut file = File::open(self.0.join(hex(key)))?;
        let len = usize::try_from(file.metadata()?.len())?;
        let mut bytes = AlignedVec::with_capacity(len);
        bytes.extend_from_reader(&mut file)?;
        Ok(bytes)
    }
}

impl CacheStore for FilesRkyv {
    fn get(&self, key: &CacheKey, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        read(&self.read(key)?);
        Ok(true)
    }

    fn put(&mut self, key: &CacheKey, value: &[u8]) -> Result<()> {
        Ok(fs::write(self.0.join(hex(key)), value)?)
    }

    fn table(&self, rows: &mut dyn Iterator<Item = (String, u64)>) -> Result<Vec<u8>> {
        let rows = rows.map(|(name, number)| Row { name, number }).collect();
        let bytes = rkyv::to_bytes::<rancor::Error>(&Table { rows })?;
        Ok(bytes.into_vec())
    }

    fn look_up(&self, key: &CacheKey, name: &str) -> Result<Option<u64>> {
        let bytes = self.read(key)?;
        let table =
            rkyv::access::<ArchivedTable, rancor::Error>(&bytes).context("the table is damaged")?;
        let found = table
            .rows
            .binary_search_by(|row| row.name.as_str().cmp(name));
        let row = found.ok().and_then(|at| table.rows.get(at));
        Ok(row.map(|row| row.number.to_native()))
    }
}
