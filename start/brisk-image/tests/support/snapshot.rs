//! What a tree holds, to be compared whoever made it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::hash::Hash;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use brisk_image::{Image, InodeKind};

/// Everything in a tree by its path from the root, which is empty for the root itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot(pub BTreeMap<PathBuf, Node>);

/// What is the same wherever a tree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub content: Content,
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: i64,
    pub nlink: u64,
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
    /// The first of several names, if it has several.
    pub linked: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    Directory,
    File(Vec<u8>),
    Symlink(OsString),
    BlockDevice(u32, u32),
    CharDevice(u32, u32),
    Fifo,
    Socket,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory => f.write_str("directory"),
            Self::File(bytes) => {
                write!(
                    f,
                    "file of {} bytes, BLAKE3 {}",
                    bytes.len(),
                    blake3::hash(bytes)
                )
            }
            Self::Symlink(to) => write!(f, "link to {to:?}"),
            Self::BlockDevice(major, minor) => write!(f, "block device {major}:{minor}"),
            Self::CharDevice(major, minor) => write!(f, "character device {major}:{minor}"),
            Self::Fifo => f.write_str("fifo"),
            Self::Socket => f.write_str("socket"),
        }
    }
}

impl Snapshot {
    /// The tree at and below `root`, through system calls alone.
    pub fn of_directory(root: &Path) -> Self {
        let mut nodes = Vec::new();
        let mut open = vec![PathBuf::new()];
        while let Some(path) = open.pop() {
            let full = root.join(&path);
            let (node, key) = of_path(&full);
            if node.content == Content::Directory {
                let names =
                    fs::read_dir(&full).unwrap_or_else(|e| panic!("{}: {e}", full.display()));
                for entry in names {
                    open.push(path.join(entry.expect("the listing goes on").file_name()));
                }
            }
            nodes.push((path, node, key));
        }
        Self::grouped(nodes)
    }

    /// The tree in `image`, through the public face of the library.
    pub fn of_image(image: &Image) -> Self {
        let mut nodes = Vec::new();
        for entry in image.walk().expect("the image has a root") {
            let (path, inode) = entry.expect("the walk goes on").into_parts();
            let content = match inode.kind() {
                InodeKind::Directory(_) => Content::Directory,
                InodeKind::File(_) => {
                    let file = image.file(&inode).expect("the file has blocks");
                    let mut bytes = Vec::new();
                    let read = file.stream().read_to_end(&mut bytes);
                    assert_eq!(read.expect("the file decodes") as u64, inode.len());
                    Content::File(bytes)
                }
                InodeKind::Symlink(to) => Content::Symlink(to.clone()),
                InodeKind::BlockDevice(d) => Content::BlockDevice(d.major, d.minor),
                InodeKind::CharDevice(d) => Content::CharDevice(d.major, d.minor),
                InodeKind::Fifo => Content::Fifo,
                InodeKind::Socket => Content::Socket,
                other => panic!("{other:?} is new: compare it"),
            };
            let xattrs = image.xattrs(&inode).expect("the xattrs decode");
            let count = xattrs.len();
            let xattrs: BTreeMap<_, _> = xattrs
                .into_iter()
                .map(|x| (x.name().to_owned(), x.value().to_vec()))
                .collect();
            assert_eq!(xattrs.len(), count, "{path:?} has an xattr twice");
            let node = Node {
                content,
                permissions: inode.permissions().into(),
                uid: inode.uid(),
                gid: inode.gid(),
                mtime: inode.mtime().into(),
                nlink: inode.nlink().into(),
                xattrs,
                linked: None,
            };
            nodes.push((path, node, inode.reference()));
        }
        Self::grouped(nodes)
    }

    /// Joins names with the same `K`.
    fn grouped<K: Hash + Eq>(mut nodes: Vec<(PathBuf, Node, K)>) -> Self {
        nodes.sort_by(|a, b| a.0.cmp(&b.0));
        let mut names: HashMap<&K, Vec<usize>> = HashMap::new();
        for (n, (_, node, key)) in nodes.iter().enumerate() {
            if node.content != Content::Directory {
                names.entry(key).or_default().push(n);
            }
        }
        let mut first: HashMap<usize, PathBuf> = HashMap::new();
        for group in names.into_values().filter(|group| group.len() > 1) {
            for n in &group {
                first.insert(*n, nodes[group[0]].0.clone());
            }
        }
        let nodes = nodes
            .into_iter()
            .enumerate()
            .map(|(n, (path, mut node, _))| {
                node.linked = first.remove(&n);
                (path, node)
            });
        Self(nodes.collect())
    }

    /// The same without what `edit` takes away.
    pub fn map(&self, mut edit: impl FnMut(&Path, &mut Node)) -> Self {
        let mut copy = self.clone();
        for (path, node) in &mut copy.0 {
            edit(path, node);
        }
        copy
    }

    pub fn without_xattrs(&self) -> Self {
        self.map(|_, node| node.xattrs.clear())
    }

    /// Without the links of directories, which filesystems count differently.
    pub fn without_directory_links(&self) -> Self {
        self.map(|_, node| {
            if node.content == Content::Directory {
                node.nlink = 0;
            }
        })
    }

    /// Fails with the first differences if `self` is not what is `expected`.
    #[track_caller]
    pub fn assert_is(&self, expected: &Self, context: &str) {
        if self == expected {
            return;
        }
        let mut lines = Vec::new();
        let paths: std::collections::BTreeSet<_> = self.0.keys().chain(expected.0.keys()).collect();
        for path in paths {
            match (expected.0.get(path), self.0.get(path)) {
                (Some(a), Some(b)) if a == b => {}
                (a, b) => lines.push(format!("{path:?}\n  expected {a:?}\n  found    {b:?}")),
            }
        }
        let count = lines.len();
        lines.truncate(8);
        panic!("{context}: {count} differences\n{}", lines.join("\n"));
    }
}

fn of_path(path: &Path) -> (Node, (u64, u64)) {
    let fail = |e: &dyn std::fmt::Display| -> ! { panic!("{}: {e}", path.display()) };
    let metadata = fs::symlink_metadata(path).unwrap_or_else(|e| fail(&e));
    let kind = metadata.file_type();
    let device = (
        rustix::fs::major(metadata.rdev()),
        rustix::fs::minor(metadata.rdev()),
    );
    let content = if kind.is_dir() {
        Content::Directory
    } else if kind.is_file() {
        Content::File(fs::read(path).unwrap_or_else(|e| fail(&e)))
    } else if kind.is_symlink() {
        Content::Symlink(fs::read_link(path).unwrap_or_else(|e| fail(&e)).into())
    } else if kind.is_block_device() {
        Content::BlockDevice(device.0, device.1)
    } else if kind.is_char_device() {
        Content::CharDevice(device.0, device.1)
    } else if kind.is_fifo() {
        Content::Fifo
    } else {
        Content::Socket
    };
    let mut names = vec![0; 65_536];
    let n = match rustix::fs::llistxattr(path, &mut names) {
        // What the kernel says of an image that has none.
        Err(rustix::io::Errno::NOTSUP) => 0,
        listed => listed.unwrap_or_else(|e| fail(&e)),
    };
    let mut xattrs = BTreeMap::new();
    for name in names[..n]
        .split(|&b| b == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; 65_536];
        let n = rustix::fs::lgetxattr(path, name, &mut value).unwrap_or_else(|e| fail(&e));
        value.truncate(n);
        xattrs.insert(OsString::from_vec(name.to_vec()), value);
    }
    let node = Node {
        content,
        permissions: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: metadata.mtime(),
        nlink: metadata.nlink(),
        xattrs,
        linked: None,
    };
    (node, (metadata.dev(), metadata.ino()))
}
