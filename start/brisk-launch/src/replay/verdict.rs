//! Decides when a replay goes on, pauses or gives up, and what the next launch does with the profile.
//!
//! The rules work on values: facts go in, a decision comes out. [`watched_program`](super::watched_program)
//! and [`profile_files`](super::profile_files) find the facts. [`profile_replay`](super::profile_replay) and
//! [`background_replay`](super::background_replay) act on the decisions. One rule is elsewhere:
//! [`brisk_io::Prefetch`] ends a replay that finds every page in memory already.

use std::time::Duration;

/// How many bytes a program may read by itself before it is judged. It loads its own file before anything is
/// replayed for it.
const OWN_READS: u64 = 8 << 20;

/// How long an unrecorded program may run before the replay gives up. A script's shell, or `env`, becomes the
/// recorded program within this time.
const UNRECORDED_FOR: Duration = Duration::from_secs(1);

/// Why a replay ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GivenUp {
    /// The program reads other things than the profile lists.
    OtherReads,
    /// The program is in the tree, but no recorded launch started it.
    UnrecordedProgram,
}

/// What the next launch does with a learned profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NextLaunch {
    /// It replays the profile as it is.
    Replays,
    /// It is recorded, and adds what it reads to the profile, if this launch has read so much that it is worth it.
    RecordsMore {
        /// How many bytes the program has read by itself, because the profile lacks them.
        own: u64,
    },
    /// It is recorded like a first launch, because the profile is damaged or lists other files than there are
    /// now.
    RecordsAnew,
}

/// What a start has read from the disk, with a replay beside it, or from an image that was filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartReads {
    /// Bytes that the replay asked for while nothing of them was in memory, ahead of the program. From an image: bytes that
    /// were filled before the program asked for them.
    pub ahead: u64,
    /// Bytes that the program read by itself, with those of the processes that it has waited for. From an image: bytes that
    /// were asked for and not filled by then.
    pub own: u64,
}

impl StartReads {
    /// Both together.
    pub fn all(&self) -> u64 {
        self.ahead.saturating_add(self.own)
    }
}

/// How a replay of a learned profile ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayEnd {
    /// What the next launch does.
    pub next: NextLaunch,
    /// What the start has read, if that is known.
    pub reads: Option<StartReads>,
}

/// A file by its device and its inode.
pub(super) type FileId = (u64, u64);

/// What the watched process runs now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Running {
    /// The system does not say, or nobody asked.
    Unknown,
    /// The process has ended.
    Nothing,
    /// A program. It is unrecorded if it is in a completely recorded tree, but no recorded launch started it.
    Program { file: FileId, unrecorded: bool },
}

/// The facts at one moment of a replay.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Time since the replay began.
    pub(super) at: Duration,
    pub(super) running: Running,
    /// How many bytes the program has read from the disk by itself, if the system says.
    pub(super) own: Option<u64>,
    /// How many bytes the replay has asked for.
    pub(super) asked: u64,
}

/// What a replay does until the next moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    GoOn,
    Pause,
    GiveUp(GivenUp),
}

/// Judges a replay moment by moment, by the program beside which it runs.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// The program at the last moment.
    program: Option<FileId>,
    /// When it was first seen, if it is unrecorded.
    unrecorded_since: Option<Duration>,
}

impl Judge {
    /// | at this moment | the replay |
    /// |---|---|
    /// | an unrecorded program has ended | gives up |
    /// | the program [reads other things](reads_other_things) | gives up |
    /// | an unrecorded program has run for more than a second | gives up |
    /// | an unrecorded program runs | pauses |
    /// | anything else | goes on |
    pub(super) fn step(&mut self, now: Moment) -> Step {
        match now.running {
            // It may have become the recorded program.
            Running::Unknown => *self = Self::default(),
            Running::Nothing if self.unrecorded_since.is_some() => {
                return Step::GiveUp(GivenUp::UnrecordedProgram);
            }
            // Programs that it has started may go on, and ask for what was recorded.
            Running::Nothing => {}
            Running::Program { file, .. } if self.program == Some(file) => {}
            Running::Program { file, unrecorded } => {
                self.program = Some(file);
                self.unrecorded_since = unrecorded.then_some(now.at);
            }
        }
        if now
            .own
            .is_some_and(|own| reads_other_things(own, now.asked))
        {
            return Step::GiveUp(GivenUp::OtherReads);
        }
        match self.unrecorded_since {
            None => Step::GoOn,
            Some(since) if now.at.saturating_sub(since) > UNRECORDED_FOR => {
                Step::GiveUp(GivenUp::UnrecordedProgram)
            }
            Some(_) => Step::Pause,
        }
    }
}

/// Whether a program that read `own` bytes by itself needs other things than the `replayed` bytes. A program
/// that finds its data in memory reads almost nothing: Chromium reads 4 MB by itself beside 264 MB replayed,
/// Python 7 beside 114.
fn reads_other_things(own: u64, replayed: u64) -> bool {
    own > OWN_READS && own > replayed / 2
}

/// Whether looking up names ends together with reading pages, though names are left. It does if the replay
/// gave up, or if it was too late: all pages were in memory before it asked for any.
pub(super) fn look_ups_end(given_up: Option<GivenUp>, race: bool, asked: u64, passed: u64) -> bool {
    given_up.is_some() || (race && asked == 0 && passed > 0)
}

/// The files of a profile, as a replay found them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FoundFiles {
    /// How many files the profile lists.
    pub(super) listed: u64,
    /// How many have another length than recorded.
    pub(super) stale: u64,
    /// How many do not exist or may not be read.
    pub(super) missing: u64,
}

impl FoundFiles {
    /// Whether more than a tenth of the files are known to have changed.
    pub(super) fn are_others(self) -> bool {
        self.stale.saturating_add(self.missing).saturating_mul(10) > self.listed
    }
}

/// What the next launch does after this replay of a learned profile. `own`: how many bytes the program has read by itself,
/// if that is known.
pub(super) fn next_launch(files: FoundFiles, own: Option<u64>) -> NextLaunch {
    if files.are_others() {
        NextLaunch::RecordsAnew
    } else {
        // How much is worth a recording, those decide who know what earlier ones have added.
        match own.filter(|own| *own > 0) {
            Some(own) => NextLaunch::RecordsMore { own },
            None => NextLaunch::Replays,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    const APP: Running = Running::Program {
        file: (1, 1),
        unrecorded: false,
    };
    const SHELL: Running = Running::Program {
        file: (1, 2),
        unrecorded: true,
    };
    const ENV: Running = Running::Program {
        file: (1, 3),
        unrecorded: true,
    };
    const UNRECORDED: Step = Step::GiveUp(GivenUp::UnrecordedProgram);
    const OTHER: Step = Step::GiveUp(GivenUp::OtherReads);

    #[test]
    fn a_replay_follows_the_program() {
        use Running::{Nothing, Unknown};
        use Step::{GoOn, Pause};
        type Moments<'a> = &'a [(u64, Running, Step)];
        let cases: [(&str, Moments<'_>); 11] = [
            (
                "a recorded program",
                &[(0, APP, GoOn), (5, APP, GoOn), (9000, APP, GoOn)],
            ),
            (
                "a shell becomes the program in time",
                &[(0, SHELL, Pause), (1000, SHELL, Pause), (1001, APP, GoOn)],
            ),
            (
                "a shell that stays",
                &[
                    (7, SHELL, Pause),
                    (1007, SHELL, Pause),
                    (1008, SHELL, UNRECORDED),
                ],
            ),
            (
                "each unrecorded program has a second of its own",
                &[
                    (0, SHELL, Pause),
                    (900, ENV, Pause),
                    (1900, ENV, Pause),
                    (1901, ENV, UNRECORDED),
                ],
            ),
            (
                "a program that becomes a shell",
                &[
                    (0, APP, GoOn),
                    (2000, SHELL, Pause),
                    (3001, SHELL, UNRECORDED),
                ],
            ),
            (
                "an unrecorded program that ends",
                &[(0, SHELL, Pause), (1, Nothing, UNRECORDED)],
            ),
            (
                "a recorded program that ends has started others",
                &[(0, APP, GoOn), (1, Nothing, GoOn), (2, Nothing, GoOn)],
            ),
            ("one that ended before it was seen", &[(0, Nothing, GoOn)]),
            (
                "what cannot be seen may be the recorded program",
                &[(0, SHELL, Pause), (1, Unknown, GoOn), (9000, Unknown, GoOn)],
            ),
            (
                "what was not seen for a moment has its second anew",
                &[
                    (0, SHELL, Pause),
                    (900, Unknown, GoOn),
                    (901, SHELL, Pause),
                    (1901, SHELL, Pause),
                    (1902, SHELL, UNRECORDED),
                ],
            ),
            (
                "one that ends after it could not be seen",
                &[(0, SHELL, Pause), (1, Unknown, GoOn), (2, Nothing, GoOn)],
            ),
        ];
        for (what, moments) in cases {
            let mut judge = Judge::default();
            for (at, running, step) in moments {
                let now = Moment {
                    at: Duration::from_millis(*at),
                    running: *running,
                    own: None,
                    asked: 0,
                };
                assert_eq!(judge.step(now), *step, "{what}, at {at} ms");
            }
        }
    }

    #[test]
    fn a_replay_is_given_up_when_the_program_reads_other_things() {
        for (running, own, asked, step) in [
            // It loads itself.
            (APP, Some(8 * MIB), 0, Step::GoOn),
            (APP, Some(8 * MIB + 1), 0, OTHER),
            (APP, Some(9 * MIB), 17 * MIB, OTHER),
            (APP, Some(9 * MIB), 18 * MIB, Step::GoOn),
            (APP, Some(100 * MIB), 200 * MIB, Step::GoOn),
            (APP, Some(100 * MIB + 1), 200 * MIB, OTHER),
            (APP, Some(u64::MAX), u64::MAX, OTHER),
            // The system keeps no accounts.
            (APP, None, 0, Step::GoOn),
            // What it reads counts, whatever it runs.
            (Running::Unknown, Some(9 * MIB), 0, OTHER),
            (Running::Nothing, Some(9 * MIB), 0, OTHER),
            (SHELL, Some(9 * MIB), 0, OTHER),
            (SHELL, Some(8 * MIB), 0, Step::Pause),
        ] {
            let now = Moment {
                at: Duration::ZERO,
                running,
                own,
                asked,
            };
            let found = Judge::default().step(now);
            assert_eq!(found, step, "{running:?}, {own:?} of its own, {asked}");
        }
    }

    #[test]
    fn names_are_looked_up_as_long_as_it_helps() {
        for (given_up, race, asked, passed, end) in [
            (None, true, 0, 0, false),
            (None, true, 1, 1, false),
            (None, true, 0, 1, true),
            // Everything was in memory, but there is no program to race.
            (None, false, 0, 1, false),
            (Some(GivenUp::OtherReads), true, 1, 0, true),
            (Some(GivenUp::UnrecordedProgram), false, 0, 0, true),
        ] {
            let found = look_ups_end(given_up, race, asked, passed);
            assert_eq!(found, end, "{given_up:?} {race} {asked} {passed}");
        }
    }

    #[test]
    fn the_next_launch_is_recorded_where_a_profile_is_of_little_use() {
        use NextLaunch::{RecordsAnew, Replays};
        let own = 1;
        for (listed, stale, missing, own, next) in [
            (100, 0, 0, None, Replays),
            (100, 5, 5, None, Replays),
            (100, 5, 6, None, RecordsAnew),
            (100, 11, 0, None, RecordsAnew),
            (9, 1, 0, None, RecordsAnew),
            (0, 0, 0, None, Replays),
            (100, 0, 0, Some(0), Replays),
            (100, 0, 0, Some(own), NextLaunch::RecordsMore { own }),
            // If the files are others now, what the program reads says nothing.
            (100, 0, 11, Some(90 * MIB), RecordsAnew),
        ] {
            let files = FoundFiles {
                listed,
                stale,
                missing,
            };
            let found = next_launch(files, own);
            assert_eq!(found, next, "{files:?} {own:?}");
        }
    }
}
