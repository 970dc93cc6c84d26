//! Where the files of a profile are.

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brisk_io::ByteSource;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use super::{Profile, Root, RootKind};
use crate::error::{Error, Result};
use crate::read::contents_budget::ContentsBudget;
use crate::read::file_reader::FileReader;
use crate::read::image::Image;
use crate::read::inode_reader::{InodeKind, InodeRef};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// A directory or an image in which brisk looks for the files of a profile.
///
/// No symbolic link is followed, neither at the end of a path nor on the way.
#[derive(Debug)]
pub struct Origin(Kind);

#[derive(Debug)]
enum Kind {
    Directory {
        root: OwnedFd,
        path: PathBuf,
    },
    Image {
        image: Image,
        /// What may be read whole.
        contents: Arc<ContentsBudget>,
    },
}

/// A file of an [`Origin`].
pub(crate) enum OriginFile {
    Plain {
        file: File,
        metadata: Metadata,
        path: PathBuf,
    },
    Packed {
        reader: FileReader,
        reference: InodeRef,
        contents: Arc<ContentsBudget>,
    },
}

impl Origin {
    /// The tree in the directory at `path`.
    pub fn directory(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, path, flags, Mode::empty())
            .map_err(|e| Error::io("open the tree", e.into()).with_path(path))?;
        let path = path.to_owned();
        Ok(Self(Kind::Directory { root, path }))
    }

    /// The tree in `image`.
    pub fn image(image: &Image) -> Self {
        Self(Kind::Image {
            image: image.clone(),
            contents: Arc::new(ContentsBudget::new(image)),
        })
    }

    /// The image, if it is one.
    pub fn as_image(&self) -> Option<&Image> {
        match &self.0 {
            Kind::Directory { .. } => None,
            Kind::Image { image, .. } => Some(image),
        }
    }

    /// Where the origin is, for messages.
    fn path(&self) -> Option<&Path> {
        match &self.0 {
            Kind::Directory { path, .. } => Some(path),
            Kind::Image { image, .. } => image.path(),
        }
    }

    /// Whether there is a directory at `path`, and of one in an image its inode.
    pub(crate) fn directory_at(&self, path: &Path) -> Result<Option<Option<InodeRef>>> {
        match &self.0 {
            Kind::Directory {
                root,
                path: root_path,
            } => {
                let stat = || -> io::Result<bool> {
                    let Some((directory, name)) = Self::parent_of(root, path)? else {
                        return Ok(path.as_os_str().is_empty());
                    };
                    match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => Ok(rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir()),
                        Err(Errno::NOENT) => Ok(false),
                        Err(e) => Err(e.into()),
                    }
                };
                let named = |e| {
                    Error::io("read the metadata of the directory", e)
                        .with_path(root_path.join(path))
                };
                Ok(stat().map_err(named)?.then_some(None))
            }
            Kind::Image { image, .. } => {
                let inode = image.lookup(path)?.filter(crate::Inode::is_dir);
                Ok(inode.map(|inode| Some(inode.reference())))
            }
        }
    }

    /// The directory that `path` is in, and the last name of it; none if that directory is not
    /// there. `path` has passed the checks of a profile and is not empty.
    fn parent_of<'a>(
        root: &OwnedFd,
        path: &'a Path,
    ) -> io::Result<Option<(OwnedFd, &'a std::ffi::OsStr)>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut directory = root.try_clone()?;
        let mut names = path.iter();
        let Some(name) = names.next_back() else {
            return Ok(None);
        };
        for part in names {
            directory = match openat(&directory, part, flags, Mode::empty()) {
                Ok(next) => next,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                Err(e) => return Err(e.into()),
            };
        }
        Ok(Some((directory, name)))
    }

    /// The regular file at `path`; none if there is none.
    pub(crate) fn open(&self, path: &Path) -> Result<Option<OriginFile>> {
        match &self.0 {
            Kind::Directory {
                root,
                path: root_path,
            } => {
                let open = || -> io::Result<Option<(File, Metadata)>> {
                    let Some((directory, name)) = Self::parent_of(root, path)? else {
                        return Ok(None);
                    };
                    // A pipe of that name would wait for its writer.
                    let flags =
                        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                    let file = match openat(&directory, name, flags, Mode::empty()) {
                        Ok(file) => File::from(file),
                        // A socket, and a device without a driver, are NXIO.
                        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
                        Err(e) => return Err(e.into()),
                    };
                    let metadata = file.metadata()?;
                    Ok(metadata.is_file().then_some((file, metadata)))
                };
                let path = root_path.join(path);
                let opened = open().map_err(|e| Error::io("open the file", e).with_path(&path))?;
                Ok(opened.map(|(file, metadata)| OriginFile::Plain {
                    file,
                    metadata,
                    path,
                }))
            }
            Kind::Image { image, contents } => {
                let Some(inode) = image.lookup(path)? else {
                    return Ok(None);
                };
                if !matches!(inode.kind(), InodeKind::File(_)) {
                    return Ok(None);
                }
                let (reader, reference) = (image.file(&inode)?, inode.reference());
                Ok(Some(OriginFile::Packed {
                    reader,
                    reference,
                    contents: Arc::clone(contents),
                }))
            }
        }
    }

    /// Bytes of the regular file at `path`; none if there is none.
    fn len_of(&self, path: &Path) -> Result<Option<u64>> {
        match &self.0 {
            Kind::Directory {
                root,
                path: root_path,
            } => {
                let stat = || -> io::Result<Option<u64>> {
                    let Some((directory, name)) = Self::parent_of(root, path)? else {
                        return Ok(None);
                    };
                    match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => {
                            let is_file =
                                rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
                            Ok(u64::try_from(stat.st_size).ok().filter(|_| is_file))
                        }
                        Err(Errno::NOENT) => Ok(None),
                        Err(e) => Err(e.into()),
                    }
                };
                let named = |e| {
                    Error::io("read the metadata of the file", e).with_path(root_path.join(path))
                };
                stat().map_err(named)
            }
            Kind::Image { image, .. } => {
                let inode = image.lookup(path)?;
                let is_file = |inode: &crate::Inode| matches!(inode.kind(), InodeKind::File(_));
                Ok(inode.filter(is_file).map(|inode| inode.len()))
            }
        }
    }

    /// Whether there is something at `path`, whatever it is; the root always is.
    pub(crate) fn exists(&self, path: &Path) -> Result<bool> {
        if path.as_os_str().is_empty() {
            return Ok(true);
        }
        match &self.0 {
            Kind::Directory {
                root,
                path: root_path,
            } => {
                let stat = || -> io::Result<bool> {
                    let Some((directory, name)) = Self::parent_of(root, path)? else {
                        return Ok(false);
                    };
                    match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(_) => Ok(true),
                        Err(Errno::NOENT) => Ok(false),
                        Err(e) => Err(e.into()),
                    }
                };
                let named = |e| {
                    Error::io("read the metadata of the file", e).with_path(root_path.join(path))
                };
                stat().map_err(named)
            }
            Kind::Image { image, .. } => Ok(image.lookup(path)?.is_some()),
        }
    }

    /// The directory, or the one that the image is meant for; none if that is not known.
    fn place(&self) -> Result<Option<PathBuf>> {
        match &self.0 {
            Kind::Directory { path, .. } => Ok(path.canonicalize().ok()),
            Kind::Image { image, .. } => image.recorded_place(),
        }
    }

    /// Gives `profile` a root for this origin, if the origin lies in the system's root and is no
    /// root yet. Files of the profile below the origin then have paths in it. Files and directories
    /// keep their numbers.
    ///
    /// # Errors
    ///
    /// Those of reading the image.
    pub fn narrow<'a>(&self, profile: &'a Profile) -> Result<Cow<'a, Profile>> {
        let same = Ok(Cow::Borrowed(profile));
        let Some(place) = self.place()? else {
            return same;
        };
        if profile.roots().iter().any(|root| root.path == place) {
            return same;
        }
        let within = (0u32..)
            .zip(profile.roots())
            .filter(|(_, root)| root.kind == RootKind::System)
            .filter_map(|(number, root)| Some((number, place.strip_prefix(&root.path).ok()?)))
            // The innermost of file systems that are mounted in each other.
            .min_by_key(|(_, inner)| inner.as_os_str().len());
        let (Some((outer, inner)), Ok(own)) = (within, u32::try_from(profile.roots().len())) else {
            return same;
        };
        let mut narrowed = profile.clone();
        let rest = |root: u32, path: &Path| match path.strip_prefix(inner) {
            Ok(rest) if root == outer => Some(rest.to_owned()),
            _ => None,
        };
        for file in &mut narrowed.files {
            // A file that was where the directory is now has no path in it.
            let rest = rest(file.root, &file.path).filter(|rest| !rest.as_os_str().is_empty());
            if let Some(rest) = rest {
                (file.root, file.path) = (own, rest);
            }
        }
        for directory in &mut narrowed.directories {
            if let Some(rest) = rest(directory.root, &directory.path) {
                (directory.root, directory.path) = (own, rest);
            }
        }
        if !narrowed.files.iter().any(|file| file.root == own) {
            return same;
        }
        narrowed.roots.push(Root {
            path: place.clone(),
            kind: RootKind::Directory,
        });
        Ok(Cow::Owned(narrowed))
    }

    /// Finds the root of a [narrowed](Self::narrow) `profile` that this origin is, and returns its
    /// number: the root at the same path, or the only root beside the system, or else the root with
    /// the most files that are here with the same length. If several have as many, it is the first.
    ///
    /// # Errors
    ///
    /// `Input` if the system is the only root of the profile, and this origin is not in it.
    pub fn root_of(&self, profile: &Profile) -> Result<u32> {
        let place = self.place()?;
        let all = || (0u32..).zip(profile.roots());
        if let Some((number, _)) = all().find(|(_, root)| place.as_ref() == Some(&root.path)) {
            return Ok(number);
        }
        let roots: Vec<_> = all()
            .filter(|(_, root)| root.kind != RootKind::System)
            .collect();
        let first = match roots.as_slice() {
            [] => {
                return Err(Error::input(
                    "the profile was recorded from neither a directory nor an image, so nothing in it \
                     can be looked for here; record one with --tree or an image",
                ));
            }
            [(only, _)] => return Ok(*only),
            [(first, _), ..] => *first,
        };
        let mut here = vec![0u64; profile.roots().len()];
        for file in profile.files() {
            if self.len_of(&file.path)? == Some(file.len) {
                here[file.root as usize] += 1;
            }
        }
        let most = roots
            .iter()
            .map(|(number, _)| here[*number as usize])
            .max()
            .unwrap_or(0);
        let best = roots
            .iter()
            .find(|(number, _)| here[*number as usize] == most);
        Ok(best.map_or(first, |(number, _)| *number))
    }

    /// The error about this origin.
    pub(crate) fn name(&self, error: Error) -> Error {
        match self.path() {
            Some(path) => error.with_path(path),
            None => error,
        }
    }
}

impl OriginFile {
    /// Bytes of the file.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Plain { metadata, .. } => metadata.len(),
            Self::Packed { reader, .. } => reader.len(),
        }
    }

    /// Fills `buf` from `offset`, which the file has.
    pub(crate) fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self {
            Self::Plain { file, path, .. } => ByteSource::read_exact_bytes_at(file, offset, buf)
                .map_err(|e| Error::io("read the file", e).with_path(path)),
            Self::Packed { reader, .. } => {
                let n = reader.read_at(offset, buf)?;
                if n == buf.len() {
                    return Ok(());
                }
                let e = io::ErrorKind::UnexpectedEof.into();
                Err(Error::io("read the file in the image", e))
            }
        }
    }

    /// BLAKE3 of the contents, holes too.
    ///
    /// # Errors
    ///
    /// Those of reading, and `Limit` if all files of an image whose digests were asked for have more
    /// contents than its [`Limits`](crate::Limits) allow.
    pub(crate) fn digest(&self) -> Result<[u8; 32]> {
        if let Self::Packed { contents, .. } = self {
            contents.spend(self.len())?;
        }
        let mut hasher = blake3::Hasher::new();
        let mut buf = vec![0; CHUNK];
        let mut at = 0;
        while at < self.len() {
            let left = usize::try_from(self.len() - at).unwrap_or(CHUNK);
            let part = &mut buf[..left.min(CHUNK)];
            self.read_exact_at(at, part)?;
            hasher.update(part);
            at += part.len() as u64;
        }
        Ok(*hasher.finalize().as_bytes())
    }

    /// What tells at launch, without reading it, that it is this file.
    pub(crate) fn stamp(&self) -> Stamp {
        match self {
            Self::Plain { metadata, .. } => Stamp::of(metadata),
            Self::Packed { reference, .. } => Stamp::Image(*reference),
        }
    }
}

/// What tells at launch, without reading it, that a file is the one that a hot pack was made of:
/// with its length, which the pack has anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// In a directory: seconds and nanoseconds, and the inode number.
    Tree {
        mtime: (i64, u32),
        ctime: (i64, u32),
        ino: u64,
    },
    /// In an image, which has an identity as a whole: where its inode is.
    Image(InodeRef),
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        // Nanoseconds of a second: they fit.
        let nanoseconds = |n: i64| u32::try_from(n).unwrap_or(0);
        Self::Tree {
            mtime: (metadata.mtime(), nanoseconds(metadata.mtime_nsec())),
            ctime: (metadata.ctime(), nanoseconds(metadata.ctime_nsec())),
            ino: metadata.ino(),
        }
    }
}
