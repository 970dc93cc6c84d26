//! The images of a session.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use brisk_image::{Image, OpenOptions};

use crate::error::Cause;

/// An image of a [`Session`](crate::Session).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionImage {
    /// The image's file or block device.
    pub path: PathBuf,
    /// The byte at which the image starts in it.
    pub offset: u64,
    /// The directory to mount the image on. The mount hides its contents, for the session only. `None` is the
    /// first of `/mnt`, `/media` and `/srv` that is empty and not a mount point.
    pub at: Option<PathBuf>,
}

impl SessionImage {
    /// The image at `path`, which starts at byte 0 and is mounted on any free place.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            offset: 0,
            at: None,
        }
    }
}

/// An image whose file is open.
pub(crate) struct OpenImage {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) offset: u64,
    /// A canonical path of a directory.
    pub(crate) at: Option<PathBuf>,
}

impl OpenImage {
    /// `in_root`: its place is in a root directory that does not exist yet.
    pub(crate) fn open(image: &SessionImage, in_root: bool) -> Result<Self, Cause> {
        let file = File::open(&image.path).map_err(|e| Cause::io("open the image", e))?;
        Ok(Self {
            path: image
                .path
                .canonicalize()
                .map_err(|e| Cause::io("resolve the image's name", e))?,
            file,
            offset: image.offset,
            at: match &image.at {
                Some(at) if in_root => Some(Path::new("/").join(at)),
                Some(at) => Some(mount_directory(at)?),
                None => None,
            },
        })
    }

    /// Reads the image's superblock and tables.
    pub(super) fn read(&self) -> Result<Image, Cause> {
        let read = |file| Image::from_source(file, &OpenOptions::new().offset(self.offset));
        let file = self.file.try_clone();
        let image = file.map_err(|e| Cause::io("hold the image", e)).map(read)?;
        image.map_err(|e| Cause::io("read the image", io::Error::other(e)))
    }
}

/// The canonical path of the directory `at`.
pub(crate) fn mount_directory(at: &Path) -> Result<PathBuf, Cause> {
    let path = at.canonicalize().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Cause::TargetMissing {
            target: at.to_owned(),
        },
        io::ErrorKind::NotADirectory => Cause::TargetNotDirectory {
            target: at.to_owned(),
        },
        _ => Cause::io(format!("resolve {}", at.display()), e),
    })?;
    if !path.is_dir() {
        return Err(Cause::TargetNotDirectory {
            target: at.to_owned(),
        });
    }
    Ok(path)
}
