/*!
What reading a package index from a cache costs.

Each run is a process that opens what one way has stored of an index, decides whether it is fresh, and chooses a file of each
package. Another process serves the pages.

A run counts only if it chose the right file of each package, and if it asked the index as often as it should: never, or once
for each package. Anything else ends the experiment. Allocations, system calls and written bytes are counted in runs that are
not timed.
*/

mod pages;
mod results;
mod server;
mod text;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use brisk_lab::{Undo, undoing};
use clap::Parser;

pub use pages::{Page, PageLeftOut, Pages};
pub(crate) use results::Ways;
pub use worker::{Chosen, Package, Prepare, Question, Way, WayKind, work};

use crate::experiment::{Counter, Experiment, JobOptions, chosen, start, warm_run};
use crate::jobs::{self, Values};
use crate::results::Results;
use results::{Counted, Figure, IndexSettings, More, PagesSummary, Setting, Stored};
use server::{Answers, Server};
use worker::{Ask, Job};

/// The arguments of the experiment.
#[derive(Debug, clap::Args)]
#[command(
    max_term_width = 100,
    after_help = "\
A package index has a page for each package, with all its files. Different ways store such pages, open what is stored, decide \
whether it is fresh, and choose the file of each package that suits a Python best. Ways take turns, in random order.\n\n  \
  brisk        brisk-http, which stores the tables of pyindex in place of pages\n  \
  policy-only  brisk-http decides on the stored policy; the page is parsed each time\n  \
  parsed       a file for each package, with policy and parsed page, all deserialised each time\n  \
  uv-client    uv's own client and cache, and the versions of its archive in a map\n  \
  rkyv-file    a file for each package, read whole and checked by rkyv each time\n  \
  sqlite       a database with a row for each file, in the order of versions\n\n\
All need the feature index-ways. A wrong file, or a request too many or too few, ends the experiment. System calls and written \
bytes (with strace) and allocations are counted in runs that are not timed. Before and after a warm run, all files of the \
store are in memory, or the run is repeated. OUT/index.json has every run."
)]
pub struct Args {
    /// The frozen pages, as index-ways pages makes them.
    #[arg(long, value_name = "DIR")]
    pages: PathBuf,

    /// The figures to measure, separated by commas. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    figures: Vec<Figure>,

    /// Numbers of packages, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,100,1750",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    packages: Vec<u64>,

    #[command(flatten)]
    options: JobOptions,
}

/// What a program does that counts the allocations of Rust: jobs, by these ways.
pub fn count(ways: &[WayKind], allocations: fn() -> usize) -> ExitCode {
    let names: Vec<_> = ways.iter().map(|kind| kind.name).collect();
    let nothing_else = |_: &NoArguments| bail!("this program only does jobs of index-ways");
    start(
        &names,
        |job| work(job, ways, Some(allocations)),
        nothing_else,
    )
}

#[derive(Debug, Parser)]
struct NoArguments {}

/// Measures, and prints the tables.
pub fn measure(args: &Args) -> Result<()> {
    undoing(|undo| args.measure(undo))
}

impl Args {
    fn measure(&self, undo: &mut Undo) -> Result<()> {
        let figures = chosen(&self.figures, &Figure::ALL);
        let mut numbers = self.packages.clone();
        numbers.sort_unstable();
        numbers.dedup();
        let path = self.pages.canonicalize().unwrap_or(self.pages.clone());
        let pages = Pages::open(&path)?;
        let mut experiment = Experiment::begin(&self.options, "index", undo)?;
        let most = numbers.last().copied().unwrap_or_default();
        // What is fresh, what is stale, and what one run without a store makes. No way stores more than the pages have.
        let bytes: u64 = pages.repeated(most).map(|(_, page)| page.bytes).sum();
        let stores = 2 * experiment.names.len() as u64 + 1;
        experiment.ensure_room(bytes.saturating_mul(stores))?;
        let settings = IndexSettings {
            packages: numbers.clone(),
            runs: self.options.runs(),
            seed: experiment.seed,
        };
        let more = More {
            brisk_lab_index: 1,
            pages: PagesSummary::of(&pages),
            counted: Vec::new(),
        };
        let mut results = experiment.results(settings, more);
        let index = Index {
            server: Server::start(&experiment.program, &path)?,
            pages,
            path,
        };
        index.fill(&experiment, &figures, most, &mut results)?;
        for &figure in &figures {
            let numbers = match figure {
                Figure::Largest => &[1],
                _ => &*numbers,
            };
            for &packages in numbers {
                let ways = experiment.names.iter();
                let rows = ways.map(|way| Setting::of(figure, packages, way)).collect();
                let title = format!("{} of {packages}", figure.name());
                let runs = self.options.runs();
                experiment.take_turns(&title, runs, rows, &mut results, |experiment, row, _| {
                    index.run(experiment, row)
                })?;
            }
        }
        index.count(&experiment, &mut results)?;
        experiment.end(&results)
    }
}

/// The index that ways ask.
struct Index {
    server: Server,
    pages: Pages,
    /// The directory of the frozen pages.
    path: PathBuf,
}

/// What is stored before a figure's runs, and its name in results.
fn stored_for(figure: Figure) -> Option<(Ask, &'static str)> {
    match figure {
        Figure::Warm => Some((Ask::Fresh, "fresh")),
        Figure::Stale => Some((Ask::Stale, "stale")),
        Figure::Largest => Some((Ask::Largest, "largest")),
        Figure::Miss => None,
    }
}

/// What the index must have answered in a run.
fn expected(row: &Setting) -> Answers {
    let (sent, held) = match row.figure {
        Figure::Warm | Figure::Largest => (0, 0),
        Figure::Stale => (0, row.packages),
        Figure::Miss => (row.packages, 0),
    };
    Answers { sent, held }
}

/// Removes what an earlier run stored, and waits until nothing is written any more.
fn prepare(experiment: &Experiment<'_>, figure: Figure, directory: &Path) -> Result<()> {
    match figure {
        Figure::Miss if directory.exists() => fs::remove_dir_all(directory)?,
        Figure::Miss => {}
        _ => jobs::make_warm(directory)?,
    }
    match figure {
        Figure::Warm | Figure::Largest => Ok(()),
        Figure::Stale | Figure::Miss => experiment.sync(),
    }
}

impl Index {
    /// Has each way store what the figures need. A store has the largest number of packages, of which a run asks for some.
    fn fill(
        &self,
        experiment: &Experiment<'_>,
        figures: &[Figure],
        most: u64,
        results: &mut Results<Ways>,
    ) -> Result<()> {
        for way in &experiment.names {
            for &figure in figures {
                let Some((ask, what)) = stored_for(figure) else {
                    continue;
                };
                experiment.say(&format!("{way}: storing {what} pages"));
                let job = self.job(experiment, &Setting::of(figure, most, way));
                let (values, pages) = match ask {
                    Ask::Largest => (1, self.pages.largest.bytes),
                    _ => {
                        let pages = self.pages.repeated(most);
                        (most, pages.map(|(_, page)| page.bytes).sum())
                    }
                };
                let filled = Answers {
                    sent: values,
                    held: 0,
                };
                let took = self.checked(&job, filled, |job| experiment.program.run(job))?;
                results.stored.push(Stored {
                    way: way.clone(),
                    what: what.to_owned(),
                    packages: values,
                    pages,
                    bytes: jobs::bytes_on_disk(&job.directory)?,
                    seconds: took.get("ns").copied().unwrap_or_default() / 1e9,
                });
            }
        }
        experiment.sync()
    }

    fn job(&self, experiment: &Experiment<'_>, row: &Setting) -> Job {
        let Setting { figure, way, .. } = row;
        let (ask, what) = stored_for(*figure).unwrap_or((Ask::Fresh, "miss"));
        Job {
            way: way.clone(),
            directory: experiment.work.join(format!("{way}-{what}")),
            pages: self.path.clone(),
            server: self.server.address(),
            ask,
            packages: match ask {
                Ask::Largest => 1,
                _ => row.packages,
            },
        }
    }

    /// A run, after which the index must have been asked just so.
    fn checked<T>(
        &self,
        job: &Job,
        expected: Answers,
        run: impl FnOnce(&Job) -> Result<T>,
    ) -> Result<T> {
        let before = self.server.answers()?;
        let done = run(job)?;
        let asked = self.server.answers()?.since(before);
        ensure!(
            asked == expected,
            "{} ({:?}, {} packages): the index sent {} pages and said of {} that they hold, expected are {} and {}",
            job.way,
            job.ask,
            job.packages,
            asked.sent,
            asked.held,
            expected.sent,
            expected.held
        );
        Ok(done)
    }

    /// One run. None if pages of a warm store left memory each time.
    fn run(&self, experiment: &Experiment<'_>, row: &Setting) -> Result<Option<Values>> {
        let job = self.job(experiment, row);
        warm_run(
            || prepare(experiment, row.figure, &job.directory),
            || self.checked(&job, expected(row), |job| experiment.program.run(job)),
            || match row.figure {
                Figure::Warm | Figure::Largest => jobs::all_are_warm(&job.directory),
                Figure::Stale | Figure::Miss => Ok(true),
            },
        )
    }

    /// Counts allocations, system calls and written bytes for each package of each row.
    fn count(&self, experiment: &Experiment<'_>, results: &mut Results<Ways>) -> Result<()> {
        let mut counter = Counter::new(&experiment.program);
        for (number, row) in results.rows.iter().enumerate() {
            let what = format!("{} of {} by {}", row.figure.name(), row.packages, row.way);
            experiment.say(&format!("{what}: counting"));
            let job = self.job(experiment, row);
            let mut allocations = None;
            if experiment.program.counts() {
                prepare(experiment, row.figure, &job.directory)?;
                allocations = self.checked(&job, expected(row), |job| counter.allocations(job))?;
            }
            prepare(experiment, row.figure, &job.directory)?;
            // A run that cannot be traced may not have begun, so nobody looks at what the index answered.
            let trace = counter.trace(&what, &job)?;
            let each = |count: f64| count / row.packages.max(1) as f64;
            let calls = trace.as_deref().and_then(jobs::system_calls);
            let bytes = trace.and_then(|trace| jobs::written_below(&job.directory, &trace));
            results.more.counted.push(Counted {
                row: number,
                allocations,
                system_calls: calls.map(|calls| each(calls as f64)),
                written: bytes.map(|bytes| each(bytes as f64)),
            });
        }
        results.missing.extend(counter.missing());
        Ok(())
    }
}
