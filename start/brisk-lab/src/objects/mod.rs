/*!
What reading and writing typed records costs: `brisk lab objects`.

An [`ObjectsLab`] starts processes of another program, `--program`, in random order. Each opens a store that has the same
records as the others, and reads some of them, or fills an empty store. The program has the stores, because databases would be
heavy dependencies.

A run counts only if the sums of what it read are right. Anything else ends the experiment. Before and after a run that
reads, all files of the store are in memory, or the run is repeated.
*/

mod results;
mod text;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use brisk_terminal::messages::say;

pub use results::{Figure, ObjectsResults, is_of_objects, parse};
pub use text::{draw, markdown};
pub use worker::{Object, ObjectKind, ObjectStore, OpenObjects, Safety, Sums};

use super::cold::Chill;
use super::jobs::{self, ColdDisk, Coldness, Program, Values};
use super::load::{ATTEMPTS, LeftOut, directory_on_disk, ensure_room, processors};
use super::machine::Machine;
use super::read_ahead;
use super::reclaim;
use super::undo::Undo;
use brisk::{Rate, write_whole};
use results::{ObjectsRun, ObjectsSettings, Setting, Stored};
use worker::{Job, Work};

/// Bytes of a record and its indexes, in the largest of the stores.
const LARGEST: u64 = 500;

/// What to measure, and how.
#[derive(Debug)]
pub struct ObjectsLab {
    pub figures: Vec<Figure>,
    /// How many records a store has.
    pub records: u64,
    pub runs: u32,
    /// The program that has the stores.
    pub program: PathBuf,
    /// The stores to measure. All, if there are none.
    pub only: Vec<String>,
    /// The directory for results.
    pub out: PathBuf,
    /// The directory for the stores.
    pub dir: PathBuf,
    pub seed: u64,
    /// The limit of the disk in the cold figures.
    pub disk: Option<Rate>,
    /// Shows no progress.
    pub quiet: bool,
}

/// Does a job with one of these stores. The argument is a job, or `list`.
pub fn serve(kinds: &[ObjectKind], job: &str) -> Result<()> {
    let names = kinds.iter().map(|kind| kind.name);
    jobs::answer(job, names, || worker::work(job, kinds, None))
}

impl ObjectsLab {
    /// Measures everything.
    pub fn run(&self) -> Result<ObjectsResults> {
        jobs::undoing(|undo| self.measure(undo))
    }

    fn measure(&self, undo: &mut Undo) -> Result<ObjectsResults> {
        fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make {}", self.out.display()))?;
        let program = Program::at(&self.program, "--program")?;
        let names = program.chosen(&self.only)?;
        let work = directory_on_disk(&self.dir, "objects-")?;
        undo.remove(&work)?;
        let program = program.installed(&work)?;
        let stores = names.len() as u64 + 1;
        ensure_room(&work, self.records.saturating_mul(LARGEST * stores))?;
        let mut results = ObjectsResults {
            brisk_lab_objects: 1,
            brisk: env!("CARGO_PKG_VERSION").to_owned(),
            started: jiff::Timestamp::now().to_string(),
            machine: Machine::describe(&work, processors())?,
            stopped: reclaim::stop(undo)?,
            settings: ObjectsSettings {
                records: self.records,
                runs: self.runs,
                seed: self.seed,
                disk: self.disk.map(|rate| rate.to_string()),
                read_ahead_kib: read_ahead::present(&work)?,
                coldness: Coldness::default(),
            },
            rows: Vec::new(),
            runs: Vec::new(),
            stored: Vec::new(),
            missing: Vec::new(),
            lost: 0,
        };
        let running = Running {
            lab: self,
            program,
            work,
        };
        if self.figures.iter().any(|figure| figure.inserts().is_none()) {
            running.fill(&names, &mut results)?;
        }
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let (cold, warm): (Vec<_>, Vec<_>) =
            self.figures.iter().partition(|figure| figure.is_cold());
        for figure in warm {
            running.take_turns(figure, &names, None, &mut results, &mut rng)?;
            self.write(&results)?;
        }
        if !cold.is_empty() {
            self.measure_cold(&running, &cold, &names, undo, &mut results, &mut rng)?;
            self.write(&results)?;
        }
        Ok(results)
    }

    /// The cold figures, with the limit of the disk. Without the rights for that, they are left out.
    fn measure_cold(
        &self,
        running: &Running<'_>,
        figures: &[Figure],
        names: &[String],
        undo: &mut Undo,
        results: &mut ObjectsResults,
        rng: &mut fastrand::Rng,
    ) -> Result<()> {
        let disk = match ColdDisk::prepare(&running.work, self.disk, undo) {
            Ok(disk) => disk,
            Err(e) => {
                let left_out = figures.iter().map(|figure| LeftOut {
                    what: figure.name(),
                    reason: format!("{e:#}"),
                });
                results.missing.extend(left_out);
                return Ok(());
            }
        };
        disk.told.progress().iter().for_each(|line| self.say(line));
        results.settings.coldness = disk.told.clone();
        let measured = figures.iter().try_for_each(|&figure| {
            running.take_turns(figure, names, Some(disk.chill), results, rng)
        });
        disk.lift()?;
        measured
    }

    fn write(&self, results: &ObjectsResults) -> Result<()> {
        let text = serde_json::to_string_pretty(results)? + "\n";
        write_whole(&text, &self.out.join("objects.json"))
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }
}

/// An experiment that has begun.
struct Running<'a> {
    lab: &'a ObjectsLab,
    program: Program,
    /// The directory for the stores.
    work: PathBuf,
}

impl Running<'_> {
    fn fill(&self, names: &[String], results: &mut ObjectsResults) -> Result<()> {
        for store in names {
            self.lab
                .say(&format!("{store}: storing {} records", self.lab.records));
            let job = self.job(Work::Fill, store, 0);
            fs::create_dir_all(&job.directory)?;
            self.program.run(&job)?;
            results.stored.push(Stored {
                store: store.clone(),
                bytes: jobs::bytes_on_disk(&job.directory)?,
            });
        }
        self.sync()
    }

    fn job(&self, work: Work, store: &str, seed: u64) -> Job {
        let inserts = matches!(work, Work::Figure(figure) if figure.inserts().is_some());
        let directory = match inserts {
            true => self.work.join("new"),
            false => self.work.join(store),
        };
        Job {
            store: store.to_owned(),
            directory,
            work,
            records: self.lab.records,
            seed,
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(fs::File::open(&self.work)?)?)
    }

    fn take_turns(
        &self,
        figure: Figure,
        names: &[String],
        chill: Option<Chill>,
        results: &mut ObjectsResults,
        rng: &mut fastrand::Rng,
    ) -> Result<()> {
        let first = results.rows.len();
        results.rows.extend(names.iter().map(|store| Setting {
            figure,
            store: store.clone(),
        }));
        let mut turns: Vec<(usize, &String)> = (first..).zip(names).collect();
        for repetition in 0..self.lab.runs {
            let runs = self.lab.runs;
            self.lab
                .say(&format!("{}: {}/{runs}", figure.name(), repetition + 1));
            rng.shuffle(&mut turns);
            // All read the same records.
            let seed = rng.u64(..);
            for (place, &(row, store)) in turns.iter().enumerate() {
                let Some(values) = self.run(figure, store, chill, seed)? else {
                    results.lost += 1;
                    continue;
                };
                if values.is_empty() {
                    // The store cannot do this.
                    continue;
                }
                results.runs.push(ObjectsRun {
                    row,
                    repetition,
                    place,
                    values,
                });
            }
        }
        Ok(())
    }

    /// One run. None if pages of a warm store left memory each time.
    fn run(
        &self,
        figure: Figure,
        store: &str,
        chill: Option<Chill>,
        seed: u64,
    ) -> Result<Option<Values>> {
        let job = self.job(Work::Figure(figure), store, seed);
        if let Some(chill) = chill {
            jobs::make_cold(&job.directory, chill)?;
            self.program.warm()?;
            return self.program.run(&job).map(Some);
        }
        for _ in 0..ATTEMPTS {
            self.prepare(figure, &job.directory)?;
            let values = self.program.run(&job)?;
            if figure.inserts().is_some() || jobs::all_are_warm(&job.directory)? {
                return Ok(Some(values));
            }
        }
        Ok(None)
    }

    fn prepare(&self, figure: Figure, directory: &Path) -> Result<()> {
        if figure.inserts().is_none() {
            return jobs::make_warm(directory);
        }
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
        fs::create_dir(directory)?;
        self.sync()
    }
}
