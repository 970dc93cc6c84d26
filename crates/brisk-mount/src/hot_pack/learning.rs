//! What is learned from a launch.

use std::path::PathBuf;
use std::time::Duration;

/// What a launch may take. A launch is over when the session's first program has ended, or after
/// this time: what a program asks for later, it asks for because somebody uses it.
pub(crate) const LAUNCH: Duration = Duration::from_secs(15);

/// A pack is made anew when a launch missed more than one page for so many in the pack.
const STRAYED: u64 = 10;

/// Launches that one pack is made of. What is in it counts as needed for ever, so a pack whose launches go on
/// to miss much is forgotten, and the next one starts again.
const MOST_RUNS: u32 = 8;

/// How a session without a hot pack learns one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learning {
    /// The directory of the user's [`LearnedPacks`](crate::LearnedPacks).
    pub packs: PathBuf,
    /// Bytes that all packs may take. Those not used for longest go first.
    pub limit: u64,
}

/// How a launch was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// Exactly: nothing was filled.
    All,
    /// Only what the pack that it was filled from has not.
    Missed,
}

impl Recorded {
    /// Whether a recording of `pages` is worth learning from. `in_pack`: the pages of the pack that was
    /// filled.
    pub(crate) fn is_enough(self, pages: u64, in_pack: u64) -> bool {
        match self {
            Self::All => pages > 0,
            Self::Missed => in_pack > 0 && pages.saturating_mul(STRAYED) > in_pack,
        }
    }
}

/// What is known of earlier launches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// How many there were.
    pub(crate) runs: u32,
    /// Pages that they asked for.
    pub(crate) pages: u64,
}

/// What a recorded launch changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// A pack of this launch alone is made.
    Make,
    /// A pack of this launch and the earlier ones is made.
    Merge,
    /// A pack of the earlier launches, with what this one missed, is made.
    AddMissed,
    /// The pack is removed. Most of what was missed is what the kernel reads ahead, so the next launch
    /// fills nothing, is recorded exactly, and adds to what is known.
    RecordAgain,
    /// All that is known is removed.
    Forget,
}

impl Lesson {
    /// `pages`: the pages that were recorded.
    pub(crate) fn of(known: Option<Known>, recorded: Recorded, pages: u64) -> Self {
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
            // The pack was of no use after all: what was recorded is not all.
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
            // As many launches as one pack may be of: this one starts again.
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
