//! Results: every run, and what was counted.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::super::load::{LeftOut, State};
use super::super::machine::Machine;
use super::reader::Reader;

/// Everything in `reads.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReadsResults {
    /// The version of this format.
    pub brisk_lab_reads: u32,
    pub brisk: String,
    /// The time of the start, as RFC 3339 writes it.
    pub started: String,
    pub machine: Machine,
    /// What takes pages out of memory although there is room. The lab stopped it.
    #[serde(default)]
    pub stopped: Vec<String>,
    pub settings: ReadsSettings,
    pub rows: Vec<Setting>,
    pub runs: Vec<ReadRun>,
    pub counted: Vec<Counted>,
    pub peers: Vec<Peer>,
    /// How many runs do not count, because pages of the warm file left memory each time.
    pub lost: u32,
    pub missing: Vec<LeftOut>,
}

/// The arguments.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadsSettings {
    pub reads: usize,
    pub size: usize,
    pub large: u64,
    pub depth: usize,
    pub runs: u32,
    pub seed: u64,
    /// How often reads without system calls were repeated. The first round does not count.
    #[serde(default = "one_counted")]
    pub short_rounds: u64,
}

/// The value before results recorded it.
fn one_counted() -> u64 {
    2
}

/// What to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A file of exactly the bytes that are read, from its start to its end or in random order.
    Small { random: bool },
    /// Random pages of a larger file. Five of a hundred are not in memory.
    Mixed,
    /// Random pages of a larger file, several at once.
    Deep,
}

/// A way to read, and what it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub reader: Reader,
    pub what: What,
    pub state: State,
    /// How many threads read. Each makes all reads.
    pub threads: usize,
}

/// One single run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ReadRun {
    pub row: usize,
    /// From 0.
    pub repetition: u32,
    /// Its position within the repetition, from 0.
    pub place: usize,
    /// The time of one read, in the slowest thread.
    pub nanoseconds: f64,
    /// Reads that another thread or `io_uring` did. Earlier versions called it `hopped`.
    #[serde(alias = "hopped")]
    pub waited: u64,
}

/// What one read does with a warm file at random.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Counted {
    pub reader: Reader,
    pub allocations: Option<f64>,
    pub system_calls: Option<f64>,
}

/// Reads by `fio`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Peer {
    pub engine: String,
    pub state: State,
    /// Whether it reads pages of the larger file, several at once.
    pub deep: bool,
    pub nanoseconds: Vec<f64>,
}

/// Whether `brisk lab reads` has written this, in any version.
pub fn is_of_reads(text: &serde_json::Value) -> bool {
    text.get("brisk_lab_reads").is_some()
}

/// Reads what `brisk lab reads` has written.
pub fn parse(text: &[u8]) -> Result<ReadsResults> {
    let results: ReadsResults =
        serde_json::from_slice(text).context("this is not a reads.json of brisk lab reads")?;
    ensure!(
        results.brisk_lab_reads == 1,
        "field brisk_lab_reads: found {}, allowed is 1: a newer brisk wrote it",
        results.brisk_lab_reads
    );
    Ok(results)
}

impl ReadsResults {
    /// The nanoseconds of one read, in each run of a row. Empty if there is no such row.
    pub fn nanoseconds(&self, setting: Setting) -> Vec<f64> {
        self.runs_of(setting).map(|run| run.nanoseconds).collect()
    }

    /// The same by the repetition.
    pub fn by_repetition(&self, setting: Setting) -> BTreeMap<u32, f64> {
        let runs = self.runs_of(setting);
        runs.map(|run| (run.repetition, run.nanoseconds)).collect()
    }

    fn runs_of(&self, setting: Setting) -> impl Iterator<Item = &ReadRun> {
        let row = self.rows.iter().position(|known| *known == setting);
        self.runs.iter().filter(move |run| Some(run.row) == row)
    }
}
