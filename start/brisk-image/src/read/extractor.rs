//! Extracting a tree into a directory.
//!
//! Nothing is ever written outside the target. Every name is made in a directory that was opened
//! from the target without following symbolic links; symbolic links are
//! made after all files; and until everything is in place, the directories are open to the
//! extracting user alone.

#[cfg(feature = "patterns")]
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::File as StdFile;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

#[cfg(feature = "patterns")]
use ignore::gitignore::Gitignore;
use rustix::fs::{
    AtFlags, CWD, Dev, FileType as RawType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps,
    Uid, XattrFlags, chmodat, chownat, fchmod, fchown, fsetxattr, futimens, linkat, lsetxattr,
    mkdirat, mknodat, openat, openat2, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::contents_budget::ContentsBudget;
use super::file_reader::FileReader;
use super::image::Image;
use super::inode_reader::{Device, File, Inode, InodeKind, InodeRef};
use crate::error::{Error, Result};
use crate::ordered;
#[cfg(feature = "patterns")]
use crate::patterns::patterns;
use crate::work::{Work, set_work};

/// Blocks of one file that one thread writes in one go; a longer file is shared among threads.
const SEGMENT_BLOCKS: usize = 32;

/// The attribute that gives a program capabilities.
const CAPABILITIES: &str = "security.capability";

/// Writes the tree of an image into a directory.
#[derive(Debug, Clone)]
pub struct Extractor {
    work: Work,
    #[cfg(feature = "patterns")]
    select: Option<Selection>,
    only: Option<BTreeSet<PathBuf>>,
    owners: bool,
    xattrs: bool,
    privileges: bool,
    devices: bool,
    replaces: bool,
}

/// What was extracted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ExtractSummary {
    /// Extracted files; a hard-linked file counts once.
    pub files: u64,
    /// Further names of these files.
    pub hard_links: u64,
    /// Directories, with the target itself.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub specials: u64,
    /// Size of the files.
    pub bytes: u64,
    /// What could not be done, each as a sentence for a person.
    pub warnings: Vec<String>,
    /// The lines of [`Extractor::select`] that nothing in the image matches.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub unmatched: Vec<String>,
}

/// What to extract.
#[cfg(feature = "patterns")]
#[derive(Debug, Clone)]
struct Selection {
    all: Gitignore,
    /// Each line that names something, by itself.
    each: Vec<(String, Gitignore)>,
}

#[cfg(feature = "patterns")]
impl Selection {
    fn of(lines: &[String]) -> Result<Self> {
        let all = patterns(lines.iter().map(String::as_str))?;
        let each = lines
            .iter()
            .map(|line| Ok((line.clone(), patterns([line.as_str()])?)));
        let names = |(_, set): &(_, Gitignore)| set.num_ignores() > 0;
        let each = each.collect::<Result<Vec<_>>>()?;
        let each = each.into_iter().filter(names).collect();
        Ok(Self { all, each })
    }
}

impl Default for Extractor {
    fn default() -> Self {
        Self {
            work: Work::default(),
            #[cfg(feature = "patterns")]
            select: None,
            only: None,
            owners: rustix::process::geteuid().is_root(),
            xattrs: true,
            privileges: true,
            devices: true,
            replaces: false,
        }
    }
}

impl Extractor {
    /// Everything, on all processors; owners if the caller is root.
    pub fn new() -> Self {
        Self::default()
    }

    set_work!();

    /// Extracts only what matches one of `lines`, which have the syntax of `.gitignore`, and the
    /// directories on the way there.
    ///
    /// The feature `patterns` brings this.
    #[cfg(feature = "patterns")]
    pub fn select(mut self, lines: &[String]) -> Result<Self> {
        self.select = match lines {
            [] => None,
            _ => Some(Selection::of(lines)?),
        };
        Ok(self)
    }

    /// Extracts only what is at and below these paths from the root of the tree, and the directories on the way there.
    #[must_use]
    pub fn only(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.only = Some(paths.into_iter().collect());
        self
    }

    fn is_asked_for(&self, path: &Path) -> bool {
        let has = |paths: &BTreeSet<PathBuf>| path.ancestors().any(|above| paths.contains(above));
        self.only.as_ref().is_none_or(has)
    }

    /// Whether files get the users and groups of the image, which only root can give them.
    #[must_use]
    pub fn owners(mut self, yes: bool) -> Self {
        self.owners = yes;
        self
    }

    /// Whether extended attributes are written.
    #[must_use]
    pub fn xattrs(mut self, yes: bool) -> Self {
        self.xattrs = yes;
        self
    }

    /// Whether programs may get the rights of their owners, groups and capabilities: the setuid and setgid bits, and
    /// `security.capability`. Files whose owners are not restored never get them, because they would give the rights
    /// of the extracting user.
    #[must_use]
    pub fn setuid(mut self, yes: bool) -> Self {
        self.privileges = yes;
        self
    }

    /// Whether block and character devices are made, which only root can do.
    #[must_use]
    pub fn devices(mut self, yes: bool) -> Self {
        self.devices = yes;
        self
    }

    /// Whether the target may hold files. The extractor replaces those that have a name of the tree, whole and never through
    /// a link, and keeps all others. A directory never gives way to anything else, nor anything else to a directory.
    #[must_use]
    pub fn replace(mut self, yes: bool) -> Self {
        self.replaces = yes;
        self
    }

    /// Extracts `image` into the directory `target`. The directory must be empty, but for [`Extractor::replace`]; if it is not
    /// there, the extractor makes it.
    ///
    /// After an error the target holds a part of the tree.
    ///
    /// # Errors
    ///
    /// Those of reading, with the path of the image, `Limit` before anything is written if the tree has
    /// more names, or its files more contents, than the image's [`Limits`](crate::Limits) allow, `Io` with the path of the file that the system
    /// refused, and `Cancelled`.
    pub fn extract(&self, image: &Image, target: impl AsRef<Path>) -> Result<ExtractSummary> {
        let target = target.as_ref();
        let root = open_target(target, self.replaces)?;
        let mut listing = Listing::default();
        #[cfg(feature = "patterns")]
        let unmatched: RefCell<Vec<_>> =
            RefCell::new(self.select.iter().flat_map(|s| &s.each).collect());
        #[cfg(feature = "patterns")]
        let selects = |path: &Path, is_directory| {
            let matches = |set: &Gitignore| {
                set.matched_path_or_any_parents(path, is_directory)
                    .is_ignore()
            };
            if !self.is_asked_for(path) {
                return false;
            }
            unmatched.borrow_mut().retain(|(_, set)| !matches(set));
            self.select
                .as_ref()
                .is_none_or(|selection| matches(&selection.all))
        };
        #[cfg(not(feature = "patterns"))]
        let selects = |path: &Path, _| self.is_asked_for(path);
        let contents = ContentsBudget::new(image);
        listing.collect(image, &contents, selects)?;
        let first_names = listing.first_names();
        close(&root)
            .map_err(|e| Error::io("close the target directory to others", e).with_path(target))?;
        let work = Extraction {
            image,
            target,
            new_file: NewFile::probe(&root),
            root,
            options: self,
            dirs: &listing.directories,
            contents,
            lost: Mutex::default(),
        };
        let mut summary = ExtractSummary::default();
        #[cfg(feature = "patterns")]
        summary
            .unmatched
            .extend(unmatched.take().into_iter().map(|(line, _)| line.clone()));
        work.make_directories()?;
        work.write_files(&mut listing.files)?;
        for file in &listing.files {
            summary.files += 1;
            summary.bytes += file.inode.len();
        }
        let mut last = LastDirectory::default();
        for special in &listing.specials {
            match work.make_special(special, &mut last)? {
                Made::Symlink => summary.symlinks += 1,
                Made::Special => summary.specials += 1,
                Made::Nothing => {}
            }
        }
        for (link, first) in listing.links.iter().zip(&first_names) {
            summary.hard_links += u64::from(work.link(link, first)?);
        }
        work.finish_directories()?;
        summary.directories = listing.directories.len() as u64;
        summary.warnings = work.warnings();
        Ok(summary)
    }
}

fn open_target(target: &Path, may_hold_files: bool) -> Result<OwnedFd> {
    let open = || {
        match std::fs::create_dir(target) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("make the target directory", e));
            }
            _ => {}
        }
        let mut entries =
            std::fs::read_dir(target).map_err(|e| Error::io("list the target directory", e))?;
        if !may_hold_files && entries.next().is_some() {
            return Err(Error::input(
                "the target directory is not empty; name a new one",
            ));
        }
        StdFile::open(target).map_err(|e| Error::io("open the target directory", e))
    };
    open()
        .map(OwnedFd::from)
        .map_err(|e: Error| e.with_path(target))
}

/// Closes a directory that was there to others, as a new one is.
fn take_over(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    fchmod(openat(parent, name, flags, Mode::empty())?, Mode::RWXU)
}

/// Closes the target to others, as the directories in it are until they have the image's permissions. One that
/// is another's stays open to that one: nothing follows a name that could have been replaced.
fn close(target: &OwnedFd) -> io::Result<()> {
    // New files may have the group of the target.
    let group = Mode::from_raw_mode(rustix::fs::fstat(target)?.st_mode) & Mode::SGID;
    match fchmod(target, Mode::RWXU | group) {
        Err(Errno::PERM) => Ok(()),
        closed => Ok(closed?),
    }
}

/// What a new file in the target has without being told.
#[derive(Clone, Copy)]
struct NewFile {
    /// The permissions that the umask, or a default access list, leaves.
    mode: Mode,
    owner: Option<(Uid, Gid)>,
}

impl NewFile {
    /// Looks at a file without a name; where there is no such thing, nothing is taken for granted.
    fn probe(root: &OwnedFd) -> Self {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let stat = openat(root, ".", flags, Mode::from_raw_mode(0o777)).and_then(rustix::fs::fstat);
        match stat {
            Ok(stat) => Self {
                mode: Mode::from_raw_mode(stat.st_mode & 0o777),
                owner: Some((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid))),
            },
            Err(_) => Self {
                mode: Mode::empty(),
                owner: None,
            },
        }
    }
}

/// A directory to be made; the target is the first, and is in itself.
///
/// No path is kept: those of directories in each other have bytes with the square of the depth.
struct DirectoryEntry {
    /// Its index in the list of directories, which is lower than that of this one.
    parent: usize,
    name: OsString,
    inode: Inode,
}

/// Something in a directory, which is named by its index in the list of those.
struct NamedEntry {
    directory: usize,
    name: OsString,
    inode: Inode,
}

/// A further name of what has one.
struct LinkEntry {
    directory: usize,
    name: OsString,
    /// Directory and name of the first.
    first: FirstName,
}

/// Where the first name of an inode is.
#[derive(Clone, Copy)]
enum FirstName {
    /// In the list of files, before that is sorted.
    File(usize),
    Special(usize),
}

/// What is to be made.
#[derive(Default)]
struct Listing {
    directories: Vec<DirectoryEntry>,
    files: Vec<NamedEntry>,
    specials: Vec<NamedEntry>,
    links: Vec<LinkEntry>,
}

/// A directory that the walk is in.
struct OpenDirectory {
    inode: Inode,
    name: OsString,
    /// Where in the list it is, once something in it is wanted.
    index: Option<usize>,
}

impl Listing {
    fn collect(
        &mut self,
        image: &Image,
        contents: &ContentsBudget,
        selects: impl Fn(&Path, bool) -> bool,
    ) -> Result<()> {
        let mut open: Vec<OpenDirectory> = Vec::new();
        let mut first: HashMap<InodeRef, FirstName> = HashMap::new();
        for entry in image.walk()? {
            let entry = entry?;
            let depth = entry.depth();
            let (path, inode) = entry.into_parts();
            open.truncate(depth);
            let wanted = path.as_os_str().is_empty() || selects(&path, inode.is_dir());
            let name = path.file_name().unwrap_or_default().to_owned();
            if inode.is_dir() {
                open.push(OpenDirectory {
                    inode,
                    name,
                    index: None,
                });
                if wanted {
                    self.want_directory(&mut open);
                }
                continue;
            }
            if !wanted {
                continue;
            }
            let directory = self.want_directory(&mut open);
            // Whatever the image says of their number: each inode is held once.
            if let Some(&first) = first.get(&inode.reference()) {
                self.links.push(LinkEntry {
                    directory,
                    name,
                    first,
                });
                continue;
            }
            let (list, index): (_, fn(usize) -> FirstName) = match inode.kind() {
                InodeKind::File(file) => {
                    contents.add_file(file)?;
                    (&mut self.files, FirstName::File)
                }
                _ => (&mut self.specials, FirstName::Special),
            };
            first.insert(inode.reference(), index(list.len()));
            list.push(NamedEntry {
                directory,
                name,
                inode,
            });
        }
        Ok(())
    }

    /// For each link, directory and name of the first name of its inode.
    fn first_names(&self) -> Vec<(usize, OsString)> {
        let first = |link: &LinkEntry| {
            let entry = match link.first {
                FirstName::File(index) => &self.files[index],
                FirstName::Special(index) => &self.specials[index],
            };
            (entry.directory, entry.name.clone())
        };
        self.links.iter().map(first).collect()
    }

    /// The index in the list of the innermost directory of `open`. It and those above it are added.
    fn want_directory(&mut self, open: &mut [OpenDirectory]) -> usize {
        let mut parent = 0;
        for directory in open {
            parent = *directory.index.get_or_insert_with(|| {
                self.directories.push(DirectoryEntry {
                    parent,
                    name: directory.name.clone(),
                    inode: directory.inode.clone(),
                });
                self.directories.len() - 1
            });
        }
        parent
    }
}

/// The path in the image of directory `index` of a list.
fn path_of(directories: &[DirectoryEntry], index: usize) -> PathBuf {
    let mut names = Vec::new();
    let mut at = index;
    // The first is the target, and has no name.
    while at > 0 {
        names.push(&directories[at].name);
        at = directories[at].parent;
    }
    names.into_iter().rev().collect()
}

enum Made {
    Symlink,
    Special,
    Nothing,
}

/// What all threads share.
struct Extraction<'a> {
    image: &'a Image,
    target: &'a Path,
    root: OwnedFd,
    options: &'a Extractor,
    dirs: &'a [DirectoryEntry],
    contents: ContentsBudget,
    new_file: NewFile,
    /// What the system refused although the tree is whole without: how often, and the first path.
    lost: Mutex<HashMap<String, (u64, PathBuf)>>,
}

/// The directory that a thread made something in last.
#[derive(Default)]
struct LastDirectory(Option<(usize, Arc<OwnedFd>)>);

/// One or more files that one thread writes in one go.
enum Unit {
    /// Files that are wholly in shared block `number`.
    Shared { number: u32, indices: Vec<usize> },
    /// A file with blocks of its own, or none.
    Whole(usize),
    /// Blocks of a long file.
    Segment {
        file: Arc<LongFile>,
        from: usize,
        to: usize,
    },
}

/// A file that several threads write.
struct LongFile {
    entry: usize,
    /// Made by the first who writes: it holds the list of all blocks.
    reader: OnceLock<FileReader>,
    open: Mutex<Option<Arc<StdFile>>>,
    /// Segments that are not written.
    left: AtomicUsize,
}

struct Writer {
    last: LastDirectory,
    block: Vec<u8>,
}

impl Extraction<'_> {
    /// The path in the image of directory `index`.
    fn path(&self, index: usize) -> PathBuf {
        path_of(self.dirs, index)
    }

    fn fault(
        &self,
        directory: usize,
        name: &OsStr,
        doing: &'static str,
        e: impl Into<io::Error>,
    ) -> Error {
        let path = self.target.join(self.path(directory)).join(name);
        Error::io(doing, e.into()).with_path(path)
    }

    fn lose(&self, directory: usize, name: &OsStr, what: String) {
        let path = self.path(directory).join(name);
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = lost.entry(what).or_insert_with(|| (0, path.clone()));
        entry.0 += 1;
        // The same warning whichever thread came first.
        if path < entry.1 {
            entry.1 = path;
        }
    }

    fn warnings(&self) -> Vec<String> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let mut warnings: Vec<_> = lost
            .iter()
            .map(|(what, (count, first))| {
                let files = if *count == 1 { "file" } else { "files" };
                format!("{what} ({count} {files}, the first is {first:?})")
            })
            .collect();
        warnings.sort_unstable();
        warnings
    }

    /// Opens a directory of the target, never through a symbolic link.
    fn directory(&self, index: usize, last: &mut LastDirectory) -> Result<Arc<OwnedFd>> {
        if let Some((known, fd)) = &last.0
            && *known == index
        {
            return Ok(Arc::clone(fd));
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let path = self.path(index);
        let open = || {
            let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let whole = if path.as_os_str().is_empty() {
                Path::new(".")
            } else {
                &path
            };
            match openat2(&self.root, whole, flags, Mode::empty(), beneath) {
                // Linux before 5.6, filters of system calls that do not know this one, and a path of more than 4095 bytes.
                Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => {}
                opened => return opened,
            }
            let mut fd = openat(&self.root, ".", flags, Mode::empty())?;
            for component in &path {
                fd = openat(&fd, component, flags, Mode::empty())?;
            }
            Ok(fd)
        };
        let fd = Arc::new(
            open().map_err(|e| self.fault(index, OsStr::new(""), "open the directory", e))?,
        );
        last.0 = Some((index, Arc::clone(&fd)));
        Ok(fd)
    }

    fn make_directories(&self) -> Result<()> {
        let mut last = LastDirectory::default();
        for entry in &self.dirs[1..] {
            let (parent, name) = (entry.parent, &entry.name);
            let fd = self.directory(parent, &mut last)?;
            match mkdirat(&*fd, name, Mode::RWXU) {
                Err(Errno::EXIST) if self.options.replaces => take_over(&fd, name),
                made => made,
            }
            .map_err(|e| self.fault(parent, name, "make the directory", e))?;
        }
        Ok(())
    }

    /// Makes what has this name in a directory, in place of what has it.
    fn make<T>(
        &self,
        directory: &OwnedFd,
        name: &OsStr,
        make: impl Fn() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        match make() {
            Err(Errno::EXIST) if self.options.replaces => {
                unlinkat(directory, name, AtFlags::empty())?;
                make()
            }
            made => made,
        }
    }

    /// Gives directories their attributes, those in others first, so that their times stay.
    fn finish_directories(&self) -> Result<()> {
        for (index, entry) in self.dirs.iter().enumerate().rev() {
            let fd = self.directory(index, &mut LastDirectory::default())?;
            self.finish(&*fd, index, OsStr::new(""), &entry.inode)?;
        }
        Ok(())
    }

    fn write_files(&self, files: &mut [NamedEntry]) -> Result<()> {
        let units = self.units(files)?;
        let files = &*files;
        let block_size = self.image.block_size() as usize;
        ordered::for_each(
            self.options.work.thread_count(),
            self.options.work.thread_count().saturating_mul(64),
            units.into_iter(),
            || Writer {
                last: LastDirectory::default(),
                block: vec![0; block_size],
            },
            |writer, unit| self.write_unit(files, writer, unit),
            |written| written,
        )
    }

    /// Cuts the work into units, in the order in which the data is stored.
    fn units(&self, files: &mut [NamedEntry]) -> Result<Vec<Unit>> {
        let mut starts = HashMap::new();
        files.sort_by_cached_key(|entry| {
            let InodeKind::File(file) = entry.inode.kind() else {
                return (0, 0);
            };
            match file.shared_block(self.image.block_size()) {
                Some((number, offset)) => {
                    let start = *starts
                        .entry(number)
                        .or_insert_with(|| self.image.shared_block_start(number));
                    (start, offset)
                }
                None => (file.blocks_start, 0),
            }
        });
        let mut units: Vec<Unit> = Vec::new();
        for (index, entry) in files.iter().enumerate() {
            let InodeKind::File(file) = entry.inode.kind() else {
                continue;
            };
            let shared = file.shared_block(self.image.block_size());
            match (shared, units.last_mut()) {
                (
                    Some((number, _)),
                    Some(Unit::Shared {
                        number: last,
                        indices,
                    }),
                ) if number == *last => {
                    indices.push(index);
                }
                (Some((number, _)), _) => units.push(Unit::Shared {
                    number,
                    indices: vec![index],
                }),
                (None, _) => self.cut(index, file, &mut units)?,
            }
        }
        Ok(units)
    }

    fn cut(&self, index: usize, file: &File, units: &mut Vec<Unit>) -> Result<()> {
        let blocks = file.len.div_ceil(self.image.block_size().into());
        if blocks <= 2 * SEGMENT_BLOCKS as u64 {
            units.push(Unit::Whole(index));
            return Ok(());
        }
        // A file has no more blocks than its image has bytes for their lengths, which is seen at once.
        self.image.check_block_list(file)?;
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
        let file = Arc::new(LongFile {
            entry: index,
            reader: OnceLock::new(),
            open: Mutex::default(),
            left: AtomicUsize::new(blocks.div_ceil(SEGMENT_BLOCKS)),
        });
        for from in (0..blocks).step_by(SEGMENT_BLOCKS) {
            let to = (from + SEGMENT_BLOCKS).min(blocks);
            units.push(Unit::Segment {
                file: Arc::clone(&file),
                from,
                to,
            });
        }
        Ok(())
    }

    fn write_unit(&self, files: &[NamedEntry], writer: &mut Writer, unit: Unit) -> Result<()> {
        match unit {
            Unit::Shared { number, indices } => {
                let have = self.image.read_shared_block(number, &mut writer.block)?;
                for index in indices {
                    let entry = &files[index];
                    let InodeKind::File(file) = entry.inode.kind() else {
                        continue;
                    };
                    let shared = file.shared_block(self.image.block_size());
                    let from = shared.map_or(0, |(_, offset)| offset as usize);
                    // A file that is wholly in a shared block is shorter than a block.
                    let len = usize::try_from(file.len()).unwrap_or(usize::MAX);
                    let end = from.saturating_add(len);
                    let bytes = writer.block[..have].get(from..end);
                    let bytes =
                        bytes.ok_or_else(|| self.image.short_shared_block(number, end, have))?;
                    let made = self.create(entry, &mut writer.last)?;
                    self.put(&made, entry, 0, bytes)?;
                    self.finish_file(&made, entry)?;
                    self.options.work.tell(file.len())?;
                }
                Ok(())
            }
            Unit::Whole(index) => {
                let entry = &files[index];
                let reader = self.image.file(&entry.inode)?;
                let file = self.create(entry, &mut writer.last)?;
                let blocks = reader.len().div_ceil(self.image.block_size().into());
                let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
                self.copy(&reader, &file, entry, 0..blocks, &mut writer.block)?;
                self.complete(&reader, &file, entry)
            }
            Unit::Segment {
                file: long,
                from,
                to,
            } => {
                let entry = &files[long.entry];
                let file = {
                    let mut open = long.open.lock().unwrap_or_else(PoisonError::into_inner);
                    match &*open {
                        Some(file) => Arc::clone(file),
                        None => {
                            Arc::clone(open.insert(Arc::new(self.create(entry, &mut writer.last)?)))
                        }
                    }
                };
                let reader = match long.reader.get() {
                    Some(reader) => reader,
                    None => {
                        let reader = self.image.file(&entry.inode)?;
                        long.reader.get_or_init(|| reader)
                    }
                };
                self.copy(reader, &file, entry, from..to, &mut writer.block)?;
                if long.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    *long.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    self.complete(reader, &file, entry)?;
                }
                Ok(())
            }
        }
    }

    fn create(&self, entry: &NamedEntry, last: &mut LastDirectory) -> Result<StdFile> {
        let fd = self.directory(entry.directory, last)?;
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Nobody else comes past the directories, so a file may have its permissions from the
        // start; but only who may write a file may write its attributes.
        let mode = match entry.inode.has_xattrs() {
            true => Mode::RUSR | Mode::WUSR,
            false => mode(&entry.inode) & Mode::from_raw_mode(0o777),
        };
        self.make(&fd, &entry.name, || openat(&*fd, &entry.name, flags, mode))
            .map(StdFile::from)
            .map_err(|e| self.fault(entry.directory, &entry.name, "make the file", e))
    }

    fn put(&self, file: &StdFile, entry: &NamedEntry, at: u64, bytes: &[u8]) -> Result<()> {
        file.write_all_at(bytes, at)
            .map_err(|e| self.fault(entry.directory, &entry.name, "write the file", e))
    }

    /// Writes some blocks of a file; those of zeros are left out.
    fn copy(
        &self,
        reader: &FileReader,
        file: &StdFile,
        entry: &NamedEntry,
        blocks: std::ops::Range<usize>,
        buf: &mut [u8],
    ) -> Result<()> {
        for i in blocks {
            let at = i as u64 * u64::from(self.image.block_size());
            let bytes = &mut buf[..reader.block_len(i)];
            if !reader.is_sparse(at, bytes.len() as u64) {
                reader.read_at(at, bytes)?;
                self.put(file, entry, at, bytes)?;
            }
            self.options.work.tell(bytes.len() as u64)?;
        }
        Ok(())
    }

    /// Gives a file whose bytes are written its length and attributes.
    fn complete(&self, reader: &FileReader, file: &StdFile, entry: &NamedEntry) -> Result<()> {
        if reader.stored_as().sparse > 0 {
            file.set_len(reader.len())
                .map_err(|e| self.fault(entry.directory, &entry.name, "write the file", e))?;
        }
        self.finish_file(file, entry)
    }

    /// Gives an open file its owner, attributes, permissions and time, but for what a new file has
    /// already: each call costs as much as a write.
    fn finish_file(&self, file: &StdFile, entry: &NamedEntry) -> Result<()> {
        let inode = &entry.inode;
        let NewFile {
            mode: allowed,
            owner: new_owner,
        } = self.new_file;
        let same_owner = !self.options.owners || new_owner == Some(owner(inode));
        if same_owner && allowed.contains(mode(inode)) && !inode.has_xattrs() {
            return futimens(file, &times(inode)).map_err(|e| {
                self.fault(entry.directory, &entry.name, "set the modification time", e)
            });
        }
        self.finish(file, entry.directory, &entry.name, inode)
    }

    /// Gives an open file or directory its owner, attributes, permissions and time.
    fn finish(&self, fd: impl AsFd, directory: usize, name: &OsStr, inode: &Inode) -> Result<()> {
        let fd = fd.as_fd();
        let fault = |doing, e: Errno| self.fault(directory, name, doing, e);
        if self.options.owners {
            let (uid, gid) = owner(inode);
            fchown(fd, Some(uid), Some(gid)).map_err(|e| fault(setting_owner(e), e))?;
        }
        self.write_xattrs(directory, name, inode, |xattr, value| {
            fsetxattr(fd, xattr, value, XattrFlags::empty())
        })?;
        fchmod(fd, self.mode(directory, name, inode))
            .map_err(|e| fault("set the permissions", e))?;
        futimens(fd, &times(inode)).map_err(|e| fault("set the modification time", e))
    }

    /// Whether files get the rights that the image gives them.
    fn restores_privileges(&self) -> bool {
        self.options.owners && self.options.privileges
    }

    /// The permissions of a file or directory, without the bits that would give rights of another user.
    fn mode(&self, directory: usize, name: &OsStr, inode: &Inode) -> Mode {
        let mode = mode(inode);
        if self.restores_privileges() {
            return mode;
        }
        if mode.contains(Mode::SUID) {
            self.lose_privilege(directory, name, "the setuid bit");
        }
        if mode.contains(Mode::SGID) {
            self.lose_privilege(directory, name, "the setgid bit");
        }
        mode & !(Mode::SUID | Mode::SGID)
    }

    /// Says what was left out because the owner was not restored. Who asked for that with
    /// [`Extractor::setuid`] is not told.
    fn lose_privilege(&self, directory: usize, name: &OsStr, what: &str) {
        if self.options.privileges {
            let what = format!("{what} was left out: the file belongs to another owner now");
            self.lose(directory, name, what);
        }
    }

    fn write_xattrs(
        &self,
        directory: usize,
        name: &OsStr,
        inode: &Inode,
        set: impl Fn(&OsStr, &[u8]) -> rustix::io::Result<()>,
    ) -> Result<()> {
        if !self.options.xattrs || !inode.has_xattrs() {
            return Ok(());
        }
        let xattrs = self.image.xattrs(inode)?;
        self.contents.add_xattrs(&xattrs)?;
        for xattr in xattrs {
            if xattr.name() == CAPABILITIES && !self.restores_privileges() {
                self.lose_privilege(directory, name, "xattr security.capability");
                continue;
            }
            match set(xattr.name(), xattr.value()) {
                Ok(()) => {}
                Err(e @ (Errno::PERM | Errno::NOTSUP | Errno::ACCESS)) => {
                    let what = format!(
                        "xattr {} was not written: {}",
                        xattr.name().display(),
                        io::Error::from(e)
                    );
                    self.lose(directory, name, what);
                }
                Err(e) => return Err(self.fault(directory, name, "write an xattr", e)),
            }
        }
        Ok(())
    }

    fn make_special(&self, entry: &NamedEntry, last: &mut LastDirectory) -> Result<Made> {
        let NamedEntry {
            directory,
            name,
            inode,
        } = entry;
        let fd = self.directory(*directory, last)?;
        let fault = |doing, e: Errno| self.fault(*directory, name, doing, e);
        let node = |kind, device: Device| {
            let device: Dev = rustix::fs::makedev(device.major, device.minor);
            let mode = mode(inode) & Mode::from_raw_mode(0o777);
            match self.make(&fd, name, || mknodat(&*fd, name, kind, mode, device)) {
                Ok(()) => Ok(true),
                Err(Errno::PERM) => {
                    let what = format!("{} was not made: only root can", inode.file_type().name());
                    self.lose(*directory, name, what);
                    Ok(false)
                }
                Err(e) => Err(fault("make the special file", e)),
            }
        };
        let none = Device { major: 0, minor: 0 };
        let made = match inode.kind() {
            InodeKind::Symlink(to) => {
                self.make(&fd, name, || symlinkat(to, &*fd, name))
                    .map_err(|e| fault("make the symbolic link", e))?;
                Made::Symlink
            }
            kind => {
                let made = match kind {
                    InodeKind::BlockDevice(_) | InodeKind::CharDevice(_)
                        if !self.options.devices =>
                    {
                        false
                    }
                    InodeKind::BlockDevice(device) => node(RawType::BlockDevice, *device)?,
                    InodeKind::CharDevice(device) => node(RawType::CharacterDevice, *device)?,
                    InodeKind::Socket => node(RawType::Socket, none)?,
                    _ => node(RawType::Fifo, none)?,
                };
                if !made {
                    return Ok(Made::Nothing);
                }
                Made::Special
            }
        };
        let (uid, gid) = owner(inode);
        if self.options.owners {
            chownat(&*fd, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|e| fault(setting_owner(e), e))?;
        }
        // There is no call for a name in an open directory, and such files cannot be opened.
        let path = Path::new("/proc/self/fd")
            .join(fd.as_raw_fd().to_string())
            .join(name);
        self.write_xattrs(*directory, name, inode, |xattr, value| {
            lsetxattr(&path, xattr, value, XattrFlags::empty())
        })?;
        if let Made::Special = made {
            let mode = self.mode(*directory, name, inode);
            change_mode(&fd, name, mode).map_err(|e| fault("set the permissions", e))?;
        }
        utimensat(&*fd, name, &times(inode), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| fault("set the modification time", e))?;
        Ok(made)
    }

    /// Makes a further name; false if the first could not be made.
    fn link(&self, link: &LinkEntry, first: &(usize, OsString)) -> Result<bool> {
        let from = self.directory(first.0, &mut LastDirectory::default())?;
        let to = self.directory(link.directory, &mut LastDirectory::default())?;
        let make = || linkat(&*from, &first.1, &*to, &link.name, AtFlags::empty());
        match self.make(&to, &link.name, make) {
            Ok(()) => Ok(true),
            // A device that only root can make.
            Err(Errno::NOENT)
                if !self
                    .lost
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .is_empty() =>
            {
                Ok(false)
            }
            Err(e) => Err(self.fault(link.directory, &link.name, "make the hard link", e)),
        }
    }
}

/// Sets the permissions of what was made with this name, and of nothing that has taken its place.
fn change_mode(directory: &OwnedFd, name: &OsStr, mode: Mode) -> std::result::Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let node = openat(directory, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&node)?;
    let kind = RawType::from_raw_mode(found.st_mode);
    if matches!(
        kind,
        RawType::Symlink | RawType::RegularFile | RawType::Directory
    ) {
        return Err(Errno::STALE);
    }
    let path = format!("/proc/self/fd/{}", node.as_raw_fd());
    match chmodat(CWD, path, mode, AtFlags::empty()) {
        // Without /proc.
        Err(Errno::NOENT | Errno::NOTDIR) => chmodat(directory, name, mode, AtFlags::empty()),
        changed => changed,
    }
}

fn owner(inode: &Inode) -> (Uid, Gid) {
    (Uid::from_raw(inode.uid()), Gid::from_raw(inode.gid()))
}

fn mode(inode: &Inode) -> Mode {
    Mode::from_raw_mode(inode.permissions().into())
}

fn times(inode: &Inode) -> Timestamps {
    let time = Timespec {
        tv_sec: inode.mtime().into(),
        tv_nsec: 0,
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
/// What failed with this error. A user namespace may have no number for the owner.
fn setting_owner(e: Errno) -> &'static str {
    match e {
        Errno::INVAL => {
            "set the owner, whom this user namespace does not know (--no-owners leaves owners out)"
        }
        _ => "set the owner",
    }
}
