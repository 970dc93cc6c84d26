/*!
What a cache on disk costs: `brisk lab cache`.

A [`CacheLab`] fills a directory for each kind of [`Store`](store::Store), and starts processes that open it, get values,
look into tables and update values, in random order. Every process checks what it reads, and a wrong value ends the
experiment. Allocations and system calls are counted in runs that are not timed.

The lab itself has the caches of brisk-cache and one file for each entry. Databases are in another program, `--rivals`,
because they would be heavy dependencies: it is the same worker with more kinds of stores. Then it does all jobs, so
that each store is opened by the same program.
*/

mod data;
mod results;
mod store;
mod text;
mod worker;

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use brisk_io::measure::evict_and_prove;

pub use data::{Hex, Key};
pub use results::{CacheResults, Figure, is_of_cache, parse};
pub use store::{Open, Opening, Purpose, Store, StoreKind};
pub use text::draw;

use super::load::{LeftOut, directory_on_disk, ensure_room, peers, processors};
use super::machine::Machine;
use super::proof;
use super::read_ahead::device_of;
use super::reclaim;
use super::stage::runtime;
use super::throttle::{self, Lift, Throttle};
use super::undo::Undo;
use brisk::{Rate, say, write_whole};
use results::{CacheRun, CacheSettings, Counted, Setting, Stored};
use worker::{Job, Values, Work, monotonic, rounds};

/// How many processes read at once.
const PROCESSES: u64 = 8;

/// For how long they read.
const SERVE_MS: u64 = 400;

/// How long they have to open the store and to read all values once.
const HEAD_START_NS: u64 = 1_500_000_000;

/// How many values of a large store are got in each round.
const SAMPLED: u64 = 200_000;

/// Bytes of values of the figures. Tables have their own size.
const LEN: usize = 1024;
const UPDATED_LEN: usize = 400;
const MANY_LEN: usize = 64;

/// How many durable updates a run makes at most: each waits for the disk.
const DURABLE: u64 = 100;

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
    if job == "list" {
        let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
        serde_json::to_writer(io::stdout(), &names)?;
        return Ok(());
    }
    let values = worker::work(job, &kinds, allocations)?;
    serde_json::to_writer(io::stdout(), &values)?;
    Ok(())
}

/// The program that does the jobs.
struct Program {
    /// The program and its first argument.
    words: Vec<PathBuf>,
    /// The same program, which counts allocations.
    counting: Option<PathBuf>,
}

impl Program {
    fn find(rivals: Option<&PathBuf>) -> Result<Self> {
        let Some(rivals) = rivals else {
            let lab = env::current_exe().context("cannot find brisk-lab's own file")?;
            return Ok(Self {
                words: vec![lab, "cache-worker".into()],
                counting: None,
            });
        };
        let rivals = rivals
            .canonicalize()
            .with_context(|| format!("--rivals: cannot find {}", rivals.display()))?;
        let mut counting = rivals.clone().into_os_string();
        counting.push("-counted");
        let counting = PathBuf::from(counting);
        Ok(Self {
            words: vec![rivals],
            counting: counting.exists().then_some(counting),
        })
    }

    fn command(&self, job: &str) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(job);
        command
    }

    /// The names of all kinds of stores.
    fn list(&self) -> Result<Vec<String>> {
        let output = self.command("list").output()?;
        ensure!(output.status.success(), "{}", told(&output.stderr));
        serde_json::from_slice(&output.stdout).context("the program of --rivals lists no stores")
    }

    fn run(&self, job: &Job) -> Result<Values> {
        answer(self.command(&serde_json::to_string(job)?))
    }

    fn start(&self, job: &Job) -> Result<Child> {
        let mut command = self.command(&serde_json::to_string(job)?);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("cannot start a worker")
    }
}

fn told(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).trim().to_owned()
}

/// What a worker printed.
fn answer(mut command: Command) -> Result<Values> {
    let output = command.output().context("cannot start a worker")?;
    parse_answer(&output)
}

fn parse_answer(output: &std::process::Output) -> Result<Values> {
    ensure!(output.status.success(), "{}", told(&output.stderr));
    serde_json::from_slice(&output.stdout).context("a worker printed no values")
}

/// The directories of one kind of store.
struct Ground {
    store: String,
    directory: PathBuf,
}

impl Ground {
    fn of(&self, what: &str) -> PathBuf {
        self.directory.join(what)
    }
}

impl CacheLab {
    /// Measures everything.
    pub fn run(&self) -> Result<CacheResults> {
        let ground = tempfile::Builder::new().prefix("brisk-lab-").tempdir()?;
        fs::create_dir(runtime(ground.path()))?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(runtime(ground.path()), private)?;
        let mut undo = Undo::start(&runtime(ground.path()))?;
        undo.remove(&ground.keep())?;
        let measured = self.measure(&mut undo);
        let undone = undo.finish();
        let results = measured?;
        undone.map(|()| results)
    }

    fn measure(&self, undo: &mut Undo) -> Result<CacheResults> {
        fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make {}", self.out.display()))?;
        let program = Program::find(self.rivals.as_ref())?;
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
        let each = self.entries.saturating_mul(300_000) + self.many.saturating_mul(512);
        ensure_room(&work, each.saturating_mul(names.len() as u64))?;
        let mut results = CacheResults {
            brisk_lab_cache: 1,
            brisk: env!("CARGO_PKG_VERSION").to_owned(),
            started: jiff::Timestamp::now().to_string(),
            machine: Machine::describe(&work, processors())?,
            stopped: reclaim::stop(undo)?,
            settings: CacheSettings {
                entries: self.entries,
                many: self.many,
                updates: self.updates,
                runs: self.runs,
                seed: self.seed,
                disk: self.disk.map(|rate| rate.to_string()),
            },
            rows: Vec::new(),
            runs: Vec::new(),
            counted: Vec::new(),
            stored: Vec::new(),
            missing: Vec::new(),
        };
        if self.rivals.is_none() {
            results.missing.push(LeftOut {
                what: "databases".to_owned(),
                reason:
                    "--rivals names no program that has them; bench/README.md says how to build it"
                        .to_owned(),
            });
        }
        let grounds = self.fill(&program, &names, &work, &mut results)?;
        let mut rng = fastrand::Rng::with_seed(self.seed);
        for &figure in &self.figures {
            let lifts = match self.prepare(figure, &work, undo) {
                Ok(lifts) => lifts,
                Err(e) => {
                    results.missing.push(LeftOut {
                        what: format!("{figure:?}"),
                        reason: format!("{e:#}"),
                    });
                    continue;
                }
            };
            let measured = self.measure_figure(figure, &program, &grounds, &mut results, &mut rng);
            throttle::lift_all(lifts)?;
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
            for (what, kind, entries, len) in [
                ("values", Work::Fill, self.entries, LEN),
                ("tables", Work::FillTables, self.entries, 84_000),
                ("updates", Work::Fill, self.updates, UPDATED_LEN),
                ("many", Work::Fill, self.many, MANY_LEN),
            ] {
                let needed = self.figures.iter().any(|figure| what_of(*figure) == what);
                if !needed || !measures_all(name, what) {
                    continue;
                }
                self.say(&format!("{name}: {what}"));
                let values = program.run(&Job {
                    store: name.clone(),
                    directory: ground.of(what),
                    work: kind,
                    entries,
                    len,
                    durable: false,
                    seed: self.seed,
                })?;
                results.stored.push(Stored {
                    store: name.clone(),
                    what: what.to_owned(),
                    values: entries * len as u64,
                    bytes: bytes_on_disk(&ground.of(what))?,
                    seconds: values.get("seconds").copied().unwrap_or_default(),
                });
            }
            grounds.push(ground);
        }
        let directory = fs::File::open(work)?;
        rustix::fs::syncfs(&directory)?;
        Ok(grounds)
    }

    /// Limits the disk for the figure that needs that.
    fn prepare(&self, figure: Figure, work: &Path, undo: &mut Undo) -> Result<Vec<Lift>> {
        let (Figure::Cold, Some(limit)) = (figure, self.disk) else {
            return Ok(Vec::new());
        };
        let disk = device_of(work)?.context("the system names no disk to limit")?;
        let file = proof::make_file(work)?;
        let lifts = Throttle::find()?.set(&[limit], &disk, undo)?;
        let (lifts, proven) = throttle::keep_if(proof::prove(&[limit], &disk, &file), lifts)?;
        for proof in proven {
            self.say(&format!(
                "{}: the limit is {:.0} {}/s, direct reads get {:.0}",
                proof.disk, proof.asked_per_second, proof.of, proof.got_per_second
            ));
        }
        Ok(lifts)
    }

    fn measure_figure(
        &self,
        figure: Figure,
        program: &Program,
        grounds: &[Ground],
        results: &mut CacheResults,
        rng: &mut fastrand::Rng,
    ) -> Result<()> {
        let first = results.rows.len();
        let mut measured: Vec<&Ground> = Vec::new();
        for ground in grounds
            .iter()
            .filter(|ground| is_measured(&ground.store, figure))
        {
            results.rows.push(Setting {
                figure,
                store: ground.store.clone(),
            });
            measured.push(ground);
        }
        let mut order: Vec<usize> = (0..measured.len()).collect();
        for repetition in 0..self.runs {
            self.say(&format!("{figure:?}: {}/{}", repetition + 1, self.runs));
            rng.shuffle(&mut order);
            for (place, &number) in order.iter().enumerate() {
                let ground = measured[number];
                let seed = rng.u64(..);
                let values = self
                    .run_once(figure, program, ground, seed)
                    .with_context(|| format!("{}: {figure:?}", ground.store))?;
                results.runs.push(CacheRun {
                    row: first + number,
                    repetition,
                    place,
                    values,
                });
            }
        }
        Ok(())
    }

    fn run_once(
        &self,
        figure: Figure,
        program: &Program,
        ground: &Ground,
        seed: u64,
    ) -> Result<Values> {
        let job = self.job(figure, ground, seed);
        match figure {
            Figure::One => serve_at_once(program, &job, 1),
            Figure::Eight => serve_at_once(program, &job, PROCESSES),
            Figure::Cold => {
                evict_all(&job.directory)?;
                program.run(&job)
            }
            _ => program.run(&job),
        }
    }

    fn job(&self, figure: Figure, ground: &Ground, seed: u64) -> Job {
        let (work, entries, len) = match figure {
            Figure::Open => (Work::Open, self.entries, LEN),
            Figure::Get => {
                let (keys, rounds) = (self.entries, rounds());
                (Work::Get { keys, rounds }, self.entries, LEN)
            }
            Figure::Tables | Figure::Cold => (Work::Tables, self.entries, 84_000),
            Figure::Update => {
                let times = self.updates;
                (Work::Update { times }, self.updates, UPDATED_LEN)
            }
            Figure::DurableUpdate => {
                let times = self.updates.min(DURABLE);
                (Work::Update { times }, self.updates, UPDATED_LEN)
            }
            Figure::One | Figure::Eight => {
                let serve = Work::Serve {
                    start_ns: 0,
                    milliseconds: SERVE_MS,
                };
                (serve, self.entries, LEN)
            }
            Figure::OpenMany => (Work::Open, self.many, MANY_LEN),
            Figure::GetMany => {
                let (keys, rounds) = (self.many.min(SAMPLED), 3);
                (Work::Get { keys, rounds }, self.many, MANY_LEN)
            }
        };
        Job {
            store: ground.store.clone(),
            directory: ground.of(what_of(figure)),
            work,
            entries,
            len,
            durable: figure == Figure::DurableUpdate,
            seed,
        }
    }

    /// Counts allocations and system calls of opening, of getting and of updating.
    fn count(
        &self,
        program: &Program,
        grounds: &[Ground],
        results: &mut CacheResults,
    ) -> Result<()> {
        let strace = peers::missing("strace");
        results.missing.extend(strace.clone());
        if program.counting.is_none() {
            results.missing.push(LeftOut {
                what: "allocations".to_owned(),
                reason: "only the program of --rivals counts them, with -counted behind its name"
                    .to_owned(),
            });
        }
        for figure in [Figure::Open, Figure::Get, Figure::Update] {
            if !self.figures.contains(&figure) {
                continue;
            }
            for ground in grounds
                .iter()
                .filter(|ground| is_measured(&ground.store, figure))
            {
                self.say(&format!("{figure:?} of {}: counting", ground.store));
                let job = self.job(figure, ground, self.seed);
                let allocations = match &program.counting {
                    Some(counting) => {
                        let mut command = Command::new(counting);
                        command.arg(serde_json::to_string(&job)?);
                        answer(command)?.get("allocations").copied()
                    }
                    None => None,
                };
                let system_calls = match strace {
                    None => self.traced(program, figure, &job)?,
                    Some(_) => None,
                };
                results.counted.push(Counted {
                    figure,
                    store: ground.store.clone(),
                    allocations,
                    system_calls,
                });
            }
        }
        Ok(())
    }

    /// System calls of one operation: those of a job with some, less those of the same job with fewer.
    fn traced(&self, program: &Program, figure: Figure, job: &Job) -> Result<Option<f64>> {
        let with = |work| Job {
            work,
            ..job.clone()
        };
        let (more, fewer, times) = match figure {
            // What opening takes is what remains of a job that does nothing more.
            Figure::Open => (with(Work::Open), None, 1),
            Figure::Get => {
                let keys = self.entries;
                let get = |rounds| with(Work::Get { keys, rounds });
                // The second has opened all files.
                (get(2), Some(get(1)), keys)
            }
            _ => {
                let times = (self.updates / 2).max(1);
                let fewer = with(Work::Update { times: 1 });
                (
                    with(Work::Update { times }),
                    Some(fewer),
                    times.saturating_sub(1),
                )
            }
        };
        let more = calls_of(program, &more)?;
        let fewer = match fewer {
            Some(fewer) => calls_of(program, &fewer)?,
            None => {
                let nothing = Work::Get { keys: 1, rounds: 0 };
                let memory = Job {
                    store: "memory".to_owned(),
                    work: nothing,
                    entries: 1,
                    ..job.clone()
                };
                calls_of(program, &memory)?
            }
        };
        let each =
            |(more, fewer): (u64, u64)| more.saturating_sub(fewer) as f64 / times.max(1) as f64;
        Ok(more.zip(fewer).map(each))
    }
}

/// What a figure reads or changes.
fn what_of(figure: Figure) -> &'static str {
    match figure {
        Figure::Open | Figure::Get | Figure::One | Figure::Eight => "values",
        Figure::Tables | Figure::Cold => "tables",
        Figure::Update | Figure::DurableUpdate => "updates",
        Figure::OpenMany | Figure::GetMany => "many",
    }
}

/// Whether a figure of these directories is measured with this store.
fn measures_all(store: &str, what: &str) -> bool {
    match what {
        "many" => matches!(store, "brisk" | "lmdb"),
        "tables" => store != "memory",
        _ => true,
    }
}

fn is_measured(store: &str, figure: Figure) -> bool {
    let in_memory = store == "memory";
    // The figure of several processes is about what they share.
    let shared = matches!(store, "brisk" | "lmdb" | "memory");
    match figure {
        // cacache waits for no disk.
        Figure::DurableUpdate if store == "cacache" => false,
        Figure::One | Figure::Eight => shared,
        Figure::Cold => matches!(store, "brisk" | "brisk-copied" | "files" | "files-rkyv"),
        Figure::Get => store != "files-rkyv",
        Figure::Open | Figure::Update | Figure::DurableUpdate => {
            !in_memory && store != "files-rkyv"
        }
        figure => !in_memory && measures_all(store, what_of(figure)),
    }
}

/// Starts a job in several processes, which begin at one time. Returns the sum of what they did.
fn serve_at_once(program: &Program, job: &Job, processes: u64) -> Result<Values> {
    let Work::Serve { milliseconds, .. } = job.work else {
        return program.run(job);
    };
    let work = Work::Serve {
        start_ns: monotonic() + HEAD_START_NS,
        milliseconds,
    };
    let started: Result<Vec<Child>> = (0..processes)
        .map(|number| {
            program.start(&Job {
                work,
                seed: job.seed ^ number,
                ..job.clone()
            })
        })
        .collect();
    let mut sum = 0.0;
    for child in started? {
        let values = parse_answer(&child.wait_with_output()?)?;
        sum += values.get("per_second").copied().unwrap_or_default();
    }
    Ok(Values::from([("per_second".to_owned(), sum)]))
}

/// Takes the pages of all files below a directory out of memory.
fn evict_all(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            evict_all(&entry.path())?;
            continue;
        }
        let file = fs::File::open(entry.path())?;
        file.sync_all()?;
        evict_and_prove(&file)
            .with_context(|| format!("{} stays in memory", entry.path().display()))?;
    }
    Ok(())
}

/// Bytes that a directory takes on the disk.
fn bytes_on_disk(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    if !directory.exists() {
        return Ok(0);
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += metadata.blocks() * 512;
        if metadata.is_dir() {
            bytes += bytes_on_disk(&entry.path())?;
        }
    }
    Ok(bytes)
}

/// How many system calls a job makes. None if strace cannot trace here.
fn calls_of(program: &Program, job: &Job) -> Result<Option<u64>> {
    let trace = tempfile::NamedTempFile::new()?;
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(trace.path());
    command
        .args(&program.words)
        .arg(serde_json::to_string(job)?);
    let output = command.output().context("cannot start strace")?;
    if !output.status.success() {
        return Ok(None);
    }
    let text = fs::read_to_string(trace.path())?;
    let calls = text
        .lines()
        .filter(|line| line.contains('(') && !line.contains("resumed>"));
    Ok(Some(calls.count() as u64))
}
