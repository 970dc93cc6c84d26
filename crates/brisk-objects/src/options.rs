use std::path::Path;

use crate::database::Database;
use crate::environment::READERS;
use crate::error::Error;
use crate::migration::{Migrated, Migration};
use crate::opening::Definition;
use crate::record::{Record, ViewOf};

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// All of it is on the disk. A loss of power loses nothing that was committed.
    #[default]
    Full,
    /// The records are on the disk, but perhaps not yet the page that says so. A loss of power may undo the last
    /// transaction, and never leaves half of one. A commit takes one wait for the disk instead of two.
    Last,
    /// Nothing: the system writes when it likes. Who is killed loses nothing. If the machine stops, by a loss of power or a crash
    /// of the kernel, all is lost that was committed since [`Database::sync`](crate::Database::sync) or since the file was
    /// opened, and what was there before, too: pages that were written before and after are mixed. Such a file is refused
    /// ([`Error::Unsynced`]). For what can be made anew: an import, or a test.
    ///
    /// A file beside it, whose name ends with `-lazy`, says that it is open so. It goes when the last handle does.
    Lazy,
}

/// How a database is opened, and which collections of it.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) limit: u64,
    pub(crate) readers: u32,
    pub(crate) durability: Durability,
    pub(crate) is_checked: bool,
    pub(crate) definitions: Vec<Definition>,
    pub(crate) migrations: Vec<Migration>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// A limit of 1 TiB, 1024 readers, full durability, and no collection yet.
    pub fn new() -> Self {
        Self {
            limit: 1 << 40,
            readers: READERS,
            durability: Durability::Full,
            is_checked: false,
            definitions: Vec::new(),
            migrations: Vec::new(),
        }
    }

    /// Adds the collection of a record type.
    pub fn collection<R: Record>(mut self) -> Self {
        self.definitions.push(Definition::of::<R>());
        self
    }

    /// Adds a way from records of an older layout to those of the type that now has the collection, or to those that another
    /// migration begins with.
    ///
    /// When a file with the older layout is opened, each record becomes a new one. That happens in the transaction that
    /// opens the file: all of them or none, whenever the process is killed, and never again. Indexes are built anew.
    ///
    /// # Example
    ///
    /// ```
    /// # use brisk_objects::{Options, Record};
    /// mod before {
    ///     #[derive(brisk_objects::Record)]
    ///     #[record(name = "books")]
    ///     pub struct Book {
    ///         #[key]
    ///         pub id: u32,
    ///         pub title: String,
    ///     }
    /// }
    ///
    /// #[derive(Record)]
    /// #[record(name = "books")]
    /// struct Book {
    ///     #[key]
    ///     id: u32,
    ///     title: String,
    ///     pages: Option<u32>,
    /// }
    ///
    /// let options = Options::new().collection::<Book>().migration::<before::Book, Book, _>(|old| {
    ///     Ok::<_, brisk_objects::Error>(Book { id: old.id(), title: old.title().to_owned(), pages: None })
    /// });
    /// # let _ = options;
    /// ```
    pub fn migration<Old: Record, New: Record, E>(
        mut self,
        migrate: impl Fn(&ViewOf<'_, Old>) -> Result<New, E> + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let migration = Migration::of::<Old, New>(move |old| migrate(old).map_err(Into::into));
        self.migrations.push(migration);
        self
    }

    /// The most bytes that the file may have. This reserves as many addresses, and no memory. It is rounded up to whole
    /// pages of 64 KiB.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// The most snapshots at one time, over all processes. The first process that opens the file decides for all.
    pub fn readers(mut self, most: u32) -> Self {
        self.readers = most;
        self
    }

    /// What a commit waits for.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Looks at each page of the file while it is opened, as [`UntypedDatabase::check_pages`](crate::UntypedDatabase::check_pages)
    /// does. A page that is not what was written is [`Error::Pages`] then.
    ///
    /// LMDB trusts its pages: a wrong one can end the process by a signal. Whatever is asked for here, the first pages and the
    /// length of the file are looked at, and each record when it is read. This reads the whole file, once: 50 ms
    /// for 94 MB in memory, where opening takes 0.1 ms without. It says nothing of what a disk does later.
    ///
    /// Without it, 3 of 1,000 flipped bits of a file of 336 KB ended a process that read and wrote all of it, and 84 of 1,000 in
    /// the first 64 bytes of its pages. With it, none did.
    pub fn checked(mut self, is_checked: bool) -> Self {
        self.is_checked = is_checked;
        self
    }

    /// Opens a database to read it, and writes nothing: neither to the file nor beside it. So it can be on a filesystem that is
    /// mounted read-only, or belong to another user.
    ///
    /// # Errors
    ///
    /// [`Error::NeedsWriting`] if the file lacks a collection or an index of these types. [`Error::ReadOnly`] from
    /// [`Database::begin`](crate::Database::begin), and [`Error::NotFrozen`] from
    /// [`Database::snapshot`](crate::Database::snapshot) if it finds that somebody has written. Otherwise as
    /// [`open`](Self::open); no migration is run.
    ///
    /// # Safety
    ///
    /// While the database is open, nothing writes to the file, and LMDB does not, either: nobody is told that the file is being
    /// read, so a writer would use pages again that are still looked at.
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub unsafe fn open_read_only(self, path: &Path) -> Result<Database, Error> {
        // SAFETY: the caller promises it.
        unsafe { Database::open_read_only(path, &self) }
    }

    /// What [`open`](Self::open) would migrate. It does all of that, and then gives it up.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// As for [`open`](Self::open).
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub unsafe fn dry_run(self, path: &Path) -> Result<Vec<Migrated>, Error> {
        // SAFETY: the caller promises it.
        unsafe { Database::dry_run(path, &self) }
    }

    /// Opens a database, or makes one if there is no file. Another file beside it, whose name ends with `-lock`, has the
    /// readers. Indexes that the file does not have yet are built, and those that no type has any more are removed.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`] if the file has records of another layout. [`Error::Foreign`] if it is no database, [`Error::Cut`] if
    /// its end is missing, and [`Error::Pages`] if a page is wrong. [`Error::Network`], [`Error::OpenAlready`] and
    /// [`Error::SameProcessNumber`] where LMDB would destroy the file or not work. [`Error::NotUnique`] if a unique index
    /// is new, and records have equal values. Otherwise those of the system.
    ///
    /// # Safety
    ///
    /// While the database is open, nothing but LMDB writes to the file: it is mapped, and what is read borrows from the
    /// mapping. All processes use one name of it: of two hard links, each would have a lock of its own.
    #[expect(unsafe_code, reason = "the caller's promise is handed on")]
    pub unsafe fn open(self, path: &Path) -> Result<Database, Error> {
        // SAFETY: the caller promises it.
        unsafe { Database::open(path, &self) }
    }
}
