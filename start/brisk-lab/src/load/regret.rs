//! What a program loses if it uses the strategy of the built-in table instead of the fastest one.
//!
//! One half of the runs says which strategy is the fastest, and the other half says how fast it is. If one
//! half said both, the winner among equally fast strategies would look faster than it is, because it was
//! lucky in that half.

use brisk_io::Strategy;

use super::super::statistics::{Ratio, Spread};
use super::case::{Giving, Way};
use super::results::LoadResults;

/// The time of the strategy in the table over that of the fastest, in the second half of the runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Regret {
    /// The geometric mean over all cases.
    pub mean: Ratio,
    /// The ratio of the worst case.
    pub worst: Ratio,
    pub worst_name: String,
    pub picked: Strategy,
    pub fastest: Strategy,
    pub cases: usize,
}

/// The two halves of the runs of a case.
#[derive(Debug, Clone)]
pub struct Halves {
    pub name: String,
    /// Times of each strategy, in the first half and in the second.
    pub times: Vec<(Strategy, Vec<f64>, Vec<f64>)>,
    pub picked: Strategy,
}

impl Halves {
    /// The fastest strategy of the first half.
    fn fastest(&self) -> Option<Strategy> {
        let known = self.times.iter();
        let medians = known.filter_map(|(of, first, _)| Some((*of, Spread::of(first)?.median)));
        let fastest = medians.min_by(|a, b| a.1.total_cmp(&b.1));
        fastest.map(|(strategy, _)| strategy)
    }

    fn second(&self, strategy: Strategy) -> Option<&[f64]> {
        let known = self.times.iter().find(|of| of.0 == strategy)?;
        Some(&known.2)
    }
}

/// The regret over all of these. None if there are no runs to compare.
pub fn of(cases: &[Halves], rng: &mut fastrand::Rng) -> Option<Regret> {
    let compared = cases.iter().filter_map(|case| {
        let fastest = case.fastest()?;
        let picked = case.second(case.picked).filter(|times| !times.is_empty())?;
        let best = case.second(fastest).filter(|times| !times.is_empty())?;
        Some((case, fastest, picked, best))
    });
    let compared: Vec<_> = compared.collect();
    // A comparison of the same runs gives exactly 1.
    let pairs = compared.iter().map(|(case, fastest, picked, best)| {
        if *fastest == case.picked {
            const SAME: &[f64] = &[1.0];
            return (SAME, SAME);
        }
        (*picked, *best)
    });
    let pairs: Vec<_> = pairs.collect();
    let ratio = |(ours, theirs): &(&[f64], &[f64])| {
        Some(Spread::of(ours)?.median / Spread::of(theirs)?.median)
    };
    let worst = pairs.iter().map(ratio).collect::<Option<Vec<_>>>()?;
    let worst = (0..pairs.len()).max_by(|a, b| worst[*a].total_cmp(&worst[*b]))?;
    let (case, fastest, ..) = &compared[worst];
    Some(Regret {
        mean: Ratio::of_geometric_mean(&pairs, rng)?,
        worst: Ratio::of_medians(pairs[worst].0, pairs[worst].1, rng)?,
        worst_name: case.name.clone(),
        picked: case.picked,
        fastest: *fastest,
        cases: pairs.len(),
    })
}

/// The cases of an experiment, with the table's strategy for each. Even repetitions are the first half.
pub fn halves(results: &LoadResults) -> Vec<Halves> {
    let cases = results
        .cases
        .iter()
        .enumerate()
        .filter_map(|(number, case)| {
            // When a strategy is chosen, it is not known how the memory will be given back.
            if case.release != Giving::Unmap {
                return None;
            }
            let times = results.strategies(number).into_iter().map(|(strategy, _)| {
                let half = |odd| -> Vec<f64> {
                    let runs = results.runs_of(number, Way::As(strategy));
                    let runs = runs.filter(|run| run.repetition % 2 == odd);
                    runs.map(|run| run.exit_seconds).collect()
                };
                (strategy, half(0), half(1))
            });
            let mut chosen = results.runs_of(number, Way::Chosen);
            let picked = chosen.find_map(|run| run.taken.as_deref()?.parse().ok());
            Some(Halves {
                name: case.to_string(),
                times: times.collect(),
                picked: picked?,
            })
        });
    cases.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, picked: Strategy, times: &[(Strategy, [f64; 2], [f64; 2])]) -> Halves {
        let times = times.iter();
        let times = times.map(|(strategy, a, b)| (*strategy, a.to_vec(), b.to_vec()));
        Halves {
            name: name.to_owned(),
            times: times.collect(),
            picked,
        }
    }

    #[test]
    fn one_half_says_which_and_the_other_how_fast() {
        let (map, read, direct) = (Strategy::SharedMap, Strategy::Read, Strategy::Direct);
        let cases = [
            // The right one.
            case(
                "a",
                map,
                &[(map, [1.0; 2], [3.0; 2]), (read, [2.0; 2], [2.0; 2])],
            ),
            // One that takes twice the time of the fastest.
            case(
                "b",
                direct,
                &[(direct, [5.0; 2], [4.0; 2]), (map, [1.0; 2], [2.0; 2])],
            ),
            // It was not measured.
            case("c", read, &[(map, [1.0; 2], [1.0; 2])]),
        ];
        let rng = &mut fastrand::Rng::with_seed(1);
        let regret = of(&cases, rng).unwrap();
        // In the first half, a took the fastest strategy. The ratios are 1 and 2, and their geometric mean is
        // the root of 2.
        let (mean, worst) = (regret.mean.value, regret.worst.value);
        assert_eq!(format!("{mean:.4} {worst:.4}"), "1.4142 2.0000");
        assert_eq!(
            (&*regret.worst_name, regret.fastest, regret.cases),
            ("b", map, 2)
        );
        assert_eq!(of(&[], rng), None);
    }
}
