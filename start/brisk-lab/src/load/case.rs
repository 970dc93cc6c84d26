//! What varies between measurements, and which combinations are measured.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::thread;

use anyhow::{Context, bail};
use brisk_io::{Form, Need, Strategy, Touch};
use serde::{Deserialize, Serialize};

use super::super::cells::megabytes;

/// Whether the file is in the page cache before the start.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// No page of it is.
    Cold,
    /// Every page of it is.
    Warm,
}

/// Which pages to touch. In JSON and for people it is a text: `100`, `25-random`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Touched {
    /// Percent of the pages, from 1.
    pub percent: u8,
    /// Whether to choose the pages at random and touch them in random order. Otherwise they are in 16 parts,
    /// from the start of the file to its end.
    pub random: bool,
}

impl fmt::Display for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let random = if self.random { "-random" } else { "" };
        write!(f, "{}{random}", self.percent)
    }
}

impl FromStr for Touched {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (percent, random) = match text.strip_suffix("-random") {
            Some(percent) => (percent, true),
            None => (text, false),
        };
        let percent = percent.parse().ok();
        let percent = percent.filter(|percent| (1..=100).contains(percent));
        let percent = percent
            .context("allowed is 1 to 100, also with -random behind it, such as 25-random")?;
        Ok(Self { percent, random })
    }
}

impl TryFrom<String> for Touched {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        text.parse()
    }
}

impl From<Touched> for String {
    fn from(touched: Touched) -> Self {
        touched.to_string()
    }
}

/// The threads that touch the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// The thread that loads the file.
    Caller,
    /// Other threads, while the one that has loaded the file computes for 10 ms.
    Others,
}

/// What to do with a touched page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Read it.
    Shared,
    /// Read it, and change one word of it.
    Patched,
    /// Copy all of it somewhere else.
    Copied,
}

/// How the memory is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Giving {
    /// By one thread, before the process ends.
    Unmap,
    /// By the kernel, at the end of the process.
    Skip,
    /// By one thread for each processor, before the process ends. Only earlier versions did that.
    #[value(skip)]
    Parallel,
}

/// How many processors this process may run on.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// A way to load: a strategy, brisk's choice, or nothing. In JSON and for people it is its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Way {
    As(Strategy),
    /// The strategy that [`brisk_io::load`] chooses.
    Chosen,
    /// Loads nothing, which shows what a process costs.
    Nothing,
}

impl Way {
    /// All of them.
    pub const LIST: &str = "shared-map,private-map,populated-map,read,direct,uring,uring-direct,\
                            chosen,nothing";
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::As(strategy) => strategy.fmt(f),
            Self::Chosen => f.pad("chosen"),
            Self::Nothing => f.pad("nothing"),
        }
    }
}

impl FromStr for Way {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(match text {
            "chosen" => Self::Chosen,
            "nothing" => Self::Nothing,
            _ => match text.parse() {
                Ok(strategy) => Self::As(strategy),
                Err(e) => bail!("{e}, chosen, nothing"),
            },
        })
    }
}

impl TryFrom<String> for Way {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        text.parse()
    }
}

impl From<Way> for String {
    fn from(way: Way) -> Self {
        way.to_string()
    }
}

/// The conditions under which strategies are compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    pub bytes: u64,
    pub state: State,
    /// How many processes load the file at once.
    pub processes: usize,
    pub touched: Touched,
    pub by: Who,
    pub form: Shape,
    /// Threads that touch the pages while another one maps and unmaps. If 0, one thread touches them and none
    /// maps.
    pub faulting: usize,
    /// The read-ahead of the disk. None leaves it as it is.
    pub read_ahead_kib: Option<u32>,
    pub release: Giving,
}

impl Case {
    /// What a program would tell [`brisk_io::load`] in this case.
    pub fn need(&self) -> Need {
        let touch = match self.touched {
            Touched { percent: 100, .. } => Touch::All,
            Touched { random: false, .. } => Touch::Part,
            Touched { percent: ..5, .. } => Touch::Few,
            Touched { random: true, .. } => Touch::Random,
        };
        let form = match self.form {
            Shape::Shared => Form::Shared,
            Shape::Patched => Form::Patched,
            Shape::Copied => Form::Copied,
        };
        Need::new()
            .touch(touch)
            .form(form)
            .processes(self.processes)
    }

    /// Cases with the same value are measured together, in turns.
    pub fn block(&self) -> (u64, State) {
        (self.bytes, self.state)
    }

    /// Bytes of memory that it needs in this way, with the page cache.
    pub fn memory(&self, way: Way) -> u64 {
        let own = match way {
            Way::Nothing => return 0,
            Way::As(strategy) if !strategy.copies() && self.form != Shape::Patched => 0,
            // The strategy that is chosen may be one that copies.
            Way::As(_) | Way::Chosen => self.bytes,
        };
        let processes = u64::try_from(self.processes).unwrap_or(u64::MAX);
        self.bytes.saturating_add(own.saturating_mul(processes))
    }

    /// Everything but its length and state, in words.
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.processes > 1 {
            words.push(format!("{} processes", self.processes));
        }
        let order = if self.touched.random {
            "at random"
        } else {
            "in order"
        };
        words.push(format!("{} % {order}", self.touched.percent));
        if self.by == Who::Others {
            words.push("by others".to_owned());
        }
        match self.form {
            Shape::Shared => {}
            Shape::Patched => words.push("patched".to_owned()),
            Shape::Copied => words.push("copied".to_owned()),
        }
        match self.faulting {
            0 => {}
            1 => words.push("1 thread faults beside one that maps".to_owned()),
            threads => words.push(format!("{threads} threads fault beside one that maps")),
        }
        if let Some(kib) = self.read_ahead_kib {
            words.push(format!("read-ahead {kib} KiB"));
        }
        match self.release {
            Giving::Unmap => {}
            Giving::Skip => words.push("unmapping skipped".to_owned()),
            Giving::Parallel => words.push("unmapped in parallel".to_owned()),
        }
        words
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Cold => "cold",
            State::Warm => "warm",
        };
        write!(
            f,
            "{} MB {state}, {}",
            megabytes(self.bytes),
            self.words().join(", ")
        )
    }
}

/// The values of each dimension. The first value of each belongs to the base case.
#[derive(Debug, Clone)]
pub struct Dimensions {
    pub states: Vec<State>,
    pub processes: Vec<usize>,
    pub touched: Vec<Touched>,
    pub by: Vec<Who>,
    pub forms: Vec<Shape>,
    pub faulting: Vec<usize>,
    pub read_ahead_kib: Vec<u32>,
    pub releases: Vec<Giving>,
    /// Whether to measure all combinations.
    pub product: bool,
}

/// Why a case is not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// A figure, a contender, or both.
    pub what: String,
    /// Why, without a final period.
    pub reason: String,
}

impl Dimensions {
    /// The cases of a file of this length, and what is left out.
    pub fn cases(&self, bytes: u64) -> (Vec<Case>, Vec<LeftOut>) {
        let base = Case {
            bytes,
            state: State::Cold,
            processes: 1,
            touched: Touched {
                percent: 100,
                random: false,
            },
            by: Who::Caller,
            form: Shape::Shared,
            faulting: 0,
            read_ahead_kib: None,
            release: Giving::Unmap,
        };
        // Each case has the number of dimensions that differ from the base.
        let states = self.states.iter();
        let made = states
            .map(|&state| {
                (
                    Case {
                        state,
                        ..base.clone()
                    },
                    0,
                )
            })
            .collect();
        let made = vary(made, &self.processes, |case, value| case.processes = value);
        let made = vary(made, &self.touched, |case, value| case.touched = value);
        let made = vary(made, &self.by, |case, value| case.by = value);
        let made = vary(made, &self.forms, |case, value| case.form = value);
        let made = vary(made, &self.faulting, |case, value| case.faulting = value);
        let made = match &*self.read_ahead_kib {
            [] => made,
            list => vary(made, list, |case, value| case.read_ahead_kib = Some(value)),
        };
        let made = vary(made, &self.releases, |case, value| case.release = value);
        let (mut cases, mut left_out, mut combinations) = (Vec::new(), Vec::new(), 0);
        for (case, varied) in made {
            // What patching costs depends on how much is touched, so these two vary together.
            let together = case.form == Shape::Patched
                && Some(&case.touched) != self.touched.first()
                && Some(&case.form) != self.forms.first();
            if !self.product && varied > 1 + usize::from(together) {
                combinations += 1;
                continue;
            }
            match self.reason_against(&case) {
                None => cases.push(case),
                Some(reason) => left_out.push(LeftOut {
                    what: case.to_string(),
                    reason: reason.to_owned(),
                }),
            }
        }
        if combinations > 0 {
            left_out.push(LeftOut {
                what: format!("{combinations} combinations of {} MB", megabytes(bytes)),
                reason: "only --product measures what differs from the base in two ways".to_owned(),
            });
        }
        (cases, left_out)
    }

    /// Why a case would tell nothing new, or cannot be measured.
    fn reason_against(&self, case: &Case) -> Option<&'static str> {
        if case.form == Shape::Patched && case.faulting > 0 {
            return Some("only one thread can patch");
        }
        let first = self.read_ahead_kib.first();
        if case.state == State::Warm && case.read_ahead_kib.as_ref() != first {
            return Some("the kernel reads nothing ahead if the file is in memory");
        }
        if case.state == State::Cold && Some(&case.release) != self.releases.first() {
            return Some(
                "measured warm: giving memory back takes the same time after a cold start",
            );
        }
        None
    }
}

/// Each of `made`, with each of `values`.
fn vary<T: Copy>(
    made: Vec<(Case, usize)>,
    values: &[T],
    set: impl Fn(&mut Case, T),
) -> Vec<(Case, usize)> {
    let mut all = Vec::with_capacity(made.len() * values.len());
    for (case, varied) in made {
        for (place, &value) in values.iter().enumerate() {
            let mut case = case.clone();
            set(&mut case, value);
            all.push((case, varied + usize::from(place > 0)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dimensions() -> Dimensions {
        Dimensions {
            states: vec![State::Cold, State::Warm],
            processes: vec![1, 8],
            touched: ["100", "25-random"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            by: vec![Who::Caller, Who::Others],
            forms: vec![Shape::Shared, Shape::Patched],
            faulting: vec![0, 2],
            read_ahead_kib: Vec::new(),
            releases: vec![Giving::Unmap, Giving::Skip],
            product: false,
        }
    }

    #[test]
    fn one_dimension_varies_at_a_time() {
        let (cases, left_out) = dimensions().cases(25 << 20);
        let names: Vec<_> = cases.iter().map(ToString::to_string).collect();
        let of_state = |state: &str, more: &[&str]| -> Vec<String> {
            let words = [
                &["100 % in order"][..],
                more,
                &[
                    "100 % in order, 2 threads fault beside one that maps",
                    "100 % in order, patched",
                    "100 % in order, by others",
                    "25 % at random",
                    "25 % at random, patched",
                    "8 processes, 100 % in order",
                ],
            ];
            let words = words.into_iter().flatten();
            words
                .map(|words| format!("26.2 MB {state}, {words}"))
                .collect()
        };
        let mut expected = of_state("cold", &[]);
        expected.extend(of_state("warm", &["100 % in order, unmapping skipped"]));
        assert_eq!(names, expected);
        let words: Vec<_> = left_out.iter().map(|l| (&*l.what, &*l.reason)).collect();
        assert_eq!(
            words,
            [
                (
                    "26.2 MB cold, 100 % in order, unmapping skipped",
                    "measured warm: giving memory back takes the same time after a cold start"
                ),
                (
                    "112 combinations of 26.2 MB",
                    "only --product measures what differs from the base in two ways"
                ),
            ]
        );
    }

    #[test]
    fn the_product_has_all() {
        let all = Dimensions {
            product: true,
            ..dimensions()
        };
        let (cases, left_out) = all.cases(1 << 20);
        assert_eq!(cases.len() + left_out.len(), 2 * 2 * 2 * 2 * 2 * 2 * 2);
        let reasons = left_out
            .iter()
            .filter(|l| l.reason == "only one thread can patch");
        assert_eq!(reasons.count(), 2 * 2 * 2 * 2 * 2);
    }

    #[test]
    fn copies_take_memory_for_each_process() {
        let (cases, _) = dimensions().cases(100);
        let last = cases.last().unwrap();
        assert_eq!(
            (last.processes, last.memory(Way::As(Strategy::SharedMap))),
            (8, 100)
        );
        assert_eq!(last.memory(Way::As(Strategy::Direct)), 900);
        assert_eq!(
            (last.memory(Way::Chosen), last.memory(Way::Nothing)),
            (900, 0)
        );
    }

    #[test]
    fn texts_are_read_as_they_are_written() {
        for name in Way::LIST.split(',') {
            assert_eq!(name.parse::<Way>().unwrap().to_string(), name);
        }
        assert_eq!(
            "mmap".parse::<Way>().unwrap_err().to_string(),
            "no strategy is called \"mmap\"; there are shared-map, private-map, populated-map, read, \
             direct, uring, uring-direct, chosen, nothing"
        );
        for text in ["0", "101", "-random", "5-order", ""] {
            assert_eq!(
                text.parse::<Touched>().unwrap_err().to_string(),
                "allowed is 1 to 100, also with -random behind it, such as 25-random",
                "{text}"
            );
        }
    }
}
