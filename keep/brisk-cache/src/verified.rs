use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::UNIT;
use crate::format::record::{Layout, chunk_len};
use crate::format::slot::Kind;

/// Words of 64 bits in a part, which is allocated when something in it is first noted. It has 4 KiB, for 2 MiB of a shared
/// segment: a program that reads all of a segment allocates 32 of them.
const WORDS: usize = 512;
const PART: usize = WORDS * 64;

/// Which records of a mapped segment, and which chunks of long values, have passed their check.
///
/// What is published never changes, so each is checked once in each handle.
///
/// 1. A record and a chunk that are not the same have different bits. In a shared segment, a bit belongs to the unit at
///    which one of them begins, and both begin at units: a value does, and a chunk is a multiple of units. A chunk is
///    behind the head of its record, so it does not begin where a record does.
#[derive(Debug)]
pub(crate) struct Verified {
    kind: Kind,
    passed: Bits,
    /// Records that had passed, and of which a chunk then did not. Nobody looks here for a record that has passed.
    failed: OnceLock<Bits>,
}

/// As many bits as a file has records and chunks.
#[derive(Debug)]
struct Bits {
    parts: Box<[OnceLock<Box<[AtomicU64]>>]>,
    len: usize,
}

impl Bits {
    /// All are unset.
    fn new(len: usize) -> Self {
        Self {
            parts: (0..len.div_ceil(PART)).map(|_| OnceLock::new()).collect(),
            len,
        }
    }

    fn word(&self, bit: usize) -> Option<&AtomicU64> {
        let part = self.parts.get(bit / PART).and_then(OnceLock::get)?;
        part.get(bit % PART / 64)
    }

    #[inline]
    fn has(&self, Mark(bit): Mark) -> bool {
        let word = self.word(bit);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (bit % 64)) != 0)
    }

    fn set(&self, Mark(bit): Mark) {
        if let Some(part) = self.parts.get(bit / PART) {
            part.get_or_init(|| {
                let left = self.len.saturating_sub(bit / PART * PART);
                let words = left.div_ceil(64).min(WORDS);
                (0..words).map(|_| AtomicU64::new(0)).collect()
            });
        }
        if let Some(word) = self.word(bit) {
            word.fetch_or(1 << (bit % 64), Ordering::Relaxed);
        }
    }

    fn clear(&self, Mark(bit): Mark) {
        if let Some(word) = self.word(bit) {
            word.fetch_and(!(1 << (bit % 64)), Ordering::Relaxed);
        }
    }
}

/// The bit of a record or of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(usize);

/// The one record of a file of its own begins behind the header, at unit 1. The bits of its chunks follow.
const FIRST_CHUNK: usize = 2;

impl Verified {
    pub(crate) fn new(kind: Kind, len: u64) -> Self {
        let len = usize::try_from(len).unwrap_or(0);
        let bits = match kind {
            Kind::Shared => len / UNIT as usize,
            // No chunk is shorter.
            Kind::Alone => FIRST_CHUNK + len / chunk_len(kind),
        };
        Self {
            kind,
            passed: Bits::new(bits),
            failed: OnceLock::new(),
        }
    }

    /// The mark of the record that begins at a unit.
    #[inline]
    pub(crate) fn record(&self, place: u32) -> Mark {
        Mark(place as usize)
    }

    /// The mark of a chunk of a value that begins at this offset of the file.
    #[inline]
    pub(crate) fn chunk(&self, layout: &Layout, value_at: u64, number: usize) -> Mark {
        Mark(match self.kind {
            Kind::Shared => {
                let unit = usize::try_from(value_at / UNIT).unwrap_or(usize::MAX);
                unit.saturating_add(number.saturating_mul(layout.chunk / UNIT as usize))
            }
            Kind::Alone => FIRST_CHUNK.saturating_add(number),
        })
    }

    /// Whether a record or a chunk has passed its check.
    #[inline]
    pub(crate) fn has(&self, mark: Mark) -> bool {
        self.passed.has(mark)
    }

    pub(crate) fn note(&self, mark: Mark) {
        self.passed.set(mark);
    }

    /// Whether a chunk of a record has failed its check, or could not be read.
    pub(crate) fn has_failed(&self, record: Mark) -> bool {
        self.failed.get().is_some_and(|failed| failed.has(record))
    }

    /// Notes that of a record. From now on, it has not passed.
    pub(crate) fn note_failure(&self, record: Mark) {
        let none = || Bits::new(self.passed.len);
        self.failed.get_or_init(none).set(record);
        self.passed.clear(record);
    }
}

const _: () = assert!(chunk_len(Kind::Shared).is_multiple_of(UNIT as usize));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::WHOLE;

    #[test]
    fn each_unit_has_a_bit_of_its_own() {
        let verified = Verified::new(Kind::Shared, 5 << 19);
        let places = [1, 2, 63, 64, 4095, 4096, 16_383, 32_767, 32_768, 40_959];
        for place in places {
            let mark = verified.record(place);
            assert!(!verified.has(mark));
            verified.note(mark);
            assert!(verified.has(mark));
        }
        let noted: Vec<u32> = (0..50_000)
            .filter(|&place| verified.has(verified.record(place)))
            .collect();
        assert_eq!(noted, places);
        // Behind the end, nothing is ever noted.
        verified.note(verified.record(40_960));
        assert!(!verified.has(verified.record(40_960)));
    }

    #[test]
    fn records_and_chunks_never_have_one_bit() {
        for (kind, lens) in [
            (
                Kind::Shared,
                vec![5u64, 16_385, 40_000, 0, 32_768, 16_385, 1],
            ),
            (Kind::Alone, vec![3_000_001]),
        ] {
            let mut marks = Vec::new();
            let mut at = UNIT;
            let verified = Verified::new(kind, 4 << 20);
            for len in lens {
                let layout = Layout::of(kind, 3, len).unwrap();
                marks.push(verified.record(u32::try_from(at / UNIT).unwrap()));
                if len > WHOLE as u64 {
                    let value_at = at + layout.value as u64;
                    let chunks = 0..layout.value_len.div_ceil(layout.chunk);
                    marks.extend(chunks.map(|number| verified.chunk(&layout, value_at, number)));
                }
                at += u64::from(layout.room().unwrap()) * UNIT;
            }
            for (n, &mark) in marks.iter().enumerate() {
                assert!(!verified.has(mark), "{kind:?}, {n}");
                verified.note(mark);
                assert!(verified.has(mark), "{kind:?}, {n}");
            }
        }
    }
}
