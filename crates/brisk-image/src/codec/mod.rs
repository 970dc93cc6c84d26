//! The five compressors of SquashFS 4.0: which there are, how they are set, and one encoder and
//! one decoder over all of them.
//!
//! A block is compressed alone and its decoded length is known from elsewhere, so both directions
//! are one call on whole buffers. [`Encoder`] and [`Decoder`] keep the contexts of their library
//! between calls; a thread has one of each.
//!
//! What is decoded is untrusted. [`Decoder::decode`] never panics, writes only to the buffer it is
//! given, and allocates at most [`xz::MEMORY_LIMIT`] bytes beside the contexts it keeps.

mod gzip;
mod lz4;
mod lzo;
mod xz;
mod zstd;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

pub(crate) use xz::is_dict_size;
pub use xz::{Bcj, BcjSet};

/// The decoded size of a metadata block.
const METADATA_BLOCK: u32 = 8192;

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

    fn from_name(name: &str) -> Option<Self> {
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

/// How to compress: a codec with its options.
///
/// The fields hold what was asked for, checked or not: [`Compression::check`] says whether it can
/// be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "codec", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Compression {
    /// Everything is stored as it is.
    None,
    /// zlib streams.
    Gzip {
        /// 1 to 12, of libdeflate. 9 is the default.
        level: u8,
    },
    /// LZO1X, at the one level there is.
    Lzo {},
    /// LZ4.
    Lz4 {
        /// The level of the high compression mode, 3 to 12; without, the fast mode.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        high: Option<u8>,
    },
    /// LZMA2, in xz streams.
    Xz {
        /// 0 to 9, of liblzma. 6 is the default.
        preset: u8,
        /// The slower variant of the preset.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        extreme: bool,
        /// Bytes of the dictionary: 2^n or 2^n + 2^(n-1), at least 8192 and at most the block
        /// size. Without, the block size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dict_size: Option<u32>,
        /// The branch filters that each data block is tried with.
        #[serde(default, skip_serializing_if = "BcjSet::is_empty")]
        filters: BcjSet,
    },
    /// Zstandard.
    Zstd {
        /// 1 to 22. 15 is the default.
        level: u8,
    },
}

impl Compression {
    /// What `codec` compresses with if nothing else is asked for; what mksquashfs has as default,
    /// too.
    pub fn default_for(codec: Codec) -> Self {
        match codec {
            Codec::Gzip => Self::Gzip { level: 9 },
            Codec::Lzo => Self::Lzo {},
            Codec::Lz4 => Self::Lz4 { high: None },
            Codec::Xz => Self::Xz {
                preset: 6,
                extreme: false,
                dict_size: None,
                filters: BcjSet::EMPTY,
            },
            Codec::Zstd => Self::Zstd { level: 15 },
        }
    }

    /// The codec, or `None` if everything is stored as it is.
    pub fn codec(&self) -> Option<Codec> {
        match self {
            Self::None => None,
            Self::Gzip { .. } => Some(Codec::Gzip),
            Self::Lzo {} => Some(Codec::Lzo),
            Self::Lz4 { .. } => Some(Codec::Lz4),
            Self::Xz { .. } => Some(Codec::Xz),
            Self::Zstd { .. } => Some(Codec::Zstd),
        }
    }

    /// The same at another level: the level of gzip and zstd, the level of the high compression
    /// mode of lz4, the preset of xz.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if the codec does not have this level, or has
    /// no levels.
    pub fn with_level(self, level: u8) -> Result<Self> {
        let changed = match self {
            Self::None => return Err(Error::input("codec none has no levels")),
            Self::Lzo {} => return Err(Error::input("codec lzo has no levels")),
            Self::Gzip { .. } => Self::Gzip { level },
            Self::Lz4 { .. } => Self::Lz4 { high: Some(level) },
            Self::Xz {
                extreme,
                dict_size,
                filters,
                ..
            } => Self::Xz {
                preset: level,
                extreme,
                dict_size,
                filters,
            },
            Self::Zstd { .. } => Self::Zstd { level },
        };
        changed.check_level()?;
        Ok(changed)
    }

    /// Whether blocks of `block_size` bytes can be compressed like this.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) with the option that cannot be used.
    pub fn check(&self, block_size: u32) -> Result<()> {
        self.check_level()?;
        match *self {
            Self::Xz {
                dict_size: Some(size),
                ..
            } if !(METADATA_BLOCK..=block_size).contains(&size) || !is_dict_size(size) => {
                Err(Error::input(format!(
                    "xz dictionary size is {size}, allowed is 2^n or 2^n + 2^(n-1), \
                     {METADATA_BLOCK} to the block size of {block_size}"
                )))
            }
            _ => Ok(()),
        }
    }

    fn check_level(&self) -> Result<()> {
        let (name, level, allowed) = match *self {
            Self::None | Self::Lzo {} | Self::Lz4 { high: None } => return Ok(()),
            Self::Gzip { level } => ("gzip level", level, 1..=12),
            Self::Lz4 { high: Some(level) } => ("lz4 level", level, 3..=12),
            Self::Xz { preset, .. } => ("xz preset", preset, 0..=9),
            Self::Zstd { level } => ("zstd level", level, 1..=22),
        };
        if allowed.contains(&level) {
            return Ok(());
        }
        let (from, to) = allowed.into_inner();
        Err(Error::input(format!(
            "{name} is {level}, allowed is {from} to {to}"
        )))
    }
}

/// The crate that compresses with `compression`, and its version: what the bytes depend on beside
/// the options.
pub(crate) fn library_version(compression: &Compression) -> String {
    let library = match compression.codec() {
        None => return "none".to_owned(),
        Some(Codec::Gzip) => "libdeflate-sys 1.26.1",
        Some(Codec::Lzo) => "lzokay-native 0.1.0",
        Some(Codec::Lz4) => "lzzzz 2.0.0",
        Some(Codec::Xz) => "liblzma-sys 0.4.9",
        Some(Codec::Zstd) => "zstd-sys 2.1.2+zstd.1.5.7",
    };
    library.to_owned()
}

/// `none` or the name of a codec, which stands for its default.
impl FromStr for Compression {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if name == "none" {
            return Ok(Self::None);
        }
        Codec::from_name(name)
            .map(Self::default_for)
            .ok_or_else(|| {
                Error::input(format!(
                    "codec is {name:?}, allowed is none, gzip, lzo, xz, lz4 or zstd"
                ))
            })
    }
}

/// Compresses blocks, one at a time.
///
/// What a block becomes depends on the block and the [`Compression`] alone, never on what the
/// encoder did before.
pub(crate) struct Encoder {
    kind: EncoderKind,
    /// As long as the longest block so far, so that no call has to zero a buffer before the
    /// library writes to it.
    scratch: Vec<u8>,
}

enum EncoderKind {
    None,
    Gzip(gzip::Encoder),
    Lzo(lzo::Encoder),
    Lz4(lz4::Encoder),
    Xz(xz::Encoder),
    Zstd(zstd::Encoder),
}

impl Encoder {
    /// An encoder of data blocks and fragments of at most `block_size` bytes.
    pub(crate) fn new(compression: &Compression, block_size: u32) -> Result<Self> {
        compression.check(block_size)?;
        let kind = match *compression {
            Compression::None => EncoderKind::None,
            Compression::Gzip { level } => EncoderKind::Gzip(gzip::Encoder::new(level)?),
            Compression::Lzo {} => EncoderKind::Lzo(lzo::Encoder::new()),
            Compression::Lz4 { high } => EncoderKind::Lz4(lz4::Encoder::new(high)),
            Compression::Xz {
                preset,
                extreme,
                dict_size,
                filters,
            } => {
                let dict_size = dict_size.unwrap_or(block_size);
                EncoderKind::Xz(xz::Encoder::new(preset, extreme, dict_size, filters))
            }
            Compression::Zstd { level } => EncoderKind::Zstd(zstd::Encoder::new(level)?),
        };
        Ok(Self {
            kind,
            scratch: Vec::new(),
        })
    }

    /// An encoder of metadata blocks. It tries no branch filters, as metadata holds no code.
    pub(crate) fn for_metadata(compression: &Compression) -> Result<Self> {
        let compression = match *compression {
            Compression::Xz {
                preset, extreme, ..
            } => Compression::Xz {
                preset,
                extreme,
                dict_size: None,
                filters: BcjSet::EMPTY,
            },
            other => other,
        };
        Self::new(&compression, METADATA_BLOCK)
    }

    /// Puts the compressed `input` in `out`, whatever that held.
    ///
    /// `false`, with an empty `out`, if it does not get smaller: it is to be stored as it is.
    pub(crate) fn encode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        let mut scratch = std::mem::take(&mut self.scratch);
        if scratch.len() < input.len() {
            scratch.resize(input.len(), 0);
        }
        let found = self.encode_to(input, &mut scratch)?;
        if let Some(len) = found {
            out.extend_from_slice(&scratch[..len]);
        }
        self.scratch = scratch;
        Ok(found.is_some())
    }

    /// Puts the compressed `input` at the start of `out`, and returns its length; what follows is
    /// unspecified.
    ///
    /// `None` if it does not get smaller, or than `out` is long: it is to be stored as it is.
    pub(crate) fn encode_to(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        // The room is one byte less than the input, so the libraries stop as soon as a block does
        // not get smaller. A block of one byte never does.
        let Some(room) = input.len().checked_sub(1).filter(|&room| room > 0) else {
            return Ok(None);
        };
        let room = room.min(out.len());
        let out = &mut out[..room];
        match &mut self.kind {
            EncoderKind::None => Ok(None),
            EncoderKind::Gzip(encoder) => Ok(encoder.encode(input, out)),
            EncoderKind::Lzo(encoder) => encoder.encode(input, out),
            EncoderKind::Lz4(encoder) => Ok(encoder.encode(input, out)),
            EncoderKind::Xz(encoder) => encoder.encode(input, out),
            EncoderKind::Zstd(encoder) => encoder.encode(input, out),
        }
    }
}

/// Decodes blocks, one at a time.
pub(crate) struct Decoder(DecoderKind);

enum DecoderKind {
    Gzip(gzip::Decoder),
    Lzo,
    Lz4,
    Xz,
    Zstd(zstd::Decoder),
}

impl Decoder {
    /// A decoder of what `codec` compressed.
    pub(crate) fn new(codec: Codec) -> Self {
        Self(match codec {
            Codec::Gzip => DecoderKind::Gzip(gzip::Decoder::new()),
            Codec::Lzo => DecoderKind::Lzo,
            Codec::Lz4 => DecoderKind::Lz4,
            Codec::Xz => DecoderKind::Xz,
            Codec::Zstd => DecoderKind::Zstd(zstd::Decoder::new()),
        })
    }

    /// Decodes `input` to the start of `out`, and says how many bytes it decodes to.
    ///
    /// What follows them in `out` is unspecified, as is all of it after an error. To decode to
    /// more than `out` holds is an error.
    pub(crate) fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        match &mut self.0 {
            DecoderKind::Gzip(decoder) => decoder.decode(input, out),
            DecoderKind::Lzo => lzo::decode(input, out),
            DecoderKind::Lz4 => lz4::decode(input, out),
            DecoderKind::Xz => xz::decode(input, out),
            DecoderKind::Zstd(decoder) => decoder.decode(input, out),
        }
    }
}

/// Why a block does not decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecodeError {
    pub(crate) reason: String,
}

impl DecodeError {
    fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }

    fn too_long(allowed: usize) -> Self {
        Self::new(format!("decodes to more than {allowed} bytes"))
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for DecodeError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_versions_are_those_that_are_built() {
        let lock = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock"));
        for codec in Codec::ALL {
            let library = library_version(&Compression::default_for(codec));
            let (name, version) = library.split_once(' ').unwrap();
            let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
            assert!(
                lock.contains(&entry),
                "Cargo.lock has another version of {name} than {version}"
            );
        }
    }

    const MIB: usize = 1 << 20;

    fn all() -> Vec<Compression> {
        let xz = |preset, extreme, dict_size, filters: &[Bcj]| Compression::Xz {
            preset,
            extreme,
            dict_size,
            filters: filters.iter().copied().collect(),
        };
        vec![
            Compression::Gzip { level: 1 },
            Compression::Gzip { level: 9 },
            Compression::Gzip { level: 12 },
            Compression::Lzo {},
            Compression::Lz4 { high: None },
            Compression::Lz4 { high: Some(3) },
            Compression::Lz4 { high: Some(12) },
            xz(0, false, None, &[]),
            xz(6, false, None, &Bcj::ALL),
            xz(9, true, Some(12_288), &[]),
            Compression::Zstd { level: 1 },
            Compression::Zstd { level: 7 },
            Compression::Zstd { level: 15 },
            Compression::Zstd { level: 22 },
        ]
    }

    /// Bytes without a pattern, the same for the same `seed`.
    fn noise(len: usize, mut seed: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        for _ in 0..len {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            bytes.push(seed.to_le_bytes()[3]);
        }
        bytes
    }

    /// Words in no order: halves or better in every codec.
    fn text(len: usize, seed: u64) -> Vec<u8> {
        const WORDS: [&str; 8] = [
            "image ",
            "tree\n",
            "profile ",
            "demanded ",
            "replay ",
            "hot ",
            "pack, ",
            "fill ",
        ];
        let mut bytes = Vec::with_capacity(len + 16);
        for n in noise(len, seed) {
            if bytes.len() >= len {
                break;
            }
            bytes.extend(WORDS[usize::from(n) % 8].bytes());
            bytes.push(n);
        }
        bytes.truncate(len);
        bytes
    }

    fn inputs() -> Vec<Vec<u8>> {
        let mut inputs: Vec<Vec<u8>> = (0..40).map(|len| vec![b'a'; len]).collect();
        for len in [100, 4095, 4096, 8192, 131_072, 131_071, MIB] {
            inputs.push(vec![0; len]);
            inputs.push(text(len, 1));
            inputs.push(noise(len, 2));
        }
        inputs
    }

    fn decoder(compression: &Compression) -> Decoder {
        Decoder::new(compression.codec().unwrap())
    }

    #[test]
    fn wire_ids_and_names() {
        let known: Vec<_> = (0..=u16::MAX)
            .filter_map(|id| Codec::from_wire(id).map(|codec| (id, codec.name())))
            .collect();
        let ids = [(1, "gzip"), (3, "lzo"), (4, "xz"), (5, "lz4"), (6, "zstd")];
        assert_eq!(known, ids);
        for (id, name) in ids {
            let codec: Codec = name.parse().unwrap();
            assert_eq!((codec.to_wire(), codec.to_string().as_str()), (id, name));
            let compression: Compression = name.parse().unwrap();
            assert_eq!(compression, Compression::default_for(codec));
            assert_eq!(compression.codec(), Some(codec));
        }
        assert_eq!("none".parse::<Compression>().unwrap(), Compression::None);
    }

    #[test]
    fn errors_say_what_is_allowed() {
        let text = |e: Error| e.to_string();
        assert_eq!(
            text("none".parse::<Codec>().unwrap_err()),
            "codec is \"none\", allowed is gzip, lzo, xz, lz4 or zstd"
        );
        assert_eq!(
            text("lzma".parse::<Compression>().unwrap_err()),
            "codec is \"lzma\", allowed is none, gzip, lzo, xz, lz4 or zstd"
        );
        let with_level = |name: &str, level| {
            let compression: Compression = name.parse().unwrap();
            compression.with_level(level).map_err(text)
        };
        for (name, level, expected) in [
            ("none", 1, "codec none has no levels"),
            ("lzo", 1, "codec lzo has no levels"),
            ("gzip", 13, "gzip level is 13, allowed is 1 to 12"),
            ("lz4", 2, "lz4 level is 2, allowed is 3 to 12"),
            ("xz", 10, "xz preset is 10, allowed is 0 to 9"),
            ("zstd", 0, "zstd level is 0, allowed is 1 to 22"),
        ] {
            assert_eq!(with_level(name, level), Err(expected.to_owned()));
        }
        assert_eq!(
            with_level("lz4", 12),
            Ok(Compression::Lz4 { high: Some(12) })
        );
        for (size, block_size) in [(4096, 4096), (9000, 131_072), (262_144, 131_072)] {
            let compression = Compression::Xz {
                preset: 6,
                extreme: false,
                dict_size: Some(size),
                filters: BcjSet::EMPTY,
            };
            let e = Encoder::new(&compression, block_size).err().map(text);
            let expected = format!(
                "xz dictionary size is {size}, allowed is 2^n or 2^n + 2^(n-1), \
                 8192 to the block size of {block_size}"
            );
            assert_eq!(e, Some(expected));
        }
    }

    /// The JSON is kept in images, so old forms have to stay readable.
    #[test]
    fn json_form() {
        for (compression, json) in [
            (Compression::None, r#"{"codec":"none"}"#),
            (Compression::Lzo {}, r#"{"codec":"lzo"}"#),
            (Compression::Lz4 { high: None }, r#"{"codec":"lz4"}"#),
            (
                Compression::Lz4 { high: Some(9) },
                r#"{"codec":"lz4","high":9}"#,
            ),
            (
                Compression::default_for(Codec::Xz),
                r#"{"codec":"xz","preset":6}"#,
            ),
            (
                Compression::Xz {
                    preset: 9,
                    extreme: true,
                    dict_size: Some(65_536),
                    filters: [Bcj::Arm64, Bcj::X86].into_iter().collect(),
                },
                r#"{"codec":"xz","preset":9,"extreme":true,"dict_size":65536,"filters":["x86","arm64"]}"#,
            ),
            (
                Compression::Zstd { level: 15 },
                r#"{"codec":"zstd","level":15}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&compression).unwrap(), json);
            assert_eq!(
                serde_json::from_str::<Compression>(json).unwrap(),
                compression
            );
        }
    }

    #[test]
    fn blocks_come_back() {
        let inputs = inputs();
        for compression in all() {
            let mut encoder = Encoder::new(&compression, 1 << 20).unwrap();
            let mut decoder = decoder(&compression);
            let mut stored = vec![1, 2, 3];
            for input in &inputs {
                let n = input.len();
                let smaller = encoder.encode(input, &mut stored).unwrap();
                // Zeros and text of some length get smaller, noise and a few bytes do not.
                let expected = match n {
                    0..=3 => Some(false),
                    4..=100 => None,
                    _ => Some(input != &noise(n, 2)),
                };
                if let Some(expected) = expected {
                    assert_eq!(smaller, expected, "{compression:?}, {n} bytes");
                }
                if !smaller {
                    assert!(stored.is_empty());
                    continue;
                }
                assert!(stored.len() < n, "{compression:?}, {n} bytes");
                // With just the room that is needed, and with more.
                for room in [n, n + 1, 2 * n + 100] {
                    let mut out = vec![0xaa; room];
                    assert_eq!(decoder.decode(&stored, &mut out), Ok(n), "{compression:?}");
                    assert!(out[..n] == input[..], "{compression:?}, {n} bytes");
                }
            }
        }
    }

    /// They go to the threads of a pool.
    #[test]
    fn encoders_and_decoders_can_move_to_another_thread() {
        fn is_send<T: Send>() {}
        is_send::<Encoder>();
        is_send::<Decoder>();
    }

    #[test]
    fn none_stores_everything() {
        let mut encoder = Encoder::new(&Compression::None, 131_072).unwrap();
        let mut out = vec![1];
        assert!(!encoder.encode(&[0; 1000], &mut out).unwrap());
        assert!(out.is_empty());
    }

    #[test]
    fn what_was_encoded_before_does_not_matter() {
        let mut inputs: Vec<Vec<u8>> = (0..60)
            .map(|i| text(30 + usize::try_from(i * 141 % 5000).unwrap(), i + 1))
            .collect();
        inputs.extend([text(200_000, 3), noise(20_000, 4), text(9000, 5)]);
        inputs.extend([noise(5000, 6), text(3000, 7), text(70_000, 8)]);
        for compression in all() {
            let mut reused = Encoder::new(&compression, 1 << 20).unwrap();
            let (mut a, mut b) = (Vec::new(), Vec::new());
            // Forth and back, so that each input comes behind others.
            for input in inputs.iter().chain(inputs.iter().rev()) {
                let mut fresh = Encoder::new(&compression, 1 << 20).unwrap();
                // The state of lz4 belongs to the thread, not to the encoder.
                let first = std::thread::scope(|scope| {
                    let encode = || fresh.encode(input, &mut a).unwrap();
                    scope.spawn(encode).join().unwrap()
                });
                assert_eq!(first, reused.encode(input, &mut b).unwrap());
                assert!(a == b, "{compression:?}, {} bytes", input.len());
            }
        }
    }

    #[test]
    fn a_longer_block_than_allowed_is_refused() {
        for compression in all() {
            let input = vec![0; MIB];
            let mut stored = Vec::new();
            let mut encoder = Encoder::new(&compression, 1 << 20).unwrap();
            assert!(encoder.encode(&input, &mut stored).unwrap());
            let mut decoder = decoder(&compression);
            for room in [0, 1, 8192, MIB - 1] {
                let e = decoder.decode(&stored, &mut vec![0; room]).unwrap_err();
                let expected = format!("decodes to more than {room} bytes");
                assert!(e.reason.ends_with(&expected), "{compression:?}: {e}");
            }
            // And the decoder goes on after it.
            let mut out = vec![1; MIB];
            assert_eq!(decoder.decode(&stored, &mut out), Ok(MIB));
        }
    }

    #[test]
    fn damage_is_an_error_or_other_bytes() {
        let input = text(600, 9);
        for compression in all() {
            let mut stored = Vec::new();
            let mut encoder = Encoder::new(&compression, 32_768).unwrap();
            assert!(encoder.encode(&input, &mut stored).unwrap());
            let mut decoder = decoder(&compression);
            let mut out = vec![0; 8192];
            for at in 0..stored.len() {
                for bit in 0..8 {
                    stored[at] ^= 1 << bit;
                    if let Ok(len) = decoder.decode(&stored, &mut out) {
                        assert!(len <= out.len(), "{compression:?}");
                    }
                    stored[at] ^= 1 << bit;
                }
                // A cut block never passes for the whole.
                match decoder.decode(&stored[..at], &mut out) {
                    Ok(len) => assert_ne!(len, input.len(), "{compression:?}, {at}"),
                    Err(e) => assert!(!e.reason.is_empty()),
                }
            }
            assert_eq!(decoder.decode(&stored, &mut out), Ok(input.len()));
            assert_eq!(out[..input.len()], input);
        }
    }

    /// Those with a checksum notice every flipped bit.
    #[test]
    fn checksums_are_checked() {
        let input = text(600, 9);
        for codec in [Codec::Gzip, Codec::Xz] {
            let compression = Compression::default_for(codec);
            let mut stored = Vec::new();
            let mut encoder = Encoder::for_metadata(&compression).unwrap();
            assert!(encoder.encode(&input, &mut stored).unwrap());
            let mut out = vec![0; 8192];
            for at in 0..stored.len() {
                stored[at] ^= 0x10;
                let found = Decoder::new(codec).decode(&stored, &mut out);
                // Only bits that mean nothing may change unseen, as the level that a zlib header
                // tells.
                if found.is_ok() {
                    assert_eq!(out[..input.len()], input, "{codec}, {at}");
                }
                stored[at] ^= 0x10;
            }
        }
    }

    fn block() -> impl Strategy<Value = Vec<u8>> {
        let pieces = prop_oneof![
            (0usize..300, any::<u64>()).prop_map(|(len, seed)| noise(len, seed | 1)),
            (0usize..5000, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
            (0usize..3000, any::<u64>()).prop_map(|(len, seed)| text(len, seed | 1)),
        ];
        prop::collection::vec(pieces, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn any_block_comes_back(block in block()) {
            for compression in all() {
                let mut stored = Vec::new();
                let mut encoder = Encoder::new(&compression, 32_768).unwrap();
                if encoder.encode(&block, &mut stored).unwrap() {
                    let mut out = vec![0; block.len()];
                    let found = decoder(&compression).decode(&stored, &mut out);
                    prop_assert_eq!(found, Ok(block.len()));
                    prop_assert!(out == block, "{:?}", compression);
                }
            }
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            for codec in Codec::ALL {
                let mut out = vec![0; 8192];
                if let Ok(len) = Decoder::new(codec).decode(&bytes, &mut out) {
                    prop_assert!(len <= out.len());
                }
            }
        }
    }
}
