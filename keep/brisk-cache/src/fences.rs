//! Numbers before the rows of a sorted table, which say in which few rows a text can be.
//!
//! A binary search over all rows touches a row and a text in another place at each of its steps, and each place has to be
//! checked, and fetched from memory. So every [`GROUP`]th row has a fence: the first bytes of its text, behind those that all
//! texts begin with, as a number. Fences lie side by side. Many of them have fences of their own, and so on: a search touches
//! one or two groups of each level, and one or two groups of rows.

use std::io;
use std::iter::successors;
use std::ops::Range;

/// A fence stands for so many rows, or fences of the level below.
pub(crate) const GROUP: usize = 32;

/// Bytes of a fence.
const LEN: usize = size_of::<u64>();

/// How many levels 2^32 rows have.
const MOST_LEVELS: usize = 6;

/// Where the fences of so many rows lie: the highest level first, which has at most one group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fences {
    rows: usize,
    /// How many bytes all texts begin with in common.
    shared: usize,
    /// Fences of each level, the lowest first. The others have none.
    levels: [usize; MOST_LEVELS],
}

impl Fences {
    /// None if there are more rows than a table can have.
    pub(crate) fn of_rows(rows: usize, shared: usize) -> Option<Self> {
        u32::try_from(rows).ok()?;
        let mut levels = [0; MOST_LEVELS];
        let above = |&below: &usize| (below > GROUP).then(|| below.div_ceil(GROUP));
        let counts = successors(Some(rows.div_ceil(GROUP)), above);
        levels
            .iter_mut()
            .zip(counts)
            .for_each(|(level, count)| *level = count);
        Some(Self {
            rows,
            shared,
            levels,
        })
    }

    /// Bytes of all fences.
    pub(crate) fn len(&self) -> usize {
        self.levels.iter().sum::<usize>() * LEN
    }

    /// The fences of rows with these texts, one for each row.
    pub(crate) fn build(&self, texts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        for (level, &count) in self.levels.iter().enumerate().rev() {
            let step = GROUP.pow(level as u32 + 1);
            for text in texts.iter().step_by(step).take(count) {
                bytes.extend_from_slice(&fence(text, self.shared).to_be_bytes());
            }
        }
        bytes
    }

    /// The rows among which a text is, if any row has it. `part` gives bytes of the fences, or stops the search.
    #[inline]
    pub(crate) fn narrow<'v>(
        &self,
        wanted: &[u8],
        mut part: impl FnMut(Range<usize>) -> io::Result<&'v [u8]>,
    ) -> io::Result<Range<usize>> {
        // Of a text that does not begin as all others do, any rows will do: none of them has it.
        let wanted = fence(wanted, self.shared);
        let mut among = 0..usize::MAX;
        let mut start = 0;
        for &count in self.levels.iter().rev().filter(|&&count| count > 0) {
            let (from, to) = (among.start.min(count), among.end.min(count));
            let bytes = part(start + from * LEN..start + to * LEN)?;
            let (fences, _) = bytes.as_chunks::<LEN>();
            let below = fences.partition_point(|fence| u64::from_be_bytes(*fence) < wanted);
            let to = fences.partition_point(|fence| u64::from_be_bytes(*fence) <= wanted);
            // Fences of anybody's bytes may not be sorted.
            let to = to.max(below);
            // A row with the same fence may be in the group before the first one that begins with it.
            among = (from + below).saturating_sub(1) * GROUP..(from + to) * GROUP;
            start += count * LEN;
        }
        Ok(among.start.min(self.rows)..among.end.min(self.rows))
    }
}

/// The bytes behind the first `shared` ones, as a number that sorts as they do. Missing ones count as zeros.
#[inline]
fn fence(text: &[u8], shared: usize) -> u64 {
    let rest = text.get(shared..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => rest
            .iter()
            .zip((0..LEN as u32).rev())
            .fold(0, |number, (&byte, place)| {
                number | u64::from(byte) << (8 * place)
            }),
    }
}

/// How many bytes both texts begin with.
pub(crate) fn shared(first: &[u8], last: &[u8]) -> usize {
    first.iter().zip(last).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {

    use twox_hash::XxHash3_64;

    use super::*;

    fn narrowed(fences: &Fences, bytes: &[u8], wanted: &[u8]) -> Range<usize> {
        let part = |range: Range<usize>| Ok(bytes.get(range).unwrap());
        fences.narrow(wanted, part).unwrap()
    }

    #[test]
    fn each_text_is_among_few_rows() {
        for rows in [0, 1, 31, 32, 33, 1_023, 1_024, 1_025, 3_230, 40_000] {
            let texts: Vec<_> = (0..rows).map(|row| format!("name-{row:05}")).collect();
            let shared = match rows {
                0 => 0,
                _ => shared(texts[0].as_bytes(), texts[rows - 1].as_bytes()),
            };
            let fences = Fences::of_rows(rows, shared).unwrap();
            let bytes_of: Vec<_> = texts.iter().map(String::as_bytes).collect();
            let bytes = fences.build(&bytes_of);
            assert_eq!(bytes.len(), fences.len());
            for (row, text) in texts.iter().enumerate() {
                let range = narrowed(&fences, &bytes, text.as_bytes());
                assert!(range.contains(&row), "{row} of {rows} in {range:?}");
                assert!(range.len() <= 2 * GROUP, "{range:?}");
            }
            for absent in ["", "name", "name-", "name-00000.5", "z"] {
                assert!(narrowed(&fences, &bytes, absent.as_bytes()).end <= rows);
            }
        }
    }

    #[test]
    fn texts_that_differ_late_or_not_at_all_are_still_among_the_rows() {
        let mut texts: Vec<Vec<u8>> = vec![b"a".to_vec(), b"a\0".to_vec(), b"a\0\0".to_vec()];
        texts
            .extend((0..300).map(|n| format!("equal for longer than a fence {:03}", n / 7).into()));
        texts.sort();
        let fences = Fences::of_rows(texts.len(), 0).unwrap();
        let bytes_of: Vec<_> = texts.iter().map(Vec::as_slice).collect();
        let bytes = fences.build(&bytes_of);
        for (row, text) in texts.iter().enumerate() {
            assert!(narrowed(&fences, &bytes, text).contains(&row));
        }
    }

    #[test]
    fn fences_that_are_not_sorted_give_rows_that_exist() {
        let fences = Fences::of_rows(2_000, 0).unwrap();
        for seed in 0..200u64 {
            let number =
                |n: u64| XxHash3_64::oneshot_with_seed(seed, &n.to_le_bytes()).to_be_bytes();
            let bytes: Vec<u8> = (0..fences.len() as u64 / 8).flat_map(number).collect();
            let range = narrowed(&fences, &bytes, &number(u64::MAX));
            assert!(range.start <= range.end && range.end <= 2_000);
        }
        let most = Fences::of_rows(u32::MAX as usize, 0).unwrap();
        assert_eq!(most.levels[MOST_LEVELS - 1], 4);
        assert!(Fences::of_rows(u32::MAX as usize + 1, 0).is_none());
    }
}
