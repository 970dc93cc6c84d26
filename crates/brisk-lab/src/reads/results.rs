//! What came out: every run, and what was counted.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::super::load::{LeftOut, State};
use super::super::machine::Machine;
use super::reader::Reader;

/// Everything that is written to `reads.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReadsResults {
    /// The version of this format.
    pub brisk_lab_reads: u32,
    pub brisk: String,
    /// RFC 3339.
    pub started: String,
    pub machine: Machine,
    /// What takes pages out of memory although there is room, which was stopped.
    #[serde(default)]
    pub stopped: Vec<String>,
    pub settings: ReadsSettings,
    pub rows: Vec<Setting>,
    pub runs: Vec<ReadRun>,
    pub counted: Vec<Counted>,
    pub peers: Vec<Peer>,
    /// Runs that are not counted: pages of a warm file left the memory each time.
    pub lost: u32,
    pub missing: Vec<LeftOut>,
}

/// What was asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadsSettings {
    pub reads: usize,
    pub size: usize,
    pub large: u64,
    pub depth: usize,
    pub runs: u32,
    pub seed: u64,
    /// Rounds of the reads that call the system for nothing, with the first, which is not counted.
    #[serde(default = "one_counted")]
    pub short_rounds: u64,
}

/// What was so before results told it.
fn one_counted() -> u64 {
    2
}

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A file of as many bytes as are read, from its start to its end, or in random order.
    Small { random: bool },
    /// Pages of a larger one at random, of which five of a hundred are not in memory.
    Mixed,
    /// Pages of a larger one at random, several at once.
    Deep,
}

/// Who reads what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub reader: Reader,
    pub what: What,
    pub state: State,
    /// Each of which makes all reads.
    pub threads: usize,
}

/// One single run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ReadRun {
    pub row: usize,
    /// From 0.
    pub repetition: u32,
    /// Its place within the repetition, from 0.
    pub place: usize,
    /// Of one read, of the slowest thread.
    pub nanoseconds: f64,
    /// Reads that another thread or `io_uring` did. Earlier versions called it `hopped`.
    #[serde(alias = "hopped")]
    pub waited: u64,
}

/// What one read does, of a warm file at random.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Counted {
    pub reader: Reader,
    pub allocations: Option<f64>,
    pub system_calls: Option<f64>,
}

/// Reads of `fio`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Peer {
    pub engine: String,
    pub state: State,
    /// Pages of the larger file, several at once.
    pub deep: bool,
    pub nanoseconds: Vec<f64>,
}

/// Whether this is what `brisk lab reads` has written, of whatever version.
pub fn is_of_reads(text: &serde_json::Value) -> bool {
    text.get("brisk_lab_reads").is_some()
}

/// Reads what `brisk lab reads` has written.
pub fn parse(text: &[u8]) -> Result<ReadsResults> {
    let results: ReadsResults =
        serde_json::from_slice(text).context("this is no reads.json of brisk lab reads")?;
    ensure!(
        results.brisk_lab_reads == 1,
        "field brisk_lab_reads: found {}, allowed is 1: a newer brisk wrote it",
        results.brisk_lab_reads
    );
    Ok(results)
}

impl ReadsResults {
    /// Nanoseconds of one read, in each run of a row; none of a row that there is not.
    pub fn nanoseconds(&self, setting: Setting) -> Vec<f64> {
        let row = self.rows.iter().position(|known| *known == setting);
        let runs = self.runs.iter().filter(|run| Some(run.row) == row);
        runs.map(|run| run.nanoseconds).collect()
    }
}
