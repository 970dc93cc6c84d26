//! The disk of cold runs: how cold its files can be made, and its limit.

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::{Context, Result};
use brisk::Rate;
use serde::{Deserialize, Serialize};

use crate::cold::{CACHES, Chill};
use crate::proof::{self, Proven};
use crate::read_ahead::device_of;
use crate::throttle::{self, Lift, Throttle};
use crate::undo::Undo;

/// A disk that is ready for cold runs.
pub struct ColdDisk {
    /// What can be emptied.
    pub chill: Chill,
    /// What results are to say of it.
    pub told: Coldness,
    /// Why names and attributes of files stay in memory, if they do.
    pub kept: Option<String>,
    lifts: Vec<Lift>,
}

/// What results say of their cold runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Coldness {
    /// The limit of the disk, and the rate that was measured under it.
    pub proven: Vec<Proven>,
    /// `system` if they begin without names and attributes in memory, `files` if only without the pages of files.
    pub cold: String,
}

impl Default for Coldness {
    fn default() -> Self {
        Self {
            proven: Vec::new(),
            cold: "files".to_owned(),
        }
    }
}

impl ColdDisk {
    /// Finds out how cold the files in a directory can be made, and limits their disk, until [`ColdDisk::lift`].
    pub fn prepare(directory: &Path, limit: Option<Rate>, undo: &mut Undo) -> Result<Self> {
        let (chill, kept) = match OpenOptions::new().write(true).open(CACHES) {
            Ok(_) => (Chill::System, None),
            Err(e) => (Chill::Files, Some(format!("{CACHES}: {e}"))),
        };
        let cold = match chill {
            Chill::System => "system",
            Chill::Files => "files",
        };
        let (lifts, proven) = match limit {
            Some(limit) => limit_disk(directory, limit, undo)?,
            None => Default::default(),
        };
        Ok(Self {
            chill,
            told: Coldness {
                proven,
                cold: cold.to_owned(),
            },
            kept,
            lifts,
        })
    }

    /// Takes the limit away.
    pub fn lift(self) -> Result<()> {
        throttle::lift_all(self.lifts)
    }
}

fn limit_disk(directory: &Path, limit: Rate, undo: &mut Undo) -> Result<(Vec<Lift>, Vec<Proven>)> {
    let disk = device_of(directory)?.context("the system names no disk to limit")?;
    let file = proof::make_file(directory)?;
    let lifts = Throttle::find()?.set(&[limit], &disk, undo)?;
    throttle::keep_if(proof::prove(&[limit], &disk, &file), lifts)
}

impl Coldness {
    /// Sentences about the runs that begin cold.
    pub fn sentences(&self) -> String {
        let mut text = match &*self.cold {
            "system" => {
                " Cold: neither pages nor names nor attributes of the store's files are in memory; the program's own code is."
            }
            _ => " Cold: no page of the store's files is in memory; their names and attributes are.",
        }
        .to_owned();
        for proven in &self.proven {
            text += &format!(
                " Limited to {:.0} {}/s, {} gave {:.0} to direct reads.",
                proven.asked_per_second, proven.of, proven.disk, proven.got_per_second
            );
        }
        text
    }

    /// What the limit gave, for who waits.
    pub fn progress(&self) -> Vec<String> {
        let lines = self.proven.iter().map(|proof| {
            format!(
                "{}: the limit is {:.0} {}/s, direct reads get {:.0}",
                proof.disk, proof.asked_per_second, proof.of, proof.got_per_second
            )
        });
        lines.collect()
    }
}
