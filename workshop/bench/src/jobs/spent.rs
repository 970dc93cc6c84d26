//! What a job took.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use rustix::time::{ClockId, clock_gettime};

/// What a job took, by name.
pub type Values = BTreeMap<String, f64>;

/// What this process has used up to a moment.
pub struct Spent {
    pub at: Instant,
    user: f64,
    system: f64,
    count: Option<fn() -> usize>,
    allocations: usize,
}

impl Spent {
    /// Its first and its last system call in a trace are the marks between which calls are counted: see `counting`.
    /// `count` counts allocations of Rust in this process.
    pub fn now(count: Option<fn() -> usize>) -> Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let seconds = |time: TimeVal| time.num_microseconds() as f64 / 1e6;
        Ok(Self {
            at: Instant::now(),
            user: seconds(usage.user_time()),
            system: seconds(usage.system_time()),
            count,
            allocations: count.map_or(0, |count| count()),
        })
    }

    /// What was used since then, for each of so many operations.
    pub fn since(&self, times: u64) -> Result<Values> {
        let now = Self::now(self.count)?;
        let times = times.max(1) as f64;
        let mut values = Values::from([
            ("user_ns".to_owned(), (now.user - self.user) * 1e9 / times),
            (
                "system_ns".to_owned(),
                (now.system - self.system) * 1e9 / times,
            ),
        ]);
        if self.count.is_some() {
            let more = now.allocations.saturating_sub(self.allocations);
            values.insert("allocations".to_owned(), more as f64 / times);
        }
        Ok(values)
    }
}

/// The monotonic clock, which all processes share.
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
