//! What every program with a [`Bench`] does: the same options, a place to work in, and how it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use brisk_lab::Machine;
use serde_json::Value;
use tempfile::TempDir;

use crate::bench::Bench;

/// Options of every such program.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// How often each contender runs
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,

    /// Decides the random orders [default: a new one, kept in raw.json]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Where results go; what is measured is written below it, and removed, so this chooses the disk
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Options {
    /// The directory for results, which is made if there is none.
    pub(crate) fn out(&self) -> Result<&Path> {
        let out = &self.out;
        fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
        Ok(out)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| fastrand::u64(..))
    }

    /// Makes the directory for results, and one below it for what is measured, which goes with the value.
    pub fn work(&self) -> Result<TempDir> {
        let out = self.out()?;
        let work = || {
            let out = out.canonicalize()?;
            tempfile::Builder::new().prefix("work-").tempdir_in(out)
        };
        work().with_context(|| format!("cannot write in {}", out.display()))
    }

    /// A bench that writes to the directory for results. `more` is what raw.json says besides the date, the seed, the runs and
    /// the machine, whose disk is that of `work`.
    pub fn bench(&self, work: &Path, processors: usize, more: Value) -> Result<Bench> {
        let seed = self.seed();
        let mut about = serde_json::json!({
            "date": jiff::Timestamp::now().to_string(),
            "seed": seed,
            "runs": self.runs,
            "machine": Machine::describe(work, processors)?,
        });
        if let (Value::Object(about), Value::Object(more)) = (&mut about, more) {
            about.extend(more);
        }
        Ok(Bench::new(&self.out, self.runs, seed, about))
    }
}

/// Ends a program: an error is printed, and has the exit code 2.
pub fn end(done: Result<()>) -> ExitCode {
    let Err(e) = done else {
        return ExitCode::SUCCESS;
    };
    let program = std::env::args_os().next().map(PathBuf::from);
    let name = program.as_deref().and_then(Path::file_name);
    let name = name.map_or("bench".into(), |name| name.to_string_lossy());
    eprintln!("{name}: {e:#}");
    ExitCode::from(2)
}
