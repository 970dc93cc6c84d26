use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::UNIT;
use crate::format::slot::Kind;

/// Words of 64 bits in a part, which is allocated when something in it is first noted.
const WORDS: usize = 64;
const PART: usize = WORDS * 64;

/// Which records of a mapped segment have passed their check, by the unit at which each begins.
///
/// What is published never changes, so it is checked once in each handle.
#[derive(Debug)]
pub(crate) struct Verified(Box<[OnceLock<Box<[AtomicU64; WORDS]>>]>);

impl Verified {
    pub(crate) fn new(kind: Kind, segment_len: u64) -> Self {
        let units = match kind {
            Kind::Shared => usize::try_from(segment_len / UNIT).unwrap_or(0),
            // Its one record begins behind the header.
            Kind::Alone => 2,
        };
        Self((0..units.div_ceil(PART)).map(|_| OnceLock::new()).collect())
    }

    #[inline]
    pub(crate) fn has(&self, place: u32) -> bool {
        let place = place as usize;
        let part = self.0.get(place / PART).and_then(OnceLock::get);
        let word = part.and_then(|part| part.get(place % PART / 64));
        word.is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (place % 64)) != 0)
    }

    pub(crate) fn note(&self, place: u32) {
        let place = place as usize;
        if let Some(part) = self.0.get(place / PART) {
            let part = part.get_or_init(|| Box::new([const { AtomicU64::new(0) }; WORDS]));
            if let Some(word) = part.get(place % PART / 64) {
                word.fetch_or(1 << (place % 64), Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_has_a_bit_of_its_own() {
        let verified = Verified::new(Kind::Shared, 1 << 20);
        let places = [1, 2, 63, 64, 4095, 4096, 16_383];
        for place in places {
            assert!(!verified.has(place));
            verified.note(place);
            assert!(verified.has(place));
        }
        let noted: Vec<u32> = (0..20_000).filter(|&place| verified.has(place)).collect();
        assert_eq!(noted, places);
        // Behind the end, nothing is ever noted.
        verified.note(16_384);
        assert!(!verified.has(16_384));
        let alone = Verified::new(Kind::Alone, 1 << 30);
        alone.note(1);
        assert!(alone.has(1));
    }
}
