//! Decides when a server is restarted, and when its connection is aborted instead.
//!
//! A server that dies leaves requests unanswered, and programs wait for them. Another server replaces it and
//! gets those requests again. If that cannot help, the connection is aborted: programs get errors, but none
//! waits forever.

use std::time::{Duration, Instant};

use rustix::process::Pid;

/// When to ask the kernel, after a restart, to send unanswered requests again. At the first time the dying
/// server may still read requests, and lose them, so there are later times.
const RESEND_AFTER: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
];

/// How long a death counts.
const DEATHS_WITHIN: Duration = Duration::from_secs(10);

/// How many servers may fail by themselves within [`DEATHS_WITHIN`].
const FAILURES: usize = 5;

/// How many servers may die within [`DEATHS_WITHIN`] for any reason.
const DEATHS: usize = 1000;

/// How often the guardian tries to start a server while processes or memory are short. It tries every 20 ms,
/// so for 20 s.
const MOST_TRIES: u32 = 1000;

/// What to do about a server that died or did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    Nothing,
    /// Start another server now.
    Restart,
    /// Start another server as soon as there may be room for it.
    TryAgain,
    /// Abort the connection.
    GiveUp(Reason),
}

/// Why a connection is aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    CannotResend,
    KilledAgain,
    FailsAgain,
    CannotStart,
}

impl Reason {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::CannotResend => "the server died, and this kernel cannot resend",
            Self::KilledAgain => "the server is killed again and again",
            Self::FailsAgain => "the server fails again and again",
            Self::CannotStart => "a server could not be started",
        }
    }
}

/// The history of the servers of one image.
#[derive(Debug, Default)]
pub(super) struct Supervisor {
    /// How often a server replaced another.
    restarts: u32,
    /// The deaths that count.
    deaths: Vec<Death>,
    resend_at: Vec<Instant>,
    /// How often in a row a server could not be started.
    tries: u32,
    /// Whether the connection has ended or was aborted. Then there is nothing to serve.
    ended: bool,
}

#[derive(Debug)]
struct Death {
    at: Instant,
    pid: Pid,
    /// Whether the server failed by itself, and was not killed from outside.
    failed: bool,
}

impl Supervisor {
    pub(super) fn restarts(&self) -> u32 {
        self.restarts
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether a server is still to be started.
    pub(super) fn wants_server(&self) -> bool {
        self.tries > 0
    }

    /// The server `pid` is dead. Threads of it may still hang. `can_resend`: the kernel can send its requests
    /// to another server.
    pub(super) fn died(&mut self, pid: Pid, can_resend: bool, now: Instant) -> Remedy {
        if self.ended {
            return Remedy::Nothing;
        }
        self.deaths.retain(|death| now - death.at < DEATHS_WITHIN);
        self.deaths.push(Death {
            at: now,
            pid,
            failed: false,
        });
        if !can_resend {
            return self.give_up(Reason::CannotResend);
        }
        if self.deaths.len() > DEATHS {
            return self.give_up(Reason::KilledAgain);
        }
        self.restarts += 1;
        self.resend_at = RESEND_AFTER.iter().map(|after| now + *after).collect();
        Remedy::Restart
    }

    /// The system has said how the server `pid` ended, whose death was noticed before.
    pub(super) fn told_status(&mut self, pid: Pid, failed: bool, now: Instant) -> Remedy {
        for death in self.deaths.iter_mut().filter(|death| death.pid == pid) {
            death.failed = failed;
        }
        let counts = |death: &&Death| death.failed && now - death.at < DEATHS_WITHIN;
        match self.deaths.iter().filter(counts).count() {
            FAILURES.. if !self.ended => self.give_up(Reason::FailsAgain),
            _ => Remedy::Nothing,
        }
    }

    /// A server was started.
    pub(super) fn started(&mut self) {
        self.tries = 0;
    }

    /// A server could not be started. `shortage`: there were too few processes or descriptors, or too little
    /// memory, and there may be enough later.
    pub(super) fn could_not_start(&mut self, shortage: bool) -> Remedy {
        if shortage && self.tries < MOST_TRIES {
            self.tries += 1;
            Remedy::TryAgain
        } else {
            self.give_up(Reason::CannotStart)
        }
    }

    /// The kernel has ended the connection.
    pub(super) fn connection_ended(&mut self) {
        self.ended = true;
        // There is nothing to send again, and nothing for a server to answer.
        self.resend_at.clear();
        self.tries = 0;
    }

    fn give_up(&mut self, reason: Reason) -> Remedy {
        self.connection_ended();
        Remedy::GiveUp(reason)
    }

    /// Whether to ask the kernel now to send unanswered requests again.
    pub(super) fn resends(&mut self, now: Instant) -> bool {
        let before = self.resend_at.len();
        self.resend_at.retain(|at| *at > now);
        self.resend_at.len() < before
    }

    /// When to ask next.
    pub(super) fn next_resend(&self) -> Option<Instant> {
        self.resend_at.iter().copied().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).expect("not zero")
    }

    /// An event of a server. The numbers are those of processes.
    #[derive(Debug, Clone, Copy)]
    enum Event {
        Dies(i32),
        DiesWithoutResend(i32),
        Failed(i32),
        WasKilled(i32),
        Starts,
        IsShort,
        CannotStart,
        ConnectionEnds,
    }

    fn tell(supervisor: &mut Supervisor, event: Event, now: Instant) -> Remedy {
        match event {
            Event::Dies(number) => supervisor.died(pid(number), true, now),
            Event::DiesWithoutResend(number) => supervisor.died(pid(number), false, now),
            Event::Failed(number) => supervisor.told_status(pid(number), true, now),
            Event::WasKilled(number) => supervisor.told_status(pid(number), false, now),
            Event::IsShort => supervisor.could_not_start(true),
            Event::CannotStart => supervisor.could_not_start(false),
            Event::Starts => {
                supervisor.started();
                Remedy::Nothing
            }
            Event::ConnectionEnds => {
                supervisor.connection_ended();
                Remedy::Nothing
            }
        }
    }

    #[test]
    fn a_server_is_restarted_or_its_connection_aborted() {
        use Event::{
            CannotStart, ConnectionEnds, Dies, DiesWithoutResend, Failed, IsShort, Starts,
            WasKilled,
        };
        use Remedy::{GiveUp, Nothing, Restart, TryAgain};
        type Story<'a> = &'a [(u64, Event, Remedy)];
        let fails = |pid, at| {
            [
                (at, Dies(pid), Restart),
                (at, Starts, Nothing),
                (at, Failed(pid), Nothing),
            ]
        };
        let four_failures = [fails(1, 0), fails(2, 1), fails(3, 2), fails(4, 3)].concat();
        let with = |more: &[_]| [&four_failures, more].concat();
        let stories: [(&str, Story<'_>); 14] = [
            ("one death", &[(0, Dies(1), Restart), (0, Starts, Nothing)]),
            (
                "an old kernel",
                &[
                    (0, DiesWithoutResend(1), GiveUp(Reason::CannotResend)),
                    (0, WasKilled(1), Nothing),
                ],
            ),
            (
                "a server that fails five times",
                &with(&[
                    (4, Dies(5), Restart),
                    (4, Failed(5), GiveUp(Reason::FailsAgain)),
                    // It was restarted before its status was known.
                    (4, Dies(6), Nothing),
                    (4, Failed(6), Nothing),
                ]),
            ),
            (
                "a fifth that was killed from outside",
                &with(&[(4, Dies(5), Restart), (4, WasKilled(5), Nothing)]),
            ),
            (
                "a fifth failure as the first is 10 s old",
                &with(&[(10_000, Dies(5), Restart), (10_000, Failed(5), Nothing)]),
            ),
            (
                "a fifth failure as the first is not quite 10 s old",
                &with(&[
                    (9_999, Dies(5), Restart),
                    (9_999, Failed(5), GiveUp(Reason::FailsAgain)),
                ]),
            ),
            (
                "a status that comes when its death no longer counts",
                &with(&[(4, Dies(5), Restart), (10_004, Failed(5), Nothing)]),
            ),
            (
                "a status of a server that nobody has missed",
                &with(&[(4, Failed(9), Nothing)]),
            ),
            (
                "the connection has ended",
                &[(0, ConnectionEnds, Nothing), (0, Dies(1), Nothing)],
            ),
            (
                "a failure behind the end of the connection",
                &with(&[
                    (4, Dies(5), Restart),
                    (4, ConnectionEnds, Nothing),
                    (4, Failed(5), Nothing),
                ]),
            ),
            (
                "memory is short for a moment",
                &[
                    (0, Dies(1), Restart),
                    (0, IsShort, TryAgain),
                    (20, IsShort, TryAgain),
                    (40, Starts, Nothing),
                ],
            ),
            (
                "a server that cannot be started for another reason",
                &[
                    (0, Dies(1), Restart),
                    (0, CannotStart, GiveUp(Reason::CannotStart)),
                ],
            ),
            (
                "memory is short, and then something else",
                &[
                    (0, Dies(1), Restart),
                    (0, IsShort, TryAgain),
                    (20, CannotStart, GiveUp(Reason::CannotStart)),
                ],
            ),
            (
                "the fifth failure is known while memory is short",
                &with(&[
                    (4, Dies(5), Restart),
                    (4, IsShort, TryAgain),
                    (5, Failed(5), GiveUp(Reason::FailsAgain)),
                ]),
            ),
        ];
        let start = Instant::now();
        for (what, story) in stories {
            let mut supervisor = Supervisor::default();
            for (at, event, remedy) in story {
                let now = start + Duration::from_millis(*at);
                let found = tell(&mut supervisor, *event, now);
                assert_eq!(found, *remedy, "{what}: {event:?} at {at} ms");
                if let (GiveUp(_), _) | (_, ConnectionEnds) = (found, *event) {
                    assert!(supervisor.has_ended(), "{what}");
                }
                // Nothing is due on a connection that has ended.
                let over = !supervisor.wants_server() && supervisor.next_resend().is_none();
                assert!(over || !supervisor.has_ended(), "{what}");
                assert!(supervisor.wants_server() || found != TryAgain, "{what}");
            }
        }
    }

    #[test]
    fn a_server_may_be_killed_a_thousand_times_in_ten_seconds() {
        let start = Instant::now();
        for (between, restarts, last) in [
            (9, 1000, Remedy::GiveUp(Reason::KilledAgain)),
            (10, 1001, Remedy::Restart),
        ] {
            let mut supervisor = Supervisor::default();
            let mut found = Remedy::Nothing;
            for death in 0..=1000 {
                let now = start + Duration::from_millis(between * death);
                found = supervisor.died(pid(1), true, now);
                supervisor.told_status(pid(1), false, now);
            }
            assert_eq!(
                (found, supervisor.restarts()),
                (last, restarts),
                "{between}"
            );
        }
    }

    #[test]
    fn a_server_is_not_tried_for_ever() {
        let mut supervisor = Supervisor::default();
        supervisor.died(pid(1), true, Instant::now());
        for _ in 0..MOST_TRIES {
            assert_eq!(supervisor.could_not_start(true), Remedy::TryAgain);
        }
        let last = supervisor.could_not_start(true);
        assert_eq!(last, Remedy::GiveUp(Reason::CannotStart));
    }

    #[test]
    fn requests_are_sent_again_four_times_after_a_restart() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut supervisor = Supervisor::default();
        assert!(!supervisor.resends(at(0)));
        assert_eq!(supervisor.next_resend(), None);
        supervisor.died(pid(1), true, at(0));
        for (now, resends, next) in [
            (0, true, Some(100)),
            (0, false, Some(100)),
            (99, false, Some(100)),
            // Two that are due at the same time count as one.
            (1000, true, Some(10_000)),
            (10_000, true, None),
            (20_000, false, None),
        ] {
            assert_eq!(supervisor.resends(at(now)), resends, "{now}");
            assert_eq!(supervisor.next_resend(), next.map(at), "{now}");
        }
        // A later death starts again.
        supervisor.died(pid(2), true, at(30_000));
        supervisor.died(pid(3), true, at(30_050));
        assert!(supervisor.resends(at(30_050)));
        assert_eq!(supervisor.next_resend(), Some(at(30_150)));
    }
}
