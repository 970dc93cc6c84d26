/*!
Reads and writes SquashFS 4.0 images.

# Trust

All bytes of an image are untrusted. Nothing reached from an image panics, and every fault is an
[`Error`] that says where.
*/
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod codec;
mod error;
mod format;

pub use codec::{Bcj, BcjSet, Codec, Compression};
pub use error::{Error, ErrorKind, Result};
