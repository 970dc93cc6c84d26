//! A process that loads a file in one way, uses it, gives it back, and ends.
//!
//! It says on standard output when it is ready, waits for the start, and at the end prints what it has
//! measured. All processes of a run wait at one pipe, which is their standard input.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use brisk_io::measure::load_as;
use brisk_io::{ByteSource, ImmutableFile, Loaded, Mapping, guard_mappings, load};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::{Deserialize, Serialize};

use super::case::{Case, Giving, Shape, Way, Who};
use super::pages::{self, Grain};

/// How much another thread maps and unmaps while the others fault.
const MAPPED_BESIDE: u64 = 64 << 10;

/// The job of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    pub file: PathBuf,
    pub case: Case,
    pub way: Way,
    pub grain: Grain,
    /// Seed for the pages that are touched at random.
    pub seed: u64,
    /// Steps of the main thread's own work, while others touch pages.
    pub work: u64,
    /// Whether to count the memory. The process then starts without waiting, and waits before it gives the
    /// memory back.
    pub counts_memory: bool,
}

/// What a process has measured. Times are nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Seen {
    pub start: u64,
    /// When the file was loaded.
    pub loaded: u64,
    /// When the first page was touched.
    pub first: u64,
    /// When the last page was touched.
    pub last: u64,
    /// When the main thread's own work was done too.
    pub used: u64,
    /// When the memory was given back, if that is before the end.
    pub released: u64,
    pub sum: u64,
    /// The strategy that was used, why, and those that were refused before it.
    pub taken: Option<String>,
    pub reason: Option<String>,
    pub refused: Vec<String>,
    /// What it had cost before the start.
    pub before: Cost,
    pub memory: Option<Memory>,
}

/// What a process costs in time of the processor and in page faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub minor_faults: i64,
    pub major_faults: i64,
}

impl Cost {
    /// Of this process, or of those that it has waited for.
    pub fn of(who: UsageWho) -> Result<Self> {
        let usage: Usage = getrusage(who).context("cannot ask what was used")?;
        let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        Ok(Self {
            user_seconds: seconds(usage.user_time()),
            system_seconds: seconds(usage.system_time()),
            minor_faults: usage.minor_page_faults(),
            major_faults: usage.major_page_faults(),
        })
    }

    /// What was added since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            user_seconds: self.user_seconds - before.user_seconds,
            system_seconds: self.system_seconds - before.system_seconds,
            minor_faults: self.minor_faults - before.minor_faults,
            major_faults: self.major_faults - before.major_faults,
        }
    }
}

/// Memory in KiB while the file is loaded, from `/proc/self/smaps_rollup`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub resident_kib: u64,
    /// Its share: a page of several processes is divided among them.
    pub proportional_kib: u64,
    pub shared_kib: u64,
    pub private_kib: u64,
}

impl Memory {
    /// The memory of several processes together. Resident and shared pages count for each of them.
    pub fn sum(all: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
        Self {
            resident_kib: sum(|one| one.resident_kib),
            proportional_kib: sum(|one| one.proportional_kib),
            shared_kib: sum(|one| one.shared_kib),
            private_kib: sum(|one| one.private_kib),
        }
    }

    fn of_this_process() -> Result<Self> {
        let path = "/proc/self/smaps_rollup";
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        let field = |name: &str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
            number.with_context(|| format!("{path} has no number at {name}"))
        };
        Ok(Self {
            resident_kib: field("Rss:")?,
            proportional_kib: field("Pss:")?,
            shared_kib: field("Shared_Clean:")? + field("Shared_Dirty:")?,
            private_kib: field("Private_Clean:")? + field("Private_Dirty:")?,
        })
    }
}

/// The answer of a process at its end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    Seen(Box<Seen>),
    /// The way is refused here, for this reason.
    Refused(String),
}

/// Nanoseconds of the monotonic clock, which is the same in all processes.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither is negative.
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// A program's own work: this many steps, and each needs the result of the one before.
pub fn work(steps: u64) -> u64 {
    let mut value = 1_u64;
    for _ in 0..steps {
        value = black_box(
            value
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
        );
    }
    value
}

/// Runs `brisk-lab load-worker`.
pub fn run(job: &str) -> Result<()> {
    let job: Job = serde_json::from_str(job).context("this is not a job of brisk lab load")?;
    let file =
        File::open(&job.file).with_context(|| format!("cannot open {}", job.file.display()))?;
    // If the file is truncated meanwhile, that is an error: see `Loaded::check`.
    guard_mappings()?;
    let found = file.metadata()?.len();
    ensure!(
        found == job.case.bytes,
        "{} has {found} bytes, but had {}",
        job.file.display(),
        job.case.bytes
    );
    let pages = match job.way {
        Way::Nothing => Vec::new(),
        _ => pages::of(found, job.case.touched, job.seed),
    };
    let mut out = io::stdout();
    out.write_all(b"ready\n")?;
    out.flush()?;
    // A run that is not timed need not start together with others.
    if !job.counts_memory {
        wait()?;
    }
    let said = match measure(&job, &file, &pages)? {
        Measured::Refused(reason) => Said::Refused(reason),
        Measured::Seen { mut seen, loaded } if job.counts_memory => {
            seen.memory = Some(Memory::of_this_process()?);
            say(&Said::Seen(seen))?;
            wait()?;
            drop(loaded);
            return Ok(());
        }
        Measured::Seen { mut seen, loaded } => {
            match job.case.release {
                Giving::Skip => std::mem::forget(loaded),
                Giving::Unmap | Giving::Parallel => drop(loaded),
            }
            seen.released = now();
            Said::Seen(seen)
        }
    };
    say(&said)
}

fn say(said: &Said) -> Result<()> {
    let mut text = serde_json::to_vec(said)?;
    text.push(b'\n');
    let mut out = io::stdout();
    out.write_all(&text)?;
    Ok(out.flush()?)
}

/// Waits until the pipe has no writer left.
fn wait() -> Result<()> {
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(())
}

enum Measured {
    Refused(String),
    Seen {
        seen: Box<Seen>,
        loaded: Option<Loaded>,
    },
}

fn measure(job: &Job, file: &File, pages: &[u64]) -> Result<Measured> {
    let before = Cost::of(UsageWho::RUSAGE_SELF)?;
    let (bytes, need) = (0..job.case.bytes, job.case.need());
    let start = now();
    let loaded = match job.way {
        Way::As(strategy) => Some(load_as(strategy, &immutable(file)?, bytes, need)),
        Way::Chosen => Some(load(&immutable(file)?, bytes, need)),
        Way::Nothing => None,
    };
    let at = now();
    let mut loaded = match loaded.transpose() {
        Ok(loaded) => loaded,
        Err(e) => return Ok(Measured::Refused(e.to_string())),
    };
    let touches = Touches { job, pages };
    let (touched, used) = match &mut loaded {
        Some(loaded) => touches.all(loaded)?,
        None => {
            let nothing = Touched {
                sum: 0,
                first: at,
                last: at,
            };
            (nothing, at)
        }
    };
    if let Some(loaded) = &loaded {
        loaded.check()?;
    }
    let seen = Seen {
        start,
        loaded: at,
        first: touched.first,
        last: touched.last,
        used,
        released: used,
        sum: touched.sum,
        taken: loaded.as_ref().map(|loaded| loaded.strategy().to_string()),
        reason: loaded.as_ref().map(|loaded| loaded.reason().to_string()),
        refused: loaded
            .iter()
            .flat_map(Loaded::refused)
            .map(|(way, e)| format!("{way}: {e}"))
            .collect(),
        before,
        memory: None,
    };
    Ok(Measured::Seen {
        seen: Box::new(seen),
        loaded,
    })
}

/// The result of touching pages.
#[derive(Debug, Clone, Copy)]
struct Touched {
    sum: u64,
    first: u64,
    last: u64,
}

impl Touched {
    /// Adds what another thread has touched.
    fn and(self, other: Self) -> Self {
        Self {
            sum: self.sum.wrapping_add(other.sum),
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// Touches pages, in the threads that the case names.
struct Touches<'a> {
    job: &'a Job,
    pages: &'a [u64],
}

impl Touches<'_> {
    /// Touches all of them. The time is when the main thread has nothing more to do.
    fn all(&self, loaded: &mut Loaded) -> Result<(Touched, u64)> {
        let case = &self.job.case;
        if case.form == Shape::Patched {
            let bytes = loaded
                .as_mut_slice()
                .context("what was loaded cannot be patched")?;
            return match case.by {
                Who::Caller => Ok((patch(bytes, self.pages, self.job.grain), now())),
                Who::Others => thread::scope(|scope| {
                    let other = scope.spawn(|| patch(bytes, self.pages, self.job.grain));
                    work(self.job.work);
                    Ok((joined(other), now()))
                }),
            };
        }
        let bytes = loaded.as_slice();
        if case.by == Who::Caller && case.faulting == 0 {
            return Ok((self.touch(bytes, self.pages), now()));
        }
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let end = EndOnDrop(&over);
            let beside = (case.faulting > 0).then(|| scope.spawn(|| map_and_unmap(&over)));
            let threads = case.faulting.max(1);
            let mut parts = self.pages.chunks(self.pages.len().div_ceil(threads).max(1));
            let own = match case.by {
                Who::Caller => parts.next(),
                Who::Others => None,
            };
            let others: Vec<_> = parts
                .map(|part| scope.spawn(|| self.touch(bytes, part)))
                .collect();
            if case.by == Who::Others {
                work(self.job.work);
            }
            let own = own.map(|part| self.touch(bytes, part));
            let touched = others.into_iter().map(joined).chain(own);
            let touched = touched.reduce(Touched::and).context("nothing is touched")?;
            let used = now();
            drop(end);
            beside.map_or(Ok(()), joined)?;
            Ok((touched, used))
        })
    }

    /// Reads or copies pages.
    fn touch(&self, bytes: &[u8], pages: &[u64]) -> Touched {
        let grain = self.job.grain;
        let mut room = vec![0; brisk_io::page_size()];
        let copies = self.job.case.form == Shape::Copied;
        let mut touch = |number: &u64| {
            let page = &bytes[pages::place(*number, bytes.len())];
            if !copies {
                return pages::sum(*number, page, grain);
            }
            let room = &mut room[..page.len()];
            room.copy_from_slice(page);
            pages::sum(*number, black_box(room), grain)
        };
        timed(pages, &mut touch)
    }
}

/// Reads each page, and writes its first word.
fn patch(bytes: &mut [u8], pages: &[u64], grain: Grain) -> Touched {
    let mut patch = |number: &u64| {
        let place = pages::place(*number, bytes.len());
        let page = &mut bytes[place];
        let sum = pages::sum(*number, page, grain);
        if let Some(word) = page.first_chunk_mut() {
            *word = (!u64::from_le_bytes(*word)).to_le_bytes();
        }
        sum
    };
    timed(pages, &mut patch)
}

/// Touches all of `pages`, and records when the first was touched.
fn timed(pages: &[u64], touch: &mut dyn FnMut(&u64) -> u64) -> Touched {
    let sum_of = |touch: &mut dyn FnMut(&u64) -> u64, pages: &[u64]| {
        pages
            .iter()
            .fold(0_u64, |sum, page| sum.wrapping_add(touch(page)))
    };
    let (head, rest) = pages.split_at(pages.len().min(1));
    let sum = sum_of(touch, head);
    let first = now();
    let sum = sum.wrapping_add(sum_of(touch, rest));
    Touched {
        sum,
        first,
        last: now(),
    }
}

/// The same file, as one that can be mapped.
fn immutable(file: &File) -> io::Result<ImmutableFile> {
    let file = file.try_clone()?;
    // SAFETY: the lab has made the file in a directory of its own, and writes to it no more when it starts workers.
    Ok(unsafe { ImmutableFile::new(file) })
}

/// Sets the flag when it is dropped, also after a failure. Otherwise nobody would end the other thread.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What another thread of the program does meanwhile.
fn map_and_unmap(over: &AtomicBool) -> Result<()> {
    let file = File::open("/proc/self/exe")?;
    while !over.load(Ordering::Relaxed) {
        let mapping = Mapping::of(&file, 0..MAPPED_BESIDE)?;
        let mut byte = [0];
        mapping.read_bytes_at(0, &mut byte)?;
        black_box(byte);
    }
    Ok(())
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
