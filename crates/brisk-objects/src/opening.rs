//! Opening a file: what it has is compared with the types of the program, migrated, and indexed.

use std::fs::File;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use brisk_io::Filesystem;
use heed::types::Bytes;
use heed::{Env, MdbError, RoTxn, RwTxn, WithoutTls};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::database::{Collection, Inner, Table, check_key_len, damaged, not_unique};
use crate::environment::{self, Access};
use crate::error::Error;
use crate::key_bytes::KeyBytes;
use crate::lazy_mark::LazyMark;
use crate::migration::{self, Migrated, Migration};
use crate::options::{Durability, Options};
use crate::record::{Record, ViewOf};
use crate::schema::Schema;
use crate::store_error::Told;
use crate::stored_record;
use crate::untyped::{existing, pages};

/// The name of the table that says what the others are.
pub(crate) const ABOUT: &str = "brisk-objects";
/// The name of the table where migrated records are until all are.
pub(crate) const SPARE: &str = "brisk-objects migration";
/// The version of all that is stored.
pub(crate) const VERSION: &[u8] = b"1";

/// What a program knows of a collection before it is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition {
    schema: Schema,
    fingerprint: u64,
    fill_index: FillIndex,
}

/// Writes the entries of an index of all records of a collection.
type FillIndex = fn(&mut RwTxn<'_>, &Inner, &Collection, usize) -> Result<(), Error>;

impl Definition {
    pub(crate) fn of<R: Record>() -> Self {
        Self {
            schema: R::SCHEMA,
            fingerprint: R::FINGERPRINT,
            fill_index: fill_index::<R>,
        }
    }

    fn collection(&self) -> &'static str {
        self.schema.collection
    }

    /// How many tables it has.
    pub(crate) fn tables(&self) -> u32 {
        u32::try_from(self.schema.indexes.len())
            .map_or(u32::MAX, |indexes| indexes.saturating_add(1))
    }
}

/// The key in [`ABOUT`] under which the layout of the records of a collection is.
pub(crate) fn layout_key(schema: &Schema) -> String {
    format!("layout {}", schema.collection)
}

/// The key in [`ABOUT`] under which an index is.
pub(crate) fn index_key(schema: &Schema, index: &str) -> String {
    format!("index {}", index_table(schema.collection, index))
}

/// The name of the table of an index.
pub(crate) fn index_table(collection: &str, index: &str) -> String {
    format!("{collection}/{index}")
}

/// What becomes of the transaction that opens the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Commit,
    GiveUp,
}

/// What came of opening the collections.
enum Begun {
    Done(Vec<Migrated>),
    /// So many tables more must be opened.
    NeedsTables(u32),
}

impl Inner {
    /// # Safety
    ///
    /// That of [`Options::open`].
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub(crate) unsafe fn open(
        path: &Path,
        options: &Options,
        ending: Ending,
    ) -> Result<(Self, Vec<Migrated>), Error> {
        let path = &resolved(path)?;
        refuse_network(path)?;
        refuse_two_types(&options.definitions)?;
        pages::refuse_foreign(path)?;
        LazyMark::refuse(path)?;
        // Each table that could be open makes each snapshot longer to begin, so there is room for no more than needed.
        let mut more = 0;
        loop {
            // SAFETY: the caller promises it.
            let env = unsafe { environment::open(path, options, more) }?;
            // Those of processes that were killed.
            env.clear_stale_readers().told(&env)?;
            pages::refuse_wrong(&env, &File::open(path)?, options.is_checked)?;
            let lazy = match options.durability {
                Durability::Lazy => Some(LazyMark::set(path)?),
                Durability::Full | Durability::Last => {
                    LazyMark::end_of_killed(path, || env.force_sync().told(&env))?;
                    None
                }
            };
            let with = move |env, about, collections| Self {
                path: path.to_owned(),
                about,
                collections,
                writer: Mutex::new(None),
                seen: AtomicUsize::new(0),
                commits: AtomicU32::new(0),
                frozen: None,
                lazy,
                env,
            };
            if let Some((about, collections)) =
                opened_as_it_is(&env, &options.definitions, Words::Own)?
            {
                return Ok((with(env, about, collections), Vec::new()));
            }
            let writing = env.clone();
            let mut txn = writing.write_txn().told(&env)?;
            let Some(about) = own_table(&env, &mut txn)? else {
                let path = path.to_owned();
                let found = "it has tables of another program".to_owned();
                return Err(Error::Foreign { path, found });
            };
            let mut inner = with(env, about, Vec::new());
            match inner.begin(txn, options, (more, ending))? {
                Begun::Done(migrated) => return Ok((inner, migrated)),
                Begun::NeedsTables(tables) => more = tables,
            }
        }
    }

    /// # Safety
    ///
    /// That of [`Options::open_read_only`].
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub(crate) unsafe fn open_read_only(path: &Path, options: &Options) -> Result<Self, Error> {
        let definitions = &options.definitions;
        refuse_two_types(definitions)?;
        let (path, file) = existing(path)?;
        LazyMark::refuse(&path)?;
        // That it is a database.
        pages::newest(&file, &path)?;
        let tables = definitions.iter().map(Definition::tables).sum::<u32>();
        let tables = tables.saturating_add(1);
        // SAFETY: the caller promises it.
        let env = unsafe { environment::open_existing(&path, tables, Access::ReadFrozen) }?;
        pages::refuse_wrong(&env, &file, options.is_checked)?;
        match opened_as_it_is(&env, definitions, Words::Any)? {
            Some((about, collections)) => Ok(Self {
                frozen: Some(env.info().last_txn_id),
                path,
                about,
                collections,
                writer: Mutex::new(None),
                seen: AtomicUsize::new(0),
                commits: AtomicU32::new(0),
                lazy: None,
                env,
            }),
            None => Err(why_unreadable(&env, &path, definitions)?),
        }
    }

    /// Opens the collections, migrates their records, and brings their indexes up to date. If that needs more tables than
    /// there is `room` for, it does nothing.
    fn begin(
        &mut self,
        mut txn: RwTxn<'_>,
        options: &Options,
        (room, ending): (u32, Ending),
    ) -> Result<Begun, Error> {
        let definitions = &options.definitions;
        match self.about.get(&txn, b"version").told(&self.env)? {
            Some(VERSION) => {}
            Some(other) => {
                let found = format!("its version is {}", String::from_utf8_lossy(other));
                let path = self.path.clone();
                return Err(Error::Foreign { path, found });
            }
            None => self
                .about
                .put(&mut txn, b"version", VERSION)
                .told(&self.env)?,
        }
        let (mut obsolete, mut old) = (Vec::new(), false);
        for definition in definitions {
            obsolete.extend(self::obsolete(
                &self.env,
                &self.about,
                &txn,
                &definition.schema,
            )?);
            let layout = self.layout(&txn, definition)?;
            old |= layout.is_some_and(|(layout, _)| layout != definition.fingerprint);
        }
        let needed = obsolete.len() + usize::from(old);
        if let Some(tables) = u32::try_from(needed).ok().filter(|tables| *tables > room) {
            return Ok(Begun::NeedsTables(tables));
        }
        for name in obsolete {
            let table = name.trim_start_matches("index ");
            self.table(&mut txn, table)?
                .clear(&mut txn)
                .told(&self.env)?;
            self.about
                .delete(&mut txn, name.as_bytes())
                .told(&self.env)?;
        }
        let mut migrated = Vec::new();
        for definition in definitions {
            let records = self.table(&mut txn, definition.collection())?;
            self.migrate(
                &mut txn,
                definition,
                (&records, &options.migrations),
                &mut migrated,
            )?;
            let indexes = definition.schema.indexes.iter();
            let indexes = indexes.map(|index| {
                self.table(&mut txn, &index_table(definition.collection(), index.name))
            });
            let collection = Collection {
                schema: definition.schema,
                fingerprint: definition.fingerprint,
                whole_fingerprint: definition.schema.whole_fingerprint(),
                records,
                indexes: indexes.collect::<Result<_, _>>()?,
            };
            self.update_indexes(&mut txn, definition, &collection)?;
            self.collections.push(collection);
        }
        if ending == Ending::Commit {
            txn.commit().map_err(|e| self.told(e))?;
        }
        Ok(Begun::Done(migrated))
    }

    /// The fingerprint and the text of the layout that the file has of a collection.
    fn layout(
        &self,
        txn: &RoTxn<'_>,
        definition: &Definition,
    ) -> Result<Option<(u64, String)>, Error> {
        stored_layout(&self.env, &self.about, txn, &definition.schema)
    }

    /// Brings the records of a collection to the layout of its type, step by step.
    fn migrate(
        &self,
        txn: &mut RwTxn<'_>,
        definition: &Definition,
        (records, migrations): (&Table, &[Migration]),
        migrated: &mut Vec<Migrated>,
    ) -> Result<(), Error> {
        let collection = definition.collection();
        let wanted = definition.schema.layout_text();
        let key = layout_key(&definition.schema);
        let note = |txn: &mut RwTxn<'_>, number: u64, text: &str| {
            let about = [number.to_le_bytes().as_slice(), text.as_bytes()].concat();
            let put = self.about.put(txn, key.as_bytes(), &about);
            put.map_err(|e| self.told(e))
        };
        let Some((stored, mut text)) = self.layout(txn, definition)? else {
            return note(txn, definition.fingerprint, &wanted);
        };
        let steps = migration::steps(migrations, collection, (stored, definition.fingerprint));
        let Some(steps) = steps else {
            return Err(Error::Layout {
                collection,
                stored: text,
                wanted,
            });
        };
        if steps.is_empty() && text != wanted {
            // The same bytes, but keys are automatic now, or no longer.
            return note(txn, definition.fingerprint, &wanted);
        }
        for migration in steps {
            let spare = self.table(txn, SPARE)?;
            let count = migration.run(txn, self, records, &spare)?;
            let to = migration.to_schema.layout_text();
            note(txn, migration.to, &to)?;
            migrated.push(Migrated {
                collection,
                from: std::mem::replace(&mut text, to.clone()),
                to,
                records: count,
            });
        }
        Ok(())
    }

    fn table(&self, txn: &mut RwTxn<'_>, name: &str) -> Result<Table, Error> {
        let made = self.env.create_database(txn, Some(name));
        made.map_err(|e| self.told(e))
    }

    /// Fills the indexes that are new, or were others.
    fn update_indexes(
        &self,
        txn: &mut RwTxn<'_>,
        definition: &Definition,
        collection: &Collection,
    ) -> Result<(), Error> {
        for (number, index) in definition.schema.indexes.iter().enumerate() {
            let key = index_key(&definition.schema, index.name);
            let print = index.fingerprint(definition.fingerprint).to_le_bytes();
            let stored = self.about.get(txn, key.as_bytes()).told(&self.env)?;
            if stored.is_some_and(|stored| stored.starts_with(&print)) {
                continue;
            }
            if let Some(table) = collection.indexes.get(number) {
                table.clear(txn).told(&self.env)?;
            }
            (definition.fill_index)(txn, self, collection, number)?;
            let about = [print.as_slice(), index.to_string().as_bytes()].concat();
            let put = self.about.put(txn, key.as_bytes(), &about);
            put.map_err(|e| self.told(e))?;
        }
        Ok(())
    }
}

/// Refuses two types for one collection.
fn refuse_two_types(definitions: &[Definition]) -> Result<(), Error> {
    for (number, definition) in definitions.iter().enumerate() {
        let collection = definition.collection();
        let before = definitions.get(..number).unwrap_or_default();
        if before.iter().any(|other| other.collection() == collection) {
            return Err(Error::TwoTypes { collection });
        }
    }
    Ok(())
}

/// Why a file that is open to be read only is not as these definitions are.
fn why_unreadable(
    env: &Env<WithoutTls>,
    path: &Path,
    definitions: &[Definition],
) -> Result<Error, Error> {
    let path = path.to_owned();
    let txn = env.read_txn().told(env)?;
    let about = env.open_database::<Bytes, Bytes>(&txn, Some(ABOUT));
    let Some(about) = about.told(env)? else {
        let found = "it has no table that says what the others are".to_owned();
        return Ok(Error::Foreign { path, found });
    };
    for definition in definitions {
        let (schema, layout) = (&definition.schema, definition.fingerprint);
        let collection = definition.collection();
        let Some((stored, text)) = stored_layout(env, &about, &txn, schema)? else {
            let lacks = format!("the collection {collection}");
            return Ok(Error::NeedsWriting { path, lacks });
        };
        if stored != layout {
            return Ok(Error::Layout {
                collection,
                stored: text,
                wanted: schema.layout_text(),
            });
        }
        if !fits(env, &about, &txn, schema, layout)? {
            let lacks = format!("the indexes of {collection}, or has others");
            return Ok(Error::NeedsWriting { path, lacks });
        }
    }
    let found = "its version is another one".to_owned();
    Ok(Error::Foreign { path, found })
}

/// The fingerprint and the text of the layout that the file has of a collection.
fn stored_layout(
    env: &Env<WithoutTls>,
    about: &Table,
    txn: &RoTxn<'_>,
    schema: &Schema,
) -> Result<Option<(u64, String)>, Error> {
    let stored = about.get(txn, layout_key(schema).as_bytes()).told(env)?;
    let parts = stored.and_then(<[u8]>::split_first_chunk);
    Ok(parts.map(|(number, text)| {
        let text = String::from_utf8_lossy(text).into_owned();
        (u64::from_le_bytes(*number), text)
    }))
}

/// In which words a file may describe a collection whose layout is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    /// Those of the program's type, which also say whether keys are automatic.
    Own,
    /// Any. Who only reads chooses no key.
    Any,
}

/// The tables of all definitions, if the file has them as these are. Then opening it waits for no writer.
fn opened_as_it_is(
    env: &Env<WithoutTls>,
    definitions: &[Definition],
    words: Words,
) -> Result<Option<(Table, Vec<Collection>)>, Error> {
    let txn = match env.read_txn() {
        // What writes needs no place among them.
        Err(heed::Error::Mdb(MdbError::ReadersFull)) => return Ok(None),
        begun => begun.told(env)?,
    };
    let Some(about) = env
        .open_database::<Bytes, Bytes>(&txn, Some(ABOUT))
        .told(env)?
    else {
        return Ok(None);
    };
    if about.get(&txn, b"version").told(env)? != Some(VERSION) {
        return Ok(None);
    }
    let mut collections = Vec::new();
    for definition in definitions {
        let (schema, layout) = (definition.schema, definition.fingerprint);
        let fits = fits(env, &about, &txn, &schema, layout)?;
        if !fits || (words == Words::Own && !is_in_words(env, &about, &txn, &schema)?) {
            return Ok(None);
        }
        let open = |name: &str| env.open_database::<Bytes, Bytes>(&txn, Some(name));
        let Some(records) = open(schema.collection).told(env)? else {
            return Ok(None);
        };
        let names = schema
            .indexes
            .iter()
            .map(|index| index_table(schema.collection, index.name));
        let indexes = names.map(|name| open(&name));
        let Some(indexes) = indexes
            .collect::<Result<Option<Vec<Table>>, _>>()
            .told(env)?
        else {
            return Ok(None);
        };
        collections.push(Collection {
            schema,
            fingerprint: layout,
            whole_fingerprint: schema.whole_fingerprint(),
            records,
            indexes,
        });
    }
    // The handles of tables stay only if the transaction ends so.
    txn.commit().told(env)?;
    Ok(Some((about, collections)))
}

/// Whether a collection has this layout and these indexes in the file, and no others.
pub(crate) fn fits(
    env: &Env<WithoutTls>,
    about: &Table,
    txn: &RoTxn<'_>,
    schema: &Schema,
    layout: u64,
) -> Result<bool, Error> {
    let has = |key: String, number: u64| -> Result<bool, Error> {
        let stored = about.get(txn, key.as_bytes()).told(env)?;
        Ok(stored.is_some_and(|stored| stored.starts_with(&number.to_le_bytes())))
    };
    for index in schema.indexes {
        if !has(index_key(schema, index.name), index.fingerprint(layout))? {
            return Ok(false);
        }
    }
    Ok(has(layout_key(schema), layout)? && obsolete(env, about, txn, schema)?.is_empty())
}

/// Whether the file describes a collection in the words of this schema, which has the same layout. They also say whether keys
/// are automatic.
fn is_in_words(
    env: &Env<WithoutTls>,
    about: &Table,
    txn: &RoTxn<'_>,
    schema: &Schema,
) -> Result<bool, Error> {
    let stored = about.get(txn, layout_key(schema).as_bytes()).told(env)?;
    let words = stored.and_then(|stored| stored.get(size_of::<u64>()..));
    Ok(words == Some(schema.layout_text().as_bytes()))
}

/// The table that says what the others are, which is made in a new file. None if the file is of another program.
fn own_table(env: &Env<WithoutTls>, txn: &mut RwTxn<'_>) -> Result<Option<Table>, Error> {
    if let Some(about) = env.open_database(txn, Some(ABOUT)).told(env)? {
        return Ok(Some(about));
    }
    let root: Option<Table> = env.open_database(txn, None).told(env)?;
    if let Some(root) = root
        && !root.is_empty(txn).told(env)?
    {
        return Ok(None);
    }
    Ok(Some(env.create_database(txn, Some(ABOUT)).told(env)?))
}

/// Refuses a file on a network.
pub(crate) fn refuse_network(path: &Path) -> Result<(), Error> {
    // A file can be mounted alone, and that of its readers is in the directory.
    for place in [path.parent().unwrap_or(Path::new("/")), path] {
        // To ask for its filesystem. A directory of others need not be readable.
        let opened = match rustix::fs::open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) if place == path => return Ok(()),
            opened => opened.map_err(std::io::Error::from)?,
        };
        if let Filesystem::Network(filesystem) = Filesystem::of(opened)? {
            let path = path.to_owned();
            return Err(Error::Network { path, filesystem });
        }
    }
    Ok(())
}

/// A path from the root, through links to the file that they name, so that all processes lock the same one.
pub(crate) fn resolved(path: &Path) -> Result<PathBuf, Error> {
    let path = std::path::absolute(path)?;
    match path.canonicalize() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            if path.is_symlink() {
                let told = format!("{} is a link to a file that does not exist", path.display());
                return Err(std::io::Error::new(e.kind(), told).into());
            }
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(e.into());
            };
            Ok(parent.canonicalize()?.join(name))
        }
        found => Ok(found?),
    }
}

/// The names in [`ABOUT`] of the indexes that no type has any more.
fn obsolete(
    env: &Env<WithoutTls>,
    about: &Table,
    txn: &RoTxn<'_>,
    schema: &Schema,
) -> Result<Vec<String>, Error> {
    let mut obsolete = Vec::new();
    let prefix = index_key(schema, "");
    for entry in about.prefix_iter(txn, prefix.as_bytes()).told(env)? {
        let name = String::from_utf8_lossy(entry.told(env)?.0).into_owned();
        let indexes = &mut schema.indexes.iter();
        if !indexes.any(|index| index_key(schema, index.name) == name) {
            obsolete.push(name);
        }
    }
    Ok(obsolete)
}

/// Bytes of entries that are sorted in memory at a time while an index is filled.
const RUN: usize = 64 << 20;

/// Writes the entries of an index of all records.
fn fill_index<R: Record>(
    txn: &mut RwTxn<'_>,
    inner: &Inner,
    collection: &Collection,
    number: usize,
) -> Result<(), Error> {
    fill_in_runs::<R>(txn, inner, collection, (number, RUN))
}

/// An entry of an index that is being filled.
struct NewEntry {
    bytes: KeyBytes,
    /// How many of them are the value, if it must be unique.
    unique: Option<usize>,
}

impl NewEntry {
    fn value(&self) -> Option<&[u8]> {
        self.bytes.get(..self.unique?)
    }
}

/// The same, in runs of so many bytes. Each is sorted: so neighbours are written together.
fn fill_in_runs<R: Record>(
    txn: &mut RwTxn<'_>,
    inner: &Inner,
    collection: &Collection,
    (number, run_bytes): (usize, usize),
) -> Result<(), Error> {
    let Some(table) = collection.indexes.get(number) else {
        return Ok(());
    };
    let mut run: Vec<NewEntry> = Vec::new();
    let mut last: Option<KeyBytes> = None;
    loop {
        let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let is_first = last.is_none();
        let end = next_run::<R>(inner, txn, collection, number, (from, run_bytes), &mut run)?;
        run.sort_unstable_by(|one, two| one.bytes.cmp(&two.bytes));
        for pair in run.windows(2) {
            if let [one, two] = pair
                && one.value().is_some()
                && one.value() == two.value()
            {
                return Err(not_unique::<R>(number, &one.bytes));
            }
        }
        for entry in &run {
            // A first run is written without a search, and its pages are full.
            let flags = match is_first {
                true => heed::PutFlags::APPEND,
                false => heed::PutFlags::empty(),
            };
            if let Some(value) = entry.value().filter(|_| !is_first) {
                let found = table.get_greater_than_or_equal_to(txn, value);
                let found = found.map_err(|e| inner.told(e))?;
                if found.is_some_and(|(found, _)| found.starts_with(value)) {
                    return Err(not_unique::<R>(number, &entry.bytes));
                }
            }
            let put = table.put_with_flags(txn, flags, &entry.bytes, &[]);
            put.map_err(|e| inner.told(e))?;
        }
        match end {
            Some(end) => last = Some(end),
            None => return Ok(()),
        }
    }
}

/// Makes the entries of the records from a key on, until they have so many bytes. Returns the last key, if there may be more.
fn next_run<R: Record>(
    inner: &Inner,
    txn: &RwTxn<'_>,
    collection: &Collection,
    number: usize,
    (from, run_bytes): (Bound<&[u8]>, usize),
    run: &mut Vec<NewEntry>,
) -> Result<Option<KeyBytes>, Error> {
    let index = collection.schema.indexes.get(number);
    let is_unique = index.is_some_and(|index| index.is_unique);
    run.clear();
    let mut bytes = 0_usize;
    let range = (from, Bound::Unbounded);
    for record in collection.records.range(txn, &range).told(&inner.env)? {
        let (key, value) = record.told(&inner.env)?;
        let view = stored_record::view::<R>(key, value);
        let view: ViewOf<'_, R> = view.ok_or_else(|| damaged::<R>(key))?;
        let mut entry = KeyBytes::new();
        let is_whole = R::encode_index_key(&view, number, &mut entry);
        let unique = Some(entry.len()).filter(|_| is_unique && is_whole);
        R::encode_key_of(&view, &mut entry);
        check_key_len::<R>("an entry of an index", entry.len())?;
        // Long ones are behind a pointer.
        bytes = bytes.saturating_add(size_of::<NewEntry>() + entry.len());
        run.push(NewEntry {
            bytes: entry,
            unique,
        });
        if bytes >= run_bytes {
            let mut last = KeyBytes::new();
            last.extend_from_slice(key);
            return Ok(Some(last));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(crate::Record, Debug)]
    #[record(name = "line")]
    struct Line {
        #[key]
        id: u32,
        #[index]
        number: Option<String>,
    }

    /// The same, but no number may be there twice.
    #[derive(crate::Record, Debug)]
    #[record(name = "line")]
    struct Unique {
        #[key]
        id: u32,
        #[unique]
        number: Option<String>,
    }

    const LINES: u32 = 2_000;

    type Entries = Vec<Vec<u8>>;

    /// Fills the index of lines anew, in runs of so many bytes. Returns its entries before and after.
    fn filled<R: Record>(
        number: impl Fn(u32) -> Option<String>,
        run_bytes: usize,
    ) -> Result<(Entries, Entries), Error> {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = Options::new().collection::<Line>().limit(64 << 20);
        let path = home.path().join("lines.db");
        #[expect(unsafe_code, reason = "nothing but LMDB writes to the file")]
        // SAFETY: nothing but LMDB writes to the file.
        let db = unsafe { options.open(&path) }.unwrap();
        db.write(|tx| {
            (0..LINES).try_for_each(|id| {
                let number = number(id);
                tx.insert(&Line { id, number }).map(|_key| ())
            })
        })?;
        let inner = &*db.inner;
        let known = &inner.collections[0];
        let collection = Collection {
            schema: R::SCHEMA,
            fingerprint: known.fingerprint,
            whole_fingerprint: R::SCHEMA.whole_fingerprint(),
            records: known.records,
            indexes: known.indexes.clone(),
        };
        let table = collection.indexes[0];
        let mut txn = inner.env.write_txn().unwrap();
        let entries = |txn: &RwTxn<'_>| {
            let all = table.iter(txn).unwrap();
            all.map(|entry| entry.unwrap().0.to_vec()).collect()
        };
        let before = entries(&txn);
        table.clear(&mut txn).unwrap();
        fill_in_runs::<R>(&mut txn, inner, &collection, (0, run_bytes))?;
        Ok((before, entries(&txn)))
    }

    #[test]
    fn runs_of_any_length_make_the_same_index() {
        let mixed = |id: u32| {
            let number = id.wrapping_mul(0x9e37_79b9);
            (!id.is_multiple_of(5)).then(|| format!("{number:08x}"))
        };
        for run_bytes in [1, 1_000, 30_000, RUN] {
            let (before, after) = filled::<Line>(mixed, run_bytes).unwrap();
            assert_eq!((before.len(), &before), (LINES as usize, &after));
            let (before, after) = filled::<Unique>(mixed, run_bytes).unwrap();
            assert!(before == after, "{run_bytes}");
        }
    }

    #[test]
    fn equal_values_in_any_runs_are_refused() {
        // The first and the last record are equal, or two neighbours, wherever runs end.
        for (one, two) in [(0, LINES - 1), (999, 1_000)] {
            let number = |id: u32| Some(if id == two { one } else { id }.to_string());
            for run_bytes in [1, 1_000, 30_000, RUN] {
                let e = filled::<Unique>(number, run_bytes).unwrap_err();
                assert_eq!(
                    e.to_string(),
                    format!(
                        "another record of line has Some(\"{one}\") in the unique index number"
                    )
                );
                assert!(filled::<Line>(number, run_bytes).is_ok());
            }
        }
    }
}
