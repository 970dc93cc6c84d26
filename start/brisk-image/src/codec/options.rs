//! The options of a codec that an image records.

use super::BcjSet;

/// Codec options that passed every check.
///
/// 1. `Gzip`: `level` is in 1..=9, `window` in 8..=15, `strategies` has no bit but the lower five.
/// 2. `Lzo`: `algorithm` is in 0..=4; `level` is in 1..=9 for algorithm 4, and 0 for the others.
/// 3. `Xz`: `dict_size` is in 4096..=1 MiB and of the form 2^n or 2^n + 2^(n-1).
/// 4. `Zstd`: `level` is in 1..=22 or in -131072..=-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(untagged))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub enum CodecOptions {
    /// Of zlib.
    Gzip {
        /// Level of gzip: 1 to 9.
        level: u32,
        /// The logarithm of the window of gzip in bytes.
        window: u16,
        /// A bit for each strategy of gzip that was tried: default, filtered, Huffman only, run
        /// lengths, fixed codes.
        strategies: u16,
    },
    /// Of LZO.
    Lzo {
        /// Algorithm of lzo, from 0: lzo1x_1, lzo1x_1_11, lzo1x_1_12, lzo1x_1_15, lzo1x_999.
        algorithm: u32,
        /// Level of lzo: 1 to 9 for algorithm 4, 0 for the others.
        level: u32,
    },
    /// Of LZ4.
    Lz4 {
        /// Whether the high compression mode of lz4 was used.
        #[cfg_attr(feature = "serde", serde(rename = "high_compression"))]
        high: bool,
    },
    /// Of xz.
    Xz {
        /// Size of the dictionary of xz.
        dict_size: u32,
        /// The branch filters of xz that blocks may be stored with.
        filters: BcjSet,
    },
    /// Of Zstandard.
    Zstd {
        /// Level of zstd: 1 to 22, or negative, which is faster than 1.
        level: i32,
    },
}
