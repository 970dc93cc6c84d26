use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::racing_copy::racing_copy;
use crate::sigbus::Watch;
use crate::{ByteSource, LARGE_PAGE, page_size};

/// Pages that `mmap` put into memory, of a file or anonymous, with some wanted bytes in them.
///
/// 1. If `mapped > 0`, `base` is the page-aligned start of `mapped` bytes that one `mmap` made. They are
///    readable, and writable if `writable`. Only `drop` unmaps them.
/// 2. If `mapped == 0`, nothing is mapped and `base` dangles.
/// 3. `skip + len <= mapped <= isize::MAX`.
/// 4. `watch` covers all of `mapped` that belongs to a file, from before the first access until after the
///    last.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    mapped: usize,
    skip: usize,
    len: usize,
    writable: bool,
    watch: Option<Watch>,
}

impl Region {
    /// Maps `bytes` of `file`, which must have them.
    pub(crate) fn map(file: &File, bytes: &Range<u64>, private: bool) -> io::Result<Self> {
        Self::map_within(file, bytes, ByteSource::size(file)?, private)
    }

    /// Maps `bytes` of `file`, which has `file_len` bytes. If it has fewer, touching a page behind its end is as if it had
    /// been truncated since.
    pub(crate) fn map_within(
        file: &File,
        bytes: &Range<u64>,
        file_len: u64,
        private: bool,
    ) -> io::Result<Self> {
        let len = part_of(file_len, bytes)?;
        // The mapped offset must be a multiple of the page size.
        let skip = match bytes.start {
            0 => 0,
            start => start % page_size() as u64,
        };
        let mapped = usize::try_from(len + skip)
            .ok()
            .filter(|&n| isize::try_from(n).is_ok())
            .ok_or(io::ErrorKind::FileTooLarge)?;
        // `skip` is less than a page.
        let skip = skip as usize;
        if mapped == skip {
            return Ok(Self {
                base: NonNull::dangling(),
                mapped: 0,
                skip: 0,
                len: 0,
                writable: private,
                watch: None,
            });
        }
        let (protection, flags) = if private {
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        } else {
            (ProtFlags::READ, MapFlags::SHARED)
        };
        let start = bytes.start - skip as u64;
        // SAFETY: `mmap` needs that a fixed address, if given, overlays nothing in use: none is
        // given, so the kernel picks a free range. The flags ask for memory nobody else has.
        let raw = unsafe { mmap(ptr::null_mut(), mapped, protection, flags, file, start)? };
        let base = NonNull::new(raw.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            base,
            mapped,
            skip,
            len: mapped - skip,
            writable: private,
            watch: Some(Watch::new(base.addr().get(), mapped, private)),
        })
    }

    /// Zeroed memory for `len` bytes after `skip` others, directly from the kernel. The zeros are not written
    /// before they are needed, and large pages are used if possible.
    pub(crate) fn own(skip: usize, len: usize) -> io::Result<Self> {
        let mapped = skip
            .checked_add(len)
            .and_then(|n| n.checked_next_multiple_of(page_size()))
            .filter(|&n| isize::try_from(n).is_ok())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let mut this = Self {
            base: NonNull::dangling(),
            mapped: 0,
            skip,
            len,
            writable: true,
            watch: None,
        };
        if mapped == 0 {
            return Ok(this);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is given, so the kernel picks a free range.
        let raw =
            unsafe { mmap_anonymous(ptr::null_mut(), mapped, protection, MapFlags::PRIVATE)? };
        this.base = NonNull::new(raw.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        this.mapped = mapped;
        if mapped as u64 >= LARGE_PAGE {
            // A kernel without large pages refuses this, which does no harm.
            this.advise_large().ok();
        }
        Ok(this)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The position of the wanted bytes in the pages.
    pub(crate) fn skip(&self) -> usize {
        self.skip
    }

    /// The wanted bytes.
    ///
    /// # Safety
    ///
    /// As long as the result lives, no process changes or truncates the mapped file. Memory of this process
    /// ([`Region::own`]) needs no promise.
    #[inline]
    pub(crate) unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: by invariant 3 the result is in the mapping, or dangles with `skip` 0.
        let start = unsafe { self.base.add(self.skip) };
        // SAFETY: by invariants 1 to 3, `len` bytes from `start` are readable for the life of `self`
        // (zero of them from a dangling pointer are too), and `len` fits an isize. This process writes them only
        // through `&mut self`, and the caller promises that nobody else does.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len) }
    }

    /// Some of the wanted bytes.
    ///
    /// # Safety
    ///
    /// 1. `part.start <= part.end <= len`.
    /// 2. As long as the result lives, no process changes or truncates this part of the mapped file.
    #[inline]
    pub(crate) unsafe fn part(&self, part: Range<usize>) -> &[u8] {
        // SAFETY: by requirement 1 and invariant 3 the result is in the mapping, or dangles with both 0.
        let start = unsafe { self.base.add(self.skip + part.start) };
        // SAFETY: by requirement 1 and invariants 1 to 3, the part's bytes are readable for the life of `self` (zero of
        // them from a dangling pointer are too), and their number fits an isize. This process writes them only through
        // `&mut self`, and by requirement 2 nobody else does.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), part.end - part.start) }
    }

    /// The wanted bytes, for writing. None if they are not writable.
    ///
    /// # Safety
    ///
    /// As [`Region::as_slice`]: pages of a private mapping show what others write to the file, until they are
    /// written here.
    #[inline]
    pub(crate) unsafe fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        let wanted = self.skip..self.skip + self.len;
        // SAFETY: `pages_mut` asks for one promise, that nobody else changes the file, and this function's caller gives
        // the same one for as long as the result lives.
        let pages = unsafe { self.pages_mut() };
        pages.map(|pages| &mut pages[wanted])
    }

    /// All bytes of the pages, for writing. None if they are not writable.
    ///
    /// # Safety
    ///
    /// As [`Region::as_mut_slice`].
    pub(crate) unsafe fn pages_mut(&mut self) -> Option<&mut [u8]> {
        if !self.writable {
            return None;
        }
        // SAFETY: by invariants 1 to 3 `mapped` bytes from `base` are readable and writable for the life
        // of `self` (zero of them from a dangling pointer are too), and fit an isize; `&mut self` makes
        // this the only reference of this process, and the caller promises that no other process writes them.
        Some(unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.mapped) })
    }

    #[inline]
    pub(crate) fn is_torn(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_torn)
    }

    /// Copies from `offset` of the wanted bytes, and fails if some of them could not be read.
    #[inline(always)]
    pub(crate) fn copy(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        // Each page that the guard puts into a torn mapping takes a mapping of the process, and the kernel
        // allows only some ten thousand. So this does not copy again.
        self.check()?;
        let at = usize::try_from(offset).ok();
        let Some((at, rest)) = at.and_then(|at| Some((at, self.len.checked_sub(at)?))) else {
            return Ok(0);
        };
        let n = rest.min(buf.len());
        // SAFETY: `at + n <= len`, so by invariant 3 the result is in the mapping, or dangles with both 0.
        let from = unsafe { self.base.add(self.skip + at) };
        // SAFETY: requirement 1: `n` bytes from there are readable by invariants 1 to 3, and stay mapped because `self`
        // is borrowed. This process writes them only through `&mut self`, which nobody has now. Other processes may
        // write the file, which the requirement allows: no slice of it is made here. Requirement 2: `n <= buf.len()`,
        // and `buf` is borrowed for this alone, so it does not overlap the mapping.
        unsafe { racing_copy(from.as_ptr(), buf.as_mut_ptr(), n) };
        self.check()?;
        Ok(n)
    }

    /// Copies `N` bytes from `offset` of the wanted bytes, and fails if some of them are not there or could not be read.
    ///
    /// For few bytes: a caller that goes on after an error gets one page of zeros for each page that it touches.
    #[inline(always)]
    pub(crate) fn load<const N: usize>(&self, offset: u64, to: &mut [u8; N]) -> io::Result<()> {
        let at = usize::try_from(offset).ok();
        let fits = |at: &usize| self.len.checked_sub(*at).is_some_and(|rest| rest >= N);
        let Some(at) = at.filter(fits) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        // SAFETY: `at + N <= len`, so by invariant 3 the result is in the mapping, or dangles with both 0.
        let from = unsafe { self.base.add(self.skip + at) };
        // SAFETY: as in `copy`: `N` bytes from there are readable (invariants 1 to 3) and stay mapped, and this process
        // does not write them now. `to` has `N` bytes and is borrowed for this alone.
        unsafe { racing_copy(from.as_ptr(), to.as_mut_ptr(), N) };
        self.check()
    }

    #[inline]
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.is_torn() {
            return Err(torn());
        }
        Ok(())
    }

    pub(crate) fn advise(&self, advice: Advice) -> io::Result<()> {
        if self.mapped == 0 {
            return Ok(());
        }
        // SAFETY: `madvise` needs a range that is mapped: invariant 1. The kinds of advice that reach this call change only
        // read-ahead and what the page table has, never contents or protection. `LinuxDontNeed` is given only to shared
        // mappings, whose pages the kernel takes from the file again, and to zeros that stand in for lost pages.
        unsafe { madvise(self.base.as_ptr().cast(), self.mapped, advice)? };
        Ok(())
    }

    /// Asks the kernel to read in large pages, if the filesystem has them. There are fewer of them to make,
    /// find, map and unmap. Otherwise the kernel still reads as much at once.
    pub(crate) fn advise_large(&self) -> io::Result<()> {
        self.advise(Advice::LinuxHugepage)
    }

    /// Makes the kernel put the pages of some of the wanted bytes into the page table, and read what is not
    /// in memory. Without an error, none are left out.
    pub(crate) fn populate(&self, part: Range<usize>) -> io::Result<()> {
        let page = page_size();
        let start = (self.skip + part.start) / page * page;
        let end = (self.skip + part.end.min(self.len)).min(self.mapped);
        if start >= end {
            return Ok(());
        }
        loop {
            // SAFETY: `start < end <= mapped`, so the result is in the mapping.
            let at = unsafe { self.base.add(start) };
            // SAFETY: the range is mapped (invariant 1), and populating changes neither contents nor
            // protection.
            let answer =
                unsafe { madvise(at.as_ptr().cast(), end - start, Advice::LinuxPopulateRead) };
            return match answer {
                Ok(()) => Ok(()),
                Err(rustix::io::Errno::INTR) => continue,
                // A touch would raise SIGBUS.
                Err(rustix::io::Errno::FAULT) => Err(torn()),
                Err(e) => Err(e.into()),
            };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapped == 0 {
            return;
        }
        // Before the addresses can be given to another mapping.
        self.watch = None;
        // SAFETY: invariant 1, and no slice outlives `self`, for each borrows it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping cannot fail");
    }
}

// SAFETY: the mapping is plain memory, bound to the process and not to a thread.
unsafe impl Send for Region {}
// SAFETY: through `&Region` this process only reads it.
unsafe impl Sync for Region {}

/// The number of `bytes`. `file` must have all of them.
pub(crate) fn len_within(file: &File, bytes: &Range<u64>) -> io::Result<u64> {
    part_of(ByteSource::size(file)?, bytes)
}

/// The number of `bytes`, all of which a file of this length must have.
fn part_of(file_len: u64, bytes: &Range<u64>) -> io::Result<u64> {
    if bytes.start > bytes.end || bytes.end > file_len {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "a file of {file_len} bytes does not have bytes {} to {}",
                bytes.start, bytes.end
            ),
        ));
    }
    Ok(bytes.end - bytes.start)
}

/// The error for a page of a mapping that could not be read.
fn torn() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "a page of the mapped file cannot be read: the file was truncated after it was mapped, or its disk failed; \
         open it again",
    )
}
