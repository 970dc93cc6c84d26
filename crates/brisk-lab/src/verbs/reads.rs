//! `brisk lab reads`: thousands of small reads.

use std::path::PathBuf;

use anyhow::ensure;

use super::repeated::Repeated;
use crate::reads::ReadsLab;
use brisk::Answer;
use brisk::parse_size;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each run is a process of its own. It reads a file of random bytes in order or at random, with none or all of the \
file in memory before, which the lab proves. It sums what it reads, and a wrong sum ends the experiment. The lab \
compares the ways in turns, in random order. It also measures, as a whole and in parts, a pattern that once made \
an application slow: a buffer for each read, a copy, and a thread that it waits for.\n\n\
Two more cases read pages of a larger file at random: 5 of 100 not in memory, and, cold, several at once. The \
lab counts allocations (by brisk-reads, beside this program) and system calls (by strace) in runs that it does \
not time. fio reads the same by io_uring. The lab names what is not installed, and stops threads of DAMON that \
page out, where that is allowed.\n\n\
OUT/reads.json has every run, and OUT/report.html has pictures, with those of other experiments in OUT.\n\n\
Examples:\n  \
  brisk lab reads --quick\n  \
  brisk lab reads --reads 20000 --size 4096")]
pub struct Args {
    /// Reads of a run.
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

    /// Cold reads in progress at once.
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
