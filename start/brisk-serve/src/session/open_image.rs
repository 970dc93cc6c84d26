//! The images of a session.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brisk_image::verity::{VerifiedFile, Verity};
use brisk_image::{Image, OpenOptions};
use brisk_io::ByteSource;
use brisk_launch::error::{Advice, Cause, Shown};
use brisk_launch::file_identity::FileIdentity;
use brisk_launch::key::Key;
use rustix::fs::fstat;

use super::missing_place::MissingPlace;
use crate::existing_path::ExistingPath;
use crate::kernel_mount::{no_target, no_target_directory};

/// An image of a [`Session`](crate::Session).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionImage {
    /// The image's file or block device.
    pub path: PathBuf,
    /// The byte at which the image starts in it.
    pub offset: u64,
    /// The directory to mount the image on. The mount hides its contents, for the session only. If it does not exist, a
    /// session in namespaces makes it: see [`MissingPlace`]. `None` is the first of `/mnt`, `/media` and `/srv` that is empty
    /// and not a mount point.
    pub at: Option<PathBuf>,
    /// Compares each block with the image's hash tree, whenever it is read. The tree is behind the image or beside it:
    /// see [`TreeFile::find`](brisk_image::verity::TreeFile::find). `None` compares nothing.
    pub verity: Option<Verity>,
}

impl SessionImage {
    /// The image at `path`, which starts at byte 0 and is mounted on any free place.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            offset: 0,
            at: None,
            verity: None,
        }
    }
}

/// An image whose file is open.
pub(crate) struct OpenImage {
    pub(crate) path: PathBuf,
    /// The absolute path by which the user named it. Its links may lead elsewhere later.
    pub(super) named: PathBuf,
    /// What it was when it was opened.
    pub(super) identity: FileIdentity,
    pub(crate) file: File,
    pub(crate) offset: u64,
    /// A canonical path of a directory.
    pub(crate) at: Option<PathBuf>,
    /// Its place, if that does not exist yet.
    pub(crate) missing: Option<MissingPlace>,
    pub(crate) verified: Option<Arc<VerifiedFile>>,
}

impl OpenImage {
    /// `in_root`: its place is in a root directory that does not exist yet.
    pub(crate) fn open(image: &SessionImage, in_root: bool) -> Result<Self, Cause> {
        let file = File::open(&image.path).map_err(|e| Cause::io("open the image", e))?;
        let identity = fstat(&file).map_err(|e| Cause::io("examine the image", e))?;
        let verified = match &image.verity {
            Some(verity) => {
                let file = file.try_clone();
                let file = file.map_err(|e| Cause::io("hold the image", e))?;
                let verified = VerifiedFile::open(&image.path, file, Some(image.offset), verity);
                let failed = |e| Cause::io("verify the image", io::Error::other(e));
                Some(Arc::new(verified.map_err(failed)?))
            }
            None => None,
        };
        let (at, missing) = match &image.at {
            Some(at) if in_root => (Some(Path::new("/").join(at)), None),
            Some(at) => {
                let path = resolve_place(at)?;
                (Some(path.whole()), MissingPlace::in_path(&path)?)
            }
            None => (None, None),
        };
        Ok(Self {
            path: image
                .path
                .canonicalize()
                .map_err(|e| Cause::io("resolve the image's name", e))?,
            named: std::path::absolute(&image.path)
                .map_err(|e| Cause::io("resolve the image's name", e))?,
            identity: FileIdentity::of(&identity),
            file,
            offset: image.offset,
            at,
            missing,
            verified,
        })
    }

    /// Another handle on the same image.
    pub(crate) fn try_clone(&self) -> Result<Self, Cause> {
        let file = self.file.try_clone();
        Ok(Self {
            path: self.path.clone(),
            named: self.named.clone(),
            identity: self.identity,
            file: file.map_err(|e| Cause::io("hold the image", e))?,
            offset: self.offset,
            at: self.at.clone(),
            missing: self.missing.clone(),
            verified: self.verified.clone(),
        })
    }

    /// Reads the image's superblock and tables.
    pub(super) fn read(&self) -> Result<Image, Cause> {
        let image = self.try_clone()?.into_image(OpenOptions::new());
        image.map_err(|e| Cause::io("read the image", io::Error::other(e)))
    }

    /// Reads the image, verified if that was asked for.
    pub(crate) fn into_image(self, options: OpenOptions) -> Result<Image, brisk_image::Error> {
        let options = options.offset(self.offset);
        match self.verified {
            Some(verified) => Image::open_verified(verified, &options),
            None => {
                let (file, identity) = (self.file, self.identity);
                Image::from_source(UnchangedFile { file, identity }, &options)
            }
        }
    }

    /// Adds what distinguishes it from other images, and from the same image that is verified in another way.
    pub(super) fn add_to(&self, key: &mut Key) -> io::Result<()> {
        key.add_image(&self.file, self.offset)?;
        match &self.verified {
            Some(verified) => key.add(verified.root_hash().as_bytes()),
            None => key.add(&[]),
        }
        Ok(())
    }

    /// The descriptors that it needs.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let verified = self.verified.iter().flat_map(|file| file.descriptors());
        std::iter::once(self.file.as_raw_fd()).chain(verified.copied())
    }
}

/// A file that can be read until somebody writes into it.
///
/// Without a hash tree nothing else tells old bytes from new ones, and a program would get a mixture. A file that was deleted
/// or replaced is still the same file.
struct UnchangedFile {
    file: File,
    /// What the file was when the session began.
    identity: FileIdentity,
}

impl ByteSource for UnchangedFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    /// Looks at the file after the read, so that what it returns was there before any change.
    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_bytes_at(offset, buf)?;
        let now = FileIdentity::of(&fstat(&self.file)?);
        match now.has_contents_of(self.identity) {
            true => Ok(read),
            false => Err(io::Error::other(
                "somebody has written into the file of the image since it was opened; a new session reads the new one",
            )),
        }
    }

    fn will_read(&self, bytes: Range<u64>) {
        self.file.will_read(bytes);
    }
}

/// The canonical path of the directory `at`.
pub(crate) fn mount_directory(at: &Path) -> Result<PathBuf, Cause> {
    let path = resolve_place(at)?;
    match path.is_whole() {
        true => Ok(path.existing),
        false => Err(no_target(at)),
    }
}

/// The path of the directory `at`, which may not exist.
pub(super) fn resolve_place(at: &Path) -> Result<ExistingPath, Cause> {
    let not_directory = || no_target_directory(at);
    let path = ExistingPath::of(at).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => no_target(at),
        io::ErrorKind::NotADirectory => not_directory(),
        _ => Cause::io(format!("resolve {}", at.display()), e),
    })?;
    match path.existing.is_dir() {
        true => Ok(path),
        false => Err(not_directory()),
    }
}

/// An image has no place, and the caller names none.
pub(crate) fn no_place(image: &Path) -> Cause {
    let text = format!(
        "{} does not record a directory to mount it on",
        Shown(image)
    );
    Cause::place(text).advise(Advice::NamePlaces)
}

/// Two images would hide each other.
pub(crate) fn places_overlap(one: &Path, other: &Path) -> Cause {
    Cause::place(format!(
        "one of {} and {} is inside the other; name separate places",
        Shown(one),
        Shown(other)
    ))
}
