//! Opening a file: what it has is compared with the types of the program, migrated, and indexed.

use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use heed::types::Bytes;
use heed::{Env, MdbError, RoTxn, RwTxn, WithoutTls};

use crate::about;
use crate::about::{
    ABOUT, SPARE, VERSION, fits, index_key, index_table, is_in_words, layout_key, own_table,
    stored_layout,
};
use crate::definition::Definition;
use crate::durability::Durability;
use crate::environment::{self, Access, Room};
use crate::error::Error;
use crate::inner::{Collection, Inner};
use crate::lazy_mark::LazyMark;
use crate::location::{refuse_network, resolved};
use crate::migration::{self, Migrated, Migration};
use crate::options::Options;
use crate::store_error::Told;
use crate::table::Table;
use crate::untyped::{existing, pages, state};

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
            let tables = options
                .definitions
                .iter()
                .map(Definition::tables)
                .sum::<u32>();
            let room = Room {
                limit: options.limit,
                readers: options.readers,
                tables: tables.saturating_add(more),
                durability: options.durability,
            };
            // SAFETY: the caller promises it.
            let env = unsafe { environment::open(path, &room) }?;
            // Those of processes that were killed.
            env.clear_stale_readers().told(&env)?;
            state::refuse_wrong(&env, &File::open(path)?, options.is_checked)?;
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
        state::refuse_wrong(&env, &file, options.is_checked)?;
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
            obsolete.extend(about::obsolete(
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

/// In which words a file may describe a collection whose layout is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    /// Those of the program's type, which also say whether keys are automatic.
    Own,
    /// Any. A reader chooses no key.
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
