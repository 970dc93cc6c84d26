/*!
What a cache on disk costs.

The experiment fills a directory for each kind of [`Store`], and starts processes that open it, get values, look into tables
and update values, in random order. Every process checks what it reads, and a wrong value ends the experiment. Allocations
and system calls are counted in runs that are not timed.

The caches of brisk-cache and one file for each entry are here, and databases in the program.
*/

mod counting;
mod data;
mod plan;
mod results;
mod store;
mod text;
mod worker;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use brisk::Rate;
use brisk_lab::{Chill, ColdDisk, Coldness, LeftOut, Undo, undoing};
use clap::Parser;

pub use data::{Hex, Key};
pub(crate) use results::Caches;
pub use store::{Open, Opening, Purpose, Store, StoreKind};

use crate::experiment::{Counter, Experiment, JobOptions, chosen, start, warm_run};
use crate::jobs::{self, Values};
use crate::results::Results;
use plan::{Contents, Fit, TURNS, fit, runs_for_one};
use results::{CacheSettings, Counted, Figure, More, Setting, Stored};
use worker::{Job, Work, rounds};

/// How many processes read at once.
const PROCESSES: u64 = 8;

/// For how long they read.
const SERVE_MS: u64 = 400;

/// Entries of the small store that the large one is compared with.
const FEW: u64 = 1000;

/// How many values of a large store are got in each round.
const SAMPLED: u64 = 200_000;

/// How many durable updates a run makes at most: each waits for the disk.
const DURABLE: u64 = 100;

/// Bytes of the disk that a small value takes at most, in any store.
const SMALL: u64 = 512;

/// Measures caches on disk: opening, gets, look-ups, updates, several processes, many entries.
#[derive(Debug, Parser)]
#[command(
    name = "caches",
    max_term_width = 100,
    after_help = "\
A directory is filled for each kind of store. Processes open it, get values of 1 KB, look for a name in tables of 84 KB, update \
values of 400 bytes, and eight of them read at once. Stores take turns, in random order. Every process checks what it reads, \
and a wrong value ends the experiment.\n\n  \
  brisk         brisk-cache, whose hits borrow from a mapping\n  \
  brisk-copied  brisk-cache, whose hits are copies\n  \
  files         one file for each entry, read whole\n  \
  memory        a table in the process's own memory: how this machine scales\n\n\
The feature cache-rivals adds lmdb (heed), lmdb-one-txn (the same, which reads in one transaction), redb, sqlite, cacache, and \
files-rkyv, whose tables rkyv checks. System calls (with strace) and allocations (by caches-counted, beside this program) are \
counted in runs that are not timed. The tables say which store was left out of which figure, and why.\n\n\
An opening is over in microseconds, and a warm get depends on where the kernel puts pages: for each run of --runs, there are \
ten of the openings, and three of the warm gets.\n\n\
Before and after a warm run, all files of the store are in memory, or the run is repeated. Before a cold one, none is. As \
root, the caches of the whole system are emptied then, so that names and attributes are gone as well. --disk limits the disk \
for the figure cold and needs root. OUT/cache.json has every run."
)]
struct Args {
    /// The figures to measure, separated by commas. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    figures: Vec<Figure>,

    /// Entries of the stores.
    #[arg(long, value_name = "N", default_value_t = 1750,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    entries: u64,

    /// Entries of the figures open-many and get-many.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..=20_000_000))]
    many: u64,

    /// Updates of a run. A durable run makes at most 100.
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    updates: u64,

    /// Limits the disk for the figure cold, to this many bytes (bps=200M) or operations (iops=2000) in a second.
    #[arg(long, value_name = "LIMIT")]
    disk: Option<Rate>,

    #[command(flatten)]
    options: JobOptions,
}

/// What the program `caches` does, with these kinds of stores besides its own. `allocations` counts those of Rust in this
/// process.
pub fn run(rivals: &[StoreKind], allocations: Option<fn() -> usize>) -> ExitCode {
    let kinds: Vec<StoreKind> = store::OWN.iter().chain(rivals).copied().collect();
    let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
    start(
        &names,
        |job| worker::work(job, &kinds, allocations),
        |args: &Args| undoing(|undo| args.measure(undo)),
    )
}

impl Args {
    fn measure(&self, undo: &mut Undo) -> Result<()> {
        let figures = chosen(&self.figures, &Figure::ALL);
        ensure!(
            self.disk.is_none() || figures.contains(&Figure::Cold),
            "--disk limits the disk for the figure cold, which --figures leaves out"
        );
        let mut experiment = Experiment::begin(&self.options, "cache", undo)?;
        let each = self.entries.saturating_mul(300_000) + self.many.saturating_mul(SMALL);
        experiment.ensure_room(each.saturating_mul(experiment.names.len() as u64))?;
        let settings = CacheSettings {
            entries: self.entries,
            few: FEW,
            many: self.many,
            updates: self.updates,
            runs: self.options.runs(),
            seed: experiment.seed,
            disk: self.disk.map(|rate| rate.to_string()),
            coldness: Coldness::default(),
        };
        let more = More {
            brisk_lab_cache: 1,
            counted: Vec::new(),
        };
        let mut results = experiment.results(settings, more);
        results.missing = left_out(&experiment.names, &figures);
        self.fill(&experiment, &figures, &mut results)?;
        for turns in TURNS {
            let turns = turns.iter().copied();
            let turns: Vec<Figure> = turns.filter(|figure| figures.contains(figure)).collect();
            let cold = turns.contains(&Figure::Cold);
            let disk = match cold {
                false => None,
                true => experiment.cold_disk(&[Figure::Cold.name()], self.disk, undo, &mut results),
            };
            if turns.is_empty() || (cold && disk.is_none()) {
                continue;
            }
            if let Some(disk) = &disk {
                results.settings.coldness = disk.told.clone();
            }
            let chill = disk.as_ref().map_or(Chill::Files, |disk| disk.chill);
            let measured = self.take_turns(&mut experiment, &turns, chill, &mut results);
            disk.map_or(Ok(()), ColdDisk::lift)?;
            measured?;
        }
        self.count(&experiment, &figures, &mut results)?;
        experiment.end(&results)
    }

    fn entries_of(&self, contents: Contents) -> u64 {
        match contents {
            Contents::Values | Contents::Tables => self.entries,
            Contents::Updates => self.updates,
            Contents::Few => FEW,
            Contents::Many => self.many,
        }
    }

    /// Makes all directories that the figures need.
    fn fill(
        &self,
        experiment: &Experiment<'_>,
        figures: &[Figure],
        results: &mut Results<Caches>,
    ) -> Result<()> {
        for name in &experiment.names {
            fs::create_dir(experiment.work.join(name))?;
            for contents in Contents::ALL {
                let needed = figures.iter().any(|&figure| {
                    Contents::of(figure) == contents && fit(name, figure) == Fit::Measured
                });
                // Each process fills its own memory.
                if !needed || name == "memory" {
                    continue;
                }
                experiment.say(&format!("{name}: {}", contents.name()));
                let (entries, len) = (self.entries_of(contents), contents.value_len());
                let directory = directory_of(experiment, name, contents);
                let values = experiment.program.run(&Job {
                    store: name.clone(),
                    directory: directory.clone(),
                    work: match contents {
                        Contents::Tables => Work::FillTables,
                        _ => Work::Fill,
                    },
                    entries,
                    len,
                    durable: false,
                    seed: experiment.seed,
                })?;
                results.stored.push(Stored {
                    store: name.clone(),
                    what: contents.name().to_owned(),
                    values: entries * len as u64,
                    bytes: jobs::bytes_on_disk(&directory)?,
                    seconds: values.get("seconds").copied().unwrap_or_default(),
                });
            }
        }
        experiment.sync()
    }

    fn job(&self, experiment: &Experiment<'_>, row: &Setting, seed: u64) -> Job {
        let Setting { figure, store } = row;
        let contents = Contents::of(*figure);
        let entries = self.entries_of(contents);
        let work = match figure {
            Figure::Open | Figure::OpenFew | Figure::OpenMany => Work::Open,
            Figure::Get => Work::Get {
                keys: entries,
                rounds: rounds(),
            },
            Figure::GetFew | Figure::GetMany => Work::Get {
                keys: entries.min(SAMPLED),
                rounds: 3,
            },
            Figure::Tables | Figure::Cold => Work::Tables,
            Figure::Again => Work::TablesAgain { rounds: rounds() },
            Figure::Update => Work::Update { times: entries },
            Figure::DurableUpdate => Work::Update {
                times: entries.min(DURABLE),
            },
            Figure::One | Figure::Eight => Work::Serve {
                milliseconds: SERVE_MS,
            },
        };
        Job {
            store: store.clone(),
            directory: directory_of(experiment, store, contents),
            work,
            entries,
            len: contents.value_len(),
            durable: *figure == Figure::DurableUpdate,
            seed,
        }
    }

    /// Figures that are compared with each other take turns.
    fn take_turns(
        &self,
        experiment: &mut Experiment<'_>,
        figures: &[Figure],
        chill: Chill,
        results: &mut Results<Caches>,
    ) -> Result<()> {
        let rows = figures.iter().flat_map(|&figure| {
            let stores = experiment.names.iter();
            let stores = stores.filter(move |store| fit(store, figure) == Fit::Measured);
            stores.map(move |store| Setting::of(figure, store))
        });
        let rows = rows.collect();
        let names: Vec<_> = figures.iter().map(|figure| figure.name()).collect();
        let for_one = figures.iter().map(|&figure| runs_for_one(figure)).max();
        let runs = self.options.runs().saturating_mul(for_one.unwrap_or(1));
        let title = names.join(" and ");
        experiment.take_turns(&title, runs, rows, results, |experiment, row, seed| {
            self.run(experiment, row, chill, seed)
        })
    }

    /// One run. None if pages of a warm store left memory each time.
    fn run(
        &self,
        experiment: &Experiment<'_>,
        row: &Setting,
        chill: Chill,
        seed: u64,
    ) -> Result<Option<Values>> {
        let program = &experiment.program;
        let job = self.job(experiment, row, seed);
        let directory = &job.directory;
        match row.figure {
            Figure::Cold => {
                jobs::make_cold(directory, chill)?;
                program.warm()?;
                return program.run(&job).map(Some);
            }
            Figure::Update | Figure::DurableUpdate => {
                jobs::make_warm(directory)?;
                return program.run(&job).map(Some);
            }
            _ => {}
        }
        let run = || match row.figure {
            Figure::One => program.serve_at_once(&[&job]),
            Figure::Eight => {
                let jobs = (0..PROCESSES).map(|number| Job {
                    seed: job.seed ^ number,
                    ..job.clone()
                });
                program.serve_at_once(&jobs.collect::<Vec<_>>())
            }
            _ => program.run(&job),
        };
        match &*row.store {
            "memory" => run().map(Some),
            _ => warm_run(
                || jobs::make_warm(directory),
                run,
                || jobs::all_are_warm(directory),
            ),
        }
    }

    /// Counts allocations and system calls of one operation of each figure, except those of several processes: their gets
    /// are those of the figure `get`.
    fn count(
        &self,
        experiment: &Experiment<'_>,
        figures: &[Figure],
        results: &mut Results<Caches>,
    ) -> Result<()> {
        let mut counter = Counter::new(&experiment.program);
        for &figure in figures {
            if matches!(figure, Figure::One | Figure::Eight) {
                continue;
            }
            let stores = experiment.names.iter();
            for store in stores.filter(|store| fit(store, figure) == Fit::Measured) {
                let name = format!("{} of {store}", figure.name());
                experiment.say(&format!("{name}: counting"));
                let row = Setting::of(figure, store);
                let job = counting::shorter(self.job(experiment, &row, experiment.seed));
                let trace = counter.trace(&name, &job)?;
                let calls = trace.as_deref().and_then(jobs::system_calls);
                let each = |calls: usize| calls as f64 / job.operations().max(1) as f64;
                results.more.counted.push(Counted {
                    figure,
                    store: store.clone(),
                    allocations: counter.allocations(&job)?,
                    system_calls: calls.map(each),
                });
            }
        }
        results.missing.extend(counter.missing());
        Ok(())
    }
}

/// The directory of a store.
fn directory_of(experiment: &Experiment<'_>, store: &str, contents: Contents) -> PathBuf {
    experiment.work.join(store).join(contents.name())
}

/// Figures that a store is left out of, with the reason. Those with one reason are said together.
fn left_out(names: &[String], figures: &[Figure]) -> Vec<LeftOut> {
    let mut missing: Vec<LeftOut> = Vec::new();
    for name in names {
        let mut said: Vec<(&str, Vec<String>)> = Vec::new();
        for &figure in figures {
            let Fit::LeftOut(reason) = fit(name, figure) else {
                continue;
            };
            match said.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, figures)) => figures.push(figure.name()),
                None => said.push((reason, vec![figure.name()])),
            }
        }
        missing.extend(said.into_iter().map(|(reason, figures)| LeftOut {
            what: format!("{name} in {}", figures.join(", ")),
            reason: reason.to_owned(),
        }));
    }
    if !cfg!(feature = "cache-rivals") {
        missing.push(LeftOut {
            what: "databases".to_owned(),
            reason: "this program is built without the feature cache-rivals".to_owned(),
        });
    }
    missing
}
