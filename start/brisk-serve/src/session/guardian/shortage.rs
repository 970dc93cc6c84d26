//! Shortages of the system that may soon be over.

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// How soon to try something again that is not possible now.
pub(super) const SOON: Duration = Duration::from_millis(20);

/// Whether this error means too few descriptors or processes, or too little memory. There may be enough
/// later.
pub(super) fn is_shortage(e: Errno) -> bool {
    matches!(
        e,
        Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM
    )
}

/// Like [`is_shortage`], for an error of the standard library.
pub(super) fn of_shortage(e: &io::Error) -> bool {
    Errno::from_io_error(e).is_some_and(is_shortage)
}

/// A time in which nothing is tried that needs what is short.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    until: Option<Instant>,
}

impl Shortage {
    pub(super) fn met(&mut self, now: Instant) {
        self.until = Some(now + SOON);
    }

    pub(super) fn end_if_over(&mut self, now: Instant) {
        self.until.take_if(|until| *until <= now);
    }

    /// When it ends. None if there is no shortage.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_tried_again_after_20_ms() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut shortage = Shortage::default();
        assert_eq!(shortage.until(), None);
        shortage.met(at(0));
        for (now, lasts) in [(0, true), (19, true), (20, false), (0, false)] {
            shortage.end_if_over(at(now));
            assert_eq!(shortage.until(), lasts.then(|| at(20)), "{now}");
        }
    }

    #[test]
    fn a_shortage_is_not_any_error() {
        for (error, short) in [
            (Errno::AGAIN, true),
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOBUFS, true),
            (Errno::NOMEM, true),
            (Errno::PERM, false),
            (Errno::NOSPC, false),
        ] {
            assert_eq!(of_shortage(&error.into()), short, "{error}");
        }
        assert!(!of_shortage(&io::Error::other("AGAIN")));
    }
}
