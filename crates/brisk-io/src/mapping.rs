use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::ReadAt;

/// A shared, read-only mapping of a whole file.
///
/// # What the caller promises
///
/// The file keeps its length and its bytes while it is mapped. An image that appears by `rename`
/// and is never written again keeps that promise; a file somebody writes in place does not.
/// If the promise is broken, bytes may change between two reads, and touching a page past the new
/// end, or one that the disk cannot give, ends the process by SIGBUS. Where that cannot be ruled
/// out (network filesystems, removable media, long-lived servers), read the [`File`] instead.
///
/// Invariants:
/// 1. If `len > 0`, `ptr` is the start of a mapping of `len` bytes, readable, made by `mmap`, and
///    unmapped only by `drop`.
/// 2. If `len == 0` nothing is mapped, and `ptr` dangles.
/// 3. `len <= isize::MAX`.
#[derive(Debug)]
pub struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps all of `file` as it is long now.
    ///
    /// # Errors
    ///
    /// What `mmap` says: `ENODEV` where the filesystem cannot map (some of FUSE, 9p), `ENOMEM`
    /// where the address space is full.
    pub fn shared(file: &File) -> io::Result<Self> {
        let len = ReadAt::len(file)?;
        let len = usize::try_from(len)
            .ok()
            .filter(|&n| isize::try_from(n).is_ok())
            .ok_or(io::ErrorKind::FileTooLarge)?;
        if len == 0 {
            return Ok(Self {
                ptr: NonNull::dangling(),
                len,
            });
        }
        // SAFETY: `mmap` needs that a fixed address, if given, overlays nothing in use: none is
        // given, so the kernel picks a free range. The flags ask for memory nobody else has.
        let raw = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let ptr = NonNull::new(raw.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { ptr, len })
    }

    /// The mapped bytes, under the promise in the type's documentation.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: by invariants 1 to 3, `len` bytes from `ptr` are readable for the life of
        // `self` (zero of them from a dangling pointer are too), and `len` fits an isize. That
        // nobody writes them is what the caller promised in the type's documentation.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// Tells the kernel that reads will be scattered: no read-ahead around a fault.
    pub fn advise_random(&self) -> io::Result<()> {
        self.advise(Advice::Random)
    }

    /// Tells the kernel that reads go from start to end.
    pub fn advise_sequential(&self) -> io::Result<()> {
        self.advise(Advice::Sequential)
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        // SAFETY: `madvise` needs a range that is mapped: invariant 1. Both kinds of advice that
        // reach this call change only read-ahead, never contents or protection.
        unsafe { madvise(self.ptr.as_ptr().cast(), self.len, advice)? };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        // SAFETY: invariant 1, and no slice outlives `self`, for each borrows it.
        let unmapped = unsafe { munmap(self.ptr.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping cannot fail");
    }
}

// SAFETY: the mapping is plain readable memory, bound to the process and not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: it is only ever read through `&Mapping`.
unsafe impl Sync for Mapping {}

impl ReadAt for Mapping {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len as u64)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.as_slice().read_at(offset, buf)
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
}
