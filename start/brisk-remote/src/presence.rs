//! Which parts of a file have arrived.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a unit, of which a bit says whether it is there. A block of a hash tree is one unit.
pub const UNIT: u64 = 4096;

/// The most bytes of an image that arrives. Whatever a server says, what is known of its parts fits into 32 MiB.
pub const MOST_IMAGE: u64 = 1 << 40;

/// One bit for each unit of a file: whether its bytes are there.
///
/// Threads can share one value. A bit that is set says that the bytes were written before.
#[derive(Debug)]
pub struct Presence {
    /// The bit of unit `n` is bit `n % 64` of word `n / 64`.
    words: Vec<AtomicU64>,
    /// Bytes of the file.
    len: u64,
}

impl Presence {
    /// Nothing of a file of `len` bytes.
    pub fn nothing(len: u64) -> Self {
        let words = len.div_ceil(UNIT).div_ceil(64);
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            len,
        }
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of a map of a file of `len` bytes.
    pub fn map_len(len: u64) -> u64 {
        len.div_ceil(UNIT).div_ceil(64) * 8
    }

    /// `bytes` up to whole units, within the file.
    pub fn whole_units(&self, bytes: &Range<u64>) -> Range<u64> {
        let end = bytes.end.min(self.len);
        if bytes.start >= end {
            return end..end;
        }
        let start = bytes.start - bytes.start % UNIT;
        start
            ..end
                .checked_next_multiple_of(UNIT)
                .map_or(self.len, |end| end.min(self.len))
    }

    /// The first part of `bytes` that is absent, in whole units. None if all of it is there.
    pub fn first_absent(&self, bytes: &Range<u64>) -> Option<Range<u64>> {
        let whole = self.whole_units(bytes);
        if whole.is_empty() {
            return None;
        }
        let units = whole.start / UNIT..whole.end.div_ceil(UNIT);
        let first = units.clone().find(|unit| !self.has_unit(*unit))?;
        let end = (first..units.end).find(|unit| self.has_unit(*unit));
        let end = end.unwrap_or(units.end);
        Some(first * UNIT..(end * UNIT).min(self.len))
    }

    /// Whether all of `bytes` is there.
    pub fn has(&self, bytes: &Range<u64>) -> bool {
        self.first_absent(bytes).is_none()
    }

    /// Whether the whole file is there.
    pub fn is_complete(&self) -> bool {
        self.has(&(0..self.len))
    }

    /// How many bytes of a file of `len` bytes are there, by its whole map.
    pub fn present_in(map: &[u8], len: u64) -> u64 {
        let units: u64 = map.iter().map(|byte| u64::from(byte.count_ones())).sum();
        units.saturating_mul(UNIT).min(len)
    }

    /// How many bytes are there.
    pub fn present(&self) -> u64 {
        let units: u64 = self
            .words
            .iter()
            .map(|word| u64::from(word.load(Ordering::Relaxed).count_ones()))
            .sum();
        (units * UNIT).min(self.len)
    }

    /// The units that are wholly in `bytes` are there now. The last unit of the file is whole where the file ends.
    pub fn set(&self, bytes: &Range<u64>) {
        self.change(bytes, |word, bit| {
            word.fetch_or(bit, Ordering::Release);
        });
    }

    /// The units that are wholly in `bytes` are absent.
    pub fn clear(&self, bytes: &Range<u64>) {
        self.change(bytes, |word, bit| {
            word.fetch_and(!bit, Ordering::Release);
        });
    }

    fn change(&self, bytes: &Range<u64>, change: impl Fn(&AtomicU64, u64)) {
        let end = match bytes.end >= self.len {
            true => self.len.div_ceil(UNIT),
            false => bytes.end / UNIT,
        };
        for unit in bytes.start.div_ceil(UNIT)..end {
            if let Some(word) = self.word(unit) {
                change(word, 1 << (unit % 64));
            }
        }
    }

    fn word(&self, unit: u64) -> Option<&AtomicU64> {
        self.words.get(usize::try_from(unit / 64).ok()?)
    }

    fn has_unit(&self, unit: u64) -> bool {
        self.word(unit)
            .is_some_and(|word| word.load(Ordering::Acquire) & (1 << (unit % 64)) != 0)
    }

    /// Which bytes of the map tell about `bytes`, in whole words.
    pub fn map_range(&self, bytes: &Range<u64>) -> Range<u64> {
        let whole = self.whole_units(bytes);
        let words = whole.start / UNIT / 64..whole.end.div_ceil(UNIT).div_ceil(64);
        words.start * 8..words.end * 8
    }

    /// The bytes of the map in `range`, which [`map_range`](Self::map_range) gives.
    pub fn map_bytes(&self, range: &Range<u64>) -> Vec<u8> {
        let words = range.start / 8..range.end / 8;
        let words = words.filter_map(|word| self.words.get(usize::try_from(word).ok()?));
        words
            .flat_map(|word| word.load(Ordering::Acquire).to_le_bytes())
            .collect()
    }

    /// Takes `bytes` of the map, which start at byte `at` of it, a multiple of 8: what they have is there, too.
    pub fn take_map(&self, at: u64, bytes: &[u8]) {
        let (read, _) = bytes.as_chunks::<8>();
        for (word, bits) in (at / 8..).zip(read) {
            if let Some(word) = usize::try_from(word)
                .ok()
                .and_then(|word| self.words.get(word))
            {
                word.fetch_or(u64::from_le_bytes(*bits), Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 units and a piece of one.
    const LEN: u64 = 100 * UNIT + 7;

    #[test]
    fn only_whole_units_are_there() {
        let presence = Presence::nothing(LEN);
        presence.set(&(1..2 * UNIT));
        assert_eq!(presence.first_absent(&(0..2 * UNIT)), Some(0..UNIT));
        assert!(presence.has(&(UNIT..2 * UNIT)));
        assert!(presence.has(&(UNIT + 5..UNIT + 6)));
        presence.set(&(2 * UNIT..LEN));
        assert!(presence.has(&(UNIT..u64::MAX)));
        assert!(!presence.is_complete());
        assert_eq!(presence.present(), 100 * UNIT);
        presence.set(&(0..UNIT));
        assert!(presence.is_complete());
        assert_eq!(presence.present(), LEN);
        presence.clear(&(64 * UNIT..65 * UNIT));
        assert_eq!(presence.first_absent(&(3..LEN)), Some(64 * UNIT..65 * UNIT));
    }

    #[test]
    fn what_is_absent_ends_with_the_file() {
        let presence = Presence::nothing(LEN);
        assert_eq!(
            presence.first_absent(&(99 * UNIT + 1..u64::MAX)),
            Some(99 * UNIT..LEN)
        );
        assert_eq!(presence.first_absent(&(LEN..u64::MAX)), None);
        assert_eq!(presence.first_absent(&(5..5)), None);
        assert!(Presence::nothing(0).is_complete());
    }

    #[test]
    fn a_map_goes_from_one_process_to_another() {
        let (one, other) = (Presence::nothing(LEN), Presence::nothing(LEN));
        one.set(&(70 * UNIT..LEN));
        let range = one.map_range(&(69 * UNIT..71 * UNIT));
        assert_eq!(range, 8..16);
        other.take_map(range.start, &one.map_bytes(&range));
        assert_eq!(other.first_absent(&(0..LEN)), Some(0..70 * UNIT));
        assert_eq!(Presence::map_len(LEN), 16);
        let map = one.map_bytes(&(0..16));
        assert_eq!(Presence::present_in(&map, LEN), 31 * UNIT);
        assert_eq!(Presence::present_in(&[0xff; 16], LEN), LEN);
        // What a damaged map says of units behind the end changes nothing.
        other.take_map(0, &[0xff; 64]);
        assert!(other.is_complete());
        assert_eq!(other.present(), LEN);
    }
}
