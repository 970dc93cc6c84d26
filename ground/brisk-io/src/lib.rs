/*!
Reads files into memory in the fastest way that the machine offers, and says what is in memory already.

Which way is fastest depends on how much a program needs, whether it is in the page cache, and what it does with the
bytes. This crate has all ways behind a few calls, and chooses between them:

| you want | begin with |
|---|---|
| a large part of a file, as one slice | [`load`]: chooses the way by what the program [needs](Need), and says which [`Strategy`] it used and why |
| positioned reads from a file, a [`Mapping`], a slice or a [`Window`] of another source | the trait [`ByteSource`] |
| many small parts of a file, in an asynchronous program | [`AsyncFile`]: answers at once what is in memory |
| the kernel to read parts of files ahead | [`Prefetch`]. [`plan_extents`] decides in which pieces, by what the disk [charges](Charge), and [`measure_charge`] measures that |
| to borrow records of a file that others append to | [`AppendOnlyMapping`] |
| what a forked child must not share with its parent | [`PerProcess`], [`UnsharedFile`] |
| the time, many times | [`coarse_seconds`], [`coarse_milliseconds`] |
| to know what is in the page cache, or to empty it of a file | [`residency`] and [`evict`]. With them, a measurement can prove "cold" and "warm". [`read_if_cached`] reads only what is there |

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

This crate interprets no file. Two things can happen to a mapped file:

* Somebody writes to it. Reads that copy ([`ByteSource`]) then return older or newer bytes, and nothing else. Borrowing needs
  a promise that nobody writes: see [`ImmutableFile`] and [`AppendOnlyFile`].
* Somebody truncates it, or its disk fails. Touching a lost page ends the process, or is an error after
  [`guard_mappings`].

# Features

* `io-uring`: `io_uring` loads files, and an [`AsyncFile`] uses it for what is not in memory. Without the feature,
  [`Strategy::Uring`] and [`Strategy::UringDirect`] are refused, and threads read instead.

# Systems

All of this crate is for Linux. On macOS and Windows, it has what reading bytes at offsets needs: [`ByteSource`],
[`Window`], [`AlignedBuf`] and [`open_at_once`]. No test runs there; each change is compiled for x86-64 of both.

# What this crate does not do

* Interpret bytes: see `brisk-image`.
* Write, except into a private mapping.
* Read ahead, map files or know what is in memory on anything but Linux.
*/
#![deny(missing_docs)]

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod aligned_buf;
mod byte_source;

// All that varies with the system is chosen here. What each system has stands there with the same face.
cfg_if::cfg_if! {
    if #[cfg(target_os = "linux")] {
        mod advice;
        mod append_only;
        mod async_file;
        mod block_device;
        mod cache_home;
        mod choice;
        mod coarse_clock;
        mod cpu_features;
        mod disk_charge;
        mod extents;
        mod filesystem;
        mod immutable_file;
        mod kernel_calls;
        mod large_pages;
        mod load;
        mod load_source;
        mod maker;
        mod mapping;
        mod need;
        mod page_cache;
        mod per_process;
        mod prefetch;
        mod racing_copy;
        mod range_lock;
        mod read_group;
        mod read_pool;
        mod region;
        mod sigbus;
        mod strategy;
        mod transfer;
        mod unshared_file;
        mod uring;
        mod waiting_read;

        #[cfg(test)]
        #[path = "../tests/machine/mod.rs"]
        mod machine;

        pub use advice::{largest_advice, largest_advice_on, will_read, will_read_all};
        pub use append_only::{AppendOnlyFile, AppendOnlyMapping};
        pub use async_file::{AsyncCounts, AsyncFile, ReadAtFuture};
        pub use block_device::BlockDevice;
        pub use cache_home::cache_home;
        pub use choice::Reason;
        pub use coarse_clock::{coarse_milliseconds, coarse_seconds};
        pub use cpu_features::cpu_features;
        pub use disk_charge::measure_charge;
        pub use extents::{Charge, DiskReads, Extent, plan_extents};
        pub use filesystem::Filesystem;
        pub use immutable_file::ImmutableFile;
        pub use large_pages::{LARGE_PAGE, cache_in_large_pages};
        pub use load::{Loaded, load};
        pub use load_source::LoadSource;
        pub use mapping::{ImmutableMapping, Mapping};
        pub use need::{Form, Need, Touch};
        pub use page_cache::{
            Residency, cached_pages, ends_are_cached, evict, page_size, read_if_cached, residency,
            start_writeback,
        };
        pub use per_process::PerProcess;
        pub use prefetch::{Prefetch, PrefetchCounts, PrefetchFiles, PrefetchOptions};
        pub use range_lock::try_lock_byte;
        pub use sigbus::guard_mappings;
        pub use strategy::{Strategy, UnknownStrategy};
        pub use transfer::{DIRECT_ALIGNMENT, open_direct, read_at_least};
        pub use unshared_file::UnsharedFile;

        /// Aids for measurements: they prove that a cache is cold or warm, load by a given strategy, and try what the kernel allows.
        ///
        /// Programs that only read files do not need them.
        pub mod measure {
            pub use crate::disk_charge::MEASURED_LEN;
            pub use crate::load::load_as;
            pub use crate::kernel_calls::{try_cachestat, try_io_uring, try_nowait};
            pub use crate::page_cache::{evict_and_prove, prove_warm};
        }
    } else {
        #[path = "elsewhere/advice.rs"]
        mod advice;
    }
}
cfg_if::cfg_if! {
    if #[cfg(windows)] {
        #[path = "windows/file_source.rs"]
        mod file_source;
        #[path = "windows/open.rs"]
        mod open;
    } else {
        mod file_source;
        mod open;
    }
}

pub use aligned_buf::AlignedBuf;
pub use byte_source::{ByteSource, Window};
pub use open::open_at_once;
