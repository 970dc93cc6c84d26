//! Results: every run, and what was counted.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::pages::{Page, PageLeftOut, Pages};
use crate::results::Results;

/// This experiment.
pub(crate) struct Ways;

/// The version of the file's format, the pages, and what was counted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct More {
    pub(crate) brisk_lab_index: u32,
    pub(crate) pages: PagesSummary,
    pub(crate) counted: Vec<Counted>,
}

/// The arguments.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IndexSettings {
    /// Numbers of packages.
    pub packages: Vec<u64>,
    pub runs: u32,
    pub seed: u64,
}

/// The frozen pages.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PagesSummary {
    /// The Python that files are for.
    pub python: String,
    /// The platform that files are for.
    pub platform: String,
    /// How many different pages there are. More packages are the same pages of other indexes.
    pub pages: u64,
    /// Bytes of them.
    pub bytes: u64,
    pub versions: u64,
    pub files: u64,
    pub largest: LargestPage,
    /// Pages that are in no run, because pyindex and uv choose different files of them.
    pub left_out: Vec<PageLeftOut>,
}

/// The page of the figure `largest`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LargestPage {
    pub name: String,
    pub bytes: u64,
    pub versions: u64,
    pub files: u64,
}

impl PagesSummary {
    pub fn of(pages: &Pages) -> Self {
        let sum = |of: fn(&Page) -> u64| pages.packages.iter().map(of).sum();
        Self {
            python: pages.python.clone(),
            platform: pages.platform.clone(),
            pages: pages.packages.len() as u64,
            bytes: sum(|page| page.bytes),
            versions: sum(|page| page.versions),
            files: sum(|page| page.files),
            largest: LargestPage {
                name: pages.largest.name.clone(),
                bytes: pages.largest.bytes,
                versions: pages.largest.versions,
                files: pages.largest.files,
            },
            left_out: pages.left_out.clone(),
        }
    }
}

/// What is measured. Each run is a fresh process, which opens what is stored, decides what is fresh, and chooses a file of
/// each package.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// All pages are fresh.
    Warm,
    /// The index says of each page that it still holds.
    Stale,
    /// Nothing is stored: each page is fetched and stored.
    Miss,
    /// One large page, which is fresh.
    Largest,
}

impl Figure {
    pub const ALL: [Self; 4] = [Self::Warm, Self::Stale, Self::Miss, Self::Largest];

    /// Its name in arguments and in results.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |value| value.get_name().to_owned())
    }
}

/// What a run does. Its values: `ns` from before the store is opened until all files are chosen, `named_ns` to make their names
/// and URLs then, and for each package processor time, `user_ns` and `system_ns`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Setting {
    pub figure: Figure,
    pub packages: u64,
    pub way: String,
}

/// What a run does for each package, in a run that is not timed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counted {
    pub row: usize,
    pub allocations: Option<f64>,
    pub system_calls: Option<f64>,
    /// Bytes that are given to write calls for files of the store.
    pub written: Option<f64>,
}

/// What a way takes on the disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stored {
    pub way: String,
    /// `fresh`, `stale` or `largest`.
    pub what: String,
    pub packages: u64,
    /// Bytes of their pages.
    pub pages: u64,
    /// Bytes on the disk.
    pub bytes: u64,
    /// The time to make it.
    pub seconds: f64,
}

impl Setting {
    pub fn of(figure: Figure, packages: u64, way: &str) -> Self {
        let way = way.to_owned();
        Self {
            figure,
            packages,
            way,
        }
    }
}

impl Results<Ways> {
    /// A value of each run of a way. Empty if there is no such row.
    pub(super) fn of(&self, figure: Figure, packages: u64, way: &str, name: &str) -> Vec<f64> {
        self.values(&Setting::of(figure, packages, way), name)
    }

    /// What was counted of a row.
    pub(super) fn counted(&self, figure: Figure, packages: u64, way: &str) -> Option<&Counted> {
        let row = self.row(&Setting::of(figure, packages, way))?;
        self.more.counted.iter().find(|counted| counted.row == row)
    }

    /// The ways of each figure and number of packages, in the order of the rows.
    pub(super) fn measured(&self) -> BTreeMap<(Figure, u64), Vec<&str>> {
        let mut groups: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for row in &self.rows {
            let group = groups.entry((row.figure, row.packages)).or_default();
            group.push(&row.way);
        }
        groups
    }

    /// The largest number of packages of a figure.
    pub(super) fn most(&self, figure: Figure) -> Option<u64> {
        let rows = self.rows.iter().filter(|row| row.figure == figure);
        rows.map(|row| row.packages).max()
    }

    /// Bytes that a way takes on the disk.
    pub(super) fn bytes(&self, way: &str, what: &str) -> Option<u64> {
        let mut stored = self.stored.iter();
        stored
            .find(|stored| stored.way == way && stored.what == what)
            .map(|stored| stored.bytes)
    }
}
