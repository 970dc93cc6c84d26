//! When a fill ends before its pack does.

use std::sync::atomic::{AtomicU64, Ordering};

use brisk_image::ErrorKind;
use rustix::io::Errno;

/// Bytes that a fill may decode in a row though the program has asked for every page of them by itself.
/// After them the fill ends: it only takes time from the program.
const IN_VAIN: u64 = 4 << 20;

/// Bytes that a fill may store: what is allowed, within half of the free memory, where that is known.
pub(super) fn budget(allowed: Option<u64>, free: Option<u64>) -> u64 {
    let allowed = allowed.unwrap_or(u64::MAX);
    free.map_or(allowed, |free| allowed.min(free / 2))
}

/// What became of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    Yes,
    /// The kernel does not take these pages.
    No,
    /// The kernel does not know the file, and may after a look-up of its name.
    Unknown,
    /// The kernel takes no more pages.
    Over,
}

impl From<Result<(), Errno>> for Stored {
    fn from(result: Result<(), Errno>) -> Self {
        match result {
            Ok(()) => Self::Yes,
            Err(Errno::NOENT) => Self::Unknown,
            // There is no memory for them, or the file is of another kind.
            Err(Errno::NOMEM | Errno::INVAL) => Self::No,
            // The connection has ended, or the kernel knows no stores.
            Err(_) => Self::Over,
        }
    }
}

/// Whether a fill goes on behind a frame that failed so: a damaged frame says nothing about the others, and
/// a file that cannot be read fails again.
pub(super) fn goes_on_behind(failed: ErrorKind) -> bool {
    failed == ErrorKind::Corrupt
}

/// Counts what is decoded in vain.
#[derive(Debug, Default)]
pub(super) struct Vain {
    decoded: AtomicU64,
}

impl Vain {
    /// A frame of `len` bytes was decoded, and something of it stored or not. Returns whether the fill is to
    /// end.
    pub(super) fn frame(&self, len: u64, stored: bool) -> bool {
        if stored {
            self.decoded.store(0, Ordering::Relaxed);
            return false;
        }
        self.decoded.fetch_add(len, Ordering::Relaxed) + len >= IN_VAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn half_of_the_free_memory_is_the_bound() {
        for (allowed, free, most) in [
            (None, None, u64::MAX),
            (Some(9), None, 9),
            (None, Some(10), 5),
            (Some(4), Some(10), 4),
            (Some(6), Some(10), 5),
            (Some(0), Some(10), 0),
        ] {
            assert_eq!(budget(allowed, free), most, "{allowed:?} of {free:?}");
        }
    }

    #[test]
    fn a_fill_ends_after_4_mib_in_vain() {
        for (frames, end) in [
            (vec![(4 * MIB - 1, false)], false),
            (vec![(4 * MIB, false)], true),
            (vec![(3 * MIB, false), (MIB, false)], true),
            (vec![(3 * MIB, false), (MIB, true), (3 * MIB, false)], false),
            (vec![(3 * MIB, false), (1, true), (4 * MIB, false)], true),
            (vec![(64 * MIB, true)], false),
        ] {
            let vain = Vain::default();
            let ends: Vec<bool> = frames
                .iter()
                .map(|(len, stored)| vain.frame(*len, *stored))
                .collect();
            let (last, before) = ends.split_last().expect("a frame");
            assert!(!before.contains(&true), "{frames:?}");
            assert_eq!(*last, end, "{frames:?}");
        }
    }

    #[test]
    fn a_fill_ends_when_the_kernel_takes_no_more() {
        for (result, stored) in [
            (Ok(()), Stored::Yes),
            (Err(Errno::NOENT), Stored::Unknown),
            (Err(Errno::NOMEM), Stored::No),
            (Err(Errno::INVAL), Stored::No),
            (Err(Errno::NODEV), Stored::Over),
            (Err(Errno::NOSYS), Stored::Over),
        ] {
            assert_eq!(Stored::from(result), stored, "{result:?}");
        }
    }

    #[test]
    fn a_fill_ends_when_its_file_cannot_be_read() {
        for (kind, goes_on) in [
            (ErrorKind::Corrupt, true),
            (ErrorKind::Io, false),
            (ErrorKind::Limit, false),
        ] {
            assert_eq!(goes_on_behind(kind), goes_on, "{kind:?}");
        }
    }
}
