//! The codecs, with settings that mean equal work for both tools, and the goals.

use std::ffi::OsString;
use std::path::Path;

use clap::ValueEnum;

/// A codec, at the default level of both tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Codec {
    /// Level 15
    Zstd,
    /// Preset 6, the dictionary as large as a block
    Xz,
    /// The fast mode
    Lz4,
    /// Level 9
    Gzip,
    /// mksquashfs: lzo1x_999 at level 8; brisk: the one level it has
    Lzo,
}

/// Bytes of a data block, for both tools.
pub(crate) const BLOCK_SIZE: u32 = 131_072;

impl Codec {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Lz4 => "lz4",
            Self::Gzip => "gzip",
            Self::Lzo => "lzo",
        }
    }

    /// The level for both tools, if their levels mean the same.
    fn level(self) -> Option<u8> {
        match self {
            Self::Zstd => Some(15),
            Self::Gzip => Some(9),
            Self::Xz | Self::Lz4 | Self::Lzo => None,
        }
    }

    /// The name in tables.
    pub(crate) fn label(self) -> String {
        match self.level() {
            Some(level) => format!("{} {level}", self.name()),
            None => self.name().to_owned(),
        }
    }

    /// The compressor that the superblock must name.
    pub(crate) fn id(self) -> u16 {
        match self {
            Self::Gzip => 1,
            Self::Lzo => 3,
            Self::Xz => 4,
            Self::Lz4 => 5,
            Self::Zstd => 6,
        }
    }

    pub(crate) fn pack_goal(self) -> f64 {
        match self {
            Self::Zstd | Self::Xz => 1.0,
            Self::Lz4 => 0.8,
            Self::Gzip | Self::Lzo => 0.5,
        }
    }

    pub(crate) fn size_goal(self) -> f64 {
        match self {
            Self::Lzo => 1.06,
            _ => 1.005,
        }
    }

    pub(crate) fn extract_goal(self) -> Option<f64> {
        match self {
            Self::Zstd | Self::Lz4 | Self::Gzip => Some(0.7),
            Self::Xz => Some(0.9),
            Self::Lzo => None,
        }
    }

    pub(crate) fn mksquashfs_args(
        self,
        tree: &Path,
        image: &Path,
        processors: usize,
    ) -> Vec<OsString> {
        let mut args = vec![tree.into(), image.into()];
        let flags = format!(
            "-comp {} -b {BLOCK_SIZE} -processors {processors} -noappend -no-progress -quiet",
            self.name()
        );
        args.extend(flags.split(' ').map(OsString::from));
        if let Some(level) = self.level() {
            args.extend(["-Xcompression-level".into(), level.to_string().into()]);
        }
        args
    }

    pub(crate) fn brisk_args(self, tree: &Path, image: &Path, processors: usize) -> Vec<OsString> {
        let mut args = vec!["pack".into(), tree.into(), "-o".into(), image.into()];
        let flags = format!(
            "--codec {} --block-size {BLOCK_SIZE} --threads {processors}",
            self.name()
        );
        args.extend(flags.split(' ').map(OsString::from));
        if let Some(level) = self.level() {
            args.extend(["--level".into(), level.to_string().into()]);
        }
        args
    }
}
