//! Which compressors there are.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A compressor of SquashFS 4.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// zlib streams (RFC 1950).
    Gzip,
    /// LZO1X blocks.
    Lzo,
    /// LZ4 blocks without a frame.
    Lz4,
    /// xz streams of LZMA2.
    Xz,
    /// Zstandard frames (RFC 8878).
    Zstd,
}

impl Codec {
    /// Every codec, in the order of their ids in an image.
    pub const ALL: [Self; 5] = [Self::Gzip, Self::Lzo, Self::Xz, Self::Lz4, Self::Zstd];

    /// The codec with this id in a superblock, if there is one.
    pub(crate) fn from_wire(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.to_wire() == id)
    }

    /// The id of the codec in a superblock.
    pub(crate) fn to_wire(self) -> u16 {
        match self {
            Self::Gzip => 1,
            Self::Lzo => 3,
            Self::Xz => 4,
            Self::Lz4 => 5,
            Self::Zstd => 6,
        }
    }

    /// The name of the codec: `gzip`, `lzo`, `xz`, `lz4` or `zstd`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Lzo => "lzo",
            Self::Xz => "xz",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The Cargo features that bring a decoder, as a message names them.
    pub(crate) fn decoder_features(self) -> &'static str {
        match self {
            Self::Gzip => "gzip or gzip-rust",
            Self::Lzo => "lzo",
            Self::Lz4 => "lz4 or lz4-rust",
            Self::Xz => "xz or xz-rust",
            Self::Zstd => "zstd or zstd-rust",
        }
    }

    /// The Cargo feature that brings the decoder in safe Rust.
    pub(crate) fn rust_feature(self) -> &'static str {
        match self {
            Self::Gzip => "gzip-rust",
            Self::Lzo => "lzo",
            Self::Lz4 => "lz4-rust",
            Self::Xz => "xz-rust",
            Self::Zstd => "zstd-rust",
        }
    }

    /// The Cargo feature that brings the encoder.
    #[cfg(any(feature = "write", feature = "profile"))]
    pub(crate) fn encoder_feature(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Lzo => "lzo-encode",
            Self::Lz4 => "lz4",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Codec {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::from_name(name).ok_or_else(|| {
            Error::input(format!(
                "codec is {name:?}, allowed is gzip, lzo, xz, lz4 or zstd"
            ))
        })
    }
}
