/*!
How bytes get from disk into memory.

The central trait is [`ReadAt`], positioned reads from anything that has bytes at offsets: a file,
a [`Mapping`] of one, a slice, or a [`Window`] of another source. Beside it stand the tools that a
measurement needs: [`evict`] removes a file from the page cache, and [`residency`] says how much of
it is there, so that "cold" and "warm" are proven and not assumed. [`Prefetch`] has the kernel read
parts of files before somebody needs them, in the pieces that [`plan_extents`] makes of a list of ranges
by what the disk [charges](Charge), which [`measure_charge`] finds out.

# Example

```
use brisk_io::ReadAt;

# fn main() -> std::io::Result<()> {
let file = std::fs::File::open("/proc/self/exe")?;
let mut magic = [0; 4];
file.read_exact_at(0, &mut magic)?;
assert_eq!(&magic, b"\x7fELF");
# Ok(())
# }
```

# What this crate does not do

* Interpret bytes: see `brisk-image`.
* Choose between ways to read: every caller names the one it wants.
*/
#![deny(missing_docs)]

mod advice;
mod aligned_buf;
mod async_file;
mod block_device;
mod choice;
mod disk_charge;
mod extents;
mod figures;
mod hop;
mod load;
mod mapping;
mod need;
mod page_cache;
mod prefetch;
mod read_at;
mod region;
mod sigbus;
mod strategy;
mod transfer;
mod uring;

pub use advice::{largest_advice, largest_advice_on, will_read};
pub use aligned_buf::AlignedBuf;
pub use async_file::{AsyncCounts, AsyncFile, ReadAtFuture};
pub use block_device::BlockDevice;
pub use choice::Reason;
pub use disk_charge::{MEASURED_LEN, measure_charge};
pub use extents::{Charge, DiskReads, Extent, plan_extents};
pub use figures::{LoadFigures, LoadFiguresError, Situation};
pub use load::{Loaded, Release, load, load_as};
pub use mapping::{Mapping, PrivateMapping};
pub use need::{By, Form, Need, Touch};
pub use page_cache::{
    Residency, evict, evict_and_prove, page_size, prove_warm, residency, start_writeback,
};
pub use prefetch::{Prefetch, PrefetchCounts, PrefetchOptions};
pub use read_at::{ReadAt, Window};
pub use sigbus::guard_mappings;
pub use strategy::{Strategy, UnknownStrategy};
