//! Finds the hash tree of an image: behind it, or beside it.

use std::fs::File;
use std::path::Path;

use brisk_io::open_at_once;

use super::expected::Verity;
use super::tree_file::{TreeFile, beside};
use super::verified_file::VerifiedFile;
use crate::error::{Error, ErrorKind, Result};
use crate::read::image::{Image, OpenOptions};

impl TreeFile {
    /// The tree of the image in `file`, which has the name `path`: behind the image, or else in the file
    /// [`beside`] it. The image starts at byte `offset`, or where [`Image::open`] finds it.
    ///
    /// Nothing is trusted yet: [`VerifiedFile::new`](super::VerifiedFile::new) compares what was found with a root hash.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the file has no image, `NotFound` if there is no tree, and `Io`.
    pub fn find(path: &Path, file: &File, offset: Option<u64>) -> Result<Self> {
        match Self::behind(path, file, offset)? {
            Some(tree) => Ok(tree),
            None => Self::in_file(&beside(path)),
        }
    }

    /// All trees that [`find`](Self::find) could find: that behind the image, and that beside it.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find), but that none is no error.
    pub fn all(path: &Path, file: &File, offset: Option<u64>) -> Result<Vec<Self>> {
        let mut trees = Vec::from_iter(Self::behind(path, file, offset)?);
        match Self::in_file(&beside(path)) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            tree => trees.push(tree?),
        }
        Ok(trees)
    }

    fn behind(path: &Path, file: &File, offset: Option<u64>) -> Result<Option<Self>> {
        let hold = || {
            let file = file.try_clone();
            file.map_err(|e| Error::io("hold the image", e).with_path(path))
        };
        let mut options = OpenOptions::new();
        if let Some(offset) = offset {
            options = options.offset(offset);
        }
        let image = Image::from_source(hold()?, &options);
        let image = image.map_err(|e| e.with_path(path))?;
        let superblock = image.verity_superblock().map_err(|e| e.with_path(path))?;
        superblock
            .map(|superblock| Ok(Self::of_file(hold()?, path, superblock)))
            .transpose()
    }

    fn in_file(path: &Path) -> Result<Self> {
        match open_at_once(path) {
            Ok(tree) => Ok(Self::of_file(tree, path, 0)),
            Err(e) => {
                let doing =
                    "find a verity tree behind the image or in this file, which brisk verity makes";
                Err(Error::io(doing, e).with_path(path))
            }
        }
    }
}

impl VerifiedFile {
    /// The image in `file`, which has the name `path`, compared with the tree that [`TreeFile::find`] finds.
    ///
    /// # Errors
    ///
    /// Those of [`TreeFile::find`] and [`VerifiedFile::new`], and `Corrupt` if the tree does not cover the bytes that
    /// `verity` says.
    pub fn open(path: &Path, file: File, offset: Option<u64>, verity: &Verity) -> Result<Self> {
        let tree = TreeFile::find(path, &file, offset)?;
        Self::of_tree(tree, path, file, verity)
    }

    /// The image in `file` as its own tree says that it is. Nobody vouches for that tree: what is read is as good as the
    /// tree, and no better. This is for signing.
    ///
    /// # Errors
    ///
    /// Those of [`VerifiedFile::open`].
    pub fn of_its_own_root(path: &Path, file: File, offset: Option<u64>) -> Result<Self> {
        let tree = TreeFile::find(path, &file, offset)?;
        Self::of_root_of(tree, path, file)
    }
}
