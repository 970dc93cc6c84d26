//! The codec options of an image: a metadata block behind the superblock that is always stored
//! uncompressed. It is there if flag `0x400` of the superblock is set.
//!
//! | codec | bytes | fields |
//! |---|---|---|
//! | gzip | 8 | level `u32`, window `u16`, strategies `u16` |
//! | lzo | 8 | algorithm `u32`, level `u32` |
//! | xz | 8 | dictionary size `u32`, branch filters `u32` |
//! | lz4 | 8 or 12 | version `u32`, flags `u32`; since mksquashfs 4.7.6, where flags say so, a level |
//! | zstd | 4 | level `i32` |
//!
//! No decoder needs them, but for two things: the kernel reads no lz4 image without them, and it
//! allocates the xz dictionary they name, so no block may ask for a larger one. Without them the
//! defaults hold: gzip level 9 and window 15, lzo1x_999 at level 8, an xz dictionary of the block
//! size (of 8 KiB if that is more) and no filters, zstd level 15.

use zerocopy::little_endian::{I32, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[cfg(feature = "write")]
use crate::codec::Compression;
use crate::codec::{BcjSet, Codec, CodecOptions, is_dict_size};
use crate::error::{Allowed, Corrupt, Error, Location, Result};

mod wire {
    use super::{FromBytes, I32, Immutable, IntoBytes, KnownLayout, U16, U32, Unaligned};

    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub(super) struct Gzip {
        pub(super) level: U32,
        pub(super) window: U16,
        pub(super) strategies: U16,
    }

    #[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub(super) struct Lzo {
        pub(super) algorithm: U32,
        pub(super) level: U32,
    }

    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub(super) struct Lz4 {
        pub(super) version: U32,
        pub(super) flags: U32,
    }

    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub(super) struct Xz {
        pub(super) dict_size: U32,
        pub(super) filters: U32,
    }

    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub(super) struct Zstd {
        pub(super) level: I32,
    }
}

/// The largest block of SquashFS 4.0, and so the largest dictionary that can be of use.
const MAX_BLOCK: u32 = 1 << 20;
/// The least dictionary of LZMA2. mksquashfs writes it for filters with blocks of 4 KiB.
const LEAST_DICT: u32 = 4096;
/// The kernel decodes metadata blocks with the dictionary of data blocks.
const METADATA_BLOCK: u32 = 8192;

const GZIP_WINDOW: u16 = 15;
const GZIP_STRATEGIES: u16 = 0x1f;
const LZO1X_999: u32 = 4;
const LZ4_VERSION: u32 = 1;
const LZ4_HIGH: u32 = 1;
/// Of flags: high compression, and a level behind them.
const LZ4_FLAGS: u32 = 3;
/// The fastest of the negative levels, which are those of `zstd --fast`.
const ZSTD_FASTEST: i32 = -131_072;

/// The checked options in `bytes`, the content of the metadata block, which begins at `at`.
///
/// Bytes behind those of the codec are not looked at.
pub(crate) fn parse(codec: Codec, bytes: &[u8], at: Location) -> Result<CodecOptions> {
    match codec {
        Codec::Gzip => {
            let raw: wire::Gzip = read(bytes, at)?;
            let level = raw.level.get();
            in_range(behind(at, 0), "gzip level", level, 1, 9)?;
            let window = raw.window.get();
            in_range(behind(at, 4), "gzip window", window.into(), 8, 15)?;
            let strategies = raw.strategies.get();
            at_most(
                behind(at, 6),
                "gzip strategies",
                strategies.into(),
                GZIP_STRATEGIES.into(),
            )?;
            Ok(CodecOptions::Gzip {
                level,
                window,
                strategies,
            })
        }
        Codec::Lzo => {
            let raw: wire::Lzo = read(bytes, at)?;
            let (algorithm, level) = (raw.algorithm.get(), raw.level.get());
            at_most(behind(at, 0), "lzo algorithm", algorithm, LZO1X_999)?;
            if algorithm == LZO1X_999 {
                in_range(behind(at, 4), "lzo level", level, 1, 9)?;
            } else {
                only(behind(at, 4), "lzo level", level, 0)?;
            }
            Ok(CodecOptions::Lzo { algorithm, level })
        }
        Codec::Lz4 => {
            let raw: wire::Lz4 = read(bytes, at)?;
            only(behind(at, 0), "lz4 version", raw.version.get(), LZ4_VERSION)?;
            let flags = raw.flags.get();
            at_most(behind(at, 4), "lz4 flags", flags, LZ4_FLAGS)?;
            let high = flags & LZ4_HIGH != 0;
            Ok(CodecOptions::Lz4 { high })
        }
        Codec::Xz => {
            let raw: wire::Xz = read(bytes, at)?;
            let (dict_size, filters) = (raw.dict_size.get(), raw.filters.get());
            if !(LEAST_DICT..=MAX_BLOCK).contains(&dict_size) || !is_dict_size(dict_size) {
                let allowed = Allowed::Text("2^n or 2^n + 2^(n-1), 4096 to 1048576");
                let field = "xz dictionary size";
                return Err(Error::field(behind(at, 0), field, dict_size, allowed));
            }
            let Some(filters) = BcjSet::from_wire(filters) else {
                let allowed = Allowed::AtMost(0xff);
                return Err(Error::field(behind(at, 4), "xz filters", filters, allowed));
            };
            Ok(CodecOptions::Xz { dict_size, filters })
        }
        Codec::Zstd => {
            let raw: wire::Zstd = read(bytes, at)?;
            let level = raw.level.get();
            if !matches!(level, 1..=22 | ZSTD_FASTEST..=-1) {
                let allowed = Allowed::Text("1 to 22, or -131072 to -1 as unsigned");
                let found = u32::from_ne_bytes(level.to_ne_bytes());
                return Err(Error::field(behind(at, 0), "zstd level", found, allowed));
            }
            Ok(CodecOptions::Zstd { level })
        }
    }
}

/// The content of the metadata block for an image of `compression`, or `None` where mksquashfs
/// leaves it out: where there is nothing but defaults.
///
/// lzo has one encoder here, whose blocks are like those of lzo1x_999, which is the default.
#[cfg(feature = "write")]
pub(crate) fn encode(compression: &Compression, block_size: u32) -> Option<Vec<u8>> {
    match *compression {
        Compression::None | Compression::Lzo {} => None,
        Compression::Gzip { level } => {
            // The field knows the levels of zlib; libdeflate has three more.
            let level = u32::from(level.min(9));
            (level != 9).then(|| {
                let raw = wire::Gzip {
                    level: level.into(),
                    window: GZIP_WINDOW.into(),
                    strategies: 0.into(),
                };
                raw.as_bytes().to_vec()
            })
        }
        Compression::Lz4 { high } => {
            let raw = wire::Lz4 {
                version: LZ4_VERSION.into(),
                flags: if high.is_some() { LZ4_HIGH } else { 0 }.into(),
            };
            Some(raw.as_bytes().to_vec())
        }
        Compression::Xz {
            dict_size, filters, ..
        } => {
            let dict_size = dict_size.unwrap_or(block_size);
            (dict_size != block_size || !filters.is_empty()).then(|| {
                let raw = wire::Xz {
                    dict_size: dict_size.max(METADATA_BLOCK).into(),
                    filters: filters.to_wire().into(),
                };
                raw.as_bytes().to_vec()
            })
        }
        Compression::Zstd { level } => (level != 15).then(|| {
            let raw = wire::Zstd {
                level: i32::from(level).into(),
            };
            raw.as_bytes().to_vec()
        }),
    }
}

fn read<T: FromBytes>(bytes: &[u8], at: Location) -> Result<T> {
    T::read_from_prefix(bytes).map(|(raw, _)| raw).map_err(|_| {
        let len = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let what = Corrupt::Truncated {
            what: "codec options block",
            need: len(size_of::<T>()),
            have: len(bytes.len()),
        };
        Error::corrupt(at, what)
    })
}

/// The location `offset` bytes behind `at`.
fn behind(at: Location, offset: u8) -> Location {
    match at {
        Location::Byte(byte) => Location::Byte(byte.saturating_add(offset.into())),
        Location::Decoded {
            block,
            offset: start,
        } => Location::Decoded {
            block,
            offset: start.saturating_add(offset.into()),
        },
        // Options stand at bytes.
        Location::Item { .. } | Location::Line { .. } => at,
    }
}

fn in_range(at: Location, field: &'static str, found: u32, from: u32, to: u32) -> Result<()> {
    if (from..=to).contains(&found) {
        return Ok(());
    }
    let allowed = Allowed::Range(from.into(), to.into());
    Err(Error::field(at, field, found, allowed))
}

fn at_most(at: Location, field: &'static str, found: u32, most: u32) -> Result<()> {
    if found <= most {
        return Ok(());
    }
    Err(Error::field(at, field, found, Allowed::AtMost(most.into())))
}

fn only(at: Location, field: &'static str, found: u32, value: u32) -> Result<()> {
    if found == value {
        return Ok(());
    }
    Err(Error::field(at, field, found, Allowed::Only(value.into())))
}

#[cfg(all(test, feature = "write"))]
mod tests {
    use super::*;
    use crate::codec::Bcj;

    const AT: Location = Location::Decoded {
        block: 96,
        offset: 0,
    };

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn xz(dict_size: Option<u32>, filters: &[Bcj]) -> Compression {
        Compression::Xz {
            preset: 6,
            extreme: false,
            dict_size,
            filters: filters.iter().copied().collect(),
        }
    }

    #[test]
    fn defaults_need_no_block() {
        for compression in [
            Compression::None,
            Compression::Gzip { level: 9 },
            Compression::Gzip { level: 12 },
            Compression::Lzo {},
            xz(None, &[]),
            xz(Some(131_072), &[]),
            Compression::Zstd { level: 15 },
        ] {
            assert_eq!(encode(&compression, 131_072), None, "{compression:?}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for (compression, block_size, bytes, options) in [
            (
                Compression::Gzip { level: 1 },
                131_072,
                words(&[1, 15]),
                CodecOptions::Gzip {
                    level: 1,
                    window: 15,
                    strategies: 0,
                },
            ),
            (
                Compression::Lz4 { high: None },
                131_072,
                words(&[1, 0]),
                CodecOptions::Lz4 { high: false },
            ),
            (
                Compression::Lz4 { high: Some(12) },
                131_072,
                words(&[1, 1]),
                CodecOptions::Lz4 { high: true },
            ),
            (
                xz(Some(98_304), &[]),
                131_072,
                words(&[98_304, 0]),
                CodecOptions::Xz {
                    dict_size: 98_304,
                    filters: BcjSet::EMPTY,
                },
            ),
            // Blocks of metadata are larger than these of data, and the kernel decodes both.
            (
                xz(None, &[Bcj::X86, Bcj::RiscV]),
                4096,
                words(&[8192, 0x81]),
                CodecOptions::Xz {
                    dict_size: 8192,
                    filters: [Bcj::X86, Bcj::RiscV].into_iter().collect(),
                },
            ),
            (
                Compression::Zstd { level: 22 },
                131_072,
                words(&[22]),
                CodecOptions::Zstd { level: 22 },
            ),
        ] {
            assert_eq!(encode(&compression, block_size).as_ref(), Some(&bytes));
            let codec = compression.codec().unwrap();
            assert_eq!(parse(codec, &bytes, AT).unwrap(), options);
        }
    }

    #[test]
    fn options_of_others_are_read() {
        // All strategies; mksquashfs -Xalgorithm lzo1x_1_15; -Xhc -Xcompression-level 6;
        // -Xbcj with 4 KiB blocks; -Xcompression-level -3.
        for (codec, bytes, options) in [
            (
                Codec::Gzip,
                words(&[9, 0x001f_0008]),
                CodecOptions::Gzip {
                    level: 9,
                    window: 8,
                    strategies: 0x1f,
                },
            ),
            (
                Codec::Lzo,
                words(&[3, 0]),
                CodecOptions::Lzo {
                    algorithm: 3,
                    level: 0,
                },
            ),
            (
                Codec::Lzo,
                words(&[4, 9]),
                CodecOptions::Lzo {
                    algorithm: 4,
                    level: 9,
                },
            ),
            (
                Codec::Lz4,
                words(&[1, 3, 6]),
                CodecOptions::Lz4 { high: true },
            ),
            (
                Codec::Xz,
                words(&[4096, 1]),
                CodecOptions::Xz {
                    dict_size: 4096,
                    filters: [Bcj::X86].into_iter().collect(),
                },
            ),
            (
                Codec::Zstd,
                (-3i32).to_le_bytes().to_vec(),
                CodecOptions::Zstd { level: -3 },
            ),
        ] {
            assert_eq!(parse(codec, &bytes, AT).unwrap(), options);
        }
    }

    #[test]
    fn faults_say_field_location_found_and_allowed() {
        let dict = "xz dictionary size is";
        let dict_allowed = "allowed is 2^n or 2^n + 2^(n-1), 4096 to 1048576";
        for (codec, bytes, offset, expected) in [
            (
                Codec::Gzip,
                words(&[10, 15]),
                0,
                "gzip level is 10, allowed is 1 to 9".to_owned(),
            ),
            (
                Codec::Gzip,
                words(&[9, 16]),
                4,
                "gzip window is 16, allowed is 8 to 15".to_owned(),
            ),
            (
                Codec::Gzip,
                words(&[9, 0x0020_000f]),
                6,
                "gzip strategies is 32, allowed is at most 31".to_owned(),
            ),
            (
                Codec::Lzo,
                words(&[5, 0]),
                0,
                "lzo algorithm is 5, allowed is at most 4".to_owned(),
            ),
            (
                Codec::Lzo,
                words(&[4, 0]),
                4,
                "lzo level is 0, allowed is 1 to 9".to_owned(),
            ),
            (
                Codec::Lzo,
                words(&[0, 8]),
                4,
                "lzo level is 8, allowed is 0".to_owned(),
            ),
            (
                Codec::Lz4,
                words(&[2, 0]),
                0,
                "lz4 version is 2, allowed is 1".to_owned(),
            ),
            (
                Codec::Lz4,
                words(&[1, 4]),
                4,
                "lz4 flags is 4, allowed is at most 3".to_owned(),
            ),
            (
                Codec::Xz,
                words(&[0, 0]),
                0,
                format!("{dict} 0, {dict_allowed}"),
            ),
            (
                Codec::Xz,
                words(&[10_000, 0]),
                0,
                format!("{dict} 10000, {dict_allowed}"),
            ),
            (
                Codec::Xz,
                words(&[2 << 20, 0]),
                0,
                format!("{dict} 2097152, {dict_allowed}"),
            ),
            (
                Codec::Xz,
                words(&[8192, 256]),
                4,
                "xz filters is 256, allowed is at most 255".to_owned(),
            ),
            (
                Codec::Zstd,
                words(&[23]),
                0,
                "zstd level is 23, allowed is 1 to 22, or -131072 to -1 as unsigned".to_owned(),
            ),
            (
                Codec::Zstd,
                words(&[0]),
                0,
                "zstd level is 0, allowed is 1 to 22, or -131072 to -1 as unsigned".to_owned(),
            ),
            (
                Codec::Zstd,
                vec![15, 0, 0],
                0,
                "codec options block needs 4 bytes, 3 are left".to_owned(),
            ),
            (
                Codec::Xz,
                vec![0; 7],
                0,
                "codec options block needs 8 bytes, 7 are left".to_owned(),
            ),
        ] {
            let e = parse(codec, &bytes, AT).unwrap_err();
            assert_eq!(
                e.to_string(),
                format!(
                    "corrupt image at byte {offset} of the metadata block at byte 96: {expected}"
                )
            );
        }
        let e = parse(Codec::Lz4, &words(&[1, 9]), Location::Byte(98)).unwrap_err();
        assert_eq!(e.image_offset(), Some(102));
    }
}
