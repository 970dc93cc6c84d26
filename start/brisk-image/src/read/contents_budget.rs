//! How much the files of an image may have, where all are read.

use std::sync::atomic::{AtomicU64, Ordering};

use super::image::Image;
use super::inode_reader::File;
use super::xattr_reader::Xattr;
use crate::error::{Error, Result};

/// What a block of a hole costs: nothing is decoded or written, but it is looked at.
const HOLE: u64 = 128;

/// What a byte of an attribute costs: a tree keeps it in memory, and a file system searches it.
const XATTR: u64 = 32;

/// What is left of the bytes that the files of an image may have, for all threads of one operation.
///
/// Blocks may be of several files, so a few stored bytes may be told to be any number of files.
#[derive(Debug)]
pub(crate) struct ContentsBudget {
    image: Image,
    spent: AtomicU64,
    most: u64,
}

impl ContentsBudget {
    pub(crate) fn new(image: &Image) -> Self {
        let stored = &image.inner.stored;
        Self {
            image: image.clone(),
            spent: AtomicU64::new(0),
            most: stored.limits.contents_of(stored.superblock.bytes_used()),
        }
    }

    /// Counts `file`, which was not counted before.
    ///
    /// # Errors
    ///
    /// `Limit` if all that was counted is more than [`Limits::contents`](crate::Limits::contents),
    /// and those of reading the list of the file's blocks.
    pub(crate) fn add_file(&self, file: &File) -> Result<()> {
        if file.len <= self.image.block_size().into() {
            return self.spend(file.len);
        }
        let holes = self.image.inner.count_holes(file);
        let (bytes, holes) = holes.map_err(|e| self.image.name(e))?;
        self.spend(bytes.saturating_add(holes.saturating_mul(HOLE)))
    }

    /// Counts the attributes of an inode.
    pub(crate) fn add_xattrs(&self, xattrs: &[Xattr]) -> Result<()> {
        let len = |xattr: &Xattr| (xattr.name.len() + xattr.value.len()) as u64;
        let bytes: u64 = xattrs.iter().map(len).sum();
        self.spend(bytes.saturating_mul(XATTR))
    }

    /// Counts `bytes` that are decoded.
    pub(crate) fn spend(&self, bytes: u64) -> Result<()> {
        let before = self.spent.fetch_add(bytes, Ordering::Relaxed);
        let spent = before.saturating_add(bytes);
        if spent <= self.most {
            return Ok(());
        }
        let what = "reading all files";
        let e = Error::limit_of_image(what, spent, self.most);
        Err(self.image.name(e))
    }
}
