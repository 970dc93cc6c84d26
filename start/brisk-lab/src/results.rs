//! Results of launches: every run, and the figures that follow from them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::app::App;
use super::contender::Contender;
use super::file_sizes::UpTo;
use super::format::Format;
use super::machine::Machine;
use super::proof::Proven;
use super::read_ahead::Device;
use super::recipe::Recipe;
use super::rival::Rival;
use super::statistics::{Ratio, Round, Spread};
use super::training::Training;
use brisk::timeline::{Filling, Timeline};
use brisk::write_whole;

/// What a run times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A launch with nothing in memory, from before the mount.
    Cold,
    /// The first launch after that which reads next to nothing, in the same mount.
    Warm,
    /// The cold launch once more, with all that it reads from the disk in memory: the bound of what brisk can reach. A
    /// session, and so its mount, is a new one. Older results have no such runs.
    Resident,
    /// Reading every file with nothing in memory, from before the mount.
    Walk,
}

/// One single run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Run {
    /// Index of the contender. Not stored, because rows have names.
    #[serde(skip)]
    pub contender: usize,
    pub name: String,
    /// From 0.
    pub repetition: u32,
    /// Its position within the repetition, from 0. A warm or resident launch has the position of its cold launch.
    pub place: usize,
    #[serde(flatten)]
    pub measured: Measured,
}

/// The figures of one run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Measured {
    pub kind: Kind,
    pub seconds: f64,
    /// Bytes that a launch read from the disk, as far as the kernel knows for whom they were read.
    pub read_bytes: Option<u64>,
    /// Bytes that a launch added to the page cache, including those of images and hot packs. Older results do
    /// not have this field.
    #[serde(default)]
    pub cached_bytes: Option<u64>,
    /// The number of this warm or resident launch, from 1. Earlier ones of its kind read too much. Older results
    /// do not have this field.
    #[serde(default)]
    pub attempt: Option<u32>,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Cold => "cold",
            Kind::Warm => "warm",
            Kind::Resident => "resident",
            Kind::Walk => "walk",
        };
        write!(f, "{kind}: {:.3} s", self.seconds)?;
        match self.read_bytes {
            Some(bytes) => write!(f, ", {:.1} MB read", bytes as f64 / 1e6),
            None => Ok(()),
        }
    }
}

/// The figures of a contender.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    pub format: String,
    pub training: Option<Training>,
    pub bytes: u64,
    pub bytes_to_squashfs_zstd: Option<f64>,
    pub build_seconds: f64,
    pub built_by: Vec<Vec<String>>,
    pub launched_by: Vec<String>,
    pub cold: Option<Figure>,
    pub warm: Option<Figure>,
    #[serde(default)]
    pub resident: Option<Figure>,
    pub walk: Option<Figure>,
    /// The median of what cold launches added to the page cache.
    #[serde(default)]
    pub cached_bytes: Option<f64>,
    /// The share of the avoidable time that a cold launch saves. The avoidable time is the difference between
    /// a cold and a warm launch from the directory. None for the directory itself, and if that was not
    /// measured.
    #[serde(default)]
    pub share_gone: Option<Ratio>,
    /// The share of the time between a cold launch from the directory and a resident launch of this row that its cold
    /// launch saves. None if one of them was not measured.
    #[serde(default)]
    pub share_of_bound: Option<Ratio>,
}

/// Seconds, and their ratio to the directory's.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Figure {
    pub seconds: Spread,
    pub to_directory: Option<Ratio>,
}

/// A recording.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recorded {
    pub training: Training,
    pub command: Vec<String>,
    pub seconds: f64,
}

/// The results of one app.
#[derive(Debug, Serialize, Deserialize)]
pub struct AppResults {
    pub app: App,
    pub tree_files: usize,
    pub tree_bytes: u64,
    /// The size of the whole tree, if the measured one is a sample of it. No program is launched from a
    /// sample.
    #[serde(default)]
    pub sample_of: Option<u64>,
    /// Older results do not have these two fields.
    #[serde(default)]
    pub file_sizes: Vec<UpTo>,
    /// The timeline of the launch, if its profile was recorded.
    #[serde(default)]
    pub timeline: Option<Timeline>,
    /// One launch that was filled, if there is one.
    #[serde(default)]
    pub filling: Option<Filling>,
    /// One launch that was replayed, if there is one.
    #[serde(default)]
    pub replaying: Option<Filling>,
    /// The size of the pages that the launch asks for, by its profile.
    #[serde(default)]
    pub demanded_bytes: Option<u64>,
    /// What a cold launch from the directory reads.
    #[serde(default)]
    pub reach: Option<Reach>,
    pub recorded: Vec<Recorded>,
    pub rows: Vec<Row>,
    pub runs: Vec<Run>,
}

/// What brisk can reach of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Bytes that one cold launch from the directory added to the page cache.
    pub cached_bytes: u64,
    /// Those of them that are of the tree's files. An image of the tree changes nothing about the others.
    pub of_tree_bytes: u64,
}

/// Everything in `raw.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    /// The version of this format.
    pub brisk_lab: u32,
    pub brisk: String,
    pub mksquashfs: Option<String>,
    /// The versions that the tools in use report.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The time of the start, as RFC 3339 writes it.
    pub started: String,
    pub machine: Machine,
    /// The disk that holds the trees and images, if there is one.
    pub disk: Option<String>,
    /// The devices whose read-ahead was changed.
    pub read_ahead: Vec<Device>,
    /// What takes pages out of memory although there is room. The lab stopped it.
    #[serde(default)]
    pub stopped: Vec<String>,
    pub settings: Settings,
    /// Formats that were requested but cannot run here.
    #[serde(default)]
    pub cannot: Vec<Cannot>,
    pub apps: Vec<AppResults>,
}

/// A format that cannot run here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cannot {
    pub name: String,
    pub reason: String,
}

/// The arguments.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    pub runs: u32,
    /// How often a command was recorded for one profile. 1 in older results.
    #[serde(default = "one")]
    pub recordings: u32,
    pub seed: u64,
    pub read_ahead_kib: u32,
    /// The limit of bytes that can be read from the disk.
    pub bytes_per_second: Option<u64>,
    /// The limit of operations on the disk.
    pub operations_per_second: Option<u64>,
    /// The rates that were measured under these two limits, before any launch.
    #[serde(default)]
    pub proven: Vec<Proven>,
    /// What is emptied before a cold run: `system` or `files`.
    pub cold: String,
    /// The ordinary user who started programs; root if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
}

fn one() -> u32 {
    1
}

impl Row {
    /// The figures of the runs of one kind.
    pub fn figure(&self, kind: Kind) -> Option<Figure> {
        match kind {
            Kind::Cold => self.cold,
            Kind::Warm => self.warm,
            Kind::Resident => self.resident,
            Kind::Walk => self.walk,
        }
    }
}

impl AppResults {
    /// The number of repetitions, and how many were requested if that differs.
    pub fn repetitions(&self, asked: u32) -> String {
        let last = self.runs.iter().map(|run| run.repetition).max();
        match last.map_or(0, |last| last.saturating_add(1)) {
            made if made == asked => asked.to_string(),
            made => format!("{made} of {asked}"),
        }
    }

    /// Whether there are resident launches.
    pub fn has_bounds(&self) -> bool {
        self.rows.iter().any(|row| row.resident.is_some())
    }

    /// Whether trees were walked.
    pub fn has_walks(&self) -> bool {
        self.rows.iter().any(|row| row.walk.is_some())
    }

    /// The runs of one kind of the row with this name.
    pub fn runs_of<'a>(&'a self, name: &'a str, kind: Kind) -> impl Iterator<Item = &'a Measured> {
        let all = self.runs.iter();
        let runs = all.filter(move |run| run.name == name && run.measured.kind == kind);
        runs.map(|run| &run.measured)
    }

    /// Computes the rows of the runs so far.
    pub fn tally(&mut self, contenders: &[Contender], launches: &[Vec<String>], seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let seconds = |contender: usize, kind: Kind| -> Vec<f64> {
            self.runs
                .iter()
                .filter(|run| run.contender == contender && run.measured.kind == kind)
                .map(|run| run.measured.seconds)
                .collect()
        };
        let place = |format: &Format| contenders.iter().position(|c| c.format == *format);
        let directory = place(&Format::Directory);
        let same = Format::Kernel(Rival::Packed(Recipe::new("zstd", Some(15))));
        let zstd = place(&Format::SQUASHFS_ZSTD).or_else(|| place(&same));
        let zstd = zstd.map(|at| contenders[at].bytes);
        let mut figure = |contender: usize, kind: Kind| {
            let ours = seconds(contender, kind);
            Some(Figure {
                seconds: Spread::of(&ours)?,
                to_directory: directory.and_then(|directory| match directory == contender {
                    true => Some(Ratio::SAME),
                    false => Ratio::of_medians(&ours, &seconds(directory, kind), &mut rng),
                }),
            })
        };
        let cached = |contender: usize| {
            let runs = self.runs.iter();
            let of = runs.filter(|run| run.contender == contender);
            let bytes = of.filter_map(|run| run.measured.cached_bytes);
            let bytes: Vec<_> = bytes.map(|bytes| bytes as f64).collect();
            Some(Spread::of(&bytes)?.median)
        };
        let mut rows = Vec::new();
        for (index, contender) in contenders.iter().enumerate() {
            rows.push(Row {
                name: contender.name(),
                format: contender.format.to_string(),
                training: contender.training,
                bytes: contender.bytes,
                bytes_to_squashfs_zstd: zstd.map(|zstd| contender.bytes as f64 / zstd as f64),
                build_seconds: contender.build_seconds,
                built_by: contender.built_by.clone(),
                launched_by: launches[index].clone(),
                cold: figure(index, Kind::Cold),
                warm: figure(index, Kind::Warm),
                resident: figure(index, Kind::Resident),
                walk: figure(index, Kind::Walk),
                cached_bytes: cached(index),
                share_gone: None,
                share_of_bound: None,
            });
        }
        self.rows = rows;
        self.add_shares(seed);
    }

    /// Computes which share of the avoidable time each row saves, and which of what it can save at most, from the same
    /// rounds for all. Older results do not have these shares, but they have all runs that the shares follow from.
    pub fn add_shares(&mut self, seed: u64) {
        let directory = Format::Directory.to_string();
        let gone = self.shares(seed, |_| (&*directory, Kind::Warm));
        let of_bound = self.shares(seed, |name| (name, Kind::Resident));
        for (row, (gone, of_bound)) in self.rows.iter_mut().zip(gone.into_iter().zip(of_bound)) {
            (row.share_gone, row.share_of_bound) = (gone, of_bound);
        }
    }

    /// The share of each row's cold launches of the time between a cold launch from the directory and the runs that
    /// `fast` says, by the name of their row and their kind. None for the directory.
    fn shares<'a>(
        &'a self,
        seed: u64,
        fast: impl Fn(&'a str) -> (&'a str, Kind),
    ) -> Vec<Option<Ratio>> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let seconds = |(name, kind): (&str, Kind)| -> BTreeMap<u32, f64> {
            let runs = self.runs.iter();
            let of_it = runs.filter(|run| run.name == name && run.measured.kind == kind);
            of_it
                .map(|run| (run.repetition, run.measured.seconds))
                .collect()
        };
        let directory = Format::Directory.to_string();
        let slow = seconds((&directory, Kind::Cold));
        let shares = self.rows.iter().map(|row| {
            if row.format == directory {
                return None;
            }
            let fast = seconds(fast(&row.name));
            let ours = seconds((&row.name, Kind::Cold));
            let rounds = ours.into_iter().filter_map(|(repetition, ours)| {
                Some(Round {
                    slow: *slow.get(&repetition)?,
                    fast: *fast.get(&repetition)?,
                    ours,
                })
            });
            Ratio::of_gone(&rounds.collect::<Vec<_>>(), &mut rng)
        });
        shares.collect()
    }
}

impl Results {
    /// Writes `raw.json` in `out`, whole or not at all.
    pub fn write(&self, out: &Path) -> Result<()> {
        let path = out.join("raw.json");
        let mut text = serde_json::to_string_pretty(self)
            .with_context(|| format!("cannot write {}", path.display()))?;
        text.push('\n');
        write_whole(&text, &path)
    }
}
