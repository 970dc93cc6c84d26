use std::sync::atomic::{AtomicU64, Ordering};

/// What a layer has done since it was made: see [`CacheLayer::counts`](super::CacheLayer::counts).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FetchCounts {
    /// Requests that were answered from the cache without asking the origin.
    pub hits: u64,
    /// Requests that were sent to the origin.
    pub sent: u64,
    /// Requests that were answered with the response to another request.
    pub collapsed: u64,
    /// Bodies that were written to the cache.
    pub stored: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// Responses that could have been stored, but their bodies were too long for the cache or the disk failed.
    pub unstored: u64,
    /// Failures of the cache's directory. Requests do not fail by them.
    pub troubles: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    hits: AtomicU64,
    sent: AtomicU64,
    collapsed: AtomicU64,
    stored: AtomicU64,
    stored_bytes: AtomicU64,
    unstored: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn add_hit(&self) {
        add(&self.hits, 1);
    }

    pub(crate) fn add_sent(&self) {
        add(&self.sent, 1);
    }

    pub(crate) fn add_collapsed(&self) {
        add(&self.collapsed, 1);
    }

    pub(crate) fn add_stored(&self, bytes: u64) {
        add(&self.stored, 1);
        add(&self.stored_bytes, bytes);
    }

    pub(crate) fn add_unstored(&self) {
        add(&self.unstored, 1);
    }

    pub(crate) fn counts(&self, troubles: u64) -> FetchCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FetchCounts {
            hits: get(&self.hits),
            sent: get(&self.sent),
            collapsed: get(&self.collapsed),
            stored: get(&self.stored),
            stored_bytes: get(&self.stored_bytes),
            unstored: get(&self.unstored),
            troubles,
        }
    }
}
