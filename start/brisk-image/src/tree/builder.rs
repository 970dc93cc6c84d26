//! Putting trees together, and changing them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use super::added_files::AddedFiles;
use super::entry::{EntryKind, TreeEntry};
use super::{Attributes, FileSource, InodeId, Tree, TreeInode, TreeKind, check_name, file_type};
use crate::error::{Error, Missing, Result, shown};
use crate::format::inode::{FileType, MAX_TARGET, encode_rdev};
use crate::format::xattr::{MAX_NAME, MAX_NAMES, MAX_VALUE, split_name};
use crate::read::inode_reader::Device;
use crate::read::limits::Limits;
use crate::read::xattr_reader::Xattr;

/// Bytes of names and values of extended attributes, those of inodes with the same ones counted once. Sets
/// in a small image can overlap.
const MOST_XATTRS: u64 = 256 << 20;

/// The attributes of a directory that the caller did not describe.
const PLAIN_DIRECTORY: Attributes = Attributes {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    mtime: 0,
};

/// Makes a [`Tree`], or changes one.
///
/// [`TreeBuilder::new`] starts with an empty root directory, [`Tree::edit`] with a tree that comes
/// from an image, a directory or an archive. Paths start at the root of the tree, with or without
/// a slash in front. Symbolic links are not followed: a path that goes through one is an error.
///
/// Each method leaves the tree as it was if it fails, and returns the builder otherwise, so that
/// calls can follow each other.
///
/// # Examples
///
/// An image made from nothing:
///
/// ```
/// use brisk_image::{Image, ImageWriter, TreeBuilder, TreeEntry};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("app.img");
/// let mut tree = TreeBuilder::new();
/// tree.add_directories("usr/bin")?
///     .add("usr/bin/hello", TreeEntry::file("#!/bin/sh\necho hello\n").permissions(0o755))?
///     .hard_link("usr/bin/hello", "usr/bin/hi")?
///     .add("bin", TreeEntry::symlink("usr/bin"))?
///     .add("null", TreeEntry::char_device(1, 3).permissions(0o666))?;
/// ImageWriter::new().write(&tree.finish(), &path)?;
///
/// let image = Image::open(&path)?;
/// assert!(image.read("bin/hi")?.starts_with(b"#!/bin/sh"));
/// # Ok(())
/// # }
/// ```
///
/// A file added to an image, which is written as it was before:
///
/// ```
/// use brisk_image::{Image, ImageWriter, Tree, TreeEntry, TreeRules};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (old, new) = (dir.path().join("old.img"), dir.path().join("new.img"));
/// # let tree = brisk_image::TreeBuilder::new().finish();
/// # ImageWriter::new().write(&tree, &old)?;
/// let image = Image::open(&old)?;
/// let mut tree = Tree::from_image(&image, &TreeRules::default())?.edit();
/// tree.add("motd", TreeEntry::file("welcome\n"))?;
/// ImageWriter::like(&image)?.write(&tree.finish(), &new)?;
/// # assert_eq!(Image::open(&new)?.read("motd")?, b"welcome\n");
/// # Ok(())
/// # }
/// ```
///
/// Invariants:
/// 1. Inode 0 is the root, a directory.
/// 2. `names` of an inode is how many directories' names lead to it; the root has one more. An
///    inode without a name is never reached again.
/// 3. A directory has one name at most, and each name passed `check_name`.
/// 4. `xattrs` of an inode is a number below the length of `xattr_sets`.
#[derive(Debug)]
pub struct TreeBuilder {
    inodes: Vec<Node>,
    xattr_sets: Vec<Vec<Xattr>>,
    known_sets: HashMap<Vec<Xattr>, u32>,
    /// Bytes of their names and values.
    xattr_bytes: u64,
    files: AddedFiles,
    pub(in crate::tree) warnings: Vec<String>,
}

#[derive(Debug)]
struct Node {
    attributes: Attributes,
    xattrs: Option<u32>,
    kind: NodeKind,
    names: u32,
}

/// What a tree that is put together holds.
#[derive(Debug)]
pub(in crate::tree) enum NodeKind {
    /// The number of the node that each name leads to.
    Directory(BTreeMap<Box<[u8]>, usize>),
    /// What is no directory.
    Other(TreeKind),
}

impl NodeKind {
    pub(in crate::tree) fn empty_directory() -> Self {
        Self::Directory(BTreeMap::new())
    }

    pub(in crate::tree) fn file_type(&self) -> FileType {
        match self {
            Self::Directory(_) => FileType::Directory,
            Self::Other(kind) => file_type(kind),
        }
    }
}

impl From<TreeKind> for NodeKind {
    fn from(kind: TreeKind) -> Self {
        match kind {
            TreeKind::Directory(entries) => Self::Directory(entries.into_iter().collect()),
            other => Self::Other(other),
        }
    }
}

/// A name in a directory, whether something has it or not.
struct NameIn<'a> {
    directory: InodeId,
    name: &'a OsStr,
    /// How many directories are above it.
    depth: usize,
}

/// What inodes and names are made of, by number.
impl TreeBuilder {
    pub(in crate::tree) fn with_root(attributes: Attributes, xattrs: Vec<Xattr>) -> Result<Self> {
        let mut builder = Self {
            inodes: Vec::new(),
            xattr_sets: Vec::new(),
            known_sets: HashMap::new(),
            xattr_bytes: 0,
            files: AddedFiles::default(),
            warnings: Vec::new(),
        };
        let root = builder.add_inode(attributes, xattrs, NodeKind::empty_directory())?;
        builder.inodes[root].names = 1;
        Ok(builder)
    }

    /// Adds an inode that has no name yet.
    pub(in crate::tree) fn add_inode(
        &mut self,
        attributes: Attributes,
        xattrs: Vec<Xattr>,
        kind: impl Into<NodeKind>,
    ) -> Result<InodeId> {
        // Numbers start at 1, and the root's parent has the one after the last.
        if self.inodes.len() >= u32::MAX as usize - 1 {
            return Err(Error::limit(
                "the number of inodes",
                self.inodes.len() as u64 + 1,
                u32::MAX.into(),
            ));
        }
        let xattrs = self.xattr_set(xattrs)?;
        self.inodes.push(Node {
            attributes,
            xattrs,
            kind: kind.into(),
            names: 0,
        });
        Ok(self.inodes.len() - 1)
    }

    fn xattr_set(&mut self, mut xattrs: Vec<Xattr>) -> Result<Option<u32>> {
        if xattrs.is_empty() {
            return Ok(None);
        }
        // The order in which a filesystem lists them is its own.
        xattrs.sort();
        let next = u32::try_from(self.xattr_sets.len()).map_err(|_| {
            Error::limit("the number of xattr sets", u32::MAX.into(), u32::MAX.into())
        })?;
        Ok(Some(match self.known_sets.entry(xattrs) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let bytes = self.xattr_bytes + xattr_bytes(new.key());
                if bytes > MOST_XATTRS {
                    let what = "the extended attributes of a tree";
                    return Err(Error::limit(what, bytes, MOST_XATTRS));
                }
                self.xattr_bytes = bytes;
                self.xattr_sets.push(new.key().clone());
                *new.insert(next)
            }
        }))
    }

    /// What `inode` has, to be changed.
    pub(in crate::tree) fn attributes(&mut self, inode: InodeId) -> &mut Attributes {
        &mut self.inodes[inode].attributes
    }

    /// Gives `inode` a name in `directory`, which has no such name; names may come in any order.
    pub(in crate::tree) fn link(&mut self, directory: InodeId, name: &[u8], inode: InodeId) {
        if let NodeKind::Directory(entries) = &mut self.inodes[directory].kind {
            entries.insert(name.into(), inode);
            self.inodes[inode].names += 1;
        }
    }

    /// Takes a name away from `directory`, and what it leads to if that has no other.
    fn unlink(&mut self, directory: InodeId, name: &OsStr) {
        let mut gone: Vec<_> = match &mut self.inodes[directory].kind {
            NodeKind::Directory(entries) => entries.remove(name.as_bytes()).into_iter().collect(),
            NodeKind::Other(_) => return,
        };
        while let Some(inode) = gone.pop() {
            let node = &mut self.inodes[inode];
            node.names -= 1;
            if let (0, NodeKind::Directory(entries)) = (node.names, &mut node.kind) {
                gone.extend(std::mem::take(entries).into_values());
            }
        }
    }

    /// The tree.
    pub fn finish(mut self) -> Tree {
        let files = std::mem::take(&mut self.files);
        self.finish_with(Box::new(files))
    }

    /// The tree, whose files are those of `source`.
    pub(in crate::tree) fn finish_with(self, source: Box<dyn FileSource>) -> Tree {
        // Inodes without a name are left out, so the others have other numbers.
        let mut next = 0;
        let numbers: Vec<InodeId> = self
            .inodes
            .iter()
            .map(|node| {
                let number = next;
                next += usize::from(node.names > 0);
                number
            })
            .collect();
        let inodes = self.inodes.into_iter().filter(|node| node.names > 0);
        let inodes = inodes.map(|node| TreeInode {
            attributes: node.attributes,
            xattrs: node.xattrs,
            kind: match node.kind {
                NodeKind::Directory(entries) => {
                    let entries = entries.into_iter();
                    TreeKind::Directory(entries.map(|(name, i)| (name, numbers[i])).collect())
                }
                NodeKind::Other(kind) => kind,
            },
        });
        let mut tree = Tree {
            inodes: inodes.collect(),
            xattr_sets: self.xattr_sets,
            source,
            warnings: self.warnings,
        };
        tree.number_xattr_sets();
        tree
    }
}

fn xattr_bytes(xattrs: &[Xattr]) -> u64 {
    let len = |xattr: &Xattr| (xattr.name().len() + xattr.value().len()) as u64;
    xattrs.iter().map(len).sum()
}

impl Tree {
    /// A builder that starts with this tree.
    pub fn edit(self) -> TreeBuilder {
        let mut names = vec![0; self.inodes.len()];
        names[0] = 1;
        let mut next_file = 0;
        for inode in &self.inodes {
            match &inode.kind {
                TreeKind::Directory(entries) => {
                    entries.iter().for_each(|(_, inode)| names[*inode] += 1);
                }
                TreeKind::File { source, .. } => next_file = next_file.max(source + 1),
                _ => {}
            }
        }
        let inodes = self.inodes.into_iter().zip(names);
        let inodes = inodes.map(|(inode, names)| Node {
            attributes: inode.attributes,
            xattrs: inode.xattrs,
            kind: inode.kind.into(),
            names,
        });
        TreeBuilder {
            inodes: inodes.collect(),
            known_sets: self.xattr_sets.iter().cloned().zip(0..).collect(),
            xattr_bytes: self.xattr_sets.iter().map(|set| xattr_bytes(set)).sum(),
            xattr_sets: self.xattr_sets,
            files: AddedFiles::to(self.source, next_file),
            warnings: self.warnings,
        }
    }
}

impl Default for TreeBuilder {
    fn default() -> Self {
        let root = Node {
            attributes: PLAIN_DIRECTORY,
            xattrs: None,
            kind: NodeKind::empty_directory(),
            names: 1,
        };
        Self {
            inodes: vec![root],
            xattr_sets: Vec::new(),
            known_sets: HashMap::new(),
            xattr_bytes: 0,
            files: AddedFiles::default(),
            warnings: Vec::new(),
        }
    }
}

/// What paths lead to.
impl TreeBuilder {
    /// An empty root directory that belongs to root, with permissions 0755 and time 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps contents that come from readers in a file without a name in `directory`. The default
    /// is the directory for temporary files.
    pub fn spool_in(&mut self, directory: impl Into<PathBuf>) -> &mut Self {
        self.files.spool_in(directory.into());
        self
    }

    /// Adds `entry` at `path`.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if something is there, `NotFound` if a directory above it is not, `Input` if
    /// what is above it is no directory or SquashFS cannot hold the name or the entry, and `Io` if
    /// the contents cannot be read or spooled.
    pub fn add(&mut self, path: impl AsRef<Path>, entry: TreeEntry<'_>) -> Result<&mut Self> {
        let path = path.as_ref();
        self.try_add(path, entry).map_err(|e| e.with_path(path))?;
        Ok(self)
    }

    fn try_add(&mut self, path: &Path, entry: TreeEntry<'_>) -> Result<()> {
        let free = self.free_name(path)?;
        let attributes = entry.attributes(Attributes {
            permissions: entry.kind.default_permissions(),
            ..PLAIN_DIRECTORY
        })?;
        let xattrs = with_xattrs(Vec::new(), entry.xattrs)?;
        let kind = self.kind(path, entry.kind)?.ok_or_else(|| {
            Error::input("the entry says that what is there stays as it is, and nothing is there")
        })?;
        let inode = self.add_inode(attributes, xattrs, kind)?;
        self.link(free.directory, free.name.as_bytes(), inode);
        Ok(())
    }

    /// Puts `entry` instead of what is at `path`.
    ///
    /// Permissions, owner, time and extended attributes stay, unless `entry` sets them. Other hard
    /// links lead to the new contents, too. A directory that replaces a directory keeps its
    /// entries.
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing is there, `Input` if `entry` is no directory and what is there is one
    /// that is not empty, and those of [`TreeBuilder::add`].
    ///
    /// ```
    /// use brisk_image::{TreeBuilder, TreeEntry};
    ///
    /// # fn main() -> brisk_image::Result<()> {
    /// let mut tree = TreeBuilder::new();
    /// tree.add("run", TreeEntry::file("exec app1\n").permissions(0o755))?;
    /// // Other contents, with the same permissions.
    /// tree.replace("run", TreeEntry::file("exec app2\n"))?;
    /// // Other permissions, with the same contents.
    /// tree.replace("run", TreeEntry::unchanged().permissions(0o700))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn replace(&mut self, path: impl AsRef<Path>, entry: TreeEntry<'_>) -> Result<&mut Self> {
        let path = path.as_ref();
        self.try_replace(path, entry)
            .map_err(|e| e.with_path(path))?;
        Ok(self)
    }

    fn try_replace(&mut self, path: &Path, entry: TreeEntry<'_>) -> Result<()> {
        let inode = self.find(path)?;
        let node = &self.inodes[inode];
        let attributes = entry.attributes(node.attributes)?;
        let old = node.xattrs.map(|set| self.xattr_sets[set as usize].clone());
        let xattrs = with_xattrs(old.unwrap_or_default(), entry.xattrs)?;
        let stays = match (&node.kind, &entry.kind) {
            (_, EntryKind::Unchanged) | (NodeKind::Directory(_), EntryKind::Directory) => true,
            (NodeKind::Directory(_), _) if inode == 0 => {
                return Err(Error::input("the root of a tree stays a directory"));
            }
            (NodeKind::Directory(entries), _) if !entries.is_empty() => {
                return Err(Error::input(
                    "a directory that is not empty cannot become something else; remove it first",
                ));
            }
            (NodeKind::Other(_), EntryKind::Directory) if node.names > 1 => {
                return Err(Error::input(format!(
                    "what has {} names cannot become a directory; remove this name first",
                    node.names
                )));
            }
            _ => false,
        };
        let kind = match stays {
            true => None,
            false => self.kind(path, entry.kind)?,
        };
        let xattrs = self.xattr_set(xattrs)?;
        let node = &mut self.inodes[inode];
        (node.attributes, node.xattrs) = (attributes, xattrs);
        if let Some(kind) = kind {
            node.kind = kind;
        }
        Ok(())
    }

    /// Adds the directory at `path`, and those above it that are not there, as
    /// [`TreeEntry::directory`] describes them.
    ///
    /// # Errors
    ///
    /// `Input` if something on the way is no directory, or a name cannot be.
    pub fn add_directories(&mut self, path: impl AsRef<Path>) -> Result<&mut Self> {
        let path = path.as_ref();
        self.try_add_directories(path)
            .map_err(|e| e.with_path(path))?;
        Ok(self)
    }

    fn try_add_directories(&mut self, path: &Path) -> Result<()> {
        let names = names(path)?;
        // All are checked before the first is made.
        for name in &names {
            check_name(name)?;
        }
        check_depth(names.len())?;
        let mut directory = 0;
        for (depth, name) in (1..).zip(&names) {
            directory = match self.inode_in(directory, name) {
                Some(inode) => {
                    self.check_directory(&names[..depth], inode)?;
                    inode
                }
                None => {
                    let new = NodeKind::empty_directory();
                    let inode = self.add_inode(PLAIN_DIRECTORY, Vec::new(), new)?;
                    self.link(directory, name.as_bytes(), inode);
                    inode
                }
            };
        }
        Ok(())
    }

    /// Gives the file, or whatever is at `original`, another name at `link`.
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing is at `original`, `Input` if it is a directory, and those of
    /// [`TreeBuilder::add`] about `link`.
    pub fn hard_link(
        &mut self,
        original: impl AsRef<Path>,
        link: impl AsRef<Path>,
    ) -> Result<&mut Self> {
        let (original, link) = (original.as_ref(), link.as_ref());
        let inode = self.find(original).map_err(|e| e.with_path(original))?;
        let free = self.free_name(link).map_err(|e| e.with_path(link))?;
        if self.entries(inode).is_some() {
            let text = "a directory cannot have another name; make a symbolic link to it";
            return Err(Error::input(text).with_path(original));
        }
        self.link(free.directory, free.name.as_bytes(), inode);
        Ok(self)
    }

    /// Removes the name `path`, and the file behind it if that has no other name. A directory goes
    /// with everything in it.
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing is there, and `Input` for the root.
    pub fn remove(&mut self, path: impl AsRef<Path>) -> Result<&mut Self> {
        let path = path.as_ref();
        let (taken, _) = self.taken_name(path).map_err(|e| e.with_path(path))?;
        self.unlink(taken.directory, taken.name);
        Ok(self)
    }

    /// Renames `from` to `to`.
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing is at `from`, `AlreadyExists` if something is at `to`, `Input` if `to`
    /// is inside of `from`, and those of [`TreeBuilder::add`] about `to`.
    pub fn rename(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<&mut Self> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (old, inode) = self.taken_name(from).map_err(|e| e.with_path(from))?;
        let new = self.free_name(to).map_err(|e| e.with_path(to))?;
        if self.is_inside(new.directory, inode) {
            let text = format!("{:?} cannot be moved into itself", shown(from));
            return Err(Error::input(text).with_path(to));
        }
        check_depth(new.depth + self.height(inode)).map_err(|e| e.with_path(to))?;
        self.link(new.directory, new.name.as_bytes(), inode);
        self.unlink(old.directory, old.name);
        Ok(self)
    }

    /// The type of what is at `path`; none if nothing is there.
    pub fn file_type(&self, path: impl AsRef<Path>) -> Option<FileType> {
        let inode = self.find(path.as_ref()).ok()?;
        Some(self.inodes[inode].kind.file_type())
    }

    /// All paths except that of the root, each with its type. A directory comes before its entries,
    /// and names are in the order of their bytes.
    ///
    /// ```
    /// use brisk_image::{TreeBuilder, TreeEntry};
    ///
    /// # fn main() -> brisk_image::Result<()> {
    /// # let mut tree = TreeBuilder::new();
    /// # tree.add("a.py", TreeEntry::file(""))?.add("a.pyc", TreeEntry::file(""))?;
    /// let paths: Vec<_> = tree.paths().map(|(path, _)| path).collect();
    /// for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "pyc")) {
    ///     tree.remove(path)?;
    /// }
    /// # assert!(tree.file_type("a.py").is_some() && tree.file_type("a.pyc").is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn paths(&self) -> impl Iterator<Item = (PathBuf, FileType)> + '_ {
        let mut open: Vec<_> = self.entries(0).map(BTreeMap::iter).into_iter().collect();
        let mut path = PathBuf::new();
        std::iter::from_fn(move || {
            loop {
                let Some((name, &inode)) = open.last_mut()?.next() else {
                    open.pop();
                    path.pop();
                    continue;
                };
                let found = path.join(OsStr::from_bytes(name));
                if let Some(entries) = self.entries(inode) {
                    open.push(entries.iter());
                    path.clone_from(&found);
                }
                return Some((found, self.inodes[inode].kind.file_type()));
            }
        })
    }

    /// The names in a directory.
    fn entries(&self, inode: InodeId) -> Option<&BTreeMap<Box<[u8]>, usize>> {
        match &self.inodes[inode].kind {
            NodeKind::Directory(entries) => Some(entries),
            NodeKind::Other(_) => None,
        }
    }

    fn check_directory(&self, names: &[&OsStr], inode: InodeId) -> Result<()> {
        let what = match self.inodes[inode].kind.file_type() {
            FileType::Directory => return Ok(()),
            FileType::Symlink => "symbolic link; name the directory that it leads to",
            other => other.name(),
        };
        let above: PathBuf = names.iter().collect();
        Err(Error::input(format!(
            "{above:?} is no directory but a {what}"
        )))
    }

    /// The name that `path` ends with, and what has it; none for the root.
    fn name<'a>(&self, path: &'a Path) -> Result<Option<(NameIn<'a>, Option<InodeId>)>> {
        let names = names(path)?;
        let Some((name, above)) = names.split_last() else {
            return Ok(None);
        };
        let mut directory = 0;
        for depth in 1..=above.len() {
            let above = &above[..depth];
            directory = self
                .inode_in(directory, above[depth - 1])
                .ok_or_else(|| Error::missing(Missing::Above(above.iter().collect())))?;
            self.check_directory(above, directory)?;
        }
        let found = self.inode_in(directory, name);
        let name = NameIn {
            directory,
            name,
            depth: names.len(),
        };
        Ok(Some((name, found)))
    }

    /// What has the name `name` in `directory`.
    fn inode_in(&self, directory: InodeId, name: &OsStr) -> Option<InodeId> {
        self.entries(directory)?.get(name.as_bytes()).copied()
    }

    /// The inode at `path`.
    fn find(&self, path: &Path) -> Result<InodeId> {
        match self.name(path)? {
            None => Ok(0),
            Some((_, Some(inode))) => Ok(inode),
            Some((_, None)) => Err(Error::missing(Missing::InTree)),
        }
    }

    /// The name that `path` ends with, for something new.
    fn free_name<'a>(&self, path: &'a Path) -> Result<NameIn<'a>> {
        match self.name(path)? {
            Some((name, None)) => {
                check_name(name.name)?;
                check_depth(name.depth)?;
                Ok(name)
            }
            _ => Err(Error::exists()),
        }
    }

    /// The name that `path` ends with, and what has it.
    fn taken_name<'a>(&self, path: &'a Path) -> Result<(NameIn<'a>, InodeId)> {
        match self.name(path)? {
            Some((name, Some(inode))) => Ok((name, inode)),
            Some((_, None)) => Err(Error::missing(Missing::InTree)),
            None => Err(Error::input(
                "the root of a tree cannot be moved or taken away",
            )),
        }
    }

    /// Whether the directory `inode` is `above` or somewhere in it.
    fn is_inside(&self, inode: InodeId, above: InodeId) -> bool {
        let mut open = vec![above];
        while let Some(directory) = open.pop() {
            if directory == inode {
                return true;
            }
            let entries = self.entries(directory).into_iter().flatten();
            open.extend(
                entries
                    .map(|(_, &inode)| inode)
                    .filter(|&inode| self.entries(inode).is_some()),
            );
        }
        false
    }

    /// How many directories are below each other in `inode`.
    fn height(&self, inode: InodeId) -> usize {
        let (mut most, mut open) = (0, vec![(inode, 0)]);
        while let Some((inode, height)) = open.pop() {
            most = most.max(height);
            let entries = self.entries(inode).into_iter().flatten();
            open.extend(entries.map(|(_, &inode)| (inode, height + 1)));
        }
        most
    }

    /// What `entry` makes of an inode; none if it stays what it is.
    fn kind(&mut self, path: &Path, entry: EntryKind<'_>) -> Result<Option<NodeKind>> {
        Ok(Some(NodeKind::Other(match entry {
            EntryKind::Unchanged => return Ok(None),
            EntryKind::Directory => return Ok(Some(NodeKind::empty_directory())),
            EntryKind::File(contents) => {
                let (source, len) = self.files.add(path, contents)?;
                TreeKind::File { source, len }
            }
            EntryKind::Symlink(target) => {
                let target = target.into_vec();
                let allowed = 1..=MAX_TARGET as usize;
                if !allowed.contains(&target.len()) || target.contains(&0) {
                    return Err(Error::input(format!(
                        "the target of a symbolic link has {} bytes, allowed are 1 to {MAX_TARGET} \
                         and no zero among them",
                        target.len()
                    )));
                }
                TreeKind::Symlink(target.into())
            }
            EntryKind::BlockDevice(device) => TreeKind::BlockDevice(checked(device)?),
            EntryKind::CharDevice(device) => TreeKind::CharDevice(checked(device)?),
            EntryKind::Fifo => TreeKind::Fifo,
            EntryKind::Socket => TreeKind::Socket,
        })))
    }
}

fn checked(device: Device) -> Result<Device> {
    match encode_rdev(device.major, device.minor) {
        Some(_) => Ok(device),
        None => Err(Error::input(format!(
            "device is {}:{}, allowed are 0 to 4095 and 0 to 1048575",
            device.major, device.minor
        ))),
    }
}

/// The names that `path` has, from the root of a tree; none for the root.
fn names(path: &Path) -> Result<Vec<&OsStr>> {
    let name = |component| match component {
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        Component::ParentDir => Some(Err(Error::input(
            "the path has \"..\" in it, allowed are names from the root of the tree",
        ))),
        Component::Normal(name) => Some(Ok(name)),
    };
    path.components().filter_map(name).collect()
}

/// Checks that what is `depth` names below the root can be read with the default limits.
pub(in crate::tree) fn check_depth(depth: usize) -> Result<()> {
    let limit = Limits::default().depth;
    match depth >= limit {
        true => Err(Error::limit(
            "the depth of directories",
            depth as u64 + 1,
            limit as u64,
        )),
        false => Ok(()),
    }
}

/// `old` with the attributes of `new`, the last of which count.
fn with_xattrs(mut old: Vec<Xattr>, new: Vec<Xattr>) -> Result<Vec<Xattr>> {
    for xattr in new {
        let name = xattr.name();
        if split_name(name.as_bytes()).is_none() || name.as_bytes().contains(&0) {
            return Err(Error::input(format!(
                "xattr {name:?} cannot be stored, allowed are names that start with user., \
                 trusted. or security."
            )));
        }
        if name.len() > MAX_NAME {
            return Err(Error::input(format!(
                "the name of xattr {name:?} has {} bytes, allowed are {MAX_NAME}",
                name.len()
            )));
        }
        if xattr.value().len() > MAX_VALUE as usize {
            return Err(Error::input(format!(
                "xattr {name:?} has {} bytes, allowed are {MAX_VALUE}",
                xattr.value().len()
            )));
        }
        old.retain(|known| known.name() != name);
        old.push(xattr);
    }
    // With a zero behind each, as Linux lists them.
    let bytes: usize = old.iter().map(|xattr| xattr.name().len() + 1).sum();
    match bytes > MAX_NAMES {
        true => Err(Error::limit(
            "the list of the names of xattrs",
            bytes as u64,
            MAX_NAMES as u64,
        )),
        false => Ok(old),
    }
}
