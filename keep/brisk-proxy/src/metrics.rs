//! What the proxy has done, in numbers.
//!
//! Each worker counts for itself, and writes its [`Snapshot`] to a file of its own whenever it has changed. Who is asked
//! writes its own file first, and adds all files up. A worker that takes the place of another one goes on from its file, so no
//! number that was shown falls.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};

/// How often a worker writes its numbers, if they have changed.
pub const WRITE_EVERY: Duration = Duration::from_millis(200);

/// The bounds of the histogram of upstreams' times, in seconds.
pub const BOUNDS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The most upstreams that are told apart. Indexes can name any number of hosts.
const MOST_UPSTREAMS: usize = 64;

/// The name under which the others are counted.
const OTHERS: &str = "others";

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The cache had the answer.
    Hit,
    /// An upstream said that the answer of the cache holds.
    Revalidated,
    /// The cache had an answer that is no longer fresh, and it stood in for an upstream.
    Stale,
    /// An upstream gave the answer.
    Miss,
    /// The proxy gave the answer: one of its own pages.
    Own,
    /// The proxy refused the request.
    Refused,
    /// No upstream gave an answer.
    Failed,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 7] = [
        Self::Hit,
        Self::Revalidated,
        Self::Stale,
        Self::Miss,
        Self::Own,
        Self::Refused,
        Self::Failed,
    ];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Revalidated => "revalidated",
            Self::Stale => "stale",
            Self::Miss => "miss",
            Self::Own => "own",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Numbers of one upstream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UpstreamNumbers {
    /// Answers and failures, by the class of the status (2 for 200 to 299); 0 for failures.
    pub answers: BTreeMap<u16, u64>,
    /// How many answers took at most as long as each of [`BOUNDS`], but longer than the one before.
    pub buckets: [u64; BOUNDS.len()],
    /// How many took longer.
    pub slower: u64,
    /// The sum of all times, in microseconds.
    pub microseconds: u64,
}

impl UpstreamNumbers {
    /// The number of answers and failures.
    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .fold(self.slower, |sum, count| sum.saturating_add(*count))
    }

    fn add(&mut self, other: &Self) {
        for (class, count) in &other.answers {
            increase(self.answers.entry(*class).or_default(), *count);
        }
        for (own, count) in self.buckets.iter_mut().zip(other.buckets) {
            increase(own, count);
        }
        increase(&mut self.slower, other.slower);
        increase(&mut self.microseconds, other.microseconds);
    }
}

/// All numbers at one time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Requests by what came of them.
    pub requests: BTreeMap<Outcome, u64>,
    /// Bytes of bodies that clients got.
    pub sent: u64,
    /// Bytes of bodies that clients got from the cache.
    pub saved: u64,
    /// Bytes of bodies that upstreams sent.
    pub fetched: u64,
    /// By host.
    pub upstreams: BTreeMap<String, UpstreamNumbers>,
    /// Index pages that were rewritten.
    pub rewritten: u64,
    /// Files that had another digest than is stated.
    pub wrong_digests: u64,
    /// Workers that ended before their time, and were replaced.
    pub replaced: u64,
}

impl Snapshot {
    /// The number of requests with an outcome.
    pub fn requests(&self, outcome: Outcome) -> u64 {
        self.requests.get(&outcome).copied().unwrap_or_default()
    }

    fn add(&mut self, other: &Self) {
        for (outcome, count) in &other.requests {
            increase(self.requests.entry(*outcome).or_default(), *count);
        }
        increase(&mut self.sent, other.sent);
        increase(&mut self.saved, other.saved);
        increase(&mut self.fetched, other.fetched);
        increase(&mut self.rewritten, other.rewritten);
        increase(&mut self.wrong_digests, other.wrong_digests);
        increase(&mut self.replaced, other.replaced);
        for (host, numbers) in &other.upstreams {
            self.upstreams.entry(host.clone()).or_default().add(numbers);
        }
    }
}

fn increase(number: &mut u64, by: u64) {
    *number = number.saturating_add(by);
}

/// The numbers of this process, and where those of the others are.
#[derive(Debug, Default)]
pub struct Metrics {
    numbers: Mutex<(Snapshot, bool)>,
    /// Held while the file is replaced, so that a later file has later numbers.
    writing: Mutex<()>,
    /// The file of this worker, in the directory of all.
    file: Option<PathBuf>,
}

impl Metrics {
    /// For a worker with this file. Numbers that are there go on.
    pub fn with_file(file: PathBuf) -> Self {
        // A worker that was killed may have left nothing.
        let numbers = read(&file).unwrap_or_default();
        Self {
            numbers: Mutex::new((numbers, false)),
            writing: Mutex::default(),
            file: Some(file),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Snapshot)) {
        // Each change leaves whole numbers, whatever panics.
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut numbers.0);
        numbers.1 = true;
    }

    /// Counts an answer that a client has got, or as much of it as it wanted.
    pub fn answered(&self, outcome: Outcome, bytes: u64) {
        self.change(|numbers| {
            increase(numbers.requests.entry(outcome).or_default(), 1);
            increase(&mut numbers.sent, bytes);
            if matches!(
                outcome,
                Outcome::Hit | Outcome::Revalidated | Outcome::Stale
            ) {
                increase(&mut numbers.saved, bytes);
            }
        });
    }

    /// Counts the head of an upstream's answer. None: it gave none.
    pub fn upstream_answered(&self, host: &str, time: Duration, status: Option<StatusCode>) {
        let class = status.map_or(0, |status| status.as_u16() / 100);
        let seconds = time.as_secs_f64();
        self.change(|numbers| {
            let known = numbers.upstreams.contains_key(host);
            let host = match known || numbers.upstreams.len() < MOST_UPSTREAMS {
                true => host,
                false => OTHERS,
            };
            let upstream = numbers.upstreams.entry(host.to_owned()).or_default();
            increase(upstream.answers.entry(class).or_default(), 1);
            let bucket = BOUNDS.iter().position(|bound| seconds <= *bound);
            match bucket.and_then(|bucket| upstream.buckets.get_mut(bucket)) {
                Some(bucket) => increase(bucket, 1),
                None => increase(&mut upstream.slower, 1),
            }
            let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            increase(&mut upstream.microseconds, microseconds);
        });
    }

    /// Counts bytes of an upstream's body.
    pub fn upstream_bytes(&self, bytes: usize) {
        self.change(|numbers| increase(&mut numbers.fetched, bytes as u64));
    }

    /// Counts an index page that was rewritten.
    pub fn rewrote_page(&self) {
        self.change(|numbers| increase(&mut numbers.rewritten, 1));
    }

    /// Counts a file that has another digest than is stated.
    pub fn found_wrong_digest(&self) {
        self.change(|numbers| increase(&mut numbers.wrong_digests, 1));
    }

    /// Counts a worker that was replaced.
    pub fn replaced_worker(&self) {
        self.change(|numbers| increase(&mut numbers.replaced, 1));
    }

    /// Writes the numbers to the file, if they have changed since.
    pub fn write(&self) -> io::Result<()> {
        self.written().1
    }

    /// The numbers, which are in the file by then, or why they are not.
    fn written(&self) -> (Snapshot, io::Result<()>) {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (numbers, has_changed) = {
            let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
            let has_changed = std::mem::take(&mut numbers.1);
            (numbers.0.clone(), has_changed)
        };
        let written = match &self.file {
            Some(file) if has_changed => replace(file, &numbers),
            _ => Ok(()),
        };
        (numbers, written)
    }

    /// The numbers of all workers.
    pub fn total(&self) -> Snapshot {
        // Who is told a number must not see it fall when this worker is killed. If it cannot be written, it is told all the same.
        let (mut total, _) = self.written();
        let Some(own) = &self.file else {
            return total;
        };
        let files = own
            .parent()
            .map(fs::read_dir)
            .into_iter()
            .flatten()
            .flatten();
        for file in files.flatten().map(|entry| entry.path()) {
            let is_other = file != *own && file.extension().is_some_and(|end| end == "json");
            if is_other && let Some(numbers) = read(&file) {
                total.add(&numbers);
            }
        }
        total
    }
}

fn replace(file: &Path, numbers: &Snapshot) -> io::Result<()> {
    // Others read it at any time, so it is replaced as a whole.
    let new = file.with_extension("new");
    fs::write(&new, serde_json::to_vec(numbers)?)?;
    fs::rename(&new, file)
}

fn read(file: &Path) -> Option<Snapshot> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_workers_add_up_and_outlive_them() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let first = Metrics::with_file(file("0.json"));
        let second = Metrics::with_file(file("1.json"));
        first.answered(Outcome::Hit, 10);
        first.upstream_answered("a", Duration::from_millis(7), Some(StatusCode::OK));
        second.answered(Outcome::Miss, 5);
        second.found_wrong_digest();
        second.upstream_answered("a", Duration::from_secs(60), None);
        for metrics in [&first, &second] {
            metrics.write().unwrap();
        }
        // Killed, and replaced.
        drop(second);
        let second = Metrics::with_file(file("1.json"));
        second.answered(Outcome::Miss, 5);
        second.write().unwrap();
        for metrics in [&first, &second] {
            let total = metrics.total();
            assert_eq!(total.requests(Outcome::Hit), 1);
            assert_eq!(total.requests(Outcome::Miss), 2);
            assert_eq!((total.sent, total.saved), (20, 10));
            assert_eq!(total.wrong_digests, 1);
            let upstream = &total.upstreams["a"];
            assert_eq!(upstream.count(), 2);
            assert_eq!((upstream.buckets[1], upstream.slower), (1, 1));
            assert_eq!(upstream.answers, BTreeMap::from([(0, 1), (2, 1)]));
        }
    }

    #[test]
    fn no_number_that_was_shown_falls() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("0.json");
        let killed = Metrics::with_file(file.clone());
        killed.answered(Outcome::Hit, 10);
        let shown = killed.total();
        assert_eq!(shown.requests(Outcome::Hit), 1);
        drop(killed);
        assert_eq!(Metrics::with_file(file).total(), shown);
    }

    #[test]
    fn upstreams_are_told_apart_up_to_a_number() {
        let metrics = Metrics::default();
        for n in 0..MOST_UPSTREAMS + 10 {
            metrics.upstream_answered(&format!("host-{n}"), Duration::ZERO, None);
        }
        let total = metrics.total();
        assert_eq!(total.upstreams.len(), MOST_UPSTREAMS + 1);
        assert_eq!(total.upstreams[OTHERS].count(), 10);
    }
}
