/*!
Typed records in one file, found by key, by index or by a condition, without a parse.

The central type is [`Database`]. A struct becomes a [`Record`] by a derive macro, and each of its indexes a constant. A
[`Transaction`] changes records of any collections and their indexes together. A [`Snapshot`] reads: what it finds is a
view, whose methods look at the bytes in the file. A [`Query`] is lazy.

# Example

```
use brisk_objects::{Options, Record};

#[derive(Record, Debug, Clone, PartialEq)]
struct Invoice {
    #[key(auto)]
    id: u64,
    #[index]
    customer: String,
    #[unique]
    number: String,
    cents: i64,
}

# fn main() -> Result<(), brisk_objects::Error> {
# let home = tempfile::tempdir()?;
# let path = home.path().join("ledger.db");
// SAFETY: nothing but this crate writes to the file.
let db = unsafe { Options::new().collection::<Invoice>().open(&path) }?;
let id = db.write(|tx| {
    let invoice = |customer: &str, number: &str, cents| Invoice {
        id: 0,
        customer: customer.to_owned(),
        number: number.to_owned(),
        cents,
    };
    tx.insert(&invoice("bob", "2026-1", 500))?;
    tx.insert(&invoice("ann", "2026-2", 1200))
})?;

let snapshot = db.snapshot()?;
let invoice = snapshot.get::<Invoice>(id)?.expect("it was inserted");
assert_eq!((invoice.customer(), invoice.cents()), ("ann", 1200));

let query = snapshot
    .query::<Invoice>()
    .by(Invoice::CUSTOMER)
    .range("a".."c")
    .filter(|invoice| invoice.cents() > 100)
    .take(10);
assert_eq!(
    query.explain(),
    "index customer(customer) of invoice, from \"a\", until \"c\"; look up each record; filter; take 10"
);
let numbers: Vec<String> = query.iter()?.map(|invoice| Ok(invoice?.number().to_owned())).collect::<Result<_, brisk_objects::Error>>()?;
assert_eq!(numbers, ["2026-2", "2026-1"]);
# Ok(())
# }
```

# Promises

1. Records and their indexes change together or not at all, over all collections, whenever a process is killed. With
   [`Durability::Full`], a loss of power loses nothing that was committed. With [`Durability::Lazy`] it can cost the file, which
   is refused then.
2. A snapshot sees the records of one moment. Reading waits for no writer.
3. A look-up allocates nothing and copies nothing, unless a key has more than 64 bytes.
4. A record is checked whenever it is looked at: damage is an error, never a wrong value. A file that was cut is refused when
   it is opened. The pages of LMDB have no check of their own: a damaged one can hide records, make LMDB fail, or end the
   process. An error names the file, the first wrong page and the collection that it belongs to. [`Options::checked`] looks at
   all pages when the file is opened.
5. A type whose fields are others than those in the file is refused, with both layouts. If another program changes layouts or
   indexes later, snapshots and transactions are refused until the file is opened anew.

# Trust

All who can write to the file decide what this program reads, so opening it takes a promise: it is `unsafe`. If somebody
cuts the file, or its disk fails, touching a lost page ends the process.

# What LMDB asks of a program

The ground is [LMDB](https://www.symas.com/mdb), by the crate `heed`.

* A snapshot keeps the pages that it sees. End it soon, or the file grows.
* The file has places for [so many](Options::readers) snapshots over all processes. Those of killed processes are taken
  back when a database is opened, after each 64 commits, when the file has reached its limit, and when there is no place
  left.
* A key has at most 504 bytes as it is stored, and an entry of an index 511. For longer texts, use [`key_digest`].
* A process opens a file once, and clones the handle. In a forked child, every call is an error, and the child cannot open the file
  anew: fork before you open it, or let the child execute a program. If another thread opens or closes a database at the moment of the
  fork, a child that opens any database waits for ever.
* Two containers that share a file share process numbers, too, or the second one is refused.
* Readers and writers note themselves in a file beside it, whose name ends with `-lock`. If that is missing and root opens the
  file of another user, it gets the owner and the mode of the file.
* A file on a network or a cluster is refused. One that may only be read is opened by [`Options::open_read_only`], which writes
  nothing.
* The file grows up to a [limit](Options::limit), and never shrinks. Each commit copies the pages that it changes, and keeps the
  old ones for later: a transaction that fills an index at random changes most pages of it. A [copy](Database::copy_to) has no
  unused pages, and full ones. A file that is filled in one transaction has none, either.

# Without its types

[`UntypedDatabase`] looks into the database of any program, and checks it: the file says what its records are. `brisk db` is that
as a command.

# Features

* `tokio`: [`AsyncDatabase`] reads on the task that asks while the file is in memory, and moves to another thread what may
  wait. It is not on by default.
* `uuid`: fields and keys of the type `uuid::Uuid`. The file has them as `[u8; 16]`. It is not on by default.

# What this crate does not do

* Evict: what must be bounded belongs into `brisk-cache`.
* Join: a program looks up what a record names.
* Run on anything but Linux.
*/
#![deny(unsafe_code)]
#![deny(missing_docs)]

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// The derive macros name this crate as others do.
extern crate self as brisk_objects;

mod about;
#[cfg(feature = "tokio")]
mod async_database;
mod check;
mod cursor;
mod database;
mod definition;
mod durability;
mod environment;
mod error;
mod full_copy;
mod index;
mod index_filling;
mod inner;
mod key;
mod key_bytes;
mod key_digest;
mod key_range;
mod kind;
mod lazy_mark;
mod list;
mod location;
mod lock_file;
mod map;
mod migration;
mod opener;
mod opening;
mod options;
mod query;
mod reading;
mod record;
#[cfg(feature = "tokio")]
mod resident_path;
mod schema;
mod snapshot;
mod store_error;
mod stored_record;
mod table;
mod transaction;
mod unfinished;
mod untyped;
#[cfg(feature = "uuid")]
mod uuid;
mod value;

#[cfg(feature = "tokio")]
pub use async_database::{AsyncDatabase, ReadCounts};
pub use brisk_cache::Stored;
pub use brisk_objects_derive::{Record, Value};
pub use cursor::Cursor;
pub use database::Database;
pub use durability::Durability;
pub use error::Error;
pub use index::Index;
#[doc(hidden)]
pub use key::describe_key;
pub use key::{AsKey, AsKeyPrefix, Key};
pub use key_bytes::KeyBytes;
pub use key_digest::key_digest;
pub use kind::{Field, Type};
pub use list::List;
pub use map::Map;
pub use migration::Migrated;
pub use options::Options;
pub use query::{Keys, Query, Records};
pub use record::{Record, ViewOf};
pub use schema::{IndexSchema, Schema};
pub use snapshot::Snapshot;
pub use transaction::Transaction;
pub use untyped::{
    Fault, Misread, PageFaults, Plain, TableSize, UntypedCollection, UntypedDatabase, UntypedQuery,
    UntypedRecords, UntypedWriter,
};
#[doc(hidden)]
pub use value::widest;
pub use value::{Place, Value, ValueWriter};
