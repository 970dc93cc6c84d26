//! The ways in which a tree can be started.

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::bail;

use super::ablation::Change;
use super::rival::Rival;
use super::training::Training;

/// The default of `--prefer`.
const SPEED: &str = "speed";

/// A way in which a tree can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// The tree itself.
    Directory,
    /// The tree itself, and a profile is replayed.
    DirectoryReplayed,
    /// The tree itself, and a profile of pages that the launch never asks for is replayed.
    DirectoryWrong,
    /// An image of another tool, mounted by the kernel.
    Kernel(Rival),
    /// The same, and a profile is replayed.
    KernelReplayed(Rival),
    /// An image of mksquashfs (zstd), mounted by this command.
    Squashfuse(Squashfuse),
    /// An image of brisk, without a hot pack.
    Brisk,
    /// An image of brisk, filled from a hot pack that is made for `speed` or `size`.
    Filled(&'static str),
    /// An image of brisk, filled from a hot pack of pages that the launch never asks for.
    Wrong,
    /// The tree itself, with a replay that has this change.
    ReplayedBut(Change),
    /// An image of brisk, filled for speed, with this change.
    FilledBut(Change),
    /// An image of mksquashfs with this codec, filled from a hot pack beside it.
    Beside(&'static str),
    /// An image that exists already, filled from a hot pack beside it.
    BesideImage(PathBuf),
    /// The tree itself, started by `brisk run --auto`.
    Auto(Learned),
}

/// What `brisk run --auto` knows of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// Nothing of the program: each start is its first one, and is observed. It knows the disk.
    Nothing,
    /// All that it learns from starts like this one.
    Everything,
}

/// A command that mounts SquashFS through FUSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Squashfuse {
    /// `squashfuse`, which answers requests by path.
    High,
    /// `squashfuse_ll`, which answers requests by inode.
    Low,
}

impl Squashfuse {
    /// The name of the command.
    pub fn command(self) -> &'static str {
        match self {
            Self::High => "squashfuse",
            Self::Low => "squashfuse_ll",
        }
    }
}

/// The end of the name of a format that the kernel mounts, if a profile is replayed.
const REPLAY: &str = "-replay";

/// Every name of a single format, except those with [`REPLAY`].
const NAMES: [(&str, Format); 26] = [
    ("directory", Format::Directory),
    ("directory-replay", Format::DirectoryReplayed),
    ("directory-replay-wrong", Format::DirectoryWrong),
    ("squashfs-none", Format::Kernel(Rival::Squashfs("none"))),
    ("squashfs-lz4", Format::Kernel(Rival::Squashfs("lz4"))),
    ("squashfs-lzo", Format::Kernel(Rival::Squashfs("lzo"))),
    ("squashfs-gzip", Format::Kernel(Rival::Squashfs("gzip"))),
    ("squashfs-zstd", Format::SQUASHFS_ZSTD),
    ("squashfs-xz", Format::Kernel(Rival::Squashfs("xz"))),
    (
        "squashfs-zstd-sorted",
        Format::Kernel(Rival::SquashfsSorted),
    ),
    ("squashfuse", Format::Squashfuse(Squashfuse::High)),
    ("squashfuse_ll", Format::Squashfuse(Squashfuse::Low)),
    ("erofs-none", Format::Kernel(Rival::Erofs("none"))),
    ("erofs-lz4", Format::Kernel(Rival::Erofs("lz4"))),
    ("erofs-lz4hc", Format::Kernel(Rival::Erofs("lz4hc"))),
    ("erofs-zstd", Format::Kernel(Rival::Erofs("zstd"))),
    ("erofs-lzma", Format::Kernel(Rival::Erofs("lzma"))),
    ("brisk", Format::Brisk),
    ("brisk-speed", Format::Filled(SPEED)),
    ("brisk-size", Format::Filled("size")),
    ("brisk-wrong", Format::Wrong),
    ("beside-xz", Format::Beside("xz")),
    ("beside-gzip", Format::Beside("gzip")),
    ("beside-zstd", Format::Beside("zstd")),
    ("auto", Format::Auto(Learned::Everything)),
    ("auto-first", Format::Auto(Learned::Nothing)),
];

/// The formats that show what each part of a replay and of a fill gains.
const ABLATION: [(&str, Format); 9] = [
    ("directory-replay-pages", Format::ReplayedBut(Change::Pages)),
    ("directory-replay-names", Format::ReplayedBut(Change::Names)),
    (
        "directory-replay-blocks",
        Format::ReplayedBut(Change::Blocks),
    ),
    (
        "directory-replay-1-thread",
        Format::ReplayedBut(Change::Threads(1)),
    ),
    (
        "directory-replay-8-threads",
        Format::ReplayedBut(Change::Threads(8)),
    ),
    ("brisk-speed-pages", Format::FilledBut(Change::Pages)),
    ("brisk-speed-names", Format::FilledBut(Change::Names)),
    ("brisk-speed-blocks", Format::FilledBut(Change::Blocks)),
    (
        "brisk-speed-1-thread",
        Format::FilledBut(Change::Threads(1)),
    ),
];

/// The formats that those of [`ABLATION`] are compared with.
const WHOLE: [Format; 4] = [
    Format::Directory,
    Format::DirectoryReplayed,
    Format::Brisk,
    Format::Filled(SPEED),
];

impl Format {
    /// The formats that are measured by default.
    pub const DEFAULT: &str = "directory,directory-replay,squashfs-zstd,squashfs-lz4,brisk,brisk-speed,brisk-size,brisk-wrong,beside-xz";

    /// The format that sizes are compared with.
    pub const SQUASHFS_ZSTD: Self = Self::Kernel(Rival::Squashfs("zstd"));

    /// Every format that does not need an existing image.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for (_, format) in NAMES {
            let replayed = match format {
                Self::Kernel(rival) => Some(Self::KernelReplayed(rival)),
                _ => None,
            };
            all.push(format);
            all.extend(replayed);
        }
        all
    }

    /// The formats that show what each part of a replay and of a fill gains, after those that they are
    /// compared with.
    pub fn ablation() -> impl Iterator<Item = Self> {
        let changed = ABLATION.into_iter().map(|(_, format)| format);
        WHOLE.into_iter().chain(changed)
    }

    /// What it changes in its profile or in the use of it.
    pub fn change(&self) -> Option<Change> {
        match self {
            Self::ReplayedBut(change) | Self::FilledBut(change) => Some(*change),
            _ => None,
        }
    }

    /// What its hot pack is made for, if it has one.
    pub fn hot_pack(&self) -> Option<&'static str> {
        match self {
            Self::Directory
            | Self::DirectoryReplayed
            | Self::DirectoryWrong
            | Self::ReplayedBut(_)
            | Self::Kernel(_)
            | Self::KernelReplayed(_)
            | Self::Squashfuse(_)
            | Self::Auto(_)
            | Self::Brisk => None,
            Self::Filled(prefer) => Some(prefer),
            Self::Wrong | Self::FilledBut(_) | Self::Beside(_) | Self::BesideImage(_) => {
                Some(SPEED)
            }
        }
    }

    /// Whether it needs a profile of the launch.
    pub fn is_trained(&self) -> bool {
        self.hot_pack().is_some()
            || self.is_replayed()
            || *self == Self::Kernel(Rival::SquashfsSorted)
    }

    /// The file name of an existing image.
    pub fn image_name(&self) -> Option<&OsStr> {
        match self {
            Self::BesideImage(path) => Some(path.file_name().unwrap_or(path.as_os_str())),
            _ => None,
        }
    }

    /// Whether it needs brisk's server: for launches from sessions, and to record profiles.
    pub fn is_served(&self) -> bool {
        *self == Self::Brisk || self.is_trained()
    }

    /// Whether it replays a profile.
    pub fn is_replayed(&self) -> bool {
        matches!(
            self,
            Self::DirectoryReplayed
                | Self::DirectoryWrong
                | Self::ReplayedBut(_)
                | Self::KernelReplayed(_)
        )
    }

    /// Whether to measure it with a profile of this launch.
    pub fn takes(&self, training: Training) -> bool {
        let is_wrong = matches!(self, Self::Wrong | Self::DirectoryWrong);
        match training {
            Training::Same => !is_wrong,
            // Measured only here: a hot pack beside another image costs the same.
            Training::Another => matches!(self, Self::Filled(_) | Self::DirectoryReplayed),
            Training::Wrong => is_wrong,
        }
    }

    /// The image, if another tool makes it.
    pub fn rival(&self) -> Option<Rival> {
        match self {
            Self::Kernel(rival) | Self::KernelReplayed(rival) => Some(*rival),
            Self::Squashfuse(_) => Some(Rival::Squashfs("zstd")),
            Self::Beside(codec) => Some(Rival::Squashfs(codec)),
            _ => None,
        }
    }
}

impl FromStr for Format {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut named = NAMES.into_iter().chain(ABLATION);
        if let Some((_, format)) = named.find(|(name, _)| *name == text) {
            return Ok(format);
        }
        if let Some(Ok(Self::Kernel(rival))) = text.strip_suffix(REPLAY).map(str::parse) {
            return Ok(Self::KernelReplayed(rival));
        }
        match text.strip_prefix("beside:") {
            Some(image) if !image.is_empty() => Ok(Self::BesideImage(image.into())),
            _ => {
                let names = NAMES.iter().chain(&ABLATION).map(|(name, _)| *name);
                let names: Vec<_> = names.collect();
                bail!(
                    "allowed are {}, those of squashfs and erofs followed by {REPLAY}, all and \
                     beside:IMAGE",
                    names.join(", ")
                )
            }
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::BesideImage(path) = self {
            return write!(f, "beside:{}", path.display());
        }
        if let Self::KernelReplayed(rival) = self {
            return write!(f, "{}{REPLAY}", Self::Kernel(*rival));
        }
        if let Self::Kernel(Rival::Packed(recipe)) = self {
            return write!(f, "{recipe}");
        }
        let mut named = NAMES.into_iter().chain(ABLATION);
        let found = named.find(|(_, format)| format == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

/// A list of formats, as `--formats` has it between commas.
#[derive(Debug, Clone)]
pub struct Formats(pub Vec<Format>);

impl FromStr for Formats {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "all" => Ok(Self(Format::all())),
            _ => Ok(Self(vec![text.parse()?])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_one_name() {
        let names = NAMES.map(|(name, _)| name);
        for name in names
            .into_iter()
            .chain(ABLATION.map(|(name, _)| name))
            .chain(["beside:/a.img", "erofs-lz4-replay"])
        {
            assert_eq!(name.parse::<Format>().unwrap().to_string(), name);
        }
        for name in Format::DEFAULT.split(',') {
            assert!(names.contains(&name), "{name}");
        }
        for name in [
            "",
            "squashfs",
            "squashfs-lzma",
            "beside:",
            "Brisk",
            "beside-lz4",
        ] {
            let e = name.parse::<Format>().unwrap_err();
            assert!(e.to_string().starts_with("allowed are directory,"), "{e}");
        }
        let Formats(all) = "all".parse().unwrap();
        assert_eq!(all.len(), names.len() + 12);
    }
}
