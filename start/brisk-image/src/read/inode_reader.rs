use std::ffi::OsString;

use zerocopy::little_endian::U32;

use super::meta_reader::{MetaCursor, MetaPos};
use super::open_image::OpenImage;
use crate::error::{Allowed, Corrupt, Error, Location, Result};
use crate::format::dir_listing::UNSTORED;
use crate::format::inode::{self as wire, FileType, WireType};
use crate::format::metadata::MetaRef;
use crate::names;

/// Where in its image an inode stands. Two names with the same reference are hard links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeRef(pub(crate) MetaRef);

impl InodeRef {
    pub(crate) fn parse(word: u64, at: Location) -> Result<Self> {
        MetaRef::parse(word, at, "inode reference").map(Self)
    }

    /// The reference as one word, as the image stores it: below 2^63 for every image that fits
    /// into a file.
    pub fn to_word(self) -> u64 {
        self.0.encode()
    }

    /// The reference that [`InodeRef::to_word`] made a word of; none if no reference has that word.
    ///
    /// Whether an inode stands there is seen when it is read.
    pub fn from_word(word: u64) -> Option<Self> {
        Self::parse(word, Location::Byte(0)).ok()
    }
}

/// A file, a directory, or another thing with a name, and its metadata.
#[derive(Debug, Clone)]
pub struct Inode {
    pub(crate) reference: InodeRef,
    pub(crate) number: u32,
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: u32,
    pub(crate) nlink: u32,
    pub(crate) xattr: Option<u32>,
    pub(crate) kind: InodeKind,
}

/// What an inode is, with what only this kind has.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum InodeKind {
    /// A directory; [`Image::read_dir`](crate::Image::read_dir) lists it.
    Directory(Directory),
    /// A regular file; [`Image::file`](crate::Image::file) reads it.
    File(File),
    /// A symbolic link, and what it points to.
    Symlink(OsString),
    /// A block device.
    BlockDevice(Device),
    /// A character device.
    CharDevice(Device),
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
}

/// A device's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Which driver.
    pub major: u32,
    /// Which of the driver's devices.
    pub minor: u32,
}

/// Where a directory's listing stands.
#[derive(Debug, Clone, Copy)]
pub struct Directory {
    pub(crate) listing: MetaRef,
    /// Bytes of the listing.
    pub(crate) listing_len: u32,
    pub(crate) parent: u32,
    /// Index entries, and where the first stands.
    pub(crate) index: Option<(u16, MetaPos)>,
}

/// Where a file's contents stand.
#[derive(Debug, Clone, Copy)]
pub struct File {
    pub(crate) len: u64,
    /// Bytes of it that are said to be holes.
    pub(crate) sparse: u64,
    /// Where the first block is stored; the others follow without a gap.
    pub(crate) blocks_start: u64,
    /// The shared block with the tail of the file, and the byte in it where the tail starts.
    pub(crate) tail: Option<(u32, u32)>,
    /// Where the words of the blocks stand.
    pub(crate) block_words: MetaPos,
}

impl Directory {
    /// The number of the directory that this one is in; for the root it is that of no inode.
    pub fn parent_number(&self) -> u32 {
        self.parent
    }

    /// Bytes of the listing as it is stored; zero for an empty directory.
    pub fn listing_len(&self) -> u32 {
        self.listing_len
    }
}

impl File {
    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for a file of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that its writer counted as holes: at most [`File::len`], and for show only.
    pub fn sparse(&self) -> u64 {
        self.sparse.min(self.len)
    }

    /// The shared block that the whole file is in, and the byte where it starts there.
    pub(crate) fn shared_block(&self, block_size: u32) -> Option<(u32, u32)> {
        self.tail
            .filter(|_| (1..u64::from(block_size)).contains(&self.len))
    }
}

impl Inode {
    /// Where the inode stands.
    pub fn reference(&self) -> InodeRef {
        self.reference
    }

    /// The inode's number, from 1, unique in its image.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What it is, with what only this kind has.
    pub fn kind(&self) -> &InodeKind {
        &self.kind
    }

    /// What it is.
    pub fn file_type(&self) -> FileType {
        match self.kind {
            InodeKind::Directory(_) => FileType::Directory,
            InodeKind::File(_) => FileType::File,
            InodeKind::Symlink(_) => FileType::Symlink,
            InodeKind::BlockDevice(_) => FileType::BlockDevice,
            InodeKind::CharDevice(_) => FileType::CharDevice,
            InodeKind::Fifo => FileType::Fifo,
            InodeKind::Socket => FileType::Socket,
        }
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        matches!(self.kind, InodeKind::Directory(_))
    }

    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        matches!(self.kind, InodeKind::File(_))
    }

    /// True for a symbolic link.
    pub fn is_symlink(&self) -> bool {
        matches!(self.kind, InodeKind::Symlink(_))
    }

    /// The lower twelve bits of the mode: permissions, set-user-id, set-group-id and sticky.
    pub fn permissions(&self) -> u16 {
        self.permissions
    }

    /// The user who owns it.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The group it belongs to.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// When its contents were last changed, in seconds since 1970.
    pub fn mtime(&self) -> u32 {
        self.mtime
    }

    /// Names that it has; for a directory two and one for each directory in it.
    pub fn nlink(&self) -> u32 {
        self.nlink
    }

    /// Bytes of a file or of a symbolic link's target; zero for everything else.
    pub fn len(&self) -> u64 {
        match &self.kind {
            InodeKind::File(file) => file.len,
            InodeKind::Symlink(target) => names::to_bytes(target).len() as u64,
            _ => 0,
        }
    }

    /// True if [`Inode::len`] is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if extended attributes are stored for it.
    pub fn has_xattrs(&self) -> bool {
        self.xattr.is_some()
    }
}

impl OpenImage {
    /// Where the inode table ends.
    fn inode_table_end(&self) -> u64 {
        self.stored.superblock.directory_table()
    }

    pub(crate) fn inode_cursor(&self, reference: InodeRef) -> Result<MetaCursor<'_>> {
        let start = self.stored.superblock.inode_table();
        MetaCursor::new(&self.metadata, start, self.inode_table_end(), reference.0)
    }

    pub(crate) fn inode_cursor_at(&self, pos: MetaPos) -> Result<MetaCursor<'_>> {
        MetaCursor::at(&self.metadata, self.inode_table_end(), pos)
    }

    pub(crate) fn read_inode(&self, reference: InodeRef) -> Result<Inode> {
        let mut cursor = self.inode_cursor(reference)?;
        let location = cursor.location();
        let common: wire::Common = cursor.read_wire("an inode")?;
        let WireType { kind, extended } = WireType::parse(common.kind.get(), location)?;
        let (nlink, xattr, kind) = match kind {
            FileType::Directory => read_directory(&mut cursor, extended, location)?,
            FileType::File => self.read_file(&mut cursor, extended, location)?,
            FileType::Symlink => read_symlink(&mut cursor, extended, location)?,
            FileType::BlockDevice | FileType::CharDevice => {
                let wire: wire::Device = cursor.read_wire("a device inode")?;
                let xattr = read_xattr_index(&mut cursor, extended)?;
                let (major, minor) = wire::decode_rdev(wire.rdev.get());
                let device = Device { major, minor };
                let kind = match kind {
                    FileType::BlockDevice => InodeKind::BlockDevice(device),
                    _ => InodeKind::CharDevice(device),
                };
                (wire.nlink.get(), xattr, kind)
            }
            FileType::Fifo | FileType::Socket => {
                let wire: wire::Ipc = cursor.read_wire("a pipe or socket inode")?;
                let xattr = read_xattr_index(&mut cursor, extended)?;
                let kind = match kind {
                    FileType::Fifo => InodeKind::Fifo,
                    _ => InodeKind::Socket,
                };
                (wire.nlink.get(), xattr, kind)
            }
        };
        Ok(Inode {
            reference,
            number: common.number.get(),
            // Some writers leave the bits of the file type in: they are said by the type.
            permissions: common.mode.get() & 0o7777,
            uid: self.id(common.uid_index.get(), location)?,
            gid: self.id(common.gid_index.get(), location)?,
            mtime: common.mtime.get(),
            nlink,
            xattr: (xattr != wire::NONE).then_some(xattr),
            kind,
        })
    }

    fn read_file(
        &self,
        cursor: &mut MetaCursor<'_>,
        extended: bool,
        location: Location,
    ) -> Result<Parsed> {
        let (nlink, xattr, blocks_start, len, sparse, fragment, fragment_offset) = if extended {
            let wire: wire::ExtFile = cursor.read_wire("a file inode")?;
            let (nlink, xattr) = (wire.nlink.get(), wire.xattr.get());
            let (fragment, offset) = (wire.fragment.get(), wire.fragment_offset.get());
            (
                nlink,
                xattr,
                wire.blocks_start.get(),
                wire.len.get(),
                wire.sparse.get(),
                fragment,
                offset,
            )
        } else {
            let wire: wire::File = cursor.read_wire("a file inode")?;
            let (fragment, offset) = (wire.fragment.get(), wire.fragment_offset.get());
            let (start, len) = (wire.blocks_start.get().into(), wire.len.get().into());
            (1, wire::NONE, start, len, 0, fragment, offset)
        };
        // Linux measures files in a signed 64-bit number.
        if i64::try_from(len).is_err() {
            let allowed = Allowed::AtMost(i64::MAX.unsigned_abs());
            return Err(Error::field(location, "length of a file", len, allowed));
        }
        let tail = match fragment {
            wire::NONE => None,
            number if u64::from(number) >= self.fragments.count() => {
                let allowed = match self.fragments.count().checked_sub(1) {
                    Some(last) => Allowed::AtMost(last),
                    None => Allowed::Text("4294967295 (none), as the image has no fragments"),
                };
                return Err(Error::field(location, "fragment number", number, allowed));
            }
            number => Some((number, fragment_offset)),
        };
        let file = File {
            len,
            sparse,
            blocks_start,
            tail,
            block_words: cursor.pos(),
        };
        Ok((nlink, xattr, InodeKind::File(file)))
    }
}

/// The link count, the xattr index as it is stored, and the rest.
type Parsed = (u32, u32, InodeKind);

fn read_directory(
    cursor: &mut MetaCursor<'_>,
    extended: bool,
    location: Location,
) -> Result<Parsed> {
    let (nlink, xattr, block, offset, len, parent, index_count) = if extended {
        let wire: wire::ExtDirectory = cursor.read_wire("a directory inode")?;
        let (nlink, xattr) = (wire.nlink.get(), wire.xattr.get());
        let (block, offset) = (wire.listing_block.get(), wire.listing_offset.get());
        (
            nlink,
            xattr,
            block,
            offset,
            wire.listing_len.get(),
            wire.parent.get(),
            wire.index_count.get(),
        )
    } else {
        let wire: wire::Directory = cursor.read_wire("a directory inode")?;
        let (block, offset) = (wire.listing_block.get(), wire.listing_offset.get());
        let len = wire.listing_len.get().into();
        (
            wire.nlink.get(),
            wire::NONE,
            block,
            offset,
            len,
            wire.parent.get(),
            0,
        )
    };
    let directory = Directory {
        listing: MetaRef::new(
            block.into(),
            offset,
            location,
            "listing offset of a directory",
        )?,
        // An empty directory is stored with the length 3 by some tools and with 0 by others.
        listing_len: len.saturating_sub(UNSTORED),
        parent,
        index: (index_count > 0).then(|| (index_count, cursor.pos())),
    };
    Ok((nlink, xattr, InodeKind::Directory(directory)))
}

fn read_symlink(cursor: &mut MetaCursor<'_>, extended: bool, location: Location) -> Result<Parsed> {
    let wire: wire::Symlink = cursor.read_wire("a symbolic link inode")?;
    let len = wire.target_len.get();
    if len == 0 || len > wire::MAX_TARGET {
        let allowed = Allowed::Range(1, wire::MAX_TARGET.into());
        return Err(Error::field(
            location,
            "length of a symbolic link's target",
            len,
            allowed,
        ));
    }
    let target = cursor.read_vec(len as usize, "a symbolic link's target")?;
    if target.contains(&0) {
        let fault = Corrupt::Name {
            name: target,
            why: "holds a NUL, as no symbolic link's target may",
        };
        return Err(Error::corrupt(location, fault));
    }
    let xattr = read_xattr_index(cursor, extended)?;
    Ok((
        wire.nlink.get(),
        xattr,
        InodeKind::Symlink(names::from_bytes(target)),
    ))
}

fn read_xattr_index(cursor: &mut MetaCursor<'_>, extended: bool) -> Result<u32> {
    if !extended {
        return Ok(wire::NONE);
    }
    let index: U32 = cursor.read_wire("an xattr index")?;
    Ok(index.get())
}
