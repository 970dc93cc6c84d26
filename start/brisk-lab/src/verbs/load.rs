//! `brisk lab load`: measures ways to load a large file into memory.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use brisk_terminal::answer::Answer;
use brisk_terminal::size::parse_size;

use super::repeated::Repeated;
use crate::load::{
    Dimensions, Giving, Grain, LoadLab, Shape, Source, State, Touched, Way, Who, processors,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each measurement is a process of its own. It loads the file in one way, touches pages of it, gives the \
memory back and ends. The time counts until its parent process has seen the end. If several processes load the \
file, they start at once, and the time of the last one counts.\n\n\
Before a run with a cold file, the lab proves that no page of it is in memory. With a warm file, it proves before \
and after the run that all pages are in memory. Every process reports the sum of the pages that it touched, and a \
wrong sum ends the experiment.\n\n\
The first value of each list belongs to the base case. The lab measures the base case, and the base case with one \
value changed at a time; patching is also measured with each value of --touched. --product measures all \
combinations. The lab names what it does not measure, with the reason: the system refuses it, or there is too \
little memory.\n\n\
The lab compares strategies in turns, in random order. It answers common questions about mapping files in words, \
with 95 % intervals. OUT/load.json has every run, and OUT/report.html has pictures, together with those of other \
experiments in OUT. If fio and fincore are installed, they read and count the same files for comparison.\n\n\
Only --read-ahead needs root. The lab removes the files that it made and restores the read-ahead, however it ends. \
If it may, it stops threads of DAMON, which take unused pages from memory, during the measurement.\n\n\
Examples:\n  \
  brisk lab load --quick\n  \
  brisk lab load --size 25M,250M\n  \
  brisk lab load /opt/app/cache.jsa --processes 1,4 --states warm")]
pub struct Args {
    /// The file to load. [default: the lab makes files]
    #[arg(value_name = "FILE", conflicts_with = "size")]
    file: Option<PathBuf>,

    /// Sizes of the files that the lab makes, of random bytes, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "25M",
          value_parser = length)]
    size: Vec<u64>,

    /// The directory for the files that the lab makes, which chooses the disk. [default: OUT]
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    dir: Option<PathBuf>,

    /// The ways to measure: strategies, the strategy that brisk chooses (chosen), and a process that loads
    /// nothing (nothing).
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = Way::LIST,
          value_parser = |text: &str| text.parse::<Way>())]
    strategies: Vec<Way>,

    /// Whether the file is in memory before the start.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "cold,warm"
    )]
    states: Vec<State>,

    /// How many processes load the file at once.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,8",
          value_parser = at_least_one)]
    processes: Vec<usize>,

    /// Percent of the pages to touch: in 16 parts in order (25), or at random places in random order
    /// (25-random).
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "100,25,25-random,1-random",
          value_parser = |text: &str| text.parse::<Touched>())]
    touched: Vec<Touched>,

    /// The threads that touch the pages: the thread that loads the file, or others while it computes for 10
    /// ms.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "caller,others"
    )]
    by: Vec<Who>,

    /// What to do with a touched page: read it (shared), also change a word of it (patched), or copy all of
    /// it (copied).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "shared,patched,copied"
    )]
    form: Vec<Shape>,

    /// How many threads touch pages while another thread maps and unmaps memory. With 0, one thread touches
    /// them and none maps. [default: 0, 1, 2 and the number of processors]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = at_most)]
    faulting: Vec<usize>,

    /// How to give the memory back: before the end (unmap), or at the end of the process (skip).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "unmap,skip"
    )]
    release: Vec<Giving>,

    /// How much the kernel reads ahead on the disk below, in KiB. [default: unchanged]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    read_ahead: Vec<u32>,

    /// Measures all combinations of the lists.
    #[arg(long)]
    product: bool,

    /// Reads every byte of each touched page, and not only its first eight bytes.
    #[arg(long)]
    whole_pages: bool,

    #[command(flatten)]
    repeated: Repeated,
}

fn at_least_one(text: &str) -> anyhow::Result<usize> {
    let number = text.parse().ok().filter(|number| (1..=64).contains(number));
    number.context("allowed is 1 to 64")
}

fn at_most(text: &str) -> anyhow::Result<usize> {
    let number = text.parse().ok().filter(|number| (0..=64).contains(number));
    number.context("allowed is 0 to 64")
}

fn length(text: &str) -> anyhow::Result<u64> {
    let length = parse_size(text)?;
    ensure!(
        length > 0,
        "an empty file has nothing to load; allowed is 1 or more"
    );
    Ok(length)
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let repeated = &args.repeated;
    let faulting = match &*args.faulting {
        [] => {
            let mut all = vec![0, 1, 2, processors()];
            all.sort_unstable();
            all.dedup();
            all
        }
        list => list.to_vec(),
    };
    let lab = LoadLab {
        source: match &args.file {
            Some(file) => Source::File(file.clone()),
            None => Source::Made {
                lengths: args.size.clone(),
                directory: repeated.directory(args.dir.as_ref()),
            },
        },
        ways: args.strategies.clone(),
        dimensions: Dimensions {
            states: args.states.clone(),
            processes: args.processes.clone(),
            touched: args.touched.clone(),
            by: args.by.clone(),
            forms: args.form.clone(),
            faulting,
            read_ahead_kib: args.read_ahead.clone(),
            releases: args.release.clone(),
            product: args.product,
        },
        grain: match args.whole_pages {
            true => Grain::Page,
            false => Grain::Word,
        },
        runs: repeated.runs(),
        out: repeated.out.clone(),
        seed: repeated.seed(),
        quiet: repeated.quiet,
    };
    let results = lab.run()?;
    repeated.show(&results, &results.text())?;
    Ok(Answer::Yes)
}
