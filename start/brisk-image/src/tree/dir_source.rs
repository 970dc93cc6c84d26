//! A tree to be packed from a directory.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use brisk_io::ByteSource;
use rustix::fs::{CWD, Mode, OFlags, SeekFrom, openat};

use super::builder::{TreeBuilder, check_depth};
use super::losses::{Losses, nearest_time};
use super::rules::TreeRules;
use super::tree_path::TreePath;
use super::{Attributes, FileSource, InodeId, SourceFile, SourceId, Tree, TreeKind, check_name};
use crate::error::{Error, Result};
use crate::format::PATH_MAX;
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
        let root = root.as_ref();
        let named = |e: Error| e.with_path(root);
        // A link to a directory given by name is meant to be followed, as in `ls dir/`.
        let metadata = std::fs::metadata(root).map_err(|e| named(Error::io("read the tree", e)))?;
        if !metadata.is_dir() {
            return Err(named(Error::input(
                "the tree to be packed is not a directory",
            )));
        }
        let lister = Lister { root, rules };
        let details = lister.details(Path::new(""), root, &metadata);
        let details = details.map_err(named)?;
        Assembly::new(rules, details)?.run(root, lister.list_all())
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

/// Bytes of a name that Linux takes, with a slash before it.
const NAME_MAX: usize = 256;

/// A directory by a path to which any name can be appended for a system call.
///
/// Where its own path is too long for that, the directory was opened step by step, and this is the path of the
/// descriptor in `/proc`.
struct ShortPath {
    path: PathBuf,
    _open: Option<OwnedFd>,
}

impl ShortPath {
    fn of(directory: &Path) -> io::Result<Self> {
        let is_short = directory.as_os_str().len() + NAME_MAX < PATH_MAX;
        if is_short {
            let path = directory.to_owned();
            return Ok(Self { path, _open: None });
        }
        let open = open_in_steps(directory)?;
        Ok(Self {
            path: format!("/proc/self/fd/{}", open.as_raw_fd()).into(),
            _open: Some(open),
        })
    }
}

/// Opens a directory with a path of any length.
fn open_in_steps(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut open: Option<OwnedFd> = None;
    let mut step = PathBuf::new();
    let mut names = directory.components().peekable();
    while let Some(name) = names.next() {
        step.push(name);
        let next = names.peek().map(|next| next.as_os_str().len());
        if next.is_none_or(|next| step.as_os_str().len() + 1 + next >= PATH_MAX) {
            let above = open.as_ref().map_or(CWD, |open| open.as_fd());
            open = Some(openat(above, &step, flags, Mode::empty())?);
            step.clear();
        }
    }
    open.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Lists directories, each on its own, on any thread.
struct Lister<'a> {
    root: &'a Path,
    rules: &'a TreeRules,
}

/// Directories that are to be listed, by any thread in any order.
struct Queue {
    state: Mutex<QueueState>,
    /// Told when there is a directory for another thread, or nothing ever again.
    changed: Condvar,
}

/// 1. `listings` has an element for each directory that was found; it is empty until the directory
///    was listed.
/// 2. `todo` has the numbers of listings and the paths of those that no thread took.
/// 3. `busy` threads took one and are not done with it.
struct QueueState {
    todo: Vec<(usize, TreePath)>,
    listings: Vec<Listing>,
    busy: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A directory to be listed, or none when all are.
    fn next(&self) -> Option<(usize, TreePath)> {
        let mut state = self.lock();
        while state.todo.is_empty() && state.busy > 0 {
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        let next = state.todo.pop();
        state.busy += usize::from(next.is_some());
        next
    }

    /// Takes in the listing of a directory, and has those in it listed.
    fn add(&self, number: usize, mut listing: Listing) {
        let mut state = self.lock();
        for found in &mut listing.entries {
            if let Ok(details) = &mut found.details
                && let Kind::Directory(number) = &mut details.kind
            {
                let new = state.listings.len();
                *number = Some(new);
                state.listings.push(Listing::default());
                state.todo.push((new, found.path.clone()));
                self.changed.notify_one();
            }
        }
        state.listings[number] = listing;
    }
}

/// A thread that lists a directory. It counts as done even if it panics, so that no other thread
/// waits for it.
struct Busy<'a>(&'a Queue);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.busy -= 1;
        if state.busy == 0 && state.todo.is_empty() {
            self.0.changed.notify_all();
        }
    }
}

/// What a directory holds, in the order of names.
#[derive(Default)]
struct Listing {
    entries: Vec<Found>,
    /// Why there are no more.
    fault: Option<Error>,
}

/// What a directory has a name for, as far as that does not depend on other directories.
struct Found {
    name: OsString,
    path: TreePath,
    stamp: Stamp,
    /// Whether it may have other names. Only the first one counts.
    may_be_linked: bool,
    details: Result<Details>,
}

/// What becomes of an inode at its first name.
struct Details {
    kind: Kind,
    attributes: Attributes,
    /// Its time before it was made one that SquashFS stores.
    mtime: i64,
    xattrs: Vec<Xattr>,
    lost: Vec<Lost>,
}

/// The name of an attribute that SquashFS cannot store, and why.
type Lost = (OsString, Error);

enum Kind {
    /// A directory with this number among the listings, once it has one.
    Directory(Option<usize>),
    File,
    Other(TreeKind),
}

impl Lister<'_> {
    /// Lists the whole tree: the listing of the root is the first.
    ///
    /// What cannot be listed is in the listings, because what is first at fault is known only when
    /// they are put together.
    fn list_all(&self) -> Vec<Listing> {
        let queue = Queue {
            state: Mutex::new(QueueState {
                todo: vec![(0, TreePath::default())],
                listings: vec![Listing::default()],
                busy: 0,
            }),
            changed: Condvar::new(),
        };
        thread::scope(|scope| {
            for _ in 1..self.rules.listing_threads() {
                scope.spawn(|| self.work_on(&queue));
            }
            self.work_on(&queue);
        });
        let state = queue.state.into_inner();
        state.unwrap_or_else(PoisonError::into_inner).listings
    }

    fn work_on(&self, queue: &Queue) {
        while let Some((number, path)) = queue.next() {
            let busy = Busy(queue);
            let listing = self.list(&path);
            queue.add(number, listing);
            drop(busy);
        }
    }

    fn list(&self, path: &TreePath) -> Listing {
        let mut entries = Vec::new();
        let fault = self.list_to(path, &mut entries).err();
        Listing { entries, fault }
    }

    fn list_to(&self, tree_path: &TreePath, entries: &mut Vec<Found>) -> Result<()> {
        let mut path = tree_path.to_path();
        let full = self.root.join(&path);
        let failed = |e| Error::io("list the directory", e).with_path(&full);
        let short = ShortPath::of(&full).map_err(failed)?;
        let listing = std::fs::read_dir(&short.path).map_err(failed)?;
        // Inodes get their numbers in the order of names, whatever order the filesystem has.
        let names = listing.map(|entry| entry.map(|entry| entry.file_name()));
        let names = names.collect::<io::Result<Vec<OsString>>>();
        let mut names = names.map_err(failed)?;
        names.sort_unstable();
        let depth = path.components().count() + 1;
        for name in names {
            path.push(&name);
            let short = short.path.join(&name);
            let named = |e: Error| e.with_path(self.root.join(&path));
            if let Some(metadata) = self.look(&path, &short).map_err(named)? {
                check_name(&name)
                    .and_then(|()| check_depth(depth))
                    .map_err(named)?;
                entries.push(Found {
                    path: tree_path.join(name.clone()),
                    name,
                    stamp: Stamp::of(&metadata),
                    may_be_linked: metadata.nlink() > 1 && !metadata.is_dir(),
                    details: self.details(&path, &short, &metadata).map_err(named),
                });
            }
            path.pop();
        }
        Ok(())
    }

    /// What is at `path`, where `short` leads to; none if a rule leaves it out.
    fn look(&self, path: &Path, short: &Path) -> Result<Option<Metadata>> {
        let metadata = std::fs::symlink_metadata(short)
            .map_err(|e| Error::io("read the metadata of the file", e))?;
        let is_kept = !self.rules.excludes(path, metadata.is_dir());
        Ok(is_kept.then_some(metadata))
    }

    fn details(&self, path: &Path, short: &Path, metadata: &Metadata) -> Result<Details> {
        let kind = kind(short, metadata)?;
        let attributes = Attributes {
            // The type of the file is in the higher bits.
            permissions: (metadata.mode() & 0o7777) as u16,
            uid: metadata.uid(),
            gid: metadata.gid(),
            mtime: nearest_time(metadata.mtime()),
        };
        let (xattrs, lost) = self.xattrs(short)?;
        Ok(Details {
            kind,
            attributes: self.rules.apply(path, metadata.is_dir(), attributes),
            mtime: metadata.mtime(),
            xattrs,
            lost,
        })
    }

    /// The attributes that are kept, and those that SquashFS cannot store.
    fn xattrs(&self, short: &Path) -> Result<(Vec<Xattr>, Vec<Lost>)> {
        let (mut xattrs, mut lost) = (Vec::new(), Vec::new());
        if !self.rules.wants_xattrs() {
            return Ok((xattrs, lost));
        }
        for name in xattr_names(short)? {
            match self.rules.keeps_xattr(&name) {
                Ok(true) => {
                    if let Some(value) = xattr_value(short, &name)? {
                        xattrs.push(Xattr { name, value });
                    }
                }
                Ok(false) => {}
                Err(e) => lost.push((name, e)),
            }
        }
        Ok((xattrs, lost))
    }
}

fn kind(short: &Path, metadata: &Metadata) -> Result<Kind> {
    let file_type = metadata.file_type();
    Ok(Kind::Other(if file_type.is_dir() {
        return Ok(Kind::Directory(None));
    } else if file_type.is_file() {
        return Ok(Kind::File);
    } else if file_type.is_symlink() {
        let target =
            std::fs::read_link(short).map_err(|e| Error::io("read the symbolic link", e))?;
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
    }))
}

/// Puts a tree together from listings, in an order that does not depend on who made them.
struct Assembly<'a> {
    rules: &'a TreeRules,
    builder: TreeBuilder,
    files: Vec<(TreePath, Stamp)>,
    /// Inodes with several names, by device and number.
    linked: HashMap<(u64, u64), InodeId>,
    losses: Losses,
}

impl<'a> Assembly<'a> {
    fn new(rules: &'a TreeRules, root: Details) -> Result<Self> {
        let mut losses = Losses::default();
        note_losses(&mut losses, &TreePath::default(), root.mtime, root.lost);
        Ok(Self {
            rules,
            builder: TreeBuilder::with_root(root.attributes, root.xattrs)?,
            files: Vec::new(),
            linked: HashMap::new(),
            losses,
        })
    }

    fn run(mut self, root: &Path, mut listings: Vec<Listing>) -> Result<Tree> {
        let mut open = vec![(0, 0)];
        while let Some((listing, directory)) = open.pop() {
            // Each is needed once, and its memory again.
            let Listing { entries, fault } = std::mem::take(&mut listings[listing]);
            for found in entries {
                let name = found.name.as_bytes().to_owned();
                let (inode, listing) = self.add(found, root)?;
                self.builder.link(directory, &name, inode);
                if let Some(listing) = listing {
                    open.push((listing, inode));
                }
            }
            if let Some(e) = fault {
                return Err(e);
            }
        }
        self.builder.warnings.extend(self.losses.warnings());
        let source = DirSource {
            root: root.to_owned(),
            files: self.files,
        };
        Ok(self.builder.finish_with(Box::new(source)))
    }

    /// Adds what was found, if not by another name; and says which listing it has.
    fn add(&mut self, found: Found, root: &Path) -> Result<(InodeId, Option<usize>)> {
        let key = (found.stamp.device, found.stamp.inode);
        if let Some(known) = self.linked.get(&key).filter(|_| found.may_be_linked) {
            // A rule that matches any of its names applies to the file.
            let attributes = self.builder.attributes(*known);
            *attributes = self.rules.apply(&found.path.to_path(), false, *attributes);
            return Ok((*known, None));
        }
        let details = found.details?;
        let at_fault = |e: Error, path: &TreePath| e.with_path(root.join(path.to_path()));
        note_losses(&mut self.losses, &found.path, details.mtime, details.lost);
        let (kind, listing) = match details.kind {
            Kind::Directory(listing) => (TreeKind::Directory(Vec::new()), listing),
            Kind::File => {
                let source = SourceId::try_from(self.files.len()).map_err(|_| {
                    let files = self.files.len() as u64;
                    let e = Error::limit("the number of files", files, u32::MAX.into());
                    at_fault(e, &found.path)
                })?;
                let len = found.stamp.len;
                (TreeKind::File { len, source }, None)
            }
            Kind::Other(kind) => (kind, None),
        };
        let is_file = matches!(kind, TreeKind::File { .. });
        let inode = self
            .builder
            .add_inode(details.attributes, details.xattrs, kind)
            .map_err(|e| at_fault(e, &found.path))?;
        if is_file {
            self.files.push((found.path, found.stamp));
        }
        if found.may_be_linked {
            self.linked.insert(key, inode);
        }
        Ok((inode, listing))
    }
}

fn note_losses(losses: &mut Losses, path: &TreePath, mtime: i64, xattrs: Vec<Lost>) {
    losses.time(mtime);
    for (name, e) in xattrs {
        losses.xattr(&path.to_path(), &name, e);
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
    files: Vec<(TreePath, Stamp)>,
}

impl FileSource for DirSource {
    fn open(&self, file: SourceId) -> Result<Box<dyn SourceFile + Send + '_>> {
        let (path, stamp) = &self.files[file as usize];
        let path = self.root.join(path.to_path());
        let open = || {
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let open = |directory: &Path, name: &OsStr| {
                File::options()
                    .read(true)
                    .custom_flags(flags.bits().cast_signed())
                    .open(ShortPath::of(directory)?.path.join(name))
            };
            let parts = path.parent().zip(path.file_name());
            let (directory, name) = parts.unwrap_or((&path, OsStr::new("")));
            let file = open(directory, name).map_err(|e| Error::io("open the file", e))?;
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
        ByteSource::read_exact_bytes_at(&self.file, offset, buf).map_err(|e| {
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
    use std::io::Cursor;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{Extractor, Image, ImageWriter, OpenOptions};

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

    #[test]
    fn a_linked_file_has_the_same_first_name_at_any_number_of_threads() {
        let dir = tempfile::tempdir().unwrap();
        for (name, linked) in [("a", "z/deep/f"), ("k", "a/f"), ("z/deep", "a/f")] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
            let (name, linked) = (dir.path().join(name).join("f"), dir.path().join(linked));
            if linked.exists() {
                std::fs::hard_link(linked, name).unwrap();
            } else {
                std::fs::write(name, "x").unwrap();
            }
        }
        for threads in [1, 2, 7] {
            let rules = TreeRules::default()
                .owner("/a/", Some(1), None)
                .and_then(|rules| rules.owner("/k/", Some(2), None))
                .and_then(|rules| rules.owner("/z/", Some(3), None))
                .unwrap()
                .threads(threads);
            let tree = Tree::from_directory(dir.path(), &rules).unwrap();
            let files = tree.files();
            assert_eq!(files.len(), 1);
            // What is said of any name counts, that of the one that is found last most.
            assert_eq!(tree.inodes[files[0].1].attributes.uid, 1, "{threads}");
            let rules = TreeRules::default()
                .owner("/k/", Some(2), None)
                .unwrap()
                .threads(threads);
            let tree = Tree::from_directory(dir.path(), &rules).unwrap();
            assert_eq!(tree.inodes[files[0].1].attributes.uid, 2, "{threads}");
        }
    }

    #[test]
    fn the_same_fault_is_told_at_any_number_of_threads() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(dir.path(), 0o755);
        for top in ["a", "k", "z"] {
            std::fs::create_dir_all(dir.path().join(top).join("locked")).unwrap();
            mode(&dir.path().join(top).join("locked"), 0);
        }
        let expected = format!(
            "{}: cannot list the directory",
            dir.path().join("z/locked").display()
        );
        thread::scope(|scope| {
            scope.spawn(|| {
                // Of this thread, and of those that it starts: root may list everything.
                let nobody = rustix::fs::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                for threads in [1, 2, 7] {
                    let rules = TreeRules::default().threads(threads);
                    let e = Tree::from_directory(dir.path(), &rules).unwrap_err();
                    assert_eq!(e.to_string(), expected, "{threads}");
                }
            });
        });
    }

    /// Makes directories of this name below each other in `root`, and returns the last.
    fn make_chain(root: &Path, name: &str, count: usize) -> OwnedFd {
        let mut at = OwnedFd::from(File::open(root).unwrap());
        for _ in 0..count {
            rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
            at = openat(
                &at,
                name,
                OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .unwrap();
        }
        at
    }

    #[test]
    fn directories_deeper_than_a_path_may_be_long_are_packed() {
        let dir = tempfile::tempdir().unwrap();
        let name = "n".repeat(255);
        let deep = make_chain(dir.path(), &name, 20);
        let file = openat(&deep, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        rustix::io::write(&file, b"deep").unwrap();
        rustix::fs::fsetxattr(&file, "user.deep", b"x", rustix::fs::XattrFlags::empty()).unwrap();
        rustix::fs::symlinkat("target", &deep, "link").unwrap();
        rustix::fs::linkat(&deep, "file", &deep, "same", rustix::fs::AtFlags::empty()).unwrap();
        let above: PathBuf = std::iter::repeat_n(name.as_str(), 20).collect();
        for threads in [1, 3] {
            let rules = TreeRules::default().threads(threads);
            let tree = Tree::from_directory(dir.path(), &rules).unwrap();
            let files = tree.files();
            let [(path, inode)] = files.as_slice() else {
                panic!("{} files", files.len())
            };
            assert_eq!((path, tree.inode_count()), (&above.join("file"), 23));
            let TreeKind::File { source, len: 4 } = tree.inodes[*inode].kind else {
                panic!("another file")
            };
            let mut read = [0; 4];
            let mut opened = tree.source.open(source).unwrap();
            opened.read_exact_at(0, &mut read).unwrap();
            assert_eq!(&read, b"deep");
            let set = tree.inodes[*inode].xattrs.unwrap() as usize;
            assert_eq!(tree.xattr_sets[set][0].value(), b"x");
            let is_link = |inode: &crate::tree::TreeInode| matches!(&inode.kind, TreeKind::Symlink(target) if **target == *b"target");
            assert!(tree.inodes.iter().any(is_link));
        }
        // What was extracted is the same tree.
        let packed = |root: &Path| {
            let tree = Tree::from_directory(root, &TreeRules::default()).unwrap();
            let mut bytes = Vec::new();
            let writer = ImageWriter::new().time(0);
            writer.write_to(&tree, Cursor::new(&mut bytes)).unwrap();
            bytes
        };
        let bytes = packed(dir.path());
        let image = Image::from_source(bytes.clone(), &OpenOptions::new()).unwrap();
        let extracted = tempfile::tempdir().unwrap();
        Extractor::new().extract(&image, extracted.path()).unwrap();
        assert!(packed(extracted.path()) == bytes);
        rustix::fs::unlinkat(&deep, "file", rustix::fs::AtFlags::empty()).unwrap();
        let rules = TreeRules::default().exclude(&["same".into()]).unwrap();
        let tree = Tree::from_directory(dir.path(), &rules).unwrap();
        assert_eq!(tree.inode_count(), 22);
    }

    #[test]
    fn directories_deeper_than_readers_go_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        // A name less than what is refused.
        let deep = make_chain(root, "d", 4095);
        let list = || Tree::from_directory(root, &TreeRules::default().threads(2));
        assert_eq!(list().unwrap().inode_count(), 4096);
        rustix::fs::mkdirat(&deep, "d", Mode::RWXU).unwrap();
        let text = list().unwrap_err().to_string();
        let last: PathBuf = std::iter::repeat_n("d", 4096).collect();
        let expected = "the depth of directories needs 4097, which passes the limit of 4096";
        assert_eq!(text, format!("{}: {expected}", root.join(last).display()));
        // What removes the temporary directory would need a descriptor for each.
        while root.join("d/d").exists() {
            std::fs::rename(root.join("d/d"), root.join("next")).unwrap();
            std::fs::remove_dir(root.join("d")).unwrap();
            std::fs::rename(root.join("next"), root.join("d")).unwrap();
        }
    }
}
