//! Databases and caches of others, as their own documents say how to use them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brisk_bench::caches::{Hex, Key, Opening, Purpose, Store, StoreKind};
use heed::types::Bytes;
use heed::{EnvFlags, EnvOpenOptions, RoTxn, WithTls};
use redb::{Durability, ReadOnlyDatabase, ReadTransaction, ReadableDatabase, TableDefinition};
use rkyv::rancor;
use rkyv::util::AlignedVec;
use rusqlite::{Connection, OptionalExtension};

/// All of them.
pub(crate) const RIVALS: [StoreKind; 6] = [
    StoreKind {
        name: "lmdb",
        open: |directory, opening| Ok(Box::new(Lmdb::open(directory, opening)?)),
    },
    StoreKind {
        name: "lmdb-one-txn",
        open: |directory, opening| match opening.purpose {
            Purpose::Fill => Ok(Box::new(Lmdb::open(directory, opening)?)),
            _ => Ok(Box::new(LmdbOneTxn::open(directory, opening)?)),
        },
    },
    StoreKind {
        name: "redb",
        open: |directory, opening| match opening.purpose {
            Purpose::Read => Ok(Box::new(RedbReader::open(directory)?)),
            _ => Ok(Box::new(Redb::open(directory, opening)?)),
        },
    },
    StoreKind {
        name: "sqlite",
        open: |directory, opening| Ok(Box::new(Sqlite::open(directory, opening)?)),
    },
    StoreKind {
        name: "cacache",
        open: |directory, _| Ok(Box::new(Cacache(directory.to_owned()))),
    },
    StoreKind {
        name: "files-rkyv",
        open: |directory, opening| Ok(Box::new(FilesRkyv::open(directory, opening)?)),
    },
];

type Entries<'a> = dyn Iterator<Item = (Key, Vec<u8>)> + 'a;

struct Lmdb {
    env: heed::Env,
    database: heed::Database<Bytes, Bytes>,
}

impl Lmdb {
    fn open(directory: &Path, opening: Opening) -> Result<Self> {
        let is_new = opening.purpose == Purpose::Fill;
        if is_new {
            fs::create_dir_all(directory)?;
        }
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
        let database = if is_new {
            let mut txn = env.write_txn()?;
            let database = env.create_database(&mut txn, None)?;
            txn.commit()?;
            database
        } else {
            let txn = env.read_txn()?;
            let found = env.open_database(&txn, None)?;
            // Otherwise the handle of the database ends with the transaction.
            txn.commit()?;
            found.context("the environment has no database")?
        };
        Ok(Self { env, database })
    }
}

impl Store for Lmdb {
    fn get(&self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let txn = self.env.read_txn()?;
        match self.database.get(&txn, key)? {
            Some(value) => read(value),
            None => return Ok(false),
        }
        Ok(true)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
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

/// The same in one read transaction, which begins when the store is opened. It sees no later update, and pages that it
/// reads are not used again while it lasts.
struct LmdbOneTxn {
    txn: RoTxn<'static, WithTls>,
    database: heed::Database<Bytes, Bytes>,
}

impl LmdbOneTxn {
    fn open(directory: &Path, opening: Opening) -> Result<Self> {
        let Lmdb { env, database } = Lmdb::open(directory, opening)?;
        Ok(Self {
            txn: env.static_read_txn()?,
            database,
        })
    }
}

impl Store for LmdbOneTxn {
    fn get(&self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self.database.get(&self.txn, key)? {
            Some(value) => read(value),
            None => return Ok(false),
        }
        Ok(true)
    }

    fn put(&mut self, _: &Key, _: &[u8]) -> Result<()> {
        bail!("one transaction only reads")
    }
}

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("values");

const REDB_FILE: &str = "values.redb";

struct Redb {
    database: redb::Database,
    durable: bool,
}

impl Redb {
    fn open(directory: &Path, opening: Opening) -> Result<Self> {
        let path = directory.join(REDB_FILE);
        let database = match opening.purpose {
            Purpose::Fill => {
                fs::create_dir_all(directory)?;
                redb::Database::create(path)?
            }
            _ => redb::Database::open(path)?,
        };
        Ok(Self {
            database,
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

impl Store for Redb {
    fn get(&self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        redb_get(&self.database.begin_read()?, key, read)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let entry = (*key, value.to_vec());
        self.write(self.durable, &mut std::iter::once(entry))
    }

    fn fill(&mut self, entries: &mut Entries<'_>) -> Result<()> {
        self.write(true, entries)
    }
}

fn redb_get(txn: &ReadTransaction, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
    let table = txn.open_table(TABLE)?;
    match table.get(&key[..])? {
        Some(value) => read(value.value()),
        None => return Ok(false),
    }
    Ok(true)
}

/// The same, only to be read. So several processes can open it at once.
struct RedbReader(ReadOnlyDatabase);

impl RedbReader {
    fn open(directory: &Path) -> Result<Self> {
        Ok(Self(ReadOnlyDatabase::open(directory.join(REDB_FILE))?))
    }
}

impl Store for RedbReader {
    fn get(&self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        redb_get(&self.0.begin_read()?, key, read)
    }

    fn put(&mut self, _: &Key, _: &[u8]) -> Result<()> {
        bail!("this database is open only to be read")
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
    fn open(directory: &Path, opening: Opening) -> Result<Self> {
        let path = directory.join("values.sqlite");
        let is_new = opening.purpose == Purpose::Fill;
        if is_new {
            fs::create_dir_all(directory)?;
        }
        let connection = Connection::open(path)?;
        if is_new {
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

impl Store for Sqlite {
    fn get(&self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut get = self
            .connection
            .prepare_cached("SELECT v FROM kv WHERE k = ?1")?;
        let found = get.query_row([&key[..]], |row| {
            read(row.get_ref(0)?.as_blob()?);
            Ok(())
        });
        Ok(found.optional()?.is_some())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
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

impl Store for Cacache {
    fn get(&self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match cacache::read_sync(&self.0, &*Hex::of(key)) {
            Ok(value) => read(&value),
            Err(cacache::Error::EntryNotFound(..)) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        Ok(true)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        cacache::write_sync(&self.0, &*Hex::of(key), value)?;
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
    fn open(directory: &Path, opening: Opening) -> Result<Self> {
        if opening.purpose == Purpose::Fill {
            fs::create_dir_all(directory)?;
        }
        Ok(Self(directory.to_owned()))
    }

    fn read(&self, key: &Key) -> Result<AlignedVec> {
        let mut file = File::open(self.0.join(&*Hex::of(key)))?;
        let len = usize::try_from(file.metadata()?.len())?;
        let mut bytes = AlignedVec::with_capacity(len);
        bytes.extend_from_reader(&mut file)?;
        Ok(bytes)
    }
}

impl Store for FilesRkyv {
    fn get(&self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        read(&self.read(key)?);
        Ok(true)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        Ok(fs::write(self.0.join(&*Hex::of(key)), value)?)
    }

    fn table(&self, rows: &mut dyn Iterator<Item = (String, u64)>) -> Result<Vec<u8>> {
        let rows = rows.map(|(name, number)| Row { name, number }).collect();
        let bytes = rkyv::to_bytes::<rancor::Error>(&Table { rows })?;
        Ok(bytes.into_vec())
    }

    fn look_up(&self, key: &Key, name: &str) -> Result<Option<u64>> {
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
