use zerocopy::little_endian::{U32, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a table begins with. What a choice looks at comes first, side by side: the distinct texts of requires-python, the
/// distinct ends of names, the bytes of both, versions, and files. Behind it are the texts of versions, prefixes, stems,
/// records, and the heap, up to the end. Texts of both kinds are in the order of the files that have them first.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) versions: U32,
    pub(crate) files: U32,
    pub(crate) tails: U32,
    pub(crate) requires: U32,
    /// Bytes of the ends of names and the texts of requires-python.
    pub(crate) texts: U32,
    pub(crate) prefixes: U32,
    pub(crate) stems: U32,
    /// Bytes of all other texts, and of records.
    pub(crate) heap: U32,
    /// Files of the page that no installer takes: by ending, project, version, form.
    pub(crate) left_out: [U32; 4],
}

/// A version: what is compared of it. Rows are sorted as PEP 440 orders versions.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct VersionRow {
    pub(crate) key: U128,
    /// Its first file. Its files end where those of the older version before it begin.
    pub(crate) first: U32,
    /// Of its key.
    pub(crate) flags: u8,
}

/// A file: what is compared of it. The files of the newest version come first.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FileRow {
    /// The distinct end of its name: the tags of a wheel, the ending of a source distribution.
    pub(crate) tail: U32,
    /// 0 if it takes every Python, or 1 more than the number of the distinct text.
    pub(crate) requires: U32,
    pub(crate) flags: u8,
}

/// Bits of [`FileRow::flags`].
pub(crate) struct FileFlags;

impl FileFlags {
    pub(crate) const YANKED: u8 = 1;
    /// The index has its metadata as a file of its own.
    pub(crate) const METADATA: u8 = 2;
}

/// A text or a record among the bytes of texts, or in the heap.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Span {
    pub(crate) start: U32,
    pub(crate) len: U32,
}
