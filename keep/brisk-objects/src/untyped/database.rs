use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use heed::types::Bytes;
use heed::{Env, RoTxn, WithoutTls};

use super::pages::{self, Meta, PageFaults};
use super::parts::Parts;
use super::schema_text;
use super::state;
use crate::about::{ABOUT, SPARE, VERSION, index_key, index_table};
use crate::environment::{self, Access, Environment};
use crate::error::Error;
use crate::location::{refuse_network, resolved};
use crate::schema::Schema;
use crate::store_error::Told;
use crate::table::Table;

/// The database of any program, as its file is at one moment.
///
/// It has no types of its own: the file says in words which collections there are, and what their records are. Nothing is
/// changed, but a place in the table of readers.
///
/// # Trust
///
/// What LMDB hands out is not trusted: records, keys, entries and words are read with checks, and are an error where they are
/// not what was stored. LMDB itself trusts its pages. [`check_pages`](Self::check_pages) looks at them without it.
pub struct UntypedDatabase {
    /// Some, until this is dropped. Ends before the environment.
    txn: Option<RoTxn<'static, WithoutTls>>,
    pub(super) env: Environment,
    path: PathBuf,
    about: Table,
    collections: Vec<Parts>,
    unreadable: Vec<(String, String)>,
}

/// How large a table is, in the words of LMDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableSize {
    /// Levels of pages.
    pub depth: u32,
    /// Pages that name others.
    pub branch_pages: u64,
    /// Pages with entries.
    pub leaf_pages: u64,
    /// Pages with parts of long entries.
    pub overflow_pages: u64,
    /// Entries.
    pub entries: u64,
}

impl TableSize {
    /// All pages.
    pub fn pages(&self) -> u64 {
        let pages = self.branch_pages.saturating_add(self.leaf_pages);
        pages.saturating_add(self.overflow_pages)
    }
}

/// A file that is open to be looked at.
pub(super) struct Opened {
    pub(super) txn: RoTxn<'static, WithoutTls>,
    pub(super) env: Environment,
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// What the file says of the state that the transaction sees.
    meta: Meta,
}

/// Opens a file, but none of its tables: LMDB has read no page but the first two.
///
/// # Safety
///
/// That of [`UntypedDatabase::open`].
#[expect(unsafe_code, reason = "the caller's promise is handed on")]
unsafe fn opened(path: &Path) -> Result<Opened, Error> {
    let (path, file) = existing(path)?;
    let newest = pages::newest(&file, &path)?;
    // SAFETY: the caller promises it.
    let env = unsafe { environment::open_existing(&path, newest.room(), Access::Read) };
    let env = env.map_err(|e| lock_refused(&path, e))?;
    let (txn, meta) = state::begin(&env, &file)?;
    let opened = Opened {
        txn,
        env,
        path,
        file,
        meta,
    };
    state::refuse_cut(&opened.env, &opened.file, &opened.meta)?;
    Ok(opened)
}

/// An error of opening a file that this process may read.
fn lock_refused(path: &Path, e: Error) -> Error {
    match e {
        Error::Io(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            let path = path.display();
            let message = format!(
                "cannot write to {path}-lock, where each reader notes itself: permission denied; ask its owner, or look at a \
                 copy of the database"
            );
            Error::Io(std::io::Error::new(e.kind(), message))
        }
        e => e,
    }
}

/// The path and the data of a file that may be a database.
pub(crate) fn existing(path: &Path) -> Result<(PathBuf, File), Error> {
    let told = |e: std::io::Error| {
        let message = format!("cannot open {}: {e}", path.display());
        Error::Io(std::io::Error::new(e.kind(), message))
    };
    let file = File::open(path).map_err(told)?;
    let metadata = file.metadata().map_err(told)?;
    let path = resolved(path)?;
    if !metadata.is_file() {
        let found = match metadata.is_dir() {
            true => "it is a directory; name a file in it",
            false => "it is no file",
        };
        let found = found.to_owned();
        return Err(Error::Foreign { path, found });
    }
    refuse_network(&path)?;
    Ok((path, file))
}

impl UntypedDatabase {
    /// Opens a database that there is.
    ///
    /// # Errors
    ///
    /// [`Error::Foreign`] if the file is no database. [`Error::Cut`] if its end is missing. [`Error::Network`],
    /// [`Error::OpenAlready`] and [`Error::SameProcessNumber`] as for [`Options::open`](crate::Options::open). Otherwise those
    /// of the system.
    ///
    /// # Safety
    ///
    /// That of [`Options::open`](crate::Options::open): while it is open, nothing but LMDB writes to the file.
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub unsafe fn open(path: &Path) -> Result<Self, Error> {
        // SAFETY: the caller promises it.
        let Opened { txn, env, path, .. } = unsafe { opened(path) }?;
        let Some(about) = table(&env, &txn, ABOUT)? else {
            let found = match env.open_database::<Bytes, Bytes>(&txn, None).told(&env)? {
                Some(root) if !root.is_empty(&txn).told(&env)? => {
                    "it has tables of another program"
                }
                _ => "it is an empty file of LMDB",
            };
            let found = found.to_owned();
            return Err(Error::Foreign { path, found });
        };
        check_version(&env, (&about, &txn))?;
        let (collections, unreadable) = collections(&env, &txn, &about)?;
        Ok(Self {
            txn: Some(txn),
            env,
            path,
            about,
            collections,
            unreadable,
        })
    }

    /// Looks at all pages of a file without LMDB, which trusts them, and returns what is wrong. If nothing is, LMDB can read
    /// the state that it was at that moment, and write to it.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// As for [`open`](Self::open).
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub unsafe fn check_pages(path: &Path) -> Result<PageFaults, Error> {
        // SAFETY: the caller promises it.
        let opened = unsafe { opened(path) }?;
        pages::check(&opened.file, &opened.meta)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version of all that is stored.
    pub fn version(&self) -> String {
        String::from_utf8_lossy(VERSION).into_owned()
    }

    /// What its collections are made of, in the order of their names.
    pub(super) fn parts(&self) -> &[Parts] {
        &self.collections
    }

    /// The collections that cannot be read, each with the reason.
    pub fn unreadable(&self) -> &[(String, String)] {
        &self.unreadable
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> u64 {
        self.env.stat().page_size.into()
    }

    /// Bytes of the file.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn file_bytes(&self) -> Result<u64, Error> {
        self.env.real_disk_size().told(&self.env)
    }

    /// Bytes that the file may have, as the program with the highest limit has said that has written to it.
    pub fn limit(&self) -> u64 {
        u64::try_from(self.env.info().map_size).unwrap_or(u64::MAX)
    }

    /// The number of the transaction whose state this is.
    pub fn last_transaction(&self) -> u64 {
        let txn = self.txn.as_ref().expect("only drop takes it");
        u64::try_from(txn.id()).unwrap_or(u64::MAX)
    }

    /// Pages of the file that were in use once.
    pub fn pages(&self) -> u64 {
        let last = u64::try_from(self.env.info().last_page_number);
        last.unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Places for readers.
    pub fn reader_places(&self) -> u32 {
        self.env.info().maximum_number_of_readers
    }

    /// The table that says what the others are.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn about_size(&self) -> Result<TableSize, Error> {
        self.size_of(&self.about)
    }

    /// An error in a forked child of the process that has opened this.
    pub(super) fn txn(&self) -> Result<&RoTxn<'_>, Error> {
        self.env.check_process()?;
        Ok(self.txn.as_ref().expect("only drop takes it"))
    }

    pub(super) fn about_table(&self) -> &Table {
        &self.about
    }

    pub(super) fn size_of(&self, table: &Table) -> Result<TableSize, Error> {
        let stat = table.stat(self.txn()?).told(&self.env)?;
        let number = |pages: usize| u64::try_from(pages).unwrap_or(u64::MAX);
        Ok(TableSize {
            depth: stat.depth,
            branch_pages: number(stat.branch_pages),
            leaf_pages: number(stat.leaf_pages),
            overflow_pages: number(stat.overflow_pages),
            entries: number(stat.entries),
        })
    }
}

impl Drop for UntypedDatabase {
    fn drop(&mut self) {
        if self.env.check_process().is_err() {
            // Its place among the readers is the parent's.
            std::mem::forget(self.txn.take());
        }
    }
}

impl fmt::Debug for UntypedDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntypedDatabase")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Refuses a file of another version.
pub(super) fn check_version(
    env: &Env<WithoutTls>,
    (about, txn): (&Table, &RoTxn<'_>),
) -> Result<(), Error> {
    let found = match about.get(txn, b"version").told(env)? {
        Some(VERSION) => return Ok(()),
        Some(other) => format!("its version is {}", String::from_utf8_lossy(other)),
        None => "it has no version".to_owned(),
    };
    let path = env.path().to_owned();
    Err(Error::Foreign { path, found })
}

/// A table that there is.
pub(super) fn table(
    env: &Env<WithoutTls>,
    txn: &RoTxn<'_>,
    name: &str,
) -> Result<Option<Table>, Error> {
    // LMDB ends names with this.
    if name.contains('\0') {
        return Ok(None);
    }
    env.open_database(txn, Some(name)).told(env)
}

/// Collections that can be read, and others with the reason.
type Found = (Vec<Parts>, Vec<(String, String)>);

/// The collections of a file.
pub(super) fn collections(
    env: &Env<WithoutTls>,
    txn: &RoTxn<'_>,
    about: &Table,
) -> Result<Found, Error> {
    let (mut collections, mut unreadable) = (Vec::new(), Vec::new());
    for entry in about.prefix_iter(txn, b"layout ").told(env)? {
        let (key, value) = entry.told(env)?;
        let name = key.strip_prefix(b"layout ").unwrap_or_default();
        match collection(env, txn, about, (name, value))? {
            Ok(parts) => collections.push(parts),
            Err(why) => unreadable.push((String::from_utf8_lossy(name).into_owned(), why)),
        }
    }
    Ok((collections, unreadable))
}

/// A text behind a number, as it is stored for layouts and indexes.
fn numbered(bytes: &[u8]) -> Option<(u64, &str)> {
    let (number, text) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), std::str::from_utf8(text).ok()?))
}

/// A collection, or why it cannot be read.
fn collection(
    env: &Env<WithoutTls>,
    txn: &RoTxn<'_>,
    about: &Table,
    (name, value): (&[u8], &[u8]),
) -> Result<Result<Parts, String>, Error> {
    let Ok(name) = std::str::from_utf8(name) else {
        return Ok(Err("its name is not UTF-8".to_owned()));
    };
    let Some((fingerprint, layout)) = numbered(value) else {
        return Ok(Err("it has no text in UTF-8".to_owned()));
    };
    let mut texts = Vec::new();
    let mut prints = Vec::new();
    let prefix = format!("index {}", index_table(name, ""));
    for entry in about.prefix_iter(txn, prefix.as_bytes()).told(env)? {
        let (key, value) = entry.told(env)?;
        let Some((print, text)) = numbered(value) else {
            return Ok(Err("an index has no text in UTF-8".to_owned()));
        };
        prints.push((key, print));
        texts.push(text.to_owned());
    }
    let Ok(schema) = schema_text::parse(name, layout, &texts) else {
        let indexes = texts.iter().map(|text| format!(", {text}"));
        return Ok(Err(format!("{layout}{}", indexes.collect::<String>())));
    };
    if schema.layout_fingerprint() != fingerprint {
        return Ok(Err(format!(
            "its number is {fingerprint:016x}, but that of its text is {:016x}",
            schema.layout_fingerprint()
        )));
    }
    let right = schema
        .indexes
        .iter()
        .zip(&prints)
        .all(|(index, (key, print))| {
            index_key(&schema, index.name).as_bytes() == *key
                && index.fingerprint(fingerprint) == *print
        });
    if !right {
        return Ok(Err(
            "the number of an index is not that of its text".to_owned()
        ));
    }
    parts(env, txn, schema, fingerprint)
}

fn parts(
    env: &Env<WithoutTls>,
    txn: &RoTxn<'_>,
    schema: Schema,
    fingerprint: u64,
) -> Result<Result<Parts, String>, Error> {
    let is_ours = [ABOUT, SPARE].contains(&schema.collection);
    let Some(records) = table(env, txn, schema.collection)?.filter(|_| !is_ours) else {
        return Ok(Err("it has no table".to_owned()));
    };
    let mut indexes = Vec::new();
    for index in schema.indexes {
        let name = index_table(schema.collection, index.name);
        match table(env, txn, &name)? {
            Some(table) => indexes.push(table),
            None => return Ok(Err(format!("its index {} has no table", index.name))),
        }
    }
    Ok(Ok(Parts {
        schema,
        fingerprint,
        records,
        indexes,
    }))
}
