//! Copying a large part of a file into memory by `io_uring`.

#[cfg(feature = "io-uring")]
mod enabled;
#[cfg(feature = "io-uring")]
pub(crate) use enabled::transfer;

#[cfg(not(feature = "io-uring"))]
mod disabled;
#[cfg(not(feature = "io-uring"))]
pub(crate) use disabled::transfer;
