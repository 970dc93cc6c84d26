//! Details of the codecs: the branch filters of xz, and the options that an image records.

// A block is compressed alone, and its decoded length is known from elsewhere, so both directions are
// one call on whole buffers. An encoder and a decoder keep the contexts of their library between calls.
// Each thread has its own. Cargo features choose the libraries.

mod bcj;
mod decode;
#[cfg(any(feature = "write", feature = "profile"))]
pub(crate) mod encode;
pub(crate) mod kind;
mod options;
mod sizes;
#[cfg(all(test, feature = "write"))]
mod tests;

pub use bcj::{Bcj, BcjSet};
pub use options::CodecOptions;

pub(crate) use decode::{Decoder, Decoders};
#[cfg(any(feature = "write", feature = "profile"))]
pub(crate) use encode::{Compression, Encoder};
pub(crate) use kind::Codec;
#[cfg(any(feature = "write", feature = "profile"))]
pub(crate) use sizes::METADATA_BLOCK;
pub(crate) use sizes::is_dict_size;
