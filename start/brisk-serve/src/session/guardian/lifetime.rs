//! Decides when a session ends.

use std::time::{Duration, Instant};

/// How soon to try the end again after an obstacle.
const SOON: Duration = Duration::from_millis(20);

/// After a failed unmount, the mount counts as idle again after this time at the earliest.
const STILL_OPEN: Duration = Duration::from_secs(1);

/// What the guardian does next about the end of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: the session goes on.
    Stay,
    /// It looks for programs, because some may have come or gone: [`Lifetime::looked`].
    Look,
    /// It ends the session, unless there is an [`Obstacle`]. `looks`: it looks for programs once more.
    Close { looks: bool },
    /// The session has ended.
    End,
}

/// What currently uses a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    /// Whether the images were mounted for all programs, and all of them have been unmounted.
    pub(super) unmounted: bool,
    /// Whether a program of the session is known to live, or is about to start.
    pub(super) in_use: bool,
}

/// What keeps a session whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// A program that entered the namespaces in another way.
    Program,
    /// A run that holds the lock, and is about to join.
    Lock,
    /// A process that has connected, or sent a message.
    Peer,
    /// Something in the mount is open, in a program that a run has left behind.
    OpenMount,
    /// There are too few descriptors or processes, or too little memory.
    Shortage,
}

/// How long a session lives.
#[derive(Debug)]
pub(super) struct Lifetime {
    /// How long it stays after its last program. None if it stays until its images are unmounted.
    linger: Option<Duration>,
    /// Since when it has had no programs.
    idle_since: Option<Instant>,
    /// Whether programs may have come or gone since the guardian last looked.
    stale: bool,
    /// Whether somebody has just looked at all processes and asked for the end.
    looked_for: bool,
    /// Whether somebody has asked for the end.
    is_asked: bool,
}

impl Lifetime {
    pub(super) fn new(linger: Option<Duration>) -> Self {
        Self {
            linger,
            idle_since: None,
            stale: false,
            looked_for: false,
            is_asked: false,
        }
    }

    /// Whether the session had no program when the guardian last looked, and none can have come since.
    pub(super) fn is_idle(&self) -> bool {
        self.idle_since.is_some() && !self.stale
    }

    /// Whether somebody has asked for the end.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    pub(super) fn linger(&self) -> Option<Duration> {
        self.linger
    }

    /// | the session | what the guardian does |
    /// |---|---|
    /// | has been unmounted | ends it |
    /// | is in use | lets it stay |
    /// | may have other programs than before | looks for programs |
    /// | has had no program for its linger time | ends it, unless there is an [`Obstacle`] |
    /// | anything else | lets it stay |
    pub(super) fn next(&mut self, used: Use, now: Instant) -> Next {
        if used.unmounted {
            return Next::End;
        }
        if used.in_use {
            self.idle_since = None;
            return Next::Stay;
        }
        if self.stale {
            return Next::Look;
        }
        match self.idle_since.zip(self.linger) {
            Some((since, linger)) if now >= since + linger => Next::Close {
                looks: !self.looked_for,
            },
            _ => Next::Stay,
        }
    }

    /// Programs may have come or gone.
    pub(super) fn programs_changed(&mut self) {
        self.stale = true;
        self.looked_for = false;
    }

    /// The guardian has looked for programs. `found`: there is one.
    pub(super) fn looked(&mut self, found: bool, now: Instant) {
        self.stale = false;
        match found {
            true => self.idle_since = None,
            false => _ = self.idle_since.get_or_insert(now),
        }
    }

    /// A run joins, and says how long the session should linger after it. A session that stays until it is
    /// unmounted ignores that.
    pub(super) fn joined(&mut self, linger: Option<Duration>) {
        if let (Some(linger), Some(own)) = (linger, &mut self.linger) {
            *own = linger;
        }
        self.idle_since = None;
        self.looked_for = false;
    }

    /// Somebody asks for the end: the session must not linger. `looked_for`: that process and the guardian know that no program
    /// is left.
    pub(super) fn asked_to_end(&mut self, looked_for: bool) {
        self.linger = Some(Duration::ZERO);
        self.is_asked = true;
        match looked_for {
            true => self.looked_for = true,
            false => self.programs_changed(),
        }
    }

    /// The session could not end.
    pub(super) fn kept_by(&mut self, obstacle: Obstacle, now: Instant) {
        self.looked_for = false;
        match obstacle {
            Obstacle::Program => self.idle_since = None,
            Obstacle::OpenMount => self.idle_since = Some(now + STILL_OPEN),
            // Tried again soon: see `due`.
            Obstacle::Lock | Obstacle::Peer | Obstacle::Shortage => {}
        }
    }

    /// When the session ends or tries to, if nothing happens before.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let (since, linger) = self.idle_since.zip(self.linger)?;
        Some((since + linger).max(now + SOON))
    }

    /// How much longer the session stays if no run joins. None while it has programs.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        let (since, linger) = self.idle_since.zip(self.linger)?;
        Some((since + linger).saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Use = Use {
        unmounted: false,
        in_use: false,
    };
    const IN_USE: Use = Use {
        unmounted: false,
        in_use: true,
    };
    const UNMOUNTED: Use = Use {
        unmounted: true,
        in_use: true,
    };

    const MINUTE: Option<Duration> = Some(Duration::from_secs(60));
    const NONE: Option<Duration> = Some(Duration::ZERO);

    /// An event of a session, or a question about its lifetime with the expected answer.
    #[derive(Debug, Clone, Copy)]
    enum Event {
        ProgramsChange,
        Looks(bool),
        Joins(Option<Duration>),
        AskedToEnd {
            looked_for: bool,
        },
        Kept(Obstacle),
        Is(Use, Next),
        /// Milliseconds from the start.
        Due(Option<u64>),
        Left(Option<u64>),
    }

    #[test]
    fn a_session_ends_when_its_programs_are_gone_and_its_time_is_over() {
        use Event::{AskedToEnd, Due, Is, Joins, Kept, Left, Looks, ProgramsChange};
        use Next::{End, Look, Stay};
        const CLOSE: Next = Next::Close { looks: true };
        const ASKED: Event = AskedToEnd { looked_for: false };
        const LOOKED_FOR: Event = AskedToEnd { looked_for: true };
        const AT_ONCE: Next = Next::Close { looks: false };
        type Story<'a> = &'a [(u64, Event)];
        let ended: [(u64, Event); 3] =
            [(0, ProgramsChange), (0, Is(IDLE, Look)), (0, Looks(false))];
        let idle = |more: &[(u64, Event)]| [&ended, more].concat();
        let stories: [(&str, Option<Duration>, Story<'_>); 19] = [
            (
                "nobody has come",
                MINUTE,
                &[(0, Is(IDLE, Stay)), (90_000, Is(IDLE, Stay))],
            ),
            (
                "its program lives",
                MINUTE,
                &[(90_000, Is(IN_USE, Stay)), (90_000, Left(None))],
            ),
            (
                "its last program has ended",
                MINUTE,
                &idle(&[
                    (0, Is(IDLE, Stay)),
                    (1_000, Left(Some(59_000))),
                    (59_999, Is(IDLE, Stay)),
                    (60_000, Is(IDLE, CLOSE)),
                ]),
            ),
            (
                "it does not linger",
                NONE,
                &idle(&[(0, Is(IDLE, CLOSE)), (0, Left(Some(0)))]),
            ),
            (
                "its program has ended, and another lives",
                NONE,
                &[
                    (0, ProgramsChange),
                    (0, Is(IDLE, Look)),
                    (0, Looks(true)),
                    (0, Is(IN_USE, Stay)),
                    (0, Due(None)),
                ],
            ),
            (
                "programs change while one is known to live",
                NONE,
                &[
                    (0, ProgramsChange),
                    (0, Is(IN_USE, Stay)),
                    (5, Is(IDLE, Look)),
                    (5, Looks(false)),
                    (5, Is(IDLE, CLOSE)),
                ],
            ),
            (
                "a look does not start the time again",
                MINUTE,
                &idle(&[
                    (30_000, ProgramsChange),
                    (30_000, Is(IDLE, Look)),
                    (30_000, Looks(false)),
                    (60_000, Is(IDLE, CLOSE)),
                ]),
            ),
            (
                "a run joins and ends",
                MINUTE,
                &idle(&[
                    (59_000, Joins(MINUTE)),
                    (59_000, Is(IN_USE, Stay)),
                    (61_000, ProgramsChange),
                    (61_000, Is(IDLE, Look)),
                    (61_000, Looks(false)),
                    (120_999, Is(IDLE, Stay)),
                    (121_000, Is(IDLE, CLOSE)),
                ]),
            ),
            (
                "the latest run says how long it lingers",
                MINUTE,
                &[
                    (0, Joins(NONE)),
                    (0, ProgramsChange),
                    (0, Looks(false)),
                    (0, Is(IDLE, CLOSE)),
                ],
            ),
            (
                "a run that says nothing changes nothing",
                MINUTE,
                &[
                    (0, Joins(None)),
                    (0, ProgramsChange),
                    (0, Looks(false)),
                    (0, Is(IDLE, Stay)),
                    (60_000, Is(IDLE, CLOSE)),
                ],
            ),
            (
                "a mount stays until it is unmounted, whatever a run says",
                None,
                &[
                    (0, Joins(NONE)),
                    (0, ProgramsChange),
                    (0, Looks(false)),
                    (90_000, Is(IDLE, Stay)),
                    (90_000, Due(None)),
                    (90_000, Left(None)),
                    (90_000, Is(UNMOUNTED, End)),
                ],
            ),
            (
                "it is asked to end",
                MINUTE,
                &[
                    (0, ASKED),
                    (0, Is(IDLE, Look)),
                    (0, Looks(false)),
                    (0, Is(IDLE, CLOSE)),
                ],
            ),
            (
                "it is asked to end while programs run",
                MINUTE,
                &[
                    (0, ASKED),
                    (0, Is(IN_USE, Stay)),
                    (9_000, Is(IDLE, Look)),
                    (9_000, Looks(false)),
                    (9_000, Is(IDLE, CLOSE)),
                ],
            ),
            (
                "who asks has looked for programs, and it knows of none",
                MINUTE,
                &idle(&[(9_000, LOOKED_FOR), (9_000, Is(IDLE, AT_ONCE))]),
            ),
            (
                "the same, but a run has joined and ended since",
                MINUTE,
                &idle(&[
                    (9_000, LOOKED_FOR),
                    (9_000, Joins(NONE)),
                    (9_000, ProgramsChange),
                    (9_000, Is(IDLE, Look)),
                    (9_000, Looks(false)),
                    (9_000, Is(IDLE, CLOSE)),
                ]),
            ),
            (
                "the same, but others were in the way for a moment",
                MINUTE,
                &idle(&[
                    (9_000, LOOKED_FOR),
                    (9_000, Kept(Obstacle::Lock)),
                    (9_020, Is(IDLE, CLOSE)),
                ]),
            ),
            (
                "a program came by another way",
                NONE,
                &idle(&[
                    (0, Kept(Obstacle::Program)),
                    (0, Due(None)),
                    (0, Is(IN_USE, Stay)),
                ]),
            ),
            (
                "others are in the way for a moment",
                NONE,
                &idle(&[
                    (0, Kept(Obstacle::Lock)),
                    (0, Due(Some(20))),
                    (20, Is(IDLE, CLOSE)),
                    (20, Kept(Obstacle::Peer)),
                    (20, Due(Some(40))),
                    (40, Is(IDLE, CLOSE)),
                    (40, Kept(Obstacle::Shortage)),
                    (40, Due(Some(60))),
                    (60, Is(IDLE, CLOSE)),
                ]),
            ),
            (
                "something in the mount is open",
                MINUTE,
                &idle(&[
                    (60_000, Is(IDLE, CLOSE)),
                    (60_000, Kept(Obstacle::OpenMount)),
                    (60_000, Is(IDLE, Stay)),
                    (60_000, Due(Some(121_000))),
                    (121_000, Is(IDLE, CLOSE)),
                ]),
            ),
        ];
        let start = Instant::now();
        for (what, linger, story) in stories {
            let mut lifetime = Lifetime::new(linger);
            for (at, event) in story {
                let after = Duration::from_millis;
                let now = start + after(*at);
                let told = format!("{what}: {event:?} at {at} ms");
                match *event {
                    ProgramsChange => lifetime.programs_changed(),
                    Looks(found) => lifetime.looked(found, now),
                    Joins(linger) => lifetime.joined(linger),
                    AskedToEnd { looked_for } => lifetime.asked_to_end(looked_for),
                    Kept(obstacle) => lifetime.kept_by(obstacle, now),
                    Is(used, next) => assert_eq!(lifetime.next(used, now), next, "{told}"),
                    Due(ms) => {
                        let due = ms.map(|ms| start + after(ms));
                        assert_eq!(lifetime.due(now), due, "{told}");
                    }
                    Left(ms) => assert_eq!(lifetime.left(now), ms.map(after), "{told}"),
                }
            }
        }
    }
}
