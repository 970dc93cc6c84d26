use std::fmt;
use std::mem;
use std::thread;

use heed::{MdbError, PutFlags, RwTxn};

use crate::error::Error;
use crate::inner::{Collection, Inner};
use crate::key::{AsKey, Key, describe_key};
use crate::key_bytes::KeyBytes;
use crate::query::Query;
use crate::reading::Reading;
use crate::record::{Record, ViewOf};
use crate::stored_record;
use crate::table::{Table, check_key_len, damaged, next_key, not_unique};

/// Changes of records of any collections, which are made together or not at all.
///
/// It reads what it has written. Dropped without a [`commit`](Self::commit), it changes nothing.
pub struct Transaction<'d> {
    /// Some, until the transaction ends.
    txn: Option<RwTxn<'d>>,
    inner: &'d Inner,
    next: Vec<NextKey>,
    /// Whether something was written. LMDB gives the number of a transaction that has written nothing to the next one.
    has_written: bool,
    /// Whether a change was left half done. Then it cannot be committed.
    has_failed: bool,
    /// The record that is being written.
    bytes: Vec<u8>,
    /// The record that it replaces.
    before: Vec<u8>,
    /// What changes in the indexes with it.
    changes: Vec<Change>,
}

/// The next automatic key of a collection.
struct NextKey {
    /// The place of the collection.
    place: usize,
    stored: Option<u64>,
    next: u64,
}

/// What is to happen if there is a record of the key, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Insert,
    Update,
    Upsert,
}

/// An entry of an index that goes, and one that comes.
struct Change {
    number: usize,
    before: Option<KeyBytes>,
    after: Option<KeyBytes>,
    /// How many bytes of the entry that comes are the value of a unique index. None if the index is not unique, or if a part
    /// of the value is missing.
    unique: Option<usize>,
}

impl<'d> Transaction<'d> {
    pub(crate) fn begin(inner: &'d Inner) -> Result<Self, Error> {
        inner.check_process()?;
        if inner.frozen.is_some() {
            let path = inner.path.clone();
            return Err(Error::ReadOnly { path });
        }
        let own = Some(thread::current().id());
        if *inner.writer() == own {
            return Err(Error::Nested);
        }
        let txn = inner.env.write_txn().map_err(|e| inner.told(e))?;
        inner.check_schemas(&txn, txn.id().saturating_sub(1))?;
        *inner.writer() = own;
        Ok(Self {
            txn: Some(txn),
            inner,
            next: Vec::new(),
            has_written: false,
            has_failed: false,
            bytes: Vec::new(),
            before: Vec::new(),
            changes: Vec::new(),
        })
    }

    fn reading(&self) -> Result<Reading<'_>, Error> {
        let txn = self.txn.as_ref().filter(|_| !self.has_failed);
        let txn = txn.ok_or(Error::Failed)?;
        Ok(Reading {
            txn,
            inner: self.inner,
        })
    }

    /// The record of a key.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`](crate::Snapshot::get).
    pub fn get<R: Record>(&self, key: impl AsKey<R::Key>) -> Result<Option<ViewOf<'_, R>>, Error> {
        self.reading()?.get::<R>(&key)
    }

    /// The records of several keys, in the order of the keys.
    ///
    /// It looks them up in the order of the database. So neighbours come from the disk by one read, which takes much less
    /// than a call for each key if the file is not in memory.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`](crate::Snapshot::get).
    pub fn get_many<R: Record, Q: AsKey<R::Key>>(
        &self,
        keys: impl IntoIterator<Item = Q>,
    ) -> Result<Vec<Option<ViewOf<'_, R>>>, Error> {
        self.reading()?.get_many::<R, Q>(keys)
    }

    /// The number of records of a collection.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`](crate::Snapshot::get).
    pub fn count<R: Record>(&self) -> Result<u64, Error> {
        self.reading()?.count::<R>()
    }

    /// A query of the records as this transaction has changed them.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] after an error that left a change half done.
    pub fn query<R: Record>(&self) -> Result<Query<'_, R>, Error> {
        self.reading().map(Query::of)
    }

    /// Stores a new record, and returns its key. If the database chooses the keys and the record has the key 0, it gets the next
    /// key. Any other key is kept, and the database goes on behind it.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if there is one of this key. [`Error::NotUnique`] if another one has the same values in a unique
    /// index. [`Error::TooLong`] if the key or an entry of an index has more than 511 bytes. After these, the transaction
    /// goes on. [`Error::Full`] and those of the system: then it can only be given up.
    pub fn insert<R: Record>(&mut self, record: &R) -> Result<R::Key, Error> {
        let key = self.put(record, Mode::Insert)?;
        R::Key::decode(&mut &*key).ok_or_else(|| damaged::<R>(&key))
    }

    /// Stores a record in place of the one that has its key.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if there is none. Otherwise as [`Transaction::insert`].
    pub fn update<R: Record>(&mut self, record: &R) -> Result<(), Error> {
        self.put(record, Mode::Update).map(|_key| ())
    }

    /// Stores a record, in place of the one that has its key, if there is one.
    ///
    /// # Errors
    ///
    /// As [`Transaction::insert`].
    pub fn upsert<R: Record>(&mut self, record: &R) -> Result<(), Error> {
        self.put(record, Mode::Upsert).map(|_key| ())
    }

    /// Removes the record of a key. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if its bytes are not what was stored. Otherwise as [`Transaction::insert`].
    pub fn delete<R: Record>(&mut self, key: impl AsKey<R::Key>) -> Result<bool, Error> {
        let mut bytes = KeyBytes::new();
        key.encode_key(&mut bytes);
        bytes.pad();
        let inner = self.inner;
        let collection = inner.collection::<R>()?;
        let mut before = mem::take(&mut self.before);
        let found = self.copy::<R>(&bytes, &mut before);
        let done = found.and_then(|found| {
            if found {
                let view = stored_record::unchecked::<R>(&before);
                let view = view.ok_or_else(|| damaged::<R>(&bytes))?;
                let mut changes = Vec::new();
                add_changes::<R>(Some(&view), None, &mut changes)?;
                self.apply(|txn| {
                    collection.records.delete(txn, &bytes)?;
                    write_entries(txn, collection, &changes)
                })?;
                self.has_written = true;
            }
            Ok(found)
        });
        self.before = before;
        done
    }

    /// Makes all changes visible at once, to everybody.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if a change was left half done. Otherwise those of the system. Then nothing has changed.
    pub fn commit(mut self) -> Result<(), Error> {
        let next = mem::take(&mut self.next);
        let (inner, about) = (self.inner, self.inner.about);
        let mut has_written = self.has_written;
        self.apply(|txn| {
            for NextKey {
                place,
                stored,
                next,
            } in next
            {
                let collection = inner.collections.get(place);
                if let Some(collection) = collection.filter(|_| stored != Some(next)) {
                    let name = next_key(collection.schema.collection);
                    about.put(txn, name.as_bytes(), &next.to_le_bytes())?;
                    has_written = true;
                }
            }
            Ok(())
        })?;
        inner.check_process()?;
        let txn = self.txn.take().ok_or(Error::Failed)?;
        let number = txn.id();
        // Before the next one can begin.
        *inner.writer() = None;
        txn.commit().map_err(|e| inner.told(e))?;
        match has_written {
            true => inner.committed(number),
            false => Ok(()),
        }
    }

    /// Runs what changes the file. An error leaves it half done.
    fn apply(
        &mut self,
        work: impl FnOnce(&mut RwTxn<'_>) -> heed::Result<()>,
    ) -> Result<(), Error> {
        self.inner.check_process()?;
        let txn = self.txn.as_mut().filter(|_| !self.has_failed);
        let done = work(txn.ok_or(Error::Failed)?);
        done.map_err(|e| {
            self.has_failed = true;
            self.inner.told(e)
        })
    }

    /// Copies the record of a key. Returns whether there is one.
    fn copy<R: Record>(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, Error> {
        into.clear();
        let found = self.reading()?.get_stored::<R>(key)?;
        if let Some((bytes, _view)) = &found {
            into.extend_from_slice(bytes);
        }
        Ok(found.is_some())
    }

    /// Returns the key, padded.
    fn put<R: Record>(&mut self, record: &R, mode: Mode) -> Result<KeyBytes, Error> {
        let (mut bytes, mut before) = (mem::take(&mut self.bytes), mem::take(&mut self.before));
        let mut changes = mem::take(&mut self.changes);
        let done = self.put_by(record, mode, &mut bytes, (&mut before, &mut changes));
        (self.bytes, self.before, self.changes) = (bytes, before, changes);
        done
    }

    fn put_by<R: Record>(
        &mut self,
        record: &R,
        mode: Mode,
        bytes: &mut Vec<u8>,
        (before, changes): (&mut Vec<u8>, &mut Vec<Change>),
    ) -> Result<KeyBytes, Error> {
        let collection = self.inner.collection::<R>()?;
        stored_record::encode(record, bytes)?;
        let chooses = mode == Mode::Insert && stored_record::auto_key::<R>(bytes) == Some(0);
        if chooses {
            let next = self.next_key::<R>()?;
            stored_record::set_auto_key::<R>(bytes, next);
        }
        let key = self.plan::<R>(collection, mode, bytes, (before, changes))?;
        if R::AUTO_KEY_AT.is_some() && !chooses {
            let own = u64::decode(&mut &*key).unwrap_or(0);
            let next = self.next_place::<R>()?;
            *next = own.saturating_add(1).max(*next);
        }
        stored_record::seal::<R>(bytes, &key);
        let mut exists = false;
        self.apply(|txn| {
            let flags = match mode {
                Mode::Insert => PutFlags::NO_OVERWRITE,
                Mode::Update | Mode::Upsert => PutFlags::empty(),
            };
            match collection.records.put_with_flags(txn, flags, &key, bytes) {
                Err(heed::Error::Mdb(MdbError::KeyExist)) => {
                    exists = true;
                    Ok(())
                }
                Err(e) => Err(e),
                Ok(()) => write_entries(txn, collection, changes),
            }
        })?;
        match exists {
            true => Err(Error::Exists {
                collection: R::SCHEMA.collection,
                key: describe_key::<R::Key>(&key),
            }),
            false => {
                self.has_written = true;
                Ok(key)
            }
        }
    }

    /// The key of a record, padded. `before` is where that goes which it replaces, and `changes` what changes in the indexes.
    fn plan<R: Record>(
        &self,
        collection: &Collection,
        mode: Mode,
        bytes: &[u8],
        (before, changes): (&mut Vec<u8>, &mut Vec<Change>),
    ) -> Result<KeyBytes, Error> {
        let after = stored_record::unchecked::<R>(bytes).ok_or(Error::Failed)?;
        let key = stored_record::key_of::<R>(&after);
        check_key_len::<R>("a key", key.len())?;
        // An insertion finds out when it writes.
        let is_there = mode != Mode::Insert && self.copy::<R>(&key, before)?;
        if mode == Mode::Update && !is_there {
            return Err(Error::Missing {
                collection: R::SCHEMA.collection,
                key: describe_key::<R::Key>(&key),
            });
        }
        let old = match is_there {
            true => stored_record::unchecked::<R>(before),
            false => None,
        };
        changes.clear();
        add_changes::<R>(old.as_ref(), Some(&after), changes)?;
        self.check_unique::<R>(collection, changes)?;
        Ok(key)
    }

    /// The next automatic key. Keys are not used again, whatever is deleted.
    fn next_key<R: Record>(&mut self) -> Result<u64, Error> {
        let next = self.next_place::<R>()?;
        let key = *next;
        // There is none behind the largest, so it is not given away.
        *next = key.checked_add(1).ok_or(Error::KeysUsedUp {
            collection: R::SCHEMA.collection,
        })?;
        Ok(key)
    }

    /// Where the next automatic key of a collection is noted until the transaction ends.
    fn next_place<R: Record>(&mut self) -> Result<&mut u64, Error> {
        let inner = self.inner;
        let collection = inner.collection::<R>()?;
        let is_it = |known: &Collection| std::ptr::eq(known, collection);
        let place = inner
            .collections
            .iter()
            .position(is_it)
            .unwrap_or(usize::MAX);
        if let Some(at) = self.next.iter().position(|known| known.place == place) {
            let known = self.next.get_mut(at).map(|known| &mut known.next);
            return known.ok_or(Error::Failed);
        }
        let reading = self.reading()?;
        let name = next_key(R::SCHEMA.collection);
        let stored = inner.about.get(reading.txn, name.as_bytes());
        let stored = stored.map_err(|e| inner.told(e))?;
        let stored = stored.and_then(|bytes| bytes.try_into().ok());
        let stored = stored.map(u64::from_le_bytes);
        let mut next = stored.unwrap_or(1);
        // Some may have been stored under keys of their own, before keys were chosen.
        let last = collection
            .records
            .last(reading.txn)
            .map_err(|e| inner.told(e))?;
        if let Some(last) = last.and_then(|(last, _)| u64::decode(&mut &*last)) {
            next = next.max(last.saturating_add(1));
        }
        self.next.push(NextKey {
            place,
            stored,
            next,
        });
        let added = self.next.last_mut().map(|added| &mut added.next);
        added.ok_or(Error::Failed)
    }

    /// Refuses values that another record has in a unique index.
    fn check_unique<R: Record>(
        &self,
        collection: &Collection,
        changes: &[Change],
    ) -> Result<(), Error> {
        for change in changes {
            let table = collection.indexes.get(change.number);
            let (Some(table), Some(entry), Some(len)) = (table, &change.after, change.unique)
            else {
                continue;
            };
            let value = entry.get(..len).unwrap_or_default();
            let txn = self.reading()?.txn;
            let found = match value.is_empty() {
                true => table.first(txn),
                false => table.get_greater_than_or_equal_to(txn, value),
            };
            let found = found.map_err(|e| self.inner.told(e))?;
            // Not its own, which goes or is there already.
            let is_own =
                |found: &[u8]| change.before.as_deref() == Some(found) || **entry == *found;
            if let Some((found, _)) = found
                && found.starts_with(value)
                && !is_own(found)
            {
                return Err(not_unique::<R>(change.number, entry));
            }
        }
        Ok(())
    }
}

/// What changes in the indexes when a record takes the place of another.
fn add_changes<R: Record>(
    before: Option<&ViewOf<'_, R>>,
    after: Option<&ViewOf<'_, R>>,
    changes: &mut Vec<Change>,
) -> Result<(), Error> {
    for (number, index) in R::SCHEMA.indexes.iter().enumerate() {
        let mut unique = None;
        let entry = |view: &ViewOf<'_, R>, unique: &mut Option<usize>| {
            let mut entry = KeyBytes::new();
            let is_whole = R::encode_index_key(view, number, &mut entry);
            *unique = Some(entry.len()).filter(|_| index.is_unique && is_whole);
            R::encode_key_of(view, &mut entry);
            entry
        };
        let before = before.map(|view| entry(view, &mut unique));
        // The last one says what must be unique.
        let after = after.map(|view| entry(view, &mut unique));
        if let Some(after) = &after {
            check_key_len::<R>("an entry of an index", after.len())?;
        }
        if before != after {
            changes.push(Change {
                number,
                before,
                after,
                unique,
            });
        }
    }
    Ok(())
}

fn write_entries(
    txn: &mut RwTxn<'_>,
    collection: &Collection,
    changes: &[Change],
) -> heed::Result<()> {
    for change in changes {
        let Some(table): Option<&Table> = collection.indexes.get(change.number) else {
            continue;
        };
        if let Some(before) = &change.before {
            table.delete(txn, before)?;
        }
        if let Some(after) = &change.after {
            table.put(txn, after, &[])?;
        }
    }
    Ok(())
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.inner.check_process().is_err() {
            // It belongs to the parent, with its lock.
            mem::forget(self.txn.take());
            return;
        }
        // Before the next one can begin.
        if self.txn.is_some() {
            *self.inner.writer() = None;
        }
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("path", &self.inner.path)
            .field("has_failed", &self.has_failed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::about::ABOUT;
    use crate::database::Database;
    use crate::options::Options;

    #[derive(crate::Record, Debug, Clone)]
    struct Line {
        #[key(auto)]
        id: u64,
        text: String,
    }

    fn open(home: &tempfile::TempDir) -> Database {
        let options = Options::new().collection::<Line>().limit(1 << 20);
        let path = home.path().join("lines.db");
        #[expect(unsafe_code, reason = "nothing but LMDB writes to the file")]
        // SAFETY: nothing but LMDB writes to the file.
        let opened = unsafe { options.open(&path) };
        opened.unwrap()
    }

    fn line(id: u64) -> Line {
        let text = "text".to_owned();
        Line { id, text }
    }

    #[test]
    fn nobody_compares_layouts_after_a_commit_of_this_program() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let db = open(&home);
        let seen = || db.inner.seen.load(Ordering::Relaxed);
        let newest = || db.inner.env.info().last_txn_id;
        for number in 1..4 {
            db.write(|tx| tx.insert(&line(0))).unwrap();
            assert_eq!(seen(), newest());
            db.write(|tx| tx.update(&line(number))).unwrap();
            assert_eq!(seen(), newest());
        }
        db.write(|tx| tx.delete::<Line>(2u64)).unwrap();
        assert_eq!(seen(), newest());
        // The next transaction that writes has the number of one that has written nothing, and may be of another program.
        let before = newest();
        db.write(|tx| tx.delete::<Line>(2u64)).unwrap();
        assert!(db.write(|tx| tx.update(&line(9))).is_err());
        db.begin().unwrap().commit().unwrap();
        assert_eq!((seen(), newest()), (before, before));
    }

    #[test]
    fn the_next_key_is_written_only_if_it_is_another_one() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let db = open(&home);
        // Where the table is in which it stands. Each change of a page moves it.
        let place = || {
            let txn = db.inner.env.read_txn().unwrap();
            let root: Table = db.inner.env.open_database(&txn, None).unwrap().unwrap();
            let found = root.get(&txn, ABOUT.as_bytes()).unwrap();
            found.unwrap().to_vec()
        };
        db.write(|tx| tx.insert(&line(0))).unwrap();
        let before = place();
        db.write(|tx| tx.update(&line(1))).unwrap();
        db.write(|tx| tx.upsert(&line(1))).unwrap();
        assert_eq!(place(), before);
        db.write(|tx| tx.upsert(&line(5))).unwrap();
        assert_ne!(place(), before);
        assert_eq!(db.write(|tx| tx.insert(&line(0))).unwrap(), 6);
    }
}
