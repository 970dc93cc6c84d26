//! A tree to be packed from a directory.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use brisk_io::ReadAt;
use rustix::fs::{OFlags, SeekFrom};

use super::losses::Losses;
use super::rules::TreeRules;
use super::{
    Attributes, FileSource, InodeId, SourceFile, SourceId, Tree, TreeBuilder, TreeKind, check_name,
};
use crate::error::{Error, Result};
use crate::read::inode_reader::Device;
use crate::read::xattr_reader::Xattr;

impl Tree {
    /// The tree at and below the directory `root`, as `rules` say.
    ///
    /// # Errors
    ///
    /// `Io` for what cannot be listed, and `Input` for names that no image can hold; the path is
    /// that of the file at fault.
    pub fn from_directory(root: impl AsRef<Path>, rules: &TreeRules) -> Result<Self> {
        Scan::new(root.as_ref(), rules)?.run()
    }
}

/// What is remembered of a file, to see whether it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            ctime: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Checks that `self`, which is now, is what it `was`.
    fn check(&self, was: &Self) -> Result<()> {
        let fields = [
            ("length", was.len, self.len),
            ("inode number", was.inode, self.inode),
            ("device", was.device, self.device),
        ];
        for (what, was, is) in fields {
            if was != is {
                return Err(Error::changed(what, was, is));
            }
        }
        for (what, was, is) in [
            ("modification time", was.mtime, self.mtime),
            ("change time", was.ctime, self.ctime),
        ] {
            if was != is {
                let nanoseconds = |(s, ns): (i64, i64)| {
                    s.wrapping_mul(1_000_000_000)
                        .wrapping_add(ns)
                        .unsigned_abs()
                };
                return Err(Error::changed(what, nanoseconds(was), nanoseconds(is)));
            }
        }
        Ok(())
    }
}

struct Scan<'a> {
    root: &'a Path,
    rules: &'a TreeRules,
    builder: TreeBuilder,
    files: Vec<(PathBuf, Stamp)>,
    /// Inodes with several names, by device and number.
    linked: HashMap<(u64, u64), InodeId>,
    losses: Losses,
}

impl<'a> Scan<'a> {
    fn new(root: &'a Path, rules: &'a TreeRules) -> Result<Self> {
        let named = |e: Error| e.with_path(root);
        // A link to a directory given by name is meant to be followed, as in `ls dir/`.
        let metadata = std::fs::metadata(root).map_err(|e| named(Error::io("read the tree", e)))?;
        if !metadata.is_dir() {
            return Err(named(Error::input(
                "the tree to be packed is not a directory",
            )));
        }
        let mut scan = Self {
            root,
            rules,
            builder: TreeBuilder::new(
                Attributes {
                    permissions: 0,
                    uid: 0,
                    gid: 0,
                    mtime: 0,
                },
                Vec::new(),
            )?,
            files: Vec::new(),
            linked: HashMap::new(),
            losses: Losses::default(),
        };
        let attributes = scan.attributes(Path::new(""), &metadata);
        let xattrs = scan.xattrs(Path::new(""), root)?;
        scan.builder.set_attributes(0, attributes, xattrs)?;
        Ok(scan)
    }

    fn run(mut self) -> Result<Tree> {
        let mut open: Vec<(PathBuf, InodeId)> = vec![(PathBuf::new(), 0)];
        while let Some((path, directory)) = open.pop() {
            let full = self.root.join(&path);
            let listing = std::fs::read_dir(&full)
                .map_err(|e| Error::io("list the directory", e).with_path(&full))?;
            // Inodes get their numbers in the order of names, whatever order the filesystem has.
            let names = listing.map(|entry| entry.map(|entry| entry.file_name()));
            let mut names: Vec<OsString> = names
                .collect::<io::Result<_>>()
                .map_err(|e| Error::io("list the directory", e).with_path(&full))?;
            names.sort_unstable();
            for name in names {
                let path = path.join(&name);
                let full = self.root.join(&path);
                if let Some(inode) = self
                    .add(&path, &full, &name)
                    .map_err(|e| e.with_path(&full))?
                {
                    self.builder.link(directory, name.as_bytes(), inode);
                    if self.builder.is_directory(inode) {
                        open.push((path, inode));
                    }
                }
            }
        }
        self.builder.warnings.extend(self.losses.warnings());
        let source = DirSource {
            root: self.root.to_owned(),
            files: self.files,
        };
        Ok(self.builder.finish(Box::new(source)))
    }

    /// Adds what is at `path`, or none if a rule leaves it out.
    fn add(&mut self, path: &Path, full: &Path, name: &OsStr) -> Result<Option<InodeId>> {
        let metadata = std::fs::symlink_metadata(full)
            .map_err(|e| Error::io("read the metadata of the file", e))?;
        let file_type = metadata.file_type();
        if self.rules.excludes(path, file_type.is_dir()) {
            return Ok(None);
        }
        check_name(name)?;
        let key = (metadata.dev(), metadata.ino());
        let may_be_linked = metadata.nlink() > 1 && !file_type.is_dir();
        if let Some(known) = self.linked.get(&key).filter(|_| may_be_linked) {
            return Ok(Some(*known));
        }
        let kind = if file_type.is_dir() {
            TreeKind::Directory(Vec::new())
        } else if file_type.is_file() {
            let source = SourceId::try_from(self.files.len()).map_err(|_| {
                Error::limit(
                    "the number of files",
                    self.files.len() as u64,
                    u32::MAX.into(),
                )
            })?;
            self.files.push((path.to_owned(), Stamp::of(&metadata)));
            TreeKind::File {
                len: metadata.len(),
                source,
            }
        } else if file_type.is_symlink() {
            let target =
                std::fs::read_link(full).map_err(|e| Error::io("read the symbolic link", e))?;
            TreeKind::Symlink(target.into_os_string().into_vec().into())
        } else if file_type.is_fifo() {
            TreeKind::Fifo
        } else if file_type.is_socket() {
            TreeKind::Socket
        } else {
            let rdev = metadata.rdev();
            let device = Device {
                major: rustix::fs::major(rdev),
                minor: rustix::fs::minor(rdev),
            };
            match file_type.is_block_device() {
                true => TreeKind::BlockDevice(device),
                false => TreeKind::CharDevice(device),
            }
        };
        let attributes = self.attributes(path, &metadata);
        let xattrs = self.xattrs(path, full)?;
        let inode = self.builder.add(attributes, xattrs, kind)?;
        if may_be_linked {
            self.linked.insert(key, inode);
        }
        Ok(Some(inode))
    }

    fn attributes(&mut self, path: &Path, metadata: &Metadata) -> Attributes {
        let attributes = Attributes {
            // The type of the file is in the higher bits.
            permissions: (metadata.mode() & 0o7777) as u16,
            uid: metadata.uid(),
            gid: metadata.gid(),
            mtime: self.losses.time(metadata.mtime()),
        };
        self.rules.apply(path, metadata.is_dir(), attributes)
    }

    fn xattrs(&mut self, path: &Path, full: &Path) -> Result<Vec<Xattr>> {
        if !self.rules.wants_xattrs() {
            return Ok(Vec::new());
        }
        let mut xattrs = Vec::new();
        for name in xattr_names(full)? {
            if self.losses.keeps(self.rules, path, &name)
                && let Some(value) = xattr_value(full, &name)?
            {
                xattrs.push(Xattr { name, value });
            }
        }
        Ok(xattrs)
    }
}

fn xattr_names(path: &Path) -> Result<Vec<OsString>> {
    let mut buf = vec![0u8; 1024];
    loop {
        match rustix::fs::llistxattr(path, &mut buf) {
            Ok(n) => {
                let names = buf[..n].split(|&b| b == 0).filter(|name| !name.is_empty());
                return Ok(names
                    .map(|name| OsString::from_vec(name.to_vec()))
                    .collect());
            }
            // Linux lists at most 64 KiB.
            Err(rustix::io::Errno::RANGE) if buf.len() < 65_536 => buf.resize(65_536, 0),
            Err(rustix::io::Errno::NOTSUP) => return Ok(Vec::new()),
            Err(e) => return Err(Error::io("list the xattrs of the file", e.into())),
        }
    }
}

/// The value, or none if the attribute went away.
fn xattr_value(path: &Path, name: &OsStr) -> Result<Option<Vec<u8>>> {
    let mut buf = vec![0u8; 256];
    loop {
        match rustix::fs::lgetxattr(path, name, &mut buf) {
            Ok(n) => {
                buf.truncate(n);
                return Ok(Some(buf));
            }
            Err(rustix::io::Errno::RANGE) if buf.len() < 65_536 => buf.resize(65_536, 0),
            Err(rustix::io::Errno::NODATA) => return Ok(None),
            Err(e) => return Err(Error::io("read an xattr of the file", e.into())),
        }
    }
}

struct DirSource {
    root: PathBuf,
    files: Vec<(PathBuf, Stamp)>,
}

impl FileSource for DirSource {
    fn open(&self, file: SourceId) -> Result<Box<dyn SourceFile + '_>> {
        let (path, stamp) = &self.files[file as usize];
        let path = self.root.join(path);
        let open = || {
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = File::options()
                .read(true)
                .custom_flags(flags.bits().cast_signed())
                .open(&path)
                .map_err(|e| Error::io("open the file", e))?;
            let metadata = check_unchanged(&file, stamp)?;
            Ok((file, metadata))
        };
        let (file, metadata) = open().map_err(|e: Error| e.with_path(&path))?;
        Ok(Box::new(OpenFile {
            file,
            path,
            stamp,
            sparse: metadata.blocks().saturating_mul(512) < metadata.len(),
        }))
    }
}

/// What the file is now, if that is what it was.
fn check_unchanged(file: &File, stamp: &Stamp) -> Result<Metadata> {
    let metadata = file
        .metadata()
        .map_err(|e| Error::io("read the metadata of the file", e))?;
    Stamp::of(&metadata).check(stamp)?;
    Ok(metadata)
}

struct OpenFile<'a> {
    file: File,
    path: PathBuf,
    stamp: &'a Stamp,
    /// Whether the file may have holes: it takes less room than its length.
    sparse: bool,
}

impl SourceFile for OpenFile<'_> {
    fn read_exact_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        ReadAt::read_exact_at(&self.file, offset, buf).map_err(|e| {
            let short = e.kind() == io::ErrorKind::UnexpectedEof;
            let e = match self.file.metadata() {
                Ok(now) if short && now.len() < self.stamp.len => {
                    Error::changed("length", self.stamp.len, now.len())
                }
                _ => Error::io("read the file", e),
            };
            e.with_path(&self.path)
        })
    }

    fn is_hole(&mut self, offset: u64, len: u64) -> Result<bool> {
        if !self.sparse {
            return Ok(false);
        }
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => Ok(data >= offset.saturating_add(len)),
            // No data at or after `offset`.
            Err(rustix::io::Errno::NXIO) => Ok(true),
            // The filesystem does not tell holes.
            Err(_) => Ok(false),
        }
    }

    fn check_unchanged(&mut self) -> Result<()> {
        match check_unchanged(&self.file, self.stamp) {
            Ok(_) => Ok(()),
            Err(e) => Err(e.with_path(&self.path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_depend_on_the_order_of_creation() {
        let shape = |names: &[&str]| {
            let dir = tempfile::tempdir().unwrap();
            for name in names {
                std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
                std::fs::write(dir.path().join(name), name).unwrap();
            }
            let tree = Tree::from_directory(dir.path(), &TreeRules::default()).unwrap();
            tree.files().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(
            shape(&["z", "a/b", "a/c", "m"]),
            shape(&["m", "a/c", "z", "a/b"])
        );
    }

    #[test]
    fn a_file_that_changes_is_told_by_field() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "four").unwrap();
        let tree = Tree::from_directory(dir.path(), &TreeRules::default()).unwrap();
        std::fs::write(&path, "longer").unwrap();
        let e = tree.source.open(0).err().unwrap();
        assert_eq!(
            e.to_string(),
            format!(
                "{}: file changed while it was packed: its length was 4 and is 6; stop what writes it, or pack a copy",
                path.display()
            )
        );
        std::fs::remove_file(&path).unwrap();
        let e = tree.source.open(0).err().unwrap();
        assert_eq!(
            e.to_string(),
            format!("{}: cannot open the file", path.display())
        );
    }

    #[test]
    fn what_is_excluded_is_not_even_looked_into() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["keep/a", "target/debug/b", "keep/c.tmp", "keep/d.tmp"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let rules = TreeRules::default()
            .exclude(&["target/".into(), "*.tmp".into(), "!d.tmp".into()])
            .unwrap();
        let tree = Tree::from_directory(dir.path(), &rules).unwrap();
        let paths: Vec<_> = tree.files().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, [Path::new("keep/a"), Path::new("keep/d.tmp")]);
        assert_eq!(tree.inode_count(), 4);
    }
}
