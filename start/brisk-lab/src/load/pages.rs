//! Which pages of a file to touch, and which sum that must give.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use brisk_io::page_size;

use super::case::Touched;

/// How many parts of a file are touched, each from its start to its end.
const PARTS: u64 = 16;

/// How much of a page to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grain {
    /// Its first eight bytes, which shows what the strategy costs and nothing else.
    Word,
    /// All of it.
    Page,
}

/// The numbers of the pages of a file of `len` bytes, in the order in which to touch them.
pub fn of(len: u64, touched: Touched, seed: u64) -> Vec<u64> {
    let total = len.div_ceil(page_size() as u64);
    let count = (total * u64::from(touched.percent)).div_ceil(100);
    if touched.random {
        let mut pages: Vec<_> = (0..total).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut pages);
        pages.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        return pages;
    }
    let parts = PARTS.min(count);
    let part = |number: u64| {
        let first = total * number / parts;
        let count = count * (number + 1) / parts - count * number / parts;
        first..first + count
    };
    (0..parts).flat_map(part).collect()
}

/// The bytes of page `number` in a file of `len` bytes. The last page may be short.
pub fn place(number: u64, len: usize) -> std::ops::Range<usize> {
    let page = page_size();
    let start = usize::try_from(number)
        .unwrap_or(usize::MAX)
        .saturating_mul(page);
    start.min(len)..start.saturating_add(page).min(len)
}

/// What page `number` with these `bytes` adds to the sum. No two pages add the same.
#[inline]
pub fn sum(number: u64, bytes: &[u8], grain: Grain) -> u64 {
    let value = match grain {
        Grain::Word => word(bytes),
        Grain::Page => bytes
            .chunks(8)
            .fold(0_u64, |sum, chunk| sum.wrapping_add(word(chunk))),
    };
    value.wrapping_mul(2 * number + 1)
}

/// The first eight bytes, or fewer if there are fewer.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => bytes
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// The sum of `pages`, read in the simplest way.
pub fn expected(file: &File, pages: &[u64], grain: Grain) -> io::Result<u64> {
    let mut page = vec![0; page_size()];
    let mut total = 0_u64;
    for &number in pages {
        let mut read = 0;
        while read < page.len() {
            let at = number * page_size() as u64 + read as u64;
            match file.read_at(&mut page[read..], at) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        total = total.wrapping_add(sum(number, &page[..read], grain));
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(text: &str) -> Touched {
        text.parse().unwrap()
    }

    #[test]
    fn pages_are_as_many_as_asked_for_and_none_twice() {
        let page = page_size() as u64;
        let in_order = of(100 * page - 1, touched("100"), 0);
        assert_eq!(in_order, (0..100).collect::<Vec<_>>());
        // 16 parts of one or two pages.
        let part = of(100 * page, touched("25"), 0);
        assert_eq!(part[..5], [0, 6, 7, 12, 18]);
        assert_eq!((part.len(), part.is_sorted()), (25, true));
        let random = of(100 * page, touched("25-random"), 7);
        assert_eq!(random, of(100 * page, touched("25-random"), 7));
        for (mut pages, count) in [(part, 25), (random, 25), (of(1, touched("1"), 0), 1)] {
            pages.sort_unstable();
            pages.dedup();
            assert_eq!(pages.len(), count);
            assert!(*pages.last().unwrap() < 100);
        }
        assert!(of(0, touched("100"), 0).is_empty());
    }

    #[test]
    fn a_sum_tells_pages_apart() {
        let file = tempfile::tempfile().unwrap();
        let len = 2 * page_size() + 3;
        let bytes: Vec<u8> = (0..len).map(|n| (n % 251 + 1) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        for grain in [Grain::Word, Grain::Page] {
            let pages = [0, 1, 2].map(|n| sum(n, &bytes[place(n, len)], grain));
            let [a, b, c] = pages;
            let all = a.wrapping_add(b).wrapping_add(c);
            assert_eq!(expected(&file, &[2, 0, 1], grain).unwrap(), all);
            let swapped = sum(0, &bytes[place(1, len)], grain);
            assert_ne!(
                swapped.wrapping_add(sum(1, &bytes[place(0, len)], grain)),
                a.wrapping_add(b)
            );
        }
        let last = bytes[2 * page_size()..].to_vec();
        let little = u64::from(last[0]) | u64::from(last[1]) << 8 | u64::from(last[2]) << 16;
        assert_eq!(sum(2, &last, Grain::Word), little * 5);
    }
}
