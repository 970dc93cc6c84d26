//! A tree to be packed from a tar archive.
//!
//! The archive is read to its end and becomes what extracting it into an empty directory makes;
//! then `rules` are applied to that as to a directory. So the same files give the same image,
//! packed from an archive or from where it was made of.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::input::{InPlace, Kept, Stream, TarInput};
use super::reader::{Segment, TarEntry, TarKind, TarPath, TarPosition, TarReader};
#[cfg(feature = "layers")]
use super::whiteout::Mark;
use crate::error::{Error, Result};
use crate::read::xattr_reader::Xattr;
use crate::tree::builder::{NodeKind, TreeBuilder};
use crate::tree::losses::{Losses, nearest_time};
use crate::tree::rules::TreeRules;
use crate::tree::{
    Attributes, FileSource, InodeId, SourceFile, SourceId, Tree, TreeKind, check_name,
};

impl Tree {
    /// The tree in `archive`, as `rules` say. It is what extracting the archive into an empty
    /// directory makes: a later entry replaces an earlier one of the same name.
    ///
    /// The contents of files go to a file without a name in the directory `spool`, those of files
    /// that `rules` leave out too: another entry may give them a name that stays. Names and
    /// metadata are kept in memory.
    ///
    /// An archive need not have an entry for each directory. Those without one belong to root,
    /// have permissions 0755, and the time of the archive's entry `./` or, without that, of the
    /// entry that needed them; the root itself then has the newest time in the archive.
    ///
    /// # Errors
    ///
    /// `Input` for what is no tar archive, is cut off, or could not be extracted safely;
    /// `Unsupported` for entries of other types; `Io` for what cannot be read or spooled. The text
    /// says the entry and the byte of its header.
    pub fn from_tar(archive: impl Read, spool: &Path, rules: &TreeRules) -> Result<Self> {
        let (tree, input) = from_input(Stream::new(archive, spool)?, rules)?;
        tree.into_tree_of(input.finish()?)
    }

    /// As [`Tree::from_tar`], from a regular file whose cursor is at the start of the archive.
    /// Contents are read from there when they are packed, and nothing is spooled.
    ///
    /// # Errors
    ///
    /// Those of [`Tree::from_tar`], and `Input` for what is not a regular file.
    pub fn from_tar_file(archive: File, rules: &TreeRules) -> Result<Self> {
        let (tree, input) = from_input(InPlace::new(archive)?, rules)?;
        tree.into_tree_of(input.finish())
    }
}

fn from_input<I: TarInput>(input: I, rules: &TreeRules) -> Result<(Extracted<'_>, I)> {
    let mut reader = TarReader::new(input);
    let mut archive = Extracted::new(rules);
    while let Some(entry) = reader.next()? {
        archive.add(entry)?;
    }
    let (input, end) = reader.into_input();
    if let Some(end) = end {
        archive.warnings.push(format!(
            "the archive ends at byte {end}, and what follows was left out; to pack several archives, join them with `tar -A`"
        ));
    }
    Ok((archive, input))
}

/// The number of a [`Node`]; the root is 0.
type NodeId = usize;

/// What the entries that were read make.
///
/// 1. Node 0 is the root, a directory.
/// 2. Each directory that has a name is in exactly one directory.
/// 3. `ends` is sorted, and the last of it is the length of `segments`.
pub(super) struct Extracted<'a> {
    rules: &'a TreeRules,
    nodes: Vec<Node>,
    /// Most files have the same attributes as many others.
    xattr_sets: HashSet<Rc<[Xattr]>>,
    /// Of all files, in the order of their numbers.
    segments: Vec<Segment>,
    /// For each file the end of its segments.
    ends: Vec<usize>,
    /// Bytes of all files that the archive does not hold, and how many are allowed.
    holes: u64,
    most_holes: u64,
    /// How many nodes are allowed: a path of 4 KiB can need 2,000 of them.
    most_nodes: usize,
    /// Whether an entry may be in the place of a directory that has names: in layers, which are made one on top of the other.
    replaces_directories: bool,
    newest: i64,
    /// How many names started with `/`, and the first of them.
    absolute: Option<(u64, TarPosition)>,
    warnings: Vec<String>,
}

/// Bytes of holes in all files of an archive. A header of 512 bytes says that a file has up to 16 TiB of
/// them, and the list of its blocks is kept in memory.
const MOST_HOLES: u64 = 1 << 40;

struct Node {
    permissions: u16,
    uid: u32,
    gid: u32,
    mtime: i64,
    xattrs: Rc<[Xattr]>,
    kind: NodeKind,
    /// False for a directory that no entry is for.
    given: bool,
}

impl Node {
    /// A directory that no entry is for.
    fn implied(mtime: i64) -> Self {
        Self {
            permissions: 0o755,
            uid: 0,
            gid: 0,
            mtime,
            xattrs: Rc::default(),
            kind: NodeKind::empty_directory(),
            given: false,
        }
    }
}

impl<'a> Extracted<'a> {
    fn new(rules: &'a TreeRules) -> Self {
        Self {
            rules,
            nodes: vec![Node::implied(i64::MIN)],
            xattr_sets: HashSet::new(),
            segments: Vec::new(),
            ends: Vec::new(),
            holes: 0,
            most_holes: MOST_HOLES,
            most_nodes: usize::MAX,
            replaces_directories: false,
            newest: i64::MIN,
            absolute: None,
            warnings: Vec::new(),
        }
    }

    fn add(&mut self, entry: TarEntry) -> Result<()> {
        let TarEntry { position, path, .. } = &entry;
        if self.nodes.len() > self.most_nodes {
            return Err(position.refuse(format_args!(
                "comes after more than {} files and directories, with those that have no entry; split the image",
                self.most_nodes
            )));
        }
        if entry.absolute {
            let (count, _) = self.absolute.get_or_insert_with(|| (0, position.clone()));
            *count += 1;
        }
        self.newest = self.newest.max(entry.mtime);
        let is_directory = matches!(entry.kind, TarKind::Directory);
        let Some((parents, name)) = path.split() else {
            if !is_directory {
                return Err(
                    position.refuse("is the root but no directory; leave it out of the archive")
                );
            }
            return self.set_directory(0, entry);
        };
        let mut directory = 0;
        let mut parent = PathBuf::new();
        for component in parents {
            parent.push(OsStr::from_bytes(component));
            directory = match self.children(directory).get(component) {
                None => {
                    self.check_name(position, &parent, component, true)?;
                    self.insert(directory, component, Node::implied(entry.mtime))
                }
                Some(&child) => match &self.nodes[child].kind {
                    NodeKind::Directory(_) => child,
                    NodeKind::Other(kind) => {
                        return Err(position.refuse(format_args!(
                            "is below {parent:?}, which is {}; archive each by its own path",
                            described(kind)
                        )));
                    }
                },
            };
        }
        self.check_name(position, Path::new(path.as_os_str()), name, is_directory)?;
        if let Some(&there) = self.children(directory).get(name) {
            let names = self.children(there).len();
            if is_directory && self.is_directory(there) {
                return self.set_directory(there, entry);
            }
            if names > 0 && !self.replaces_directories {
                return Err(position.refuse(format_args!(
                    "is no directory, but an earlier entry of its name is one that holds {names} names; leave one of them out of the archive"
                )));
            }
        }
        if let TarKind::HardLink(target) = &entry.kind {
            let node = self.link_target(position, target)?;
            self.link(directory, name, node);
            return Ok(());
        }
        let name: Box<[u8]> = name.into();
        let node = self.node(entry)?;
        self.insert(directory, &name, node);
        Ok(())
    }

    /// The names in a directory; none in anything else.
    fn children(&self, directory: NodeId) -> &BTreeMap<Box<[u8]>, NodeId> {
        static NONE: BTreeMap<Box<[u8]>, NodeId> = BTreeMap::new();
        match &self.nodes[directory].kind {
            NodeKind::Directory(children) => children,
            NodeKind::Other(_) => &NONE,
        }
    }

    fn is_directory(&self, node: NodeId) -> bool {
        matches!(self.nodes[node].kind, NodeKind::Directory(_))
    }

    fn insert(&mut self, directory: NodeId, name: &[u8], node: Node) -> NodeId {
        let id = self.nodes.len();
        self.nodes.push(node);
        self.link(directory, name, id);
        id
    }

    fn link(&mut self, directory: NodeId, name: &[u8], node: NodeId) {
        if let NodeKind::Directory(children) = &mut self.nodes[directory].kind {
            children.insert(name.into(), node);
        }
    }

    /// Checks that an image can hold what is at `path`, unless it is left out.
    fn check_name(
        &self,
        position: &TarPosition,
        path: &Path,
        name: &[u8],
        is_directory: bool,
    ) -> Result<()> {
        let Err(e) = check_name(OsStr::from_bytes(name)) else {
            return Ok(());
        };
        let excluded = self.rules.excludes(path, is_directory)
            || path
                .ancestors()
                .skip(1)
                .any(|above| !above.as_os_str().is_empty() && self.rules.excludes(above, true));
        match excluded {
            true => Ok(()),
            false => Err(position.refuse(format_args!("cannot be packed: {e}"))),
        }
    }

    /// What the hard link at `position` is another name of.
    fn link_target(&self, position: &TarPosition, target: &TarPath) -> Result<NodeId> {
        let shown = target.as_os_str();
        let (parents, name) = target.split().ok_or_else(|| {
            position.refuse("is a hard link to the root; archive it as a directory")
        })?;
        let mut directory = 0;
        for component in parents {
            directory = *self.children(directory).get(component).ok_or_else(|| {
                position.refuse(format_args!(
                    "is a hard link to {shown:?}, which no earlier entry is; put that in front of it"
                ))
            })?;
            if let NodeKind::Other(kind) = &self.nodes[directory].kind {
                return Err(position.refuse(format_args!(
                    "is a hard link to {shown:?}, which is below {}; archive each by its own path",
                    described(kind)
                )));
            }
        }
        let node = *self.children(directory).get(name).ok_or_else(|| {
            position.refuse(format_args!(
                "is a hard link to {shown:?}, which no earlier entry is; put that in front of it"
            ))
        })?;
        match self.nodes[node].kind {
            NodeKind::Other(_) => Ok(node),
            NodeKind::Directory(_) => Err(position.refuse(format_args!(
                "is a hard link to {shown:?}, which is a directory; archive it as a directory"
            ))),
        }
    }

    /// Gives a directory the attributes of its entry.
    fn set_directory(&mut self, directory: NodeId, entry: TarEntry) -> Result<()> {
        let mut node = self.node(entry)?;
        let old = &mut self.nodes[directory];
        std::mem::swap(&mut node.kind, &mut old.kind);
        *old = node;
        Ok(())
    }

    /// The node that `entry`, which is no hard link, describes.
    fn node(&mut self, entry: TarEntry) -> Result<Node> {
        let kind = match entry.kind {
            TarKind::Directory => NodeKind::empty_directory(),
            TarKind::File { len, segments } => {
                let source = SourceId::try_from(self.ends.len()).map_err(|_| {
                    Error::limit(
                        "the number of files",
                        self.ends.len() as u64,
                        u32::MAX.into(),
                    )
                })?;
                let kept = segments.iter().map(|segment| segment.piece.len);
                let kept = kept.fold(0, u64::saturating_add);
                self.holes = self.holes.saturating_add(len.saturating_sub(kept));
                if self.holes > self.most_holes {
                    return Err(entry.position.refuse(format_args!(
                        "makes the holes of all files {} bytes, allowed are {}; pack the \
                         directory instead",
                        self.holes, self.most_holes
                    )));
                }
                self.segments.extend(segments);
                self.ends.push(self.segments.len());
                NodeKind::Other(TreeKind::File { len, source })
            }
            TarKind::HardLink(_) => return Err(entry.position.refuse("is a hard link")),
            TarKind::Symlink(target) => NodeKind::Other(TreeKind::Symlink(target)),
            TarKind::BlockDevice(device) => NodeKind::Other(TreeKind::BlockDevice(device)),
            TarKind::CharDevice(device) => NodeKind::Other(TreeKind::CharDevice(device)),
            TarKind::Fifo => NodeKind::Other(TreeKind::Fifo),
        };
        let xattrs = match self.rules.wants_xattrs() {
            true => entry.xattrs,
            false => Vec::new(),
        };
        let xattrs = match self.xattr_sets.get(xattrs.as_slice()) {
            Some(known) => Rc::clone(known),
            None => {
                let new: Rc<[Xattr]> = xattrs.into();
                self.xattr_sets.insert(Rc::clone(&new));
                new
            }
        };
        Ok(Node {
            permissions: entry.permissions,
            uid: entry.uid,
            gid: entry.gid,
            mtime: entry.mtime,
            xattrs,
            kind,
            given: true,
        })
    }

    /// Walks what is there as a directory is walked, so that the tree is the same.
    ///
    /// `source` makes what opens files of their segments and the ends of these.
    pub(super) fn into_tree(
        mut self,
        source: impl FnOnce(Vec<Segment>, Vec<usize>) -> Box<dyn FileSource>,
    ) -> Result<Tree> {
        let root_time = match self.nodes[0].given {
            true => Some(self.nodes[0].mtime),
            false => None,
        };
        if root_time.is_none() {
            self.nodes[0].mtime = match self.newest {
                // No entry at all.
                i64::MIN => 0,
                newest => newest,
            };
        }
        let mut losses = Losses::default();
        let (attributes, xattrs) = self.attributes(Path::new(""), 0, root_time, &mut losses);
        let mut builder = TreeBuilder::with_root(attributes, xattrs)?;
        let mut inodes: Vec<Option<InodeId>> = vec![None; self.nodes.len()];
        let mut open = vec![(PathBuf::new(), 0, 0)];
        while let Some((path, node, directory)) = open.pop() {
            let children = match &mut self.nodes[node].kind {
                NodeKind::Directory(children) => std::mem::take(children),
                NodeKind::Other(_) => continue,
            };
            for (name, child) in children {
                let path = path.join(OsStr::from_bytes(&name));
                let (is_directory, kind) = match &self.nodes[child].kind {
                    NodeKind::Directory(_) => (true, TreeKind::Directory(Vec::new())),
                    NodeKind::Other(kind) => (false, kind.clone()),
                };
                if self.rules.excludes(&path, is_directory) {
                    continue;
                }
                let inode = match inodes[child] {
                    Some(inode) => {
                        // A rule that matches any of its names applies to the file.
                        let known = builder.attributes(inode);
                        *known = self.rules.apply(&path, is_directory, *known);
                        inode
                    }
                    None => {
                        let (attributes, xattrs) =
                            self.attributes(&path, child, root_time, &mut losses);
                        *inodes[child].insert(builder.add_inode(attributes, xattrs, kind)?)
                    }
                };
                builder.link(directory, &name, inode);
                if is_directory {
                    open.push((path, child, inode));
                }
            }
        }
        if let Some((count, first)) = &self.absolute {
            builder.warnings.push(format!(
                "{count} names start with \"/\" and were taken from the root of the tree (the first is {first})"
            ));
        }
        builder.warnings.append(&mut self.warnings);
        builder.warnings.append(&mut losses.warnings());
        Ok(builder.finish_with(source(self.segments, self.ends)))
    }

    /// The tree whose contents are `kept`.
    fn into_tree_of(self, kept: Kept) -> Result<Tree> {
        self.into_tree(|segments, ends| {
            Box::new(TarSource {
                kept,
                segments,
                ends,
            })
        })
    }

    fn attributes(
        &self,
        path: &Path,
        node: NodeId,
        root_time: Option<i64>,
        losses: &mut Losses,
    ) -> (Attributes, Vec<Xattr>) {
        let is_directory = self.is_directory(node);
        let node = &self.nodes[node];
        let mtime = match node.given {
            true => losses.time(node.mtime),
            // A time that is another's was counted there.
            false => nearest_time(root_time.unwrap_or(node.mtime)),
        };
        let attributes = Attributes {
            permissions: node.permissions,
            uid: node.uid,
            gid: node.gid,
            mtime,
        };
        let xattrs = node.xattrs.iter();
        let xattrs = xattrs.filter(|xattr| losses.keeps(self.rules, path, xattr.name()));
        (
            self.rules.apply(path, is_directory, attributes),
            xattrs.cloned().collect(),
        )
    }
}

#[cfg(feature = "layers")]
impl<'a> Extracted<'a> {
    /// What no layer has changed yet.
    pub(super) fn of_layers(rules: &'a TreeRules, most_holes: u64, most_nodes: usize) -> Self {
        Self {
            most_holes,
            most_nodes,
            replaces_directories: true,
            ..Self::new(rules)
        }
    }

    /// Changes what is there as a layer says. Its deletions come first, as they are about lower layers only. Returns what came
    /// with the regular files, in the order of their numbers.
    pub(super) fn add_layer<T>(&mut self, entries: Vec<(TarEntry, T)>) -> Result<Vec<T>> {
        let mut deletions = Vec::new();
        let mut additions = Vec::new();
        for (entry, with) in entries {
            let mark = Mark::of(&entry.path).map_err(|why| entry.position.refuse(why))?;
            let directory = self.directory_above(&entry.path);
            match (mark, directory) {
                (Mark::None, _) => {
                    additions.push((entry, with));
                    continue;
                }
                (Mark::Deleted(name), Ok(Some(directory))) => {
                    if let NodeKind::Directory(children) = &mut self.nodes[directory].kind {
                        children.remove(name);
                    }
                }
                (Mark::Opaque, Ok(Some(directory))) => {
                    self.nodes[directory].kind = NodeKind::empty_directory();
                }
                // Nothing is there, or what this layer replaces.
                (_, Ok(None) | Err(_)) => {}
            }
            deletions.push(entry);
        }
        let mut files = Vec::new();
        for (entry, with) in additions {
            let is_file = matches!(entry.kind, TarKind::File { .. });
            self.add(entry)?;
            files.extend(is_file.then_some(with));
        }
        // What is not replaced stays in the way of a deletion, and runtimes differ in what they then delete.
        for entry in deletions {
            if let Err(link) = self.directory_above(&entry.path) {
                return Err(entry.position.refuse(format_args!(
                    "marks a deletion below {link:?}, which is a symbolic link; delete by the path that it leads to"
                )));
            }
        }
        Ok(files)
    }

    /// The directory that has the last name of `path`; none if there is none. The error is the symbolic link that it is below.
    fn directory_above(&self, path: &TarPath) -> Result<Option<NodeId>, PathBuf> {
        let Some((parents, _)) = path.split() else {
            return Ok(None);
        };
        let (mut directory, mut above) = (0, PathBuf::new());
        for component in parents {
            above.push(OsStr::from_bytes(component));
            match self.children(directory).get(component) {
                None => return Ok(None),
                Some(&child) => match &self.nodes[child].kind {
                    NodeKind::Directory(_) => directory = child,
                    NodeKind::Other(TreeKind::Symlink(_)) => return Err(above),
                    NodeKind::Other(_) => return Ok(None),
                },
            }
        }
        Ok(Some(directory))
    }
}

/// What something that is no directory is.
fn described(kind: &TreeKind) -> &'static str {
    match kind {
        TreeKind::Symlink(_) => "a symbolic link",
        TreeKind::File { .. } => "a regular file",
        _ => "no directory",
    }
}

/// The contents of the files of an archive.
///
/// 1. `ends` is sorted, and no more than the length of `segments`.
/// 2. The segments of one file are sorted, and none overlaps another.
struct TarSource {
    kept: Kept,
    segments: Vec<Segment>,
    ends: Vec<usize>,
}

/// Those of a file. `ends` says where those of each file end.
pub(super) fn segments_of<'a>(
    segments: &'a [Segment],
    ends: &[usize],
    file: SourceId,
) -> &'a [Segment] {
    let file = file as usize;
    let start = match file {
        0 => 0,
        _ => ends[file - 1],
    };
    &segments[start..ends[file]]
}

impl FileSource for TarSource {
    fn open(&self, file: SourceId) -> Result<Box<dyn SourceFile + Send + '_>> {
        self.kept.check_unchanged()?;
        let segments = segments_of(&self.segments, &self.ends, file);
        Ok(Box::new(OpenFile::new(&self.kept, segments)))
    }
}

/// Where the segments of files are.
pub(super) trait Stored {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Checks that it is what it was.
    fn check_unchanged(&self) -> Result<()>;
}

impl Stored for &Kept {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        Kept::read_exact_at(self, offset, buf)
    }

    fn check_unchanged(&self) -> Result<()> {
        Kept::check_unchanged(self)
    }
}

pub(super) struct OpenFile<'a, S> {
    stored: S,
    segments: &'a [Segment],
}

impl<'a, S> OpenFile<'a, S> {
    pub(super) fn new(stored: S, segments: &'a [Segment]) -> Self {
        Self { stored, segments }
    }

    /// The segments that end behind `offset`.
    fn segments_from(&self, offset: u64) -> &[Segment] {
        let first = self
            .segments
            .partition_point(|s| s.piece.offset + s.piece.len <= offset);
        &self.segments[first..]
    }
}

impl<S: Stored> SourceFile for OpenFile<'_, S> {
    fn read_exact_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut segments = self.segments_from(offset).iter();
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let Some(Segment { piece, at }) = segments.next() else {
                rest.fill(0);
                break;
            };
            let hole = piece.offset.saturating_sub(offset);
            let (zeros, behind) = split(rest, hole);
            zeros.fill(0);
            offset += zeros.len() as u64;
            let passed = offset.saturating_sub(piece.offset);
            let (data, behind) = split(behind, piece.len - passed);
            if !data.is_empty() {
                self.stored.read_exact_at(at + passed, data)?;
            }
            offset += data.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    fn is_hole(&mut self, offset: u64, len: u64) -> Result<bool> {
        let end = offset.saturating_add(len);
        let next = self.segments_from(offset).first();
        Ok(next.is_none_or(|next| next.piece.offset >= end))
    }

    fn check_unchanged(&mut self) -> Result<()> {
        self.stored.check_unchanged()
    }
}

/// The first `len` bytes of `buf`, or all if there are fewer, and the rest.
fn split(buf: &mut [u8], len: u64) -> (&mut [u8], &mut [u8]) {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(buf.len());
    buf.split_at_mut(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive of what has most to be got wrong: long names, records, both kinds of sparse
    /// files, links. Also where its headers are.
    fn small() -> (Vec<u8>, Vec<usize>) {
        let mut archive = Vec::new();
        let mut headers = Vec::new();
        let mut add = |kind: u8, name: &str, contents: &[u8], change: &dyn Fn(&mut tar::Header)| {
            let mut header = tar::Header::new_gnu();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_mode(0o644);
            header.set_mtime(7);
            header.set_size(contents.len() as u64);
            header.as_old_mut().linkflag = [kind];
            change(&mut header);
            header.set_cksum();
            headers.push(archive.len());
            archive.extend_from_slice(header.as_bytes());
            archive.extend_from_slice(contents);
            archive.resize(archive.len().next_multiple_of(512), 0);
        };
        add(b'5', "./", b"", &|_| {});
        add(b'L', "", b"a/long/name\0", &|_| {});
        add(b'0', "a/long", b"contents", &|_| {});
        add(b'x', "", b"27 SCHILY.xattr.user.a=b\nc\n", &|_| {});
        add(b'1', "b", b"", &|h| {
            h.as_old_mut().linkname[..11].copy_from_slice(b"a/long/name");
        });
        add(b'2', "c", b"", &|h| h.as_old_mut().linkname[0] = b'b');
        let map = [b"2\n1024\n512\n3000\n5\n".as_slice(), &[0; 494]].concat();
        let records = b"22 GNU.sparse.major=1\n28 GNU.sparse.realsize=4000\n21 GNU.sparse.name=d\n";
        add(b'x', "", records, &|_| {});
        add(
            b'0',
            "other",
            &[map.as_slice(), &[b'd'; 517]].concat(),
            &|_| {},
        );
        let mut more = tar::GnuExtSparseHeader::new();
        more.sparse[0].set_offset(2048);
        more.sparse[0].set_length(7);
        let contents = [more.as_bytes().as_slice(), &[b'e'; 519]].concat();
        add(b'S', "e", &contents, &|h| {
            h.set_size(519);
            if let Some(gnu) = h.as_gnu_mut() {
                gnu.sparse[0].set_offset(512);
                gnu.sparse[0].set_length(512);
                gnu.set_is_extended(true);
                gnu.set_real_size(5000);
            }
        });
        archive.resize(archive.len() + 1024, 0);
        (archive, headers)
    }

    fn read(archive: &[u8]) -> Result<Tree> {
        Tree::from_tar(archive, &std::env::temp_dir(), &TreeRules::default())
    }

    #[test]
    fn holes_are_zeros_wherever_a_read_starts() {
        let tree = read(&small().0).unwrap();
        let mut d = vec![0; 4000];
        d[1024..1536].fill(b'd');
        d[3000..3005].fill(b'd');
        let mut e = vec![0; 5000];
        e[512..1024].fill(b'e');
        e[2048..2055].fill(b'e');
        for (path, model) in [("d", d), ("e", e)] {
            let files = tree.files();
            let (_, inode) = files.iter().find(|(p, _)| p == Path::new(path)).unwrap();
            let TreeKind::File { source, len } = tree.inodes[*inode].kind else {
                panic!("{path} is no file")
            };
            assert_eq!(len, model.len() as u64);
            let mut file = tree.source.open(source).unwrap();
            for start in (0..model.len()).step_by(61) {
                for len in [1, 100, 511, 512, 2000, 5000] {
                    let part = &model[start..model.len().min(start + len)];
                    let mut got = vec![0xee; part.len()];
                    file.read_exact_at(start as u64, &mut got).unwrap();
                    assert!(got == part, "{path} {start} {len}");
                    let is_hole = file.is_hole(start as u64, part.len() as u64).unwrap();
                    let is_zero = part.iter().all(|byte| *byte == 0);
                    assert_eq!(is_hole, is_zero, "{path} {start} {len}");
                }
            }
        }
    }

    #[test]
    fn each_truncation_is_an_error() {
        let (archive, _) = small();
        // One block of zeros is an end, too.
        let end = archive.len() - 512;
        for len in 0..end {
            let e = read(&archive[..len]).unwrap_err();
            assert_eq!(e.kind(), crate::ErrorKind::Input, "{len}: {e}");
        }
        read(&archive[..end]).unwrap();
    }

    #[test]
    fn no_byte_makes_a_panic() {
        let (archive, headers) = small();
        for at in 0..archive.len() - 1024 {
            for byte in [0, b'/', b'9', 0x80, 0xff] {
                let mut archive = archive.clone();
                archive[at] = byte;
                // Else the sum would be all that is ever wrong.
                let start = at / 512 * 512;
                if headers.contains(&start) && !(148..156).contains(&(at % 512)) {
                    let mut header = tar::Header::new_old();
                    let block = &mut archive[start..start + 512];
                    header.as_mut_bytes().copy_from_slice(block);
                    header.set_cksum();
                    block.copy_from_slice(header.as_bytes());
                }
                let Ok(tree) = read(&archive) else { continue };
                for inode in &tree.inodes {
                    if let TreeKind::File { len, source } = inode.kind {
                        let mut file = tree.source.open(source).unwrap();
                        let mut buf = [0; 4096];
                        let n = len.min(4096);
                        for offset in [0, len / 2, len] {
                            let offset = offset.min(len - n);
                            file.read_exact_at(offset, &mut buf[..n as usize]).unwrap();
                            file.is_hole(offset, n).unwrap();
                        }
                    }
                }
            }
        }
    }
}
