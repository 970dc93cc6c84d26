//! One SQLite database, with a row for each package and one for each file, in the order of versions.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::time::SystemTime;

use anyhow::Result;
use brisk_bench::ways::Chosen;
use http::HeaderMap;
use rusqlite::{Connection, OptionalExtension, params};
use uv_pep440::Version;

use super::choosing::{Next, Target, choose};
use super::fetching::{Entry, Store, Stored};
use super::freshness::{Facts, seconds};
use super::page::Page;

pub(super) struct Sqlite {
    connection: RefCell<Connection>,
}

const PACKAGE: &str =
    "SELECT id, fresh_until, tag FROM packages WHERE index_name = ?1 AND name = ?2";
const FILES: &str = "SELECT version, name, url, requires_python, yanked FROM files WHERE package = ?1 ORDER BY place";

impl Sqlite {
    fn choose_in(&self, package: i64, entry: &Entry, target: &Target) -> Result<Option<Chosen>> {
        let connection = self.connection.borrow();
        let mut files = connection.prepare_cached(FILES)?;
        choose(&entry.want, target, |choosing| {
            let mut rows = files.query([package])?;
            let mut version = String::new();
            let mut next = Next::Skip;
            while let Some(row) = rows.next()? {
                let of = row.get_ref(0)?.as_str()?;
                if of != version {
                    of.clone_into(&mut version);
                    next = choosing.version(&Version::from_str(of)?);
                }
                match next {
                    Next::Done => break,
                    Next::Skip => continue,
                    Next::Look => {}
                }
                let [name, url] = [row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_str()?];
                let requires_python = row.get_ref(3)?.as_str_or_null()?;
                choosing.offer_named(
                    name,
                    row.get_ref(4)?.as_str_or_null()?.is_some(),
                    || target.is_taken_by(requires_python),
                    || Chosen {
                        file: name.to_owned(),
                        url: url.to_owned(),
                    },
                );
            }
            Ok(())
        })
    }
}

impl Store for Sqlite {
    /// The number of the package.
    type Kept = i64;

    fn open(directory: &Path) -> Result<Self> {
        let path = directory.join("index.sqlite");
        let is_new = !path.exists();
        if is_new {
            fs::create_dir_all(directory)?;
        }
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        if is_new {
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.execute_batch(
                "CREATE TABLE packages (id INTEGER PRIMARY KEY, index_name TEXT NOT NULL, name TEXT NOT NULL,
                     fresh_until INTEGER NOT NULL, tag TEXT NOT NULL);
                 CREATE UNIQUE INDEX packages_by_name ON packages (index_name, name);
                 CREATE TABLE files (package INTEGER NOT NULL, place INTEGER NOT NULL, version TEXT NOT NULL,
                     name TEXT NOT NULL, url TEXT NOT NULL, sha256 TEXT NOT NULL, size INTEGER, uploaded TEXT,
                     requires_python TEXT, yanked TEXT, metadata TEXT, PRIMARY KEY (package, place)) WITHOUT ROWID;",
            )?;
        }
        Ok(Self {
            connection: RefCell::new(connection),
        })
    }

    fn stored(&self, entry: &Entry, target: &Target) -> Result<Stored<i64>> {
        let found = {
            let connection = self.connection.borrow();
            let mut package = connection.prepare_cached(PACKAGE)?;
            package
                .query_row(
                    params![entry.index, entry.want.name.as_ref() as &str],
                    |row| {
                        Ok((
                            row.get::<_, i64>(0)?,
                            row.get::<_, i64>(1)?,
                            row.get::<_, String>(2)?,
                        ))
                    },
                )
                .optional()?
        };
        let Some((package, fresh_until, tag)) = found else {
            return Ok(Stored::Missing);
        };
        if seconds(SystemTime::now()) < fresh_until {
            return Ok(Stored::Fresh(self.choose_in(package, entry, target)?));
        }
        Ok(Stored::Stale(tag, package))
    }

    fn fetched(
        &self,
        entry: &Entry,
        target: &Target,
        headers: &HeaderMap,
        page: &[u8],
    ) -> Result<Option<Chosen>> {
        let facts = Facts::of(&entry.url, headers)?;
        let page = Page::parse(page)?;
        let package = {
            let mut connection = self.connection.borrow_mut();
            let transaction = connection.transaction()?;
            transaction
                .prepare_cached(
                    "INSERT INTO packages (index_name, name, fresh_until, tag) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![
                    entry.index,
                    entry.want.name.as_ref() as &str,
                    facts.fresh_until,
                    facts.tag
                ])?;
            let package = transaction.last_insert_rowid();
            {
                let mut insert = transaction.prepare_cached(
                    "INSERT INTO files VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                )?;
                let mut place = 0i64;
                for (version, files) in page.by_version(&entry.want).into_iter().rev() {
                    let version = version.to_string();
                    for file in files {
                        insert.execute(params![
                            package,
                            place,
                            version,
                            file.filename,
                            file.url,
                            file.hashes.sha256,
                            file.size.map(i64::try_from).transpose()?,
                            file.upload_time,
                            file.requires_python,
                            file.yanked.reason(),
                            file.core_metadata.digest(),
                        ])?;
                        place += 1;
                    }
                }
            }
            transaction.commit()?;
            package
        };
        self.choose_in(package, entry, target)
    }

    fn holds(
        &self,
        entry: &Entry,
        target: &Target,
        headers: &HeaderMap,
        package: i64,
    ) -> Result<Option<Chosen>> {
        let facts = Facts::of(&entry.url, headers)?;
        self.connection
            .borrow()
            .prepare_cached("UPDATE packages SET fresh_until = ?2 WHERE id = ?1")?
            .execute([package, facts.fresh_until])?;
        self.choose_in(package, entry, target)
    }
}
