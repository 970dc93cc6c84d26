/*!
What reading a package index from a cache costs: `brisk lab index`.

An [`IndexLab`] starts processes of another program, `--ways`, in random order. Each opens what one way has stored of an
index, decides whether it is fresh, and chooses a file of each package. The program has the ways, because the crates of
others would be heavy dependencies. It also serves the pages, as a process of its own.

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

use anyhow::{Context, Result, ensure};
use brisk_terminal::messages::say;

pub use pages::{Page, PageLeftOut, Pages};
pub use results::{Figure, IndexResults, is_of_index, parse};
pub use text::{draw, markdown};
pub use worker::{Chosen, Package, Prepare, Question, Way, WayKind};

use super::jobs::{self, Program, Values};
use super::load::{ATTEMPTS, LeftOut, directory_on_disk, ensure_room, peers, processors};
use super::machine::Machine;
use super::reclaim;
use super::undo::Undo;
use brisk::write_whole;
use results::{Counted, IndexRun, IndexSettings, PagesSummary, Setting, Stored};
use server::{Answers, Server};
use worker::{Ask, Job};

/// What to measure, and how.
#[derive(Debug)]
pub struct IndexLab {
    pub figures: Vec<Figure>,
    /// Numbers of packages.
    pub packages: Vec<u64>,
    pub runs: u32,
    /// The program that has the ways.
    pub program: PathBuf,
    /// The ways to measure. All, if there are none.
    pub only: Vec<String>,
    /// The directory of the frozen pages.
    pub pages: PathBuf,
    /// The directory for results.
    pub out: PathBuf,
    /// The directory for what the ways store.
    pub dir: PathBuf,
    pub seed: u64,
    /// Shows no progress.
    pub quiet: bool,
}

/// Does a job by one of these ways. The argument is a job, or `list`.
pub fn serve(ways: &[WayKind], job: &str, allocations: Option<fn() -> usize>) -> Result<()> {
    let names = ways.iter().map(|kind| kind.name);
    jobs::answer(job, names, || worker::work(job, ways, allocations))
}

impl IndexLab {
    /// Measures everything.
    pub fn run(&self) -> Result<IndexResults> {
        jobs::undoing(|undo| self.measure(undo))
    }

    fn measure(&self, undo: &mut Undo) -> Result<IndexResults> {
        fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make {}", self.out.display()))?;
        let program = Program::at(&self.program, "--ways")?;
        let names = program.chosen(&self.only)?;
        let path = self.pages.canonicalize().unwrap_or(self.pages.clone());
        let pages = Pages::open(&path)?;
        let work = directory_on_disk(&self.dir, "index-")?;
        undo.remove(&work)?;
        let program = program.installed(&work)?;
        let most = self.packages.iter().copied().max().unwrap_or_default();
        // What is fresh, what is stale, and what one run without a store makes. No way stores more than the pages have.
        let bytes: u64 = pages.repeated(most).map(|(_, page)| page.bytes).sum();
        let stores = 2 * names.len() as u64 + 1;
        ensure_room(&work, bytes.saturating_mul(stores))?;
        let mut results = IndexResults {
            brisk_lab_index: 1,
            brisk: env!("CARGO_PKG_VERSION").to_owned(),
            started: jiff::Timestamp::now().to_string(),
            machine: Machine::describe(&work, processors())?,
            stopped: reclaim::stop(undo)?,
            settings: IndexSettings {
                packages: self.packages.clone(),
                runs: self.runs,
                seed: self.seed,
            },
            pages: PagesSummary::of(&pages),
            rows: Vec::new(),
            runs: Vec::new(),
            counted: Vec::new(),
            stored: Vec::new(),
            missing: Vec::new(),
            lost: 0,
        };
        let running = Running {
            lab: self,
            server: Server::start(&program, &path)?,
            program,
            pages,
            path,
            work,
        };
        running.fill(&names, most, &mut results)?;
        let mut rng = fastrand::Rng::with_seed(self.seed);
        for &figure in &self.figures {
            let numbers = match figure {
                Figure::Largest => vec![1],
                _ => self.packages.clone(),
            };
            for packages in numbers {
                running.take_turns(figure, packages, &names, &mut results, &mut rng)?;
                self.write(&results)?;
            }
        }
        running.count(&mut results)?;
        self.write(&results)?;
        Ok(results)
    }

    fn write(&self, results: &IndexResults) -> Result<()> {
        let text = serde_json::to_string_pretty(results)? + "\n";
        write_whole(&text, &self.out.join("index.json"))
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }
}

/// An experiment that has begun.
struct Running<'a> {
    lab: &'a IndexLab,
    program: Program,
    server: Server,
    pages: Pages,
    /// The directory of the frozen pages.
    path: PathBuf,
    /// The directory for what the ways store.
    work: PathBuf,
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

impl Running<'_> {
    /// Has each way store what the figures need. A store has the largest number of packages, of which a run asks for some.
    fn fill(&self, names: &[String], most: u64, results: &mut IndexResults) -> Result<()> {
        for way in names {
            for &figure in &self.lab.figures {
                let Some((ask, what)) = stored_for(figure) else {
                    continue;
                };
                self.lab.say(&format!("{way}: storing {what} pages"));
                let job = self.job(figure, most, way);
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
                let took = self.checked(&job, filled, |job| self.program.run(job))?;
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
        self.sync()
    }

    fn job(&self, figure: Figure, packages: u64, way: &str) -> Job {
        let (ask, what) = stored_for(figure).unwrap_or((Ask::Fresh, "miss"));
        Job {
            way: way.to_owned(),
            directory: self.work.join(format!("{way}-{what}")),
            pages: self.path.clone(),
            server: self.server.address(),
            ask,
            packages: match ask {
                Ask::Largest => 1,
                _ => packages,
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

    fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(fs::File::open(&self.work)?)?)
    }

    fn expected(figure: Figure, packages: u64) -> Answers {
        let (sent, held) = match figure {
            Figure::Warm | Figure::Largest => (0, 0),
            Figure::Stale => (0, packages),
            Figure::Miss => (packages, 0),
        };
        Answers { sent, held }
    }

    /// Removes what an earlier run stored, and waits until nothing is written any more.
    fn prepare(&self, figure: Figure, directory: &Path) -> Result<()> {
        match figure {
            Figure::Miss if directory.exists() => fs::remove_dir_all(directory)?,
            Figure::Miss => {}
            _ => jobs::make_warm(directory)?,
        }
        match figure {
            Figure::Warm | Figure::Largest => Ok(()),
            Figure::Stale | Figure::Miss => self.sync(),
        }
    }

    fn take_turns(
        &self,
        figure: Figure,
        packages: u64,
        names: &[String],
        results: &mut IndexResults,
        rng: &mut fastrand::Rng,
    ) -> Result<()> {
        let first = results.rows.len();
        results.rows.extend(names.iter().map(|way| Setting {
            figure,
            packages,
            way: way.clone(),
        }));
        let mut turns: Vec<(usize, &String)> = (first..).zip(names).collect();
        for repetition in 0..self.lab.runs {
            self.lab.say(&format!(
                "{} of {packages}: {}/{}",
                figure.name(),
                repetition + 1,
                self.lab.runs
            ));
            rng.shuffle(&mut turns);
            for (place, &(row, way)) in turns.iter().enumerate() {
                let Some(values) = self.run(figure, packages, way)? else {
                    results.lost += 1;
                    continue;
                };
                results.runs.push(IndexRun {
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
    fn run(&self, figure: Figure, packages: u64, way: &str) -> Result<Option<Values>> {
        let job = self.job(figure, packages, way);
        let expected = Self::expected(figure, packages);
        for _ in 0..ATTEMPTS {
            self.prepare(figure, &job.directory)?;
            let values = self.checked(&job, expected, |job| self.program.run(job))?;
            let is_warm = match figure {
                Figure::Warm | Figure::Largest => jobs::all_are_warm(&job.directory)?,
                Figure::Stale | Figure::Miss => true,
            };
            if is_warm {
                return Ok(Some(values));
            }
        }
        Ok(None)
    }

    /// Counts allocations, system calls and written bytes for each package of each row.
    fn count(&self, results: &mut IndexResults) -> Result<()> {
        let strace = peers::missing("strace");
        results.missing.extend(strace.clone());
        if !self.program.counts() {
            results.missing.push(LeftOut {
                what: "allocations".to_owned(),
                reason: "there is no program with -counted behind the name of --ways".to_owned(),
            });
        }
        let mut untraced = Vec::new();
        for (row, setting) in results.rows.iter().enumerate() {
            let Setting {
                figure,
                packages,
                way,
            } = setting;
            let what = format!("{} of {packages} by {way}", figure.name());
            self.lab.say(&format!("{what}: counting"));
            let job = self.job(*figure, *packages, way);
            let expected = Self::expected(*figure, *packages);
            let mut counted = Counted {
                row,
                allocations: None,
                system_calls: None,
                written: None,
            };
            if self.program.counts() {
                self.prepare(*figure, &job.directory)?;
                counted.allocations =
                    self.checked(&job, expected, |job| self.program.allocations(job))?;
            }
            if strace.is_none() {
                self.prepare(*figure, &job.directory)?;
                // A run that cannot be traced may not have begun.
                match self.program.traced(&job)? {
                    Some(trace) => {
                        let each = |count: f64| count / (*packages).max(1) as f64;
                        let calls = jobs::system_calls(&trace);
                        counted.system_calls = calls.map(|calls| each(calls as f64));
                        let bytes = jobs::written_below(&job.directory, &trace);
                        counted.written = bytes.map(|bytes| each(bytes as f64));
                    }
                    None => untraced.push(what),
                }
            }
            results.counted.push(counted);
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
