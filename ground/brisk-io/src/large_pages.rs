//! Pages of the page cache that hold much of a file at once.

use std::fs::File;
use std::io;
use std::ops::Range;

use crate::page_size;
use crate::region::Region;

/// The bytes of a large page, where small ones have 4 KiB.
pub const LARGE_PAGE: u64 = 2 << 20;

/// Brings `bytes` of a file, which must have them, into the page cache in pages as large as the system has.
///
/// For a program that writes a file piece by piece: the page cache makes a page as large as the first write or read of it,
/// and a reader that maps the file has one fault for each page. `bytes` should begin at a multiple of their length, which is
/// at most [`LARGE_PAGE`]. What is in memory already stays as it is. What is only reserved on the disk, or a hole, is not
/// read.
///
/// Does nothing where small pages have more than 4 KiB: a large one would have far more than this.
///
/// # Errors
///
/// Those of `mmap` and `madvise`. [`io::ErrorKind::InvalidInput`] if the kernel has no large pages, or is older than Linux
/// 5.14. A caller may ignore them.
pub fn cache_in_large_pages(file: &File, bytes: Range<u64>) -> io::Result<()> {
    if page_size() != 4096 {
        return Ok(());
    }
    let region = Region::map(file, &bytes, false)?;
    region.advise_large()?;
    // One byte brings all of its page.
    region.populate(0..1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cached_pages;
    use std::os::unix::fs::FileExt;

    #[test]
    fn one_call_brings_all_of_a_reserved_piece_and_changes_no_byte() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, flags, 0, 2 * LARGE_PAGE).unwrap();
        file.write_all_at(b"here", LARGE_PAGE - 4).unwrap();
        cache_in_large_pages(&file, LARGE_PAGE..2 * LARGE_PAGE).unwrap();
        let cached = |start: u64| cached_pages(&file, start, LARGE_PAGE).unwrap();
        assert_eq!(cached(LARGE_PAGE), 512);
        assert!(cached(0) < 512);
        cache_in_large_pages(&file, 0..LARGE_PAGE).unwrap();
        let mut bytes = [1; 8];
        file.read_exact_at(&mut bytes, LARGE_PAGE - 4).unwrap();
        assert_eq!(&bytes, b"here\0\0\0\0");
        let e = cache_in_large_pages(&file, 0..3 * LARGE_PAGE).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
    }
}
