use std::fs::File;
use std::io;
use std::ops::{Deref, Range};

use rustix::mm::Advice;

use crate::region::Region;
use crate::{ImmutableFile, ReadAt};

/// A shared, read-only mapping of a file, or of a part of it, from which bytes are copied.
///
/// A read costs a copy and no system call. If another process writes to the file, a read gives older or newer bytes,
/// or some of each, as a `read` of the file would. If it is cut, or its disk fails, touching a page that is gone ends
/// the process by SIGBUS, unless [`guard_mappings`](crate::guard_mappings) was called: then that read is an error, and
/// all later ones are. Where neither will do (network filesystems, removable media), read the [`File`] instead.
///
/// To borrow bytes in place of copying them, see [`ImmutableMapping`].
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

    /// Whether every page that was read so far could be had: of use after
    /// [`guard_mappings`](crate::guard_mappings).
    ///
    /// [`read_at`](ReadAt::read_at) asks this by itself. After the last use of a borrowed slice of an
    /// [`ImmutableMapping`], the borrower asks.
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

/// A shared, read-only mapping of an [`ImmutableFile`], or of a part of it, from which bytes are borrowed.
///
/// All that a [`Mapping`] does, this does too.
#[derive(Debug)]
pub struct ImmutableMapping(Mapping);

impl ImmutableMapping {
    /// Maps all of `file`.
    ///
    /// # Errors
    ///
    /// As [`Mapping::shared`].
    pub fn new(file: &ImmutableFile) -> io::Result<Self> {
        Mapping::shared(file.as_file()).map(Self)
    }

    /// Maps `bytes` of `file`, which need not begin at a page.
    ///
    /// # Errors
    ///
    /// As [`Mapping::of`].
    pub fn of(file: &ImmutableFile, bytes: Range<u64>) -> io::Result<Self> {
        Mapping::of(file.as_file(), bytes).map(Self)
    }

    /// The mapped bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: this is made of an `ImmutableFile` alone, whose maker promised that nobody changes the file as long as
        // what was made of it lives.
        unsafe { self.0.0.as_slice() }
    }
}

impl Deref for ImmutableMapping {
    type Target = Mapping;

    #[inline]
    fn deref(&self) -> &Mapping {
        &self.0
    }
}

impl ReadAt for ImmutableMapping {
    #[inline]
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    #[inline(always)]
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Of a file that only the test that made it knows.
    fn immutable(file: &File, bytes: Range<u64>) -> io::Result<ImmutableMapping> {
        // SAFETY: the file has no name, and its test writes to it no more.
        let file = unsafe { ImmutableFile::new(file.try_clone().unwrap()) };
        ImmutableMapping::of(&file, bytes)
    }

    #[test]
    fn maps_what_the_file_holds() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..10_001u32).map(|n| n.to_le_bytes()[0]).collect();
        file.write_all(&bytes).unwrap();
        let mapping = immutable(&file, 0..10_001).unwrap();
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
        assert!(immutable(&file, 0..0).unwrap().as_slice().is_empty());
        let mapping = Mapping::shared(&file).unwrap();
        assert_eq!(mapping.read_at(0, &mut [0; 4]).unwrap(), 0);
        mapping.advise_random().unwrap();
    }

    #[test]
    fn a_part_begins_anywhere() {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..40_001u32).map(|n| (n % 251) as u8).collect();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
        for range in [0..0, 17..17, 4095..4097, 12_289..40_001, 40_001..40_001] {
            let expected = &bytes[range.start as usize..range.end as usize];
            let mapping = immutable(&file, range).unwrap();
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
