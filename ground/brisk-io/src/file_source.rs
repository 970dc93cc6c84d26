//! How Unix reads files at offsets.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};

/// The length from `fstat`. For a block device, the position of its end.
pub(crate) fn len(mut file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        // `fstat` has no length for a device. Positioned reads ignore the cursor that this moves.
        return file.seek(SeekFrom::End(0));
    }
    Ok(metadata.len())
}

/// Reads up to `buf.len()` bytes at `offset`.
pub(crate) fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    FileExt::read_at(file, buf, offset)
}
