//! What an experiment keeps: every run, in a file.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use brisk::write_whole;
use brisk_lab::{LeftOut, Machine, too_few};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::jobs::Values;
use crate::table::{Group, Shown, Table};

/// What an experiment is about.
pub(crate) trait Kind: Sized {
    /// Its results are NAME.json, whose field `brisk_lab_NAME` has the version of the format.
    const NAME: &'static str;
    /// The heading of its part of a page.
    const TITLE: &'static str;
    /// The contenders that are brisk's.
    const BRISK: &'static [&'static str];
    /// The contenders that are nobody's library.
    const PLAIN: &'static [&'static str];

    /// The arguments.
    type Settings: Serialize + DeserializeOwned;
    /// What a run does: a figure and a contender.
    type Setting: Serialize + DeserializeOwned + PartialEq + Clone;
    /// What a contender takes on the disk.
    type Stored: Serialize + DeserializeOwned;
    /// What no other experiment has, and the version of the format.
    type More: Serialize + DeserializeOwned;

    /// The name of a figure.
    fn figure(setting: &Self::Setting) -> String;

    /// The seed of the experiment.
    fn seed(settings: &Self::Settings) -> u64;

    /// What a reader must know about all tables.
    fn conditions(results: &Results<Self>) -> String;

    /// What brisk is to reach, and what it reached.
    fn goals(results: &Results<Self>, rng: &mut fastrand::Rng) -> Table<4>;

    /// The figures.
    fn groups(results: &Results<Self>, rng: &mut fastrand::Rng) -> Vec<Group>;

    /// Other tables.
    fn others(results: &Results<Self>) -> Vec<Box<dyn Shown>>;

    /// Why something else is missing than a figure or a contender.
    fn remarks(_: &Results<Self>) -> Vec<String> {
        Vec::new()
    }
}

/// Everything in the file.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Results<K: Kind> {
    #[serde(flatten)]
    pub(crate) more: K::More,
    /// The version of brisk.
    pub(crate) brisk: String,
    /// The time of the start, as RFC 3339 writes it.
    pub(crate) started: String,
    pub(crate) machine: Machine,
    /// What takes pages out of memory although there is room. The lab stopped it.
    pub(crate) stopped: Vec<String>,
    pub(crate) settings: K::Settings,
    pub(crate) rows: Vec<K::Setting>,
    pub(crate) runs: Vec<Run>,
    pub(crate) stored: Vec<K::Stored>,
    /// What was not measured.
    #[serde(default)]
    pub(crate) missing: Vec<LeftOut>,
    /// Runs that were left out, because something took pages of a warm store out of memory again and again.
    pub(crate) lost: u32,
}

/// One single run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) row: usize,
    /// From 0.
    pub(crate) repetition: u32,
    /// Its position within the repetition, from 0.
    pub(crate) place: usize,
    /// What it took, by name.
    pub(crate) values: Values,
}

impl<K: Kind> Results<K> {
    /// Reads what an experiment of this kind has written. None if the JSON is not of this kind, in any version.
    pub(crate) fn parse(text: &serde_json::Value) -> Option<Result<Self>> {
        let field = format!("brisk_lab_{}", K::NAME);
        let version = text.get(&field)?;
        let parsed = || {
            ensure!(
                *version == 1,
                "field {field}: found {version}, allowed is 1: a newer brisk wrote it"
            );
            Self::deserialize(text).with_context(|| format!("this is no {}.json", K::NAME))
        };
        Some(parsed())
    }

    /// Writes the file, whole or not at all.
    pub(crate) fn write(&self, out: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        write_whole(&text, &out.join(format!("{}.json", K::NAME)))
    }

    pub(crate) fn row(&self, setting: &K::Setting) -> Option<usize> {
        self.rows.iter().position(|row| row == setting)
    }

    /// A value of each run of a row. Empty if there is no such row.
    pub(crate) fn values(&self, setting: &K::Setting, name: &str) -> Vec<f64> {
        let row = self.row(setting);
        let runs = self.runs.iter().filter(|run| Some(run.row) == row);
        runs.filter_map(|run| run.values.get(name).copied())
            .collect()
    }

    /// How many runs each row has, and a remark if these are few: "10 runs of each".
    pub(crate) fn runs_of_each(&self) -> (String, &'static str) {
        let mut most = vec![0; self.rows.len()];
        for run in &self.runs {
            if let Some(most) = most.get_mut(run.row) {
                *most = run.repetition.saturating_add(1).max(*most);
            }
        }
        let mut made: Vec<(String, u32)> = Vec::new();
        for (row, runs) in self.rows.iter().zip(most).filter(|&(_, runs)| runs > 0) {
            let figure = K::figure(row);
            match made.iter_mut().find(|(known, _)| *known == figure) {
                Some((_, most)) => *most = runs.max(*most),
                None => made.push((figure, runs)),
            }
        }
        let least = made.iter().map(|&(_, runs)| runs).min().unwrap_or(0);
        let more = made.iter().filter(|&&(_, runs)| runs > least);
        let more: Vec<_> = more
            .map(|(figure, runs)| format!("{runs} of {figure}"))
            .collect();
        let more = match more.is_empty() {
            true => String::new(),
            false => format!(" ({})", more.join(", ")),
        };
        (
            format!("{least} runs of each{more}"),
            too_few(least as usize),
        )
    }

    /// A sentence about the runs that were lost, if there are any.
    pub(crate) fn lost_sentence(&self) -> String {
        match self.lost {
            0 => String::new(),
            lost => format!(
                " {lost} runs were lost, because pages of a warm store left memory each time."
            ),
        }
    }
}
