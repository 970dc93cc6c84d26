//! Reads with `io_uring`: a large part of a file into memory, and many small reads that others wait for.

#[cfg(feature = "io-uring")]
mod enabled;
#[cfg(feature = "io-uring")]
mod ring;
#[cfg(feature = "io-uring")]
mod ring_reads;
#[cfg(feature = "io-uring")]
pub(crate) use {
    enabled::transfer,
    ring_reads::{Alarm, RingReads},
};

#[cfg(not(feature = "io-uring"))]
mod disabled;
#[cfg(not(feature = "io-uring"))]
pub(crate) use disabled::{Alarm, RingReads, transfer};
