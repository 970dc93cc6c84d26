//! Inodes of an image as nodes of a file system.

use std::ops::Range;

use brisk_image::inode::Device;
use brisk_image::{FileReader, Image, Inode, InodeKind, InodeRef};
use rustix::fs::makedev;
use rustix::io::Errno;
use zerocopy::FromZeros;

use super::owners::Owners;
use super::wire::{Attr, AttrOut, EntryOut, ROOT};
use crate::remote::Absent;

/// The number of seconds that means forever.
pub(super) const FOR_EVER: u64 = u64::MAX;

/// The kernel's SquashFS adds this many bytes to the length of each listing, for "." and "..".
const UNSTORED: u64 = 3;

/// The most stored bytes of a file that is fetched whole at the first miss: at 100 Mbit/s, 50 ms are 600 KB.
const SMALL: u64 = 256 << 10;

/// Why a request cannot be answered.
pub(super) enum Fail {
    /// An error of the request itself, or an answer that is an errno.
    Errno(Errno),
    /// A fault of the image. The reader gets EIO.
    Image(brisk_image::Error),
    /// This has not arrived. The request waits.
    Absent(Absent),
}

impl From<Errno> for Fail {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<brisk_image::Error> for Fail {
    fn from(error: brisk_image::Error) -> Self {
        match Absent::of(&error) {
            Some(absent) => Self::Absent(absent.clone()),
            None => Self::Image(error),
        }
    }
}

impl Fail {
    /// The same for a read of a file: a small file is fetched whole, because another wait would take longer.
    pub(super) fn of_file(self, file: &FileReader) -> Self {
        match self {
            Self::Absent(mut absent) => {
                absent.bytes = whole_if_small(absent.bytes, file.stored_at(0..u64::MAX));
                Self::Absent(absent)
            }
            other => other,
        }
    }
}

/// `absent`, or if little is stored of its file, all of that. `blocks` are where the file is stored.
fn whole_if_small(absent: Range<u64>, blocks: Vec<Range<u64>>) -> Range<u64> {
    // The end of the file may be in a block that other files share, far away.
    let near = |block: &&Range<u64>| block.start.abs_diff(absent.start) <= SMALL;
    let near = blocks.iter().filter(near);
    let (start, end) = near.fold((absent.start, absent.end), |(start, end), block| {
        (start.min(block.start), end.max(block.end))
    });
    match end.saturating_sub(start) <= SMALL {
        true => start..end,
        false => absent,
    }
}

/// Finds inodes by their node numbers, and describes them to the kernel.
///
/// 1. Node 1 is the root directory. A larger node `n` is the inode at the reference `n - 2`. So a number
///    means the same to every server of an image, and no node is 0.
#[derive(Clone, Copy)]
pub(super) struct Nodes<'a> {
    pub(super) image: &'a Image,
    pub(super) owners: Owners,
}

impl Nodes<'_> {
    /// The inode of a node. ESTALE if no node has this number.
    pub(super) fn inode(&self, nodeid: u64) -> Result<Inode, Fail> {
        if nodeid == ROOT {
            return Ok(self.image.root()?);
        }
        let reference = nodeid.checked_sub(ROOT + 1).and_then(InodeRef::from_word);
        Ok(self.image.inode(reference.ok_or(Errno::STALE)?)?)
    }

    pub(super) fn directory(&self, nodeid: u64) -> Result<Inode, Fail> {
        let inode = self.inode(nodeid)?;
        match inode.is_dir() {
            true => Ok(inode),
            false => Err(Errno::NOTDIR.into()),
        }
    }

    /// The contents of a file.
    pub(super) fn file(&self, nodeid: u64) -> Result<FileReader, Fail> {
        let inode = self.inode(nodeid)?;
        match inode.kind() {
            InodeKind::File(_) => Ok(self.image.file(&inode)?),
            InodeKind::Directory(_) => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn nodeid(&self, inode: &Inode) -> u64 {
        let reference = inode.reference();
        if reference == self.image.root_reference() {
            return ROOT;
        }
        node_of(reference)
    }

    pub(super) fn entry(&self, inode: &Inode) -> EntryOut {
        EntryOut {
            nodeid: self.nodeid(inode),
            generation: 0,
            entry_valid: FOR_EVER,
            attr_valid: FOR_EVER,
            entry_valid_nsec: 0,
            attr_valid_nsec: 0,
            attr: self.attr(inode),
        }
    }

    pub(super) fn attr_out(&self, inode: &Inode) -> AttrOut {
        AttrOut {
            attr_valid: FOR_EVER,
            attr_valid_nsec: 0,
            dummy: 0,
            attr: self.attr(inode),
        }
    }

    /// The attributes as the kernel's SquashFS shows them, except for the block size: programs fill buffers
    /// of that size, so a launch would ask for whole blocks when it needs only their start.
    fn attr(&self, inode: &Inode) -> Attr {
        let (uid, gid) = match self.owners {
            Owners::AsStored => (inode.uid(), inode.gid()),
            Owners::Everything { uid, gid } => (uid, gid),
        };
        let (size, blocks) = match inode.kind() {
            InodeKind::Directory(dir) => (u64::from(dir.listing_len()) + UNSTORED, 0),
            InodeKind::File(file) => (
                file.len(),
                file.len().saturating_sub(file.sparse()).div_ceil(512),
            ),
            _ => (inode.len(), 0),
        };
        let rdev = match inode.kind() {
            InodeKind::BlockDevice(device) | InodeKind::CharDevice(device) => wire_rdev(*device),
            _ => 0,
        };
        let time = u64::from(inode.mtime());
        Attr {
            ino: inode.number().into(),
            size,
            blocks,
            atime: time,
            mtime: time,
            ctime: time,
            atimensec: 0,
            mtimensec: 0,
            ctimensec: 0,
            mode: inode.file_type().mode_bits() | u32::from(inode.permissions()),
            nlink: inode.nlink(),
            uid,
            gid,
            rdev,
            blksize: BUFFER,
            flags: 0,
        }
    }
}

/// The node of the inode at this reference, unless it is the root directory: see [`Nodes`].
pub(super) fn node_of(reference: InodeRef) -> u64 {
    // A readable inode is inside of the image, so this cannot overflow.
    reference.to_word().saturating_add(ROOT + 1)
}

/// The block size for programs, which is the least that they read at once: a page, as on other file systems.
const BUFFER: u32 = 4096;

/// The answer that a name is absent, and will stay so.
pub(super) fn no_entry() -> EntryOut {
    EntryOut {
        entry_valid: FOR_EVER,
        ..EntryOut::new_zeroed()
    }
}

/// The device number in the kernel's 32-bit form (`new_encode_dev`). Numbers that do not fit belong to no
/// device.
pub(super) fn wire_rdev(device: Device) -> u32 {
    // The lower half of glibc's form is the kernel's form.
    (makedev(device.major, device.minor) & u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_fetched_whole() {
        const BLOCK: u64 = 100 << 10;
        let blocks = |count: u64| -> Vec<_> {
            let starts = (0..count).map(|i| (7 << 20) + i * BLOCK);
            starts.map(|start| start..start + BLOCK).collect()
        };
        let second = (7 << 20) + BLOCK..(7 << 20) + 2 * BLOCK;
        let with = |mut blocks: Vec<Range<u64>>, other| {
            blocks.push(other);
            blocks
        };
        for (blocks, fetched) in [
            (blocks(2), 7 << 20..second.end),
            (blocks(3), second.clone()),
            (blocks(200), second.clone()),
            // Its end is in a block that it shares.
            (with(blocks(2), 90 << 20..91 << 20), 7 << 20..second.end),
            (Vec::new(), second.clone()),
        ] {
            assert_eq!(whole_if_small(second.clone(), blocks), fetched);
        }
    }
}
