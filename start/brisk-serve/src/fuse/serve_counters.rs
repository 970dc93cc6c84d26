use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::wire::{UNIQUE_RESEND, op};
use crate::hot_pack::fill_counts::{FillCounters, FillCounts};

/// Counters of a server, for all of its threads.
#[derive(Debug)]
pub struct ServeCounters {
    requests: [AtomicU64; op::END as usize],
    resent: AtomicU64,
    read: AtomicU64,
    stored: AtomicU64,
    faults: AtomicU64,
    /// The times of each of [`OPERATIONS`], and of all other requests together.
    times: [Times; OPERATIONS.len() + 1],
    pub(super) fill: FillCounters,
}

/// The operations that are counted and timed separately, with the codes of their requests.
const OPERATIONS: [(&str, &[u32]); 10] = [
    ("lookup", &[op::LOOKUP]),
    ("getattr", &[op::GETATTR]),
    ("readlink", &[op::READLINK]),
    ("open", &[op::OPEN, op::OPENDIR]),
    ("read", &[op::READ]),
    ("readdir", &[op::READDIR]),
    ("readdirplus", &[op::READDIRPLUS]),
    ("xattr", &[op::GETXATTR, op::LISTXATTR]),
    ("statfs", &[op::STATFS]),
    ("ioctl", &[op::IOCTL]),
];

/// The name for all others.
const OTHER: &str = "other";

/// The row of each code in [`OPERATIONS`].
const ROWS: [usize; op::END as usize] = {
    let mut rows = [OPERATIONS.len(); op::END as usize];
    let mut operation = 0;
    while operation < OPERATIONS.len() {
        let mut code = 0;
        while code < OPERATIONS[operation].1.len() {
            rows[OPERATIONS[operation].1[code] as usize] = operation;
            code += 1;
        }
        operation += 1;
    }
    rows
};

/// A histogram of times: four counters for each doubling of nanoseconds.
#[derive(Debug)]
struct Times([AtomicU64; 256]);

impl Times {
    const fn none() -> Self {
        Self([const { AtomicU64::new(0) }; 256])
    }

    /// The index of the counter for `nanos`: from the highest bit that is set, and the two bits below it.
    fn row(nanos: u64) -> usize {
        let nanos = nanos.max(4);
        let doublings = nanos.ilog2();
        // There are less than 64 doublings, with 4 quarters each.
        (doublings * 4) as usize + ((nanos >> (doublings - 2)) & 3) as usize
    }

    fn add(&self, nanos: u64) {
        if let Some(count) = self.0.get(Self::row(nanos)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of answers, and the percentiles of their times.
    fn percentiles(&self) -> (u64, Percentiles) {
        let counts: Vec<u64> = self
            .0
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect();
        let all: u64 = counts.iter().sum();
        let of = |percent: u64| {
            let rank = (all * percent).div_ceil(100);
            let mut sum = 0;
            let row = counts.iter().position(|count| {
                sum += count;
                sum >= rank && rank > 0
            });
            // The middle of the range of the counter.
            row.map_or(0, |row| {
                let quarter = (1u64 << (row / 4)) / 4;
                (1u64 << (row / 4)) + quarter * (row as u64 % 4) + quarter / 2
            })
        };
        let percentiles = Percentiles {
            p50: of(50),
            p90: of(90),
            p99: of(99),
        };
        (all, percentiles)
    }
}

/// How long the server took to answer, in nanoseconds, exact to an eighth. Half, 90 % and 99 % of the answers
/// took no longer. 0 if there were none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub struct Percentiles {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
}

/// How often an operation was answered, and how long that took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationTimes {
    /// The name of the operation in FUSE: `lookup`, `read`, ... `other` stands for all that have no name
    /// here.
    pub name: &'static str,
    /// The number of answers.
    pub answers: u64,
    /// How long they took.
    pub times: Percentiles,
}

impl Default for ServeCounters {
    fn default() -> Self {
        Self {
            requests: [const { AtomicU64::new(0) }; op::END as usize],
            resent: AtomicU64::new(0),
            read: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            times: [const { Times::none() }; OPERATIONS.len() + 1],
            fill: FillCounters::default(),
        }
    }
}

/// [`ServeCounters`] at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServeCounts {
    /// Requests of every kind.
    pub requests: u64,
    /// Requests that the kernel sent again, because their server had died.
    pub resent: u64,
    /// Look-ups of names, including absent ones.
    pub lookups: u64,
    /// Separate requests for attributes.
    pub getattrs: u64,
    /// Opens of files and directories. Only one of each kind if the kernel needs no answer for the others.
    pub opens: u64,
    /// Parts of listings.
    pub listings: u64,
    /// Targets of symbolic links.
    pub readlinks: u64,
    /// Reads of files.
    pub reads: u64,
    /// Extended attributes, and lists of them.
    pub xattrs: u64,
    /// Bytes in the answers to reads of files.
    pub bytes_read: u64,
    /// Bytes put into the page cache before they were asked for.
    pub bytes_stored: u64,
    /// Requests answered with EIO, because the image is damaged or cannot be read.
    pub faults: u64,
    /// What was put into the page cache from a hot pack.
    pub fill: FillCounts,
}

impl ServeCounters {
    /// The counts now.
    pub fn counts(&self) -> ServeCounts {
        let of = |opcode: u32| {
            self.requests
                .get(opcode as usize)
                .map_or(0, |count| count.load(Ordering::Relaxed))
        };
        ServeCounts {
            requests: (0..op::END).map(of).sum(),
            lookups: of(op::LOOKUP),
            getattrs: of(op::GETATTR),
            opens: of(op::OPEN) + of(op::OPENDIR),
            listings: of(op::READDIR) + of(op::READDIRPLUS),
            readlinks: of(op::READLINK),
            reads: of(op::READ),
            xattrs: of(op::GETXATTR) + of(op::LISTXATTR),
            bytes_read: self.read.load(Ordering::Relaxed),
            resent: self.resent.load(Ordering::Relaxed),
            bytes_stored: self.stored.load(Ordering::Relaxed),
            faults: self.faults.load(Ordering::Relaxed),
            fill: self.fill.counts(),
        }
    }

    /// How long each operation took that was asked for.
    pub fn times(&self) -> Vec<OperationTimes> {
        let names = OPERATIONS.iter().map(|(name, _)| *name).chain([OTHER]);
        let all = names.zip(&self.times).map(|(name, times)| {
            let (answers, times) = times.percentiles();
            OperationTimes {
                name,
                answers,
                times,
            }
        });
        all.filter(|operation| operation.answers > 0).collect()
    }

    /// Counts a request. A code that no kernel has yet counts as code 0.
    pub(super) fn request(&self, opcode: u32, unique: u64) {
        let known = self.requests.get(opcode as usize);
        known
            .unwrap_or(&self.requests[0])
            .fetch_add(1, Ordering::Relaxed);
        if unique & UNIQUE_RESEND != 0 {
            self.resent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the time of a request with this code, from `begun` until now.
    pub(super) fn took(&self, opcode: u32, begun: Instant) {
        let row = ROWS.get(opcode as usize).copied();
        // Every row has times.
        let Some(times) = self.times.get(row.unwrap_or(OPERATIONS.len())) else {
            return;
        };
        times.add(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn stored(&self, bytes: u64) {
        self.stored.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_an_eighth() {
        let times = Times::none();
        assert_eq!(times.percentiles(), (0, Percentiles::default()));
        for nanos in 1..=1000 {
            times.add(nanos * 1000);
        }
        let (count, Percentiles { p50, p90, p99 }) = times.percentiles();
        assert_eq!(count, 1000);
        for (found, expected) in [(p50, 500_000u64), (p90, 900_000), (p99, 990_000)] {
            assert!(
                found.abs_diff(expected) <= expected / 8,
                "{found} {expected}"
            );
        }
        times.add(u64::MAX);
        times.add(0);
    }

    #[test]
    fn each_operation_has_times_of_its_own() {
        let counters = ServeCounters::default();
        assert_eq!(counters.times(), []);
        let codes = [
            op::READ,
            op::OPENDIR,
            op::OPEN,
            op::DESTROY,
            u32::MAX,
            op::READ,
        ];
        for code in codes {
            counters.took(code, Instant::now());
        }
        let found: Vec<_> = counters
            .times()
            .iter()
            .map(|o| (o.name, o.answers))
            .collect();
        assert_eq!(found, [("open", 2), ("read", 2), ("other", 2)]);
    }
}
