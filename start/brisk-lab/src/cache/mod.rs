/*!
What a cache on disk costs: `brisk lab cache`.

A [`CacheLab`] fills a directory for each kind of [`Store`](store::Store), and starts processes that open it, get values,
look into tables and update values, in random order. Every process checks what it reads, and a wrong value ends the
experiment. Allocations and system calls are counted in runs that are not timed.

The lab itself has the caches of brisk-cache and one file for each entry. Databases are in another program, `--rivals`,
because they would be heavy dependencies: it is the same worker with more kinds of stores. Then it does all jobs, so
that each store is opened by the same program.
*/

mod counting;
mod data;
mod plan;
mod results;
mod store;
mod text;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use brisk_terminal::messages::say;

pub use data::{Hex, Key};
pub use results::{CacheResults, Figure, is_of_cache, parse};
pub use store::{Open, Opening, Purpose, Store, StoreKind};
pub use text::{draw, markdown};

use super::cold::Chill;
use super::jobs::{self, ColdDisk, Coldness, Program, Values};
use super::load::{ATTEMPTS, LeftOut, directory_on_disk, ensure_room, peers, processors};
use super::machine::Machine;
use super::reclaim;
use super::undo::Undo;
use brisk::{Rate, write_whole};
use plan::{Contents, Fit, TURNS, fit, runs_for_one};
use results::{CacheRun, CacheSettings, Counted, Setting, Stored};
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

/// What to measure, and how.
#[derive(Debug)]
pub struct CacheLab {
    pub figures: Vec<Figure>,
    /// Entries of most figures.
    pub entries: u64,
    /// Entries of the large store.
    pub many: u64,
    /// Updates of a run.
    pub updates: u64,
    pub runs: u32,
    /// A program with more kinds of stores.
    pub rivals: Option<PathBuf>,
    /// Kinds of stores to measure. All, if there are none.
    pub stores: Vec<String>,
    /// The limit of the disk in the figure `cold`.
    pub disk: Option<Rate>,
    /// The directory for results.
    pub out: PathBuf,
    /// The directory for the stores.
    pub dir: PathBuf,
    pub seed: u64,
    /// Shows no progress.
    pub quiet: bool,
}

/// Runs a worker with these kinds of stores besides the lab's own. The argument is a job, or `list`.
pub fn serve(rivals: &[StoreKind], job: &str, allocations: Option<fn() -> usize>) -> Result<()> {
    let kinds: Vec<StoreKind> = store::OWN.iter().chain(rivals).copied().collect();
    let names = kinds.iter().map(|kind| kind.name);
    jobs::answer(job, names, || worker::work(job, &kinds, allocations))
}

/// The directories of one kind of store.
struct Ground {
    store: String,
    directory: PathBuf,
}

impl Ground {
    fn of(&self, contents: Contents) -> PathBuf {
        self.directory.join(contents.name())
    }
}

/// A figure of one store, which takes turns with others.
struct Turn<'a> {
    row: usize,
    figure: Figure,
    ground: &'a Ground,
}

impl CacheLab {
    /// Measures everything.
    pub fn run(&self) -> Result<CacheResults> {
        jobs::undoing(|undo| self.measure(undo))
    }

    fn measure(&self, undo: &mut Undo) -> Result<CacheResults> {
        fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make {}", self.out.display()))?;
        let program = match &self.rivals {
            Some(rivals) => Program::at(rivals, "--rivals")?,
            None => Program::own("cache-worker")?,
        };
        let mut names = program.list()?;
        for wanted in &self.stores {
            ensure!(
                names.contains(wanted),
                "--stores: found {wanted}, allowed are {}",
                names.join(", ")
            );
        }
        names.retain(|name| self.stores.is_empty() || self.stores.contains(name));
        let work = directory_on_disk(&self.dir, "cache-")?;
        undo.remove(&work)?;
        let program = program.installed(&work)?;
        let each = self.entries.saturating_mul(300_000) + self.many.saturating_mul(SMALL);
        ensure_room(&work, each.saturating_mul(names.len() as u64))?;
        let mut results = CacheResults {
            brisk_lab_cache: 1,
            brisk: env!("CARGO_PKG_VERSION").to_owned(),
            started: jiff::Timestamp::now().to_string(),
            machine: Machine::describe(&work, processors())?,
            stopped: reclaim::stop(undo)?,
            settings: CacheSettings {
                entries: self.entries,
                few: FEW,
                many: self.many,
                updates: self.updates,
                runs: self.runs,
                seed: self.seed,
                disk: self.disk.map(|rate| rate.to_string()),
                coldness: Coldness::default(),
            },
            rows: Vec::new(),
            runs: Vec::new(),
            counted: Vec::new(),
            stored: Vec::new(),
            missing: self.left_out(&names),
            lost: 0,
        };
        if self.rivals.is_none() {
            results.missing.push(LeftOut {
                what: "databases".to_owned(),
                reason:
                    "--rivals names no program that has them; workshop/bench/README.md says how to build it"
                        .to_owned(),
            });
        }
        let grounds = self.fill(&program, &names, &work, &mut results)?;
        let mut rng = fastrand::Rng::with_seed(self.seed);
        for turns in TURNS {
            let figures = turns.iter().copied();
            let figures: Vec<Figure> = figures
                .filter(|figure| self.figures.contains(figure))
                .collect();
            if figures.is_empty() {
                continue;
            }
            let disk = match figures.contains(&Figure::Cold) {
                false => None,
                true => match self.prepare(&work, undo, &mut results) {
                    Ok(disk) => Some(disk),
                    Err(e) => {
                        results.missing.push(LeftOut {
                            what: Figure::Cold.name(),
                            reason: format!("{e:#}"),
                        });
                        continue;
                    }
                },
            };
            let turning = Turning {
                lab: self,
                program: &program,
                chill: disk.as_ref().map_or(Chill::Files, |disk| disk.chill),
            };
            let measured = turning.measure(&figures, &grounds, &mut results, &mut rng);
            disk.map_or(Ok(()), ColdDisk::lift)?;
            measured?;
            self.write(&results)?;
        }
        self.count(&program, &grounds, &mut results)?;
        self.write(&results)?;
        Ok(results)
    }

    fn write(&self, results: &CacheResults) -> Result<()> {
        let text = serde_json::to_string_pretty(results)? + "\n";
        write_whole(&text, &self.out.join("cache.json"))
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }

    /// Figures that a store is left out of, with the reason. Those with one reason are said together.
    fn left_out(&self, names: &[String]) -> Vec<LeftOut> {
        let mut missing: Vec<LeftOut> = Vec::new();
        for name in names {
            let mut said: Vec<(&str, Vec<String>)> = Vec::new();
            for &figure in &self.figures {
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
        missing
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
        program: &Program,
        names: &[String],
        work: &Path,
        results: &mut CacheResults,
    ) -> Result<Vec<Ground>> {
        let mut grounds = Vec::new();
        for name in names {
            let ground = Ground {
                store: name.clone(),
                directory: work.join(name),
            };
            fs::create_dir(&ground.directory)?;
            for contents in Contents::ALL {
                let needed = self.figures.iter().any(|&figure| {
                    Contents::of(figure) == contents && fit(name, figure) == Fit::Measured
                });
                // Each process fills its own memory.
                if !needed || name == "memory" {
                    continue;
                }
                self.say(&format!("{name}: {}", contents.name()));
                let (entries, len) = (self.entries_of(contents), contents.value_len());
                let values = program.run(&Job {
                    store: name.clone(),
                    directory: ground.of(contents),
                    work: match contents {
                        Contents::Tables => Work::FillTables,
                        _ => Work::Fill,
                    },
                    entries,
                    len,
                    durable: false,
                    seed: self.seed,
                })?;
                results.stored.push(Stored {
                    store: name.clone(),
                    what: contents.name().to_owned(),
                    values: entries * len as u64,
                    bytes: jobs::bytes_on_disk(&ground.of(contents))?,
                    seconds: values.get("seconds").copied().unwrap_or_default(),
                });
            }
            grounds.push(ground);
        }
        let directory = fs::File::open(work)?;
        rustix::fs::syncfs(&directory)?;
        Ok(grounds)
    }

    /// Makes the disk ready for the cold figure.
    fn prepare(
        &self,
        work: &Path,
        undo: &mut Undo,
        results: &mut CacheResults,
    ) -> Result<ColdDisk> {
        let disk = ColdDisk::prepare(work, self.disk, undo)?;
        results
            .missing
            .extend(disk.kept.clone().map(|reason| LeftOut {
                what: "cold, without names and attributes in memory".to_owned(),
                reason,
            }));
        disk.told.progress().iter().for_each(|line| self.say(line));
        results.settings.coldness = disk.told.clone();
        Ok(disk)
    }

    fn job(&self, figure: Figure, ground: &Ground, seed: u64) -> Job {
        let contents = Contents::of(figure);
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
            store: ground.store.clone(),
            directory: ground.of(contents),
            work,
            entries,
            len: contents.value_len(),
            durable: figure == Figure::DurableUpdate,
            seed,
        }
    }

    /// Counts allocations and system calls of one operation of each figure, except those of several processes: their gets
    /// are those of the figure `get`.
    fn count(
        &self,
        program: &Program,
        grounds: &[Ground],
        results: &mut CacheResults,
    ) -> Result<()> {
        let strace = peers::missing("strace");
        results.missing.extend(strace.clone());
        if !program.counts() {
            results.missing.push(LeftOut {
                what: "allocations".to_owned(),
                reason: "only the program of --rivals counts them, with -counted behind its name"
                    .to_owned(),
            });
        }
        let mut untraced = Vec::new();
        for &figure in &self.figures {
            if matches!(figure, Figure::One | Figure::Eight) {
                continue;
            }
            for ground in grounds
                .iter()
                .filter(|ground| fit(&ground.store, figure) == Fit::Measured)
            {
                self.say(&format!("{} of {}: counting", figure.name(), ground.store));
                let job = counting::shorter(self.job(figure, ground, self.seed));
                let system_calls = match strace {
                    None => program
                        .traced(&job)?
                        .and_then(|trace| jobs::system_calls(&trace)),
                    Some(_) => None,
                };
                let each = |calls: usize| calls as f64 / job.operations().max(1) as f64;
                let system_calls = system_calls.map(each);
                if strace.is_none() && system_calls.is_none() {
                    untraced.push(format!("{} of {}", figure.name(), ground.store));
                }
                results.counted.push(Counted {
                    figure,
                    store: ground.store.clone(),
                    allocations: program.allocations(&job)?,
                    system_calls,
                });
            }
        }
        if !untraced.is_empty() {
            results.missing.push(LeftOut {
                what: format!("system calls of {}", untraced.join(", ")),
                reason: "strace cannot trace here".to_owned(),
            });
        }
        Ok(())
    }
}

/// Figures that take turns.
struct Turning<'a> {
    lab: &'a CacheLab,
    program: &'a Program,
    /// What to empty before a cold run.
    chill: Chill,
}

impl Turning<'_> {
    fn measure(
        &self,
        figures: &[Figure],
        grounds: &[Ground],
        results: &mut CacheResults,
        rng: &mut fastrand::Rng,
    ) -> Result<()> {
        let mut turns = Vec::new();
        for &figure in figures {
            for ground in grounds {
                if fit(&ground.store, figure) != Fit::Measured {
                    continue;
                }
                turns.push(Turn {
                    row: results.rows.len(),
                    figure,
                    ground,
                });
                results.rows.push(Setting {
                    figure,
                    store: ground.store.clone(),
                });
            }
        }
        let names: Vec<_> = figures.iter().map(|figure| figure.name()).collect();
        let for_one = figures.iter().map(|&figure| runs_for_one(figure)).max();
        let repetitions = self.lab.runs.saturating_mul(for_one.unwrap_or(1));
        for repetition in 0..repetitions {
            self.lab.say(&format!(
                "{}: {}/{repetitions}",
                names.join(" and "),
                repetition + 1,
            ));
            rng.shuffle(&mut turns);
            for (place, turn) in turns.iter().enumerate() {
                let seed = rng.u64(..);
                let values = self
                    .run(turn, seed)
                    .with_context(|| format!("{}: {}", turn.ground.store, turn.figure.name()))?;
                let Some(values) = values else {
                    results.lost += 1;
                    continue;
                };
                results.runs.push(CacheRun {
                    row: turn.row,
                    repetition,
                    place,
                    values,
                });
            }
        }
        Ok(())
    }

    /// One run. None if pages of a warm store left memory each time.
    fn run(&self, turn: &Turn<'_>, seed: u64) -> Result<Option<Values>> {
        let job = self.lab.job(turn.figure, turn.ground, seed);
        match turn.figure {
            Figure::Cold => {
                jobs::make_cold(&job.directory, self.chill)?;
                self.program.warm()?;
                return self.program.run(&job).map(Some);
            }
            Figure::Update | Figure::DurableUpdate => {
                jobs::make_warm(&job.directory)?;
                return self.program.run(&job).map(Some);
            }
            _ => {}
        }
        let in_memory = turn.ground.store == "memory";
        for _ in 0..ATTEMPTS {
            if !in_memory {
                jobs::make_warm(&job.directory)?;
            }
            let values = match turn.figure {
                Figure::One => self.program.serve_at_once(&[&job])?,
                Figure::Eight => {
                    let jobs = (0..PROCESSES).map(|number| Job {
                        seed: job.seed ^ number,
                        ..job.clone()
                    });
                    self.program.serve_at_once(&jobs.collect::<Vec<_>>())?
                }
                _ => self.program.run(&job)?,
            };
            if in_memory || jobs::all_are_warm(&job.directory)? {
                return Ok(Some(values));
            }
        }
        Ok(None)
    }
}
