//! Plans in which pieces to ask the kernel for a list of ranges, so that they are in memory soon.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::advice::LEAST;

/// A range joins an extent only if it is wanted within this time of it, counted in the disk's own time. The
/// time is long, because a disk with few operations a second gains more from fewer operations than from their
/// order. At 2000 operations a second, a launch of Chromium has 3832 extents with 50 ms, and 560 with
/// 500 ms.
const WINDOW: Duration = Duration::from_millis(500);

/// An extent has no more bytes than the disk moves in the time of this many operations: then operations take
/// at most a ninth of the time. More bytes would fill the queue of the disk, and small reads of a program would
/// wait for them. A virtual disk of 680 MB/s and 63,000 operations a second takes 2 ms for 1 MiB.
const WORTH: u64 = 8;

/// What a disk charges for a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charge {
    /// Bytes a second.
    pub bytes_per_second: NonZeroU64,
    /// Operations a second, of any size.
    pub operations_per_second: NonZeroU64,
}

impl Charge {
    /// A disk that moves so many bytes and does so many operations in a second.
    pub fn new(bytes_per_second: NonZeroU64, operations_per_second: NonZeroU64) -> Self {
        Self {
            bytes_per_second,
            operations_per_second,
        }
    }

    /// The time that the disk takes for one read of `bytes`.
    pub fn of(&self, bytes: u64) -> Duration {
        let second = 1_000_000_000;
        let transfer = u128::from(bytes) * second / u128::from(self.bytes_per_second.get());
        let nanoseconds = transfer + second / u128::from(self.operations_per_second.get());
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// The largest gap between two ranges that is worth reading: reading it takes no longer than another
    /// operation.
    pub(crate) fn bridged(&self) -> u64 {
        self.bytes_per_second.get() / self.operations_per_second
    }
}

/// How to read files on one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskReads {
    /// What the disk charges.
    pub charge: Charge,
    /// The most bytes that the kernel reads for one call. It drops the rest of a larger advice.
    pub largest: NonZeroU64,
}

impl DiskReads {
    /// A disk that charges this, under a kernel that reads at most `largest` bytes for one call.
    pub fn new(charge: Charge, largest: NonZeroU64) -> Self {
        Self { charge, largest }
    }

    /// The most bytes of an extent: where operations are cheap, larger ones gain nothing.
    fn largest_extent(&self) -> u64 {
        // A multiple of every page size.
        let worth = self.charge.bridged().saturating_mul(WORTH).max(LEAST) / LEAST * LEAST;
        self.largest.get().min(worth)
    }
}

/// A range of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The caller's number of the file.
    pub file: u32,
    /// The first byte.
    pub offset: u64,
    /// How many bytes. [`plan_extents`] returns no empty extent.
    pub len: u64,
}

impl Extent {
    /// The byte after the last.
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// Plans extents that cover `ranges`, in the order of the ranges.
///
/// A range joins an extent of the same file if reading the gap between them takes no longer than another
/// operation, if both fit into one call, and if the range is wanted soon after the extent. Bytes that two
/// ranges share are read once.
///
/// 1. Each byte of a range is in exactly one extent.
/// 2. An extent begins and ends with bytes of ranges, and has at most [`DiskReads::largest`] bytes. It has at
///    most 128 KiB, or eight times what the disk moves in the time of one operation if that is more.
pub fn plan_extents(
    ranges: impl IntoIterator<Item = Extent>,
    disk_of: impl Fn(u32) -> DiskReads,
) -> Vec<Extent> {
    let mut plan = Plan::default();
    for range in ranges {
        plan.add(range, disk_of(range.file));
    }
    plan.extents.retain(|(extent, _)| extent.len > 0);
    plan.extents.into_iter().map(|(extent, _)| extent).collect()
}

#[derive(Default)]
struct Plan {
    /// Each extent, with the time on the disk's clock at which its read begins. An extent that joined another
    /// is empty.
    extents: Vec<(Extent, Duration)>,
    /// The extents that are not empty, by file and first byte.
    places: BTreeMap<(u32, u64), usize>,
    /// The disk's time for all of them.
    time: Duration,
}

impl Plan {
    fn add(&mut self, range: Extent, disk: DiskReads) {
        let largest = disk.largest_extent();
        let mut at = range.offset;
        while at < range.end() {
            let before = self.places.range(..=(range.file, at)).next_back();
            let before = before
                .map(|(_, &number)| number)
                .filter(|&number| self.extents[number].0.file == range.file);
            if let Some(end) = before.map(|number| self.extents[number].0.end())
                && end > at
            {
                at = end;
                continue;
            }
            let after = self.places.range((range.file, at)..).next();
            let after = after
                .map(|(_, &number)| number)
                .filter(|&number| self.extents[number].0.file == range.file);
            // Up to this byte, no extent reads the range.
            let free = after.map_or(u64::MAX, |number| self.extents[number].0.offset);
            let stop = range.end().min(free);
            let reach = |number: usize| self.extents[number].0.offset.saturating_add(largest);
            if let Some(number) = before
                && self.is_near(number, at - self.extents[number].0.end(), disk)
                && reach(number) > at
                // Joining only a part of the range saves no operation.
                && (stop <= reach(number) || at == self.extents[number].0.end())
            {
                let end = stop.min(reach(number));
                self.grow(number, end, disk);
                self.join(number, after, disk);
                at = end;
                continue;
            }
            if let Some(number) = after
                && self.is_near(number, free - stop, disk)
                && self.extents[number].0.end() - at <= largest
            {
                self.places.remove(&(range.file, free));
                self.places.insert((range.file, at), number);
                let extent = &mut self.extents[number].0;
                extent.len = extent.end() - at;
                extent.offset = at;
                self.time += disk.charge.of(free - at) - disk.charge.of(0);
                at = stop;
                continue;
            }
            let end = stop.min(at.saturating_add(largest));
            let extent = Extent {
                file: range.file,
                offset: at,
                len: end - at,
            };
            self.places.insert((range.file, at), self.extents.len());
            self.extents.push((extent, self.time));
            self.time += disk.charge.of(extent.len);
            at = end;
        }
    }

    /// Whether a range that comes now may join this extent across a gap of this many bytes.
    fn is_near(&self, number: usize, gap: u64, disk: DiskReads) -> bool {
        gap <= disk.charge.bridged() && self.time.saturating_sub(self.extents[number].1) <= WINDOW
    }

    fn grow(&mut self, number: usize, end: u64, disk: DiskReads) {
        let extent = &mut self.extents[number].0;
        let more = end - extent.end();
        extent.len += more;
        self.time += disk.charge.of(more) - disk.charge.of(0);
    }

    /// Joins an extent and the one after it, if that saves an operation.
    fn join(&mut self, number: usize, after: Option<usize>, disk: DiskReads) {
        let Some(after) = after else { return };
        let (one, other) = (self.extents[number].0, self.extents[after].0);
        if other.offset < one.end()
            || other.end() - one.offset > disk.largest_extent()
            || !self.is_near(after, other.offset - one.end(), disk)
        {
            return;
        }
        self.places.remove(&(other.file, other.offset));
        let (first, second) = (number.min(after), number.max(after));
        self.places.insert((one.file, one.offset), first);
        self.extents[first].0 = Extent {
            len: other.end() - one.offset,
            ..one
        };
        self.extents[second].0.len = 0;
        let gap = disk.charge.of(other.offset - one.end()) - disk.charge.of(0);
        self.time = (self.time + gap).saturating_sub(disk.charge.of(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn disk(bytes: u64, operations: u64, largest: u64) -> DiskReads {
        let number = |n| NonZeroU64::new(n).unwrap();
        DiskReads {
            charge: Charge {
                bytes_per_second: number(bytes),
                operations_per_second: number(operations),
            },
            largest: number(largest),
        }
    }

    fn plan(ranges: &[(u32, u64, u64)], disk: DiskReads) -> Vec<(u32, u64, u64)> {
        let ranges = ranges
            .iter()
            .map(|&(file, offset, len)| Extent { file, offset, len });
        let extents = plan_extents(ranges, |_| disk);
        extents.iter().map(|e| (e.file, e.offset, e.len)).collect()
    }

    #[test]
    fn a_gap_is_read_where_operations_are_dear() {
        let ranges = [(0, 0, 10), (1, 5, 5), (0, 100, 10)];
        // The gap has 90 bytes. Here an operation costs as much as 100 bytes, and there as much as 50.
        let dear = disk(100_000, 1000, 500);
        assert_eq!(plan(&ranges, dear), [(0, 0, 110), (1, 5, 5)]);
        let cheap = disk(50_000, 1000, 500);
        assert_eq!(plan(&ranges, cheap), ranges);
        // No operation is saved if one call does not read both.
        assert_eq!(plan(&ranges, disk(100_000, 1000, 109)), ranges);
    }

    #[test]
    fn what_is_wanted_much_later_waits() {
        // 10000 bytes take a second.
        let disk = disk(10_000, 1_000_000, 10_000);
        assert_eq!(
            plan(&[(0, 0, 10), (1, 0, 6000), (0, 10, 10)], disk),
            [(0, 0, 10), (1, 0, 6000), (0, 10, 10)]
        );
        assert_eq!(
            plan(&[(0, 0, 10), (1, 0, 100), (0, 10, 10)], disk),
            [(0, 0, 20), (1, 0, 100)]
        );
    }

    #[test]
    fn what_is_larger_than_a_call_is_cut() {
        let disk = disk(100_000, 1000, 100);
        assert_eq!(
            plan(&[(3, 50, 250)], disk),
            [(3, 50, 100), (3, 150, 100), (3, 250, 50)]
        );
    }

    #[test]
    fn a_hole_between_two_extents_makes_one_of_them() {
        let disk = disk(1_000_000, 100_000, 100);
        assert_eq!(
            plan(&[(0, 0, 10), (0, 40, 10), (0, 20, 10)], disk),
            [(0, 0, 50)]
        );
    }

    #[test]
    fn a_disk_with_fast_operations_is_asked_for_small_extents() {
        let lengths = |bytes, operations| -> Vec<u64> {
            let disk = disk(bytes, operations, 1 << 20);
            let extents = plan(&[(0, 0, 1 << 20)], disk);
            extents.iter().map(|&(_, _, len)| len).collect()
        };
        assert_eq!(lengths(680 << 20, 63_000), [128 << 10; 8]);
        assert_eq!(lengths(512 << 20, 16_384), [256 << 10; 4]);
        assert_eq!(lengths(512 << 20, 2_000), [1 << 20]);
    }

    proptest! {
        #[test]
        fn each_byte_of_a_range_is_in_one_extent(
            ranges in prop::collection::vec((0u32..3, 0u64..400, 1u64..60), 0..40),
            bytes in 1u64..200_000,
            operations in 1u64..3000,
            largest in 1u64..120,
        ) {
            let disk = disk(bytes, operations, largest);
            let extents = plan(&ranges, disk);
            let bytes_of = |list: &[(u32, u64, u64)]| -> Vec<(u32, u64)> {
                list.iter()
                    .flat_map(|&(file, offset, len)| (offset..offset + len).map(move |at| (file, at)))
                    .collect()
            };
            let wanted: BTreeSet<_> = bytes_of(&ranges).into_iter().collect();
            let read = bytes_of(&extents);
            let read_once: BTreeSet<_> = read.iter().copied().collect();
            prop_assert_eq!(read.len(), read_once.len());
            prop_assert!(wanted.is_subset(&read_once));
            for &(file, offset, len) in &extents {
                prop_assert!((1..=largest).contains(&len));
                prop_assert!(wanted.contains(&(file, offset)));
                prop_assert!(wanted.contains(&(file, offset + len - 1)));
                // No gap is larger than the cost of an operation.
                let mut gap = 0;
                for at in offset..offset + len {
                    gap = if wanted.contains(&(file, at)) { 0 } else { gap + 1 };
                    prop_assert!(gap <= disk.charge.bridged());
                }
            }
        }
    }
}
