use std::fmt;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::mem;
use std::path::Path;

use heed::{Env, RoTxn, RwTxn, WithoutTls};

use super::database::{self, UntypedDatabase};
use super::pages;
use super::parts::{Parts, decode};
use super::plain::Plain;
use super::schema_text::{self, MOST_PARTS, Unread};
use super::state;
use crate::about::{ABOUT, SPARE, VERSION, index_key, index_table, layout_key};
use crate::environment::{self, Access};
use crate::error::Error;
use crate::key::behind;
use crate::key_bytes::KeyBytes;
use crate::key_range::KeyRange;
use crate::lazy_mark::LazyMark;
use crate::location::{refuse_network, resolved};
use crate::opener::Opener;
use crate::schema::Schema;
use crate::store_error::Told;
use crate::stored_record;
use crate::table::{Table, check_key_len_of, next_key};
use crate::unfinished::Unfinished;
use crate::value::ValueWriter;

/// Tables that a writer may make.
const NEW_TABLES: u32 = 4096;
/// Bytes of the name of a collection.
const LONGEST_NAME: usize = 400;

/// Adds records to the database of any program, all of them or none.
pub struct UntypedWriter<'e> {
    /// Some, until this ends.
    txn: Option<RwTxn<'e>>,
    opener: Opener,
    env: &'e Env<WithoutTls>,
    about: Table,
    collections: Vec<Parts>,
    unreadable: Vec<(String, String)>,
}

impl UntypedDatabase {
    /// Writes what `work` does, as a whole: to the database of a path, or to a new one, which then appears when it is complete
    /// and on the disk. If it returns an error, nothing is written, and a new file does not appear. `limit` is that of
    /// [`Options`](crate::Options::limit).
    ///
    /// # Errors
    ///
    /// Those of `work`, and of [`open`](UntypedDatabase::open). [`std::io::ErrorKind::AlreadyExists`] in [`Error::Io`] if another
    /// program has made the file meanwhile.
    ///
    /// # Safety
    ///
    /// That of [`Options::open`](crate::Options::open): meanwhile, nothing but LMDB writes to the file.
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub unsafe fn write<T, E: From<Error>>(
        path: &Path,
        limit: u64,
        work: impl FnOnce(&mut UntypedWriter<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        // SAFETY: the caller promises it.
        match unsafe { write_once(path, limit, work) }? {
            Written::There(done) => Ok(done),
            Written::Taken(_, unfinished) => Err(unfinished.taken().into()),
        }
    }

    /// As [`write`](UntypedDatabase::write). But if another program has made the file while `work` filled a new one, `add` adds
    /// to it what `work` has written, and gets what that has returned.
    ///
    /// # Errors
    ///
    /// Those of `work`, of `add`, and of [`open`](UntypedDatabase::open).
    ///
    /// # Safety
    ///
    /// That of [`write`](UntypedDatabase::write).
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub unsafe fn write_or_add<T, E: From<Error>>(
        path: &Path,
        limit: u64,
        work: impl FnOnce(&mut UntypedWriter<'_>) -> Result<T, E>,
        add: impl FnOnce(T, &UntypedDatabase, &mut UntypedWriter<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        // SAFETY: the caller promises it.
        match unsafe { write_once(path, limit, work) }? {
            Written::There(done) => Ok(done),
            Written::Taken(done, unfinished) => {
                // SAFETY: the file is new, and nothing writes to it any more.
                let from = unsafe { UntypedDatabase::open(unfinished.path()) }?;
                let work = |writer: &mut UntypedWriter<'_>| add(done, &from, writer);
                // SAFETY: the caller promises it.
                unsafe { write_to_existing(path, limit, work) }
            }
        }
    }
}

/// Where something was written.
enum Written<T> {
    /// To the file.
    There(T),
    /// To a new one, whose name another program has taken.
    Taken(T, Unfinished),
}

/// Writes to a file, or makes it.
///
/// # Safety
///
/// That of [`UntypedDatabase::write`].
#[expect(unsafe_code, reason = "the caller's promise is handed on")]
unsafe fn write_once<T, E: From<Error>>(
    path: &Path,
    limit: u64,
    work: impl FnOnce(&mut UntypedWriter<'_>) -> Result<T, E>,
) -> Result<Written<T>, E> {
    match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let path = resolved(path)?;
            refuse_network(&path)?;
            let unfinished = Unfinished::beside(&path)?;
            // SAFETY: the file is new, and its lock says that it is in use.
            let done = unsafe { write_to(unfinished.path(), limit, 0, work) }?;
            Ok(match unfinished.has_appeared()? {
                true => Written::There(done),
                false => Written::Taken(done, unfinished),
            })
        }
        _ => {
            // SAFETY: the caller promises it.
            unsafe { write_to_existing(path, limit, work) }.map(Written::There)
        }
    }
}

/// Writes to a file that is there.
///
/// # Safety
///
/// That of [`UntypedDatabase::write`].
#[expect(unsafe_code, reason = "the caller's promise is handed on")]
unsafe fn write_to_existing<T, E: From<Error>>(
    path: &Path,
    limit: u64,
    work: impl FnOnce(&mut UntypedWriter<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let (path, file) = database::existing(path)?;
    LazyMark::refuse(&path)?;
    let newest = pages::newest(&file, &path)?;
    // SAFETY: the caller promises it.
    unsafe { write_to(&path, limit, newest.room(), work) }
}

/// Opens or makes a file, and writes to it.
///
/// # Safety
///
/// That of [`UntypedDatabase::write`].
#[expect(unsafe_code, reason = "the caller's promise is handed on")]
unsafe fn write_to<T, E: From<Error>>(
    path: &Path,
    limit: u64,
    tables: u32,
    work: impl FnOnce(&mut UntypedWriter<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let room = tables.saturating_add(NEW_TABLES);
    // SAFETY: the caller promises it.
    let env = unsafe { environment::open_existing(path, room, Access::Write(limit)) }?;
    // Those of processes that were killed.
    env.clear_stale_readers().told(&env)?;
    state::refuse_wrong(&env, &File::open(path).map_err(Error::from)?, false)?;
    let done = write_in(&env, path, work);
    // Closed: the file may be opened again at once.
    drop(env);
    done
}

fn write_in<T, E: From<Error>>(
    env: &Env<WithoutTls>,
    path: &Path,
    work: impl FnOnce(&mut UntypedWriter<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let mut writer = UntypedWriter::begin(env, path)?;
    let done = work(&mut writer)?;
    writer.commit()?;
    Ok(done)
}

impl<'e> UntypedWriter<'e> {
    fn begin(env: &'e Env<WithoutTls>, path: &Path) -> Result<Self, Error> {
        let mut txn = env.write_txn().told(env)?;
        let root: Option<Table> = env.open_database(&txn, None).told(env)?;
        let is_new = match root {
            Some(root) => root.is_empty(&txn).told(env)?,
            None => true,
        };
        let about: Option<Table> = env.open_database(&txn, Some(ABOUT)).told(env)?;
        let about = match about {
            Some(about) => about,
            None if is_new => {
                let about = env.create_database(&mut txn, Some(ABOUT));
                let about: Table = about.told(env)?;
                about.put(&mut txn, b"version", VERSION).told(env)?;
                about
            }
            None => {
                let path = path.to_owned();
                let found = "it has tables of another program".to_owned();
                return Err(Error::Foreign { path, found });
            }
        };
        database::check_version(env, (&about, &txn))?;
        let (collections, unreadable) = database::collections(env, &txn, &about)?;
        Ok(Self {
            txn: Some(txn),
            opener: Opener::this_process(),
            env,
            about,
            collections,
            unreadable,
        })
    }

    /// An error in a forked child of the process that writes.
    fn txn(&self) -> Result<&RoTxn<'_>, Error> {
        self.opener.check()?;
        let txn = self.txn.as_ref().ok_or(Error::Failed)?;
        Ok(txn)
    }

    /// As [`txn`](Self::txn).
    fn txn_mut(&mut self) -> Result<&mut RwTxn<'e>, Error> {
        self.opener.check()?;
        self.txn.as_mut().ok_or(Error::Failed)
    }

    fn commit(mut self) -> Result<(), Error> {
        self.opener.check()?;
        let txn = self.txn.take().ok_or(Error::Failed)?;
        txn.commit().told(self.env)
    }

    /// The number of the collection that has a layout and indexes in these words, as [`Schema::layout_text`] and
    /// [`IndexSchema`](crate::IndexSchema) write them. It is made if there is none. One that there is keeps its own indexes.
    /// `next` is the next automatic key, at least.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`] if the file has another layout of the collection, [`Error::UnknownLayout`] if it has one that cannot be
    /// read. [`Error::Words`] if these words cannot be read. Otherwise those of the system.
    pub fn collection(
        &mut self,
        name: &str,
        layout: &str,
        indexes: &[String],
        next: Option<u64>,
    ) -> Result<usize, Error> {
        let is_it = |known: &Parts| known.schema.collection == name;
        let number = match self.collections.iter().position(is_it) {
            Some(number) => {
                let schema = self.collections.get(number).map(|parts| parts.schema);
                if let Some(schema) = schema.filter(|schema| schema.layout_text() != layout) {
                    return Err(Error::Layout {
                        collection: schema.collection,
                        stored: schema.layout_text(),
                        wanted: layout.to_owned(),
                    });
                }
                number
            }
            None => self.make(name, layout, indexes)?,
        };
        if let Some(next) = next {
            let key = next_key(name);
            let stored = self.about.get(self.txn()?, key.as_bytes()).told(self.env)?;
            let stored = stored.and_then(|bytes| bytes.try_into().ok());
            let stored = stored.map_or(0, u64::from_le_bytes);
            let bytes = next.max(stored).to_le_bytes();
            self.note(&key, &bytes)?;
        }
        Ok(number)
    }

    fn make(&mut self, name: &str, layout: &str, indexes: &[String]) -> Result<usize, Error> {
        let known = &mut self.unreadable.iter();
        if let Some((_, found)) = known.find(|(known, _)| known == name) {
            return Err(Error::UnknownLayout {
                collection: name.to_owned(),
                found: found.clone(),
            });
        }
        let is_name =
            !name.is_empty() && !name.contains(['\0', '/']) && ![ABOUT, SPARE].contains(&name);
        if !is_name || name.len() > LONGEST_NAME {
            return Err(Error::Words {
                field: "collection".to_owned(),
                found: name.to_owned(),
                allowed: format!(
                    "a name of 1 to {LONGEST_NAME} bytes, without / and NUL, and none of {ABOUT} and {SPARE}"
                ),
            });
        }
        let schema = schema_text::parse(name, layout, indexes);
        let schema = schema.map_err(|wrong| unread(wrong, layout, indexes))?;
        let fingerprint = schema.layout_fingerprint();
        let note =
            |number: u64, text: &str| [number.to_le_bytes().as_slice(), text.as_bytes()].concat();
        self.note(&layout_key(&schema), &note(fingerprint, layout))?;
        let records = self.table(name)?;
        let mut tables = Vec::new();
        for index in schema.indexes {
            let text = index.to_string();
            let key = index_key(&schema, index.name);
            self.note(&key, &note(index.fingerprint(fingerprint), &text))?;
            tables.push(self.table(&index_table(name, index.name))?);
        }
        self.collections.push(Parts {
            schema,
            fingerprint,
            records,
            indexes: tables,
        });
        Ok(self.collections.len().saturating_sub(1))
    }

    fn note(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        let about = self.about;
        let put = about.put(self.txn_mut()?, key.as_bytes(), value);
        put.told(self.env)
    }

    fn table(&mut self, name: &str) -> Result<Table, Error> {
        let made = self.env.create_database(self.txn_mut()?, Some(name));
        made.told(self.env)
    }

    /// What is stored of a collection, and how it is found.
    pub fn schema(&self, collection: usize) -> Option<&Schema> {
        self.collections.get(collection).map(|parts| &parts.schema)
    }

    /// Stores a record, in place of the one that has its key if it may `replace` that. Returns whether there was one. To replace
    /// one that is damaged takes longer, because all entries of the indexes are looked at.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`], [`Error::NotUnique`], [`Error::TooLong`] and [`Error::Full`] as
    /// [`Transaction::insert`](crate::Transaction::insert). [`Error::Mismatch`] if the record is none of the collection.
    pub fn put(&mut self, collection: usize, record: &Plain, replace: bool) -> Result<bool, Error> {
        let Some(parts) = self.collections.get(collection) else {
            return Err(Error::NoCollection {
                collection: collection.to_string(),
                known: Vec::new(),
            });
        };
        let Parts {
            schema, records, ..
        } = parts;
        let name = schema.collection;
        if !record.is_of(&schema.layout) {
            return Err(Error::Mismatch {
                what: name.to_owned(),
                wanted: schema.layout.to_string(),
            });
        }
        let mut bytes = Vec::new();
        stored_record::encode_by(name, &mut bytes, |out| {
            let layout = &schema.layout;
            ValueWriter::write_by(out, layout.width(), |out| record.write(layout, out, 0))
        })?;
        let key = schema.key_of(record);
        check_key_len_of(name, "a key", key.len())?;
        stored_record::seal_of(parts.fingerprint, &mut bytes, &key);
        let before = match records.get(self.txn()?, &key).told(self.env)? {
            Some(_) if !replace => {
                return Err(Error::Exists {
                    collection: name,
                    key: schema.key_in_words(&key),
                });
            }
            Some(before) => Some(parts.read(&key, before)),
            None => None,
        };
        let mut changes = Vec::new();
        for (index, table) in schema.indexes.iter().zip(&parts.indexes) {
            let (after, len, is_whole) = schema.entry_of(index.fields, record);
            check_key_len_of(name, "an entry of an index", after.len())?;
            let gone = match &before {
                None => Vec::new(),
                Some(Ok(before)) => vec![schema.entry_of(index.fields, before).0],
                Some(Err(_damaged)) => self.entries_for(schema, index.fields, table, &key)?,
            };
            let value = after.get(..len).filter(|_| index.is_unique && is_whole);
            if let Some(value) = value
                && self.has_other(table, value, &gone)?
            {
                let values = index.fields.iter().filter_map(|field| record.field(field));
                let words: Vec<_> = values.map(ToString::to_string).collect();
                return Err(Error::NotUnique {
                    collection: name,
                    index: index.name,
                    value: words.join(", "),
                });
            }
            changes.push(Change {
                table: *table,
                gone,
                after,
            });
        }
        let records = *records;
        self.store(records, (&key, &bytes), changes)?;
        Ok(before.is_some())
    }

    /// The entries of an index that lead to a key. A record that is damaged does not say them, so all are looked at.
    fn entries_for(
        &self,
        schema: &Schema,
        fields: &[&str],
        table: &Table,
        key: &[u8],
    ) -> Result<Vec<KeyBytes>, Error> {
        let kinds = schema.types_of(fields);
        let mut found = Vec::new();
        for row in table.iter(self.txn()?).told(self.env)? {
            let (entry, _) = row.told(self.env)?;
            let mut rest = entry;
            let mut leads_to = KeyBytes::new();
            if decode(&kinds, &mut rest).is_some() {
                leads_to.extend_from_slice(rest);
                leads_to.pad();
            }
            if *leads_to == *key {
                let mut bytes = KeyBytes::new();
                bytes.extend_from_slice(entry);
                found.push(bytes);
            }
        }
        Ok(found)
    }

    /// Whether an index has an entry that begins with a value and is none of those that go.
    fn has_other(&self, table: &Table, value: &[u8], gone: &[KeyBytes]) -> Result<bool, Error> {
        let mut range = KeyRange::default();
        range.begin_at(Some(value.to_vec()));
        range.end_before(behind(value.to_vec()));
        for row in range.entries(table, self.txn()?, false).told(self.env)? {
            let (entry, _) = row.told(self.env)?;
            if gone.iter().all(|gone| **gone != *entry) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn store(
        &mut self,
        records: Table,
        (key, bytes): (&[u8], &[u8]),
        changes: Vec<Change>,
    ) -> Result<(), Error> {
        let env = self.env;
        let txn = self.txn_mut()?;
        let mut write = || {
            records.put(txn, key, bytes)?;
            for change in &changes {
                for gone in &change.gone {
                    change.table.delete(txn, gone)?;
                }
                // Also if it was there before: then one that is missing comes back.
                change.table.put(txn, &change.after, &[])?;
            }
            Ok(())
        };
        write().told(env)
    }
}

/// The error of words of a collection.
fn unread(wrong: Unread, layout: &str, indexes: &[String]) -> Error {
    let (number, allowed) = match wrong {
        Unread::Layout => {
            return Error::Words {
                field: "layout".to_owned(),
                found: layout.to_owned(),
                allowed: "a layout and its key, such as {id: u64, text: text} key id".to_owned(),
            };
        }
        Unread::Index(number) => {
            let allowed = format!(
                "index NAME(FIELDS) or unique NAME(FIELDS), with 1 to {MOST_PARTS} fields of the layout that can be keys, such \
                 as index text(text)"
            );
            (number, allowed)
        }
        Unread::SameName(number) => (number, "one index of each name".to_owned()),
    };
    Error::Words {
        field: format!("indexes[{number}]"),
        found: indexes.get(number).cloned().unwrap_or_default(),
        allowed,
    }
}

/// Entries of an index that go, and one that comes.
struct Change {
    table: Table,
    gone: Vec<KeyBytes>,
    after: KeyBytes,
}

impl Drop for UntypedWriter<'_> {
    fn drop(&mut self) {
        if self.opener.check().is_err() {
            // It belongs to the parent, with its lock.
            mem::forget(self.txn.take());
        }
    }
}

impl fmt::Debug for UntypedWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntypedWriter").finish_non_exhaustive()
    }
}
