//! Extended attributes: keys and values in metadata blocks, and the sets that inodes point to.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Allowed, Error, Location, Result};

/// Behind the superblock's xattr table start; the list of the metadata blocks of [`Set`]s follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct TableHeader {
    /// Where the first metadata block of keys and values is stored.
    pub(crate) pairs_start: U64,
    pub(crate) count: U32,
    pub(crate) unused: U32,
}

/// The attributes of one inode, or of several that have the same.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Set {
    /// The first key: its metadata block from `pairs_start`, shifted by 16, and the byte in it.
    pub(crate) pairs: U64,
    pub(crate) count: U32,
    /// Bytes of all keys and values as they stand in the decoded blocks.
    pub(crate) len: U32,
}

/// In front of a name without its prefix.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Key {
    pub(crate) kind: U16,
    pub(crate) name_len: U16,
}

/// In front of a value, or of the 8-byte reference to one.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Value {
    pub(crate) len: U32,
}

/// Set in [`Key::kind`] if the value stands elsewhere and only a reference follows.
pub(crate) const OUT_OF_LINE: u16 = 0x100;

/// Bytes of the longest value Linux allows.
pub(crate) const MAX_VALUE: u32 = 65_536;

/// Bytes of the longest name that Linux allows, with its prefix.
pub(crate) const MAX_NAME: usize = 255;

/// Bytes of all names of an inode at most, each with a zero behind it: Linux's `XATTR_LIST_MAX`.
pub(crate) const MAX_NAMES: usize = 65_536;

/// The prefixes that SquashFS can store, by their number.
pub(crate) const PREFIXES: [&str; 3] = ["user.", "trusted.", "security."];

/// The prefix that `kind` stands for, and whether the value stands elsewhere.
pub(crate) fn parse_kind(kind: u16, at: Location) -> Result<(&'static str, bool)> {
    let prefix = usize::from(kind & !OUT_OF_LINE);
    match PREFIXES.get(prefix) {
        Some(prefix) => Ok((prefix, kind & OUT_OF_LINE != 0)),
        None => Err(Error::field(
            at,
            "xattr type",
            kind,
            Allowed::Text("0 to 2, with or without bit 8"),
        )),
    }
}

/// The number of the prefix of `name`, and the rest of it; none if SquashFS cannot store it.
pub(crate) fn split_name(name: &[u8]) -> Option<(u16, &[u8])> {
    PREFIXES.iter().zip(0u16..).find_map(|(prefix, kind)| {
        let rest = name.strip_prefix(prefix.as_bytes())?;
        (!rest.is_empty()).then_some((kind, rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        assert_eq!(split_name(b"user.a"), Some((0, b"a".as_slice())));
        assert_eq!(
            split_name(b"security.capability"),
            Some((2, b"capability".as_slice()))
        );
        assert_eq!(split_name(b"user."), None);
        assert_eq!(split_name(b"system.posix_acl_access"), None);
        assert_eq!(
            parse_kind(0x101, Location::Byte(0)).unwrap(),
            ("trusted.", true)
        );
        assert_eq!(
            parse_kind(3, Location::Byte(9)).unwrap_err().to_string(),
            "corrupt image at byte 9: xattr type is 3, allowed is 0 to 2, with or without bit 8"
        );
    }

    #[test]
    fn sizes_are_those_of_the_kernel() {
        assert_eq!(size_of::<TableHeader>(), 16);
        assert_eq!(size_of::<Set>(), 16);
        assert_eq!(size_of::<Key>(), 4);
        assert_eq!(size_of::<Value>(), 4);
    }
}
