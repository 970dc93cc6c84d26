//! Who is measured when.

/// One run of an experiment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    /// From 0.
    pub(crate) repetition: u32,
    /// Its position within the repetition, from 0.
    pub(crate) place: usize,
    /// The number of the contender.
    pub(crate) who: usize,
    /// A number that all turns of a repetition share, so that all contenders can do the same.
    pub(crate) seed: u64,
}

/// The turns of so many contenders: each has one in each repetition, and each repetition a new random order.
pub(crate) fn turns(
    rng: &mut fastrand::Rng,
    repetitions: u32,
    contenders: usize,
) -> impl Iterator<Item = Turn> {
    let mut order: Vec<usize> = (0..contenders).collect();
    (0..repetitions).flat_map(move |repetition| {
        rng.shuffle(&mut order);
        let seed = rng.u64(..);
        let places = order.clone().into_iter().enumerate();
        places.map(move |(place, who)| Turn {
            repetition,
            place,
            who,
            seed,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_one_turn_in_each_repetition() {
        let rng = &mut fastrand::Rng::with_seed(1);
        let turns: Vec<_> = turns(rng, 40, 3).collect();
        let mut orders = std::collections::BTreeSet::new();
        for (repetition, of_one) in (0..).zip(turns.chunks(3)) {
            assert!(of_one.iter().all(|turn| turn.repetition == repetition));
            assert!(of_one.iter().all(|turn| turn.seed == of_one[0].seed));
            let places: Vec<_> = of_one.iter().map(|turn| turn.place).collect();
            assert_eq!(places, [0, 1, 2]);
            let mut who: Vec<_> = of_one.iter().map(|turn| turn.who).collect();
            orders.insert(who.clone());
            who.sort_unstable();
            assert_eq!(who, [0, 1, 2]);
        }
        assert_eq!(orders.len(), 6);
    }
}
