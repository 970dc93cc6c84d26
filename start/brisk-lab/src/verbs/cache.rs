//! `brisk lab cache`: measures caches on disk.

use std::path::PathBuf;

use anyhow::ensure;
use brisk::Rate;
use brisk_terminal::answer::Answer;

use super::repeated::Repeated;
use crate::cache::{CacheLab, Figure};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The lab fills a directory for each kind of store, and starts processes that open it, get values of 1 KB, look for a name \
in tables of 84 KB, update values of 400 bytes, and read from eight processes at once. Stores take turns, in random order. \
Every process checks what it reads, and a wrong value ends the experiment.\n\n\
  brisk         brisk-cache, whose hits borrow from a mapping\n  \
  brisk-copied  brisk-cache, whose hits are copies\n  \
  files         one file for each entry, read whole\n  \
  memory        a table in the process's own memory: how this machine scales\n\n\
With --rivals, a program of workshop/bench/ adds lmdb (heed), lmdb-one-txn (the same, which reads in one transaction), redb, sqlite, \
cacache, and files-rkyv, whose tables rkyv checks. It does all jobs, so each store is opened by the same program. The lab \
counts system calls (with strace) and, in a second program beside that of --rivals, allocations, in runs that it does not \
time. It says which store it left out of which figure, and why.\n\n\
An opening is over in microseconds, and a warm get depends on where the kernel puts pages: for each run of --runs, the lab \
makes ten of the openings, and three of the warm gets.\n\n\
Before and after a warm run, all files of the store are in memory, or the run is repeated. Before a cold one, none is. As \
root, the lab then empties the caches of the whole system, so that names and attributes are gone as well.\n\n\
--disk limits the disk for the figure cold and needs root. OUT/cache.json has every run, and OUT/report.html has pictures, \
together with those of other experiments in OUT.\n\n\
Examples:\n  \
  brisk lab cache --quick\n  \
  brisk lab cache --rivals workshop/bench/target/release/cache-rivals --disk iops=2000")]
pub struct Args {
    /// The figures to measure, separated by commas. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    figures: Vec<Figure>,

    /// The stores to measure, separated by commas. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    stores: Vec<String>,

    /// A program with more stores: cache-rivals of workshop/bench/.
    #[arg(long, value_name = "PROGRAM")]
    rivals: Option<PathBuf>,

    /// Entries of the stores.
    #[arg(long, value_name = "N", default_value_t = 1750,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    entries: u64,

    /// Entries of the figures open-many and get-many.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..=20_000_000))]
    many: u64,

    /// Updates of a run. A durable run makes at most 100.
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    updates: u64,

    /// Limits the disk for the figure cold, to this many bytes (bps=200M) or operations (iops=2000) in a second.
    #[arg(long, value_name = "LIMIT")]
    disk: Option<Rate>,

    /// The directory for the stores, which chooses the disk. [default: OUT]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    repeated: Repeated,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let repeated = &args.repeated;
    let figures = match &*args.figures {
        [] => Figure::ALL.to_vec(),
        figures => figures.to_vec(),
    };
    ensure!(
        args.disk.is_none() || figures.contains(&Figure::Cold),
        "--disk limits the disk for the figure cold, which --figures leaves out"
    );
    let lab = CacheLab {
        figures,
        entries: args.entries,
        many: args.many,
        updates: args.updates,
        runs: repeated.runs(),
        rivals: args.rivals.clone(),
        stores: args.stores.clone(),
        disk: args.disk,
        out: repeated.out.clone(),
        dir: repeated.directory(args.dir.as_ref()),
        seed: repeated.seed(),
        quiet: repeated.quiet,
    };
    let results = lab.run()?;
    repeated.show(&results, &results.text())?;
    Ok(Answer::Yes)
}
