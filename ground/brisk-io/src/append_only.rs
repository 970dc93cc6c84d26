use std::fs::File;
use std::io;
use std::ops::{Deref, Range};

use crate::{ByteSource, Mapping};

/// A file to which programs append, and in which nobody changes what is *published*.
///
/// An [`ImmutableFile`](crate::ImmutableFile) promises that nobody writes to a file at all. A file that grows cannot
/// promise that: while one program borrows a record, another one appends the next. This type has the narrower promise.
#[derive(Debug)]
pub struct AppendOnlyFile(File);

impl AppendOnlyFile {
    /// Promises that nobody changes the published ranges of `file`.
    ///
    /// # Safety
    ///
    /// From the moment at which [`AppendOnlyMapping::published`] lends a range of a mapping of this file, until the
    /// mapping is dropped, no process, including this one, writes to that range, truncates the file before the end of
    /// the range, or punches a hole into it. Other ranges may be written, and the file may grow or lose its name.
    ///
    /// A failing disk does not break the promise: see [`ImmutableFile::new`](crate::ImmutableFile::new).
    pub unsafe fn new(file: File) -> Self {
        Self(file)
    }

    /// The file.
    pub fn as_file(&self) -> &File {
        &self.0
    }
}

/// A shared, read-only mapping of an [`AppendOnlyFile`], from which published ranges are borrowed.
///
/// Everything else is copied, as from the [`Mapping`] that it is, too.
#[derive(Debug)]
pub struct AppendOnlyMapping(Mapping);

impl AppendOnlyMapping {
    /// Maps `bytes` of `file`, which must have them. What is appended behind that is not mapped.
    ///
    /// # Errors
    ///
    /// As [`Mapping::of`].
    pub fn of(file: &AppendOnlyFile, bytes: Range<u64>) -> io::Result<Self> {
        Mapping::of(file.as_file(), bytes).map(Self)
    }

    /// Maps like [`AppendOnlyMapping::of`], if the caller knows the length of the file: see [`Mapping::within`].
    ///
    /// # Errors
    ///
    /// As [`Mapping::of`].
    pub fn within(file: &AppendOnlyFile, bytes: Range<u64>, file_len: u64) -> io::Result<Self> {
        Mapping::within(file.as_file(), bytes, file_len).map(Self)
    }

    /// The bytes of a range that is published: the maker of the [`AppendOnlyFile`] promised that it never changes
    /// again. None if the mapping does not have all of them.
    #[inline]
    pub fn published(&self, range: Range<usize>) -> Option<&[u8]> {
        if range.start > range.end || range.end > self.0.region().len() {
            return None;
        }
        // SAFETY: the range is inside the region, as was just compared. This can be made only from an
        // `AppendOnlyFile`, whose maker promised that nobody changes or truncates a range from the moment that this
        // function lends it, as long as the mapping lives.
        Some(unsafe { self.0.region().part(range) })
    }
}

impl Deref for AppendOnlyMapping {
    type Target = Mapping;

    #[inline]
    fn deref(&self) -> &Mapping {
        &self.0
    }
}

impl ByteSource for AppendOnlyMapping {
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
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_published_range_stays_while_the_file_grows_behind_it() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 5000], 0).unwrap();
        // SAFETY: this test alone has the file, and writes only behind the ranges that it borrows.
        let appended = unsafe { AppendOnlyFile::new(file.try_clone().unwrap()) };
        let mapping = AppendOnlyMapping::of(&appended, 0..5000).unwrap();
        let first = mapping.published(0..5000).unwrap();
        file.write_all_at(&[8; 5000], 5000).unwrap();
        assert!(first.iter().all(|&byte| byte == 7));
        // The mapping ends where it ended before.
        assert_eq!(mapping.published(4999..5001), None);
        assert_eq!(mapping.published(5000..5000), Some(&[][..]));
        let backwards = Range { start: 3, end: 2 };
        assert_eq!(mapping.published(backwards), None);
        let again = AppendOnlyMapping::of(&appended, 0..10_000).unwrap();
        assert_eq!(again.published(4999..5001), Some(&[7, 8][..]));
    }
}
