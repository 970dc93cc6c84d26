use std::ffi::OsString;
use std::fmt;
use std::io::Read;

use brisk_io::ByteSource;

use super::Attributes;
use crate::error::{Error, Result};
use crate::read::inode_reader::{Device, Inode};
use crate::read::xattr_reader::Xattr;

/// What a [`TreeBuilder`](crate::TreeBuilder) puts at a path: a file, a directory or another thing,
/// with its attributes.
///
/// By default, an entry belongs to user and group 0 and has the time 0, so it does not depend on
/// who packs it, or when. Files have the permissions 0644, directories 0755, symbolic links 0777,
/// devices 0600, pipes and sockets 0644.
#[must_use = "an entry is in no tree until it is added to one"]
pub struct TreeEntry<'a> {
    pub(super) kind: EntryKind<'a>,
    permissions: Option<u16>,
    owner: Option<(u32, u32)>,
    mtime: Option<u32>,
    pub(super) xattrs: Vec<Xattr>,
}

pub(super) enum EntryKind<'a> {
    /// What is there stays.
    Unchanged,
    Directory,
    File(Contents<'a>),
    Symlink(OsString),
    BlockDevice(Device),
    CharDevice(Device),
    Fifo,
    Socket,
}

/// Where the contents of a file come from.
pub(super) enum Contents<'a> {
    /// Bytes that stay where they are until they are packed.
    Source(Box<dyn ByteSource>),
    /// Bytes that can be read once.
    Reader(Box<dyn Read + 'a>),
}

impl EntryKind<'_> {
    pub(super) fn default_permissions(&self) -> u16 {
        match self {
            Self::Directory => 0o755,
            Self::Symlink(_) => 0o777,
            Self::BlockDevice(_) | Self::CharDevice(_) => 0o600,
            Self::Unchanged | Self::File(_) | Self::Fifo | Self::Socket => 0o644,
        }
    }
}

impl<'a> TreeEntry<'a> {
    fn new(kind: EntryKind<'a>) -> Self {
        Self {
            kind,
            permissions: None,
            owner: None,
            mtime: None,
            xattrs: Vec::new(),
        }
    }

    /// A file with these bytes.
    pub fn file(bytes: impl Into<Vec<u8>>) -> Self {
        Self::from_source(bytes.into())
    }

    /// A file with the bytes of `source`: an open [`File`](std::fs::File), or the
    /// [`FileReader`](crate::FileReader) of a file in another image.
    ///
    /// The writer reads them when it packs the tree, maybe more than once and from several threads.
    /// Nothing is copied before. The bytes must stay the same; another length is an error.
    pub fn from_source(source: impl ByteSource + 'static) -> Self {
        Self::new(EntryKind::File(Contents::Source(Box::new(source))))
    }

    /// A file with the bytes that `reader` gives, to its end.
    ///
    /// The builder reads them when it adds the entry, and keeps them in a temporary file; see
    /// [`TreeBuilder::spool_in`](crate::TreeBuilder::spool_in).
    ///
    /// ```
    /// use brisk_image::{TreeBuilder, TreeEntry};
    ///
    /// # fn main() -> brisk_image::Result<()> {
    /// # let mut download: &[u8] = b"bytes";
    /// let mut tree = TreeBuilder::new();
    /// tree.add("model.bin", TreeEntry::from_reader(&mut download))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_reader(reader: impl Read + 'a) -> Self {
        Self::new(EntryKind::File(Contents::Reader(Box::new(reader))))
    }

    /// A directory.
    pub fn directory() -> Self {
        Self::new(EntryKind::Directory)
    }

    /// A symbolic link to `target`, which is stored as it is.
    pub fn symlink(target: impl Into<OsString>) -> Self {
        Self::new(EntryKind::Symlink(target.into()))
    }

    /// A block device.
    pub fn block_device(major: u32, minor: u32) -> Self {
        Self::new(EntryKind::BlockDevice(Device { major, minor }))
    }

    /// A character device.
    pub fn char_device(major: u32, minor: u32) -> Self {
        Self::new(EntryKind::CharDevice(Device { major, minor }))
    }

    /// A named pipe.
    pub fn fifo() -> Self {
        Self::new(EntryKind::Fifo)
    }

    /// The name of a socket.
    pub fn socket() -> Self {
        Self::new(EntryKind::Socket)
    }

    /// The thing that is there already, for a [`TreeBuilder::replace`](crate::TreeBuilder::replace)
    /// that changes only attributes.
    pub fn unchanged() -> Self {
        Self::new(EntryKind::Unchanged)
    }

    /// The lower twelve bits of the mode: permissions, set-user-id, set-group-id and sticky.
    pub fn permissions(mut self, permissions: u16) -> Self {
        self.permissions = Some(permissions);
        self
    }

    /// The user and the group that it belongs to.
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = Some((uid, gid));
        self
    }

    /// When its contents were last changed, in seconds since 1970.
    pub fn mtime(mut self, seconds: u32) -> Self {
        self.mtime = Some(seconds);
        self
    }

    /// The permissions, the owner and the time of `inode`, which may be in any image.
    pub fn like(self, inode: &Inode) -> Self {
        self.permissions(inode.permissions())
            .owner(inode.uid(), inode.gid())
            .mtime(inode.mtime())
    }

    /// An extended attribute: `name` starts with `user.`, `trusted.` or `security.`.
    pub fn xattr(mut self, name: impl Into<OsString>, value: impl Into<Vec<u8>>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.xattrs.push(Xattr { name, value });
        self
    }

    /// The attributes of this entry, and those of `others` for what it does not set.
    pub(super) fn attributes(&self, others: Attributes) -> Result<Attributes> {
        let permissions = self.permissions.unwrap_or(others.permissions);
        if permissions > 0o7777 {
            return Err(Error::input(format!(
                "permissions are {permissions:#o}, allowed are 0 to 0o7777"
            )));
        }
        let (uid, gid) = self.owner.unwrap_or((others.uid, others.gid));
        Ok(Attributes {
            permissions,
            uid,
            gid,
            mtime: self.mtime.unwrap_or(others.mtime),
        })
    }
}

impl fmt::Debug for TreeEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind: &dyn fmt::Debug = match &self.kind {
            EntryKind::Unchanged => &"unchanged",
            EntryKind::Directory => &"directory",
            EntryKind::File(_) => &"file",
            EntryKind::Symlink(target) => target,
            EntryKind::BlockDevice(device) | EntryKind::CharDevice(device) => device,
            EntryKind::Fifo => &"fifo",
            EntryKind::Socket => &"socket",
        };
        f.debug_struct("TreeEntry")
            .field("kind", kind)
            .field("permissions", &self.permissions)
            .field("owner", &self.owner)
            .field("mtime", &self.mtime)
            .field("xattrs", &self.xattrs)
            .finish()
    }
}
