//! The 96 bytes at the start of an image.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::metadata::{MetaRef, most_decoded};
use super::table::{Fragment, TableShape};
use crate::codec::Codec;
use crate::error::{Allowed, Corrupt, Error, Location, Result, Unsupported};

/// "hsqs", read little-endian.
pub(crate) const MAGIC: u32 = 0x7371_7368;

/// A table that is not there.
pub(crate) const NO_TABLE: u64 = u64::MAX;

/// The flag bits of a superblock.
pub(crate) mod flag {
    pub(crate) const RAW_INODES: u16 = 0x0001;
    pub(crate) const RAW_DATA: u16 = 0x0002;
    pub(crate) const RAW_FRAGMENTS: u16 = 0x0008;
    pub(crate) const NO_FRAGMENTS: u16 = 0x0010;
    pub(crate) const ALWAYS_FRAGMENTS: u16 = 0x0020;
    pub(crate) const DEDUPLICATED: u16 = 0x0040;
    pub(crate) const EXPORTABLE: u16 = 0x0080;
    pub(crate) const RAW_XATTRS: u16 = 0x0100;
    pub(crate) const NO_XATTRS: u16 = 0x0200;
    pub(crate) const CODEC_OPTIONS: u16 = 0x0400;
    pub(crate) const RAW_IDS: u16 = 0x0800;
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Wire {
    pub(crate) magic: U32,
    pub(crate) inode_count: U32,
    pub(crate) mkfs_time: U32,
    pub(crate) block_size: U32,
    pub(crate) fragment_count: U32,
    pub(crate) compressor: U16,
    pub(crate) block_log: U16,
    pub(crate) flags: U16,
    pub(crate) id_count: U16,
    pub(crate) major: U16,
    pub(crate) minor: U16,
    pub(crate) root_inode: U64,
    pub(crate) bytes_used: U64,
    pub(crate) id_table: U64,
    pub(crate) xattr_table: U64,
    pub(crate) inode_table: U64,
    pub(crate) directory_table: U64,
    pub(crate) fragment_table: U64,
    pub(crate) export_table: U64,
}

/// A superblock that passed every check needing no other part of the image.
///
/// 1. `bytes_used` is in `96..=` the length of the image.
/// 2. `block_size` is `1 << block_log`, and `block_log` is in `12..=20`.
/// 3. `96 <= inode_table < directory_table < bytes_used`.
/// 4. `id_table`, and of `fragment_table`, `export_table` and `xattr_table` those that are there,
///    are in `directory_table..bytes_used`.
/// 5. `id_count >= 1`.
/// 6. `fragment_table` is there if `fragment_count > 0`.
/// 7. The image has room for the list of the fragment table, and for a byte of each fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    codec: Codec,
    inode_count: u32,
    mkfs_time: u32,
    block_log: u16,
    fragment_count: u32,
    flags: u16,
    id_count: u16,
    root_inode: MetaRef,
    bytes_used: u64,
    id_table: u64,
    xattr_table: Option<u64>,
    inode_table: u64,
    directory_table: u64,
    fragment_table: Option<u64>,
    export_table: Option<u64>,
}

impl Superblock {
    /// Bytes of a superblock.
    pub(crate) const LEN: usize = size_of::<Wire>();

    /// Checks the first [`Superblock::LEN`] bytes of an image of `image_len` bytes.
    pub(crate) fn parse(bytes: &[u8; Self::LEN], image_len: u64) -> Result<Self> {
        let raw: Wire = zerocopy::transmute!(*bytes);
        let magic = raw.magic.get();
        if magic != MAGIC {
            return Err(Error::corrupt(
                Location::Byte(0),
                Corrupt::Magic { found: magic },
            ));
        }
        let (major, minor) = (raw.major.get(), raw.minor.get());
        if (major, minor) != (4, 0) {
            return Err(Error::unsupported(Unsupported::Version { major, minor }));
        }
        let id = raw.compressor.get();
        let codec = Codec::from_wire(id)
            .ok_or_else(|| Error::unsupported(Unsupported::Compressor { id }))?;
        // The log is stored as a check on the size. Both come from the file, so the log is bounded
        // before it is shifted by.
        let (size, log) = (raw.block_size.get(), raw.block_log.get());
        if !(12..=20).contains(&log) || 1u32.checked_shl(log.into()) != Some(size) {
            return Err(Error::corrupt(
                Location::Byte(12),
                Corrupt::BlockSize { size, log },
            ));
        }
        let bytes_used = raw.bytes_used.get();
        if bytes_used > image_len {
            return Err(Error::corrupt(
                Location::Byte(40),
                Corrupt::Truncated {
                    what: "the image",
                    need: bytes_used,
                    have: image_len,
                },
            ));
        }
        let inode_table = raw.inode_table.get();
        let directory_table = raw.directory_table.get();
        // An image has a root, so an inode table of at least one block, and a byte of tables after.
        let within = |at, field, found: u64, from: u64, below: u64| match below.checked_sub(1) {
            Some(last) if (from..=last).contains(&found) => Ok(found),
            Some(last) if from <= last => Err(Error::field(
                Location::Byte(at),
                field,
                found,
                Allowed::Range(from, last),
            )),
            _ => Err(Error::field(
                Location::Byte(at),
                field,
                found,
                Allowed::Text("nothing"),
            )),
        };
        within(72, "directory table start", directory_table, 97, bytes_used)?;
        within(64, "inode table start", inode_table, 96, directory_table)?;
        let id_table = raw.id_table.get();
        within(48, "id table start", id_table, directory_table, bytes_used)?;
        let optional = |at, field, found: u64| match found {
            NO_TABLE => Ok(None),
            _ => within(at, field, found, directory_table, bytes_used).map(Some),
        };
        let xattr_table = optional(56, "xattr table start", raw.xattr_table.get())?;
        let fragment_table = optional(80, "fragment table start", raw.fragment_table.get())?;
        let export_table = optional(88, "export table start", raw.export_table.get())?;
        let fragment_count = raw.fragment_count.get();
        if fragment_count > 0 && fragment_table.is_none() {
            return Err(Error::field(
                Location::Byte(16),
                "fragment count of an image without a fragment table",
                fragment_count,
                Allowed::Only(0),
            ));
        }
        // Each has a stored byte at least, and its entry is found through the list.
        let fragments = TableShape {
            count: fragment_count.into(),
            entry_len: size_of::<Fragment>(),
        };
        let room = fragment_table.map_or(0, |at| bytes_used.saturating_sub(at));
        let listed = fragments.entries_of_list(room);
        let most = listed.min(bytes_used);
        if u64::from(fragment_count) > most {
            return Err(Error::field(
                Location::Byte(16),
                "fragment count",
                fragment_count,
                Allowed::AtMost(most),
            ));
        }
        let id_count = raw.id_count.get();
        if id_count == 0 {
            return Err(Error::field(
                Location::Byte(26),
                "id count",
                id_count,
                Allowed::Range(1, 65_535),
            ));
        }
        let root_inode = MetaRef::parse(
            raw.root_inode.get(),
            Location::Byte(32),
            "root inode reference",
        )?;
        Ok(Self {
            codec,
            inode_count: raw.inode_count.get(),
            mkfs_time: raw.mkfs_time.get(),
            block_log: log,
            fragment_count,
            flags: raw.flags.get(),
            id_count,
            root_inode,
            bytes_used,
            id_table,
            xattr_table,
            inode_table,
            directory_table,
            fragment_table,
            export_table,
        })
    }

    pub(crate) fn codec(&self) -> Codec {
        self.codec
    }

    /// Inodes, the hard-linked ones counted once.
    pub(crate) fn inode_count(&self) -> u32 {
        self.inode_count
    }

    /// When the image was made, in seconds since 1970.
    pub(crate) fn mkfs_time(&self) -> u32 {
        self.mkfs_time
    }

    /// Bytes in a data block: a power of two from 4096 to 1048576.
    pub(crate) fn block_size(&self) -> u32 {
        // Invariant 2 bounds the shift.
        1u32.checked_shl(self.block_log.into()).unwrap_or(u32::MAX)
    }

    pub(crate) fn fragment_count(&self) -> u32 {
        self.fragment_count
    }

    pub(crate) fn flags(&self) -> u16 {
        self.flags
    }

    /// True if inodes, listings and the contents of files are stored as they are.
    ///
    /// The flags of the xattr and id tables do not count: mksquashfs leaves the latter unset even where
    /// the table is stored as it is.
    pub(crate) fn is_raw(&self) -> bool {
        let raw = flag::RAW_INODES | flag::RAW_DATA | flag::RAW_FRAGMENTS;
        self.flags & raw == raw
    }

    /// True if a bit of [`flag`] is set.
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn id_count(&self) -> u16 {
        self.id_count
    }

    pub(crate) fn root_inode(&self) -> MetaRef {
        self.root_inode
    }

    /// Bytes of the image; what follows is padding or sections.
    pub(crate) fn bytes_used(&self) -> u64 {
        self.bytes_used
    }

    pub(crate) fn id_table(&self) -> u64 {
        self.id_table
    }

    pub(crate) fn xattr_table(&self) -> Option<u64> {
        self.xattr_table
    }

    pub(crate) fn inode_table(&self) -> u64 {
        self.inode_table
    }

    pub(crate) fn directory_table(&self) -> u64 {
        self.directory_table
    }

    /// The first byte after the directory table that surely belongs to another table's index.
    pub(crate) fn directory_table_end(&self) -> u64 {
        [
            Some(self.id_table),
            self.fragment_table,
            self.export_table,
            self.xattr_table,
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(self.bytes_used)
    }

    /// Bytes that the inode table decodes to at most.
    pub(crate) fn most_inode_bytes(&self) -> u64 {
        most_decoded(self.directory_table.saturating_sub(self.inode_table))
    }

    /// Bytes that the directory table decodes to at most.
    pub(crate) fn most_listing_bytes(&self) -> u64 {
        let end = self.directory_table_end();
        most_decoded(end.saturating_sub(self.directory_table))
    }

    pub(crate) fn fragment_table(&self) -> Option<u64> {
        self.fragment_table
    }

    pub(crate) fn export_table(&self) -> Option<u64> {
        self.export_table
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A superblock of an image of 4096 bytes that passes every check.
    pub(crate) fn valid() -> Wire {
        Wire {
            magic: MAGIC.into(),
            inode_count: 1.into(),
            mkfs_time: 0.into(),
            block_size: 131_072.into(),
            fragment_count: 0.into(),
            compressor: 6.into(),
            block_log: 17.into(),
            flags: 0.into(),
            id_count: 1.into(),
            major: 4.into(),
            minor: 0.into(),
            root_inode: 0.into(),
            bytes_used: 300.into(),
            id_table: 250.into(),
            xattr_table: NO_TABLE.into(),
            inode_table: 96.into(),
            directory_table: 150.into(),
            fragment_table: NO_TABLE.into(),
            export_table: NO_TABLE.into(),
        }
    }

    fn parse(wire: &Wire) -> Result<Superblock> {
        let bytes: [u8; Superblock::LEN] = zerocopy::transmute!(*wire);
        Superblock::parse(&bytes, 4096)
    }

    #[test]
    fn is_96_bytes_and_a_valid_one_passes() {
        assert_eq!(Superblock::LEN, 96);
        let sb = parse(&valid()).unwrap();
        assert_eq!((sb.codec(), sb.block_size()), (Codec::Zstd, 131_072));
    }

    #[test]
    fn each_field_is_checked() {
        type Change = fn(&mut Wire);
        let table: &[(Change, &str)] = &[
            (
                |w| w.magic = 0x1234.into(),
                "corrupt image at byte 0: magic number is 0x00001234, allowed is 0x73717368 (SquashFS, little-endian)",
            ),
            (
                |w| w.major = 3.into(),
                "SquashFS version 3.0 is not supported, only 4.0 is; unpack it with the tool that made it and pack it again",
            ),
            (
                |w| w.compressor = 2.into(),
                "compressor lzma (id 2) is not supported: no kernel since 2.6.38 reads it; repack the image with another codec",
            ),
            (
                |w| w.compressor = 7.into(),
                "compressor id 7 is not supported, only 1 (gzip), 3 (lzo), 4 (xz), 5 (lz4) and 6 (zstd) are",
            ),
            (
                |w| w.block_log = 11.into(),
                "corrupt image at byte 12: block size is 131072 but its log is 11",
            ),
            (
                |w| w.block_log = 65535.into(),
                "corrupt image at byte 12: block size is 131072 but its log is 65535",
            ),
            (
                |w| w.bytes_used = 4097.into(),
                "corrupt image at byte 40: the image needs 4097 bytes, 4096 are left",
            ),
            (
                |w| w.bytes_used = 0.into(),
                "corrupt image at byte 72: directory table start is 150, allowed is nothing",
            ),
            (
                |w| w.bytes_used = 97.into(),
                "corrupt image at byte 72: directory table start is 150, allowed is nothing",
            ),
            (
                |w| w.directory_table = u64::MAX.into(),
                "corrupt image at byte 72: directory table start is 18446744073709551615, allowed is 97 to 299",
            ),
            (
                |w| w.inode_table = 95.into(),
                "corrupt image at byte 64: inode table start is 95, allowed is 96 to 149",
            ),
            (
                |w| w.id_table = 300.into(),
                "corrupt image at byte 48: id table start is 300, allowed is 150 to 299",
            ),
            (
                |w| w.export_table = 3.into(),
                "corrupt image at byte 88: export table start is 3, allowed is 150 to 299",
            ),
            (
                |w| w.fragment_count = 1.into(),
                "corrupt image at byte 16: fragment count of an image without a fragment table is 1, allowed is 0",
            ),
            (
                |w| w.id_count = 0.into(),
                "corrupt image at byte 26: id count is 0, allowed is 1 to 65535",
            ),
            (
                |w| w.root_inode = 0xffff.into(),
                "corrupt image at byte 32: root inode reference is 65535, allowed is at most 8191",
            ),
        ];
        for (change, message) in table {
            let mut wire = valid();
            change(&mut wire);
            assert_eq!(parse(&wire).unwrap_err().to_string(), *message);
        }
    }
}
