use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// How many bytes of texts are remembered: the wheels of 266 real projects have 1,807 ends of names, with 91 KB.
const MOST: usize = 1 << 20;

/// How many ends of names there is room for from the first one on: the pages of most projects have fewer. Their texts have some
/// 50 bytes each.
const FIRST: usize = 100;

/// Ranks of ends of names. It allocates as it grows, and not for each.
#[derive(Debug, Default, Clone)]
pub(crate) struct KnownTails {
    /// All texts, one behind the other.
    texts: String,
    /// By the hash of a text: where the text is, and its rank. Of two texts with one hash, the first is known.
    ranks: HashMap<u64, Known>,
    hasher: RandomState,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    start: usize,
    end: usize,
    rank: u32,
}

impl KnownTails {
    /// The rank of a text, which `find` finds if it is not known.
    pub(crate) fn rank(&mut self, text: &str, find: impl FnOnce() -> u32) -> u32 {
        let hash = self.hasher.hash_one(text);
        let known = self.ranks.get(&hash);
        if let Some(known) = known
            && self.texts.get(known.start..known.end) == Some(text)
        {
            return known.rank;
        }
        let is_taken = known.is_some();
        let rank = find();
        let start = self.texts.len();
        let end = start.saturating_add(text.len());
        if !is_taken && end <= MOST {
            if self.ranks.is_empty() {
                self.ranks.reserve(FIRST);
                self.texts.reserve(50 * FIRST);
            }
            self.texts.push_str(text);
            self.ranks.insert(hash, Known { start, end, rank });
        }
        rank
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_once() {
        let mut known = KnownTails::default();
        let texts: Vec<String> = (0..1_000).map(|n| format!("-cp{n}-none-any.whl")).collect();
        for (rank, text) in (0..).zip(&texts) {
            assert_eq!(known.rank(text, || rank), rank);
        }
        for (rank, text) in (0..).zip(&texts) {
            assert_eq!(known.rank(text, || panic!("it is known")), rank);
        }
        let long = "x".repeat(MOST);
        assert_eq!(known.rank(&long, || 1), 1);
        assert_eq!(known.rank(&long, || 2), 2);
        assert_eq!(known.rank(&texts[0], || 3), 0);
    }
}
