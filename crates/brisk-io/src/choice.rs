//! Which [`Strategy`] suits a need: the decision table of docs/design.md.

use std::fmt;
use std::io;
use std::ops::Range;

use rustix::fs::fstatfs;

use crate::figures::{LoadFigures, LoadFiguresError, Situation};
use crate::load_source::LoadSource;
use crate::page_cache::is_cached;
use crate::{Form, Need, Strategy, Touch};

/// Below this, one read costs less than making and ending a mapping.
const SMALL: u64 = 64 << 10;

/// Why a [`Strategy`] was taken.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Reason {
    /// The caller named it.
    Given,
    /// By a rule of the decision table.
    Rule {
        /// The rule, in words.
        rule: &'static str,
        /// What was wrong with this machine's figures, if there are some.
        figures: Option<&'static LoadFiguresError>,
    },
    /// It was the fastest, when this machine was measured.
    Measured {
        /// The situation that was measured.
        like: Situation,
        /// Nanoseconds.
        time: u64,
        /// The next best and its nanoseconds.
        next: Option<(Strategy, u64)>,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        match self {
            Self::Given => f.write_str("the caller named it"),
            Self::Rule { rule, figures } => {
                f.write_str(rule)?;
                if let Some(e) = figures {
                    write!(f, " (the figures of this machine are of no use: {e})")?;
                }
                Ok(())
            }
            Self::Measured { like, time, next } => {
                let state = if like.resident {
                    "in memory"
                } else {
                    "on disk"
                };
                write!(
                    f,
                    "it took {:.3} ms on this machine for {} bytes {state} in {} processes",
                    ms(*time),
                    like.len,
                    like.need.processes
                )?;
                if let Some((strategy, time)) = next {
                    write!(f, ", and {strategy} {:.3} ms", ms(*time))?;
                }
                Ok(())
            }
        }
    }
}

/// Ways to try, the best first, and why that.
pub(crate) struct Choice {
    pub(crate) ways: Vec<Strategy>,
    pub(crate) reason: Reason,
}

/// What is asked of the system before it is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    /// Nobody changes the file, so that it can be mapped.
    immutable: bool,
    /// Other machines may change the files.
    remote: bool,
    situation: Situation,
}

/// Which of a file are wanted, in what state they are, and what follows.
pub(crate) fn choose(
    source: LoadSource<'_>,
    bytes: &Range<u64>,
    need: Need,
    figures: Result<&'static LoadFigures, &'static LoadFiguresError>,
) -> io::Result<Choice> {
    let file = source.file();
    let len = bytes.end.saturating_sub(bytes.start);
    // Numbers of linux/magic.h; those of SMB are its own.
    const REMOTE: [u32; 6] = [
        0x6969,
        0x517B,
        0xFF53_4D42,
        0xFE53_4D42,
        0x0102_1997,
        0x00C3_6400,
    ];
    const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58F6];
    // Types of file systems are of 32 bits, however wide the field is.
    let kind = fstatfs(file)?.f_type as u32;
    let in_memory = IN_MEMORY.contains(&kind);
    let facts = Facts {
        immutable: source.is_immutable(),
        remote: REMOTE.contains(&kind),
        situation: Situation {
            len,
            // Where the kernel does not tell, the page cache is the likelier place: what is loaded by many
            // was loaded before.
            resident: in_memory || is_cached(file, bytes.start, len).unwrap_or(true),
            need,
        },
    };
    Ok(decide(facts, figures))
}

fn decide(
    facts: Facts,
    figures: Result<&'static LoadFigures, &'static LoadFiguresError>,
) -> Choice {
    let by_rule = |first: Strategy, rule| Choice {
        ways: then_others(first, facts),
        reason: Reason::Rule {
            rule,
            figures: figures.err(),
        },
    };
    let Situation {
        len,
        resident,
        need,
    } = facts.situation;
    if !facts.immutable {
        return by_rule(
            Strategy::Read,
            "others may change the file, so its bytes are copied",
        );
    }
    if facts.remote {
        return by_rule(
            Strategy::Read,
            "the file is on a network, where a mapping ends in SIGBUS as the connection fails",
        );
    }
    if len < SMALL {
        return by_rule(
            Strategy::Read,
            "so few bytes are copied faster than they are mapped",
        );
    }
    if let Ok(figures) = figures
        && let Some((like, figures)) = figures.nearest(facts.situation)
    {
        let suits = |&&(strategy, _): &&(Strategy, u64)| can_be(strategy, facts);
        let mut best = figures.iter().filter(suits).copied();
        if let Some((first, time)) = best.next() {
            let next = best.next();
            return Choice {
                ways: then_others(first, facts),
                reason: Reason::Measured { like, time, next },
            };
        }
    }
    let (strategy, rule) = rule(resident, need);
    by_rule(strategy, rule)
}

/// The table: what most machines do best with many bytes of a local file.
fn rule(resident: bool, need: Need) -> (Strategy, &'static str) {
    match (need.form, need.touch) {
        (Form::Patched, Touch::All) => (
            Strategy::Read,
            "every page is copied at any rate, and a large copy costs less than many small ones",
        ),
        (Form::Patched, Touch::Random) => (
            Strategy::Read,
            "a page is copied for each touch, and a large copy costs less than many small ones",
        ),
        (Form::Patched, Touch::Part) if resident && need.processes == 1 => (
            Strategy::Read,
            "from about an eighth on, a large copy costs less than one of a page for each touch",
        ),
        (Form::Patched, _) => (
            Strategy::PrivateMap,
            "only pages that are patched are copied",
        ),
        (Form::Shared | Form::Copied, Touch::Random) if !resident => (
            Strategy::PopulatedMap,
            "all is read in order, which touches in no order would not be",
        ),
        (Form::Shared | Form::Copied, Touch::All | Touch::Random) => (
            Strategy::SharedMap,
            "nothing is copied, and a touch brings as much as a large read",
        ),
        (Form::Shared | Form::Copied, Touch::Part | Touch::Few) => {
            (Strategy::SharedMap, "only what is touched is brought")
        }
    }
}

fn can_be(strategy: Strategy, facts: Facts) -> bool {
    let patched = facts.situation.need.form == Form::Patched;
    let mapped = !strategy.copies();
    (facts.immutable || !mapped) && !(patched && strategy == Strategy::SharedMap)
}

/// `first`, and what else does if it is refused.
fn then_others(first: Strategy, facts: Facts) -> Vec<Strategy> {
    let others = [
        Strategy::PopulatedMap,
        Strategy::Read,
        Strategy::SharedMap,
        Strategy::PrivateMap,
    ];
    let others = others
        .into_iter()
        .filter(|&way| way != first && can_be(way, facts));
    std::iter::once(first).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(len: u64, form: Form, figures: &'static str) -> (Vec<Strategy>, String) {
        let need = Need {
            form,
            ..Need::default()
        };
        let facts = Facts {
            immutable: true,
            remote: false,
            situation: Situation {
                len,
                resident: true,
                need,
            },
        };
        // Few, and of a test.
        let figures = match figures.parse::<LoadFigures>() {
            Ok(figures) => Ok(&*Box::leak(Box::new(figures))),
            Err(e) => Err(&*Box::leak(Box::new(e))),
        };
        let Choice { ways, reason } = decide(facts, figures);
        (ways, reason.to_string())
    }

    static FIGURES: std::sync::LazyLock<LoadFigures> =
        std::sync::LazyLock::new(LoadFigures::default);

    const NONE: &str = "brisk load figures 1\n";

    #[test]
    fn rules_hold_where_nothing_was_measured() {
        let first = |len, form| choice(len, form, NONE).0[0];
        assert_eq!(first(SMALL - 1, Form::Shared), Strategy::Read);
        assert_eq!(first(SMALL, Form::Shared), Strategy::SharedMap);
        // What is patched is never mapped shared, whatever is refused.
        let (ways, _) = choice(SMALL, Form::Patched, NONE);
        assert_eq!(
            ways,
            [Strategy::Read, Strategy::PopulatedMap, Strategy::PrivateMap]
        );
        let of = |touch, form| Need {
            touch,
            form,
            ..Need::default()
        };
        let part = of(Touch::Part, Form::Patched);
        assert_eq!(rule(true, part).0, Strategy::Read);
        assert_eq!(rule(false, part).0, Strategy::PrivateMap);
        let by_two = Need {
            processes: 2,
            ..part
        };
        assert_eq!(rule(true, by_two).0, Strategy::PrivateMap);
        let few = of(Touch::Few, Form::Patched);
        assert_eq!(rule(true, few).0, Strategy::PrivateMap);
        let scattered = of(Touch::Random, Form::Patched);
        assert_eq!(rule(true, scattered).0, Strategy::Read);
        let random = of(Touch::Random, Form::Shared);
        assert_eq!(rule(true, random).0, Strategy::SharedMap);
        assert_eq!(rule(false, random).0, Strategy::PopulatedMap);
    }

    #[test]
    fn what_was_measured_goes_before_rules() {
        let figures = "brisk load figures 1\n\
            30000000 resident 1 all caller shared shared-map 2000000\n\
            30000000 resident 1 all caller shared direct 1500000\n\
            30000000 resident 1 all caller patched shared-map 1\n\
            30000000 resident 1 all caller patched read 9000000\n";
        let (ways, reason) = choice(20_000_000, Form::Shared, figures);
        assert_eq!(ways[0], Strategy::Direct);
        assert_eq!(
            reason,
            "it took 1.500 ms on this machine for 30000000 bytes in memory in 1 processes, and shared-map \
             2.000 ms"
        );
        let (ways, _) = choice(20_000_000, Form::Patched, figures);
        assert_eq!(ways[0], Strategy::Read);
        // Nothing was measured for that.
        let (ways, _) = choice(20_000_000, Form::Copied, figures);
        assert_eq!(ways[0], Strategy::SharedMap);
        let (ways, _) = choice(SMALL - 1, Form::Shared, figures);
        assert_eq!(ways[0], Strategy::Read);
    }

    #[test]
    fn figures_that_are_wrong_are_told_of() {
        let (ways, reason) = choice(1 << 20, Form::Patched, "brisk load figures 2\n");
        assert_eq!(ways[0], Strategy::Read);
        assert_eq!(
            reason,
            "every page is copied at any rate, and a large copy costs less than many small ones (the figures of this machine are of no use: line 1: found \
             \"brisk load figures 2\", allowed is \"brisk load figures 1\"; measure again with brisk lab load \
             --save)"
        );
    }

    #[test]
    fn a_file_that_may_change_is_never_mapped() {
        let need = Need {
            touch: Touch::Few,
            ..Need::default()
        };
        let facts = Facts {
            immutable: false,
            remote: false,
            situation: Situation {
                len: 1 << 30,
                resident: true,
                need,
            },
        };
        let Choice { ways, reason } = decide(facts, Ok(&FIGURES));
        assert_eq!(ways, [Strategy::Read]);
        let reason = reason.to_string();
        assert_eq!(
            reason,
            "others may change the file, so its bytes are copied"
        );
    }

    #[test]
    fn a_file_on_a_network_is_not_mapped_first() {
        let facts = Facts {
            immutable: true,
            remote: true,
            situation: Situation {
                len: 1 << 30,
                resident: true,
                need: Need::default(),
            },
        };
        assert_eq!(decide(facts, Ok(&FIGURES)).ways[0], Strategy::Read);
    }
}
