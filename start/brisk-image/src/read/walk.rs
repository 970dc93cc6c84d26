//! Going through a whole tree, once.

use std::collections::HashSet;
use std::iter::Peekable;
use std::path::{Path, PathBuf};

use super::dir_reader::ReadDir;
use super::image::Image;
use super::inode_reader::{Inode, InodeKind, InodeRef};
use crate::error::{Corrupt, Error, Result};
use crate::format::metadata::MetaRef;
use crate::names;

/// Something in the tree, with its path from the root.
#[derive(Debug, Clone)]
pub struct WalkEntry {
    path: PathBuf,
    depth: usize,
    is_last: bool,
    inode: Inode,
}

impl WalkEntry {
    /// The path from the root; empty for the root itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True for the last name of its directory, and for the start of the walk.
    pub fn is_last(&self) -> bool {
        self.is_last
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
/// 1. No directory is entered twice, and no two have one listing.
/// 2. No path has more than [`Limits::depth`](crate::Limits) directories.
/// 3. What is given out stays within `budget`.
/// 4. `path` is that of the last directory of `open`, in bytes, so memory grows with the depth, and not with
///    its square.
pub struct Walk<'a> {
    image: &'a Image,
    /// What the walk starts with, until it was given out.
    first: Option<(PathBuf, Inode)>,
    open: Vec<OpenDirectory<'a>>,
    path: Vec<u8>,
    entered: HashSet<InodeRef>,
    /// Where the listings start that were entered.
    listings: HashSet<MetaRef>,
    /// Files of several names whose blocks were counted.
    counted: HashSet<InodeRef>,
    budget: Budget,
}

/// A directory that the walk is in.
struct OpenDirectory<'a> {
    entries: Peekable<ReadDir<'a>>,
    /// Bytes of the path of the one above.
    len_above: usize,
}

/// What is left of what a walk may give.
struct Budget {
    names: u64,
    /// Bytes of paths, and of targets of symbolic links.
    path_bytes: u64,
    /// Bytes of listings that the directory table can hold.
    listings: u64,
    /// Bytes of lists of blocks that the inode table can hold. An image whose inodes overlap says
    /// that it has more.
    block_lists: u64,
}

/// Takes `n` off what is left; none if less is left.
fn spend(left: &mut u64, n: u64) -> Option<()> {
    *left = left.checked_sub(n)?;
    Some(())
}

/// The path of `name` in a directory. A slash separates them, on every system.
fn joined(directory: &[u8], name: &[u8]) -> PathBuf {
    let slash: &[u8] = match directory {
        [] | [.., b'/'] => b"",
        _ => b"/",
    };
    names::from_bytes([directory, slash, name].concat()).into()
}

impl Image {
    /// Walks the whole tree.
    ///
    /// # Errors
    ///
    /// Those of reading, and later `Limit` if the tree has more names, or longer paths, than
    /// [`Limits::names`](crate::Limits::names) allows.
    pub fn walk(&self) -> Result<Walk<'_>> {
        Ok(self.walk_from(PathBuf::new(), self.root()?))
    }

    /// Walks what is at and below `inode`, whose path is `path`.
    pub fn walk_from(&self, path: PathBuf, inode: Inode) -> Walk<'_> {
        let stored = &self.inner.stored;
        let (superblock, limits) = (&stored.superblock, &stored.limits);
        Walk {
            image: self,
            first: Some((path, inode)),
            open: Vec::new(),
            path: Vec::new(),
            entered: HashSet::new(),
            listings: HashSet::new(),
            counted: HashSet::new(),
            budget: Budget {
                names: limits.names_of(superblock.bytes_used()),
                path_bytes: limits.path_bytes_of(superblock.bytes_used()),
                listings: superblock.most_listing_bytes(),
                block_lists: superblock.most_inode_bytes(),
            },
        }
    }
}

impl Walk<'_> {
    fn corrupt(&self, inode: &Inode, fault: Corrupt) -> Error {
        match self.image.inner.inode_cursor(inode.reference()) {
            Ok(cursor) => self.image.name(Error::corrupt(cursor.location(), fault)),
            Err(e) => self.image.name(e),
        }
    }

    /// Takes what `inode`, at `path`, costs off the budget.
    fn spend(&mut self, path: &Path, inode: &Inode) -> Result<()> {
        let stored = &self.image.inner.stored;
        let (limits, image_len) = (&stored.limits, stored.superblock.bytes_used());
        let over = |what, most: u64| {
            let needs = most.saturating_add(1);
            Err(self.image.name(Error::limit_of_image(what, needs, most)))
        };
        if spend(&mut self.budget.names, 1).is_none() {
            return over(
                "the number of names in the tree",
                limits.names_of(image_len),
            );
        }
        let target = match inode.kind() {
            InodeKind::Symlink(target) => target.len(),
            _ => 0,
        };
        let bytes = path.as_os_str().len().saturating_add(target);
        if spend(&mut self.budget.path_bytes, bytes as u64).is_none() {
            let most = limits.path_bytes_of(image_len);
            return over("the length of all paths in the tree", most);
        }
        let InodeKind::File(file) = inode.kind() else {
            return Ok(());
        };
        let list = self.image.inner.block_count(file).saturating_mul(4);
        // A file that says it has one name has one, or is counted again.
        let is_new = list > 0 && (inode.nlink() <= 1 || self.counted.insert(inode.reference()));
        let have = self.budget.block_lists;
        if is_new && spend(&mut self.budget.block_lists, list).is_none() {
            let what = "the list of a file's blocks";
            let need = list;
            return Err(self.corrupt(inode, Corrupt::Truncated { what, need, have }));
        }
        Ok(())
    }

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
        let inode_number = inode.number();
        if !self.entered.insert(inode.reference()) {
            return Err(self.corrupt(inode, Corrupt::DirectoryLoop { inode_number }));
        }
        let need = u64::from(directory.listing_len);
        // An empty one may be said to stand anywhere.
        if need > 0 && !self.listings.insert(directory.listing) {
            return Err(self.corrupt(inode, Corrupt::SharedListing { inode_number }));
        }
        let have = self.budget.listings;
        if spend(&mut self.budget.listings, need).is_none() {
            let what = "a directory listing";
            return Err(self.corrupt(inode, Corrupt::Truncated { what, need, have }));
        }
        self.open.push(OpenDirectory {
            entries: self.image.read_dir(inode)?.peekable(),
            len_above: self.path.len(),
        });
        self.path.clear();
        self.path
            .extend_from_slice(&names::to_bytes(path.as_os_str()));
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<WalkEntry>> {
        let (path, inode, is_last) = match self.first.take() {
            Some((path, inode)) => (path, inode, true),
            None => loop {
                let Some(directory) = self.open.last_mut() else {
                    return Ok(None);
                };
                match directory.entries.next().transpose()? {
                    Some(entry) => {
                        let is_last = directory.entries.peek().is_none();
                        let path = joined(&self.path, &names::to_bytes(entry.name()));
                        break (path, self.image.entry_inode(&entry)?, is_last);
                    }
                    None => {
                        self.path.truncate(directory.len_above);
                        self.open.pop();
                    }
                }
            },
        };
        self.spend(&path, &inode)?;
        // What is open are the directories above it.
        let depth = self.open.len();
        self.enter(&path, &inode)?;
        Ok(Some(WalkEntry {
            path,
            depth,
            is_last,
            inode,
        }))
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
