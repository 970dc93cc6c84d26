/*!
How bytes get from disk into memory.

The central trait is [`ReadAt`], positioned reads from anything that has bytes at offsets: a file,
a [`Mapping`] of one, a slice, or a [`Window`] of another source. [`load`] brings a large part of a file into
memory in the way that suits what it is [needed](Need) for, and says which [`Strategy`] that was and why.
[`AsyncFile`] gives small parts to asynchronous programs, at once where they are in memory, and [`block_on`]
runs such a program in a thread that waits for the disk itself. [`CodeCache`] keeps code that programs have
generated, for the next run to map.

Beside them stand the tools that a measurement needs: [`evict`] removes a file from the page cache, and
[`residency`] says how much of it is there, so that "cold" and "warm" are proven and not assumed.
[`Prefetch`] has the kernel read parts of files before somebody needs them, in the pieces that
[`plan_extents`] makes of a list of ranges by what the disk [charges](Charge), which [`measure_charge`] finds
out.

# Example

```
use brisk_io::{Form, Need, load};

# fn main() -> std::io::Result<()> {
let file = std::fs::File::open("/proc/self/exe")?;
let need = Need {
    form: Form::Patched,
    ..Need::default()
};
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

Nothing here believes what a file says, for nothing interprets it, but for the entries of a [`CodeCache`],
every byte of which is checked. But a file can be cut while it is mapped:
[`guard_mappings`] makes that an error instead of the end of the process. A borrowed slice of a mapping is
sound only as long as nobody writes to the file, or cuts it; copying reads ([`ReadAt`]) need no such promise.

# Features

* `io-uring`: loading by `io_uring`, and reads of an [`AsyncFile`] that have to wait. Without it
  [`Strategy::Uring`] and [`Strategy::UringDirect`] are refused, and threads read.

# What this crate does not do

* Interpret bytes: see `brisk-image`.
* Write, but for what patches a private mapping, and for the entries of a [`CodeCache`].
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
mod hop;
mod hop_group;
mod hop_pool;
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
mod region;
mod sigbus;
mod strategy;
mod transfer;
mod uring;

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
pub use disk_charge::{MEASURED_LEN, measure_charge};
pub use executor::block_on;
pub use extents::{Charge, DiskReads, Extent, plan_extents};
pub use immutable_file::ImmutableFile;
pub use kernel_calls::{try_cachestat, try_io_uring, try_nowait};
pub use load::{Loaded, Release, load, load_as};
pub use load_source::LoadSource;
pub use mapping::{ImmutableMapping, Mapping};
pub use need::{Form, Need, Touch};
pub use page_cache::{
    Residency, cached_pages, evict, evict_and_prove, page_size, prove_warm, residency,
    start_writeback,
};
pub use prefetch::{Prefetch, PrefetchCounts, PrefetchFiles, PrefetchOptions};
pub use read_at::{ReadAt, Window};
pub use sigbus::guard_mappings;
pub use strategy::{Strategy, UnknownStrategy};
pub use transfer::{DIRECT_ALIGNMENT, open_direct, read_at_least};
