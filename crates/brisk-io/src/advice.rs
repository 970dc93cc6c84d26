//! Telling the kernel what will be read.

use std::fs::{self, File};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::{io, iter};

use rustix::fs::{Advice, fadvise, major, minor};

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
    let of_queue = || -> Option<(u64, u64)> {
        let device = file.metadata().ok()?.dev();
        let device = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        // A partition has the queue of its disk.
        let queue = [format!("{device}/queue"), format!("{device}/../queue")];
        let kib = |name| -> Option<u64> {
            let text = queue
                .iter()
                .find_map(|queue| fs::read_to_string(format!("{queue}/{name}")).ok())?;
            let kib: u64 = text.trim().parse().ok()?;
            Some(kib.saturating_mul(1024))
        };
        Some((kib("read_ahead_kb")?, kib("max_sectors_kb")?))
    };
    let (read_ahead, request) = of_queue().unwrap_or((LEAST, LEAST));
    largest_advice_of(read_ahead, request)
}

/// As [`largest_advice`], of a device with these bytes of read-ahead and of its largest request.
pub fn largest_advice_of(read_ahead: u64, request: u64) -> u64 {
    // Whole pages of any size.
    read_ahead.max(request).clamp(LEAST, MOST) / LEAST * LEAST
}

/// Has the kernel begin to read `bytes` of `file` into the page cache, and waits for nothing but that
/// they are asked for.
///
/// # Errors
///
/// What `posix_fadvise` says: `ESPIPE` if it is a pipe. It is advice: a reader does without.
pub fn will_read(file: &File, bytes: Range<u64>) -> io::Result<()> {
    let most = largest_advice(file);
    let starts = iter::successors(Some(bytes.start), |start| start.checked_add(most));
    for start in starts.take_while(|start| *start < bytes.end) {
        let len = NonZeroU64::new(most.min(bytes.end - start));
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
        evict_and_prove(&file).unwrap();
        will_read(&file, 64 << 10..(2 << 20) + 1).unwrap();
        let pages = |bytes: u64| bytes.div_ceil(page_size() as u64);
        let expected = pages((2 << 20) + 1) - (64 << 10) / page_size() as u64;
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let Residency::Pages { resident, .. } = residency(&file).unwrap() else {
                panic!("the file is ours");
            };
            // The kernel rounds up to folios.
            if resident >= expected {
                break;
            }
            assert!(Instant::now() < deadline, "{resident} of {expected}");
            std::thread::sleep(Duration::from_millis(1));
        }
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
