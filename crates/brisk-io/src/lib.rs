/*!
Brings bytes from disk into memory.

The central trait is [`ReadAt`]: positioned reads from anything that has bytes at offsets, such as a file, a
[`Mapping`], a slice, or a [`Window`] of another source.

* [`load`] brings a large part of a file into memory. It chooses the way by what the program [needs](Need), and says
  which [`Strategy`] it took and why.
* [`AsyncFile`] gives small parts of a file to asynchronous programs, at once if they are in memory. [`block_on`] runs
  such a program on a thread that waits for the disk itself.
* [`CodeCache`] keeps generated code, for the next run to map.
* [`Prefetch`] has the kernel read parts of files ahead. [`plan_extents`] decides in which pieces, by what the disk
  [charges](Charge), and [`measure_charge`] finds that out.
* [`evict`] removes a file from the page cache, and [`residency`] says how much of it is there. With them, a measurement
  proves "cold" and "warm".

# Example

```
use brisk_io::{Form, Need, load};

# fn main() -> std::io::Result<()> {
let file = std::fs::File::open("/proc/self/exe")?;
let need = Need::new().form(Form::Patched);
let mut loaded = load(&file, 0..100_000, need)?;
assert!(loaded.as_slice().starts_with(b"\x7fELF"));
if let Some(bytes) = loaded.as_mut_slice() {
    // The file does not change.
    bytes[0] = 0;
}
println!("{}: {}", loaded.strategy(), loaded.reason());
loaded.check()?;
# Ok(())
# }
```

# Trust

This crate interprets no file, except for the entries of a [`CodeCache`], and it checks every byte of those. Two things
can still happen to a mapped file:

* Somebody writes to it. Copying reads ([`ReadAt`]) then give older or newer bytes, and nothing else. Borrowing needs a
  promise that nobody writes: see [`ImmutableFile`].
* Somebody cuts it, or its disk fails. Touching a lost page ends the process, or is an error after
  [`guard_mappings`].

# Features

* `io-uring`: `io_uring` loads files, and reads for an [`AsyncFile`] what is not in memory. Without it,
  [`Strategy::Uring`] and [`Strategy::UringDirect`] are refused, and threads read.

# What this crate does not do

* Interpret bytes: see `brisk-image`.
* Write, except into a private mapping and for the entries of a [`CodeCache`].
* Run on anything but Linux.
*/
#![deny(missing_docs)]

mod advice;
mod aligned_buf;
mod async_file;
mod block_device;
mod cache_home;
mod choice;
mod code_cache;
mod cpu_features;
mod disk_charge;
mod executor;
mod extents;
mod immutable_file;
mod kernel_calls;
mod load;
mod load_source;
mod mapping;
mod need;
mod page_cache;
mod prefetch;
mod racing_copy;
mod read_at;
mod read_group;
mod read_pool;
mod region;
mod sigbus;
mod strategy;
mod transfer;
mod uring;
mod waiting_read;

#[cfg(test)]
#[path = "../tests/machine/mod.rs"]
mod machine;

pub use advice::{largest_advice, largest_advice_on, will_read, will_read_all};
pub use aligned_buf::AlignedBuf;
pub use async_file::{AsyncCounts, AsyncFile, ReadAtFuture};
pub use block_device::BlockDevice;
pub use cache_home::cache_home;
pub use choice::Reason;
pub use code_cache::{
    CachedCode, Check, CodeCache, CodeCacheOptions, CodeKey, Damage, Evicted, Lookup, Miss,
};
pub use cpu_features::cpu_features;
pub use disk_charge::measure_charge;
pub use executor::block_on;
pub use extents::{Charge, DiskReads, Extent, plan_extents};
pub use immutable_file::ImmutableFile;
pub use load::{Loaded, Release, load, load_as};
pub use load_source::LoadSource;
pub use mapping::{ImmutableMapping, Mapping};
pub use need::{Form, Need, Touch};
pub use page_cache::{Residency, cached_pages, evict, page_size, residency, start_writeback};
pub use prefetch::{Prefetch, PrefetchCounts, PrefetchFiles, PrefetchOptions};
pub use read_at::{ReadAt, Window};
pub use sigbus::guard_mappings;
pub use strategy::{Strategy, UnknownStrategy};
pub use transfer::{DIRECT_ALIGNMENT, open_direct, read_at_least};

/// Aids for those who measure: caches that are proven cold or warm, and what the kernel allows.
///
/// Programs that read files need none of it.
pub mod measure {
    pub use crate::disk_charge::MEASURED_LEN;
    pub use crate::kernel_calls::{try_cachestat, try_io_uring, try_nowait};
    pub use crate::page_cache::{evict_and_prove, prove_warm};
}
