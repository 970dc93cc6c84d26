//! How to compress, as a value that can be kept.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::codec::{BcjSet, Codec, METADATA_BLOCK, is_dict_size};
use crate::error::{Error, Result, Unsupported};

/// How to compress: a codec with its options.
///
/// The fields may hold any values. [`Compression::check`] says whether this build can do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "codec", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Compression {
    /// Everything is stored as it is.
    None,
    /// zlib streams.
    Gzip {
        /// Level of gzip: 1 to 12, of libdeflate. 9 is the default.
        level: u8,
    },
    /// LZO1X, at the one level there is.
    Lzo {},
    /// LZ4.
    Lz4 {
        /// Level of the high compression mode, 3 to 12; without, the fast mode.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        high: Option<u8>,
    },
    /// LZMA2, in xz streams.
    Xz {
        /// Preset of xz: 0 to 9, of liblzma. 6 is the default.
        preset: u8,
        /// The slower variant of the preset.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        extreme: bool,
        /// Size of the dictionary: 2^n or 2^n + 2^(n-1), at least 8192 and at most the block
        /// size. Without, the block size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dict_size: Option<u32>,
        /// The branch filters that each data block is tried with.
        #[serde(default, skip_serializing_if = "BcjSet::is_empty")]
        filters: BcjSet,
    },
    /// Zstandard.
    Zstd {
        /// Level of zstd: 1 to 22. 15 is the default.
        level: u8,
    },
}

impl Compression {
    /// The default of `codec`, which is also that of mksquashfs.
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

    /// The same at another level. This is the preset of xz, and the level of the high compression
    /// mode of lz4.
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

    /// The same at one level: what is left is what an image tells its readers of its blocks.
    #[cfg(feature = "write")]
    pub(crate) fn for_decoders(self) -> Self {
        match self {
            Self::Xz {
                dict_size, filters, ..
            } => Self::Xz {
                preset: 0,
                extreme: false,
                dict_size,
                filters,
            },
            other => other.codec().map_or(Self::None, Self::default_for),
        }
    }

    /// The same without branch filters, as metadata holds no code.
    #[cfg(feature = "write")]
    pub(super) fn for_metadata(self) -> Self {
        match self {
            Self::Xz {
                preset, extreme, ..
            } => Self::Xz {
                preset,
                extreme,
                dict_size: None,
                filters: BcjSet::EMPTY,
            },
            other => other,
        }
    }

    /// Checks that this build can compress blocks of `block_size` bytes like this.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) with the option that cannot be used, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) with the feature that this build lacks.
    pub fn check(&self, block_size: u32) -> Result<()> {
        self.check_level()?;
        self.check_built()?;
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

    fn check_built(&self) -> Result<()> {
        let built = match self.codec() {
            None => true,
            Some(Codec::Gzip) => cfg!(feature = "gzip"),
            Some(Codec::Lzo) => cfg!(feature = "lzo-encode"),
            Some(Codec::Lz4) => cfg!(feature = "lz4"),
            Some(Codec::Xz) => cfg!(feature = "xz"),
            Some(Codec::Zstd) => cfg!(feature = "zstd"),
        };
        match built {
            true => Ok(()),
            false => Err(self.left_out()),
        }
    }

    /// The error that this build cannot compress like this.
    pub(super) fn left_out(&self) -> Error {
        let (codec, feature) = match self.codec() {
            Some(codec) => (codec.name(), codec.encoder_feature()),
            None => ("none", "write"),
        };
        Error::unsupported(Unsupported::EncoderLeftOut { codec, feature })
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
        let without = match self {
            Self::Lz4 { .. } => ", or none for the fast mode",
            _ => "",
        };
        Err(Error::input(format!(
            "{name} is {level}, allowed is {from} to {to}{without}"
        )))
    }
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
