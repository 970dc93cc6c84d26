/*!
What reading and writing typed records costs.

Each run is a process that opens a store, which has the same records as the others, and reads some of them, or fills an empty
store. A run counts only if the sums of what it read are right. Anything else ends the experiment. Before and after a run that
reads, all files of the store are in memory, or the run is repeated.
*/

mod results;
mod text;
mod worker;

use std::fs;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use brisk::Rate;
use brisk_lab::{Chill, Coldness, Undo, read_ahead, undoing};
use clap::Parser;

pub(crate) use results::Objects;
pub use worker::{Object, ObjectKind, ObjectStore, OpenObjects, Safety, Sums};

use crate::experiment::{Experiment, JobOptions, chosen, empty, start, warm_run};
use crate::jobs::{self, Values};
use crate::results::Results;
use results::{Figure, ObjectsSettings, Setting, Stored, Version};
use worker::{Job, Work};

/// Bytes of a record and its indexes, in the largest of the stores.
const LARGEST: u64 = 500;

/// Measures stores of typed records: gets, scans of an index, and insertions.
#[derive(Debug, Parser)]
#[command(
    name = "objects",
    max_term_width = 100,
    after_help = "\
A record has about 100 bytes, an automatic key and two indexes. Stores keep the same records, and take turns, in random order.\n\n  \
  brisk        brisk-objects\n  \
  brisk-async  the same by its asynchronous calls, on a runtime of one thread\n  \
  lmdb         LMDB by heed: records are bytes of fixed form, and indexes are made by hand\n  \
  heed         heed's own types: records by serde and bincode\n  \
  sqlite       SQLite by rusqlite, with prepared statements and a write-ahead log\n  \
  redb         redb, records by postcard\n  \
  native-db    native_db, which keeps its records in redb\n  \
  pread        a file of records of equal length, each read by one system call: keys are places\n\n\
All but pread need the feature object-stores. Sums of what was read that are wrong end the experiment. The figures cold and \
cold-many begin with no page of the store in memory; --disk limits the disk for them and needs root. Before and after any \
other run that reads, all files of the store are in memory, or the run is repeated. OUT/objects.json has every run."
)]
struct Args {
    /// The figures to measure, separated by commas. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    figures: Vec<Figure>,

    /// How many records a store has.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    records: u64,

    /// Limits the disk for the cold figures, to this many bytes (bps=200M) or operations (iops=2000) in a second.
    #[arg(long, value_name = "LIMIT")]
    disk: Option<Rate>,

    #[command(flatten)]
    options: JobOptions,
}

/// What the program `objects` does, with these stores.
pub fn run(kinds: &[ObjectKind]) -> ExitCode {
    let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
    start(
        &names,
        |job| worker::work(job, kinds, None),
        |args: &Args| undoing(|undo| args.measure(undo)),
    )
}

impl Args {
    fn measure(&self, undo: &mut Undo) -> Result<()> {
        let figures = chosen(&self.figures, &Figure::ALL);
        ensure!(
            self.disk.is_none() || figures.iter().any(|figure| figure.is_cold()),
            "--disk limits the disk for the figures cold and cold-many, which --figures leaves out"
        );
        let mut experiment = Experiment::begin(&self.options, "objects", undo)?;
        let stores = experiment.names.len() as u64 + 1;
        experiment.ensure_room(self.records.saturating_mul(LARGEST * stores))?;
        let settings = ObjectsSettings {
            records: self.records,
            runs: self.options.runs(),
            seed: experiment.seed,
            disk: self.disk.map(|rate| rate.to_string()),
            read_ahead_kib: read_ahead(&experiment.work)?,
            coldness: Coldness::default(),
        };
        let version = Version {
            brisk_lab_objects: 1,
        };
        let mut results = experiment.results(settings, version);
        if figures.iter().any(|figure| figure.inserts().is_none()) {
            self.fill(&experiment, &mut results)?;
        }
        let (cold, warm): (Vec<_>, Vec<_>) = figures.iter().partition(|figure| figure.is_cold());
        for figure in warm {
            self.take_turns(&mut experiment, figure, None, &mut results)?;
        }
        let names: Vec<_> = cold.iter().map(|figure| figure.name()).collect();
        if !cold.is_empty()
            && let Some(disk) = experiment.cold_disk(&names, self.disk, undo, &mut results)
        {
            results.settings.coldness = disk.told.clone();
            let chill = Some(disk.chill);
            let measured = cold.into_iter().try_for_each(|figure| {
                self.take_turns(&mut experiment, figure, chill, &mut results)
            });
            disk.lift()?;
            measured?;
        }
        experiment.end(&results)
    }

    fn fill(&self, experiment: &Experiment<'_>, results: &mut Results<Objects>) -> Result<()> {
        for store in &experiment.names {
            experiment.say(&format!("{store}: storing {} records", self.records));
            let job = self.job(experiment, Work::Fill, store, 0);
            fs::create_dir_all(&job.directory)?;
            experiment.program.run(&job)?;
            results.stored.push(Stored {
                store: store.clone(),
                bytes: jobs::bytes_on_disk(&job.directory)?,
            });
        }
        experiment.sync()
    }

    fn job(&self, experiment: &Experiment<'_>, work: Work, store: &str, seed: u64) -> Job {
        let inserts = matches!(work, Work::Figure(figure) if figure.inserts().is_some());
        let directory = if inserts { "new" } else { store };
        Job {
            store: store.to_owned(),
            directory: experiment.work.join(directory),
            work,
            records: self.records,
            seed,
        }
    }

    fn take_turns(
        &self,
        experiment: &mut Experiment<'_>,
        figure: Figure,
        chill: Option<Chill>,
        results: &mut Results<Objects>,
    ) -> Result<()> {
        let rows = experiment
            .names
            .iter()
            .map(|store| Setting::of(figure, store));
        let rows = rows.collect();
        let runs = self.options.runs();
        experiment.take_turns(
            &figure.name(),
            runs,
            rows,
            results,
            |experiment, row, seed| self.run(experiment, row, chill, seed),
        )
    }

    /// One run. None if pages of a warm store left memory each time.
    fn run(
        &self,
        experiment: &Experiment<'_>,
        row: &Setting,
        chill: Option<Chill>,
        seed: u64,
    ) -> Result<Option<Values>> {
        let program = &experiment.program;
        let job = self.job(experiment, Work::Figure(row.figure), &row.store, seed);
        let directory = &job.directory;
        if let Some(chill) = chill {
            jobs::make_cold(directory, chill)?;
            program.warm()?;
            return program.run(&job).map(Some);
        }
        if row.figure.inserts().is_some() {
            empty(directory)?;
            experiment.sync()?;
            return program.run(&job).map(Some);
        }
        warm_run(
            || jobs::make_warm(directory),
            || program.run(&job),
            || jobs::all_are_warm(directory),
        )
    }
}
