//! A process that does one job with a store, checks what it reads, and prints what it took.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::syncfs;
use serde::{Deserialize, Serialize};

use super::data::{Key, ends, key, rows, value, wanted};
use super::store::{Opening, Purpose, Store, StoreKind};
use crate::jobs::{READY, Spent, Values, monotonic};

/// How often all keys are read in a timed run, and for how long at least. The first round does not count.
const ROUNDS: usize = 11;
const LONG_ENOUGH: Duration = Duration::from_millis(150);

/// Room for the times of rounds, so that making it is no part of them.
const TIMES: usize = 1 << 16;

/// What a process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The name of the kind of store.
    pub store: String,
    pub directory: PathBuf,
    pub work: Work,
    /// How many entries the store has.
    pub entries: u64,
    /// Bytes of each value. Tables have their own size.
    pub len: usize,
    pub durable: bool,
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Makes the store.
    Fill,
    /// Makes the store, with tables.
    FillTables,
    /// Opens the store, and gets one value.
    Open,
    /// Gets so many values, at random, again and again.
    Get { keys: u64, rounds: usize },
    /// Opens the store, and looks for a name in each table.
    Tables,
    /// Looks for a name in each table, again and again. The first round does not count.
    TablesAgain { rounds: usize },
    /// Replaces so many values at random.
    Update { times: u64 },
    /// Opens the store, reads all values once, says [`READY`], reads a time of the monotonic clock from its input, and
    /// gets values at random from then on, for so long.
    Serve { milliseconds: u64 },
}

impl Job {
    /// How many operations [`Worker::since`] divides by, if the job is too short to repeat rounds.
    pub fn operations(&self) -> u64 {
        match self.work {
            Work::Open => 1,
            Work::Get { keys, rounds } => keys.min(self.entries).saturating_mul(rounds as u64),
            Work::Update { times } => times,
            Work::TablesAgain { rounds } => self.entries.saturating_mul(rounds as u64),
            _ => self.entries,
        }
    }
}

/// Does the job in JSON, and returns what it took. `allocations` counts those of Rust in this process.
pub fn work(job: &str, kinds: &[StoreKind], allocations: Option<fn() -> usize>) -> Result<Values> {
    let job: Job = serde_json::from_str(job).context("this is no job")?;
    let kind = kinds.iter().find(|kind| kind.name == job.store);
    let kind = kind.with_context(|| format!("there is no store {}", job.store))?;
    let worker = Worker {
        kind,
        allocations,
        job: &job,
    };
    let done = match job.work {
        Work::Fill | Work::FillTables => worker.fill(),
        Work::Open => worker.open_and_get(),
        Work::Get { keys, rounds } => worker.get(keys, rounds),
        Work::Tables => worker.tables(),
        Work::TablesAgain { rounds } => worker.tables_again(rounds),
        Work::Update { times } => worker.update(times),
        Work::Serve { milliseconds } => worker.serve(Duration::from_millis(milliseconds)),
    };
    done.with_context(|| format!("{}: {:?}", job.store, job.work))
}

struct Worker<'a> {
    kind: &'a StoreKind,
    allocations: Option<fn() -> usize>,
    job: &'a Job,
}

impl Worker<'_> {
    fn open(&self) -> Result<Box<dyn Store>> {
        let job = self.job;
        let len = match job.work {
            Work::FillTables | Work::Tables | Work::TablesAgain { .. } => 100_000,
            _ => job.len as u64 + 200,
        };
        let opening = Opening {
            purpose: match job.work {
                Work::Fill | Work::FillTables => Purpose::Fill,
                Work::Update { .. } => Purpose::Update,
                _ => Purpose::Read,
            },
            durable: job.durable,
            bytes: job.entries.saturating_mul(len),
        };
        let mut store = (self.kind.open)(&job.directory, opening)?;
        if job.store == "memory" && !matches!(job.work, Work::Fill | Work::FillTables) {
            self.fill_store(&mut *store)?;
        }
        Ok(store)
    }

    fn spent(&self) -> Result<Spent> {
        Spent::now(self.allocations)
    }

    fn fill(&self) -> Result<Values> {
        let mut store = self.open()?;
        let started = Instant::now();
        self.fill_store(&mut *store)?;
        Ok(Values::from([(
            "seconds".to_owned(),
            started.elapsed().as_secs_f64(),
        )]))
    }

    fn fill_store(&self, store: &mut dyn Store) -> Result<()> {
        let job = self.job;
        let numbers = 0..job.entries;
        if job.work == Work::FillTables {
            let mut tables = Vec::new();
            for n in numbers {
                tables.push((key(n), store.table(&mut rows(n))?));
            }
            return store.fill(&mut tables.into_iter());
        }
        store.fill(&mut numbers.map(|n| (key(n), value(n, 0, job.len))))
    }

    /// A key at random, with the sum of its value.
    fn one(&self) -> (u64, u64) {
        let n = fastrand::Rng::with_seed(self.job.seed).u64(0..self.job.entries);
        (n, ends(&value(n, 0, self.job.len)))
    }

    fn open_and_get(&self) -> Result<Values> {
        let (n, expected) = self.one();
        let key = key(n);
        let mut sum = 0;
        let before = self.spent()?;
        let started = Instant::now();
        let store = self.open()?;
        let found = store.get(&key, &mut |value| sum = ends(value))?;
        let elapsed = started.elapsed();
        let mut values = before.since(1)?;
        ensure!(
            found && sum == expected,
            "found another value than was stored"
        );
        values.insert("ns".to_owned(), elapsed.as_secs_f64() * 1e9);
        Ok(values)
    }

    /// Keys at random, with the sum of all their values.
    fn keys(&self, count: u64) -> (Vec<(u64, Key)>, u64) {
        let mut rng = fastrand::Rng::with_seed(self.job.seed);
        let mut numbers: Vec<u64> = match count < self.job.entries {
            true => (0..count).map(|_| rng.u64(0..self.job.entries)).collect(),
            false => (0..self.job.entries).collect(),
        };
        rng.shuffle(&mut numbers);
        let sums = numbers.iter().map(|&n| ends(&value(n, 0, self.job.len)));
        let sum = sums.fold(0, u64::wrapping_add);
        (numbers.into_iter().map(|n| (n, key(n))).collect(), sum)
    }

    fn get(&self, count: u64, rounds: usize) -> Result<Values> {
        let (keys, expected) = self.keys(count);
        let keys_only: Vec<Key> = keys.iter().map(|&(_, key)| key).collect();
        let store = self.open()?;
        let round = || -> Result<Duration> {
            let mut sum = 0u64;
            let started = Instant::now();
            for key in &keys_only {
                let found = store.get(black_box(key), &mut |value| {
                    sum = sum.wrapping_add(ends(value));
                })?;
                ensure!(found, "a value is missing");
            }
            let elapsed = started.elapsed();
            ensure!(sum == expected, "found other values than were stored");
            Ok(elapsed)
        };
        let each = |time: Duration| time.as_secs_f64() * 1e9 / keys_only.len().max(1) as f64;
        let mut values = Values::new();
        if rounds > 0 {
            values.insert("first_ns".to_owned(), each(round()?));
        }
        // Every byte, once.
        for (n, key) in keys.iter().take(if rounds > 0 { usize::MAX } else { 0 }) {
            let expected = value(*n, 0, self.job.len);
            let mut same = false;
            store.get(key, &mut |value| same = *value == expected)?;
            ensure!(same, "the value of entry {n} is not what was stored");
        }
        let mut times = Vec::with_capacity(TIMES);
        let before = self.spent()?;
        while times.len() < rounds || (rounds > 2 && before.at.elapsed() < LONG_ENOUGH) {
            times.push(each(round()?));
        }
        let gets = times.len() as u64 * keys_only.len() as u64;
        values.extend(before.since(gets)?);
        times.sort_by(f64::total_cmp);
        if let Some(&median) = times.get(times.len() / 2) {
            values.insert("ns".to_owned(), median);
        }
        Ok(values)
    }

    fn tables(&self) -> Result<Values> {
        let wanted = self.wanted();
        let before = self.spent()?;
        let started = Instant::now();
        let store = self.open()?;
        look_up_all(&*store, &wanted)?;
        let elapsed = started.elapsed();
        let mut values = before.since(self.job.entries)?;
        values.insert("seconds".to_owned(), elapsed.as_secs_f64());
        Ok(values)
    }

    /// What to look for in each table, in a random order.
    fn wanted(&self) -> Vec<(Key, Wanted)> {
        let mut numbers: Vec<u64> = (0..self.job.entries).collect();
        fastrand::Rng::with_seed(self.job.seed).shuffle(&mut numbers);
        numbers.iter().map(|&n| (key(n), wanted(n))).collect()
    }

    fn tables_again(&self, rounds: usize) -> Result<Values> {
        let wanted = self.wanted();
        let store = self.open()?;
        look_up_all(&*store, &wanted)?;
        let mut times = Vec::with_capacity(TIMES);
        let before = self.spent()?;
        while times.len() < rounds {
            let started = Instant::now();
            look_up_all(&*store, &wanted)?;
            times.push(started.elapsed().as_secs_f64());
        }
        let mut values = before.since(self.job.operations())?;
        times.sort_by(f64::total_cmp);
        if let Some(&median) = times.get(times.len() / 2) {
            values.insert("seconds".to_owned(), median);
        }
        Ok(values)
    }

    fn update(&self, times: u64) -> Result<Values> {
        let job = self.job;
        let mut rng = fastrand::Rng::with_seed(job.seed);
        let updates: Vec<_> = (1..=times)
            .map(|round| {
                let n = rng.u64(0..job.entries);
                (n, key(n), value(n, round ^ job.seed, job.len))
            })
            .collect();
        let mut store = self.open()?;
        let directory = File::open(&job.directory)?;
        syncfs(&directory)?;
        let (wrote, device) = (written()?, device_bytes(&job.directory));
        let before = self.spent()?;
        let started = Instant::now();
        for (_, key, value) in &updates {
            store.put(key, value)?;
        }
        let elapsed = started.elapsed();
        let mut values = before.since(times)?;
        let wrote = written()?.saturating_sub(wrote);
        syncfs(&directory)?;
        let each = |whole: f64| whole / times.max(1) as f64;
        if let (Some(before), Some(after)) = (device, device_bytes(&job.directory)) {
            let bytes = after.saturating_sub(before);
            values.insert("device".to_owned(), each(bytes as f64));
        }
        values.insert("wchar".to_owned(), each(wrote as f64));
        values.insert("ns".to_owned(), each(elapsed.as_secs_f64() * 1e9));
        let last: BTreeMap<_, _> = updates
            .iter()
            .map(|(n, key, value)| (n, (key, value)))
            .collect();
        for (key, expected) in last.into_values() {
            let mut same = false;
            store.get(key, &mut |value| same = value == &expected[..])?;
            ensure!(same, "an update is not found");
        }
        Ok(values)
    }

    fn serve(&self, long: Duration) -> Result<Values> {
        let (keys, expected) = self.keys(self.job.entries);
        let keys: Vec<Key> = keys.into_iter().map(|(_, key)| key).collect();
        let store = self.open()?;
        let round = || -> Result<()> {
            let mut sum = 0u64;
            for key in &keys {
                store.get(black_box(key), &mut |value| {
                    sum = sum.wrapping_add(ends(value));
                })?;
            }
            ensure!(sum == expected, "found other values than were stored");
            Ok(())
        };
        round()?;
        let mut out = io::stdout();
        writeln!(out, "{READY}")?;
        out.flush()?;
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        let start: u64 = line.trim().parse().context("found no time to begin at")?;
        let early = start.saturating_sub(monotonic());
        thread::sleep(Duration::from_nanos(early));
        let before = self.spent()?;
        let started = Instant::now();
        let mut rounds = 0u64;
        while started.elapsed() < long {
            round()?;
            rounds += 1;
        }
        let elapsed = started.elapsed();
        let gets = rounds.saturating_mul(keys.len() as u64);
        let mut values = before.since(gets)?;
        let each = gets as f64 / elapsed.as_secs_f64();
        values.insert("per_second".to_owned(), each);
        Ok(values)
    }
}

/// A name in a table, and the number beside it.
type Wanted = (String, u64);

/// Looks for a name in each table.
fn look_up_all(store: &dyn Store, wanted: &[(Key, Wanted)]) -> Result<()> {
    for (key, (name, number)) in wanted {
        let found = store.look_up(key, name)?;
        ensure!(
            found == Some(*number),
            "found {found:?}, not {number}, beside {name}"
        );
    }
    Ok(())
}

/// Rounds of a timed run.
pub fn rounds() -> usize {
    ROUNDS
}

/// Bytes that this process has given to write calls.
fn written() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io").context("the kernel does not count bytes")?;
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    Ok(line.context("/proc/self/io has no wchar")?.parse()?)
}

/// Bytes that all processes have written to the device below a directory. None if the system counts none.
fn device_bytes(directory: &Path) -> Option<u64> {
    let device = fs::metadata(directory).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = text.split_ascii_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * 512)
}
