use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time in whole seconds since 1970, which the caller's clock says.
///
/// A response's age is the difference of two of these. Each was rounded down, so the difference is never less than the
/// whole seconds that passed, and a response never counts as fresh when its lifetime is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time so many seconds after 1970 began.
    pub const fn from_unix(seconds: u64) -> Self {
        Self(seconds)
    }

    /// The seconds since 1970 began.
    pub const fn unix(self) -> u64 {
        self.0
    }

    /// The seconds since an earlier time. 0 if that time is later than this one.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time so many seconds later.
    #[must_use]
    pub const fn plus(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// The same time, for the rest of the program.
    pub fn system_time(self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.0))
    }
}

/// A time before 1970 counts as 1970.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH);
        Self(since.map_or(0, |duration| duration.as_secs()))
    }
}
