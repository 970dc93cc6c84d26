//! Whether what comes is progress.

use std::time::Duration;

use tokio::time::Instant;

/// So many bytes must come in so much time. A request that brings fewer is given up, and sent again. A program that waits sees no
/// progress in fewer, unless an answer is whole: else a server could keep it for ever by a byte now and then.
pub const LEAST: u64 = 16 << 10;
pub const LEAST_IN: Duration = Duration::from_secs(10);

/// What has come of an image since the last progress.
#[derive(Debug)]
pub struct Pace {
    since: Instant,
    bytes: u64,
}

impl Pace {
    pub fn new(now: Instant) -> Self {
        Self {
            since: now,
            bytes: 0,
        }
    }

    /// Bytes have come. Whether that is progress.
    pub fn came(&mut self, bytes: u64, now: Instant) -> bool {
        if now - self.since > LEAST_IN {
            *self = Self::new(now);
            return bytes >= LEAST;
        }
        self.bytes += bytes;
        let is_progress = self.bytes >= LEAST;
        if is_progress {
            *self = Self::new(now);
        }
        is_progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_fast_enough_is_progress() {
        let begun = Instant::now();
        let progress = |bytes, every: u64, times: u64| {
            let mut pace = Pace::new(begun);
            let times = (1..=times).map(|time| begun + Duration::from_millis(time * every));
            times.filter(|now| pace.came(bytes, *now)).count()
        };
        // A page each three seconds, each two, each second; much at once.
        assert_eq!(progress(4096, 3000, 100), 0);
        assert_eq!(progress(4096, 2000, 100), 25);
        assert_eq!(progress(4096, 1000, 100), 25);
        assert_eq!(progress(1 << 20, 60_000, 3), 3);
    }
}
