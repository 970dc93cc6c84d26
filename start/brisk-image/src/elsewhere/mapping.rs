//! Only Linux maps images.

use std::convert::Infallible;
use std::io;

use brisk_io::ByteSource;

/// No mapping exists.
pub(crate) struct ImmutableMapping(Infallible);

impl ImmutableMapping {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self.0 {}
    }

    pub(crate) fn check(&self) -> io::Result<()> {
        match self.0 {}
    }
}

impl ByteSource for ImmutableMapping {
    fn size(&self) -> io::Result<u64> {
        match self.0 {}
    }

    fn read_bytes_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}
