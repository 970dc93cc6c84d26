//! Answers from a directory, to record what a launch from a plain tree asks for.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brisk_image::inode::Device;
use brisk_io::ByteSource;
use brisk_launch::sys::errno;
use rustix::fs::{
    Dir, FileType, Mode, OFlags, SeekFrom, fstat, fstatvfs, getxattr, listxattr, major, minor,
    openat, readlinkat, seek,
};
use rustix::io::Errno;
use zerocopy::FromZeros;

use super::file_system::{FileSystem, SeekTo};
use super::listing::Part;
use super::node::{FOR_EVER, Fail, wire_rdev};
use super::owners::Owners;
use super::wire::{Attr, AttrOut, EntryOut, ROOT, StatfsOut};

/// How many files are kept open, and how many listings are kept.
const FILES: usize = 64;
const LISTINGS: usize = 32;

/// The longest value of an extended attribute, and the longest list of names, in Linux.
const MAX_XATTR: usize = 64 << 10;

/// A directory to serve as it is, read-only.
///
/// Each node is found from the root by its names, and no symbolic link is followed on the way. So everything
/// that is served is inside of the directory, whatever is mounted over it.
pub(crate) struct ServedDirectory {
    root: OwnedFd,
    owners: Owners,
    table: Mutex<Table>,
    /// The last used file is first.
    files: Mutex<VecDeque<(u64, Arc<File>)>>,
    listings: Mutex<VecDeque<(u64, Arc<Vec<Listed>>)>>,
}

/// The nodes that the kernel knows.
///
/// 1. Node `n + 2` is `places[n]`. Its parent is the root, or comes before it.
/// 2. A file with several names is one node, because they share their pages on a disk. A directory has one
///    name.
#[derive(Default)]
struct Table {
    places: Vec<(u64, OsString)>,
    directories: HashMap<(u64, OsString), u64>,
    /// Nodes by device and inode.
    others: HashMap<(u64, u64), u64>,
}

/// An entry of a listing.
struct Listed {
    name: Vec<u8>,
    ino: u64,
    kind: u32,
}

impl ServedDirectory {
    /// Serves what is inside of `root`, which may be opened as a path only.
    pub(crate) fn new(root: OwnedFd, owners: Owners) -> Self {
        Self {
            root,
            owners,
            table: Mutex::default(),
            files: Mutex::default(),
            listings: Mutex::default(),
        }
    }

    /// The names from the root to a node. ESTALE if no node has this number.
    fn names(&self, node: u64) -> Result<Vec<OsString>, Errno> {
        let table = lock(&self.table);
        let mut names = Vec::new();
        let mut at = node;
        while at != ROOT {
            let index = at.checked_sub(ROOT + 1).ok_or(Errno::STALE)?;
            let index = usize::try_from(index).map_err(|_| Errno::STALE)?;
            let (parent, name) = table.places.get(index).ok_or(Errno::STALE)?;
            names.push(name.clone());
            at = *parent;
        }
        names.reverse();
        Ok(names)
    }

    /// Opens a node.
    fn open(&self, node: u64, flags: OFlags) -> Result<OwnedFd, Errno> {
        let names = self.names(node)?;
        match names.split_last() {
            None => openat(&self.root, ".", flags | OFlags::CLOEXEC, Mode::empty()),
            Some((name, directories)) => open_in(&self.walk(directories)?, name, flags),
        }
    }

    fn open_directory(&self, node: u64) -> Result<OwnedFd, Errno> {
        self.walk(&self.names(node)?)
    }

    fn walk(&self, names: &[OsString]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut at = openat(&self.root, ".", flags | OFlags::CLOEXEC, Mode::empty())?;
        for name in names {
            at = open_in(&at, name, flags)?;
        }
        Ok(at)
    }

    /// The file of node `node`, open for reading.
    fn file(&self, node: u64) -> Result<Arc<File>, Errno> {
        if let Some(file) = take_in_front(&mut lock(&self.files), node) {
            return Ok(file);
        }
        // Opening a device or a pipe has effects of its own, so only a file is opened.
        let found = self.open(node, OFlags::PATH)?;
        if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        // Something else may be there now, and opening a pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.open(node, flags)?);
        if !file.metadata().map_err(errno)?.is_file() {
            return Err(Errno::INVAL);
        }
        let file = Arc::new(file);
        let mut files = lock(&self.files);
        files.push_front((node, Arc::clone(&file)));
        files.truncate(FILES);
        Ok(file)
    }

    fn listing(&self, node: u64) -> Result<Arc<Vec<Listed>>, Errno> {
        if let Some(listing) = take_in_front(&mut lock(&self.listings), node) {
            return Ok(listing);
        }
        let directory = self.open(node, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut listing = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let kind = match entry.file_type() {
                FileType::Unknown => 0,
                kind => kind.as_raw_mode(),
            };
            listing.push(Listed {
                name: entry.file_name().to_bytes().to_vec(),
                ino: entry.ino(),
                kind,
            });
        }
        let listing = Arc::new(listing);
        let mut listings = lock(&self.listings);
        listings.push_front((node, Arc::clone(&listing)));
        listings.truncate(LISTINGS);
        Ok(listing)
    }

    /// The attributes as on the disk, except for the owners.
    fn attr(&self, metadata: &Metadata) -> Result<Attr, Errno> {
        let too_large = |_| Errno::OVERFLOW;
        let (uid, gid) = match self.owners {
            Owners::AsStored => (metadata.uid(), metadata.gid()),
            Owners::Everything { uid, gid } => (uid, gid),
        };
        let kind = metadata.file_type();
        let rdev = match kind.is_block_device() || kind.is_char_device() {
            true => wire_rdev(Device {
                major: major(metadata.rdev()),
                minor: minor(metadata.rdev()),
            }),
            false => 0,
        };
        let nanoseconds = |n: i64| u32::try_from(n).map_err(too_large);
        Ok(Attr {
            ino: metadata.ino(),
            size: metadata.size(),
            blocks: metadata.blocks(),
            // The protocol has unsigned fields for signed numbers.
            atime: metadata.atime().cast_unsigned(),
            mtime: metadata.mtime().cast_unsigned(),
            ctime: metadata.ctime().cast_unsigned(),
            atimensec: nanoseconds(metadata.atime_nsec())?,
            mtimensec: nanoseconds(metadata.mtime_nsec())?,
            ctimensec: nanoseconds(metadata.ctime_nsec())?,
            mode: metadata.mode(),
            nlink: u32::try_from(metadata.nlink()).map_err(too_large)?,
            uid,
            gid,
            rdev,
            blksize: u32::try_from(metadata.blksize()).map_err(too_large)?,
            flags: 0,
        })
    }

    /// A name of the node, for system calls that only take names. It leads to the node itself, even if that
    /// is a symbolic link.
    fn by_descriptor(fd: &OwnedFd) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
    }
}

impl FileSystem for ServedDirectory {
    fn look_up(&self, directory: u64, name: &[u8]) -> Result<Option<EntryOut>, Fail> {
        let name = OsStr::from_bytes(name);
        let parent = self.open_directory(directory)?;
        let found = match open_in(&parent, name, OFlags::PATH) {
            Ok(found) => File::from(found),
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let metadata = found.metadata().map_err(errno)?;
        Ok(Some(EntryOut {
            nodeid: lock(&self.table).number(directory, name, &metadata),
            generation: 0,
            entry_valid: FOR_EVER,
            attr_valid: FOR_EVER,
            entry_valid_nsec: 0,
            attr_valid_nsec: 0,
            attr: self.attr(&metadata)?,
        }))
    }

    fn attributes(&self, node: u64) -> Result<AttrOut, Fail> {
        let node = File::from(self.open(node, OFlags::PATH)?);
        Ok(AttrOut {
            attr_valid: FOR_EVER,
            attr_valid_nsec: 0,
            dummy: 0,
            attr: self.attr(&node.metadata().map_err(errno)?)?,
        })
    }

    fn link(&self, node: u64) -> Result<Vec<u8>, Fail> {
        let link = self.open(node, OFlags::PATH)?;
        // An empty name means the link of the descriptor.
        Ok(readlinkat(&link, "", Vec::new())?.into_bytes())
    }

    fn read(
        &self,
        node: u64,
        offset: u64,
        size: u32,
        answer: &mut dyn FnMut(&[IoSlice<'_>]) -> Result<(), Errno>,
    ) -> Result<u64, Fail> {
        let file = self.file(node)?;
        let mut bytes = vec![0; size as usize];
        let mut len = 0;
        while len < bytes.len() {
            match file.read_bytes_at(offset.saturating_add(len as u64), &mut bytes[len..]) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(errno(e).into()),
            }
        }
        answer(&[IoSlice::new(&bytes[..len])])?;
        Ok(len as u64)
    }

    fn seek(&self, node: u64, offset: u64, to: SeekTo) -> Result<u64, Fail> {
        // No other request uses the position of the file.
        let to = match to {
            SeekTo::Data => SeekFrom::Data(offset),
            SeekTo::Hole => SeekFrom::Hole(offset),
        };
        Ok(seek(self.file(node)?, to)?)
    }

    /// The offset is the number of an entry.
    fn list(&self, node: u64, offset: u64, size: usize, plus: bool) -> Result<Vec<u8>, Fail> {
        let listing = self.listing(node)?;
        let mut part = Part {
            bytes: Vec::with_capacity(size),
            size,
            plus,
        };
        let first = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
        for (entry, next) in listing.iter().skip(first).zip(offset.saturating_add(1)..) {
            // Without a node, the kernel looks it up.
            let node = EntryOut::new_zeroed;
            if !part.push(&entry.name, entry.ino, next, entry.kind, node) {
                break;
            }
        }
        Ok(part.bytes)
    }

    fn statistics(&self) -> Result<StatfsOut, Fail> {
        let stat = fstatvfs(&self.root)?;
        let too_large = |_| Errno::OVERFLOW;
        Ok(StatfsOut {
            blocks: stat.f_blocks,
            bfree: stat.f_bfree,
            bavail: stat.f_bavail,
            files: stat.f_files,
            ffree: stat.f_ffree,
            bsize: u32::try_from(stat.f_bsize).map_err(too_large)?,
            namelen: u32::try_from(stat.f_namemax).map_err(too_large)?,
            frsize: u32::try_from(stat.f_frsize).map_err(too_large)?,
            padding: 0,
            spare: [0; 6],
        })
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>, Fail> {
        let node = self.open(node, OFlags::PATH)?;
        let mut value = vec![0; MAX_XATTR];
        let name = OsStr::from_bytes(name);
        let len = getxattr(Self::by_descriptor(&node), name, &mut value[..])?;
        value.truncate(len);
        Ok(value)
    }

    fn xattr_names(&self, node: u64) -> Result<Vec<u8>, Fail> {
        let node = self.open(node, OFlags::PATH)?;
        let mut names = vec![0; MAX_XATTR];
        let len = listxattr(Self::by_descriptor(&node), &mut names[..])?;
        names.truncate(len);
        Ok(names)
    }
}

impl Table {
    /// The node for `name` in the node `parent`.
    fn number(&mut self, parent: u64, name: &OsStr, metadata: &Metadata) -> u64 {
        // A list in memory is never long enough to overflow this.
        let next = self.places.len() as u64 + ROOT + 1;
        let number = match metadata.is_dir() {
            true => *self
                .directories
                .entry((parent, name.to_owned()))
                .or_insert(next),
            false => *self
                .others
                .entry((metadata.dev(), metadata.ino()))
                .or_insert(next),
        };
        if number == next {
            self.places.push((parent, name.to_owned()));
        }
        number
    }
}

fn open_in(directory: &OwnedFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

fn take_in_front<T>(kept: &mut VecDeque<(u64, Arc<T>)>, node: u64) -> Option<Arc<T>> {
    let i = kept.iter().position(|(known, _)| *known == node)?;
    let found = kept.remove(i)?;
    let value = Arc::clone(&found.1);
    kept.push_front(found);
    Some(value)
}

/// A panic leaves nothing half-changed: every statement under these locks leaves the data consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
