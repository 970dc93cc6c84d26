//! What differs between two trees, wherever they come from.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::file_type;
use crate::error::{Error, Missing, Result};
use crate::format::inode::FileType;
use crate::ordered;
use crate::read::inode_reader::Device;
use crate::read::xattr_reader::Xattr;
use crate::tree::{InodeId, SourceFile, SourceId, Tree, TreeInode, TreeKind};
use crate::work::Work;

/// Bytes of each file that are compared at once: the largest block of an image, so that blocks are
/// decoded whole and once.
const CHUNK: usize = 1 << 20;

/// Parts that a file is compared in, about: handing out a part takes as long as comparing some KiB,
/// and files with holes may be very long.
const PARTS: u64 = 4096;

/// Bytes that are compared at most, beside those of both trees. Each file is in one pair, but for
/// hard links that the other tree has not; between trees that only differ there, that is less than
/// the bytes of the one that has fewer links.
const MOST_REPEATED: u64 = 1 << 30;

/// An aspect of files that a comparison may ignore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Aspect {
    /// Permissions.
    Mode,
    /// User and group.
    Owner,
    /// The modification time.
    Mtime,
    /// Extended attributes.
    Xattrs,
}

/// One difference between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The path from the root of the trees; empty for the root itself.
    pub path: PathBuf,
    /// What.
    pub change: Change,
}

/// How the second tree differs from the first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It is in the first tree only.
    Removed(FileType),
    /// It is in the second tree only.
    Added(FileType),
    /// It is something else. Nothing more is said of it.
    Type {
        /// In the first tree.
        was: FileType,
        /// In the second.
        is: FileType,
    },
    /// A file's bytes.
    Contents {
        /// The first byte that differs; the length of the shorter file if it starts the longer.
        first: u64,
        /// Bytes of the file in the first tree.
        was_len: u64,
        /// Bytes of the file in the second.
        is_len: u64,
    },
    /// The target of a symbolic link.
    Target {
        /// In the first tree.
        was: OsString,
        /// In the second.
        is: OsString,
    },
    /// The numbers of a device.
    Device {
        /// In the first tree.
        was: Device,
        /// In the second.
        is: Device,
    },
    /// Permissions.
    Mode {
        /// In the first tree.
        was: u16,
        /// In the second.
        is: u16,
    },
    /// User and group.
    Owner {
        /// In the first tree.
        was: (u32, u32),
        /// In the second.
        is: (u32, u32),
    },
    /// The modification time, in seconds since 1970.
    Mtime {
        /// In the first tree.
        was: u32,
        /// In the second.
        is: u32,
    },
    /// Extended attributes, by name.
    Xattrs {
        /// In the first tree only.
        removed: Vec<OsString>,
        /// In the second tree only.
        added: Vec<OsString>,
        /// With another value.
        changed: Vec<OsString>,
    },
    /// The first name that is a hard link to the same file, among the names that both trees have.
    /// None if this one is the first.
    HardLink {
        /// In the first tree.
        was: Option<PathBuf>,
        /// In the second.
        is: Option<PathBuf>,
    },
}

impl Tree {
    /// The differences of `other` from `self`, except in the aspects of `ignored`. A directory
    /// comes before its entries, and names are in the order of their bytes.
    ///
    /// Each thread of `work` holds at most 1 MiB of each of two files at a time. The contents of a
    /// file with several names are compared once.
    ///
    /// # Errors
    ///
    /// Any error of reading one of the trees.
    pub fn compare(
        &self,
        other: &Self,
        ignored: &[Aspect],
        work: &Work,
    ) -> Result<Vec<Difference>> {
        let contents = compare_contents(self, other, work)?;
        let mut comparison = Comparison {
            was: self,
            is: other,
            ignored,
            contents,
            first_names: (HashMap::new(), HashMap::new()),
            differences: Vec::new(),
        };
        for (path, was, is) in Both::new(self, other) {
            comparison.add(path, was, is);
        }
        Ok(comparison.differences)
    }
}

/// Two trees gone through together: each path that one of them has, and what each has there.
struct Both<'a> {
    was: &'a Tree,
    is: &'a Tree,
    root: bool,
    /// Directories on the way: the path, in each tree the inode and the entry that comes next.
    open: Vec<(PathBuf, Side, Side)>,
}

type Side = Option<(InodeId, usize)>;

impl<'a> Both<'a> {
    fn new(was: &'a Tree, is: &'a Tree) -> Self {
        Self {
            was,
            is,
            root: true,
            open: Vec::new(),
        }
    }

    fn enter(&mut self, path: &Path, was: Option<InodeId>, is: Option<InodeId>) {
        let directory = |tree: &Tree, inode: Option<InodeId>| {
            inode
                .filter(|&i| matches!(tree.inodes[i].kind, TreeKind::Directory(_)))
                .map(|i| (i, 0))
        };
        let (was, is) = (directory(self.was, was), directory(self.is, is));
        if was.is_some() || is.is_some() {
            self.open.push((path.to_owned(), was, is));
        }
    }
}

fn next_entry<'a>(tree: &'a Tree, side: &Side) -> Option<&'a (Box<[u8]>, InodeId)> {
    side.and_then(|(directory, next)| tree.entries(directory).get(next))
}

impl Iterator for Both<'_> {
    type Item = (PathBuf, Option<InodeId>, Option<InodeId>);

    fn next(&mut self) -> Option<Self::Item> {
        if std::mem::take(&mut self.root) {
            self.enter(Path::new(""), Some(0), Some(0));
            return Some((PathBuf::new(), Some(0), Some(0)));
        }
        loop {
            let (parent, was, is) = self.open.last_mut()?;
            let (a, b) = (next_entry(self.was, was), next_entry(self.is, is));
            let name = match (a, b) {
                (None, None) => {
                    self.open.pop();
                    continue;
                }
                (Some((a, _)), Some((b, _))) => a.min(b),
                (Some((name, _)), None) | (None, Some((name, _))) => name,
            };
            let take = |entry: Option<&(Box<[u8]>, InodeId)>, side: &mut Side| match (entry, side) {
                (Some((found, inode)), Some((_, next))) if found == name => {
                    *next += 1;
                    Some(*inode)
                }
                _ => None,
            };
            let (was, is) = (take(a, was), take(b, is));
            let path = parent.join(OsStr::from_bytes(name));
            self.enter(&path, was, is);
            return Some((path, was, is));
        }
    }
}

/// For each pair of files that differ, the first byte that does.
type Contents = HashMap<(InodeId, InodeId), u64>;

/// Two files to be compared.
struct Pair {
    inodes: (InodeId, InodeId),
    sources: (SourceId, SourceId),
    lens: (u64, u64),
    /// The first byte that is known to differ: what is behind it need not be read.
    differs: AtomicU64,
}

impl Pair {
    fn common(&self) -> u64 {
        self.lens.0.min(self.lens.1)
    }
}

fn compare_contents(was: &Tree, is: &Tree, work: &Work) -> Result<Contents> {
    let mut known = HashSet::new();
    let mut pairs = Vec::new();
    for (_, a, b) in Both::new(was, is) {
        let (Some(a), Some(b)) = (a, b) else { continue };
        if let (
            &TreeKind::File { len, source },
            &TreeKind::File {
                len: is_len,
                source: is_source,
            },
        ) = (&was.inodes[a].kind, &is.inodes[b].kind)
            && known.insert((a, b))
        {
            pairs.push(Pair {
                inodes: (a, b),
                sources: (source, is_source),
                lens: (len, is_len),
                differs: AtomicU64::new(u64::MAX),
            });
        }
    }
    drop(known);
    let most = was.bytes().saturating_add(is.bytes());
    let most = most.saturating_add(MOST_REPEATED);
    let needs = pairs.iter().map(Pair::common);
    let needs = needs.fold(0, u64::saturating_add);
    if needs > most {
        let what = "comparing each pair of hard-linked files";
        return Err(Error::limit(what, needs, most));
    }
    let different_len = pairs.iter().filter(|pair| pair.lens.0 != pair.lens.1);
    let mut contents: Contents = different_len.map(|p| (p.inodes, p.common())).collect();
    let parts = pairs.iter().flat_map(|pair| {
        // At least a chunk, and more for a file of more than 4 GiB.
        let len = (pair.common() / PARTS).max(CHUNK as u64);
        let step = usize::try_from(len).unwrap_or(usize::MAX);
        (0..pair.common())
            .step_by(step)
            .map(move |from| (pair, from..from.saturating_add(len).min(pair.common())))
    });
    ordered::for_each(
        work.thread_count(),
        work.thread_count().saturating_mul(4),
        parts,
        || (Opened::new(was), Opened::new(is)),
        |(a, b), (pair, part)| {
            let mut first = None;
            for offset in part.clone().step_by(CHUNK) {
                // At most `CHUNK`.
                let len = (part.end - offset).min(CHUNK as u64) as usize;
                work.tell(len as u64)?;
                if pair.differs.load(Ordering::Relaxed) <= offset {
                    break;
                }
                let holes = a.is_hole(pair.sources.0, offset, len)?
                    && b.is_hole(pair.sources.1, offset, len)?;
                if holes {
                    continue;
                }
                let a = a.read(pair.sources.0, offset, len)?;
                let b = b.read(pair.sources.1, offset, len)?;
                let differs = match a == b {
                    true => None,
                    false => a.iter().zip(b).position(|(a, b)| a != b),
                };
                if let Some(at) = differs {
                    let at = offset + at as u64;
                    pair.differs.fetch_min(at, Ordering::Relaxed);
                    first = Some(at);
                    break;
                }
            }
            Ok((pair.inodes, first))
        },
        |result: Result<_>| {
            if let (inodes, Some(first)) = result? {
                // A chunk that was under way behind the first difference says nothing new.
                let known = contents.entry(inodes).or_insert(first);
                *known = first.min(*known);
            }
            Ok::<(), Error>(())
        },
    )?;
    Ok(contents)
}

/// The file of a tree that a thread reads, kept open from one chunk to the next.
struct Opened<'a> {
    tree: &'a Tree,
    file: Option<(SourceId, Box<dyn SourceFile + 'a>)>,
    buf: Vec<u8>,
}

impl<'a> Opened<'a> {
    fn new(tree: &'a Tree) -> Self {
        Self {
            tree,
            file: None,
            buf: vec![0; CHUNK],
        }
    }

    /// The file that is asked for, and room for a part of it.
    fn open(&mut self, source: SourceId) -> Result<(&mut (dyn SourceFile + 'a), &mut [u8])> {
        if self.file.as_ref().is_none_or(|(open, _)| *open != source) {
            self.file = Some((source, self.tree.source.open(source)?));
        }
        match &mut self.file {
            Some((_, file)) => Ok((&mut **file, &mut self.buf)),
            // It was opened above.
            None => Err(Error::missing(Missing::InTree)),
        }
    }

    fn is_hole(&mut self, source: SourceId, offset: u64, len: usize) -> Result<bool> {
        self.open(source)?.0.is_hole(offset, len as u64)
    }

    fn read(&mut self, source: SourceId, offset: u64, len: usize) -> Result<&[u8]> {
        let (file, buf) = self.open(source)?;
        let buf = &mut buf[..len];
        if file.is_hole(offset, len as u64)? {
            buf.fill(0);
        } else {
            file.read_exact_at(offset, buf)?;
        }
        file.check_unchanged()?;
        Ok(buf)
    }
}

struct Comparison<'a> {
    was: &'a Tree,
    is: &'a Tree,
    ignored: &'a [Aspect],
    contents: Contents,
    /// For each inode of each tree, the first path of it that both trees have.
    first_names: (HashMap<InodeId, PathBuf>, HashMap<InodeId, PathBuf>),
    differences: Vec<Difference>,
}

impl Comparison<'_> {
    fn add(&mut self, path: PathBuf, was: Option<InodeId>, is: Option<InodeId>) {
        let (a, b) = match (was, is) {
            (Some(a), Some(b)) => (a, b),
            (Some(a), None) => {
                let kind = file_type(&self.was.inodes[a].kind);
                return self.push(&path, Change::Removed(kind));
            }
            (None, Some(b)) => {
                let kind = file_type(&self.is.inodes[b].kind);
                return self.push(&path, Change::Added(kind));
            }
            (None, None) => return,
        };
        let (was, is) = (&self.was.inodes[a], &self.is.inodes[b]);
        let (was_type, is_type) = (file_type(&was.kind), file_type(&is.kind));
        if was_type != is_type {
            let (was, is) = (was_type, is_type);
            return self.push(&path, Change::Type { was, is });
        }
        let contents = self.contents.get(&(a, b)).copied();
        let changes = [
            kind_change(&was.kind, &is.kind, contents),
            self.attribute_change(Aspect::Mode, was, is),
            self.attribute_change(Aspect::Owner, was, is),
            self.attribute_change(Aspect::Mtime, was, is),
            self.xattr_change(was, is),
        ];
        for change in changes.into_iter().flatten() {
            self.push(&path, change);
        }
        if was_type != FileType::Directory {
            let first = (
                self.first_names.0.entry(a).or_insert_with(|| path.clone()),
                self.first_names.1.entry(b).or_insert_with(|| path.clone()),
            );
            if first.0 != first.1 {
                let other = |first: &PathBuf| (*first != path).then(|| first.clone());
                let (was, is) = (other(first.0), other(first.1));
                self.push(&path, Change::HardLink { was, is });
            }
        }
    }

    fn push(&mut self, path: &Path, change: Change) {
        let path = path.to_owned();
        self.differences.push(Difference { path, change });
    }

    fn attribute_change(&self, aspect: Aspect, was: &TreeInode, is: &TreeInode) -> Option<Change> {
        if self.ignored.contains(&aspect) {
            return None;
        }
        let (was, is) = (was.attributes, is.attributes);
        let change = match aspect {
            Aspect::Mode if was.permissions != is.permissions => Change::Mode {
                was: was.permissions,
                is: is.permissions,
            },
            Aspect::Owner if (was.uid, was.gid) != (is.uid, is.gid) => Change::Owner {
                was: (was.uid, was.gid),
                is: (is.uid, is.gid),
            },
            Aspect::Mtime if was.mtime != is.mtime => Change::Mtime {
                was: was.mtime,
                is: is.mtime,
            },
            _ => return None,
        };
        Some(change)
    }

    fn xattr_change(&self, was: &TreeInode, is: &TreeInode) -> Option<Change> {
        let (was, is) = (xattrs(self.was, was), xattrs(self.is, is));
        if self.ignored.contains(&Aspect::Xattrs) || was == is {
            return None;
        }
        let in_only = |these: &[Xattr], those: &[Xattr]| -> Vec<OsString> {
            these
                .iter()
                .filter(|this| those.iter().all(|that| that.name != this.name))
                .map(|this| this.name.clone())
                .collect()
        };
        let another_value = |this: &&Xattr| {
            is.iter()
                .any(|that| that.name == this.name && that.value != this.value)
        };
        Some(Change::Xattrs {
            removed: in_only(was, is),
            added: in_only(is, was),
            changed: was
                .iter()
                .filter(another_value)
                .map(|this| this.name.clone())
                .collect(),
        })
    }
}

fn xattrs<'a>(tree: &'a Tree, inode: &TreeInode) -> &'a [Xattr] {
    match inode.xattrs {
        // Invariant 4 of the tree.
        Some(set) => &tree.xattr_sets[set as usize],
        None => &[],
    }
}

/// What differs in what only this kind of inode has; `contents` is the first byte that does.
fn kind_change(was: &TreeKind, is: &TreeKind, contents: Option<u64>) -> Option<Change> {
    let owned = |target: &[u8]| OsStr::from_bytes(target).to_owned();
    match (was, is) {
        (&TreeKind::File { len: was_len, .. }, &TreeKind::File { len: is_len, .. }) => contents
            .map(|first| Change::Contents {
                first,
                was_len,
                is_len,
            }),
        (TreeKind::Symlink(was), TreeKind::Symlink(is)) if was != is => Some(Change::Target {
            was: owned(was),
            is: owned(is),
        }),
        (TreeKind::BlockDevice(was), TreeKind::BlockDevice(is))
        | (TreeKind::CharDevice(was), TreeKind::CharDevice(is))
            if was != is =>
        {
            Some(Change::Device { was: *was, is: *is })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TreeRules;
    use std::fs;

    fn trees(make: impl Fn(&Path, bool)) -> (tempfile::TempDir, Tree, Tree) {
        let dir = tempfile::tempdir().unwrap();
        let scan = |name: &str, second| {
            let root = dir.path().join(name);
            fs::create_dir(&root).unwrap();
            make(&root, second);
            Tree::from_directory(&root, &TreeRules::default()).unwrap()
        };
        let (was, is) = (scan("was", false), scan("is", true));
        (dir, was, is)
    }

    fn changes(was: &Tree, is: &Tree) -> Vec<(String, Change)> {
        let differences = was
            .compare(is, &[Aspect::Mtime], &Work::new().threads(3))
            .unwrap();
        differences
            .into_iter()
            .map(|d| (d.path.display().to_string(), d.change))
            .collect()
    }

    #[test]
    fn the_first_byte_that_differs_is_found_anywhere() {
        let lens = [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5];
        let (_dir, was, is) = trees(|root, second| {
            for len in lens {
                let mut bytes = vec![b'x'; len];
                if second {
                    bytes[len - 1] = b'y';
                    // What differs behind the first difference does not count.
                    bytes.extend_from_slice(b"more");
                }
                fs::write(root.join(format!("{len:08}")), &bytes).unwrap();
                bytes[0] = if second { b'1' } else { b'2' };
                fs::write(root.join(format!("{len:08}-start")), &bytes).unwrap();
                fs::write(root.join(format!("{len:08}-same")), vec![7; len]).unwrap();
                fs::write(
                    root.join(format!("{len:08}-tail")),
                    vec![7; len + usize::from(second)],
                )
                .unwrap();
            }
        });
        let mut expected = Vec::new();
        for len in lens {
            let change = |first: usize, more: usize| Change::Contents {
                first: first as u64,
                was_len: len as u64,
                is_len: (len + more) as u64,
            };
            expected.push((format!("{len:08}"), change(len - 1, 4)));
            expected.push((format!("{len:08}-start"), change(0, 4)));
            expected.push((format!("{len:08}-tail"), change(len, 1)));
        }
        assert_eq!(changes(&was, &is), expected);
    }

    #[test]
    fn names_and_types_come_in_the_order_of_bytes() {
        let (_dir, was, is) = trees(|root, second| {
            fs::create_dir(root.join("d")).unwrap();
            fs::write(root.join("d/both"), "").unwrap();
            if second {
                fs::write(root.join("d/new"), "").unwrap();
                fs::create_dir(root.join("t")).unwrap();
                fs::write(root.join("t/below"), "").unwrap();
                std::os::unix::fs::symlink("b", root.join("link")).unwrap();
            } else {
                fs::create_dir_all(root.join("a/b")).unwrap();
                fs::write(root.join("t"), "").unwrap();
                std::os::unix::fs::symlink("a", root.join("link")).unwrap();
            }
        });
        let expected = [
            ("a", Change::Removed(FileType::Directory)),
            ("a/b", Change::Removed(FileType::Directory)),
            ("d/new", Change::Added(FileType::File)),
            (
                "link",
                Change::Target {
                    was: "a".into(),
                    is: "b".into(),
                },
            ),
            (
                "t",
                Change::Type {
                    was: FileType::File,
                    is: FileType::Directory,
                },
            ),
            ("t/below", Change::Added(FileType::File)),
        ];
        let expected: Vec<_> = expected.map(|(path, c)| (path.to_owned(), c)).into();
        assert_eq!(changes(&was, &is), expected);
    }

    #[test]
    fn hard_links_are_compared_among_the_names_of_both() {
        let (_dir, was, is) = trees(|root, second| {
            if !second {
                fs::write(root.join("0-only"), "x").unwrap();
                fs::hard_link(root.join("0-only"), root.join("1")).unwrap();
                fs::hard_link(root.join("0-only"), root.join("2")).unwrap();
                fs::hard_link(root.join("0-only"), root.join("3")).unwrap();
                fs::write(root.join("4"), "y").unwrap();
            } else {
                fs::write(root.join("1"), "x").unwrap();
                fs::hard_link(root.join("1"), root.join("2")).unwrap();
                fs::write(root.join("3"), "x").unwrap();
                fs::hard_link(root.join("3"), root.join("4")).unwrap();
            }
        });
        let expected = [
            ("0-only", Change::Removed(FileType::File)),
            (
                "3",
                Change::HardLink {
                    was: Some("1".into()),
                    is: None,
                },
            ),
            (
                "4",
                Change::Contents {
                    first: 0,
                    was_len: 1,
                    is_len: 1,
                },
            ),
            (
                "4",
                Change::HardLink {
                    was: None,
                    is: Some("3".into()),
                },
            ),
        ];
        let expected: Vec<_> = expected.map(|(path, c)| (path.to_owned(), c)).into();
        assert_eq!(changes(&was, &is), expected);
    }
}
