//! Decides what brisk learns from a launch.

use std::path::PathBuf;
use std::time::Duration;

/// How long a launch is recorded. It ends when the session's first program ends, or after this time: what a
/// program asks for later depends on its user.
pub const LAUNCH: Duration = Duration::from_secs(15);

/// Make the pack again if a launch missed more than one page for this many pages in the pack.
const STRAYED: u64 = 10;

/// How many launches a pack is made from at most. Everything in a pack counts as needed forever. So if
/// launches still miss much then, the pack is forgotten, and the next one starts again.
const MOST_RUNS: u32 = 8;

/// How a session without a hot pack learns one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Learning {
    /// The directory of the user's [`LearnedPacks`](crate::LearnedPacks).
    pub packs: PathBuf,
    /// How many bytes all packs may take. Those that have been unused for the longest time are deleted first.
    pub limit: u64,
}

/// How many bytes all packs take at most, if nobody says otherwise.
pub const LEARNED_LIMIT: u64 = 1 << 30;

impl Learning {
    /// Keeps packs in the directory `packs`, which take `limit` bytes at most.
    pub fn new(packs: impl Into<PathBuf>, limit: u64) -> Self {
        Self {
            packs: packs.into(),
            limit,
        }
    }
}

/// How a launch was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// Completely: nothing was filled.
    All,
    /// Only what was missing in the pack from which memory was filled.
    Missed,
}

impl Recorded {
    /// Whether a recording of `pages` is worth learning from. `in_pack`: how many pages the filled pack has.
    pub fn is_enough(self, pages: u64, in_pack: u64) -> bool {
        match self {
            Self::All => pages > 0,
            Self::Missed => in_pack > 0 && pages.saturating_mul(STRAYED) > in_pack,
        }
    }
}

/// What is known from earlier launches.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// How many there were.
    pub runs: u32,
    /// How many pages they asked for.
    pub pages: u64,
}

/// What a recorded launch changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lesson {
    /// Make a pack from this launch alone.
    Make,
    /// Make a pack from this launch and the earlier ones.
    Merge,
    /// Make a pack from the earlier launches and what this one missed.
    AddMissed,
    /// Remove the pack. Most of what was missed is read-ahead of the kernel. So the next launch fills
    /// nothing, is recorded completely, and adds to what is known.
    RecordAgain,
    /// Remove everything that is known.
    Forget,
}

impl Lesson {
    /// `pages`: how many pages were recorded.
    pub fn of(known: Option<Known>, recorded: Recorded, pages: u64) -> Self {
        match (known.filter(|known| known.runs < MOST_RUNS), recorded) {
            (None, Recorded::All) => Self::Make,
            (Some(_), Recorded::All) => Self::Merge,
            (Some(known), Recorded::Missed) if pages <= known.pages => Self::AddMissed,
            (Some(_), Recorded::Missed) => Self::RecordAgain,
            (None, Recorded::Missed) => Self::Forget,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_learned_from_if_it_missed_more_than_a_tenth() {
        for (recorded, pages, in_pack, enough) in [
            (Recorded::All, 0, 0, false),
            (Recorded::All, 1, 0, true),
            (Recorded::Missed, 10, 100, false),
            (Recorded::Missed, 11, 100, true),
            (Recorded::Missed, 0, 100, false),
            (Recorded::Missed, 1, 9, true),
            // The pack was not usable after all, so the recording is incomplete.
            (Recorded::Missed, 100, 0, false),
            (Recorded::Missed, u64::MAX, u64::MAX - 1, true),
        ] {
            let found = recorded.is_enough(pages, in_pack);
            assert_eq!(found, enough, "{recorded:?} {pages} of {in_pack}");
        }
    }

    #[test]
    fn a_launch_makes_adds_to_or_ends_a_pack() {
        let known = |runs, pages| Some(Known { runs, pages });
        for (known, recorded, pages, lesson) in [
            (None, Recorded::All, 5, Lesson::Make),
            (known(1, 100), Recorded::All, 5, Lesson::Merge),
            (known(7, 100), Recorded::All, 500, Lesson::Merge),
            // The pack has the most launches that it may have, so this one starts again.
            (known(8, 100), Recorded::All, 5, Lesson::Make),
            (known(1, 100), Recorded::Missed, 100, Lesson::AddMissed),
            (known(1, 100), Recorded::Missed, 101, Lesson::RecordAgain),
            (known(7, 100), Recorded::Missed, 20, Lesson::AddMissed),
            (known(8, 100), Recorded::Missed, 20, Lesson::Forget),
            (known(8, 100), Recorded::Missed, 200, Lesson::Forget),
            // The profile of the pack is gone or damaged.
            (None, Recorded::Missed, 20, Lesson::Forget),
        ] {
            let found = Lesson::of(known, recorded, pages);
            assert_eq!(found, lesson, "{known:?} {recorded:?} {pages}");
        }
    }
}
