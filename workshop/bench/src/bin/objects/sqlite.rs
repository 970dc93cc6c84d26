//! SQLite by rusqlite: prepared statements, a write-ahead log.

use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use brisk_bench::objects::{Object, ObjectStore, Safety, Sums};
use rusqlite::{Connection, Row, params};

use crate::sorted;

struct Sqlite(Connection);

pub fn open(directory: &Path, safety: Safety) -> Result<Box<dyn ObjectStore>> {
    let connection = Connection::open(directory.join("objects.sqlite"))?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    let synchronous = match safety {
        Safety::Full => "full",
        Safety::Normal => "normal",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // All of the file by a mapping, and room for what is written.
    connection.pragma_update(None, "mmap_size", 1i64 << 40)?;
    connection.pragma_update(None, "cache_size", -65536)?;
    connection.execute_batch(
        "create table if not exists objects
             (id integer primary key, account integer not null, at integer not null, cents integer not null, text text not null);
         create index if not exists by_account on objects (account);
         create index if not exists by_time on objects (at);",
    )?;
    connection.set_prepared_statement_cache_capacity(16);
    Ok(Box::new(Sqlite(connection)))
}

fn add(sums: &mut Sums, row: &Row<'_>) -> rusqlite::Result<()> {
    let id: i64 = row.get(0)?;
    let text = row.get_ref(2)?.as_str()?;
    sums.add(id.cast_unsigned(), row.get(1)?, text);
    Ok(())
}

impl Sqlite {
    fn get_all(&self, ids: &[u64]) -> Result<Sums> {
        let mut sums = Sums::default();
        for &id in ids {
            let mut get = self
                .0
                .prepare_cached("select id, cents, text from objects where id = ?")?;
            get.query_row([id.cast_signed()], |row| add(&mut sums, row))?;
        }
        Ok(sums)
    }
}

impl ObjectStore for Sqlite {
    fn insert(&mut self, objects: &[Object]) -> Result<()> {
        let transaction = self.0.transaction()?;
        {
            let mut insert =
                transaction.prepare_cached("insert into objects values (?, ?, ?, ?, ?)")?;
            for object in objects {
                let Object {
                    id,
                    account,
                    at,
                    cents,
                    text,
                } = object;
                insert.execute(params![id.cast_signed(), account, at, cents, text])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn get(&self, ids: &[u64]) -> Result<Option<Sums>> {
        self.0.execute_batch("begin")?;
        let sums = self.get_all(ids)?;
        self.0.execute_batch("commit")?;
        Ok(Some(sums))
    }

    fn get_one_by_one(&self, ids: &[u64]) -> Result<Option<Sums>> {
        self.get_all(ids).map(Some)
    }

    fn get_many(&self, ids: &[u64]) -> Result<Option<Sums>> {
        self.get(&sorted(ids))
    }

    fn scan_keys(&self, accounts: Range<u32>) -> Result<Option<Sums>> {
        let mut scan = self
            .0
            .prepare_cached("select id from objects where account >= ? and account < ?")?;
        let mut rows = scan.query(params![accounts.start, accounts.end])?;
        let mut sums = Sums::default();
        while let Some(row) = rows.next()? {
            sums.add_key(row.get::<_, i64>(0)?.cast_unsigned());
        }
        Ok(Some(sums))
    }

    fn scan_records(&self, accounts: Range<u32>) -> Result<Option<Sums>> {
        let mut scan = self.0.prepare_cached(
            "select id, cents, text from objects indexed by by_account where account >= ? and account < ?",
        )?;
        let mut rows = scan.query(params![accounts.start, accounts.end])?;
        let mut sums = Sums::default();
        while let Some(row) = rows.next()? {
            add(&mut sums, row)?;
        }
        Ok(Some(sums))
    }
}
