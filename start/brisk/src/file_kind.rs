//! What a file is, for messages about one of another kind than a verb takes.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use brisk_image::{Error, ErrorKind};
use brisk_terminal::names::shown;

/// What a SquashFS image starts with.
const IMAGE: &[u8] = b"hsqs";

/// What the first bytes of a file say that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileKind {
    Directory,
    /// A pipe, a socket or a terminal, which is not read.
    Special,
    Empty,
    Image,
    HotPack,
    /// An object of JSON.
    Profile,
    /// An ELF program. An image may be behind it.
    Program,
    /// A script, or a SIF file, which begins as one. An image may be behind it.
    Script,
    /// Anything else, with its first bytes.
    Other(Vec<u8>),
}

impl FileKind {
    /// None if the file cannot be read.
    pub fn of(path: &Path) -> Option<Self> {
        Self::at(path, 0)
    }

    /// Of what begins at byte `offset` of the file.
    fn at(path: &Path, offset: u64) -> Option<Self> {
        let kind = path.metadata().ok()?.file_type();
        if kind.is_dir() {
            return Some(Self::Directory);
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Some(Self::Special);
        }
        let mut start = [0; 64];
        let read = File::open(path).ok()?.read_at(&mut start, offset).ok()?;
        let start = start.get(..read)?;
        Some(match start {
            [] => Self::Empty,
            _ if start.starts_with(IMAGE) => Self::Image,
            _ if start.starts_with(b"briskhot") => Self::HotPack,
            _ if start.starts_with(b"\x7fELF") => Self::Program,
            _ if start.starts_with(b"#!") => Self::Script,
            _ if start.trim_ascii_start().starts_with(b"{") => Self::Profile,
            _ => Self::Other(start.get(..4).unwrap_or(start).to_vec()),
        })
    }
}

/// What follows "it".
impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory => f.write_str("is a directory"),
            Self::Special => f.write_str("is neither a regular file nor a block device"),
            Self::Empty => f.write_str("is empty"),
            Self::Image => f.write_str("is an image"),
            Self::HotPack => f.write_str("is a hot pack"),
            Self::Profile => f.write_str("is a profile"),
            Self::Program => f.write_str("is a program"),
            Self::Script => f.write_str("is a script"),
            Self::Other(start) => write!(f, "starts with \"{}\"", start.escape_ascii()),
        }
    }
}

/// A file that is no image. Its first bytes were perhaps damaged.
#[derive(Debug)]
pub struct NoImage(String);

impl fmt::Display for NoImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoImage {}

/// The error of opening the image at byte `offset` of the file at `path`, in other words if the file is no image at all.
pub fn explain_image(error: Error, path: &Path, offset: Option<u64>) -> anyhow::Error {
    let may_be_another = match error.kind() {
        ErrorKind::Corrupt => error.image_offset() == Some(0),
        ErrorKind::Io => true,
        _ => false,
    };
    let kind = may_be_another.then(|| FileKind::at(path, offset.unwrap_or(0)));
    let Some(kind) = kind.flatten() else {
        return error.into();
    };
    let name = shown(path);
    let is_read = !matches!(kind, FileKind::Directory | FileKind::Special);
    let text = match (&kind, offset) {
        (FileKind::Image, _) => return error.into(),
        // A disk that fails says nothing about the file.
        _ if is_read && error.kind() == ErrorKind::Io => return error.into(),
        (FileKind::Directory, _) => {
            let plain = name.trim_end_matches('/');
            return anyhow!(
                "{name} is a directory: `brisk pack {plain} -o {plain}.img` makes an image of it"
            );
        }
        (FileKind::Empty, Some(bytes)) => {
            format!("{name} has no image at byte {bytes}: it ends before that byte")
        }
        (kind, Some(bytes)) => format!(
            "{name} has no image at byte {bytes}: what is there {kind}, and a SquashFS image starts with \"hsqs\"; \
             without --offset brisk finds the image"
        ),
        (kind @ (FileKind::Program | FileKind::Script), None) => format!(
            "{name} is no image: it {kind}, with no image behind it that brisk finds; if there is one, name its first byte \
             with --offset"
        ),
        (FileKind::Other(_), None) => {
            format!("{name} is no image: it {kind}, and a SquashFS image with \"hsqs\"")
        }
        (kind, None) => format!("{name} is no image: it {kind}"),
    };
    NoImage(text).into()
}

/// The error of reading the profile at `path`, in other words if the file is no profile at all.
pub fn explain_profile(error: Error, path: &Path) -> anyhow::Error {
    check_profile(path).err().unwrap_or_else(|| error.into())
}

/// Fails if the file at `path`, which the user names as a profile, is something else.
pub fn check_profile(path: &Path) -> anyhow::Result<()> {
    let name = shown(path);
    match FileKind::of(path) {
        // A pipe is read once.
        None | Some(FileKind::Profile | FileKind::Special) => Ok(()),
        Some(FileKind::Directory) => {
            let plain = name.trim_end_matches('/');
            bail!(
                "{name} is a directory, and no profile: `brisk trace --tree {plain} -o {plain}.profile -- CMD` records one"
            )
        }
        Some(FileKind::Image) => bail!(
            "{name} is no profile: it is an image; `brisk trace {name} -- CMD` records a profile of a launch from it"
        ),
        Some(kind @ FileKind::Other(_)) => {
            bail!("{name} is no profile: it {kind}, and a profile with {{\"brisk_profile\": 1")
        }
        Some(kind) => bail!("{name} is no profile: it {kind}"),
    }
}

/// Checks that the file at `path`, which the user names as a hot pack, is one.
pub fn check_hot_pack(path: &Path) -> anyhow::Result<()> {
    let name = shown(path);
    match FileKind::of(path) {
        // What begins in no known way may be a damaged pack, which is no reason not to start.
        Some(FileKind::HotPack | FileKind::Other(_)) => Ok(()),
        None => File::open(path)
            .map(drop)
            .with_context(|| format!("cannot open the hot pack {name}")),
        Some(FileKind::Profile) => bail!(
            "{name} is no hot pack: it is a profile; `brisk hot IMAGE --profile {name}` makes a hot pack of it"
        ),
        Some(kind) => bail!("{name} is no hot pack: it {kind}"),
    }
}
