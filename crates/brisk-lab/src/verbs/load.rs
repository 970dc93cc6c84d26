//! `brisk lab load`: ways to get a large file into memory.

use std::path::PathBuf;

use anyhow::{Context, ensure};

use super::repeated::Repeated;
use crate::load::{
    Dimensions, Giving, Grain, LoadLab, Shape, Source, State, Touched, Way, Who, processors,
};
use brisk::Answer;
use brisk::parse_size;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each measurement is a process of its own: it loads the file in one way, touches pages of it, gives it \
back and ends, and the time counts until its parent has seen that. Several processes start at once, and \
the last one counts. A cold file is proven to have no page in memory, a warm one to have all of them, \
before the run and after it. Every process says the sum of what it has touched; a wrong one ends the \
experiment.\n\n\
The first value of each list is that of the base, and the others vary it one at a time; what is patched \
is also varied by how much is touched. --product measures all with all. What is not measured is listed \
with the reason: what the system refuses, and what memory does not suffice for.\n\n\
Strategies are compared in turns, in random order. The questions that are asked about mapping files are \
answered in words, with intervals of 95 %. OUT/load.json has every run, and OUT/report.html pictures; if \
OUT has a raw.json of brisk lab launch, both are in the page. With fio and fincore installed, the same \
files are read and counted by those.\n\n\
Only --read-ahead needs root. Files that are made are removed, and the read-ahead is put back, however \
it ends. Threads of DAMON that page out are stopped meanwhile, where that is allowed.\n\n\
Examples:\n  \
  brisk lab load --quick\n  \
  brisk lab load --size 25M,250M\n  \
  brisk lab load /opt/app/cache.jsa --processes 1,4 --states warm")]
pub struct Args {
    /// The file that is loaded. [default: files that are made]
    #[arg(value_name = "FILE", conflicts_with = "size")]
    file: Option<PathBuf>,

    /// Lengths of the files that are made, of random bytes, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "25M",
          value_parser = length)]
    size: Vec<u64>,

    /// Where files are made, which chooses the disk. [default: OUT]
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    dir: Option<PathBuf>,

    /// Strategies, what the library chooses (chosen), and a process that loads nothing (nothing).
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = Way::LIST,
          value_parser = |text: &str| text.parse::<Way>())]
    strategies: Vec<Way>,

    /// Whether the file is in memory before.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "cold,warm"
    )]
    states: Vec<State>,

    /// Processes that load the file at once.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,8",
          value_parser = at_least_one)]
    processes: Vec<usize>,

    /// Pages that are touched, in percent: in 16 parts in order (25), or scattered in random order
    /// (25-random).
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "100,25,25-random,1-random",
          value_parser = |text: &str| text.parse::<Touched>())]
    touched: Vec<Touched>,

    /// Who touches them: the thread that loads the file, or another one, while that one computes for
    /// 10 ms.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "caller,others"
    )]
    by: Vec<Who>,

    /// What is done with a touched page: it is read (shared), a word of it is changed as well (patched),
    /// or all of it is copied (copied).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "shared,patched,copied"
    )]
    form: Vec<Shape>,

    /// Threads that touch pages while another one maps and unmaps; of 0, one touches and none maps.
    /// [default: 0, 1, 2 and the number of processors]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = at_most)]
    faulting: Vec<usize>,

    /// How the memory is given back: before the end (unmap), by the end of the process (skip), or by
    /// several threads before it (parallel).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "unmap,skip,parallel"
    )]
    release: Vec<Giving>,

    /// How much the kernel reads ahead on the disk below, in KiB. [default: as it is]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    read_ahead: Vec<u32>,

    /// Measures all combinations.
    #[arg(long)]
    product: bool,

    /// Reads all of each page that is touched, and not its first eight bytes alone.
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
        "nothing can be loaded of an empty file; allowed is 1 or more"
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
