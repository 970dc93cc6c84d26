//! Results: every run.

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::super::jobs::{Coldness, Values};
use super::super::load::LeftOut;
use super::super::machine::Machine;

/// Everything in `objects.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct ObjectsResults {
    /// The version of this format.
    pub brisk_lab_objects: u32,
    pub brisk: String,
    /// The time of the start, as RFC 3339 writes it.
    pub started: String,
    pub machine: Machine,
    /// What takes pages out of memory although there is room. The lab stopped it.
    pub stopped: Vec<String>,
    pub settings: ObjectsSettings,
    pub rows: Vec<Setting>,
    pub runs: Vec<ObjectsRun>,
    pub stored: Vec<Stored>,
    /// What was not measured.
    #[serde(default)]
    pub missing: Vec<LeftOut>,
    /// Runs that were left out, because something took pages of a store out of memory again and again.
    pub lost: u32,
}

/// The arguments.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObjectsSettings {
    /// How many records a store has.
    pub records: u64,
    pub runs: u32,
    pub seed: u64,
    /// The limit of the disk in the cold figures, as it was given.
    #[serde(default)]
    pub disk: Option<String>,
    /// What the kernel reads ahead on the disk of the stores. None if there is no disk, and in older results.
    #[serde(default)]
    pub read_ahead_kib: Option<u32>,
    #[serde(flatten)]
    pub coldness: Coldness,
}

/// What is measured. Each run is a fresh process, whose store is open when the clock starts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// 100,000 records by their keys, at random, within one transaction.
    Get,
    /// 5,000 records by their keys, at random, each by a call of its own.
    OneByOne,
    /// The same, of neighbouring keys.
    OneByOneNear,
    /// 5,000 records by their keys, at random, each by a call of its own, with no page of the store in memory.
    Cold,
    /// The same, by one call for all.
    ColdMany,
    /// The keys of about 10,000 records, from an index alone.
    ScanKeys,
    /// About 10,000 records, in the order of an index.
    ScanRecords,
    /// 20,000 new records with two indexes, 1,000 for each commit, which waits for the disk.
    InsertFull,
    /// 200,000 new records, 1,000 for each commit, of which a loss of power may undo the last ones.
    InsertNormal,
}

impl Figure {
    pub const ALL: [Self; 9] = [
        Self::Get,
        Self::OneByOne,
        Self::OneByOneNear,
        Self::Cold,
        Self::ColdMany,
        Self::ScanKeys,
        Self::ScanRecords,
        Self::InsertFull,
        Self::InsertNormal,
    ];

    /// Whether its runs begin with no page of the store in memory.
    pub fn is_cold(self) -> bool {
        matches!(self, Self::Cold | Self::ColdMany)
    }

    /// Its name in arguments and in results.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |value| value.get_name().to_owned())
    }
}

/// What a run does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub figure: Figure,
    pub store: String,
}

/// One single run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObjectsRun {
    pub row: usize,
    /// From 0.
    pub repetition: u32,
    /// Its position within the repetition, from 0.
    pub place: usize,
    /// For each record: `ns`, `user_ns`, `system_ns`. For all of a run: `all_ns`.
    pub values: Values,
}

/// What a store takes on the disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stored {
    pub store: String,
    pub bytes: u64,
}

/// Whether `brisk lab objects` has written this, in any version.
pub fn is_of_objects(text: &serde_json::Value) -> bool {
    text.get("brisk_lab_objects").is_some()
}

/// Reads what `brisk lab objects` has written.
pub fn parse(text: &[u8]) -> Result<ObjectsResults> {
    let results: ObjectsResults =
        serde_json::from_slice(text).context("this is not an objects.json of brisk lab objects")?;
    ensure!(
        results.brisk_lab_objects == 1,
        "field brisk_lab_objects: found {}, allowed is 1: a newer brisk wrote it",
        results.brisk_lab_objects
    );
    Ok(results)
}

impl ObjectsResults {
    /// A value of each run of a row. Empty if there is no such row.
    pub fn values(&self, figure: Figure, store: &str, name: &str) -> Vec<f64> {
        let is_it = |row: &Setting| (row.figure, &*row.store) == (figure, store);
        let row = self.rows.iter().position(is_it);
        let runs = self.runs.iter().filter(|run| Some(run.row) == row);
        runs.filter_map(|run| run.values.get(name).copied())
            .collect()
    }

    /// The figures that were measured, and their stores in the order of the rows.
    pub fn groups(&self) -> Vec<(Figure, Vec<&str>)> {
        let of = |figure| {
            let rows = self.rows.iter().filter(move |row| row.figure == figure);
            rows.map(|row| &*row.store).collect::<Vec<_>>()
        };
        let groups = Figure::ALL.into_iter().map(|figure| (figure, of(figure)));
        groups.filter(|(_, stores)| !stores.is_empty()).collect()
    }
}
