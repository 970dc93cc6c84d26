//! Telling the kernel what will be read.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::{io, iter};

use rustix::fs::{Advice, fadvise};

use crate::{BlockDevice, ReadAt};

/// What every file system reads for one advice.
const LEAST: u64 = 128 << 10;

/// More in one piece would be waited for as a whole.
const MOST: u64 = 1 << 20;

/// How many bytes of `file` the kernel reads for one advice that they will be needed; the rest of a
/// larger piece it leaves out without a word. From 128 KiB to 1 MiB.
///
/// It is the larger of the device's read-ahead and its largest request (`force_page_cache_ra` of the
/// kernel, `mm/readahead.c`). Where no device is known, as on FUSE, NFS and Btrfs, it is 128 KiB.
pub fn largest_advice(file: &File) -> u64 {
    largest_advice_on(BlockDevice::of_file(file).as_ref())
}

/// As [`largest_advice`], of files on this device, or on none.
pub fn largest_advice_on(device: Option<&BlockDevice>) -> u64 {
    let kib = |file| device.and_then(|device| device.number(file)).unwrap_or(0);
    let kib = kib("queue/read_ahead_kb").max(kib("queue/max_sectors_kb"));
    // Whole pages of any size.
    kib.saturating_mul(1024).clamp(LEAST, MOST) / LEAST * LEAST
}

/// Has the kernel begin to read `bytes` of `file` into the page cache, and waits for nothing but that
/// they are asked for.
///
/// # Errors
///
/// What `posix_fadvise` says, and what asking for the file's length does. It is advice: a reader does without.
pub fn will_read(file: &File, bytes: Range<u64>) -> io::Result<()> {
    // Of what a file does not have, nothing can be read.
    let bytes = bytes.start..bytes.end.min(ReadAt::size(file)?);
    advise(file, bytes, largest_advice(file))
}

/// As [`will_read`], of the whole file, without asking what one advice does on its device: of pieces that are
/// large for it, the rest is asked for once more in small ones, and what is read already is not read again.
///
/// For a program's own code, of which such questions would have some read before.
///
/// # Errors
///
/// As [`will_read`].
pub fn will_read_all(file: &File) -> io::Result<()> {
    let bytes = 0..ReadAt::size(file)?;
    advise(file, bytes.clone(), MOST)?;
    advise(file, bytes, LEAST)
}

/// Tells the kernel in pieces of so many bytes.
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
    use crate::{Residency, evict_and_prove, page_size, residency};
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

    /// Has `ask` tell the kernel until so many pages are there. It may take some away again (DAMON), and what
    /// one advice leaves out, the next one does, too.
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
        // Has no device.
        assert_eq!(
            largest_advice(&File::open("/proc/self/stat").unwrap()),
            LEAST
        );
    }
}
