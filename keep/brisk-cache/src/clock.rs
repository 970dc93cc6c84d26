use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brisk_io::coarse_seconds;

/// A minute since 1970. Slots keep times in minutes.
pub(crate) type Minute = u32;

/// The present minute. It takes no system call.
#[inline]
pub(crate) fn now() -> Minute {
    #[cfg(test)]
    if let Some(minute) = tests::FAKE.get() {
        return minute;
    }
    Minute::try_from(coarse_seconds() / 60).unwrap_or(0)
}

/// How long ago a minute was. A minute of the future, by a clock that was set back, counts as now.
#[inline]
pub(crate) fn age(now: Minute, then: Minute) -> Duration {
    Duration::from_secs(60 * u64::from(now.saturating_sub(then)))
}

/// The beginning of a minute.
pub(crate) fn time_of(minute: Minute) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(60 * u64::from(minute))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// What [`now`] says to this thread.
        pub(crate) static FAKE: Cell<Option<Minute>> = const { Cell::new(None) };
    }

    #[test]
    fn the_future_is_now() {
        assert_eq!(age(100, 90), Duration::from_secs(600));
        assert_eq!(age(90, 100), Duration::ZERO);
        let real = UNIX_EPOCH.elapsed().unwrap().as_secs() / 60;
        assert!(u64::from(now()).abs_diff(real) <= 1);
        assert_eq!(time_of(2), UNIX_EPOCH + Duration::from_secs(120));
    }
}
