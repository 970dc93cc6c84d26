//! Results: every run, and the figures that follow from them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::machine::Machine;
use super::super::read_ahead::Device;
use super::super::statistics::Spread;
use super::case::{Case, LeftOut, Way};
use super::pages::Grain;
use super::peers::Peers;
use super::worker::{Cost, Memory};

/// Everything in `load.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct LoadResults {
    /// The version of this format.
    pub brisk_lab_load: u32,
    pub brisk: String,
    /// The time of the start, as RFC 3339 writes it.
    pub started: String,
    pub machine: Machine,
    /// The disk that holds the files, if there is one.
    pub disk: Option<String>,
    /// Its read-ahead before anything was changed.
    pub read_ahead_kib: Option<u32>,
    /// The devices whose read-ahead was changed.
    pub read_ahead: Vec<Device>,
    /// What takes pages out of memory although there is room. The lab stopped it.
    #[serde(default)]
    pub stopped: Vec<String>,
    pub settings: LoadSettings,
    pub cases: Vec<Case>,
    /// The memory of one run of each row. These runs are not timed.
    pub counted: Vec<Counted>,
    pub runs: Vec<LoadRun>,
    pub left_out: Vec<LeftOut>,
    /// How many runs do not count, because pages of the warm file left memory each time.
    pub lost: u32,
    pub peers: Peers,
}

/// The arguments.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadSettings {
    pub runs: u32,
    pub seed: u64,
    pub ways: Vec<Way>,
    pub grain: Grain,
    /// None if the lab made the files.
    pub file: Option<PathBuf>,
    /// Steps of the main thread's own work, which take about 10 ms.
    pub work: u64,
}

/// The memory of the processes of a row, while all of them have the file loaded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counted {
    pub case: usize,
    pub way: Way,
    /// The strategy that was used, why, and those that were refused before it.
    pub taken: Option<String>,
    pub reason: Option<String>,
    pub refused: Vec<String>,
    /// For each process.
    pub memory: Vec<Memory>,
}

/// One single run. Seconds are from the start of the first process until the last one got there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadRun {
    /// The index of the case.
    pub case: usize,
    pub way: Way,
    /// From 0.
    pub repetition: u32,
    /// Its position within the repetition, from 0.
    pub place: usize,
    /// From 1. Earlier attempts do not count, because pages of a warm file left memory.
    pub attempt: u32,
    pub taken: Option<String>,
    pub loaded_seconds: f64,
    pub first_seconds: f64,
    pub last_seconds: f64,
    pub used_seconds: f64,
    pub released_seconds: f64,
    pub exit_seconds: f64,
    /// For all processes together, with their end.
    pub cost: Cost,
    /// Seconds to the end of each process.
    pub each: Vec<f64>,
}

/// The figures of a case in one way.
#[derive(Debug)]
pub struct LoadRow {
    pub way: Way,
    pub taken: Option<String>,
    pub exit: Spread,
    pub mean: f64,
    pub deviation: f64,
    /// Medians, in seconds.
    pub first: f64,
    pub last: f64,
    /// From the last use to the end of the process.
    pub end: f64,
    /// Most kernels count processor time in ticks, so a short time may count fully as one of the two.
    pub user: Processor,
    pub system: Processor,
    /// Medians of counts.
    pub minor_faults: f64,
    pub major_faults: f64,
    /// For all processes together.
    pub memory: Option<Memory>,
}

/// Processor times, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Processor {
    pub mean: f64,
    pub deviation: f64,
    pub min: f64,
    pub max: f64,
}

impl Processor {
    /// None if there are no values. What a process used before its start was subtracted, and kernels count in
    /// coarse steps, so a value may be negative: it counts as 0.
    fn of(seconds: &[f64]) -> Option<Self> {
        let seconds: Vec<_> = seconds.iter().map(|time| time.max(0.0)).collect();
        let (mean, deviation) = Spread::mean_and_deviation(&seconds)?;
        let Spread { min, max, .. } = Spread::of(&seconds)?;
        Some(Self {
            mean,
            deviation,
            min,
            max,
        })
    }
}

impl LoadResults {
    /// Whether a case differs from the base only in how much is loaded, and from where. The base has the
    /// first value of each dimension.
    pub fn is_base(&self, case: &Case) -> bool {
        self.cases.first().is_some_and(|first| {
            Case {
                bytes: case.bytes,
                state: case.state,
                ..first.clone()
            } == *case
        })
    }

    /// The runs of a case in one way.
    pub fn runs_of(&self, case: usize, way: Way) -> impl Iterator<Item = &LoadRun> {
        let runs = self.runs.iter();
        runs.filter(move |run| run.case == case && run.way == way)
    }

    /// One value of each of those runs.
    pub fn values(&self, case: usize, way: Way, value: fn(&LoadRun) -> f64) -> Vec<f64> {
        self.runs_of(case, way).map(value).collect()
    }

    /// The figures of those runs. None if there are none.
    pub fn row(&self, case: usize, way: Way) -> Option<LoadRow> {
        let median =
            |value: fn(&LoadRun) -> f64| Some(Spread::of(&self.values(case, way, value))?.median);
        let processor = |value: fn(&LoadRun) -> f64| Processor::of(&self.values(case, way, value));
        let exits = self.values(case, way, |run| run.exit_seconds);
        let (mean, deviation) = Spread::mean_and_deviation(&exits)?;
        let counted = self.counted.iter();
        let mut counted = counted.filter(|counted| counted.case == case && counted.way == way);
        Some(LoadRow {
            way,
            taken: self.runs_of(case, way).find_map(|run| run.taken.clone()),
            exit: Spread::of(&exits)?,
            mean,
            deviation,
            first: median(|run| run.first_seconds)?,
            last: median(|run| run.last_seconds)?,
            end: median(|run| run.exit_seconds - run.used_seconds)?,
            user: processor(|run| run.cost.user_seconds)?,
            system: processor(|run| run.cost.system_seconds)?,
            minor_faults: median(|run| run.cost.minor_faults as f64)?,
            major_faults: median(|run| run.cost.major_faults as f64)?,
            memory: counted.next().map(|counted| Memory::sum(&counted.memory)),
        })
    }

    /// The rows of a case, in the order of the arguments.
    pub fn rows(&self, case: usize) -> Vec<LoadRow> {
        let ways = self.settings.ways.iter();
        ways.filter_map(|&way| self.row(case, way)).collect()
    }

    /// The strategies of a case that have runs, with their times.
    pub fn strategies(&self, case: usize) -> Vec<(brisk_io::Strategy, Vec<f64>)> {
        let ways = self.settings.ways.iter().filter_map(|&way| match way {
            Way::As(strategy) => {
                let exits = self.values(case, way, |run| run.exit_seconds);
                (!exits.is_empty()).then_some((strategy, exits))
            }
            Way::Chosen | Way::Nothing => None,
        });
        ways.collect()
    }
}
