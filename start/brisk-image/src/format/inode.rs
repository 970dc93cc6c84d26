//! The fourteen kinds of inode, as they stand in the inode table.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Allowed, Error, Location, Result};

/// No shared block, or no xattrs.
pub(crate) const NONE: u32 = u32::MAX;

/// The longest target of a symbolic link: what `symlink` makes and `readlink` gives on Linux, which
/// counts a final NUL. Its own SquashFS refuses one that is longer than a page.
pub(crate) const MAX_TARGET: u32 = 4095;

/// The type of an inode on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireType {
    /// What it is.
    pub(crate) kind: FileType,
    /// Whether the longer form is stored.
    pub(crate) extended: bool,
}

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileType {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharDevice,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
}

impl FileType {
    const ALL: [Self; 7] = [
        Self::Directory,
        Self::File,
        Self::Symlink,
        Self::BlockDevice,
        Self::CharDevice,
        Self::Fifo,
        Self::Socket,
    ];

    /// What a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::File => "file",
            Self::Symlink => "symbolic link",
            Self::BlockDevice => "block device",
            Self::CharDevice => "character device",
            Self::Fifo => "named pipe",
            Self::Socket => "socket",
        }
    }

    /// The bits of the type in `st_mode` (`man 7 inode`).
    pub fn mode_bits(self) -> u32 {
        match self {
            Self::Directory => 0o040_000,
            Self::File => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::BlockDevice => 0o060_000,
            Self::CharDevice => 0o020_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
        }
    }

    /// The number in a directory entry, which is also that of the short form of the inode.
    pub(crate) fn to_wire(self) -> u16 {
        match self {
            Self::Directory => 1,
            Self::File => 2,
            Self::Symlink => 3,
            Self::BlockDevice => 4,
            Self::CharDevice => 5,
            Self::Fifo => 6,
            Self::Socket => 7,
        }
    }

    /// Reads the type in a directory entry.
    pub(crate) fn from_entry(word: u16, at: Location) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.to_wire() == word)
            .ok_or_else(|| {
                Error::field(at, "type in a directory entry", word, Allowed::Range(1, 7))
            })
    }
}

impl WireType {
    pub(crate) fn parse(word: u16, at: Location) -> Result<Self> {
        let (short, extended) = match word {
            8..=14 => (word.wrapping_sub(7), true),
            _ => (word, false),
        };
        FileType::ALL
            .into_iter()
            .find(|kind| kind.to_wire() == short)
            .map(|kind| Self { kind, extended })
            .ok_or_else(|| Error::field(at, "inode type", word, Allowed::Range(1, 14)))
    }

    pub(crate) fn encode(self) -> u16 {
        self.kind
            .to_wire()
            .saturating_add(if self.extended { 7 } else { 0 })
    }
}

macro_rules! wire {
    ($($(#[$doc:meta])* struct $name:ident { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }
    )*};
}

wire! {
    /// In front of every inode.
    struct Common {
        kind: U16,
        mode: U16,
        uid_index: U16,
        gid_index: U16,
        mtime: U32,
        number: U32,
    }
    /// Type 1.
    struct Directory {
        listing_block: U32,
        nlink: U32,
        listing_len: U16,
        listing_offset: U16,
        parent: U32,
    }
    /// Type 8; `index_count` [`DirIndex`](super::dir_listing::DirIndex) entries follow.
    struct ExtDirectory {
        nlink: U32,
        listing_len: U32,
        listing_block: U32,
        parent: U32,
        index_count: U16,
        listing_offset: U16,
        xattr: U32,
    }
    /// Type 2; the words of the blocks follow.
    struct File {
        blocks_start: U32,
        fragment: U32,
        fragment_offset: U32,
        len: U32,
    }
    /// Type 9; the words of the blocks follow.
    struct ExtFile {
        blocks_start: U64,
        len: U64,
        sparse: U64,
        nlink: U32,
        fragment: U32,
        fragment_offset: U32,
        xattr: U32,
    }
    /// Types 3 and 10; the target follows, and for type 10 the xattr index after it.
    struct Symlink {
        nlink: U32,
        target_len: U32,
    }
    /// Types 4, 5, 11 and 12; for the last two the xattr index follows.
    struct Device {
        nlink: U32,
        rdev: U32,
    }
    /// Types 6, 7, 13 and 14; for the last two the xattr index follows.
    struct Ipc {
        nlink: U32,
    }
}

/// Takes apart a device number as Linux's `new_decode_dev` does: (major, minor).
pub(crate) fn decode_rdev(rdev: u32) -> (u32, u32) {
    (
        (rdev & 0x000f_ff00) >> 8,
        (rdev & 0xff) | ((rdev >> 12) & 0x000f_ff00),
    )
}

/// The opposite of [`decode_rdev`], or none for numbers that do not fit 12 and 20 bits.
pub(crate) fn encode_rdev(major: u32, minor: u32) -> Option<u32> {
    (major < 1 << 12 && minor < 1 << 20)
        .then_some((minor & 0xff) | (major << 8) | ((minor & 0x000f_ff00) << 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fourteen_types_and_no_other() {
        for word in 1..=14 {
            let parsed = WireType::parse(word, Location::Byte(0)).unwrap();
            assert_eq!(parsed.encode(), word);
            assert_eq!(parsed.extended, word > 7);
        }
        for word in [0, 15, 0xffff] {
            let e = WireType::parse(
                word,
                Location::Decoded {
                    block: 96,
                    offset: 5,
                },
            )
            .unwrap_err();
            assert_eq!(
                e.to_string(),
                format!(
                    "corrupt image at byte 5 of the metadata block at byte 96: inode type is {word}, allowed is 1 to 14"
                )
            );
        }
        assert_eq!(
            FileType::from_entry(8, Location::Byte(0))
                .unwrap_err()
                .to_string(),
            "corrupt image at byte 0: type in a directory entry is 8, allowed is 1 to 7"
        );
    }

    #[test]
    fn device_numbers_round_trip() {
        for (major, minor) in [(0, 0), (8, 1), (254, 0xfffff), (4095, 256), (1, 3)] {
            let rdev = encode_rdev(major, minor).unwrap();
            assert_eq!(decode_rdev(rdev), (major, minor));
        }
        assert_eq!(encode_rdev(8, 1), Some(0x801));
        assert_eq!(encode_rdev(4096, 0), None);
        assert_eq!(encode_rdev(0, 1 << 20), None);
    }

    #[test]
    fn sizes_are_those_of_the_kernel() {
        assert_eq!(size_of::<Common>(), 16);
        assert_eq!(size_of::<Directory>(), 16);
        assert_eq!(size_of::<ExtDirectory>(), 24);
        assert_eq!(size_of::<File>(), 16);
        assert_eq!(size_of::<ExtFile>(), 40);
        assert_eq!(size_of::<Symlink>(), 8);
        assert_eq!(size_of::<Device>(), 8);
        assert_eq!(size_of::<Ipc>(), 4);
    }
}
