//! An experiment whose runs are jobs, each of a process of its own: what all such experiments have in common.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use brisk::{Rate, write_whole};
use brisk_lab::{
    ATTEMPTS, ColdDisk, LeftOut, Machine, Undo, VERSION, directory_on_disk, ensure_room,
    missing_tool, processors, stop_reclaimers,
};
use brisk_terminal::messages::say;
use clap::Parser;
use serde::Serialize;

use crate::jobs::{self, Program, Values};
use crate::program::{Options, end};
use crate::report::{Report, page_of};
use crate::results::{Kind, Results, Run};
use crate::turns::turns;

/// How many runs a first look makes.
const QUICK: u32 = 3;

/// Options of every such experiment.
#[derive(Debug, clap::Args)]
pub struct JobOptions {
    #[command(flatten)]
    common: Options,

    /// The contenders to measure, separated by commas. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,

    /// Makes three runs of each row, for a first look.
    #[arg(long, conflicts_with = "runs")]
    quick: bool,

    /// The directory for what contenders store, which chooses the disk. [default: OUT]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Another program that has the contenders. [default: this one]
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,

    /// Shows no progress.
    #[arg(short, long)]
    quiet: bool,
}

impl JobOptions {
    /// How many runs to make of each row.
    pub(crate) fn runs(&self) -> u32 {
        if self.quick { QUICK } else { self.common.runs }
    }
}

/// The figures that an argument names, each once and in their order. All, if it names none.
pub(crate) fn chosen<F: Clone + Ord>(named: &[F], all: &[F]) -> Vec<F> {
    let mut figures = if named.is_empty() { all } else { named }.to_vec();
    figures.sort();
    figures.dedup();
    figures
}

/// What the program of an experiment does, as its first argument says: it lists its contenders, does a job, restores what an
/// experiment has changed, or else takes all arguments for those of an experiment.
pub fn start<A: Parser>(
    contenders: &[&str],
    work: impl FnOnce(&str) -> Result<Values>,
    measure: impl FnOnce(&A) -> Result<()>,
) -> ExitCode {
    let first = std::env::args().nth(1).unwrap_or_default();
    end(match &*first {
        "restore" => brisk_lab::restore().and_then(|done| {
            ensure!(done, "what was changed is not all restored");
            Ok(())
        }),
        "list" => printed(&contenders),
        job if job.starts_with('{') => work(job).and_then(|values| printed(&values)),
        _ => measure(&A::parse()),
    })
}

fn printed(value: &impl Serialize) -> Result<()> {
    Ok(serde_json::to_writer(io::stdout(), value)?)
}

/// An experiment that has begun.
pub(crate) struct Experiment<'a> {
    options: &'a JobOptions,
    pub(crate) program: Program,
    /// The contenders.
    pub(crate) names: Vec<String>,
    /// The directory for what they store.
    pub(crate) work: PathBuf,
    pub(crate) seed: u64,
    rng: fastrand::Rng,
    machine: Machine,
    stopped: Vec<String>,
}

impl<'a> Experiment<'a> {
    pub(crate) fn begin(options: &'a JobOptions, name: &str, undo: &mut Undo) -> Result<Self> {
        let out = options.common.out()?;
        let program = match &options.program {
            Some(program) => Program::at(program)?,
            None => Program::own()?,
        };
        let names = program.chosen(&options.only)?;
        let dir = options.dir.as_deref().unwrap_or(out);
        let work = directory_on_disk(dir, &format!("{name}-"))?;
        undo.remove(&work)?;
        let seed = options.common.seed();
        Ok(Self {
            options,
            program: program.installed(&work)?,
            names,
            seed,
            rng: fastrand::Rng::with_seed(seed),
            machine: Machine::describe(&work, processors())?,
            stopped: stop_reclaimers(undo)?,
            work,
        })
    }

    /// Checks that the disk has room for this many bytes.
    pub(crate) fn ensure_room(&self, bytes: u64) -> Result<()> {
        ensure_room(&self.work, bytes)
    }

    /// Results without a run.
    pub(crate) fn results<K: Kind>(&self, settings: K::Settings, more: K::More) -> Results<K> {
        Results {
            more,
            brisk: VERSION.to_owned(),
            started: jiff::Timestamp::now().to_string(),
            machine: self.machine.clone(),
            stopped: self.stopped.clone(),
            settings,
            rows: Vec::new(),
            runs: Vec::new(),
            stored: Vec::new(),
            missing: Vec::new(),
            lost: 0,
        }
    }

    /// Tells people how far it is.
    pub(crate) fn say(&self, text: &str) {
        if !self.options.quiet {
            say(text);
        }
    }

    /// Waits until nothing is written to the disk any more.
    pub(crate) fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.work)?)?)
    }

    /// Makes runs of rows in turns, and keeps them. `run` gets a number that all runs of a repetition share. It returns None if
    /// the run is lost, and no values if the contender cannot do this.
    pub(crate) fn take_turns<K: Kind>(
        &mut self,
        title: &str,
        runs: u32,
        rows: Vec<K::Setting>,
        results: &mut Results<K>,
        run: impl Fn(&Self, &K::Setting, u64) -> Result<Option<Values>>,
    ) -> Result<()> {
        let first = results.rows.len();
        let turns: Vec<_> = turns(&mut self.rng, runs, rows.len()).collect();
        results.rows.extend(rows.iter().cloned());
        for turn in turns {
            if turn.place == 0 {
                self.say(&format!("{title}: {}/{runs}", turn.repetition + 1));
            }
            match run(self, &rows[turn.who], turn.seed)? {
                None => results.lost += 1,
                Some(values) if values.is_empty() => {}
                Some(values) => results.runs.push(Run {
                    row: first + turn.who,
                    repetition: turn.repetition,
                    place: turn.place,
                    values,
                }),
            }
        }
        self.write(results)
    }

    pub(crate) fn write<K: Kind>(&self, results: &Results<K>) -> Result<()> {
        results.write(self.options.common.out()?)
    }

    /// Makes the disk ready for runs that begin cold. None, with the reason among what is missing, if it cannot.
    pub(crate) fn cold_disk<K: Kind>(
        &self,
        figures: &[String],
        limit: Option<Rate>,
        undo: &mut Undo,
        results: &mut Results<K>,
    ) -> Option<ColdDisk> {
        match ColdDisk::prepare(&self.work, limit, undo) {
            Ok(disk) => {
                results
                    .missing
                    .extend(disk.kept.clone().map(|reason| LeftOut {
                        what: "cold, without names and attributes in memory".to_owned(),
                        reason,
                    }));
                disk.told.progress().iter().for_each(|line| self.say(line));
                Some(disk)
            }
            Err(e) => {
                results.missing.push(LeftOut {
                    what: figures.join(", "),
                    reason: format!("{e:#}"),
                });
                None
            }
        }
    }

    /// Prints the tables, and writes the page.
    pub(crate) fn end<K: Kind>(&self, results: &Results<K>) -> Result<()> {
        self.write(results)?;
        // The page comes first, because nobody may read what is printed.
        let name = format!("{}.json", K::NAME);
        let page = page_of(&[(name, serde_json::to_string(results)?, results)]);
        write_whole(&page, &self.options.common.out()?.join("report.html"))?;
        let mut out = io::stdout().lock();
        out.write_all(results.text().as_bytes())?;
        out.flush().context("cannot write the tables")
    }
}

/// Repeats a run until what it read stayed in memory. None if it never did.
pub(crate) fn warm_run(
    prepare: impl Fn() -> Result<()>,
    run: impl Fn() -> Result<Values>,
    stays: impl Fn() -> Result<bool>,
) -> Result<Option<Values>> {
    for _ in 0..ATTEMPTS {
        prepare()?;
        let values = run()?;
        if stays()? {
            return Ok(Some(values));
        }
    }
    Ok(None)
}

/// Counts what jobs do, in runs that are not timed.
pub(crate) struct Counter<'a> {
    program: &'a Program,
    /// Why nothing can be traced.
    strace: Option<LeftOut>,
    untraced: Vec<String>,
}

impl<'a> Counter<'a> {
    pub(crate) fn new(program: &'a Program) -> Self {
        Self {
            program,
            strace: missing_tool("strace"),
            untraced: Vec::new(),
        }
    }

    /// The allocations of one operation of a job. None if no program counts them.
    pub(crate) fn allocations(&self, job: &impl Serialize) -> Result<Option<f64>> {
        self.program.allocations(job)
    }

    /// What strace writes about a job, which has a name. None if it cannot trace.
    pub(crate) fn trace(&mut self, name: &str, job: &impl Serialize) -> Result<Option<String>> {
        if self.strace.is_some() {
            return Ok(None);
        }
        let trace = self.program.traced(job)?;
        let trace = trace.filter(|trace| jobs::system_calls(trace).is_some());
        if trace.is_none() {
            self.untraced.push(name.to_owned());
        }
        Ok(trace)
    }

    /// What could not be counted.
    pub(crate) fn missing(self) -> Vec<LeftOut> {
        let mut missing = Vec::from_iter(self.strace);
        if !self.program.counts() {
            missing.push(LeftOut {
                what: "allocations".to_owned(),
                reason: "there is no program with -counted behind the name of this one".to_owned(),
            });
        }
        if !self.untraced.is_empty() {
            missing.push(LeftOut {
                what: format!("system calls of {}", self.untraced.join(", ")),
                reason: "strace cannot trace here".to_owned(),
            });
        }
        missing
    }
}

/// Removes what a directory has, or makes it.
pub(crate) fn empty(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    Ok(fs::create_dir(directory)?)
}
