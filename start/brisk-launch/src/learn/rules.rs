//! Decides when a start is observed, when what is known is replayed, and when a program is left alone.
//!
//! The rules work on one value, [`Known`]: facts go in, the next value comes out. [`LearnedPacks`](crate::LearnedPacks) finds
//! the facts and keeps the value in the record of a launch.
//!
//! Of a launch from an image, the server sees each request, so one look is exact. For such launches, [`Lesson`] decides.

use std::time::Duration;

/// How long a launch is observed or recorded, or its replay watched: what a program asks for later depends on its user.
pub const LAUNCH: Duration = Duration::from_secs(15);

/// How many starts in a row are observed at most.
const MOST_LOOKS: u32 = 3;

/// A further start is observed only if the one before has added one new page for so many known ones.
const NEXT_TO_NOTHING: u64 = 10;

/// A start is observed again if one has read so much by itself, and at least this part of what is known.
const MORE: u64 = 4 << 20;
const MORE_OF_KNOWN: u64 = 8;

/// How many starts one profile is made from at most. It is made anew then: otherwise, that of a program which asks for other
/// things each time would grow for ever.
const MOST_RUNS: u32 = 8;

/// The pack of an image is made again if a launch missed more than one page for so many pages in the pack.
const STRAYED: u64 = 10;

/// A launch that reads less is left alone: what it waits for is over before a replay could begin.
pub const SMALL: u64 = 2 << 20;

/// A launch for which the disk takes less time is left alone, too: a cold start of brisk itself takes some 6 ms, and a
/// program reads much of so little by itself before a replay does.
pub const SHORT: Duration = Duration::from_millis(15);

/// How long nothing is learned of a program that has given a reason to learn again, or was left alone: its first start may have
/// been `--version`, and a program may read other files each time. Each further time takes four times as long, up to a week.
const WAIT: Duration = Duration::from_secs(600);
const WAIT_AT_MOST: Duration = Duration::from_secs(7 * 86_400);

/// Why nothing can be gained for a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftAlone {
    /// It reads little.
    Small,
    /// It reads more, but the disk gives that in a short time.
    Short,
}

/// What brisk does at the next starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It observes them.
    Learning,
    /// It replays what is known.
    Learned,
    /// Nothing.
    LeftAlone(LeftAlone),
}

/// What is known of a launch, without its profile. Times are since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// What brisk does at the next starts.
    pub state: State,
    /// How many starts were observed since the profile was begun. With none, it is begun anew.
    pub looks: u32,
    /// How often it has given a reason to learn again, or to be left alone.
    pub again: u32,
    /// When it got this state.
    pub since: Duration,
}

/// What a start does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It is observed, and what was known before does not count.
    Anew,
    /// It is observed, and what is known is replayed.
    More,
    /// What is known is replayed.
    Replays,
    /// Nothing.
    LeftAlone(LeftAlone),
}

/// What an observed start has told.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Whether what was known before does not count.
    pub is_anew: bool,
    /// Whether nothing was missed.
    pub is_whole: bool,
    /// Pages that are known.
    pub pages: u64,
    /// How many of them this start has added.
    pub added: u64,
    /// Bytes that the launch reads at least.
    pub bytes: u64,
    /// How long the disk takes for them. None if nobody knows.
    pub disk: Option<Duration>,
}

/// What a replay has found.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Whether the files are others now.
    pub are_others: bool,
    /// Bytes that the program has read by itself.
    pub own: u64,
    /// Bytes that are known.
    pub bytes: u64,
    /// Of how many starts.
    pub runs: u32,
}

impl Known {
    /// What a start does. `installed`: when the program was installed.
    pub fn start(this: Option<Self>, now: Duration, installed: Option<Duration>) -> Start {
        let Some(known) = this else {
            return Start::Anew;
        };
        if installed.is_some_and(|installed| installed > known.since) {
            return Start::Anew;
        }
        match known.state {
            State::Learning if known.looks == 0 => Start::Anew,
            State::Learning => Start::More,
            State::Learned => Start::Replays,
            State::LeftAlone(why) => match known.has_waited(now, known.again) {
                true => Start::Anew,
                false => Start::LeftAlone(why),
            },
        }
    }

    /// What is known after a start was observed.
    pub fn after_look(this: Option<Self>, look: Look, now: Duration) -> Self {
        let (looks, again) = this.map_or((0, 0), |known| (known.looks, known.again));
        let looks = match look.is_anew {
            true => 1,
            false => looks.saturating_add(1),
        };
        let adds = look.added.saturating_mul(NEXT_TO_NOTHING) >= look.pages;
        let is_over = look.is_whole || looks >= MOST_LOOKS || (looks > 1 && !adds);
        let state = if look.bytes < SMALL {
            State::LeftAlone(LeftAlone::Small)
        } else if !is_over {
            // The first look may have missed any process.
            State::Learning
        } else if look.disk.is_some_and(|disk| disk < SHORT) {
            State::LeftAlone(LeftAlone::Short)
        } else {
            State::Learned
        };
        let is_left_alone = matches!(state, State::LeftAlone(_));
        let again = again.saturating_add(u32::from(is_left_alone));
        Self {
            state,
            looks,
            again,
            since: now,
        }
    }

    /// What is known after a replay.
    pub fn after_replay(self, found: Found, now: Duration) -> Self {
        if self.state != State::Learned {
            return self;
        }
        let more = MORE.max(found.bytes / MORE_OF_KNOWN);
        let reads_more = found.own > more;
        if !found.are_others && !reads_more {
            return self;
        }
        // What a launch lacks may have been missed, and then another look finds it. Otherwise it is other each time, or its
        // files are.
        let is_missed = !found.are_others && self.looks < MOST_LOOKS;
        if !is_missed && !self.has_waited(now, self.again.saturating_add(1)) {
            return self;
        }
        let looks = match found.are_others || found.runs >= MOST_RUNS {
            true => 0,
            false => self.looks.min(MOST_LOOKS - 1),
        };
        Self {
            state: State::Learning,
            looks,
            again: self.again.saturating_add(u32::from(!is_missed)),
            since: now,
        }
    }

    fn has_waited(self, now: Duration, times: u32) -> bool {
        now.saturating_sub(self.since) >= wait(times)
    }
}

/// How a launch of an image was recorded.
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

/// What is known from earlier launches of an image.
#[derive(Debug, Clone, Copy)]
pub struct KnownOfImage {
    /// How many there were.
    pub runs: u32,
    /// How many pages they asked for.
    pub pages: u64,
}

/// What a recorded launch of an image changes.
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
    pub fn of(known: Option<KnownOfImage>, recorded: Recorded, pages: u64) -> Self {
        match (known.filter(|known| known.runs < MOST_RUNS), recorded) {
            (None, Recorded::All) => Self::Make,
            (Some(_), Recorded::All) => Self::Merge,
            (Some(known), Recorded::Missed) if pages <= known.pages => Self::AddMissed,
            (Some(_), Recorded::Missed) => Self::RecordAgain,
            (None, Recorded::Missed) => Self::Forget,
        }
    }
}

/// How long to wait the time with this number.
fn wait(times: u32) -> Duration {
    let doublings = times.saturating_sub(1).saturating_mul(2);
    let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
    WAIT.saturating_mul(factor.max(1)).min(WAIT_AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn known(state: State, looks: u32, again: u32) -> Known {
        Known {
            state,
            looks,
            again,
            since: at(1000),
        }
    }

    #[test]
    fn a_start_is_observed_until_enough_is_known() {
        use State::{Learned, Learning};
        let small = State::LeftAlone(LeftAlone::Small);
        let left = Start::LeftAlone(LeftAlone::Small);
        for (this, now, installed, start) in [
            (None, 0, None, Start::Anew),
            (Some(known(Learning, 1, 0)), 1000, None, Start::More),
            (Some(known(Learning, 0, 1)), 1000, None, Start::Anew),
            (Some(known(Learned, 2, 0)), 9_000_000, None, Start::Replays),
            (Some(known(Learned, 2, 0)), 2000, Some(1000), Start::Replays),
            (Some(known(Learned, 2, 0)), 2000, Some(1001), Start::Anew),
            (Some(known(small, 1, 1)), 1599, None, left),
            (Some(known(small, 1, 1)), 1600, None, Start::Anew),
            (Some(known(small, 1, 2)), 1600, None, left),
            (Some(known(small, 1, 2)), 3400, None, Start::Anew),
            (Some(known(small, 1, u32::MAX)), 604_000, None, left),
            (Some(known(small, 1, u32::MAX)), 605_800, None, Start::Anew),
            // The clock was set back.
            (Some(known(small, 1, 1)), 0, None, left),
            (Some(known(small, 1, 1)), 1001, Some(1001), Start::Anew),
        ] {
            let found = Known::start(this, at(now), installed.map(at));
            assert_eq!(found, start, "{this:?} {now} {installed:?}");
        }
    }

    #[test]
    fn learning_is_over_after_three_starts_at_most() {
        use State::{Learned, Learning};
        let look = Look {
            is_anew: false,
            is_whole: false,
            pages: 1000,
            added: 1000,
            bytes: 100 * MIB,
            disk: None,
        };
        let next = |this: Option<Known>, look| {
            let known = Known::after_look(this, look, at(5));
            assert_eq!(known.since, at(5));
            (known.state, known.looks, known.again)
        };
        let first = Look {
            is_anew: true,
            ..look
        };
        assert_eq!(next(None, first), (Learning, 1, 0));
        let one = Some(known(Learning, 1, 0));
        let adds = |added| Look { added, ..look };
        assert_eq!(next(one, adds(100)), (Learning, 2, 0));
        assert_eq!(next(one, adds(99)), (Learned, 2, 0));
        assert_eq!(next(Some(known(Learning, 2, 0)), look), (Learned, 3, 0));
        let whole = Look {
            is_whole: true,
            ..first
        };
        assert_eq!(next(None, whole), (Learned, 1, 0));
        let old = Some(known(Learned, 3, 2));
        assert_eq!(next(old, first), (Learning, 1, 2));
        let bytes = |bytes| Look { bytes, ..first };
        let small = State::LeftAlone(LeftAlone::Small);
        assert_eq!(next(None, bytes(SMALL - 1)), (small, 1, 1));
        assert_eq!(next(old, bytes(SMALL - 1)), (small, 1, 3));
        assert_eq!(next(None, bytes(SMALL)), (Learning, 1, 0));
        let takes = |disk| Look {
            disk: Some(disk),
            ..adds(0)
        };
        let short = State::LeftAlone(LeftAlone::Short);
        let less = Duration::from_millis(14);
        assert_eq!(next(one, takes(less)), (short, 2, 1));
        assert_eq!(next(one, takes(SHORT)), (Learned, 2, 0));
        let first_takes = Look {
            disk: Some(less),
            ..first
        };
        assert_eq!(next(None, first_takes), (Learning, 1, 0));
    }

    #[test]
    fn a_replay_has_a_launch_observed_again_but_not_for_ever() {
        use State::{Learned, Learning};
        let nothing = Found {
            are_others: false,
            own: 4 * MIB,
            bytes: 8 * MIB,
            runs: 2,
        };
        let others = Found {
            are_others: true,
            ..nothing
        };
        let more = Found {
            own: 4 * MIB + 1,
            ..nothing
        };
        let large = Found {
            bytes: 80 * MIB,
            own: 10 * MIB,
            ..nothing
        };
        let full = Found { runs: 8, ..more };
        let learned = |looks, again| known(Learned, looks, again);
        let same = None;
        for (what, this, found, now, expected) in [
            ("nothing", learned(2, 0), nothing, 9_000_000, same),
            ("little of much", learned(2, 0), large, 9_000_000, same),
            ("missed", learned(2, 0), more, 1001, Some((Learning, 2, 0))),
            ("all looks", learned(3, 0), more, 1599, same),
            ("later", learned(3, 0), more, 1600, Some((Learning, 2, 1))),
            ("again", learned(3, 1), more, 1600, same),
            (
                "much later",
                learned(3, 1),
                more,
                3400,
                Some((Learning, 2, 2)),
            ),
            ("full", learned(3, 0), full, 1600, Some((Learning, 0, 1))),
            ("others", learned(2, 0), others, 1599, same),
            (
                "others later",
                learned(2, 0),
                others,
                1600,
                Some((Learning, 0, 1)),
            ),
            ("learning", known(Learning, 1, 0), others, 9_000_000, same),
        ] {
            let known = this.after_replay(found, at(now));
            let expected = expected.map_or(this, |(state, looks, again)| Known {
                state,
                looks,
                again,
                since: at(now),
            });
            assert_eq!(known, expected, "{what}");
        }
    }

    /// A program that reads other files each time, or whose files are others at each start.
    #[test]
    fn no_program_is_learned_for_ever() {
        for are_others in [false, true] {
            let found = Found {
                are_others,
                own: 100 * MIB,
                bytes: 100 * MIB,
                runs: 2,
            };
            let mut known = None;
            let mut observed = 0;
            // Once a minute, for two weeks.
            for start in 0..20_160 {
                let now = at(start * 60);
                match Known::start(known, now, None) {
                    Start::Replays => known = known.map(|known| known.after_replay(found, now)),
                    start => {
                        observed += 1;
                        let look = Look {
                            is_anew: start == Start::Anew,
                            is_whole: false,
                            pages: 1000,
                            added: 1000,
                            bytes: 100 * MIB,
                            disk: None,
                        };
                        known = Some(Known::after_look(known, look, now));
                    }
                }
            }
            assert!(observed <= 24, "{observed}");
        }
    }

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
        let known = |runs, pages| Some(KnownOfImage { runs, pages });
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
