//! `brisk lab reads`: thousands of small reads.

use std::path::PathBuf;

use anyhow::ensure;

use super::repeated::Repeated;
use crate::reads::ReadsLab;
use brisk::Answer;
use brisk::parse_size;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each run is a process of its own, which reads a file of random bytes in order or at random, with no page \
of it in memory before, or all, which is proven. It sums what it has read, and a wrong sum ends the \
experiment. Ways are compared in turns, in random order. A pattern that once made an application slow is \
measured as a whole and in parts: a buffer for each read, a copy, and a thread that is waited for.\n\n\
Pages of a larger file are read at random where 5 of 100 are not in memory, and, cold, several at once. \
What reads allocate (by brisk-reads, beside this program) and which system calls they make (by strace) is \
counted in runs that are not timed. fio reads the same by io_uring. What is not installed is named. \
Threads of DAMON that page out are stopped meanwhile, where that is allowed.\n\n\
OUT/reads.json has every run, and OUT/report.html pictures, with those of other experiments in OUT.\n\n\
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

    /// Cold reads under way at once.
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    depth: u32,

    /// Where files are made, which chooses the disk. [default: OUT]
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
