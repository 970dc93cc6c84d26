//! Which pages of a hot pack were stored, and which ones the kernel asked for.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use brisk_image::InodeRef;
use brisk_image::hot_pack::HotPack;

/// Marks of a page: the kernel asked for it, or it was stored.
const ASKED: u8 = 1;
const STORED: u8 = 2;

/// The fewest pages that a sample has one page of: 128 KiB, as much as the kernel reads at once.
const PART: usize = 32;

/// The state of each page of a pack.
pub(super) struct PageStates {
    /// The ranges of each node, sorted.
    files: HashMap<u64, Vec<KnownRange>>,
    /// Where the pages of each range of the pack are in `states`, by the number of the range.
    bases: Vec<usize>,
    /// The node of each range, if that is known, and its first page.
    places: Vec<Option<(u64, u64)>>,
    states: Vec<AtomicU8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct KnownRange {
    first: u64,
    /// The end of the range: the page after the last.
    end: u64,
    /// Where its first page is in `states`.
    base: usize,
}

/// Where a pack has a page of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The range that has it, by its number.
    pub(super) range: usize,
    /// How many pages of that range are before it.
    pub(super) before: u64,
    /// The page behind that range.
    pub(super) end: u64,
}

/// The states of pages when the kernel asked for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AskedPages {
    /// Pages of the pack that were not yet stored.
    pub(super) late: u64,
    /// Pages that were stored, but for which the kernel had no room.
    pub(super) evicted: u64,
    /// Pages that are not in the pack.
    pub(super) strayed: u64,
    /// Pages that the kernel had asked for before.
    again: u64,
}

impl AskedPages {
    /// Whether none of the pages is in the pack.
    pub(super) fn is_outside(self) -> bool {
        self.late + self.evicted + self.again == 0
    }
}

impl PageStates {
    /// `node` returns the kernel's number of a file.
    pub(super) fn of(pack: &HotPack, node: impl Fn(InodeRef) -> u64) -> Self {
        let nodes: Vec<_> = pack.files().map(|file| file.inode().map(&node)).collect();
        let ranges = (0..pack.range_count()).map_while(|number| pack.range(number));
        Self::of_ranges(ranges.map(|range| {
            let node = nodes.get(range.file as usize).copied().flatten();
            (node, range.first..range.end())
        }))
    }

    /// From ranges of pages, each with its node if that is known.
    fn of_ranges(ranges: impl Iterator<Item = (Option<u64>, Range<u64>)>) -> Self {
        let mut files: HashMap<u64, Vec<_>> = HashMap::new();
        let (mut bases, mut places) = (Vec::new(), Vec::new());
        let mut sum: usize = 0;
        for (node, Range { start, end }) in ranges {
            bases.push(sum);
            places.push(node.map(|node| (node, start)));
            if let Some(node) = node {
                files.entry(node).or_default().push(KnownRange {
                    first: start,
                    end,
                    base: sum,
                });
            }
            // All ranges together have the pages of the pack, whose number is limited.
            sum += usize::try_from(end.saturating_sub(start)).unwrap_or(0);
        }
        for ranges in files.values_mut() {
            ranges.sort_unstable();
        }
        let states = std::iter::repeat_with(AtomicU8::default);
        Self {
            files,
            bases,
            places,
            states: states.take(sum).collect(),
        }
    }

    /// The range that has a page.
    fn range(&self, node: u64, page: u64) -> Option<&KnownRange> {
        let ranges = self.files.get(&node)?;
        let behind = ranges.partition_point(|range| range.first <= page);
        let range = ranges.get(behind.checked_sub(1)?)?;
        (page < range.end).then_some(range)
    }

    fn state(&self, node: u64, page: u64) -> Option<&AtomicU8> {
        let range = self.range(node, page)?;
        let within = usize::try_from(page - range.first).ok()?;
        self.states.get(range.base.checked_add(within)?)
    }

    /// Where the pack has a page. None if it lacks it.
    pub(super) fn place(&self, node: u64, page: u64) -> Option<Place> {
        let range = self.range(node, page)?;
        let behind = self.bases.partition_point(|base| *base <= range.base);
        Some(Place {
            range: behind.checked_sub(1)?,
            before: page - range.first,
            end: range.end,
        })
    }

    /// Marks pages that the kernel asks for.
    pub(super) fn ask(&self, node: u64, pages: Range<u64>) -> AskedPages {
        let mut asked = AskedPages::default();
        for page in pages {
            let was = self
                .state(node, page)
                .map(|state| state.fetch_or(ASKED, Ordering::Relaxed));
            match was {
                None => asked.strayed += 1,
                Some(was) if was & STORED != 0 => asked.evicted += 1,
                Some(was) if was & ASKED == 0 => asked.late += 1,
                Some(_) => asked.again += 1,
            }
        }
        asked
    }

    /// The pages of the range with this number.
    pub(super) fn of_range(&self, number: usize, count: u64) -> RangeStates<'_> {
        let base = self.bases.get(number).copied().unwrap_or(usize::MAX);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let states = self.states.get(base..base.saturating_add(count));
        RangeStates(states.unwrap_or(&[]))
    }
}

impl PageStates {
    /// One page of each part of the pack that was in the page cache before: one that was asked for or stored. The pack has at
    /// most `most` parts, of at least [`PART`] pages.
    pub(super) fn sample(&self, most: usize) -> Vec<SampledPart> {
        let len = self.states.len().div_ceil(most.max(1)).max(PART);
        let parts = (0..self.states.len()).step_by(len);
        parts
            .filter_map(|start| self.sampled(start..(start + len).min(self.states.len())))
            .collect()
    }

    fn sampled(&self, part: Range<usize>) -> Option<SampledPart> {
        let states = self.states.get(part.clone())?;
        let at = part.start + states.iter().position(|state| !is_wanted(state))?;
        // Empty ranges begin where the next one does.
        let number = self.bases.partition_point(|base| *base <= at);
        let number = number.checked_sub(1)?;
        let (node, first) = (*self.places.get(number)?)?;
        let page = first.saturating_add((at - self.bases.get(number)?) as u64);
        Some(SampledPart { part, node, page })
    }

    /// Makes the pages of a part wanted again, as if nobody had asked for them.
    pub(super) fn forget(&self, part: &SampledPart) {
        for state in self.states.get(part.part.clone()).unwrap_or(&[]) {
            state.store(0, Ordering::Relaxed);
        }
    }
}

/// A part of a pack, and one page of it, which was in the page cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SampledPart {
    /// Pages by their number in the pack.
    part: Range<usize>,
    /// The file of the page.
    pub(super) node: u64,
    /// Its number in the file.
    pub(super) page: u64,
}

/// The pages of one range of a pack.
#[derive(Clone, Copy)]
pub(super) struct RangeStates<'a>(&'a [AtomicU8]);

impl RangeStates<'_> {
    /// Those behind the first `skipped` pages.
    pub(super) fn behind(self, skipped: u64) -> Self {
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        Self(self.0.get(skipped..).unwrap_or(&[]))
    }

    /// Whether a page was neither asked for nor stored.
    pub(super) fn has_wanted(self) -> bool {
        self.0.iter().any(is_wanted)
    }

    /// The next pages from `from` on that were neither asked for nor stored. None if there are none.
    pub(super) fn wanted_from(self, from: usize) -> Option<Range<usize>> {
        let rest = self.0.get(from..)?;
        let start = rest.iter().position(is_wanted)?;
        let len = rest
            .get(start..)?
            .iter()
            .take_while(|state| is_wanted(state))
            .count();
        Some(from + start..from + start + len)
    }

    pub(super) fn mark_stored(self, pages: Range<usize>) {
        for state in self.0.get(pages).unwrap_or(&[]) {
            state.fetch_or(STORED, Ordering::Relaxed);
        }
    }
}

fn is_wanted(state: &AtomicU8) -> bool {
    state.load(Ordering::Relaxed) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranges of node 5, out of order, one of a file for which the kernel has no number, and one of node
    /// 6.
    fn states() -> PageStates {
        let ranges = [
            (Some(5), 20..24),
            (Some(5), 2..4),
            (None, 0..2),
            (Some(6), 0..1),
        ];
        PageStates::of_ranges(ranges.into_iter())
    }

    fn asked(late: u64, evicted: u64, strayed: u64, again: u64) -> AskedPages {
        AskedPages {
            late,
            evicted,
            strayed,
            again,
        }
    }

    #[test]
    fn pages_are_late_evicted_strayed_or_known() {
        let states = states();
        states.of_range(0, 4).mark_stored(1..2);
        for (node, pages, found, outside) in [
            (5, 20..21, asked(1, 0, 0, 0), false),
            (5, 20..21, asked(0, 0, 0, 1), false),
            (5, 21..22, asked(0, 1, 0, 0), false),
            // A page that was evicted again counts again.
            (5, 21..22, asked(0, 1, 0, 0), false),
            (5, 1..5, asked(2, 0, 2, 0), false),
            (5, 4..20, asked(0, 0, 16, 0), true),
            (5, 24..25, asked(0, 0, 1, 0), true),
            (5, 0..2, asked(0, 0, 2, 0), true),
            (6, 0..1, asked(1, 0, 0, 0), false),
            (7, 0..1, asked(0, 0, 1, 0), true),
            (5, 3..3, asked(0, 0, 0, 0), true),
        ] {
            let what = format!("{pages:?} of {node}");
            let asked = states.ask(node, pages);
            assert_eq!((asked, asked.is_outside()), (found, outside), "{what}");
        }
    }

    #[test]
    fn what_was_asked_for_or_stored_is_not_wanted() {
        let states = states();
        let range = states.of_range(0, 4);
        assert_eq!(range.wanted_from(0), Some(0..4));
        states.ask(5, 21..22);
        assert_eq!(range.wanted_from(0), Some(0..1));
        assert_eq!(range.wanted_from(1), Some(2..4));
        range.mark_stored(0..1);
        assert_eq!(range.wanted_from(0), Some(2..4));
        range.mark_stored(2..4);
        assert_eq!(range.wanted_from(0), None);
        assert!(!range.has_wanted());
        assert!(states.of_range(1, 2).has_wanted());
        // For a file without a number, the kernel asks for nothing.
        assert!(states.of_range(2, 2).has_wanted());
        assert_eq!(states.of_range(9, 1).wanted_from(0), None);
        assert_eq!(range.wanted_from(9), None);
    }

    #[test]
    fn a_sample_has_one_page_of_each_part_that_was_in_memory() {
        let ranges = [(Some(5), 100..140), (None, 0..30), (Some(6), 7..97)];
        let states = PageStates::of_ranges(ranges.into_iter());
        let pages = |most| {
            let sample = states.sample(most).into_iter();
            let found = sample.map(|part| (part.node, part.page, part.part));
            found.collect::<Vec<_>>()
        };
        assert_eq!(pages(256), []);
        states.of_range(0, 40).mark_stored(0..40);
        assert_eq!(pages(256), [(5, 100, 0..32), (5, 132, 32..64)]);
        states.ask(6, 90..97);
        states.ask(6, 9..10);
        let all = [
            (5, 100, 0..32),
            (5, 132, 32..64),
            (6, 9, 64..96),
            (6, 90, 128..160),
        ];
        assert_eq!(pages(256), all);
        assert_eq!(pages(2), [(5, 100, 0..80), (6, 90, 80..160)]);
        assert_eq!(pages(0), [(5, 100, 0..160)]);
        states.forget(&states.sample(256)[1]);
        assert_eq!(states.of_range(0, 40).wanted_from(0), Some(32..40));
        assert_eq!(pages(256), [&all[..1], &all[2..]].concat());
    }

    #[test]
    fn a_part_of_a_range_has_its_own_pages() {
        let states = states();
        let part = states.of_range(0, 4).behind(1);
        part.mark_stored(0..1);
        assert_eq!(part.wanted_from(0), Some(1..3));
        assert_eq!(states.of_range(0, 4).wanted_from(1), Some(2..4));
        assert_eq!(states.of_range(0, 4).behind(4).wanted_from(0), None);
        assert_eq!(states.of_range(0, 4).behind(u64::MAX).wanted_from(0), None);
    }
}
