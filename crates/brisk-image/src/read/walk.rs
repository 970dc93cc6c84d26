//! Going through a whole tree, once.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::dir_reader::ReadDir;
use super::image::Image;
use super::inode_reader::{Inode, InodeKind, InodeRef};
use crate::error::{Corrupt, Error, Result};
use crate::format::metadata::METADATA_BLOCK;

/// Something in the tree, with its path from the root.
#[derive(Debug, Clone)]
pub struct WalkEntry {
    path: PathBuf,
    depth: usize,
    inode: Inode,
}

impl WalkEntry {
    /// The path from the root; empty for the root itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many directories below the start of the walk it is, which itself is at 0.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// What is there.
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    /// The path and the inode, taken apart.
    pub fn into_parts(self) -> (PathBuf, Inode) {
        (self.path, self.inode)
    }
}

/// Every file and directory of a tree: each directory before what is in it, names in the order of
/// their bytes.
///
/// After an error nothing more comes.
///
/// Invariants that make a walk end on any image:
/// 1. No directory is entered twice.
/// 2. Listings are read for at most as many bytes as the directory table can decode to.
/// 3. No path has more than [`Limits::depth`](crate::Limits) directories.
/// 4. `path` is that of the last directory of `open`, so memory grows with the depth, and not with
///    its square.
pub struct Walk<'a> {
    image: &'a Image,
    /// What the walk starts with, until it was given out.
    first: Option<(PathBuf, Inode)>,
    open: Vec<ReadDir<'a>>,
    path: PathBuf,
    entered: HashSet<InodeRef>,
    listing_bytes_left: u64,
}

impl Image {
    /// Walks the whole tree.
    pub fn walk(&self) -> Result<Walk<'_>> {
        Ok(self.walk_from(PathBuf::new(), self.root()?))
    }

    /// Walks what is at and below `inode`, whose path is `path`.
    pub fn walk_from(&self, path: PathBuf, inode: Inode) -> Walk<'_> {
        let superblock = &self.inner.stored.superblock;
        // A metadata block takes at least 3 stored bytes, and decodes to at most 8 KiB.
        let stored = superblock.directory_table_end() - superblock.directory_table();
        Walk {
            image: self,
            first: Some((path, inode)),
            open: Vec::new(),
            path: PathBuf::new(),
            entered: HashSet::new(),
            listing_bytes_left: (stored / 3 + 1).saturating_mul(METADATA_BLOCK as u64),
        }
    }
}

impl Walk<'_> {
    fn enter(&mut self, path: &Path, inode: &Inode) -> Result<()> {
        let InodeKind::Directory(directory) = inode.kind() else {
            return Ok(());
        };
        let limit = self.image.inner.stored.limits.depth;
        if self.open.len() >= limit {
            let (needs, limit) = (self.open.len() as u64 + 1, limit as u64);
            return Err(self
                .image
                .name(Error::limit("the depth of directories", needs, limit)));
        }
        let left = self
            .listing_bytes_left
            .checked_sub(directory.listing_len.into());
        if let (true, Some(left)) = (self.entered.insert(inode.reference()), left) {
            self.listing_bytes_left = left;
            self.open.push(self.image.read_dir(inode)?);
            self.path.clear();
            self.path.push(path);
            return Ok(());
        }
        let at = self.image.inner.inode_cursor(inode.reference())?.location();
        let fault = Corrupt::DirectoryLoop {
            inode_number: inode.number(),
        };
        Err(self.image.name(Error::corrupt(at, fault)))
    }

    fn advance(&mut self) -> Result<Option<WalkEntry>> {
        let (path, inode) = match self.first.take() {
            Some(first) => first,
            None => loop {
                let Some(entries) = self.open.last_mut() else {
                    return Ok(None);
                };
                match entries.next().transpose()? {
                    Some(entry) => {
                        let path = self.path.join(entry.name());
                        break (path, self.image.entry_inode(&entry)?);
                    }
                    None => {
                        self.open.pop();
                        self.path.pop();
                    }
                }
            },
        };
        // What is open are the directories above it.
        let depth = self.open.len();
        self.enter(&path, &inode)?;
        Ok(Some(WalkEntry { path, depth, inode }))
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.advance();
        if step.is_err() {
            self.open.clear();
        }
        step.transpose()
    }
}
