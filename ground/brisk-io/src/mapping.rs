use std::fs::File;
use std::io;
use std::ops::{Deref, Range};

use rustix::mm::Advice;

use crate::region::Region;
use crate::{ByteSource, ImmutableFile};

/// A shared, read-only mapping of a file, or of a part of it, from which bytes are copied.
///
/// A read costs a copy and no system call. If another process writes to the file, a read gives older or newer
/// bytes, or some of each, as a `read` of the file would. If the file is truncated, or its disk fails,
/// touching a lost page ends the process with SIGBUS. After [`guard_mappings`](crate::guard_mappings), that
/// read is an error instead, and so are all later ones. If neither will do (network filesystems, removable
/// media), read the [`File`] instead.
///
/// To borrow bytes instead of copying them, see [`ImmutableMapping`].
#[derive(Debug)]
pub struct Mapping(Region);

impl Mapping {
    /// Maps all of `file`, at its present length.
    ///
    /// # Errors
    ///
    /// Those of `mmap`: `ENODEV` if the filesystem cannot map (some FUSE filesystems, 9p), `ENOMEM` if the
    /// address space is full.
    pub fn shared(file: &File) -> io::Result<Self> {
        Self::of(file, 0..ByteSource::size(file)?)
    }

    /// Maps `bytes` of `file`, which need not begin at a page.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the file does not have all of them. Otherwise as
    /// [`Mapping::shared`].
    pub fn of(file: &File, bytes: Range<u64>) -> io::Result<Self> {
        Region::map(file, &bytes, false).map(Self)
    }

    /// Maps like [`Mapping::of`], with one system call less, if the caller knows the length of the file. A file that is
    /// shorter than that counts as truncated after it was mapped.
    ///
    /// # Errors
    ///
    /// As [`Mapping::of`].
    pub fn within(file: &File, bytes: Range<u64>, file_len: u64) -> io::Result<Self> {
        Region::map_within(file, &bytes, file_len, false).map(Self)
    }

    #[inline]
    pub(crate) fn region(&self) -> &Region {
        &self.0
    }

    /// Whether every page that was touched so far could be read. Only useful after
    /// [`guard_mappings`](crate::guard_mappings).
    ///
    /// [`read_bytes_at`](ByteSource::read_bytes_at) calls this itself. A caller that borrows a slice from an
    /// [`ImmutableMapping`] calls it after the last use of the slice.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if a page could not be read, and zeros were used instead.
    #[inline]
    pub fn check(&self) -> io::Result<()> {
        self.0.check()
    }

    /// Copies `N` bytes from `offset`. For a few bytes whose number the program knows, this is faster than
    /// [`read_bytes_at`](ByteSource::read_bytes_at).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the mapping does not have all of them, or if a page could not be read.
    #[inline(always)]
    pub fn load<const N: usize>(&self, offset: u64, to: &mut [u8; N]) -> io::Result<()> {
        self.0.load(offset, to)
    }

    /// Puts all pages into the page table, so that touching them does not fault, until the kernel removes
    /// some of them again.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if a touch would raise SIGBUS, and [`io::ErrorKind::InvalidInput`]
    /// before Linux 5.14.
    pub fn populate(&self) -> io::Result<()> {
        self.0.populate(0..self.0.len())
    }

    /// Takes all pages out of the page table, so that they no longer count as memory of this process. They stay in the
    /// page cache, and bytes that are borrowed stay readable: the next touch of each page costs a fault.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the program has locked the mapping in memory.
    pub fn release(&self) -> io::Result<()> {
        self.0.advise(Advice::LinuxDontNeed)
    }
}

impl ByteSource for Mapping {
    #[inline]
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    #[inline(always)]
    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.copy(offset, buf)
    }
}

/// A shared, read-only mapping of an [`ImmutableFile`], or of a part of it, from which bytes are borrowed.
///
/// It also does everything that a [`Mapping`] does.
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
        // SAFETY: this can be made only from an `ImmutableFile`, whose maker promised that nobody changes the
        // file as long as anything made from it lives.
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

impl ByteSource for ImmutableMapping {
    #[inline]
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    #[inline(always)]
    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_bytes_at(offset, buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Maps a file that only its test knows.
    fn immutable(file: &File, bytes: Range<u64>) -> io::Result<ImmutableMapping> {
        // SAFETY: the file has no name, and its test does not write to it any more.
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
        mapping.release().unwrap();
        assert_eq!(mapping.as_slice(), bytes);
        let mut buf = [0; 16];
        assert_eq!(mapping.read_bytes_at(9_995, &mut buf).unwrap(), 6);
        assert_eq!(&buf[..6], &bytes[9_995..]);
        let mut six = [0; 6];
        mapping.load(9_995, &mut six).unwrap();
        assert_eq!(six, bytes[9_995..]);
        let past = mapping.load(9_995, &mut [0; 7]).unwrap_err();
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
        assert!(mapping.load(u64::MAX, &mut [0]).is_err());
    }

    #[test]
    fn an_empty_file_maps_to_an_empty_slice() {
        let file = tempfile::tempfile().unwrap();
        assert!(immutable(&file, 0..0).unwrap().as_slice().is_empty());
        let mapping = Mapping::shared(&file).unwrap();
        assert_eq!(mapping.read_bytes_at(0, &mut [0; 4]).unwrap(), 0);
        mapping.release().unwrap();
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
        let within = Mapping::within(&file, 40_000..40_001, 40_001).unwrap();
        assert_eq!(ByteSource::size(&within).unwrap(), 1);
        assert!(Mapping::within(&file, 40_000..40_002, 40_001).is_err());
        let e = Mapping::of(&file, 40_000..40_002).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            e.to_string(),
            "a file of 40001 bytes does not have bytes 40000 to 40002"
        );
    }

    #[test]
    fn a_copy_beside_a_writer_has_bytes_that_were_there() {
        use std::os::unix::fs::FileExt;
        use std::sync::Arc;
        const LEN: usize = 3 * 4096 + 77;
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; LEN], 0).unwrap();
        let mapping = Mapping::shared(&file).unwrap();
        // The threads end with it, also if this thread panics.
        let running = Arc::new(());
        let alive = Arc::downgrade(&running);
        let mut mixed = 0;
        std::thread::scope(|scope| {
            // A write by a system call, as of another process: no Rust code stores to the mapping.
            scope.spawn(|| {
                while alive.strong_count() > 0 {
                    for value in [2, 1] {
                        file.write_all_at(&[value; LEN], 0).unwrap();
                    }
                }
            });
            let mut copy = [0; LEN];
            let start = std::time::Instant::now();
            // The writer may have no processor for a while.
            while mixed < 100 && start.elapsed().as_secs() < 20 {
                assert_eq!(mapping.read_bytes_at(0, &mut copy).unwrap(), LEN);
                assert!(copy.iter().all(|byte| matches!(byte, 1 | 2)));
                mixed += u32::from(copy.contains(&1) && copy.contains(&2));
            }
            drop(running);
        });
        assert!(mixed > 0, "no copy met a writer");
    }
}
