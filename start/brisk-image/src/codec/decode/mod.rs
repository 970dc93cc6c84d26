//! Decoding blocks.
//!
//! A file named `_c` binds a library in C, and a file named `_rust` one in safe Rust.
//!
//! What is decoded is untrusted. [`Decoder::decode`] never panics, writes only to the buffer it is
//! given, and allocates at most `MEMORY_LIMIT` bytes beside the contexts it keeps.

#[cfg(feature = "gzip")]
mod gzip_c;
#[cfg(feature = "gzip-rust")]
mod gzip_rust;
mod library;
#[cfg(feature = "lz4")]
mod lz4_c;
#[cfg(feature = "lz4-rust")]
mod lz4_rust;
#[cfg(feature = "lzo")]
mod lzo_rust;
#[cfg(any(feature = "xz", feature = "xz-rust"))]
mod memory_limit;
#[cfg(feature = "xz")]
mod xz_c;
#[cfg(feature = "xz-rust")]
mod xz_rust;
#[cfg(feature = "zstd")]
mod zstd_c;
#[cfg(feature = "zstd-rust")]
mod zstd_rust;

use self::library::{Decode, DecodeError};
use super::Codec;
use crate::error::{Error, Result, Unsupported};

/// Which libraries decode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Decoders {
    /// For each codec the fastest that was built: the one in C before the one in Rust.
    #[default]
    Fastest,
    /// Only those in safe Rust.
    Rust,
}

/// Decodes blocks, one at a time.
pub(crate) struct Decoder(Box<dyn Decode + Send>);

impl Decoder {
    /// A decoder of what `codec` compressed.
    ///
    /// # Errors
    ///
    /// `Unsupported` if this build has none.
    pub(crate) fn new(codec: Codec, decoders: Decoders) -> Result<Self> {
        let (library, features) = match decoders {
            Decoders::Fastest => (
                in_c(codec).or_else(|| in_rust(codec)),
                codec.decoder_features(),
            ),
            Decoders::Rust => (in_rust(codec), codec.rust_feature()),
        };
        library.map(Self).ok_or_else(|| {
            let codec = codec.name();
            Error::unsupported(Unsupported::DecoderLeftOut { codec, features })
        })
    }

    /// Decodes `input` to the start of `out`, and returns how many bytes it decodes to.
    ///
    /// The bytes behind them in `out` are unspecified, as are all of them after an error. It is an error
    /// if `out` is too small.
    pub(crate) fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        self.0.decode(input, out)
    }

    /// Every decoder of what `codec` compressed that was built.
    #[cfg(all(test, feature = "write"))]
    pub(in crate::codec) fn all(codec: Codec) -> impl Iterator<Item = Self> {
        [in_c(codec), in_rust(codec)]
            .into_iter()
            .flatten()
            .map(Self)
    }
}

fn in_c(codec: Codec) -> Option<Box<dyn Decode + Send>> {
    match codec {
        #[cfg(feature = "gzip")]
        Codec::Gzip => Some(Box::new(gzip_c::Decoder::new())),
        #[cfg(feature = "lz4")]
        Codec::Lz4 => Some(Box::new(lz4_c::Decoder)),
        #[cfg(feature = "xz")]
        Codec::Xz => Some(Box::new(xz_c::Decoder)),
        #[cfg(feature = "zstd")]
        Codec::Zstd => Some(Box::new(zstd_c::Decoder::new())),
        _ => None,
    }
}

fn in_rust(codec: Codec) -> Option<Box<dyn Decode + Send>> {
    match codec {
        #[cfg(feature = "gzip-rust")]
        Codec::Gzip => Some(Box::new(gzip_rust::Decoder::new())),
        #[cfg(feature = "lzo")]
        Codec::Lzo => Some(Box::new(lzo_rust::Decoder)),
        #[cfg(feature = "lz4-rust")]
        Codec::Lz4 => Some(Box::new(lz4_rust::Decoder)),
        #[cfg(feature = "xz-rust")]
        Codec::Xz => Some(Box::new(xz_rust::Decoder)),
        #[cfg(feature = "zstd-rust")]
        Codec::Zstd => Some(Box::new(zstd_rust::Decoder::new())),
        #[allow(unreachable_patterns, reason = "reachable only if a codec is left out")]
        _ => None,
    }
}
