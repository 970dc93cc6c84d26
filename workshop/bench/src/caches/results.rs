//! Results: every run, and what was counted.

use std::collections::BTreeMap;

use brisk_lab::Coldness;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::results::Results;

/// This experiment.
pub(crate) struct Caches;

/// The version of the file's format, and what was counted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct More {
    pub(crate) brisk_lab_cache: u32,
    pub(crate) counted: Vec<Counted>,
}

/// The arguments.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CacheSettings {
    pub entries: u64,
    pub few: u64,
    pub many: u64,
    pub updates: u64,
    pub runs: u32,
    pub seed: u64,
    /// The limit of the disk in the figure `cold`, as it was given.
    pub disk: Option<String>,
    #[serde(flatten)]
    pub coldness: Coldness,
}

/// What is measured.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Opening and one get, in a fresh process.
    Open,
    /// Gets of 1 KB in a process that has opened the store.
    Get,
    /// Opening, and one look-up in each table of 84 KB, in a fresh process.
    Tables,
    /// One look-up in each table of 84 KB, in a process that has looked at each before.
    Again,
    /// The figure `tables`, with nothing of the store in memory, on a slow disk.
    Cold,
    /// Updates of 400 bytes.
    Update,
    /// The same, each on the disk when it returns.
    DurableUpdate,
    /// Gets by one process.
    One,
    /// Gets by eight processes at once.
    Eight,
    /// Opening a store with a thousand entries of 64 bytes, and one get.
    OpenFew,
    /// Opening a store with many such entries, and one get.
    OpenMany,
    /// Gets from a store with a thousand such entries, all in memory.
    GetFew,
    /// Gets from a store with many such entries, all in memory.
    GetMany,
}

impl Figure {
    pub const ALL: [Self; 13] = [
        Self::Open,
        Self::Get,
        Self::Tables,
        Self::Again,
        Self::Cold,
        Self::Update,
        Self::DurableUpdate,
        Self::One,
        Self::Eight,
        Self::OpenFew,
        Self::OpenMany,
        Self::GetFew,
        Self::GetMany,
    ];

    /// Its name in arguments and in results.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// The value that the figure is about, its unit, and by what to divide it.
    pub fn measure(self) -> (&'static str, &'static str, f64) {
        match self {
            Self::Open | Self::Update | Self::DurableUpdate | Self::OpenFew | Self::OpenMany => {
                ("ns", "us", 1e3)
            }
            Self::Get | Self::GetFew | Self::GetMany => ("ns", "ns", 1.0),
            Self::Tables | Self::Again | Self::Cold => ("seconds", "ms", 1e-3),
            Self::One | Self::Eight => ("per_second", "M/s", 1e6),
        }
    }
}

/// What a run does. Its values, of one operation: `ns`, `first_ns` of the first round of gets, and processor time, `user_ns` and
/// `system_ns`; of an update, bytes to write calls, `wchar`, and on the device, `device`. Of all look-ups: `seconds`. Of all
/// processes together: gets in a second, `per_second`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub figure: Figure,
    pub store: String,
}

/// What one operation does, in a run that is not timed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counted {
    pub figure: Figure,
    pub store: String,
    pub allocations: Option<f64>,
    pub system_calls: Option<f64>,
}

/// What a store takes on the disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stored {
    pub store: String,
    /// `values` of 1 KB, `tables` of 84 KB, `updates`, values of 400 bytes, and a `few` or `many` of 64 bytes.
    pub what: String,
    /// Bytes of all values.
    pub values: u64,
    /// Bytes on the disk.
    pub bytes: u64,
    /// The time to make it.
    pub seconds: f64,
}

impl Setting {
    pub fn of(figure: Figure, store: &str) -> Self {
        let store = store.to_owned();
        Self { figure, store }
    }
}

impl Results<Caches> {
    /// A value of each run of a store. Empty if there is no such row.
    pub(super) fn of(&self, figure: Figure, store: &str, name: &str) -> Vec<f64> {
        self.values(&Setting::of(figure, store), name)
    }

    /// The stores of a figure, in the order of the rows.
    pub(super) fn stores(&self, figure: Figure) -> Vec<&str> {
        let rows = self.rows.iter().filter(|row| row.figure == figure);
        rows.map(|row| &*row.store).collect()
    }

    /// What was counted of an operation.
    pub(super) fn counts(&self) -> BTreeMap<(Figure, &str), &Counted> {
        let counted = self.more.counted.iter();
        counted
            .map(|row| ((row.figure, &*row.store), row))
            .collect()
    }
}
