//! `brisk lab index`: measures ways of reading a package index from a cache.

use std::path::PathBuf;

use brisk_terminal::answer::Answer;

use super::repeated::{Repeated, chosen};
use crate::index::{Figure, IndexLab};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A package index has a page for each package, with all its files. The lab has different ways store such pages, and starts \
processes that open what is stored, decide whether it is fresh, and choose the file of each package that suits a Python best. \
Ways take turns, in random order.\n\n\
  brisk        brisk-http, which stores the tables of pyindex in place of pages\n  \
  policy-only  brisk-http decides on the stored policy; the page is parsed each time\n  \
  parsed       a file for each package, with policy and parsed page, all deserialised each time\n  \
  uv-client    uv's own client and cache, and the versions of its archive in a map\n  \
  rkyv-file    a file for each package, read whole and checked by rkyv each time\n  \
  sqlite       a database with a row for each file, in the order of versions\n\n\
The program of --ways is index-ways of workshop/bench/, which also freezes real pages (workshop/bench/README.md) and serves them as the index, \
in a process of its own. A wrong file, or a request too many or too few, ends the experiment. The lab counts system calls \
and written bytes (with strace) and, in a second program beside that of --ways, allocations, in runs that it does not \
time.\n\n\
Before and after a warm run, all files of the store are in memory, or the run is repeated. OUT/index.json has every run, and \
OUT/report.html has pictures, together with those of other experiments in OUT.\n\n\
Examples:\n  \
  brisk lab index --ways workshop/bench/target/release/index-ways --pages target/index-pages --quick\n  \
  brisk lab index --ways workshop/bench/target/release/index-ways --pages target/index-pages --figures warm,largest")]
pub struct Args {
    /// The program that has the ways: index-ways of workshop/bench/.
    #[arg(long, value_name = "PROGRAM")]
    ways: PathBuf,

    /// The frozen pages, as index-ways pages makes them.
    #[arg(long, value_name = "DIR")]
    pages: PathBuf,

    /// The figures to measure, separated by commas. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    figures: Vec<Figure>,

    /// The ways to measure, separated by commas. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,

    /// Numbers of packages, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,100,1750",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    packages: Vec<u64>,

    /// The directory for what the ways store, which chooses the disk. [default: OUT]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    repeated: Repeated,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let repeated = &args.repeated;
    let mut packages = args.packages.clone();
    packages.sort_unstable();
    packages.dedup();
    let lab = IndexLab {
        figures: chosen(&args.figures, &Figure::ALL),
        packages,
        runs: repeated.runs(),
        program: args.ways.clone(),
        only: args.only.clone(),
        pages: args.pages.clone(),
        out: repeated.out.clone(),
        dir: repeated.directory(args.dir.as_ref()),
        seed: repeated.seed(),
        quiet: repeated.quiet,
    };
    let results = lab.run()?;
    repeated.show(&results, &results.text())?;
    Ok(Answer::Yes)
}
