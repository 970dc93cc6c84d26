//! Segments in large pages of the page cache.
//!
//! The page cache makes a page when a byte of it is first written or read, and as large as that write or read. A segment
//! that grows by records therefore lies in small pages, and a process that maps it has a fault for every 64 KiB. So a
//! writer reads each piece of a segment, which has nothing yet, in one large page before it writes there. This asks
//! the disk for nothing. One fault then maps up to 2 MiB.
//!
//! Only long records ask for this: ext4 looks at each block of a page for each write to it, so 1,000 updates of 400 bytes
//! took more than twice as long in large pages.

use std::fs::File;
use std::ops::Range;

use brisk_io::{LARGE_PAGE, cache_in_large_pages};

use crate::segment::FIRST_LEN;

/// From this length on, a record is worth a large page.
pub(crate) const LARGE: u64 = 16 << 10;

/// The pieces that begin in a range of a segment of this length: the second half of the first large page, and whole ones. The
/// first half has the segment's header already, so that its pages are small.
fn pieces(range: &Range<u64>, len: u64) -> impl Iterator<Item = Range<u64>> {
    let whole = (range.start.next_multiple_of(LARGE_PAGE)..range.end).step_by(LARGE_PAGE as usize);
    let whole = whole
        .filter(|&start| start > 0)
        .map(|start| start..start + LARGE_PAGE);
    let first = range.contains(&FIRST_LEN).then_some(FIRST_LEN..LARGE_PAGE);
    let all = first.into_iter().chain(whole);
    all.filter(move |piece| piece.end <= len)
}

/// Makes large pages of what begins in a range of a segment. Nothing of the range was written yet.
pub(crate) fn cache_ahead(segment: &File, range: &Range<u64>, len: u64) {
    for piece in pieces(range, len) {
        // Without them, readers have more faults.
        cache_in_large_pages(segment, piece).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_cached_once_and_never_behind_the_end() {
        const MIB: u64 = 1 << 20;
        let of = |range, len| {
            let pieces = pieces(&range, len).map(|piece| (piece.start / MIB, piece.end / MIB));
            pieces.collect::<Vec<_>>()
        };
        assert_eq!(of(64..MIB, 2 * MIB), []);
        assert_eq!(of(64..MIB + 1, MIB + 64), []);
        assert_eq!(of(MIB - 64..MIB + 64, 2 * MIB), [(1, 2)]);
        assert_eq!(of(MIB + 64..3 * MIB, 4 * MIB), [(2, 4)]);
        assert_eq!(of(3 * MIB..9 * MIB, 9 * MIB), [(4, 6), (6, 8)]);
        let step = 84_000;
        let all = (64..16 * MIB)
            .step_by(step)
            .flat_map(|at| of(at..at + step as u64, 16 * MIB));
        let starts: Vec<_> = all.map(|(start, _)| start).collect();
        assert_eq!(starts, [1, 2, 4, 6, 8, 10, 12, 14]);
    }
}
