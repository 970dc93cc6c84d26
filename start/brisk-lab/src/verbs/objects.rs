//! `brisk lab objects`: measures stores of typed records.

use std::path::PathBuf;

use anyhow::ensure;
use brisk::Rate;
use brisk_terminal::answer::Answer;

use super::repeated::{Repeated, chosen};
use crate::objects::{Figure, ObjectsLab};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A record has about 100 bytes, an automatic key and two indexes. The lab has different stores keep the same records, and starts \
processes that read some of them, or fill an empty store. Stores take turns, in random order.\n\n\
  brisk        brisk-objects\n  \
  brisk-async  the same by its asynchronous calls, on a runtime of one thread\n  \
  lmdb         LMDB by heed: records are bytes of fixed form, and indexes are made by hand\n  \
  heed         heed's own types: records by serde and bincode\n  \
  sqlite       SQLite by rusqlite, with prepared statements and a write-ahead log\n  \
  redb         redb, records by postcard\n  \
  native-db    native_db, which keeps its records in redb\n  \
  pread        a file of records of equal length, each read by one system call: keys are places\n\n\
The program of --program is object-stores of workshop/bench/. Sums of what was read that are wrong end the experiment. The figures cold \
and cold-many begin with no page of the store in memory; --disk limits the disk for them and needs root. Before and after any \
other run that reads, all files of the store are in memory, or the run is repeated. OUT/objects.json has every run, and \
OUT/report.html has pictures, together with those of other experiments in OUT.\n\n\
Examples:\n  \
  brisk lab objects --program workshop/bench/target/release/object-stores --quick\n  \
  brisk lab objects --program workshop/bench/target/release/object-stores --figures get,scan-keys\n  \
  brisk lab objects --program workshop/bench/target/release/object-stores --figures cold,cold-many --disk iops=2000")]
pub struct Args {
    /// The program that has the stores: object-stores of workshop/bench/.
    #[arg(long, value_name = "PROGRAM")]
    program: PathBuf,

    /// The figures to measure, separated by commas. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    figures: Vec<Figure>,

    /// The stores to measure, separated by commas. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,

    /// How many records a store has.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    records: u64,

    /// Limits the disk for the cold figures, to this many bytes (bps=200M) or operations (iops=2000) in a second.
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
    let figures = chosen(&args.figures, &Figure::ALL);
    ensure!(
        args.disk.is_none() || figures.iter().any(|figure| figure.is_cold()),
        "--disk limits the disk for the figures cold and cold-many, which --figures leaves out"
    );
    let lab = ObjectsLab {
        figures,
        records: args.records,
        runs: repeated.runs(),
        program: args.program.clone(),
        only: args.only.clone(),
        out: repeated.out.clone(),
        dir: repeated.directory(args.dir.as_ref()),
        seed: repeated.seed(),
        disk: args.disk,
        quiet: repeated.quiet,
    };
    let results = lab.run()?;
    repeated.show(&results, &results.text())?;
    Ok(Answer::Yes)
}
