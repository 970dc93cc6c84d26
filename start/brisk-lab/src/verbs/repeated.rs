use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;

use crate::report;

/// How many runs a first look makes.
pub const QUICK: u32 = 3;

/// Options of experiments in which every run is a process of its own.
#[derive(Debug, clap::Args)]
pub struct Repeated {
    /// How many runs to make of each row.
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Makes three runs of each row, for a first look.
    #[arg(long, conflicts_with = "runs")]
    quick: bool,

    /// The directory for the runs as JSON, and for report.html.
    #[arg(
        short,
        long,
        alias = "output",
        value_name = "DIR",
        default_value = "brisk-lab"
    )]
    pub out: PathBuf,

    /// Seed of the random orders. [default: a new one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Prints the JSON instead of the tables.
    #[arg(long)]
    json: bool,

    /// Shows no progress.
    #[arg(short, long)]
    pub quiet: bool,
}

impl Repeated {
    pub fn runs(&self) -> u32 {
        if self.quick { QUICK } else { self.runs }
    }

    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| fastrand::u64(..))
    }

    /// The directory for test files, if no other is `chosen`.
    pub fn directory(&self, chosen: Option<&PathBuf>) -> PathBuf {
        chosen.unwrap_or(&self.out).clone()
    }

    /// Prints the results, as JSON or as `text`, and makes the page.
    pub fn show(&self, results: &impl Serialize, text: &str) -> anyhow::Result<()> {
        // The page comes first, because nobody may read what is printed.
        let page = report::write_in(&self.out);
        let mut out = io::stdout().lock();
        match self.json {
            true => {
                serde_json::to_writer_pretty(&mut out, results)?;
                writeln!(out)?;
            }
            false => out.write_all(text.as_bytes())?,
        }
        out.flush().context("cannot write the tables")?;
        page
    }
}
