//! A tree, wherever it comes from: a directory, a tar archive or an image.

mod added_files;
pub(crate) mod builder;
pub(crate) mod compare;
mod dir_source;
pub(crate) mod entry;
mod image_source;
mod losses;
pub(crate) mod mode_change;
pub(crate) mod rules;
#[cfg(feature = "tar")]
pub(crate) mod tar;
mod tree_path;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::dir_listing::MAX_NAME;
use crate::format::inode::FileType;
use crate::read::file_reader::FileReader;
use crate::read::image::Image;
use crate::read::inode_reader::Device;
use crate::read::xattr_reader::Xattr;

/// The number of an inode in a [`Tree`]; the root is 0.
pub(crate) type InodeId = usize;

/// The number by which a [`FileSource`] knows a file.
pub(crate) type SourceId = u32;

/// Files and directories to be packed: names and metadata in memory, contents where they are.
///
/// Made by [`Tree::from_directory`], [`Tree::from_tar`], [`Tree::from_image`], or piece by piece by a
/// [`TreeBuilder`](crate::TreeBuilder). [`Tree::edit`] changes one.
///
/// 1. Inode 0 is the root, a directory.
/// 2. Each directory but the root is in exactly one directory; other inodes are in at least one.
/// 3. The names of a directory are sorted by their bytes, each is there once, and each passed
///    `check_name`.
/// 4. `xattrs` of an inode is a number below the length of `xattr_sets`.
pub struct Tree {
    pub(crate) inodes: Vec<TreeInode>,
    pub(crate) xattr_sets: Vec<Vec<Xattr>>,
    pub(crate) source: Box<dyn FileSource>,
    pub(crate) warnings: Vec<String>,
}

/// What is the same for every kind of inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct TreeInode {
    pub(crate) attributes: Attributes,
    /// Index into [`Tree::xattr_sets`].
    pub(crate) xattrs: Option<u32>,
    pub(crate) kind: TreeKind,
}

#[derive(Debug, Clone)]
pub(crate) enum TreeKind {
    Directory(Vec<(Box<[u8]>, InodeId)>),
    File { len: u64, source: SourceId },
    Symlink(Box<[u8]>),
    BlockDevice(Device),
    CharDevice(Device),
    Fifo,
    Socket,
}

/// What a person, and an image, call this kind.
pub(crate) fn file_type(kind: &TreeKind) -> FileType {
    match kind {
        TreeKind::Directory(_) => FileType::Directory,
        TreeKind::File { .. } => FileType::File,
        TreeKind::Symlink(_) => FileType::Symlink,
        TreeKind::BlockDevice(_) => FileType::BlockDevice,
        TreeKind::CharDevice(_) => FileType::CharDevice,
        TreeKind::Fifo => FileType::Fifo,
        TreeKind::Socket => FileType::Socket,
    }
}

/// Where the contents of files come from.
pub(crate) trait FileSource: Send + Sync {
    /// Opens a file for reading.
    fn open(&self, file: SourceId) -> Result<Box<dyn SourceFile + Send + '_>>;

    /// The image that files come from whose [`SourceFile::stored`] is known.
    fn image(&self) -> Option<&Image> {
        None
    }

    /// Whether files are to be read one after the other, each from front to back, in the order of their numbers: then all are
    /// read once. Any other order is right, too, and may take as long for each file as for all.
    fn is_stream(&self) -> bool {
        false
    }

    /// A digest of the contents of a file, if one is known. Files of this source with the same length and digest have the same
    /// contents.
    fn digest(&self, file: SourceId) -> Option<[u8; 32]> {
        let _ = file;
        None
    }
}

/// The contents of one file that is packed.
pub(crate) trait SourceFile {
    /// Fills `buf` from `offset`. That the file is shorter than it was is an error.
    fn read_exact_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// True if the `len` bytes from `offset` are known to be zeros without reading them.
    fn is_hole(&mut self, offset: u64, len: u64) -> Result<bool>;

    /// Checks that the file is still what it was when the tree was listed.
    fn check_unchanged(&mut self) -> Result<()>;

    /// The file as an image stores it, if it comes from one.
    fn stored(&self) -> Option<&FileReader> {
        None
    }
}

/// Checks that a directory of an image can hold `name`.
pub(crate) fn check_name(name: &OsStr) -> Result<()> {
    let bytes = name.as_bytes();
    if bytes.len() > MAX_NAME {
        return Err(Error::input(format!(
            "name is {} bytes long, allowed is at most {MAX_NAME}; shorten or exclude it",
            bytes.len()
        )));
    }
    if bytes.is_empty()
        || bytes == b"."
        || bytes == b".."
        || bytes.contains(&b'/')
        || bytes.contains(&0)
    {
        return Err(Error::input(format!(
            "name {name:?} cannot be a file's name"
        )));
    }
    Ok(())
}

impl Tree {
    /// Inodes in the tree, each hard-linked one counted once.
    pub fn inode_count(&self) -> usize {
        self.inodes.len()
    }

    /// Bytes of all files, each hard-linked one counted once.
    pub fn bytes(&self) -> u64 {
        let len = |inode: &TreeInode| match inode.kind {
            TreeKind::File { len, .. } => len,
            _ => 0,
        };
        self.inodes.iter().map(len).fold(0, u64::saturating_add)
    }

    /// True if something in the tree has extended attributes.
    pub fn has_xattrs(&self) -> bool {
        !self.xattr_sets.is_empty()
    }

    /// What could not be taken over, each as a sentence for a person.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The newest modification time.
    pub(crate) fn newest(&self) -> u32 {
        self.inodes
            .iter()
            .map(|inode| inode.attributes.mtime)
            .max()
            .unwrap_or(0)
    }

    /// Numbers the sets of attributes in the order of the inodes that have them, and drops those
    /// that none has: numbers in the order in which a source lists its files would make an image
    /// differ from one of the same tree by way of another source.
    fn number_xattr_sets(&mut self) {
        let mut old = std::mem::take(&mut self.xattr_sets);
        let mut numbers = vec![None; old.len()];
        let mut found = vec![None; self.inodes.len()];
        for inode in self.post_order() {
            found[inode] = self.inodes[inode].xattrs.map(|set| {
                // Invariant 4. There are no more sets than before.
                *numbers[set as usize].get_or_insert_with(|| {
                    self.xattr_sets.push(std::mem::take(&mut old[set as usize]));
                    (self.xattr_sets.len() - 1) as u32
                })
            });
        }
        for (inode, set) in self.inodes.iter_mut().zip(found) {
            inode.xattrs = set;
        }
    }

    /// The inodes that a directory has names for, sorted by name.
    pub(crate) fn entries(&self, directory: InodeId) -> &[(Box<[u8]>, InodeId)] {
        match &self.inodes[directory].kind {
            TreeKind::Directory(entries) => entries,
            _ => &[],
        }
    }

    /// All inodes but directories, each at its first name, directory by directory, names in order;
    /// then the directory itself. The root is last.
    pub(crate) fn post_order(&self) -> Vec<InodeId> {
        let mut order = Vec::with_capacity(self.inodes.len());
        let mut seen = vec![false; self.inodes.len()];
        let mut open = vec![(0, 0)];
        while let Some((directory, next)) = open.last_mut() {
            let directory = *directory;
            let Some(&(_, inode)) = self.entries(directory).get(*next) else {
                order.push(directory);
                open.pop();
                continue;
            };
            *next += 1;
            if matches!(self.inodes[inode].kind, TreeKind::Directory(_)) {
                open.push((inode, 0));
            } else if !std::mem::replace(&mut seen[inode], true) {
                order.push(inode);
            }
        }
        order
    }

    /// Calls `each` with every file that has contents and the path of its first name, in the order of paths.
    ///
    /// One path is in memory at a time: all paths of a deep tree take the square of its depth.
    pub(crate) fn visit_files(
        &self,
        mut each: impl FnMut(&Path, InodeId) -> Result<()>,
    ) -> Result<()> {
        let mut seen = vec![false; self.inodes.len()];
        let mut path = PathBuf::new();
        let mut open = vec![(0, 0)];
        while let Some((directory, next)) = open.last_mut() {
            let Some((name, inode)) = self.entries(*directory).get(*next) else {
                open.pop();
                path.pop();
                continue;
            };
            *next += 1;
            match self.inodes[*inode].kind {
                TreeKind::Directory(_) => {
                    path.push(OsStr::from_bytes(name));
                    open.push((*inode, 0));
                }
                TreeKind::File { len: 1.., .. } if !std::mem::replace(&mut seen[*inode], true) => {
                    path.push(OsStr::from_bytes(name));
                    each(&path, *inode)?;
                    path.pop();
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// All that [`Tree::visit_files`] gives.
    #[cfg(test)]
    pub(crate) fn files(&self) -> Vec<(PathBuf, InodeId)> {
        let mut files = Vec::new();
        let visited = self.visit_files(|path, inode| {
            files.push((path.to_owned(), inode));
            Ok(())
        });
        visited.unwrap();
        files
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree")
            .field("inodes", &self.inodes.len())
            .field("xattr_sets", &self.xattr_sets.len())
            .finish_non_exhaustive()
    }
}
