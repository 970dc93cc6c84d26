//! The ways in which a tree can be started.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::bail;

/// What `--prefer` has as its default.
const SPEED: &str = "speed";

/// A way in which a tree can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// The tree itself.
    Directory,
    /// An image of mksquashfs with this codec, mounted by the kernel.
    Squashfs(&'static str),
    /// An image of brisk, without a hot pack.
    Brisk,
    /// An image of brisk, filled from a hot pack that is made for this.
    Filled(&'static str),
    /// An image of brisk, filled from a hot pack of pages that the launch never asks for.
    Wrong,
    /// An image of mksquashfs with this codec, filled from a hot pack beside it.
    Beside(&'static str),
    /// An image that somebody else has made, filled from a hot pack beside it.
    BesideImage(PathBuf),
}

impl Format {
    /// What is measured if nothing else is asked for.
    pub const DEFAULT: &str =
        "directory,squashfs-zstd,squashfs-lz4,brisk,brisk-speed,brisk-size,brisk-wrong,beside-xz";

    /// What its hot pack is made for, if it takes one.
    pub fn hot_pack(&self) -> Option<&'static str> {
        match self {
            Self::Directory | Self::Squashfs(_) | Self::Brisk => None,
            Self::Filled(prefer) => Some(prefer),
            Self::Wrong | Self::Beside(_) | Self::BesideImage(_) => Some(SPEED),
        }
    }

    /// The codec, if mksquashfs makes its image.
    pub fn mksquashfs(&self) -> Option<&'static str> {
        match self {
            Self::Squashfs(codec) | Self::Beside(codec) => Some(codec),
            _ => None,
        }
    }
}

impl FromStr for Format {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(match text {
            "directory" => Self::Directory,
            "squashfs-zstd" => Self::Squashfs("zstd"),
            "squashfs-lz4" => Self::Squashfs("lz4"),
            "brisk" => Self::Brisk,
            "brisk-speed" => Self::Filled(SPEED),
            "brisk-size" => Self::Filled("size"),
            "brisk-wrong" => Self::Wrong,
            "beside-xz" => Self::Beside("xz"),
            "beside-gzip" => Self::Beside("gzip"),
            _ => match text.strip_prefix("beside:") {
                Some(image) if !image.is_empty() => Self::BesideImage(image.into()),
                _ => bail!(
                    "allowed are directory, squashfs-zstd, squashfs-lz4, brisk, brisk-speed, \
                     brisk-size, brisk-wrong, beside-xz, beside-gzip and beside:IMAGE"
                ),
            },
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory => f.write_str("directory"),
            Self::Squashfs(codec) => write!(f, "squashfs-{codec}"),
            Self::Brisk => f.write_str("brisk"),
            Self::Filled(prefer) => write!(f, "brisk-{prefer}"),
            Self::Wrong => f.write_str("brisk-wrong"),
            Self::Beside(codec) => write!(f, "beside-{codec}"),
            Self::BesideImage(path) => write!(f, "beside:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_one_name() {
        let names = Format::DEFAULT
            .split(',')
            .chain(["beside-gzip", "beside:/a.img"]);
        for name in names {
            assert_eq!(name.parse::<Format>().unwrap().to_string(), name);
        }
        for name in ["", "squashfs", "squashfs-xz", "beside:", "Brisk"] {
            let e = name.parse::<Format>().unwrap_err();
            assert!(e.to_string().starts_with("allowed are directory,"), "{e}");
        }
    }
}
