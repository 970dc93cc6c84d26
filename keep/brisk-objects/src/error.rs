use std::path::PathBuf;
use std::{fmt, io};

/// What is too long if it is no key.
pub(crate) const RECORD: &str = "a record";

/// What went wrong.
///
/// This is the only type of errors, and it has none of LMDB's or of the crate heed: what they say is in words.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is a record of this key already.
    Exists {
        /// The collection.
        collection: &'static str,
        /// The key, in words.
        key: String,
    },
    /// There is no record of this key.
    Missing {
        /// The collection.
        collection: &'static str,
        /// The key, in words.
        key: String,
    },
    /// Another record has the same values in a unique index.
    NotUnique {
        /// The collection.
        collection: &'static str,
        /// The index.
        index: &'static str,
        /// The values, in words.
        value: String,
    },
    /// The file has records of another layout.
    Layout {
        /// The collection.
        collection: &'static str,
        /// The layout in the file.
        stored: String,
        /// The layout of the program's type.
        wanted: String,
    },
    /// A migration refuses a record.
    Migration {
        /// The collection.
        collection: &'static str,
        /// The key of the old record, in words.
        key: String,
        /// What the migration said.
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database was opened without this collection.
    Unknown {
        /// The collection.
        collection: &'static str,
    },
    /// Two types of the options are named for one collection.
    TwoTypes {
        /// The collection.
        collection: &'static str,
    },
    /// Another program has changed layouts or indexes of the file since this one opened it.
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Another process has opened the file with a higher limit, and written more than this one can see.
    HigherLimit {
        /// The file.
        path: PathBuf,
    },
    /// The largest key is in use, so there is no next one.
    KeysUsedUp {
        /// The collection.
        collection: &'static str,
    },
    /// A key or a record is longer than allowed, or has no bytes.
    TooLong {
        /// `a key`, `an entry of an index`, or `a record`.
        what: &'static str,
        /// The collection.
        of: &'static str,
        /// Its bytes.
        len: u64,
        /// The most bytes that are allowed.
        most: u64,
    },
    /// The bytes of a record, or of an index, are not what was stored.
    Damaged {
        /// The collection.
        collection: &'static str,
        /// The key, in words.
        key: String,
    },
    /// An index has other entries than its collection has records.
    Index {
        /// The collection.
        collection: &'static str,
        /// The index.
        index: &'static str,
        /// How many entries it has.
        entries: u64,
        /// How many records there are. Each has an entry.
        records: u64,
    },
    /// This thread has a transaction already, for which another one would wait for ever.
    Nested,
    /// A cursor does not belong to a query.
    Cursor,
    /// The file would be larger than the limit.
    Full {
        /// The limit, in bytes.
        limit: u64,
    },
    /// As many snapshots are open as the file has places for.
    TooManyReaders {
        /// The number of places.
        most: u32,
    },
    /// The database was opened to be read only.
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// A file that was opened to be read only is not as this program's types need it.
    NeedsWriting {
        /// The file.
        path: PathBuf,
        /// What it lacks.
        lacks: String,
    },
    /// Somebody has written to a file that this process has opened to be read only.
    NotFrozen {
        /// The file.
        path: PathBuf,
    },
    /// The machine stopped while commits to the file waited for no disk ([`Durability::Lazy`](crate::Durability::Lazy)).
    Unsynced {
        /// The file.
        path: PathBuf,
        /// The file beside it that says so.
        mark: PathBuf,
    },
    /// The database was opened by the process that this one was forked from.
    Forked,
    /// The transaction failed before, and can only be given up.
    Failed,
    /// This process has the file open already.
    OpenAlready {
        /// The file.
        path: PathBuf,
    },
    /// The file is on a network, where a mapping may be stale and locks may not work.
    Network {
        /// The file.
        path: PathBuf,
        /// The number of the filesystem in `linux/magic.h`.
        filesystem: u64,
    },
    /// Another process with the same number has the file open, as in two containers that share it.
    SameProcessNumber {
        /// The file.
        path: PathBuf,
    },
    /// The file is no database of this kind.
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        found: String,
    },
    /// The file ends before a page that is in use.
    Cut {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        len: u64,
        /// The page, and the collection or the index that it belongs to.
        page: String,
        /// Where the page ends.
        needed: u64,
    },
    /// The file has a collection whose layout or indexes are in words that this version cannot read.
    UnknownLayout {
        /// The collection.
        collection: String,
        /// What is wrong.
        found: String,
    },
    /// Words that say what a new collection is cannot be read.
    Words {
        /// Which of them: `collection`, `layout`, or one of `indexes`.
        field: String,
        /// The words.
        found: String,
        /// What they may be.
        allowed: String,
    },
    /// The file has no collection of this name.
    NoCollection {
        /// The name.
        collection: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The collection has no index of this name.
    NoIndex {
        /// The collection.
        collection: &'static str,
        /// The name.
        index: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A value is none of the type that is wanted.
    Mismatch {
        /// What the value is for: a collection, a key or an index.
        what: String,
        /// The type, in words.
        wanted: String,
    },
    /// The system failed.
    Io(io::Error),
    /// Pages of the file are not what was written.
    Pages {
        /// The file.
        path: PathBuf,
        /// The first one: its number, its place, the collection or the index that it belongs to, and what is wrong.
        page: String,
        /// How many faults there are besides.
        more: u64,
    },
    /// LMDB failed, though no page of the file is wrong.
    Store {
        /// The file.
        path: PathBuf,
        /// What LMDB says.
        found: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists { collection, key } => {
                write!(
                    f,
                    "{collection} has a record with the key {key} already; update it, or upsert"
                )
            }
            Self::Missing { collection, key } => {
                write!(
                    f,
                    "{collection} has no record with the key {key}; insert it, or upsert"
                )
            }
            Self::NotUnique {
                collection,
                index,
                value,
            } => write!(
                f,
                "another record of {collection} has {value} in the unique index {index}"
            ),
            Self::Layout {
                collection,
                stored,
                wanted,
            } => write!(
                f,
                "the records of {collection} have the layout {stored}, but this program's have {wanted}; give a migration, \
                 or open the file with the program that wrote it"
            ),
            Self::Migration {
                collection,
                key,
                why,
            } => write!(
                f,
                "the record of {collection} with the key {key} cannot be migrated: {why}; nothing has changed"
            ),
            Self::Unknown { collection } => write!(
                f,
                "the database was opened without {collection}; name it in the options"
            ),
            Self::TooLong {
                what,
                of,
                len,
                most,
            } => {
                let advice = match *what {
                    RECORD => "store it in parts",
                    _ => "use a digest of its text (brisk_objects::key_digest)",
                };
                write!(f, "{what} of {of} has {len} bytes, allowed are 1 to {most}; {advice}")
            }
            Self::TwoTypes { collection } => write!(
                f,
                "two types are named for the collection {collection}; name the present one, and give a migration from the older"
            ),
            Self::Changed { path } => write!(
                f,
                "another program has changed layouts or indexes of {} meanwhile; open it anew",
                path.display()
            ),
            Self::HigherLimit { path } => write!(
                f,
                "another process has a higher limit for {}; open it anew with that",
                path.display()
            ),
            Self::KeysUsedUp { collection } => write!(
                f,
                "{collection} has a record with the largest key, so there is no next one; choose the keys yourself"
            ),
            Self::Damaged { collection, key } => write!(
                f,
                "the record of {collection} with the key {key} is damaged; restore the file from a copy"
            ),
            Self::Index {
                collection,
                index,
                entries,
                records,
            } => write!(
                f,
                "the index {index} of {collection} has {entries} entries for {records} records; restore the file from a copy"
            ),
            Self::Nested => f.write_str(
                "this thread has a transaction already, for which another one would wait for ever; use that, or end it",
            ),
            Self::Cursor => {
                f.write_str("the cursor is not of this query; begin with the first page")
            }
            Self::Full { limit } => write!(
                f,
                "the database has reached its limit of {limit} bytes; open it with a higher one"
            ),
            Self::TooManyReaders { most } => write!(
                f,
                "{most} snapshots are open, as many as the file has places for; end some, or open the file with more \
                 readers while no other process has it open"
            ),
            Self::ReadOnly { path } => write!(
                f,
                "{} was opened to be read only; open it to be written",
                path.display()
            ),
            Self::NeedsWriting { path, lacks } => write!(
                f,
                "{} cannot be opened to be read only: it lacks {lacks}; open it once to be written, with the same collections",
                path.display()
            ),
            Self::NotFrozen { path } => write!(
                f,
                "somebody has written to {} while it was open to be read only; open it so that it can be written, too",
                path.display()
            ),
            Self::Unsynced { path, mark } => write!(
                f,
                "the machine stopped while commits to {} waited for no disk, so pages of it may be missing; make it anew or \
                 restore it from a copy, or, to take it as it is, check it (brisk db check) and remove {}",
                path.display(),
                mark.display()
            ),
            Self::Forked => {
                f.write_str("the database was opened before a fork; fork before you open it, or let the child execute a program")
            }
            Self::Failed => f.write_str("the transaction failed before; begin another one"),
            Self::OpenAlready { path } => write!(
                f,
                "this process has {} open already; clone its handle",
                path.display()
            ),
            Self::Network { path, filesystem } => write!(
                f,
                "{} is on a network filesystem ({filesystem:#x}), where a database can be destroyed; move it to a local disk",
                path.display()
            ),
            Self::SameProcessNumber { path } => write!(
                f,
                "another process with the same number has {} open, as in two containers that share it; share the container's \
                 process numbers, too (--pid)",
                path.display()
            ),
            Self::Foreign { path, found } => {
                write!(
                    f,
                    "{} is no database of brisk-objects: {found}",
                    path.display()
                )
            }
            Self::Cut {
                path,
                len,
                page,
                needed,
            } => write!(
                f,
                "{} was cut: it has {len} bytes, but {page} ends at byte {needed}; restore the file from a copy",
                path.display()
            ),
            Self::UnknownLayout { collection, found } => write!(
                f,
                "the layout of {collection} cannot be read: {found}; use the version of brisk-objects that wrote it, or \
                 restore the file from a copy"
            ),
            Self::Words {
                field,
                found,
                allowed,
            } => write!(f, "{field}: found {found:?}, allowed is {allowed}"),
            Self::NoCollection { collection, known } if known.is_empty() => {
                write!(f, "there is no collection {collection}: the database has none")
            }
            Self::NoCollection { collection, known } => write!(
                f,
                "there is no collection {collection}; there are {}",
                known.join(", ")
            ),
            Self::NoIndex {
                collection,
                index,
                known,
            } if known.is_empty() => {
                write!(f, "{collection} has no index {index}: it has none")
            }
            Self::NoIndex {
                collection,
                index,
                known,
            } => write!(
                f,
                "{collection} has no index {index}; it has {}",
                known.join(", ")
            ),
            Self::Mismatch { what, wanted } => {
                write!(f, "the value for {what} is of another type; allowed is {wanted}")
            }
            Self::Io(e) => write!(f, "{e}"),
            Self::Pages { path, page, more } => {
                write!(f, "{} is damaged: {page}", path.display())?;
                if *more > 0 {
                    write!(f, ", and {more} faults more")?;
                }
                f.write_str("; restore the file from a copy")
            }
            Self::Store { path, found } => write!(
                f,
                "cannot use {}: {found}; close it and open it anew",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}
