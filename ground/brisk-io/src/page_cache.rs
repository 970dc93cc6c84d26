//! How much of a file is in the page cache, and how to remove it.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::LazyLock;

use rustix::fs::{Advice, fadvise, fdatasync};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::CapabilitySet;

use crate::ByteSource;

/// How much of a file is in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// `resident` of `total` pages of [`page_size`] bytes.
    Pages {
        /// Pages in the page cache.
        resident: u64,
        /// Pages of the file.
        total: u64,
    },
    /// The kernel does not say it to this caller.
    ///
    /// Since Linux 5.2, `mincore(2)` says "resident" for every page of a file that the caller neither owns
    /// nor may write.
    Unknown,
}

/// Bytes in a page of the running kernel: 4, 16 or 64 KiB.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Counts the pages of `file` in the page cache.
///
/// The answer is a snapshot: other processes and the kernel's own reclaim change it at any time.
///
/// # Errors
///
/// Those of `mmap` and `mincore`, such as `ENODEV` for a file that cannot be mapped.
pub fn residency(file: &File) -> io::Result<Residency> {
    let len = ByteSource::size(file)?;
    let total = len.div_ceil(page_size() as u64);
    if total == 0 {
        return Ok(Residency::Pages { resident: 0, total });
    }
    if !kernel_tells_the_truth(file)? {
        return Ok(Residency::Unknown);
    }
    // 1 GiB at a time, for which the answer takes 256 KiB.
    const CHUNK: u64 = 1 << 30;
    let mut resident = 0;
    let mut at = 0;
    while at < len {
        let n = CHUNK.min(len - at);
        let n = usize::try_from(n).map_err(|_| io::ErrorKind::FileTooLarge)?;
        resident += resident_in(file, at, n)?;
        at += CHUNK;
    }
    Ok(Residency::Pages { resident, total })
}

/// Resident pages among `len` bytes at `offset`; `len > 0`, `offset` a multiple of 1 GiB.
fn resident_in(file: &File, offset: u64, len: usize) -> io::Result<u64> {
    let mut pages = vec![0u8; len.div_ceil(page_size())];
    // SAFETY: no address is given, so the kernel picks a free range for the mapping.
    let map = unsafe {
        mmap(
            ptr::null_mut(),
            len,
            ProtFlags::READ,
            MapFlags::SHARED,
            file,
            offset,
        )?
    };
    // SAFETY: `map` is the page-aligned start of `len` mapped bytes, and `pages` has one byte for
    // each of their pages, which is all that `mincore` writes.
    let answer = unsafe { libc::mincore(map, len, pages.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: `map` was mapped with `len` just above, and nothing refers to it.
    unsafe { munmap(map, len)? };
    if answer != 0 {
        return Err(error);
    }
    // Only the lowest bit has a meaning.
    Ok(pages.iter().filter(|&&page| page & 1 == 1).count() as u64)
}

/// `struct cachestat_range` and `struct cachestat` of linux/mman.h.
#[repr(C)]
struct CacheRange {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The number is the same on all architectures of Linux except Alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// Whether all of `len` bytes at `offset` are in the page cache or being read into it. This maps and reads
/// nothing.
///
/// None if the kernel does not say: before Linux 6.5, and since 6.14 for a file that the caller neither owns
/// nor may write.
pub(crate) fn is_cached(file: &File, offset: u64, len: u64) -> Option<bool> {
    let page = page_size() as u64;
    let pages = offset.checked_add(len)?.div_ceil(page) - offset / page;
    Some(cached_pages(file, offset, len).ok()? >= pages)
}

/// How many pages of `len` bytes at `offset` are in the page cache or being read into it. This maps and reads
/// nothing.
///
/// # Errors
///
/// `ENOSYS` before Linux 6.5, and `EPERM` since 6.14 for a file that the caller neither owns nor may write.
pub fn cached_pages(file: &File, offset: u64, len: u64) -> io::Result<u64> {
    let range = CacheRange { offset, len };
    let mut stat = CacheStat::default();
    // SAFETY: the call reads `range` and writes `stat`. Both have the layout that the call expects and live
    // through it. The descriptor is borrowed as long.
    let answer = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            std::os::fd::AsRawFd::as_raw_fd(file),
            &raw const range,
            &raw mut stat,
            0,
        )
    };
    match answer {
        0 => Ok(stat.cached),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Fills `buf` with the bytes at `offset` if the kernel has all of them in memory, and says whether it has. This waits for no
/// disk, and lets the kernel read nothing ahead. If the answer is no, `buf` may have some of the bytes.
///
/// A kernel that does not say what is in memory answers no: before Linux 6.5, and since 6.14 for a file that the caller
/// neither owns nor may write.
///
/// # Errors
///
/// Those of `preadv2`.
pub fn read_if_cached(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
    // Without this, a read of what is missing begins to read it, and what is behind.
    if is_cached(file, offset, buf.len() as u64) != Some(true) {
        return Ok(false);
    }
    let wanted = buf.len();
    let parts = &mut [IoSliceMut::new(buf)];
    // A page that is still being read is there, but has no bytes yet.
    match preadv2(file, parts, offset, ReadWriteFlags::NOWAIT) {
        Ok(len) => Ok(len == wanted),
        Err(Errno::AGAIN | Errno::INTR | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Whether the first and the last of `len` bytes at `offset` are in the page cache, as reads tell that wait for no disk. This
/// also tells of files that [`cached_pages`] does not tell of. But where the answer is no, the kernel may begin to read what is
/// missing, and what is behind.
///
/// None if the filesystem has no such reads.
pub fn ends_are_cached(file: &File, offset: u64, len: u64) -> Option<bool> {
    let last = offset.checked_add(len.checked_sub(1)?)?;
    for at in [offset, last] {
        let mut byte = [0];
        match preadv2(
            file,
            &mut [IoSliceMut::new(&mut byte)],
            at,
            ReadWriteFlags::NOWAIT,
        ) {
            Ok(1) => {}
            // Linux 5.9 and 5.10 also read nothing where a page is missing.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return Some(false),
            Err(_) => return None,
        }
    }
    Some(true)
}

/// Whether `mincore` gives this process true answers (`can_do_mincore` in the kernel): the process owns the
/// file, may write it, or has `CAP_FOWNER` over it.
fn kernel_tells_the_truth(file: &File) -> io::Result<bool> {
    let owner = file.metadata()?.uid();
    let uid = rustix::process::geteuid();
    // Root of a user namespace has no capability over files whose owner the namespace does not map.
    if owner == uid.as_raw() || (acts_as_owner() && owner != *NOBODY) {
        return Ok(true);
    }
    match rustix::fs::access(descriptor_path(file), rustix::fs::Access::WRITE_OK) {
        Ok(()) => Ok(true),
        // An immutable file (`chattr +i`) answers EPERM.
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// A path to the open `file`. It uses `/proc/thread-self`, because a thread can have its own table of
/// descriptors.
pub(crate) fn descriptor_path(file: &File) -> String {
    let fd = std::os::fd::AsRawFd::as_raw_fd(file);
    format!("/proc/thread-self/fd/{fd}")
}

/// Whether this thread has the capability `CAP_FOWNER`.
fn acts_as_owner() -> bool {
    let own = rustix::thread::capabilities(None);
    own.is_ok_and(|own| own.effective.contains(CapabilitySet::FOWNER))
}

/// The user that a file seems to belong to if this namespace does not map its owner.
static NOBODY: LazyLock<u32> = LazyLock::new(|| {
    let told = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    // The kernel's default.
    told.and_then(|text| text.trim().parse().ok())
        .unwrap_or(65534)
});

/// Lets the kernel start to write `len` bytes of `file` at `offset` to the disk, without waiting.
///
/// A writer of large files calls this while it writes, so that its final `fsync` has less to wait for. It
/// promises nothing about the data. On a filesystem without the call, nothing happens earlier.
pub fn start_writeback(file: &File, offset: u64, len: u64) {
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
        return;
    };
    // SAFETY: the call takes no pointers, and the descriptor is open as long as `file` is borrowed.
    let answer = unsafe {
        libc::sync_file_range(
            std::os::fd::AsRawFd::as_raw_fd(file),
            offset,
            len,
            libc::SYNC_FILE_RANGE_WRITE,
        )
    };
    // This is only a hint: `fsync` reports errors.
    debug_assert!(answer == 0 || answer == -1);
}

/// Writes `file` back and asks the kernel to drop its pages.
///
/// The kernel keeps pages that a process has mapped or that are being written. [`evict_and_prove`] reports them.
pub fn evict(file: &File) -> io::Result<()> {
    match fdatasync(file) {
        // On a read-only filesystem nothing is dirty.
        Ok(()) | Err(rustix::io::Errno::ROFS | rustix::io::Errno::INVAL) => {}
        Err(e) => return Err(e.into()),
    }
    fadvise(file, 0, None, Advice::DontNeed)?;
    Ok(())
}

/// Evicts `file`, and checks that no page of it is left.
///
/// # Errors
///
/// [`io::ErrorKind::ResourceBusy`] with the number of pages if some stay. [`io::ErrorKind::PermissionDenied`]
/// if the kernel does not say (see [`Residency::Unknown`]).
pub fn evict_and_prove(file: &File) -> io::Result<()> {
    evict(file)?;
    match residency(file)? {
        Residency::Pages { resident: 0, .. } => Ok(()),
        Residency::Pages { resident, total } => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!(
                "{resident} of {total} pages stay in the page cache; end the programs that have the file mapped or write it"
            ),
        )),
        Residency::Unknown => Err(unknown()),
    }
}

/// Checks that every page of `file` is in the page cache.
///
/// Some systems page out by themselves. So a "warm" figure needs this as much as a "cold" one needs
/// [`evict_and_prove`].
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] with the number of pages if some are missing.
/// [`io::ErrorKind::PermissionDenied`] if the kernel does not say.
pub fn prove_warm(file: &File) -> io::Result<()> {
    match residency(file)? {
        Residency::Pages { resident, total } if resident == total => Ok(()),
        Residency::Pages { resident, total } => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "{} of {total} pages are not in the page cache",
                total - resident
            ),
        )),
        Residency::Unknown => Err(unknown()),
    }
}

fn unknown() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the kernel says which pages are in memory only to the owner of the file, or to a user who may write it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A file on a real disk, because tmpfs always keeps its pages.
    fn file_of(pages: usize) -> File {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![1; pages * page_size()]).unwrap();
        file
    }

    #[test]
    fn evicted_is_cold_and_read_is_warm() {
        let file = file_of(64);
        evict_and_prove(&file).unwrap();
        assert_eq!(
            prove_warm(&file).unwrap_err().to_string(),
            "64 of 64 pages are not in the page cache"
        );
        file.read_exact_bytes_at(0, &mut vec![0; 64 * page_size()])
            .unwrap();
        prove_warm(&file).unwrap();
    }

    #[test]
    fn a_mapped_page_stays_and_is_told() {
        let file = file_of(4);
        let mapping = crate::Mapping::shared(&file).unwrap();
        let mut bytes = vec![0; 4 * page_size()];
        crate::ByteSource::read_exact_bytes_at(&mapping, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&b| b == 1));
        let e = evict_and_prove(&file).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(
            e.to_string(),
            "4 of 4 pages stay in the page cache; end the programs that have the file mapped or write it"
        );
    }

    #[test]
    fn the_kernel_tells_of_ranges_or_nothing() {
        let file = file_of(64);
        evict_and_prove(&file).unwrap();
        let page = page_size() as u64;
        fadvise(&file, 0, None, Advice::Random).unwrap();
        file.read_exact_bytes_at(8 * page, &mut vec![0; 8 * page_size()])
            .unwrap();
        let told = |first: u64, pages: u64| is_cached(&file, first * page, pages * page);
        // Before Linux 6.5 the kernel does not say.
        if told(0, 1).is_some() {
            assert_eq!(told(8, 8), Some(true));
            assert_eq!(told(7, 8), Some(false));
            assert_eq!(is_cached(&file, 8 * page + 1, page), Some(true));
            assert_eq!(told(40, 8), Some(false));
        }
    }

    #[test]
    fn what_is_not_in_memory_is_not_read() {
        let file = file_of(64);
        let page = page_size() as u64;
        let mut buf = vec![0; 100];
        // Before Linux 6.5 the kernel does not say.
        if is_cached(&file, 0, page).is_some() {
            assert!(read_if_cached(&file, 5 * page, &mut buf).unwrap());
            assert_eq!(buf, [1; 100]);
        }
        evict_and_prove(&file).unwrap();
        for _ in 0..3 {
            assert!(!read_if_cached(&file, 5 * page, &mut buf).unwrap());
        }
        // Nothing began to read it.
        assert_eq!(
            residency(&file).unwrap(),
            Residency::Pages {
                resident: 0,
                total: 64
            }
        );
        assert!(!read_if_cached(&file, 63 * page + 10, &mut vec![0; 2 * page_size()]).unwrap());
    }

    #[test]
    fn reads_tell_whether_the_ends_are_in_memory() {
        let file = file_of(64);
        let page = page_size() as u64;
        let told = |first: u64, pages: u64| ends_are_cached(&file, first * page, pages * page);
        if !crate::machine::has(
            "RWF_NOWAIT",
            crate::kernel_calls::try_nowait(&file).map_err(|_| "it does not work here"),
        ) {
            return;
        }
        assert_eq!(told(0, 64), Some(true));
        assert_eq!(told(63, 2), Some(false));
        assert_eq!(told(0, 0), None);
        evict_and_prove(&file).unwrap();
        fadvise(&file, 0, None, Advice::Random).unwrap();
        assert_eq!(told(40, 1), Some(false));
        file.read_exact_bytes_at(8 * page, &mut vec![0; page_size()])
            .unwrap();
        assert_eq!(told(8, 1), Some(true));
        assert_eq!(told(8, 2), Some(false));
        assert_eq!(told(7, 2), Some(false));
    }

    #[test]
    fn an_empty_file_is_cold_and_warm() {
        let file = file_of(0);
        evict_and_prove(&file).unwrap();
        prove_warm(&file).unwrap();
    }
}
