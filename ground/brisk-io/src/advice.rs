//! Tells the kernel what will be read.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::{io, iter};

use rustix::fs::{Advice, fadvise};

use crate::{BlockDevice, ByteSource};

/// Every file system reads at least this many bytes for one advice.
pub(crate) const LEAST: u64 = 128 << 10;

/// A larger piece becomes one request, whose first page arrives no sooner than its last.
const MOST: u64 = 1 << 20;

/// How many bytes of `file` the kernel reads for one `POSIX_FADV_WILLNEED`, from 128 KiB to 1 MiB. It drops
/// the rest of a larger advice without an error.
///
/// It is the larger of the device's read-ahead and its largest request (`force_page_cache_ra` of the kernel,
/// `mm/readahead.c`). If no device is known, as on FUSE, NFS and Btrfs, it is 128 KiB.
pub fn largest_advice(file: &File) -> u64 {
    largest_advice_on(BlockDevice::of_file(file).as_ref())
}

/// Like [`largest_advice`], for files on this device. `None` is for files on no known device.
pub fn largest_advice_on(device: Option<&BlockDevice>) -> u64 {
    let kib = |file| device.and_then(|device| device.number(file)).unwrap_or(0);
    let kib = kib("queue/read_ahead_kb").max(kib("queue/max_sectors_kb"));
    // A multiple of every page size.
    kib.saturating_mul(1024).clamp(LEAST, MOST) / LEAST * LEAST
}

/// Asks the kernel to read `bytes` of `file` into the page cache, and does not wait for the disk.
///
/// # Errors
///
/// Those of `posix_fadvise` and of asking for the file's length. A caller may ignore them: later reads work
/// anyway.
pub fn will_read(file: &File, bytes: Range<u64>) -> io::Result<()> {
    // There is nothing to read after the end of the file.
    let bytes = bytes.start..bytes.end.min(ByteSource::size(file)?);
    advise(file, bytes, largest_advice(file))
}

/// Like [`will_read`], for the whole file, without asking the system about the file's device.
///
/// It asks twice, in large pieces and then in small ones: a device with small requests drops a part of each
/// large piece, and the small ones fetch that. The kernel does not read pages again that are in memory. This
/// is for a program that reads its own code: asking about the device would execute code that is not in memory
/// yet.
///
/// # Errors
///
/// As [`will_read`].
pub fn will_read_all(file: &File) -> io::Result<()> {
    let bytes = 0..ByteSource::size(file)?;
    advise(file, bytes.clone(), MOST)?;
    advise(file, bytes, LEAST)
}

/// Advises the kernel in pieces of `piece` bytes.
fn advise(file: &File, bytes: Range<u64>, piece: u64) -> io::Result<()> {
    let starts = iter::successors(Some(bytes.start), |start| start.checked_add(piece));
    for start in starts.take_while(|start| *start < bytes.end) {
        let len = NonZeroU64::new(piece.min(bytes.end - start));
        fadvise(file, start, len, Advice::WillNeed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::evict_and_prove;
    use crate::{Residency, page_size, residency};
    use std::io::Write;
    use std::time::{Duration, Instant};

    #[test]
    fn all_of_a_piece_is_read() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![1; 3 << 20]).unwrap();
        let pages = |bytes: u64| bytes.div_ceil(page_size() as u64);
        let piece = 64 << 10..(2 << 20) + 1;
        let of_piece = pages(piece.end) - pages(piece.start);
        until_resident(&file, of_piece, || will_read(&file, piece.clone()).unwrap());
        until_resident(&file, pages(3 << 20), || will_read_all(&file).unwrap());
    }

    /// Calls `ask`, which tells the kernel, until this many pages are in memory. The kernel may drop some
    /// again (DAMON), and the next advice fetches what the last one left out.
    fn until_resident(file: &File, expected: u64, ask: impl Fn()) {
        evict_and_prove(file).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            ask();
            std::thread::sleep(Duration::from_millis(20));
            let Residency::Pages { resident, .. } = residency(file).unwrap() else {
                panic!("the file is ours");
            };
            // The kernel rounds up to folios.
            if resident >= expected {
                break;
            }
            assert!(Instant::now() < deadline, "{resident} of {expected}");
        }
    }

    #[test]
    fn what_a_file_does_not_have_is_not_asked_for() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        // In pieces of 1 MiB this would take days.
        will_read(&file, 0..u64::MAX).unwrap();
        will_read(&file, u64::MAX - 1..u64::MAX).unwrap();
    }

    #[test]
    fn a_piece_is_of_whole_pages_of_any_size() {
        let file = File::open("/proc/self/exe").unwrap();
        let most = largest_advice(&file);
        assert!(
            (LEAST..=MOST).contains(&most) && most.is_multiple_of(LEAST),
            "{most}"
        );
        // It has no device.
        assert_eq!(
            largest_advice(&File::open("/proc/self/stat").unwrap()),
            LEAST
        );
    }
}
