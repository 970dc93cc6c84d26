/*!
What thousands of small reads of one file cost: `brisk lab reads`.

A [`ReadsLab`] starts processes that read a file, each in one way ([`Reader`]), in random order. Before a run, no
page of the file is in memory, or every page is. Each process sums what it has read, and a wrong sum ends the
experiment. Allocations and system calls are counted in runs that are not timed, because counting costs more than
a read does.
*/

mod reader;
mod results;
mod text;

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use brisk_io::measure::try_io_uring;
use brisk_io::{ByteSource, Residency, page_size, residency};
use brisk_terminal::messages::say;
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

pub use results::{ReadsResults, is_of_reads, parse};
pub use text::draw;

use super::files::{ATTEMPTS, directory_on_disk, ensure_room, fill, is_warm, prepare};
use super::load::{LeftOut, State, peers, processors};
use super::machine::Machine;
use super::reclaim;
use super::undo::{Undo, undoing};
use brisk::write_whole;
use reader::{Places, Reader};
use results::{Counted, Peer, ReadRun, ReadsSettings, Setting, What};

/// How many reads a run makes whose system calls are counted. A traced read takes a hundred times as long.
const TRACED: usize = 500;

/// Percent of the pages that are not in memory in the mixed case.
const MISSING: usize = 5;

/// What to measure, and how.
#[derive(Debug)]
pub struct ReadsLab {
    pub reads: usize,
    /// Bytes of each read.
    pub size: usize,
    /// Length of the file whose pages are read at random.
    pub large: u64,
    /// How many reads are in progress at once, in cases with several.
    pub depth: usize,
    pub runs: u32,
    /// The directory for results.
    pub out: PathBuf,
    /// The directory for test files.
    pub dir: PathBuf,
    pub seed: u64,
    /// Shows no progress.
    pub quiet: bool,
}

/// How often reads are repeated that take only microseconds for thousands of them. The first round does not
/// count.
const SHORT_ROUNDS: u64 = 21;

/// The job of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Job {
    file: PathBuf,
    setting: Setting,
    reads: usize,
    size: usize,
    depth: usize,
    seed: u64,
    /// The sum that the process must find.
    sum: u64,
}

/// The result of a process.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    nanoseconds: f64,
    waited: u64,
}

impl Job {
    /// The positions to read. If pages of a file are read at random, each page is read once.
    fn offsets(&self, len: u64) -> Vec<u64> {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let unit = match self.setting.what {
            What::Small { .. } => self.size as u64,
            What::Mixed | What::Deep => page_size() as u64,
        };
        let mut slots: Vec<_> = (0..len / unit).collect();
        if !matches!(self.setting.what, What::Small { random: false }) {
            rng.shuffle(&mut slots);
        }
        let slots = slots.iter().cycle().take(self.reads);
        slots.map(|slot| slot * unit).collect()
    }
}

/// Runs `brisk-lab reads-worker`.
pub fn work(job: &str) -> Result<()> {
    let job: Job = serde_json::from_str(job).context("this is not a job of brisk lab reads")?;
    let offsets = job.offsets(fs::metadata(&job.file)?.len());
    let setting = job.setting;
    let places = Places {
        offsets: &offsets,
        size: job.size,
        rounds: match (setting.what, setting.state) {
            (What::Small { .. }, State::Warm) if setting.reader.is_short() => SHORT_ROUNDS,
            (What::Small { .. }, State::Warm) => 2,
            _ => 1,
        },
    };
    let threads = job.setting.threads;
    let barrier = Barrier::new(threads);
    let done = thread::scope(|scope| -> Result<Vec<_>> {
        let read = || {
            barrier.wait();
            reader::run(job.setting.reader, &job.file, places, job.depth)
        };
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
        let ended = started.into_iter().map(|thread| {
            let done = thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done.with_context(|| job.setting.reader.to_string())
        });
        ended.collect()
    })?;
    let mut seen = Seen {
        nanoseconds: 0.0,
        waited: 0,
    };
    for done in done {
        ensure!(
            done.sum == job.sum,
            "{}: the sum of the read bytes is {:#x}, but the file has {:#x}",
            job.setting.reader,
            done.sum,
            job.sum
        );
        // The set-up of a cold file, such as mapping it, reads from the disk too.
        let time = match job.setting.state {
            State::Cold => done.set_up + done.reads,
            State::Warm => done.reads,
        };
        seen.nanoseconds = seen
            .nanoseconds
            .max(time.as_secs_f64() * 1e9 / job.reads.max(1) as f64);
        seen.waited += done.waited;
    }
    serde_json::to_writer(io::stdout(), &seen)?;
    Ok(())
}

/// Runs `brisk-reads`: prints how many allocations a read of a job makes. It subtracts those of the same job
/// without reads.
pub fn count_allocations(job: &str, allocations: fn() -> usize) -> Result<()> {
    let job: Job = serde_json::from_str(job).context("this is not a job of brisk lab reads")?;
    let offsets = job.offsets(fs::metadata(&job.file)?.len());
    let count = |offsets: &[u64]| -> Result<usize> {
        let before = allocations();
        let places = Places {
            offsets,
            size: job.size,
            rounds: 1,
        };
        reader::run(job.setting.reader, &job.file, places, job.depth)?;
        Ok(allocations() - before)
    };
    // In the first run, the standard library allocates what it needs once.
    count(&offsets)?;
    let (without, with) = (count(&[])?, count(&offsets)?);
    let each = with.saturating_sub(without) as f64 / job.reads.max(1) as f64;
    println!("{each}");
    Ok(())
}

impl ReadsLab {
    /// Measures everything.
    pub fn run(&self) -> Result<ReadsResults> {
        undoing(|undo| self.measure(undo))
    }

    fn measure(&self, undo: &mut Undo) -> Result<ReadsResults> {
        fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make {}", self.out.display()))?;
        let work = directory_on_disk(&self.dir, "reads-")?;
        undo.remove(&work)?;
        let small = (self.reads * self.size).max(page_size()) as u64;
        let files = [work.join("small"), work.join("large")];
        ensure_room(&work, small.saturating_add(self.large))?;
        for (file, len) in files.iter().zip([small, self.large]) {
            fill(file, len, self.seed)
                .with_context(|| format!("cannot make {}", file.display()))?;
        }
        let no_uring = try_io_uring().err().map(|e| LeftOut {
            what: "io_uring".to_owned(),
            reason: format!("{e}; threads read instead"),
        });
        let mut results = ReadsResults {
            brisk_lab_reads: 1,
            brisk: env!("CARGO_PKG_VERSION").to_owned(),
            started: jiff::Timestamp::now().to_string(),
            machine: Machine::describe(&work, processors())?,
            stopped: reclaim::stop(undo)?,
            settings: ReadsSettings {
                reads: self.reads,
                size: self.size,
                large: self.large,
                depth: self.depth,
                runs: self.runs,
                seed: self.seed,
                short_rounds: SHORT_ROUNDS,
            },
            rows: Self::settings(),
            runs: Vec::new(),
            counted: Vec::new(),
            peers: Vec::new(),
            lost: 0,
            missing: no_uring.into_iter().collect(),
        };
        let jobs = self.jobs(&files, &results.rows)?;
        let mut peers = self.peers(&files)?;
        if let Some(missing) = peers::missing("fio") {
            results.missing.push(missing);
            peers.clear();
        }
        results.peers = peers.iter().map(PeerJob::without_runs).collect();
        let mut order: Vec<_> = (0..jobs.len() + peers.len()).collect();
        let mut rng = fastrand::Rng::with_seed(self.seed);
        for repetition in 0..self.runs {
            self.say(&format!(
                "{}/{}: {} rows",
                repetition + 1,
                self.runs,
                order.len()
            ));
            rng.shuffle(&mut order);
            for (place, &row) in order.iter().enumerate() {
                if let Some(peer) = row.checked_sub(jobs.len()) {
                    results.add_peer(peer, &mut peers[peer]);
                    continue;
                }
                match time(&jobs[row])? {
                    Some(seen) => results.runs.push(ReadRun {
                        row,
                        repetition,
                        place,
                        nanoseconds: seen.nanoseconds,
                        waited: seen.waited,
                    }),
                    None => results.lost += 1,
                }
            }
            results.write(&self.out)?;
        }
        self.count(&jobs, &mut results)?;
        results.peers.retain(|peer| !peer.nanoseconds.is_empty());
        results.write(&self.out)?;
        Ok(results)
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }

    /// All rows.
    fn settings() -> Vec<Setting> {
        let mut threads = vec![1, processors()];
        threads.dedup();
        let mut rows = Vec::new();
        for state in [State::Warm, State::Cold] {
            for random in [false, true] {
                for &threads in &threads {
                    let readers = Reader::IN_TURN.iter().map(|(reader, ..)| *reader);
                    let readers =
                        readers.filter(|reader| state == State::Warm || reader.is_of_file());
                    rows.extend(readers.map(|reader| Setting {
                        reader,
                        what: What::Small { random },
                        state,
                        threads,
                    }));
                }
            }
        }
        let more = [
            (Reader::AsyncFile, What::Mixed, State::Warm),
            (Reader::InThread, What::Mixed, State::Warm),
            (Reader::Pread, What::Mixed, State::Warm),
            (Reader::Queued, What::Deep, State::Cold),
            (Reader::Threads, What::Deep, State::Cold),
        ];
        rows.extend(more.map(|(reader, what, state)| Setting {
            reader,
            what,
            state,
            threads: 1,
        }));
        rows
    }

    fn jobs(&self, files: &[PathBuf; 2], rows: &[Setting]) -> Result<Vec<Job>> {
        let open = [File::open(&files[0])?, File::open(&files[1])?];
        let job = |setting: &Setting| {
            let number = usize::from(!matches!(setting.what, What::Small { .. }));
            let file = &open[number];
            let len = ByteSource::size(file)?;
            let pages = usize::try_from(len).unwrap_or(usize::MAX) / page_size();
            let mut job = Job {
                file: files[number].clone(),
                setting: *setting,
                reads: match setting.what {
                    What::Small { .. } => self.reads,
                    What::Mixed | What::Deep => self.reads.min(pages),
                },
                size: self.size,
                depth: self.depth,
                seed: self.seed,
                sum: 0,
            };
            let places = Places {
                offsets: &job.offsets(len),
                size: job.size,
                rounds: 1,
            };
            job.sum = reader::expected(file, places, setting.reader.grain())?;
            Ok(job)
        };
        rows.iter().map(job).collect()
    }

    /// Counts how many allocations and system calls the reads of the simplest setting make.
    fn count(&self, jobs: &[Job], results: &mut ReadsResults) -> Result<()> {
        let lab = env::current_exe().context("cannot find brisk-lab's own file")?;
        let counter = lab.with_file_name("brisk-reads");
        let strace = peers::missing("strace");
        if !counter.exists() {
            results.missing.push(LeftOut {
                what: "allocations".to_owned(),
                reason: format!("{} is not installed", counter.display()),
            });
        }
        results.missing.extend(strace.clone());
        let plain = |job: &&Job| {
            job.setting.what == What::Small { random: true }
                && job.setting.state == State::Warm
                && job.setting.threads == 1
        };
        self.say("counting allocations and system calls");
        for job in jobs.iter().filter(plain) {
            let allocations = match counter.exists() {
                true => Some(counted(Command::new(&counter), job)?),
                false => None,
            };
            let system_calls = match strace {
                None => traced(&lab, job),
                Some(_) => None,
            };
            if strace.is_none() && system_calls.is_none() {
                results.missing.push(LeftOut {
                    what: format!("system calls of {}", job.setting.reader),
                    reason: "strace cannot trace here".to_owned(),
                });
            }
            results.counted.push(Counted {
                reader: job.setting.reader,
                allocations,
                system_calls,
            });
        }
        Ok(())
    }

    /// The same reads by `fio`, one at a time and several at once.
    fn peers(&self, files: &[PathBuf; 2]) -> Result<Vec<PeerJob>> {
        let depth = format!("--iodepth={}", self.depth);
        let pages = usize::try_from(self.large).unwrap_or(usize::MAX) / page_size();
        let warm = |engine: &[&str]| (engine.join(" "), &files[0], State::Warm, self.reads);
        let all = [
            warm(&["--ioengine=io_uring", "--rw=read"]),
            warm(&["--ioengine=io_uring", "--rw=randread"]),
            warm(&["--ioengine=psync", "--rw=randread"]),
            (
                format!("--ioengine=io_uring --rw=randread {depth}"),
                &files[1],
                State::Cold,
                self.reads.min(pages),
            ),
        ];
        let jobs = all.into_iter().map(|(engine, file, state, reads)| {
            // A read of the disk always reads a whole page, so it does not matter how much is copied. But no
            // page may be read twice.
            let unit = match state {
                State::Cold => page_size(),
                State::Warm => self.size,
            };
            Ok(PeerJob {
                engine,
                len: fs::metadata(file)?.len(),
                file: file.clone(),
                state,
                deep: state == State::Cold,
                reads: reads as u64,
                unit: unit as u64,
                fails: false,
            })
        });
        jobs.collect()
    }
}

/// Reads of `fio` that are like those of a row.
struct PeerJob {
    /// Its arguments that say how to read.
    engine: String,
    file: PathBuf,
    len: u64,
    state: State,
    deep: bool,
    reads: u64,
    /// Bytes of one read.
    unit: u64,
    /// Whether `fio` has failed once. It is not tried again.
    fails: bool,
}

impl PeerJob {
    fn without_runs(&self) -> Peer {
        Peer {
            engine: self.engine.replace("--", ""),
            state: self.state,
            deep: self.deep,
            nanoseconds: Vec::new(),
        }
    }

    /// Nanoseconds of one read.
    fn time(&self) -> Result<f64> {
        prepare(&self.file, self.state)?;
        let Self {
            len, reads, unit, ..
        } = *self;
        let mut words: Vec<String> = self.engine.split(' ').map(str::to_owned).collect();
        words.extend([
            format!("--bs={unit}"),
            format!("--size={}", len / unit * unit),
            format!("--number_ios={reads}"),
        ]);
        words.push(match self.state {
            State::Warm => "--norandommap=1".to_owned(),
            // By default, fio reads the next block if it has read a random one before. The kernel sees
            // consecutive reads and reads ahead, which makes a twelfth fewer reads of the disk.
            State::Cold => "--random_generator=lfsr".to_owned(),
        });
        let seconds = peers::fio(&self.file, &words, reads.saturating_mul(unit))?;
        Ok(seconds * 1e9 / reads as f64)
    }
}

/// Runs a job in a process of its own. None if pages of a warm file left memory each time.
fn time(job: &Job) -> Result<Option<Seen>> {
    let lab = env::current_exe().context("cannot find brisk-lab's own file")?;
    for _ in 0..ATTEMPTS {
        match job.setting.what {
            What::Mixed if !mix(job)? => continue,
            What::Mixed => {}
            What::Small { .. } | What::Deep => prepare(&job.file, job.setting.state)?,
        }
        let seen = worker(&mut Command::new(&lab), job)?;
        let stayed = match (job.setting.what, job.setting.state) {
            (What::Small { .. }, State::Warm) => is_warm(&job.file)?,
            _ => true,
        };
        if stayed {
            return Ok(Some(seen));
        }
    }
    Ok(None)
}

fn worker(command: &mut Command, job: &Job) -> Result<Seen> {
    let output = command
        .arg("reads-worker")
        .arg(serde_json::to_string(job)?)
        .stdin(Stdio::null())
        .output()
        .context("cannot start a process that reads")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "a process that reads ended with {}: {}",
        output.status,
        said.trim()
    );
    serde_json::from_slice(&output.stdout)
        .context("a process that reads gave an answer of another form")
}

/// Brings all pages into memory that are read, except [`MISSING`] of a hundred. It reads them one by one,
/// because the kernel may drop pages only together if they were read together. Returns whether that worked:
/// within a hundredth of the reads, because pages also come and go by themselves.
fn mix(job: &Job) -> Result<bool> {
    prepare(&job.file, State::Cold)?;
    let file = File::open(&job.file)?;
    fadvise(&file, 0, None, Advice::Random)?;
    let offsets = job.offsets(file.metadata()?.len());
    let mut page = vec![0; page_size()];
    for (number, offset) in offsets.iter().enumerate() {
        if number % (100 / MISSING) != 0 {
            ByteSource::read_exact_bytes_at(&file, *offset, &mut page)?;
        }
    }
    let Residency::Pages { resident, .. } = residency(&file)? else {
        bail!(
            "the kernel does not say which pages of {} are in memory",
            job.file.display()
        );
    };
    let read = (offsets.len() - offsets.len().div_ceil(100 / MISSING)) as u64;
    Ok(resident.abs_diff(read) <= offsets.len() as u64 / 100)
}

/// The single number that a counter prints.
fn counted(mut counter: Command, job: &Job) -> Result<f64> {
    let output = counter
        .arg(serde_json::to_string(job)?)
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "brisk-reads: {}", said.trim());
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .context("brisk-reads did not print a number")
}

/// How many system calls one read makes. It subtracts those of a process without reads. None if `strace`
/// cannot trace here.
fn traced(tools: &Path, job: &Job) -> Option<f64> {
    let calls = |reads: usize| -> Option<f64> {
        let list = tempfile::NamedTempFile::new().ok()?;
        // The sum of the reads of this shorter job.
        let file = File::open(&job.file).ok()?;
        let mut job = Job {
            reads,
            ..job.clone()
        };
        let places = Places {
            offsets: &job.offsets(ByteSource::size(&file).ok()?),
            size: job.size,
            rounds: 1,
        };
        job.sum = reader::expected(&file, places, job.setting.reader.grain()).ok()?;
        let mut strace = Command::new("strace");
        strace.args(["-f", "-c", "-o"]).arg(list.path()).arg(tools);
        worker(&mut strace, &job).ok()?;
        total_of(&fs::read_to_string(list.path()).ok()?)
    };
    let reads = job.reads.min(TRACED);
    // A warm job reads everything twice.
    Some((calls(reads)? - calls(0)?).max(0.0) / (2 * reads) as f64)
}

/// The sum of the calls in the output of `strace -c`: the fourth number of each line between two lines of
/// dashes. The line of the total differs between versions, so it is not used.
fn total_of(table: &str) -> Option<f64> {
    let is_rule = |line: &&str| line.starts_with("---");
    let mut lines = table.lines();
    lines.find(is_rule)?;
    let calls = lines.take_while(|line| !is_rule(line)).map(|line| {
        let calls = line.split_ascii_whitespace().nth(3)?;
        calls.parse::<f64>().ok()
    });
    calls.sum()
}

impl ReadsResults {
    /// Lets `fio` run the job with this number once.
    fn add_peer(&mut self, number: usize, job: &mut PeerJob) {
        if job.fails {
            return;
        }
        match job.time() {
            Ok(nanoseconds) => self.peers[number].nanoseconds.push(nanoseconds),
            Err(e) => {
                job.fails = true;
                self.missing.push(LeftOut {
                    what: format!("fio {}", self.peers[number].engine),
                    reason: format!("{e:#}"),
                });
            }
        }
    }

    /// Writes `reads.json` in `out`, whole or not at all.
    pub fn write(&self, out: &Path) -> Result<()> {
        let mut text = serde_json::to_string(self)?;
        text.push('\n');
        write_whole(&text, &out.join("reads.json"))
    }

    /// The tables, for people.
    pub fn text(&self) -> String {
        text::of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_summed() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ----------------\n \
                     60.00    0.000003           0        10         1 read\n \
                     40.00    0.000002           0         7           open\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     100.00    0.000005                    17         1 total\n";
        assert_eq!(total_of(table), Some(17.0));
        assert_eq!(total_of("no table"), None);
    }

    #[test]
    fn places_are_in_the_file() {
        let job = |what, reads| Job {
            file: PathBuf::new(),
            setting: Setting {
                reader: Reader::Pread,
                what,
                state: State::Warm,
                threads: 1,
            },
            reads,
            size: 100,
            depth: 1,
            seed: 1,
            sum: 0,
        };
        assert_eq!(
            job(What::Small { random: false }, 3).offsets(1000),
            [0, 100, 200]
        );
        let mut random = job(What::Small { random: true }, 10).offsets(1000);
        assert_ne!(random, (0..10).map(|n| n * 100).collect::<Vec<_>>());
        random.sort_unstable();
        assert_eq!(random, (0..10).map(|n| n * 100).collect::<Vec<_>>());
        let page = page_size() as u64;
        let pages = job(What::Deep, 4).offsets(4 * page);
        assert!(
            pages.iter().all(|at| at % page == 0) && pages.len() == 4,
            "{pages:?}"
        );
    }
}
