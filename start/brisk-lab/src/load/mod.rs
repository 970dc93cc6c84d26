/*!
What it costs to load a large file into memory and to use it there: `brisk lab load`.

A [`LoadLab`] measures each [`Way`] to load in each [`Case`], in random order. Each measurement is a process of
its own, or several that start at once (`crew`). The time ends when the parent has seen the process end, so that
work that a process leaves to the kernel counts as well. Every process reports the sum of the pages that it has
touched, and a wrong sum ends the experiment.

Before a run with a cold file, the lab proves that no page of it is in memory. With a warm file, it proves before
and after the run that all pages are in memory, and repeats a run that fails that.
*/

pub mod answers;
mod case;
mod crew;
pub mod page;
pub mod pages;
pub mod peers;
mod regret;
mod results;
mod room;
mod text;
pub mod worker;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brisk_terminal::messages::say;

pub use case::{Case, Dimensions, Giving, LeftOut, Shape, State, Touched, Way, Who, processors};
pub use pages::Grain;
pub use results::{LoadResults, LoadSettings};

use super::cells::megabytes;
use super::files::{ATTEMPTS, directory_on_disk, ensure_room, fill, is_warm, prepare};
use super::machine::Machine;
use super::read_ahead::{ReadAhead, device_of};
use super::reclaim;
use super::statistics::Spread;
use super::undo::{Undo, undoing};
use brisk::write_whole;
use crew::Outcome;
use peers::{Compared, Peers};
use results::{Counted, LoadRun};
use room::Room;
use worker::Job;

/// How long the main thread of a program computes while other threads use what it has loaded.
const WORK: Duration = Duration::from_millis(10);

/// Runs of each engine of another tool.
const PEER_RUNS: u32 = 3;

/// The file to load.
#[derive(Debug, Clone)]
pub enum Source {
    /// An existing file.
    File(PathBuf),
    /// Files of random bytes, of these lengths, that the lab makes in a directory.
    Made {
        lengths: Vec<u64>,
        directory: PathBuf,
    },
}

/// What to measure, and how.
#[derive(Debug)]
pub struct LoadLab {
    pub source: Source,
    pub ways: Vec<Way>,
    pub dimensions: Dimensions,
    pub grain: Grain,
    pub runs: u32,
    /// The directory for results.
    pub out: PathBuf,
    /// Seed of the orders, and of the pages that are touched at random.
    pub seed: u64,
    /// Shows no progress.
    pub quiet: bool,
}

/// The files to load, by length.
type Files = HashMap<u64, PathBuf>;

impl LoadLab {
    /// Measures everything. After every repetition, `load.json` holds the results so far.
    pub fn run(&self) -> Result<LoadResults> {
        let made = || {
            fs::create_dir_all(&self.out)?;
            self.out.canonicalize()
        };
        let out = made().with_context(|| format!("cannot make {}", self.out.display()))?;
        undoing(|undo| self.measure(&out, undo))
    }

    fn measure(&self, out: &Path, undo: &mut Undo) -> Result<LoadResults> {
        let (files, place) = self.files(undo)?;
        let disk = device_of(&place)?;
        let found = disk.as_deref().and_then(|disk| {
            fs::read_to_string(disk.join("queue/read_ahead_kb"))
                .ok()?
                .trim()
                .parse()
                .ok()
        });
        let mut results = LoadResults {
            brisk_lab_load: 1,
            brisk: env!("CARGO_PKG_VERSION").to_owned(),
            started: jiff::Timestamp::now().to_string(),
            machine: Machine::describe(&place, processors())?,
            disk: disk
                .as_deref()
                .and_then(Path::file_name)
                .map(|name| name.to_string_lossy().into_owned()),
            read_ahead_kib: found,
            read_ahead: Vec::new(),
            stopped: reclaim::stop(undo)?,
            settings: LoadSettings {
                runs: self.runs,
                seed: self.seed,
                ways: self.ways.clone(),
                grain: self.grain,
                file: match &self.source {
                    Source::File(file) => Some(file.clone()),
                    Source::Made { .. } => None,
                },
                work: steps_of(WORK),
            },
            cases: Vec::new(),
            counted: Vec::new(),
            runs: Vec::new(),
            left_out: Vec::new(),
            lost: 0,
            peers: Peers::default(),
        };
        let mut bytes: Vec<_> = files.keys().copied().collect();
        bytes.sort_unstable();
        for bytes in bytes {
            let (cases, left_out) = self.dimensions.cases(bytes);
            results.cases.extend(cases);
            results.left_out.extend(left_out);
        }
        if results.machine.filesystem == "tmpfs" {
            results.leave_out_cold(&place);
        }
        let mut measuring = Measuring {
            lab: self,
            files,
            sums: HashMap::new(),
            undo,
            read_ahead: HashMap::new(),
            results,
        };
        measuring.all(out)?;
        let mut results = measuring.results;
        results.write(out)?;
        if results.runs.is_empty() {
            let reason = results.left_out.pop();
            let reason = reason.map_or(String::new(), |left| {
                format!(": {}: {}", left.what, left.reason)
            });
            bail!("nothing could be measured{reason}");
        }
        Ok(results)
    }

    /// The files, by length, and their directory.
    fn files(&self, undo: &mut Undo) -> Result<(Files, PathBuf)> {
        let (lengths, directory) = match &self.source {
            Source::File(file) => {
                let file = file
                    .canonicalize()
                    .with_context(|| format!("cannot open {}", file.display()))?;
                let metadata = fs::metadata(&file)?;
                ensure!(metadata.is_file(), "{} is not a file", file.display());
                ensure!(
                    file.to_str().is_some(),
                    "the path {} is not UTF-8, and results can only hold UTF-8; give the file another name",
                    file.display()
                );
                ensure!(
                    metadata.len() > 0,
                    "{} is empty, so there is nothing to load",
                    file.display()
                );
                return Ok((Files::from([(metadata.len(), file.clone())]), file));
            }
            Source::Made { lengths, directory } => (lengths, directory),
        };
        let work = directory_on_disk(directory, "load-")?;
        undo.remove(&work)?;
        let needed = lengths
            .iter()
            .fold(0_u64, |sum, &len| sum.saturating_add(len));
        ensure_room(&work, needed)?;
        let mut files = Files::new();
        for &length in lengths {
            let path = work.join(length.to_string());
            fill(&path, length, self.seed)
                .with_context(|| format!("cannot make {}", path.display()))?;
            files.insert(length, path);
        }
        Ok((files, work))
    }
}

/// How many steps of work this processor does in `time` when it does nothing else.
fn steps_of(time: Duration) -> u64 {
    const STEPS: u64 = 1_000_000;
    let fastest = (0..5).map(|_| {
        let start = Instant::now();
        std::hint::black_box(worker::work(STEPS));
        start.elapsed()
    });
    let fastest = fastest.min().unwrap_or(time).max(Duration::from_micros(1));
    // Both times are short, so the product fits.
    (time.as_secs_f64() / fastest.as_secs_f64() * STEPS as f64) as u64
}

struct Measuring<'a> {
    lab: &'a LoadLab,
    files: Files,
    /// The expected sums of the touched pages.
    sums: HashMap<(u64, String), u64>,
    undo: &'a mut Undo,
    /// The read-ahead for each value in KiB.
    read_ahead: HashMap<u32, ReadAhead>,
    results: LoadResults,
}

impl Measuring<'_> {
    fn all(&mut self, out: &Path) -> Result<()> {
        let mut tasks = self.tasks()?;
        let mut rng = fastrand::Rng::with_seed(self.lab.seed);
        for repetition in 0..self.lab.runs {
            // Making a large file warm takes long, so the warm runs of a file follow each other.
            rng.shuffle(&mut tasks);
            for tasks in &mut tasks {
                rng.shuffle(tasks);
                if let Some(&(first, _)) = tasks.first() {
                    let (bytes, state) = self.results.cases[first].block();
                    let state = if state == State::Cold { "cold" } else { "warm" };
                    self.say(&format!(
                        "{}/{}: {} MB {state}, {} runs",
                        repetition + 1,
                        self.lab.runs,
                        megabytes(bytes),
                        tasks.len()
                    ));
                    let on_disk = self.results.machine.filesystem != "tmpfs";
                    if self.results.cases[first].state == State::Warm && on_disk {
                        // Read again, so that each run finds pages of the same sizes in the cache, whoever has read
                        // the file before.
                        let file = self.file(&self.results.cases[first])?;
                        prepare(file, State::Cold)?;
                        prepare(file, State::Warm)?;
                    }
                }
                for (place, &(case, way)) in tasks.iter().enumerate() {
                    self.run(case, way, repetition, place)
                        .with_context(|| format!("{}: {way}", self.results.cases[case]))?;
                }
            }
            self.results.read_ahead = self
                .read_ahead
                .values()
                .flat_map(ReadAhead::devices)
                .collect();
            self.results.write(out)?;
        }
        self.compare()
    }

    /// What can be measured, in blocks. One run of each counts its memory, and shows what is refused.
    fn tasks(&mut self) -> Result<Vec<Vec<(usize, Way)>>> {
        let mut blocks = BTreeMap::new();
        let room = Room::of_this_process();
        self.say("one run of each, to see what is refused and to count memory");
        for number in 0..self.results.cases.len() {
            let case = self.results.cases[number].clone();
            for &way in &self.lab.ways {
                let needed = case.memory(way);
                let full = room.as_ref().and_then(|room| room.reason_against(needed));
                if let Some(reason) = full {
                    self.leave_out(&case, way, reason);
                    continue;
                }
                if case.read_ahead_kib.is_some() && self.results.disk.is_none() {
                    let reason = "it is not on a disk whose read-ahead can be set".to_owned();
                    self.leave_out(&case, way, reason);
                    continue;
                }
                self.set_read_ahead(&case)?;
                let (job, sum) = self.job(&case, way, true)?;
                prepare(&job.file, case.state)?;
                let counted = crew::memory(&job, sum);
                match counted.with_context(|| format!("{case}: {way}"))? {
                    Outcome::Refused(reason) => self.leave_out(&case, way, reason),
                    Outcome::Done(counted) => {
                        let seen = counted.first().map(|(seen, _)| seen.clone());
                        self.results.counted.push(Counted {
                            case: number,
                            way,
                            taken: seen.as_ref().and_then(|seen| seen.taken.clone()),
                            reason: seen.as_ref().and_then(|seen| seen.reason.clone()),
                            refused: seen.map_or_else(Vec::new, |seen| seen.refused),
                            memory: counted.into_iter().map(|(_, memory)| memory).collect(),
                        });
                        let block: &mut Vec<_> = blocks.entry(case.block()).or_default();
                        block.push((number, way));
                    }
                }
            }
        }
        Ok(blocks.into_values().collect())
    }

    fn leave_out(&mut self, case: &Case, way: Way, reason: String) {
        let what = format!("{case}: {way}");
        self.results.left_out.push(LeftOut { what, reason });
    }

    /// The job of a process, and the sum that it must find.
    fn job(&mut self, case: &Case, way: Way, counts_memory: bool) -> Result<(Job, u64)> {
        let file = self.file(case)?.to_owned();
        let key = (case.bytes, case.touched.to_string());
        let sum = match (way, self.sums.get(&key)) {
            (Way::Nothing, _) => 0,
            (_, Some(sum)) => *sum,
            (_, None) => {
                let pages = pages::of(case.bytes, case.touched, self.lab.seed);
                let sum = pages::expected(&File::open(&file)?, &pages, self.lab.grain)?;
                self.sums.insert(key, sum);
                sum
            }
        };
        let job = Job {
            file,
            case: case.clone(),
            way,
            grain: self.lab.grain,
            seed: self.lab.seed,
            work: self.results.settings.work,
            counts_memory,
        };
        Ok((job, sum))
    }

    fn file(&self, case: &Case) -> Result<&Path> {
        let file = self
            .files
            .get(&case.bytes)
            .context("no file has this length")?;
        Ok(file)
    }

    fn set_read_ahead(&mut self, case: &Case) -> Result<()> {
        let Some(kib) = case.read_ahead_kib else {
            return Ok(());
        };
        let file = self.file(case)?.to_owned();
        let ahead = self
            .read_ahead
            .entry(kib)
            .or_insert_with(|| ReadAhead::new(kib));
        ahead.set(&file, self.undo)
    }

    fn run(&mut self, number: usize, way: Way, repetition: u32, place: usize) -> Result<()> {
        let case = self.results.cases[number].clone();
        self.set_read_ahead(&case)?;
        let (job, sum) = self.job(&case, way, false)?;
        for attempt in 1..=ATTEMPTS {
            prepare(&job.file, case.state)?;
            let run = match crew::run(&job, sum)? {
                Outcome::Done(run) => run,
                Outcome::Refused(reason) => {
                    bail!("it is now refused, but was not before: {reason}")
                }
            };
            if case.state == State::Warm && !is_warm(&job.file)? {
                continue;
            }
            let start = run
                .ended
                .iter()
                .map(|ended| ended.seen.start)
                .min()
                .unwrap_or(0);
            let seconds = |at: u64| Duration::from_nanos(at.saturating_sub(start)).as_secs_f64();
            let last = |value: fn(&crew::Ended) -> u64| {
                seconds(run.ended.iter().map(value).max().unwrap_or(start))
            };
            self.results.runs.push(LoadRun {
                case: number,
                way,
                repetition,
                place,
                attempt,
                taken: run.ended.first().and_then(|ended| ended.seen.taken.clone()),
                loaded_seconds: last(|ended| ended.seen.loaded),
                first_seconds: last(|ended| ended.seen.first),
                last_seconds: last(|ended| ended.seen.last),
                used_seconds: last(|ended| ended.seen.used),
                released_seconds: last(|ended| ended.seen.released),
                exit_seconds: last(|ended| ended.exit),
                cost: run.cost,
                each: run.ended.iter().map(|ended| seconds(ended.exit)).collect(),
            });
            return Ok(());
        }
        self.results.lost += 1;
        Ok(())
    }

    /// Measures other tools on the same files.
    fn compare(&mut self) -> Result<()> {
        let cases: Vec<_> = self.results.cases.iter().cloned().enumerate().collect();
        let base = cases
            .into_iter()
            .filter(|(_, case)| self.results.is_base(case));
        let base: Vec<_> = base.collect();
        let [fio, fincore] = ["fio", "fincore"].map(peers::missing);
        for (number, case) in base {
            self.set_read_ahead(&case)?;
            let file = self.file(&case)?.to_owned();
            prepare(&file, case.state)?;
            if fincore.is_none() {
                match peers::count(&file, case.bytes, case.state) {
                    Ok(counted) => self.results.peers.counted.push(counted),
                    Err(e) => self.results.left_out.push(LeftOut {
                        what: format!("{case}: fincore"),
                        reason: format!("{e:#}"),
                    }),
                }
            }
            if fio.is_some() {
                continue;
            }
            self.say(&format!("{case}: fio"));
            for (engine, ours) in peers::engines(case.state) {
                let mut seconds = Vec::new();
                for _ in 0..PEER_RUNS.min(self.lab.runs) {
                    prepare(&file, case.state)?;
                    match peers::fio(&file, &peers::words(case.bytes, engine), case.bytes) {
                        Ok(time) => seconds.push(time),
                        Err(e) => {
                            let what = format!("{case}: fio {}", engine.join(" "));
                            let reason = format!("{e:#}");
                            self.results.left_out.push(LeftOut { what, reason });
                            break;
                        }
                    }
                }
                if seconds.is_empty() {
                    continue;
                }
                let own = self.results.values(number, ours, |run| run.last_seconds);
                self.results.peers.compared.push(Compared {
                    bytes: case.bytes,
                    state: case.state,
                    engine: engine.iter().map(|word| (*word).to_owned()).collect(),
                    seconds,
                    ours,
                    ours_seconds: Spread::of(&own).map(|spread| spread.median),
                });
            }
        }
        self.results.peers.missing = [fio, fincore].into_iter().flatten().collect();
        Ok(())
    }

    fn say(&self, text: &str) {
        if !self.lab.quiet {
            say(text);
        }
    }
}

impl LoadResults {
    /// The tables, for people.
    pub fn text(&self) -> String {
        text::of(self)
    }

    /// Writes `load.json` in `out`, whole or not at all.
    pub fn write(&self, out: &Path) -> Result<()> {
        let mut text = serde_json::to_string(self)?;
        text.push('\n');
        write_whole(&text, &out.join("load.json"))
    }

    fn leave_out_cold(&mut self, place: &Path) {
        let cold = self.cases.iter().filter(|case| case.state == State::Cold);
        let reason = format!(
            "{} is in memory (tmpfs), where no file is ever cold",
            place.display()
        );
        let left_out: Vec<_> = cold
            .map(|case| LeftOut {
                what: case.to_string(),
                reason: reason.clone(),
            })
            .collect();
        self.left_out.extend(left_out);
        self.cases.retain(|case| case.state != State::Cold);
    }
}
