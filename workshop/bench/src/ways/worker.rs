//! A process that chooses a file of each package by one way, checks what it chose, and prints what it took.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::pages::{Page, Pages};
use crate::jobs::{Spent, Values};

/// What a process does: it opens what is stored in a directory, and chooses a file of each package. What is not stored, or
/// is no longer fresh, it asks for, and stores it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The name of the way.
    pub way: String,
    /// What is stored.
    pub directory: PathBuf,
    /// The frozen pages.
    pub pages: PathBuf,
    /// `http://ADDRESS/`, where they are served.
    pub server: String,
    pub ask: Ask,
    /// How many packages.
    pub packages: u64,
}

/// What a process asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Pages that stay fresh.
    Fresh,
    /// The same pages from indexes that want to be asked anew each time.
    Stale,
    /// The largest page alone.
    Largest,
}

/// A package that a way chooses a file of.
#[derive(Debug, Clone)]
pub struct Package {
    /// The name of the index, which is a directory of its URL.
    pub index: String,
    /// The URL of the index. It ends with a slash.
    pub index_url: String,
    /// The URL of the page. It ends with a slash.
    pub url: String,
    /// The normalised name of the project.
    pub name: String,
    /// The specifiers of the requirement.
    pub specifiers: String,
}

/// What a way is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// Where what is stored is, or is going to be.
    pub directory: PathBuf,
    /// The packages.
    pub packages: Vec<Package>,
    /// The Python that files are for.
    pub python: String,
    /// The platform that files are for.
    pub platform: String,
}

/// A file that a way chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Its name.
    pub file: String,
    /// Its URL.
    pub url: String,
}

/// A way from packages to files. Names, specifiers and tags are known before the clock runs.
pub trait Way {
    /// Opens what is stored, decides whether it is fresh, asks for what is not, and chooses a file of each package. This is
    /// what is measured.
    fn choose(&mut self) -> Result<()>;

    /// The name and the URL of each file that was chosen, in the order of the packages. None if a package has none.
    fn chosen(&self) -> Result<Vec<Option<Chosen>>>;
}

/// Prepares a way for a question.
pub type Prepare = fn(Question) -> Result<Box<dyn Way>>;

/// A kind of way.
#[derive(Clone, Copy)]
pub struct WayKind {
    /// Its name in results.
    pub name: &'static str,
    /// How to prepare it.
    pub prepare: Prepare,
}

/// Does the job in JSON, and returns what it took. `allocations` counts those of Rust in this process.
pub fn work(job: &str, kinds: &[WayKind], allocations: Option<fn() -> usize>) -> Result<Values> {
    let job: Job = serde_json::from_str(job).context("this is no job")?;
    let kind = kinds.iter().find(|kind| kind.name == job.way);
    let kind = kind.with_context(|| format!("there is no way {}", job.way))?;
    let done = do_it(&job, kind, allocations);
    done.with_context(|| format!("{}: {:?} of {} packages", job.way, job.ask, job.packages))
}

fn do_it(job: &Job, kind: &WayKind, allocations: Option<fn() -> usize>) -> Result<Values> {
    let pages = Pages::open(&job.pages)?;
    let asked: Vec<(u64, &Page)> = match job.ask {
        Ask::Largest => vec![(0, &pages.largest)],
        Ask::Fresh | Ask::Stale => pages.repeated(job.packages).collect(),
    };
    let question = Question {
        directory: job.directory.clone(),
        packages: asked
            .iter()
            .map(|(number, page)| {
                let index = match job.ask {
                    Ask::Stale => format!("stale-{number}"),
                    Ask::Fresh | Ask::Largest => number.to_string(),
                };
                let index_url = format!("{}{index}/simple/", job.server);
                Package {
                    url: format!("{index_url}{}/", page.name),
                    index,
                    index_url,
                    name: page.name.clone(),
                    specifiers: page.specifiers.clone(),
                }
            })
            .collect(),
        python: pages.python.clone(),
        platform: pages.platform.clone(),
    };
    let count = asked.len() as u64;
    let mut way = (kind.prepare)(question)?;
    let before = Spent::now(allocations)?;
    let started = Instant::now();
    way.choose()?;
    let elapsed = started.elapsed();
    let mut values = before.since(count)?;
    values.insert("ns".to_owned(), elapsed.as_secs_f64() * 1e9);
    let started = Instant::now();
    let chosen = way.chosen()?;
    let elapsed = started.elapsed();
    values.insert("named_ns".to_owned(), elapsed.as_secs_f64() * 1e9);
    ensure!(
        chosen.len() == asked.len(),
        "chose {} files for {count} packages",
        chosen.len()
    );
    for ((_, page), chosen) in asked.iter().zip(&chosen) {
        let expected = Chosen {
            file: page.file.clone(),
            url: page.url.clone(),
        };
        ensure!(
            chosen.as_ref() == Some(&expected),
            "{}{}: found {chosen:?}, expected {expected:?}",
            page.name,
            page.specifiers
        );
    }
    Ok(values)
}
