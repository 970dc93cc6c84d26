//! A process that does one piece of work with one store, checks what came of it, and prints what it took.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::results::Figure;
use crate::jobs::{Spent, Values};

/// A record: about 100 bytes in every store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its key.
    pub id: u64,
    /// Each has about 100 records, which lie apart.
    pub account: u32,
    /// Microseconds since 1970, in another order than the ids.
    pub at: i64,
    /// An amount.
    pub cents: i64,
    /// About 70 bytes.
    pub text: String,
}

/// How many records an account has.
const OF_ACCOUNT: u64 = 100;

impl Object {
    /// The record of an id, from 0 on, of so many. Everybody computes the same.
    pub fn numbered(id: u64, all: u64) -> Self {
        let mixed = mix(id);
        let accounts = (all / OF_ACCOUNT).max(1);
        Self {
            id,
            account: u32::try_from(mixed % accounts).unwrap_or(u32::MAX),
            at: 1_700_000_000_000_000 + i64::try_from(mix(!id) >> 20).unwrap_or(0),
            cents: i64::try_from(mixed >> 44).unwrap_or(0) - 1000,
            text: format!(
                "record {id} of account {}: {mixed:016x}{:016x}",
                mixed % accounts,
                mix(mixed)
            ),
        }
    }
}

/// Spreads numbers (SplitMix64).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What was read, in sums: a store that skips a record, or reads a wrong one, has others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Of records.
    pub count: u64,
    /// Of their keys.
    pub ids: u64,
    /// Of their amounts.
    pub cents: i64,
    /// Of the lengths of their texts.
    pub text_bytes: u64,
}

impl Sums {
    /// Adds a record of which all was read.
    pub fn add(&mut self, id: u64, cents: i64, text: &str) {
        self.add_key(id);
        self.cents += cents;
        self.text_bytes += text.len() as u64;
    }

    /// Adds what others have read.
    pub fn add_all(&mut self, others: Self) {
        self.count += others.count;
        self.ids = self.ids.wrapping_add(others.ids);
        self.cents += others.cents;
        self.text_bytes += others.text_bytes;
    }

    /// Adds an entry of an index.
    pub fn add_key(&mut self, id: u64) {
        self.count += 1;
        self.ids = self.ids.wrapping_add(id);
    }
}

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Safety {
    /// A loss of power loses nothing that was committed.
    Full,
    /// A loss of power may undo the last transactions, and leaves the store whole.
    Normal,
}

/// A store of objects, with an index of accounts and one of times. A method that a store does not have returns None.
pub trait ObjectStore {
    /// Stores new records in one transaction.
    fn insert(&mut self, objects: &[Object]) -> Result<()>;

    /// Reads the records of these ids, within one transaction if the store has them.
    fn get(&self, ids: &[u64]) -> Result<Option<Sums>>;

    /// The same, each by a call of its own, which sees what was committed before it.
    fn get_one_by_one(&self, ids: &[u64]) -> Result<Option<Sums>>;

    /// The same, by one call for all, in the order that suits the store.
    fn get_many(&self, ids: &[u64]) -> Result<Option<Sums>>;

    /// Goes through the index of accounts, without a look at the records.
    fn scan_keys(&self, accounts: Range<u32>) -> Result<Option<Sums>>;

    /// Goes through the index of accounts, and reads each record.
    fn scan_records(&self, accounts: Range<u32>) -> Result<Option<Sums>>;
}

/// How a store is opened, or made.
pub type OpenObjects = fn(&Path, Safety) -> Result<Box<dyn ObjectStore>>;

/// A kind of store.
#[derive(Clone, Copy)]
pub struct ObjectKind {
    /// Its name in results.
    pub name: &'static str,
    /// How to open it in a directory.
    pub open: OpenObjects,
}

/// What a process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    pub store: String,
    pub directory: PathBuf,
    pub work: Work,
    /// How many records the store has, or is to have.
    pub records: u64,
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Fills the store for the other figures. Nothing is measured.
    Fill,
    Figure(Figure),
}

/// Records of one transaction of an insertion, and of one of a filling.
const BATCH: u64 = 1_000;
const FILLED_BATCH: u64 = 20_000;
/// How many records are read by key, within one transaction.
const GETS: u64 = 100_000;
/// How many are read one by one: as many as in the article of SiaqoDb.
pub(super) const ONE_BY_ONE: u64 = 5_000;
/// How many accounts are scanned: about 10,000 records.
const SCANNED: u32 = 100;

impl Figure {
    /// How many records one run inserts.
    pub fn inserts(self) -> Option<(Safety, u64)> {
        match self {
            Self::InsertFull => Some((Safety::Full, 20_000)),
            Self::InsertNormal => Some((Safety::Normal, 200_000)),
            _ => None,
        }
    }
}

/// Does the job in JSON, and returns what it took: nothing, if the store cannot do this work.
pub fn work(job: &str, kinds: &[ObjectKind], allocations: Option<fn() -> usize>) -> Result<Values> {
    let job: Job = serde_json::from_str(job).context("this is no job")?;
    let kind = kinds.iter().find(|kind| kind.name == job.store);
    let kind = kind.with_context(|| format!("there is no store {}", job.store))?;
    let done = do_it(&job, kind, allocations);
    done.with_context(|| format!("{}: {:?} of {} records", job.store, job.work, job.records))
}

fn do_it(job: &Job, kind: &ObjectKind, allocations: Option<fn() -> usize>) -> Result<Values> {
    let figure = match job.work {
        Work::Fill => {
            let mut store = (kind.open)(&job.directory, Safety::Normal)?;
            insert(&mut *store, job.records, FILLED_BATCH)?;
            return Ok(Values::new());
        }
        Work::Figure(figure) => figure,
    };
    if let Some((safety, count)) = figure.inserts() {
        let mut store = (kind.open)(&job.directory, safety)?;
        let objects: Vec<Object> = (0..count).map(|id| Object::numbered(id, count)).collect();
        let before = Spent::now(allocations)?;
        for batch in objects.chunks(BATCH as usize) {
            store.insert(batch)?;
        }
        let values = took(&before, count)?;
        return match store.scan_records(0..u32::MAX)? {
            Some(all) => check(all, &objects, true).map(|()| values),
            None => Ok(Values::new()),
        };
    }
    let store = (kind.open)(&job.directory, Safety::Full)?;
    let question = Question::of(figure, job);
    let ask = || match (&question, figure) {
        (Question::Accounts(range), Figure::ScanKeys) => store.scan_keys(range.clone()),
        (Question::Accounts(range), _) => store.scan_records(range.clone()),
        (Question::Ids(ids), Figure::Get) => store.get(ids),
        (Question::Ids(ids), Figure::ColdMany) => store.get_many(ids),
        (Question::Ids(ids), _) => store.get_one_by_one(ids),
    };
    let expected = question.answer(job.records);
    let count = expected.len() as u64;
    let before = Spent::now(allocations)?;
    let sums = ask()?;
    let mut values = took(&before, count)?;
    let Some(sums) = sums else {
        return Ok(Values::new());
    };
    let before = Spent::now(allocations)?;
    let again = ask()?;
    let took_again = took(&before, count)?;
    values.extend(took_again.get("ns").map(|&ns| ("again_ns".to_owned(), ns)));
    for sums in [sums, again.unwrap_or_default()] {
        check(sums, &expected, figure != Figure::ScanKeys)?;
    }
    Ok(values)
}

/// What a run reads.
enum Question {
    Accounts(Range<u32>),
    Ids(Vec<u64>),
}

impl Question {
    fn of(figure: Figure, job: &Job) -> Self {
        let mut rng = fastrand::Rng::with_seed(job.seed);
        let records = job.records.max(1);
        if matches!(figure, Figure::ScanKeys | Figure::ScanRecords) {
            let accounts = u32::try_from(records / OF_ACCOUNT).unwrap_or(u32::MAX);
            let first = rng.u32(0..accounts.saturating_sub(SCANNED).max(1));
            return Self::Accounts(first..first.saturating_add(SCANNED));
        }
        let count = if figure == Figure::Get {
            GETS
        } else {
            ONE_BY_ONE
        }
        .min(records);
        let first = rng.u64(0..=records - count);
        let ids = (0..count).map(|number| match figure {
            Figure::OneByOneNear => first + number,
            _ => rng.u64(0..records),
        });
        Self::Ids(ids.collect())
    }

    fn answer(&self, records: u64) -> Vec<Object> {
        let numbered = |id: u64| Object::numbered(id, records);
        match self {
            Self::Ids(ids) => ids.iter().copied().map(numbered).collect(),
            Self::Accounts(range) => {
                let all = (0..records).map(numbered);
                all.filter(|object| range.contains(&object.account))
                    .collect()
            }
        }
    }
}

fn took(before: &Spent, operations: u64) -> Result<Values> {
    let elapsed = before.at.elapsed().as_secs_f64();
    let mut values = before.since(operations)?;
    values.insert("ns".to_owned(), elapsed * 1e9 / operations.max(1) as f64);
    values.insert("all_ns".to_owned(), elapsed * 1e9);
    Ok(values)
}

fn insert(store: &mut dyn ObjectStore, count: u64, batch: u64) -> Result<()> {
    let mut first = 0;
    while first < count {
        let end = count.min(first + batch);
        let objects: Vec<Object> = (first..end).map(|id| Object::numbered(id, count)).collect();
        store.insert(&objects)?;
        first = end;
    }
    Ok(())
}

/// Ends the experiment if something else was read.
fn check(sums: Sums, expected: &[Object], whole: bool) -> Result<()> {
    let mut wanted = Sums::default();
    for object in expected {
        match whole {
            true => wanted.add(object.id, object.cents, &object.text),
            false => wanted.add_key(object.id),
        }
    }
    ensure!(sums == wanted, "found {sums:?}, expected {wanted:?}");
    Ok(())
}
