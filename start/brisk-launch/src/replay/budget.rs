//! Decides how many bytes may be read ahead.

use brisk_io::Extent;

use crate::memory::free_memory;

/// The assumed free memory if the system does not say.
const UNKNOWN_MEMORY: u64 = 1 << 30;

/// How many bytes may be read ahead now: the allowed number, if there is one, but at most half of the free memory.
pub fn budget(allowed: Option<u64>) -> u64 {
    within_memory(allowed, free_memory())
}

fn within_memory(allowed: Option<u64>, free: Option<u64>) -> u64 {
    let half = free.unwrap_or(UNKNOWN_MEMORY) / 2;
    allowed.unwrap_or(u64::MAX).min(half)
}

/// The first `budget` bytes of `ranges`, and how many bytes are left out. A profile may list files that are
/// much longer than the real ones, and a list of extents takes memory.
pub(super) fn within(ranges: impl Iterator<Item = Extent>, budget: u64) -> (Vec<Extent>, u64) {
    let (mut room, mut left_out) = (budget, 0u64);
    let mut kept = Vec::new();
    for range in ranges {
        let len = range.len.min(room);
        room -= len;
        left_out = left_out.saturating_add(range.len - len);
        if len > 0 {
            kept.push(Extent { len, ..range });
        }
    }
    (kept, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_free_memory_is_the_bound() {
        for (allowed, free, budget) in [
            (None, Some(100), 50),
            (Some(10), Some(100), 10),
            (Some(60), Some(100), 50),
            (Some(0), Some(100), 0),
            (None, Some(0), 0),
            (None, None, UNKNOWN_MEMORY / 2),
            (Some(1), None, 1),
        ] {
            let found = within_memory(allowed, free);
            assert_eq!(found, budget, "{allowed:?} of {free:?}");
        }
    }

    #[test]
    fn what_is_beyond_the_budget_is_cut_and_counted() {
        let extent = |offset, len| Extent {
            file: 0,
            offset,
            len,
        };
        let ranges = [extent(0, 10), extent(20, 10), extent(40, u64::MAX)];
        for (budget, kept, left_out) in [
            (0, vec![], u64::MAX),
            (10, vec![extent(0, 10)], u64::MAX),
            (15, vec![extent(0, 10), extent(20, 5)], u64::MAX),
            (
                u64::MAX,
                vec![extent(0, 10), extent(20, 10), extent(40, u64::MAX - 20)],
                20,
            ),
        ] {
            let found = within(ranges.into_iter(), budget);
            assert_eq!(found, (kept, left_out), "{budget}");
        }
    }
}
