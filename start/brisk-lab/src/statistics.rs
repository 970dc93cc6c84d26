//! Medians, ranges, and intervals of ratios.

use serde::{Deserialize, Serialize};

/// The median and the extremes of what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median. For an even number of values it is the mean of the middle two.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`, or `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: median_of_sorted(&sorted)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }

    /// The mean of `values`, and their sample standard deviation, which is 0 for one value.
    pub fn mean_and_deviation(values: &[f64]) -> Option<(f64, f64)> {
        let count = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some((mean, (squares / (count - 1.0).max(1.0)).sqrt()))
    }
}

/// The times of one round of an experiment.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// The longest possible time: a cold launch from the directory.
    pub slow: f64,
    /// The shortest possible time: a warm launch from the directory, or a resident launch.
    pub fast: f64,
    /// The time to judge.
    pub ours: f64,
}

/// A ratio of two medians with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The first median divided by the second.
    pub value: f64,
    /// 2.5 % of the resampled ratios are below this.
    pub low: f64,
    /// 2.5 % of the resampled ratios are above this.
    pub high: f64,
}

impl Ratio {
    const RESAMPLES: usize = 10_000;

    /// The ratio of values to themselves.
    pub const SAME: Self = Self {
        value: 1.0,
        low: 1.0,
        high: 1.0,
    };

    /// Whether nothing is known about how far the value may be off, as of one run.
    pub fn is_point(self) -> bool {
        self.low >= self.high
    }

    /// The median of `ours` divided by the median of `theirs`, or `None` if one has no values.
    ///
    /// The interval is a percentile bootstrap: both sides are drawn again, with replacement, each on its own.
    /// It never passes the extremes. So with few values it is too narrow, and with one value it is a point.
    pub fn of_medians(ours: &[f64], theirs: &[f64], rng: &mut fastrand::Rng) -> Option<Self> {
        let value = Spread::of(ours)?.median / Spread::of(theirs)?.median;
        let (ours, theirs) = (Sample::of(ours), Sample::of(theirs));
        Self::resampled(value, || {
            Some(ours.resampled_median(rng)? / theirs.resampled_median(rng)?)
        })
    }

    /// The geometric mean of the ratios of these pairs, with the same kind of interval: both sides of each
    /// pair are drawn again. None if there are no pairs, or if one side has no values.
    pub fn of_geometric_mean(pairs: &[(&[f64], &[f64])], rng: &mut fastrand::Rng) -> Option<Self> {
        let mean = |logarithms: Option<Vec<f64>>| -> Option<f64> {
            let logarithms = logarithms?;
            let count = logarithms.len() as f64;
            (count > 0.0).then(|| (logarithms.iter().sum::<f64>() / count).exp())
        };
        let found = pairs.iter().map(|(ours, theirs)| {
            let ratio = Spread::of(ours)?.median / Spread::of(theirs)?.median;
            Some(ratio.ln())
        });
        let value = mean(found.collect())?;
        let pairs = pairs.iter();
        let samples: Vec<_> = pairs
            .map(|(ours, theirs)| (Sample::of(ours), Sample::of(theirs)))
            .collect();
        Self::resampled(value, || {
            let drawn = samples.iter().map(|(ours, theirs)| {
                let ratio = ours.resampled_median(rng)? / theirs.resampled_median(rng)?;
                Some(ratio.ln())
            });
            mean(drawn.collect())
        })
    }

    /// The share of the avoidable time that is gone: (slow - ours) / (slow - fast), from medians. `rounds`
    /// has the three times of each round. `None` if there is no round, or nothing to avoid.
    ///
    /// The interval is a percentile bootstrap that draws whole rounds again, because what slows a machine
    /// down for a while slows all times of a round.
    pub fn of_gone(rounds: &[Round], rng: &mut fastrand::Rng) -> Option<Self> {
        let sample = |time: fn(&Round) -> f64| {
            let times: Vec<_> = rounds.iter().map(time).collect();
            Sample::of(&times)
        };
        let (slow, fast) = (sample(|round| round.slow), sample(|round| round.fast));
        let ours = sample(|round| round.ours);
        let share = |counts: &[usize]| -> Option<f64> {
            let slow = slow.median(counts)?;
            let avoidable = slow - fast.median(counts)?;
            (avoidable > 0.0).then_some((slow - ours.median(counts)?) / avoidable)
        };
        let value = share(&vec![1; rounds.len()])?;
        Self::resampled(value, || share(&draw(rounds.len(), rng)))
    }

    fn resampled(value: f64, mut draw: impl FnMut() -> Option<f64>) -> Option<Self> {
        let mut ratios = Vec::with_capacity(Self::RESAMPLES);
        for _ in 0..Self::RESAMPLES {
            ratios.push(draw()?);
        }
        ratios.sort_unstable_by(f64::total_cmp);
        Some(Self {
            value,
            low: ratios[Self::RESAMPLES / 40],
            high: ratios[Self::RESAMPLES - 1 - Self::RESAMPLES / 40],
        })
    }
}

/// The values of a sample in order, each with its number in the sample. So the median of a resample takes no sorting.
struct Sample(Vec<(f64, usize)>);

impl Sample {
    fn of(values: &[f64]) -> Self {
        let mut ordered: Vec<_> = values.iter().copied().zip(0..).collect();
        ordered.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        Self(ordered)
    }

    /// The median if each value is there as often as `counts` says. None if none is.
    fn median(&self, counts: &[usize]) -> Option<f64> {
        let len: usize = counts.iter().sum();
        let (mut passed, mut lower) = (0, None);
        for (value, number) in &self.0 {
            passed += counts[*number];
            if passed * 2 >= len {
                lower = lower.or(Some(*value));
            }
            if passed * 2 > len {
                return Some(f64::midpoint(lower?, *value));
            }
        }
        None
    }

    fn resampled_median(&self, rng: &mut fastrand::Rng) -> Option<f64> {
        self.median(&draw(self.0.len(), rng))
    }
}

/// How often each of `len` values is drawn if one is drawn so many times.
fn draw(len: usize, rng: &mut fastrand::Rng) -> Vec<usize> {
    let mut counts = vec![0; len];
    for _ in 0..len {
        counts[rng.usize(..len)] += 1;
    }
    counts
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[sorted.len() / 2 - 1], upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resample_has_the_median_of_its_values() {
        let rng = &mut fastrand::Rng::with_seed(1);
        for len in 0..20 {
            let values: Vec<_> = (0..len).map(|_| rng.f64()).collect();
            let sample = Sample::of(&values);
            for _ in 0..50 {
                let counts = draw(len, rng);
                let mut drawn: Vec<_> = values
                    .iter()
                    .zip(&counts)
                    .flat_map(|(value, count)| vec![*value; *count])
                    .collect();
                drawn.sort_by(f64::total_cmp);
                assert_eq!(drawn.len(), len);
                assert_eq!(sample.median(&counts), median_of_sorted(&drawn));
            }
        }
    }

    #[test]
    fn medians_of_odd_even_and_none() {
        let spread = |values: &[f64]| Spread::of(values).map(|s| (s.min, s.median, s.max));
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some((1.0, 2.5, 4.0)));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn means_and_deviations_are_those_of_samples() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let (mean, deviation) = Spread::mean_and_deviation(&values).unwrap();
        assert_eq!((mean, deviation), (5.0, (32.0_f64 / 7.0).sqrt()));
        assert_eq!(Spread::mean_and_deviation(&[3.0]), Some((3.0, 0.0)));
        assert_eq!(Spread::mean_and_deviation(&[]), None);
    }

    #[test]
    fn a_geometric_mean_is_of_ratios() {
        let rng = &mut fastrand::Rng::with_seed(1);
        let pairs: [(&[f64], &[f64]); 2] = [(&[2.0], &[1.0]), (&[1.0], &[8.0])];
        let mean = Ratio::of_geometric_mean(&pairs, rng).unwrap();
        let all = [mean.value, mean.low, mean.high];
        assert!(
            all.iter().all(|value| (value - 0.5).abs() < 1e-12),
            "{mean:?}"
        );
        assert_eq!(Ratio::of_geometric_mean(&[], rng), None);
        assert_eq!(Ratio::of_geometric_mean(&[(&[], &[1.0])], rng), None);
    }

    #[test]
    fn the_share_that_is_gone_is_of_rounds() {
        let rng = &mut fastrand::Rng::with_seed(1);
        let round = |slow, fast, ours| Round { slow, fast, ours };
        // A round in which everything takes twice as long changes nothing.
        let rounds = [round(10.0, 5.0, 6.0), round(20.0, 10.0, 12.0)];
        let gone = Ratio::of_gone(&rounds, rng).unwrap();
        for found in [gone.value, gone.low, gone.high] {
            assert!((found - 0.8).abs() < 1e-12, "{gone:?}");
        }
        // Slower than the directory.
        let gone = Ratio::of_gone(&[round(10.0, 5.0, 11.0)], rng).unwrap();
        assert!((gone.value + 0.2).abs() < 1e-12, "{gone:?}");
        let rounds = [round(10.0, 5.0, 6.0), round(10.0, 5.0, 8.0)];
        let gone = Ratio::of_gone(&rounds, rng).unwrap();
        assert!((gone.low - 0.4).abs() < 1e-12 && (gone.high - 0.8).abs() < 1e-12);
        assert_eq!(Ratio::of_gone(&[round(5.0, 5.0, 5.0)], rng), None);
        assert_eq!(Ratio::of_gone(&[], rng), None);
    }

    #[test]
    fn one_value_each_gives_a_point() {
        let ratio = Ratio::of_medians(&[1.0], &[4.0], &mut fastrand::Rng::with_seed(1));
        assert_eq!(
            ratio,
            Some(Ratio {
                value: 0.25,
                low: 0.25,
                high: 0.25
            })
        );
    }

    #[test]
    fn the_interval_holds_the_ratio_and_stays_within_the_extremes() {
        let ours = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98];
        let theirs = [2.0, 2.2, 1.8, 2.1, 1.9, 2.04, 1.96];
        let ratio = Ratio::of_medians(&ours, &theirs, &mut fastrand::Rng::with_seed(1)).unwrap();
        assert_eq!(ratio.value, 0.5);
        assert!(0.9 / 2.2 < ratio.low && ratio.low < 0.5, "{ratio:?}");
        assert!(0.5 < ratio.high && ratio.high < 1.1 / 1.8, "{ratio:?}");
    }
}
