use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// How many bytes of texts are remembered: the wheels of 266 real projects have 1,807 ends of names, with 91 KB.
const MOST: usize = 1 << 20;

/// How many texts there is room for from the first one on: the pages of most projects have fewer. They have some 50 bytes each.
const FIRST: usize = 100;

/// Ranks of texts. It allocates as it grows, and not for each.
#[derive(Debug, Default, Clone)]
pub(crate) struct KnownTexts {
    /// All texts, one behind the other.
    texts: Vec<u8>,
    ranks: HashTable<Known>,
    hasher: DefaultHashBuilder,
}

/// Where a text is, and its rank.
#[derive(Debug, Clone, Copy)]
struct Known {
    start: usize,
    end: usize,
    rank: u32,
}

impl KnownTexts {
    /// The rank of a text, which `find` finds if it is not known.
    ///
    /// # Errors
    ///
    /// Those of `find`.
    pub(crate) fn rank<E>(
        &mut self,
        text: &[u8],
        find: impl FnOnce() -> Result<u32, E>,
    ) -> Result<u32, E> {
        let Self {
            texts,
            ranks,
            hasher,
        } = self;
        let of = |known: &Known| texts.get(known.start..known.end).unwrap_or_default();
        let hash = hasher.hash_one(text);
        if let Some(known) = ranks.find(hash, |known| of(known) == text) {
            return Ok(known.rank);
        }
        let rank = find()?;
        let start = texts.len();
        let end = start.saturating_add(text.len());
        if end <= MOST {
            let hash_of = |known: &Known| hasher.hash_one(of(known));
            if ranks.is_empty() {
                ranks.reserve(FIRST, hash_of);
            }
            ranks.insert_unique(hash, Known { start, end, rank }, hash_of);
            if texts.is_empty() {
                texts.reserve(50 * FIRST);
            }
            texts.extend_from_slice(text);
        }
        Ok(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_once() {
        let mut known = KnownTexts::default();
        let texts: Vec<String> = (0..1_000).map(|n| format!("-cp{n}-none-any.whl")).collect();
        let mut found =
            |text: &str, rank: Option<u32>| known.rank(text.as_bytes(), || rank.ok_or(()));
        assert_eq!(found(&texts[0], None), Err(()));
        for (rank, text) in (0..).zip(&texts) {
            assert_eq!(found(text, Some(rank)), Ok(rank));
        }
        for (rank, text) in (0..).zip(&texts) {
            assert_eq!(found(text, None), Ok(rank));
        }
        let long = "x".repeat(MOST);
        assert_eq!(found(&long, Some(1)), Ok(1));
        assert_eq!(found(&long, Some(2)), Ok(2));
        assert_eq!(found(&texts[0], None), Ok(0));
    }
}
