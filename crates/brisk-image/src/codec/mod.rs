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
#[cfg(all(test, feature = "write"))]
mod tests;

pub use bcj::{Bcj, BcjSet};
pub use options::CodecOptions;

pub(crate) use decode::{Decoder, Decoders};
#[cfg(any(feature = "write", feature = "profile"))]
pub(crate) use encode::{Compression, Encoder};
pub(crate) use kind::Codec;

/// The decoded size of a metadata block.
#[cfg(any(feature = "write", feature = "profile"))]
const METADATA_BLOCK: u32 = 8192;

/// Whether the kernel takes `size` as the size of a dictionary: 2^n or 2^n + 2^(n-1).
pub(crate) fn is_dict_size(size: u32) -> bool {
    let odd = size.checked_shr(size.trailing_zeros()).unwrap_or(0);
    matches!(odd, 1 | 3)
}
