//! What a start of a program does, decided once, for whoever starts it.

use super::learned_packs::LearnedLaunch;
use super::rules::{LeftAlone, Start};
use crate::replay::Look;

/// What a start of a program does, besides starting it.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub enum StartPlan<T = LearnedLaunch> {
    /// Nothing, because nothing can be gained.
    LeaveAlone(LeftAlone),
    /// Nothing, because all that it reads seems to be in memory. Another process would only take the processor from it.
    InMemory,
    /// It replays what is known.
    Replay(T, Option<Look>),
    /// It replays what is known, and is observed, because that may lack much.
    ReplayAndObserve(T, Option<Look>),
    /// It is observed: nothing is known that counts.
    Observe,
}

impl<T> StartPlan<T> {
    /// `known`: what there is to replay. `look` looks at a sample of it, if it has one whose names mean something here.
    ///
    /// | the rules say | what there is | in memory | the plan |
    /// |---|---|---|---|
    /// | left alone | | | left alone |
    /// | learn anew | | | observe |
    /// | | nothing | | observe |
    /// | learn more | a profile | no, or nobody knows | replay and observe |
    /// | use it | a profile | no, or nobody knows | replay |
    /// | learn more, or use it | a profile | yes | nothing |
    pub(super) fn of(
        start: Start,
        known: Option<T>,
        look: impl FnOnce(&T) -> Option<Look>,
    ) -> Self {
        let known = match (start, known) {
            (Start::LeftAlone(why), _) => return Self::LeaveAlone(why),
            (Start::Anew, _) | (_, None) => return Self::Observe,
            (_, Some(known)) => known,
        };
        let look = look(&known);
        match start {
            _ if look.is_some_and(|look| look.is_in_memory) => Self::InMemory,
            Start::More => Self::ReplayAndObserve(known, look),
            _ => Self::Replay(known, look),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_start_is_planned_by_what_is_known_and_what_is_in_memory() {
        let look = |is_in_memory| Look {
            is_in_memory,
            lasts: Duration::ZERO,
        };
        let [warm, cold] = [Some(look(true)), Some(look(false))];
        let small = LeftAlone::Small;
        for (start, known, looked, plan) in [
            (
                Start::LeftAlone(small),
                Some(7),
                cold,
                StartPlan::LeaveAlone(small),
            ),
            (Start::Anew, Some(7), warm, StartPlan::Observe),
            (Start::More, None, None, StartPlan::Observe),
            (Start::Replays, None, None, StartPlan::Observe),
            (
                Start::More,
                Some(7),
                cold,
                StartPlan::ReplayAndObserve(7, cold),
            ),
            (
                Start::More,
                Some(7),
                None,
                StartPlan::ReplayAndObserve(7, None),
            ),
            (Start::More, Some(7), warm, StartPlan::InMemory),
            (Start::Replays, Some(7), cold, StartPlan::Replay(7, cold)),
            (Start::Replays, Some(7), None, StartPlan::Replay(7, None)),
            (Start::Replays, Some(7), warm, StartPlan::InMemory),
        ] {
            assert_eq!(StartPlan::of(start, known, |_| looked), plan, "{start:?}");
        }
    }
}
