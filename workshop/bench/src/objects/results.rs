//! Results: every run.

use brisk_lab::Coldness;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::results::Results;

/// This experiment.
pub(crate) struct Objects;

/// The version of the file's format.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Version {
    pub(crate) brisk_lab_objects: u32,
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

/// What a run does. Its values, for each record: `ns`, `again_ns` of the same once more, and processor time, `user_ns` and
/// `system_ns`. For all of a run: `all_ns`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub figure: Figure,
    pub store: String,
}

/// What a store takes on the disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stored {
    pub store: String,
    pub bytes: u64,
}

impl Setting {
    pub fn of(figure: Figure, store: &str) -> Self {
        let store = store.to_owned();
        Self { figure, store }
    }
}

impl Results<Objects> {
    /// The figures that were measured, and their stores in the order of the rows.
    pub(super) fn measured(&self) -> Vec<(Figure, Vec<&str>)> {
        let of = |figure| {
            let rows = self.rows.iter().filter(move |row| row.figure == figure);
            rows.map(|row| &*row.store).collect::<Vec<_>>()
        };
        let groups = Figure::ALL.into_iter().map(|figure| (figure, of(figure)));
        groups.filter(|(_, stores)| !stores.is_empty()).collect()
    }

    /// A value of each run of a store. Empty if there is no such row.
    pub(super) fn of(&self, figure: Figure, store: &str, name: &str) -> Vec<f64> {
        self.values(&Setting::of(figure, store), name)
    }
}
