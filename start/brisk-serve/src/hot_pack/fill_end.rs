//! Decides when a fill stops before the end of its pack.

use std::sync::atomic::{AtomicU64, Ordering};

use brisk_image::ErrorKind;
use rustix::io::Errno;

/// How many bytes a fill may decode in a row although the program has asked for every page of them already.
/// After that the fill ends, because it only takes time from the program.
const IN_VAIN: u64 = 4 << 20;

/// How many bytes a fill may store: the allowed number, but at most half of the free memory, if that is
/// known.
pub(super) fn budget(allowed: Option<u64>, free: Option<u64>) -> u64 {
    let allowed = allowed.unwrap_or(u64::MAX);
    free.map_or(allowed, |free| allowed.min(free / 2))
}

/// The result of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    Yes,
    /// The kernel does not take these pages.
    No,
    /// The kernel does not know the file. It may know it after a look-up of its name.
    Unknown,
    /// The kernel accepts no more pages.
    Over,
}

impl From<Result<(), Errno>> for Stored {
    fn from(result: Result<(), Errno>) -> Self {
        match result {
            Ok(()) => Self::Yes,
            Err(Errno::NOENT) => Self::Unknown,
            // There is no memory for them, or the file is of another kind.
            Err(Errno::NOMEM | Errno::INVAL) => Self::No,
            // The connection has ended, or the kernel does not support stores.
            Err(_) => Self::Over,
        }
    }
}

/// Whether a fill goes on after a frame that failed in this way. A damaged frame says nothing about the
/// others, but a file that cannot be read will fail again.
pub(super) fn goes_on_behind(failed: ErrorKind) -> bool {
    failed == ErrorKind::Corrupt
}

/// Counts what is decoded for nothing.
#[derive(Debug, Default)]
pub(super) struct Vain {
    decoded: AtomicU64,
}

impl Vain {
    /// A frame of `len` bytes was decoded. `stored`: something of it was stored. Returns whether the fill
    /// must end.
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
