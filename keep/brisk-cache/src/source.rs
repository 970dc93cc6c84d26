use std::fs::File;
use std::io;

use brisk_io::{AppendOnlyMapping, ByteSource, Mapping};

/// Where the bytes of a file come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A mapping from which published ranges may be borrowed.
    Published(AppendOnlyMapping),
    /// A mapping from which bytes are copied.
    Copied(Mapping),
    /// Reads, on filesystems whose mappings nobody trusts.
    Read(File),
}

impl Source {
    /// Takes the pages of a mapping out of the page table. They stay in the page cache.
    pub(crate) fn release(&self) -> io::Result<()> {
        match self {
            Self::Published(mapping) => mapping.release(),
            Self::Copied(mapping) => mapping.release(),
            Self::Read(_) => Ok(()),
        }
    }
}

impl ByteSource for Source {
    #[inline]
    fn size(&self) -> io::Result<u64> {
        match self {
            Self::Published(mapping) => mapping.size(),
            Self::Copied(mapping) => mapping.size(),
            Self::Read(file) => ByteSource::size(file),
        }
    }

    #[inline(always)]
    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Published(mapping) => mapping.read_bytes_at(offset, buf),
            Self::Copied(mapping) => mapping.read_bytes_at(offset, buf),
            Self::Read(file) => ByteSource::read_bytes_at(file, offset, buf),
        }
    }
}
