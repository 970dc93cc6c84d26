//! A tree to be packed from a directory.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use brisk_io::ByteSource;
use rustix::fs::{OFlags, SeekFrom};

use super::builder::TreeBuilder;
use super::losses::{Losses, nearest_time};
use super::rules::TreeRules;
use super::{Attributes, FileSource, InodeId, SourceFile, SourceId, Tree, TreeKind, check_name};
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
        let details = lister.details(Path::new(""), root, &metadata)?;
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
    todo: Vec<(usize, PathBuf)>,
    listings: Vec<Listing>,
    busy: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A directory to be listed, or none when all are.
    fn next(&self) -> Option<(usize, PathBuf)> {
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
    /// From the root of the tree.
    path: PathBuf,
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
                todo: vec![(0, PathBuf::new())],
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

    fn list(&self, path: &Path) -> Listing {
        let mut entries = Vec::new();
        let fault = self.list_to(path, &mut entries).err();
        Listing { entries, fault }
    }

    fn list_to(&self, path: &Path, entries: &mut Vec<Found>) -> Result<()> {
        let full = self.root.join(path);
        let listing = std::fs::read_dir(&full)
            .map_err(|e| Error::io("list the directory", e).with_path(&full))?;
        // Inodes get their numbers in the order of names, whatever order the filesystem has.
        let names = listing.map(|entry| entry.map(|entry| entry.file_name()));
        let mut names: Vec<OsString> = names
            .collect::<io::Result<_>>()
            .map_err(|e| Error::io("list the directory", e).with_path(&full))?;
        names.sort_unstable();
        for name in names {
            let full = full.join(&name);
            let found = self.find(path.join(&name), &full, name);
            entries.extend(found.map_err(|e| e.with_path(&full))?);
        }
        Ok(())
    }

    /// What is at `path`, or none if a rule leaves it out.
    fn find(&self, path: PathBuf, full: &Path, name: OsString) -> Result<Option<Found>> {
        let metadata = std::fs::symlink_metadata(full)
            .map_err(|e| Error::io("read the metadata of the file", e))?;
        let is_dir = metadata.is_dir();
        if self.rules.excludes(&path, is_dir) {
            return Ok(None);
        }
        check_name(&name)?;
        let details = self
            .details(&path, full, &metadata)
            .map_err(|e| e.with_path(full));
        Ok(Some(Found {
            name,
            stamp: Stamp::of(&metadata),
            may_be_linked: metadata.nlink() > 1 && !is_dir,
            details,
            path,
        }))
    }

    fn details(&self, path: &Path, full: &Path, metadata: &Metadata) -> Result<Details> {
        let kind = kind(full, metadata)?;
        let attributes = Attributes {
            // The type of the file is in the higher bits.
            permissions: (metadata.mode() & 0o7777) as u16,
            uid: metadata.uid(),
            gid: metadata.gid(),
            mtime: nearest_time(metadata.mtime()),
        };
        let (xattrs, lost) = self.xattrs(full)?;
        Ok(Details {
            kind,
            attributes: self.rules.apply(path, metadata.is_dir(), attributes),
            mtime: metadata.mtime(),
            xattrs,
            lost,
        })
    }

    /// The attributes that are kept, and those that SquashFS cannot store.
    fn xattrs(&self, full: &Path) -> Result<(Vec<Xattr>, Vec<Lost>)> {
        let (mut xattrs, mut lost) = (Vec::new(), Vec::new());
        if !self.rules.wants_xattrs() {
            return Ok((xattrs, lost));
        }
        for name in xattr_names(full)? {
            match self.rules.keeps_xattr(&name) {
                Ok(true) => {
                    if let Some(value) = xattr_value(full, &name)? {
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

fn kind(full: &Path, metadata: &Metadata) -> Result<Kind> {
    let file_type = metadata.file_type();
    Ok(Kind::Other(if file_type.is_dir() {
        return Ok(Kind::Directory(None));
    } else if file_type.is_file() {
        return Ok(Kind::File);
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
    }))
}

/// Puts a tree together from listings, in an order that does not depend on who made them.
struct Assembly<'a> {
    rules: &'a TreeRules,
    builder: TreeBuilder,
    files: Vec<(PathBuf, Stamp)>,
    /// Inodes with several names, by device and number.
    linked: HashMap<(u64, u64), InodeId>,
    losses: Losses,
}

impl<'a> Assembly<'a> {
    fn new(rules: &'a TreeRules, root: Details) -> Result<Self> {
        let mut losses = Losses::default();
        note_losses(&mut losses, Path::new(""), root.mtime, root.lost);
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
            *attributes = self.rules.apply(&found.path, false, *attributes);
            return Ok((*known, None));
        }
        let details = found.details?;
        let at_fault = |e: Error, path: &Path| e.with_path(root.join(path));
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

fn note_losses(losses: &mut Losses, path: &Path, mtime: i64, xattrs: Vec<Lost>) {
    losses.time(mtime);
    for (name, e) in xattrs {
        losses.xattr(path, &name, e);
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
    fn open(&self, file: SourceId) -> Result<Box<dyn SourceFile + Send + '_>> {
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
        // Deeper than a path may be long.
        let long = "n".repeat(250);
        for top in ["a", "k", "z"] {
            let mut at = File::open(dir.path()).unwrap();
            for name in std::iter::once(top).chain(std::iter::repeat_n(long.as_str(), 17)) {
                rustix::fs::mkdirat(&at, name, rustix::fs::Mode::RWXU).unwrap();
                let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
                at = rustix::fs::openat(&at, name, flags, rustix::fs::Mode::empty())
                    .unwrap()
                    .into();
            }
        }
        for threads in [1, 2, 7] {
            let rules = TreeRules::default().threads(threads);
            let e = Tree::from_directory(dir.path(), &rules).unwrap_err();
            let text = e.to_string();
            let (path, what) = text.split_once(": ").unwrap();
            assert!(Path::new(path).starts_with(dir.path().join("z")));
            assert_eq!(what, "cannot read the metadata of the file", "{threads}");
        }
    }
}
