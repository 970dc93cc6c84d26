//! Sets of pages of one file.

use std::collections::BTreeMap;

/// Pages of one file, as ranges.
///
/// 1. The ranges, `first` to `end`, hold at least one page each. No two overlap or are adjacent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PageSet(BTreeMap<u64, u64>);

impl PageSet {
    /// Adds `first..end`, and tells `on_new` the parts of it that were not there, in order.
    pub(crate) fn insert(&mut self, first: u64, end: u64, mut on_new: impl FnMut(u64, u64)) {
        if first >= end {
            return;
        }
        let (mut from, mut to) = (first, end);
        let mut next = first;
        // Backwards from the last that starts at or before the end; all of them merge with the new.
        let mut merged = Vec::new();
        for (&start, &stop) in self.0.range(..=end).rev() {
            if stop < first {
                break;
            }
            merged.push((start, stop));
        }
        for &(start, stop) in merged.iter().rev() {
            if next < start.min(end) {
                on_new(next, start.min(end));
            }
            next = next.max(stop);
            (from, to) = (from.min(start), to.max(stop));
            self.0.remove(&start);
        }
        if next < end {
            on_new(next, end);
        }
        self.0.insert(from, to);
    }

    /// The ranges, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(&first, &end)| (first, end))
    }

    /// Pages in the set.
    pub(crate) fn pages(&self) -> u64 {
        self.ranges().map(|(first, end)| end - first).sum()
    }

    /// Pages that both sets have.
    pub(crate) fn common_pages(&self, other: &Self) -> u64 {
        let (mut ours, mut theirs) = (self.ranges(), other.ranges());
        let (mut a, mut b) = (ours.next(), theirs.next());
        let mut pages = 0;
        while let (Some((a_first, a_end)), Some((b_first, b_end))) = (a, b) {
            pages += a_end.min(b_end).saturating_sub(a_first.max(b_first));
            match a_end <= b_end {
                true => a = ours.next(),
                false => b = theirs.next(),
            }
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_a_set_of_pages(
            a in prop::collection::vec((0u64..60, 0u64..12), 0..30),
            b in prop::collection::vec((0u64..60, 0u64..12), 0..30),
        ) {
            let fill = |ranges: &[(u64, u64)]| {
                let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
                for &(first, count) in ranges {
                    let expected: Vec<u64> =
                        (first..first + count).filter(|page| !model.contains(page)).collect();
                    let mut new = Vec::new();
                    set.insert(first, first + count, |first, end| new.extend(first..end));
                    assert_eq!(new, expected);
                    model.extend(expected);
                }
                let pages: Vec<u64> = set.ranges().flat_map(|(first, end)| first..end).collect();
                assert_eq!(pages, model.iter().copied().collect::<Vec<_>>());
                let ranges: Vec<_> = set.ranges().collect();
                assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
                (set, model)
            };
            let ((a, a_model), (b, b_model)) = (fill(&a), fill(&b));
            prop_assert_eq!(a.pages(), a_model.len() as u64);
            prop_assert_eq!(a.common_pages(&b), a_model.intersection(&b_model).count() as u64);
        }
    }
}
