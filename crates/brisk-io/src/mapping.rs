use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::mm::Advice;

use crate::ReadAt;
use crate::region::Region;

/// A shared, read-only mapping of a file, or of a part of it.
///
/// # What the caller promises
///
/// The file keeps its length and its bytes while it is mapped. An image that appears by `rename`
/// and is never written again keeps that promise; a file somebody writes in place does not.
/// If the promise is broken, bytes may change between two reads, and touching a page past the new
/// end, or one that the disk cannot give, ends the process by SIGBUS, unless
/// [`guard_mappings`](crate::guard_mappings) was called: then it reads zeros, [`Mapping::check`] is an
/// error from then on, and so is `read_at`.
/// Where none of that will do (network filesystems, removable media), read the [`File`] instead.
#[derive(Debug)]
pub struct Mapping(Region);

impl Mapping {
    /// Maps all of `file` as it is long now.
    ///
    /// # Errors
    ///
    /// What `mmap` says: `ENODEV` where the filesystem cannot map (some of FUSE, 9p), `ENOMEM`
    /// where the address space is full.
    pub fn shared(file: &File) -> io::Result<Self> {
        Self::of(file, 0..ReadAt::size(file)?)
    }

    /// Maps `bytes` of `file`, which need not begin at a page.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the file has not all of them, and as [`Mapping::shared`].
    pub fn of(file: &File, bytes: Range<u64>) -> io::Result<Self> {
        Region::map(file, &bytes, false).map(Self)
    }

    /// The mapped bytes, under the promise in the type's documentation.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Whether all that was read of the mapping so far was the file's.
    ///
    /// To be asked after the last use of a borrowed slice, by who called
    /// [`guard_mappings`](crate::guard_mappings).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if a page could not be had, and zeros were read.
    #[inline]
    pub fn check(&self) -> io::Result<()> {
        self.0.check()
    }

    /// Puts all pages into the page table, so that no touch of them faults, until the kernel takes some
    /// of them away again.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] where a touch would be SIGBUS, and
    /// [`io::ErrorKind::InvalidInput`] before Linux 5.14.
    pub fn populate(&self) -> io::Result<()> {
        self.0.populate(0..self.0.len())
    }

    /// Tells the kernel that reads will be scattered: no read-ahead around a fault.
    pub fn advise_random(&self) -> io::Result<()> {
        self.0.advise(Advice::Random)
    }

    /// Tells the kernel that reads go from start to end.
    pub fn advise_sequential(&self) -> io::Result<()> {
        self.0.advise(Advice::Sequential)
    }
}

impl ReadAt for Mapping {
    #[inline]
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    #[inline(always)]
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.copy(offset, buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn maps_what_the_file_holds() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..10_001u32).map(|n| n.to_le_bytes()[0]).collect();
        file.write_all(&bytes).unwrap();
        let mapping = Mapping::shared(&file).unwrap();
        assert_eq!(mapping.as_slice(), bytes);
        mapping.advise_random().unwrap();
        mapping.advise_sequential().unwrap();
        let mut buf = [0; 16];
        assert_eq!(mapping.read_at(9_995, &mut buf).unwrap(), 6);
        assert_eq!(&buf[..6], &bytes[9_995..]);
    }

    #[test]
    fn an_empty_file_maps_to_an_empty_slice() {
        let file = tempfile::tempfile().unwrap();
        let mapping = Mapping::shared(&file).unwrap();
        assert!(mapping.as_slice().is_empty());
        mapping.advise_random().unwrap();
    }

    #[test]
    fn a_part_begins_anywhere() {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..40_001u32).map(|n| (n % 251) as u8).collect();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
        for range in [0..0, 17..17, 4095..4097, 12_289..40_001, 40_001..40_001] {
            let expected = &bytes[range.start as usize..range.end as usize];
            let mapping = Mapping::of(&file, range).unwrap();
            assert_eq!(mapping.as_slice(), expected);
            mapping.populate().unwrap();
        }
        let e = Mapping::of(&file, 40_000..40_002).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            e.to_string(),
            "bytes 40000 to 40002 of a file of 40001 cannot be had"
        );
    }
}
