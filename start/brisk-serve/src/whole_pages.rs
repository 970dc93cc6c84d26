//! The part of a range that can be stored in the page cache.

use std::ops::Range;

/// The whole pages of `page` bytes in `range`. The last page of a file of `len` bytes counts as whole if the
/// range reaches the end of the file. Storing less of a page would leave the rest of it empty, and storing
/// more would make the file longer.
pub(crate) fn whole_pages(range: Range<u64>, len: u64, page: u64) -> Range<u64> {
    let start = range.start.next_multiple_of(page);
    let end = match range.end {
        end if end >= len => len,
        end => end - end % page,
    };
    start.min(end)..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_whole_pages_within_the_file() {
        let table = [
            ((0..8192, 100_000, 4096), 0..8192),
            ((1..8191, 100_000, 4096), 4096..4096),
            ((4096..131_072, 10_000, 4096), 4096..10_000),
            ((4096..10_000, 10_000, 4096), 4096..10_000),
            ((9000..10_000, 10_000, 4096), 10_000..10_000),
            ((4096..131_072, 200_000, 65_536), 65_536..131_072),
        ];
        for ((range, len, page), stored) in table {
            assert_eq!(whole_pages(range, len, page), stored);
        }
    }
}
