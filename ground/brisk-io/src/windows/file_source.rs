//! How Windows reads files at offsets.

use std::fs::File;
use std::io;
use std::os::windows::fs::FileExt;

/// The length of the file.
pub(crate) fn len(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.len())
}

/// Reads up to `buf.len()` bytes at `offset`. Moves the cursor of the file, which no positioned read looks at.
pub(crate) fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    file.seek_read(buf, offset)
}
