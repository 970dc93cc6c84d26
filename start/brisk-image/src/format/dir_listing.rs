//! Directory listings: runs of entries behind headers, sorted by name.

use zerocopy::little_endian::{I16, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Allowed, Corrupt, Error, Location, Result};

/// What the stored length of a listing is greater than the listing: "." and ".." are not stored.
pub(crate) const UNSTORED: u32 = 3;

/// Entries behind one header at most.
pub(crate) const MAX_RUN: u32 = 256;

/// Bytes in a name at most.
pub(crate) const MAX_NAME: usize = 256;

/// In front of up to 256 entries whose inodes start in the same metadata block.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    /// Entries that follow, less one.
    pub(crate) count: U32,
    /// Where the metadata block of the inodes is stored, from the start of the inode table.
    pub(crate) inode_block: U32,
    /// The number that those in the entries are relative to.
    pub(crate) inode_number: U32,
}

/// One entry; its name follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Entry {
    pub(crate) inode_offset: U16,
    pub(crate) number_delta: I16,
    pub(crate) kind: U16,
    /// Bytes of the name, less one.
    pub(crate) name_len: U16,
}

/// One entry of the index of an extended directory; its name follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DirIndex {
    /// Bytes of the listing before the header that this points to.
    pub(crate) listing_pos: U32,
    /// Where the metadata block with the header is stored, from the start of the directory table.
    pub(crate) block: U32,
    /// Bytes of the name, less one.
    pub(crate) name_len: U32,
}

impl Header {
    /// Entries that follow.
    pub(crate) fn entries(&self, at: Location) -> Result<u32> {
        let count = self.count.get();
        if count >= MAX_RUN {
            return Err(Error::field(
                at,
                "entry count less one of a directory header",
                count,
                Allowed::AtMost(255),
            ));
        }
        Ok(count.saturating_add(1))
    }
}

/// Checks a name found at `at`, the entry after that of `previous` (empty for the first).
pub(crate) fn check_name(name: &[u8], previous: &[u8], at: Location) -> Result<()> {
    let fault = if name.is_empty() {
        "is empty"
    } else if name.len() > MAX_NAME {
        "is longer than 256 bytes"
    } else if name.contains(&b'/') {
        "holds a slash"
    } else if name.contains(&0) {
        "holds a NUL"
    } else if name == b"." || name == b".." {
        "is reserved"
    } else if name <= previous {
        "does not sort after the name before it"
    } else {
        return Ok(());
    };
    Err(Error::corrupt(
        at,
        Corrupt::Name {
            name: name.to_vec(),
            why: fault,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_kernel() {
        assert_eq!(size_of::<Header>(), 12);
        assert_eq!(size_of::<Entry>(), 8);
        assert_eq!(size_of::<DirIndex>(), 12);
    }

    #[test]
    fn names_that_no_directory_may_hold() {
        let at = Location::Byte(7);
        check_name(b"a", b"", at).unwrap();
        check_name(b"...", b"", at).unwrap();
        check_name(b"\xff\n", b"b", at).unwrap();
        check_name(&[b'x'; 256], b"a", at).unwrap();
        let table: &[(&[u8], &[u8], &str)] = &[
            (b"", b"", "name \"\" is empty"),
            (b"a/b", b"", "name \"a/b\" holds a slash"),
            (b"a\0", b"", "name \"a\\x00\" holds a NUL"),
            (b".", b"", "name \".\" is reserved"),
            (b"..", b"", "name \"..\" is reserved"),
            (
                b"a",
                b"a",
                "name \"a\" does not sort after the name before it",
            ),
            (
                b"a",
                b"b",
                "name \"a\" does not sort after the name before it",
            ),
        ];
        for (name, previous, message) in table {
            let e = check_name(name, previous, at).unwrap_err();
            assert_eq!(e.to_string(), format!("corrupt image at byte 7: {message}"));
        }
        assert!(check_name(&[b'x'; 257], b"", at).is_err());
    }
}
