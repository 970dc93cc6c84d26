//! Keys, values and tables, which anybody can make again from a number.

use anyhow::Result;
use brisk_cache::{FlatTableBuilder, Text};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A key: the bytes of it are random.
pub type Key = [u8; 16];

/// A row of a table.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Row {
    pub(super) name: Text,
    pub(super) number: U64,
}

/// Rows of a table, which then has about 84 KB.
pub(super) const ROWS: u64 = 3_198;

/// The mixing function of SplitMix64.
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

pub(super) fn key(n: u64) -> Key {
    let mut key = [0; 16];
    let (low, high) = key.split_at_mut(8);
    low.copy_from_slice(&mix(n).to_le_bytes());
    high.copy_from_slice(&mix(!n).to_le_bytes());
    key
}

/// A key in hexadecimal, made without an allocation: the name of a file, or a key of text.
pub struct Hex([u8; 32]);

impl Hex {
    /// The digits of a key.
    pub fn of(key: &Key) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(key) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Self(text)
    }
}

impl std::ops::Deref for Hex {
    type Target = str;

    fn deref(&self) -> &str {
        // Digits are always text.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The value of entry `n` after `round` updates.
pub(super) fn value(n: u64, round: u64, len: usize) -> Vec<u8> {
    let words = (0u64..).map(|at| mix(n ^ round.rotate_left(32) ^ at.rotate_left(48)));
    let bytes = words.flat_map(u64::to_le_bytes);
    bytes.take(len).collect()
}

/// What a run adds up of a value, so that it has touched both ends of it.
#[inline]
pub(super) fn ends(value: &[u8]) -> u64 {
    let word = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (first, last) = (word(value.first_chunk()), word(value.last_chunk()));
    first.wrapping_add(last).wrapping_add(value.len() as u64)
}

fn name(row: u64) -> String {
    format!("name-{row:05}")
}

/// The rows of table `n`, sorted by name.
pub(super) fn rows(n: u64) -> impl Iterator<Item = (String, u64)> {
    (0..ROWS).map(move |row| (name(row), mix(n ^ row)))
}

/// What a run looks for in table `n`, and what it finds.
pub(super) fn wanted(n: u64) -> (String, u64) {
    let row = mix(n) % ROWS;
    (name(row), mix(n ^ row))
}

/// The bytes of a flat table of brisk-cache.
pub(super) fn flat_table(rows: &mut dyn Iterator<Item = (String, u64)>) -> Result<Vec<u8>> {
    let mut table = FlatTableBuilder::new();
    for (name, number) in rows {
        let name = table.text(&name)?;
        table.row(Row {
            name,
            number: number.into(),
        })?;
    }
    Ok(table.finish_sorted(|row| row.name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_by_its_digits() {
        let key: Key = std::array::from_fn(|n| u8::try_from(n * 17).unwrap());
        assert_eq!(&*Hex::of(&key), "00112233445566778899aabbccddeeff");
    }

    #[test]
    fn values_and_tables_have_the_sizes_that_figures_name() {
        assert_eq!(value(1, 0, 1024).len(), 1024);
        assert_ne!(value(1, 0, 400), value(1, 1, 400));
        assert_ne!(value(1, 0, 400), value(2, 0, 400));
        let table = flat_table(&mut rows(7)).unwrap();
        assert!(table.len().abs_diff(84_000) < 100, "{}", table.len());
        let names: Vec<_> = rows(7).map(|(name, _)| name).collect();
        assert!(names.is_sorted());
        assert!(rows(7).any(|row| row == wanted(7)));
    }
}
