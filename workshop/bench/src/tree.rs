//! A directory tree, with its contents and attributes.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brisk_lab::{State, prepare};

/// A tree as it was when it was read: everything that a SquashFS image keeps of it.
#[derive(Debug, Clone)]
pub struct Tree {
    path: PathBuf,
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    kind: Kind,
    mode: u32,
    uid: u32,
    gid: u32,
    /// Whole seconds, because the format has no more.
    mtime: i64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    File {
        len: u64,
        contents: blake3::Hash,
        /// An earlier path of the same inode, if there is one.
        same_as: Option<PathBuf>,
    },
    Directory,
    Symlink(PathBuf),
    Device {
        block: bool,
        number: u64,
    },
    Fifo,
    Socket,
}

impl Tree {
    /// Reads every file and attribute below `path`.
    pub fn read(path: &Path) -> Result<Self> {
        let mut entries = BTreeMap::new();
        let mut first_of_inode = HashMap::new();
        for found in walkdir::WalkDir::new(path).sort_by_file_name() {
            let found = found.with_context(|| format!("cannot walk {}", path.display()))?;
            let name = found.path().strip_prefix(path)?.to_owned();
            let entry = Entry::read(found.path(), &name, &mut first_of_inode)
                .with_context(|| format!("cannot read {}", found.path().display()))?;
            entries.insert(name, entry);
        }
        Ok(Self {
            path: path.to_owned(),
            entries,
        })
    }

    /// Where the tree was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last part of its path, as a table shows it.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Paths of regular files, relative to the tree.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let is_file = |entry: &Entry| matches!(entry.kind, Kind::File { .. });
        self.entries
            .iter()
            .filter(move |(_, entry)| is_file(entry))
            .map(|(name, _)| name.as_path())
    }

    /// The size of its regular files. A file with several names counts once.
    pub fn bytes(&self) -> u64 {
        let len = |entry: &Entry| match entry.kind {
            Kind::File {
                len, same_as: None, ..
            } => len,
            _ => 0,
        };
        self.entries.values().map(len).sum()
    }

    /// Checks that the tree at `other` equals this one.
    ///
    /// # Errors
    ///
    /// Names the first path that differs, in order, with both sides.
    pub fn check_equal(&self, other: &Path) -> Result<()> {
        let other = Self::read(other)?;
        for (name, entry) in &self.entries {
            match other.entries.get(name) {
                Some(found) if found == entry => {}
                found => bail!(
                    "{} differs from its source: {name:?} is {found:?}, but must be {entry:?}",
                    other.path.display()
                ),
            }
        }
        let surplus = |name: &&PathBuf| !self.entries.contains_key(*name);
        if let Some(name) = other.entries.keys().find(surplus) {
            bail!(
                "{} has {name:?}, but its source does not",
                other.path.display()
            );
        }
        Ok(())
    }

    /// Brings every file into the page cache, and proves that it is there.
    pub fn warm(&self) -> Result<()> {
        self.files()
            .try_for_each(|name| prepare(&self.path.join(name), State::Warm))
    }
}

impl Entry {
    fn read(
        path: &Path,
        name: &Path,
        first_of_inode: &mut HashMap<(u64, u64), PathBuf>,
    ) -> Result<Self> {
        let stat = fs::symlink_metadata(path)?;
        let kind = stat.file_type();
        let kind = if kind.is_file() {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(File::open(path)?)?;
            let first = first_of_inode
                .entry((stat.dev(), stat.ino()))
                .or_insert_with(|| name.to_owned());
            Kind::File {
                len: stat.len(),
                contents: hasher.finalize(),
                same_as: (first != name).then(|| first.clone()),
            }
        } else if kind.is_dir() {
            Kind::Directory
        } else if kind.is_symlink() {
            Kind::Symlink(fs::read_link(path)?)
        } else if kind.is_block_device() || kind.is_char_device() {
            Kind::Device {
                block: kind.is_block_device(),
                number: stat.rdev(),
            }
        } else if kind.is_fifo() {
            Kind::Fifo
        } else {
            Kind::Socket
        };
        Ok(Self {
            kind,
            mode: stat.mode(),
            uid: stat.uid(),
            gid: stat.gid(),
            mtime: stat.mtime(),
            xattrs: xattrs(path)?,
        })
    }
}

fn xattrs(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    // The largest list and the largest value in Linux.
    let mut names = vec![0; 65536];
    let len = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(0) | Err(rustix::io::Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        len => len?,
    };
    let mut value = vec![0; 65536];
    let mut found = BTreeMap::new();
    for name in names[..len]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        let len = rustix::fs::lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value[..])?;
        found.insert(name.to_vec(), value[..len].to_vec());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_equal_until_a_byte_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let when = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        for root in [&one, &two] {
            fs::create_dir(root).unwrap();
            fs::write(root.join("a"), b"same").unwrap();
            for path in [&root.join("a"), root] {
                File::open(path).unwrap().set_times(when).unwrap();
            }
        }
        let tree = Tree::read(&one).unwrap();
        assert_eq!((tree.bytes(), tree.files().count()), (4, 1));
        tree.check_equal(&two).unwrap();

        fs::write(two.join("a"), b"diff").unwrap();
        File::open(two.join("a")).unwrap().set_times(when).unwrap();
        let text = tree.check_equal(&two).unwrap_err().to_string();
        assert!(
            text.contains("differs from its source: \"a\" is "),
            "{text}"
        );
    }

    #[test]
    fn a_second_name_of_one_inode_is_no_copy() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), b"1234").unwrap();
        fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
        let tree = Tree::read(dir.path()).unwrap();
        assert_eq!((tree.bytes(), tree.files().count()), (4, 2));
        fs::remove_file(dir.path().join("b")).unwrap();
        fs::copy(dir.path().join("a"), dir.path().join("b")).unwrap();
        assert!(tree.check_equal(dir.path()).is_err());
    }
}
