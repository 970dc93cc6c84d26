//! Answers to the questions that were open when the JDK began to map its code cache, from what was measured
//! here.

use super::super::answers::{Answer, ENOUGH, Verdict};
use super::super::cells::{interval, megabytes};
use super::super::statistics::{Ratio, Spread};
use super::case::{Case, Giving, Shape, State, Way, Who};
use super::regret::{self, Regret};
use super::results::{LoadResults, LoadRun};
use brisk_io::Strategy;

/// Two ways of loading in one case. The ratio is that of the first to the second.
struct Duel {
    ways: [Way; 2],
    ratio: Ratio,
    runs: usize,
}

impl Duel {
    fn of(ours: (Way, Vec<f64>), theirs: (Way, Vec<f64>), rng: &mut fastrand::Rng) -> Option<Self> {
        Some(Self {
            ways: [ours.0, theirs.0],
            ratio: Ratio::of_medians(&ours.1, &theirs.1, rng)?,
            runs: ours.1.len().min(theirs.1.len()),
        })
    }

    fn verdict(&self) -> Verdict {
        Verdict::of(self.ratio, self.runs)
    }

    /// "The first takes so much of the time of the second."
    fn words(&self) -> String {
        let [ours, theirs] = self.ways;
        let mut words = format!(
            "{ours} takes {} of the time of {theirs}",
            interval(self.ratio)
        );
        if self.runs < ENOUGH {
            words += &format!(", and {} runs of each are too few to tell", self.runs);
        }
        words
    }
}

/// The answers that the runs give.
pub fn of(results: &LoadResults) -> Vec<Answer> {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let answers = [
        (
            "Is mapping faster when the file is cold?",
            mapping(results, rng),
        ),
        ("When is direct I/O faster?", direct(results, rng)),
        ("What does unmapping cost?", unmapping(results, rng)),
        (
            "What does mapping gain when other threads use the file?",
            others(results, rng),
        ),
        (
            "How good is the strategy that brisk chooses?",
            chosen(results, rng),
        ),
    ];
    Answer::given(answers)
}

/// The cases for which `is_asked` is true.
fn cases<'a>(
    results: &'a LoadResults,
    is_asked: impl Fn(&Case) -> bool + 'a,
) -> impl Iterator<Item = (usize, &'a Case)> {
    let cases = results.cases.iter().enumerate();
    cases.filter(move |(_, case)| is_asked(case))
}

/// The fastest strategy of a case among those that are `wanted`, with its times.
fn fastest(
    results: &LoadResults,
    case: usize,
    wanted: impl Fn(Strategy) -> bool,
) -> Option<(Way, Vec<f64>)> {
    let known = results.strategies(case).into_iter();
    let medians = known
        .filter(|(strategy, _)| wanted(*strategy))
        .filter_map(|(strategy, times)| Some((Spread::of(&times)?.median, strategy, times)));
    let fastest = medians.min_by(|a, b| a.0.total_cmp(&b.0));
    fastest.map(|(_, strategy, times)| (Way::As(strategy), times))
}

fn is_direct(strategy: Strategy) -> bool {
    matches!(strategy, Strategy::Direct | Strategy::UringDirect)
}

fn mapping(results: &LoadResults, rng: &mut fastrand::Rng) -> Vec<String> {
    let asked = cases(results, |case| {
        case.state == State::Cold && case.form == Shape::Shared && case.by == Who::Caller
    });
    let sentences = asked.filter_map(|(number, case)| {
        let map = fastest(results, number, |strategy| !strategy.copies())?;
        let copy = fastest(results, number, Strategy::copies)?;
        let duel = Duel::of(map, copy, rng)?;
        let verdict = match duel.verdict() {
            Verdict::First => "yes",
            Verdict::Second => "no",
            Verdict::NotClear => "not clear",
        };
        Some(format!("{case}: {verdict}; {}.", duel.words()))
    });
    sentences.collect()
}

fn direct(results: &LoadResults, rng: &mut fastrand::Rng) -> Vec<String> {
    let mut sentences = Vec::new();
    let (mut others, mut unclear) = (0, 0);
    for (number, case) in cases(results, |case| case.release == Giving::Unmap) {
        let direct = fastest(results, number, is_direct);
        let other = fastest(results, number, |strategy| !is_direct(strategy));
        let duel = direct
            .zip(other)
            .and_then(|(direct, other)| Duel::of(direct, other, rng));
        match duel.map(|duel| (duel.verdict(), duel)) {
            Some((Verdict::First, duel)) => sentences.push(format!("{case}: {}.", duel.words())),
            Some((Verdict::Second, _)) => others += 1,
            Some((Verdict::NotClear, _)) => unclear += 1,
            None => {}
        }
    }
    if sentences.is_empty() && others + unclear == 0 {
        return sentences;
    }
    let wins = sentences.len();
    sentences.insert(
        0,
        format!("It is faster in {wins} cases, slower in {others}, and in {unclear} the runs do not tell."),
    );
    sentences
}

fn unmapping(results: &LoadResults, rng: &mut fastrand::Rng) -> Vec<String> {
    let end = |run: &LoadRun| run.exit_seconds - run.used_seconds;
    let ms = |values: &[f64]| Some(Spread::of(values)?.median * 1e3);
    let mut sentences = Vec::new();
    for (number, case) in cases(results, |case| {
        results.is_base(case) && case.state == State::Warm
    }) {
        let other = |release| {
            let other = Case {
                release,
                ..case.clone()
            };
            results.cases.iter().position(|case| *case == other)
        };
        let floor = ms(&results.values(number, Way::Nothing, end));
        for strategy in Strategy::ALL {
            let way = Way::As(strategy);
            let own = results.values(number, way, end);
            let Some(unmapped) = ms(&own) else {
                continue;
            };
            let mut sentence = format!(
                "{} MB, {strategy}: {unmapped:.2} ms from the last use to the end of the process",
                megabytes(case.bytes)
            );
            for (release, what) in [
                (Giving::Skip, "without unmapping before"),
                (
                    Giving::Parallel,
                    "with several threads that give the pages back",
                ),
            ] {
                let values = other(release).map(|number| results.values(number, way, end));
                let Some(values) = values.filter(|values| !values.is_empty()) else {
                    continue;
                };
                let Some(ratio) = Ratio::of_medians(&values, &own, rng) else {
                    continue;
                };
                let clear = match Verdict::of(ratio, own.len().min(values.len())) {
                    Verdict::NotClear => ", which the runs do not tell apart",
                    Verdict::First | Verdict::Second => "",
                };
                sentence += &format!("; {what} {} of that{clear}", interval(ratio));
            }
            sentences.push(sentence + ".");
        }
        if let Some(floor) = floor.filter(|_| !sentences.is_empty()) {
            sentences.push(format!(
                "A process that has loaded nothing takes {floor:.2} ms to end."
            ));
        }
    }
    sentences
}

fn others(results: &LoadResults, rng: &mut fastrand::Rng) -> Vec<String> {
    let read = Way::As(Strategy::Read);
    let asked = cases(results, |case| {
        case.by == Who::Others && case.release == Giving::Unmap
    });
    let sentences = asked.filter_map(|(number, case)| {
        let map = fastest(results, number, |strategy| !strategy.copies())?;
        let reads = results.values(number, read, |run| run.exit_seconds);
        let duel = Duel::of(map, (read, reads), rng)?;
        let clear = match duel.verdict() {
            Verdict::NotClear => "not clear; ",
            Verdict::First | Verdict::Second => "",
        };
        Some(format!("{case}: {clear}a program with {}.", duel.words()))
    });
    sentences.collect()
}

fn chosen(results: &LoadResults, rng: &mut fastrand::Rng) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(regret) = regret::of(&regret::halves(results), rng) {
        let Regret {
            mean,
            worst,
            worst_name,
            picked,
            fastest,
            cases,
        } = regret;
        let mut sentence = format!(
            "The strategies of the built-in table take {} of the time of the fastest ones, as the geometric mean of \
             {cases} cases. One half of the runs says which is fastest, the other half how fast. In the worst case it \
             is {}",
            interval(mean),
            interval(worst)
        );
        if picked != fastest {
            sentence += &format!(" ({worst_name}: {picked} instead of {fastest})");
        }
        sentences.push(sentence + ".");
    }
    // What the choice itself costs.
    let all = (0..results.cases.len()).filter_map(|number| {
        let taken = results
            .runs_of(number, Way::Chosen)
            .find_map(|run| run.taken.as_deref());
        let same = Way::As(taken?.parse().ok()?);
        let exits = |way| results.values(number, way, |run| run.exit_seconds);
        let pair = (exits(Way::Chosen), exits(same));
        (!pair.0.is_empty() && !pair.1.is_empty()).then_some(pair)
    });
    let all: Vec<_> = all.collect();
    let pairs: Vec<(&[f64], &[f64])> = all.iter().map(|(a, b)| (&**a, &**b)).collect();
    if let Some(ratio) = Ratio::of_geometric_mean(&pairs, rng) {
        sentences.push(format!(
            "Letting brisk choose takes {} of the time of naming the same strategy.",
            interval(ratio)
        ));
    }
    sentences
}
