//! Chooses the [`Strategy`] for a need, by the decision table of docs/design.md.

use std::fmt;
use std::io;
use std::ops::Range;

use rustix::fs::fstatfs;

use crate::load_source::LoadSource;
use crate::page_cache::is_cached;
use crate::{Form, Need, Strategy, Touch};

/// For fewer bytes, one read costs less than making and ending a mapping.
const SMALL: u64 = 64 << 10;

/// Why a [`Strategy`] was chosen.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Reason {
    /// The caller named it.
    Given,
    /// A rule of the decision table, in words.
    Rule(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Given => "the caller named it",
            Self::Rule(rule) => rule,
        })
    }
}

/// Strategies to try, the best first, and the reason.
pub(crate) struct Choice {
    pub(crate) ways: Vec<Strategy>,
    pub(crate) reason: Reason,
}

/// The facts from which the decision follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    /// Whether nobody changes the file, so that it can be mapped.
    immutable: bool,
    /// Whether other machines may change the file.
    remote: bool,
    /// How many bytes are wanted.
    len: u64,
    /// Whether all of them are in memory.
    resident: bool,
    need: Need,
}

/// Finds the facts, and decides.
pub(crate) fn choose(source: LoadSource<'_>, bytes: &Range<u64>, need: Need) -> io::Result<Choice> {
    let file = source.file();
    let len = bytes.end.saturating_sub(bytes.start);
    // The numbers are in linux/magic.h. SMB's are its own.
    const REMOTE: [u32; 6] = [
        0x6969,
        0x517B,
        0xFF53_4D42,
        0xFE53_4D42,
        0x0102_1997,
        0x00C3_6400,
    ];
    const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58F6];
    // Types of file systems have 32 bits, however wide the field is.
    let kind = fstatfs(file)?.f_type as u32;
    let in_memory = IN_MEMORY.contains(&kind);
    let facts = Facts {
        immutable: source.is_immutable(),
        remote: REMOTE.contains(&kind),
        len,
        // If the kernel does not say, assume that it is in memory: what many programs load was loaded before.
        resident: in_memory || is_cached(file, bytes.start, len).unwrap_or(true),
        need,
    };
    Ok(decide(facts))
}

fn decide(facts: Facts) -> Choice {
    let by_rule = |first: Strategy, rule| Choice {
        ways: then_others(first, facts),
        reason: Reason::Rule(rule),
    };
    if !facts.immutable {
        return by_rule(
            Strategy::Read,
            "others may change the file, so its bytes are copied",
        );
    }
    if facts.remote {
        return by_rule(
            Strategy::Read,
            "the file is on a network, where a failing connection ends a mapping with SIGBUS",
        );
    }
    if facts.len < SMALL {
        return by_rule(
            Strategy::Read,
            "copying so few bytes is faster than mapping them",
        );
    }
    let (strategy, rule) = rule(facts.resident, facts.need);
    by_rule(strategy, rule)
}

/// The decision table: what most machines do best with many bytes of a local file.
fn rule(resident: bool, need: Need) -> (Strategy, &'static str) {
    match (need.form, need.touch) {
        (Form::Patched, Touch::All) => (
            Strategy::Read,
            "every page is copied anyway, and one large copy costs less than many small ones",
        ),
        (Form::Patched, Touch::Random) => (
            Strategy::Read,
            "each touch would copy a page, and one large copy costs less than many small ones",
        ),
        (Form::Patched, Touch::Part) if resident && need.processes == 1 => (
            Strategy::Read,
            "from about an eighth of the pages on, one large copy costs less than copying a page for each touch",
        ),
        (Form::Patched, _) => (
            Strategy::PrivateMap,
            "this copies only the pages that are patched",
        ),
        (Form::Shared | Form::Copied, Touch::Random) if !resident => (
            Strategy::PopulatedMap,
            "this reads everything in order, and scattered touches would not",
        ),
        (Form::Shared | Form::Copied, Touch::All | Touch::Random) => (
            Strategy::SharedMap,
            "this copies nothing, and a touch reads as much as a large read",
        ),
        (Form::Shared | Form::Copied, Touch::Part | Touch::Few) => {
            (Strategy::SharedMap, "this reads only what is touched")
        }
    }
}

fn can_be(strategy: Strategy, facts: Facts) -> bool {
    let patched = facts.need.form == Form::Patched;
    let mapped = !strategy.copies();
    (facts.immutable || !mapped) && !(patched && strategy == Strategy::SharedMap)
}

/// `first`, and then the strategies that can replace it if it is refused.
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

    fn facts(len: u64, need: Need) -> Facts {
        Facts {
            immutable: true,
            remote: false,
            len,
            resident: true,
            need,
        }
    }

    fn ways(len: u64, form: Form) -> Vec<Strategy> {
        let need = Need {
            form,
            ..Need::default()
        };
        decide(facts(len, need)).ways
    }

    #[test]
    fn each_rule_holds() {
        let first = |len, form| ways(len, form)[0];
        assert_eq!(first(SMALL - 1, Form::Shared), Strategy::Read);
        assert_eq!(first(SMALL, Form::Shared), Strategy::SharedMap);
        // A file to patch is never mapped shared, whatever is refused.
        assert_eq!(
            ways(SMALL, Form::Patched),
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
    fn a_file_that_may_change_is_never_mapped() {
        let need = Need {
            touch: Touch::Few,
            ..Need::default()
        };
        let facts = Facts {
            immutable: false,
            ..facts(1 << 30, need)
        };
        let Choice { ways, reason } = decide(facts);
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
            remote: true,
            ..facts(1 << 30, Need::default())
        };
        assert_eq!(decide(facts).ways[0], Strategy::Read);
    }
}
