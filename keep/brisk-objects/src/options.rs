//! How a database is opened.

use crate::definition::Definition;
use crate::durability::Durability;
use crate::environment::READERS;
use crate::migration::Migration;
use crate::record::{Record, ViewOf};

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
    /// does. A page that is not what was written is [`Error::Pages`](crate::Error::Pages) then.
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
}
