/*!
A cache on disk that any number of processes share, and whose warm hits allocate, parse and copy nothing.

The central type is [`Cache`], a handle of a directory. [`Cache::get`] returns a [`Hit`], which copies the value or, after
[`Cache::open_mapped`], borrows it from a mapping of the file that has it. [`Cache::insert`] appends a record and writes one slot of an index.
[`Cache::get_or_insert_with`] lets one of all processes fetch what is missing. [`Cache::pending`] stores a value while it
arrives, and threads read along. [`Inspection`] looks at a directory from outside, as `brisk cache` does.

# Example

```
use brisk_cache::{About, Cache, CacheOptions};

# fn main() -> std::io::Result<()> {
# let home = tempfile::tempdir()?;
# let directory = home.path().join("pages");
let cache = Cache::open(&directory, CacheOptions::new())?;
let fetch = || std::io::Result::Ok(b"a page".to_vec());
let hit = cache.get_or_insert_with(b"https://example.org/", About::default(), fetch)?;
assert_eq!(hit.bytes()?, b"a page");
assert!(cache.get(b"https://example.org/none")?.is_none());
# Ok(())
# }
```

Where hits are to borrow from the files, and only programs that use this crate write to the directory, promise that:

```no_run
# use brisk_cache::{Cache, CacheOptions};
# fn example(directory: &std::path::Path) -> std::io::Result<()> {
// SAFETY: nothing but this crate writes to the directory.
let cache = unsafe { Cache::open_mapped(directory, CacheOptions::new()) }?;
# Ok(())
# }
```

[`CodeCache`] is a cache of generated code, whose values are mapped as wholes.

# Promises

1. What is found is what was inserted under an equal key, byte by byte. Damage, a killed writer and a loss of power give
   a miss and a [count](CacheCounts), never a wrong byte. A loss of power may bring back an older value.
2. A process that is killed costs nothing that was inserted before. With [`Durability::Durable`], a loss of power does
   not either.
3. Reading takes no lock and waits for nobody, with one exception: a handle that finds a damaged entry for the first time
   asks for the lock, at most a second, because another process may just be writing it. The first answer of a handle takes a few reads and maps nothing. After that,
   the first hit in a file maps it, and later ones take no system call, unless a use is to be
   [noted](CacheOptions::note_use_after). Every ten minutes, one hit gives up the maps of files that are gone.
4. The files have at most as many bytes as the [limit](CacheOptions::limit) says, beside large values that are just being
   written. The oldest go first; entries that were used are copied forward. They also go where the disk is full below the
   limit.
5. A [`Hit`] stays as it is while its entry is replaced, evicted or removed.
6. Handles work on in forked children, which hold no lock of their parents.

`docs/cache-format.md` has the bytes, and how each race between processes ends.

# Trust

All who can write to the directory decide what this program reads. So a directory that belongs to another user than this
one and root, or that others may write, is refused. A process of the same user that writes rubbish there by accident
causes misses. One that does so on purpose can forge values, because checks are no signatures.

[`Cache::open`] copies a value before it checks it, so nobody can change what was checked. [`Cache::open_mapped`] checks
the mapping itself, which takes a promise: it is `unsafe`. If somebody cuts a file, or its disk fails, touching a lost
page ends the process, or is a miss after [`guard_mappings`](brisk_io::guard_mappings).

On filesystems other than ext4, XFS, btrfs, tmpfs and overlay, files are read and not mapped, and a writer first
proves that locks work there.

# Features

None is on by default.

* `bytes`: [`Hit::into_bytes`] and [`Hit::part_bytes`] give `bytes::Bytes` that pin the mapping and copy nothing.
* `tokio`: [`AsyncCache`] answers hits at once, on the task that asks, and takes a thread only for what may wait.
* `rkyv`: [`Cache::archives`] keeps archives of a program's own types, as the crate rkyv makes them. They are always
  checked. A look-up in a long archive takes as long as its check; [`FlatTable`] takes as long as its look-ups.

# What this crate does not do

* Know when a value is stale: `brisk-http` knows it of HTTP responses.
* Keep what must not be lost: it is a cache, and evicts.
* Interpret values. [`About::fingerprint`] says which layout one has, and [`Stored`] gives a view of it. [`Layout`] computes the
  fingerprint of a type from its fields.
* Run on anything but Linux.
*/
#![deny(unsafe_code)]
#![deny(missing_docs)]

// The derive macro names this crate as others do.
extern crate self as brisk_cache;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod about;
mod ahead;
mod append;
#[cfg(feature = "rkyv")]
mod archives;
#[cfg(feature = "tokio")]
mod async_cache;
mod cache;
mod cached_code;
mod clock;
mod code_cache;
mod code_key;
mod counters;
mod directory;
mod disk;
mod entry;
mod eviction;
mod fences;
mod fingerprint;
mod first_files;
mod first_look;
mod flat_table;
mod flight;
mod format;
mod growth;
mod hit;
#[cfg(feature = "bytes")]
mod hit_bytes;
mod index;
mod insertion;
mod inspection;
mod known_damage;
mod layout;
mod lock;
mod locked;
mod lookup;
mod new_index;
mod options;
#[cfg(feature = "rkyv")]
mod owned_archive;
mod pending;
mod promise;
mod pruning;
mod random;
mod recovery;
mod segment;
mod source;
mod stat;
mod store;
mod stored;
mod trust;
mod unfinished;
mod upkeep;
mod value_file;
mod value_parts;
mod verified;
mod writer;

#[cfg(test)]
mod tests;

pub use brisk_objects_derive::Layout;

pub use about::About;
#[cfg(feature = "rkyv")]
pub use archives::{ArchivedHit, Archives};
#[cfg(feature = "tokio")]
pub use async_cache::AsyncCache;
pub use cache::Cache;
pub use cached_code::CachedCode;
pub use code_cache::{Check, CodeCache, CodeCacheOptions};
pub use code_key::CodeKey;
pub use entry::{Entries, Entry};
pub use fingerprint::fingerprint;
pub use flat_table::{FlatTable, FlatTableBuilder, Text};
#[cfg(feature = "tokio")]
pub use flight::Flight;
pub use hit::{FilePart, Hit};
pub use inspection::{
    Damage, DataFile, Explanation, FoundRecord, FoundSegment, FoundSlot, IndexMark, Inspection,
    LayoutStat, LedgerSummary, Outcome, Summary, Verification,
};
#[doc(hidden)]
pub use layout::layout_of_fields;
pub use layout::{Layout, fingerprint_of};
pub use options::{CacheOptions, Durability};
#[cfg(feature = "rkyv")]
pub use owned_archive::{OwnedArchive, StoredArchive};
pub use pending::{Pending, PendingReader};
pub use pruning::Pruned;
pub use stat::{BucketStat, CacheCounts, CacheStat};
pub use stored::{Stored, StoredHit};
pub use value_parts::ValueParts;
