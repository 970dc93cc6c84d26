//! `brisk lab reads`: measures thousands of small reads.

use std::path::PathBuf;

use anyhow::ensure;
use brisk_terminal::answer::Answer;
use brisk_terminal::size::parse_size;

use super::repeated::Repeated;
use crate::reads::ReadsLab;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each run is a process of its own. It reads a file of random bytes, in order or at random. The lab proves first that \
none of the file is in memory, or all of it. The process sums what it reads, and a wrong sum ends the experiment. \
The lab compares the ways in turns, in random order. It also measures, as a whole and in parts, a pattern that once \
made an application slow: a new buffer, a thread to wait for, and a copy for each read.\n\n\
Two more cases read random pages of a larger file: one with 5 of 100 pages not in memory, and one with several cold \
reads at once. The lab counts allocations (with brisk-reads, installed beside this program) and system calls (with \
strace) in runs that it does not time. For comparison, fio reads the same with io_uring. The lab says which of these \
tools is not installed. If it may, it stops threads of DAMON, which take unused pages from memory, during the \
measurement.\n\n\
OUT/reads.json has every run, and OUT/report.html has pictures, together with those of other experiments in OUT.\n\n\
Examples:\n  \
  brisk lab reads --quick\n  \
  brisk lab reads --reads 20000 --size 4096")]
pub struct Args {
    /// How many reads each run makes.
    #[arg(long, value_name = "N", default_value_t = 5000,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    reads: u32,

    /// Bytes of each read, from 8 to 4096.
    #[arg(long, value_name = "BYTES", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(8..=4096))]
    size: u32,

    /// Length of the file whose pages are read at random.
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = parse_size)]
    large: u64,

    /// How many cold reads are in progress at once.
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    depth: u32,

    /// The directory for test files, which chooses the disk. [default: OUT]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    repeated: Repeated,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let repeated = &args.repeated;
    ensure!(
        args.large >= 1 << 20,
        "--large: found {}, allowed is 1M or more",
        args.large
    );
    let lab = ReadsLab {
        reads: usize::try_from(args.reads)?,
        size: usize::try_from(args.size)?,
        large: args.large,
        depth: usize::try_from(args.depth)?,
        runs: repeated.runs(),
        out: repeated.out.clone(),
        dir: repeated.directory(args.dir.as_ref()),
        seed: repeated.seed(),
        quiet: repeated.quiet,
    };
    let results = lab.run()?;
    repeated.show(&results, &results.text())?;
    Ok(Answer::Yes)
}
