//! The options of a codec that an image records.

use super::BcjSet;

/// Codec options that passed every check.
///
/// 1. `Gzip`: `level` is in 1..=9, `window` in 8..=15, `strategies` has no bit but the lower five.
/// 2. `Lzo`: `algorithm` is in 0..=4; `level` is in 1..=9 for algorithm 4, and 0 for the others.
/// 3. `Xz`: `dict_size` is in 4096..=1 MiB and of the form 2^n or 2^n + 2^(n-1).
/// 4. `Zstd`: `level` is in 1..=22 or in -131072..=-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecOptions {
    /// Of zlib.
    Gzip {
        /// 1 to 9.
        level: u32,
        /// The logarithm of the window in bytes.
        window: u16,
        /// A bit for each strategy of zlib that was tried: default, filtered, Huffman only, run
        /// lengths, fixed codes.
        strategies: u16,
    },
    /// Of LZO.
    Lzo {
        /// lzo1x_1, lzo1x_1_11, lzo1x_1_12, lzo1x_1_15, lzo1x_999.
        algorithm: u32,
        /// 1 to 9 for lzo1x_999, 0 for the others.
        level: u32,
    },
    /// Of LZ4.
    Lz4 {
        /// Whether the high compression mode was used.
        high: bool,
    },
    /// Of xz.
    Xz {
        /// Bytes of the dictionary.
        dict_size: u32,
        /// The branch filters that blocks may be stored with.
        filters: BcjSet,
    },
    /// Of Zstandard.
    Zstd {
        /// 1 to 22; negative levels are faster than 1.
        level: i32,
    },
}
