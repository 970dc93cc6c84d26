use std::sync::atomic::{AtomicU64, Ordering};

/// What happened through one handle since it was opened. Hits are not counted, because that would take as long as a
/// part of them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) absent: Counter,
    pub(crate) damaged: Counter,
    pub(crate) foreign: Counter,
    pub(crate) expired: Counter,
    pub(crate) unknown: Counter,
    pub(crate) displaced: Counter,
    pub(crate) evicted: Counter,
    pub(crate) copied: Counter,
    pub(crate) unstored: Counter,
    pub(crate) unasked: Counter,
    pub(crate) unnoted: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
