//! The verbs of `brisk lab`.

mod load;
mod reads;
mod repeated;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use brisk::{Answer, Manual, Rate, parse_size, write_whole};
use clap::{CommandFactory, Parser, Subcommand};

use crate::app::{App, Home, Words, ready};
use crate::cold::Chill;
use crate::experiment::Experiment;
use crate::format::{Format, Formats};
use crate::load::worker;
use crate::recipe::Recipe;
use crate::rival::Rival;
use crate::{kept, report, table, undo};

/// Runs of a first look.
const QUICK: u32 = 3;

/// Recordings of a command, unless another number is given.
const RECORDINGS: u32 = 3;

/// Measures how fast a program starts from its directory and from images.
#[derive(Debug, Parser)]
#[command(
    name = "brisk-lab",
    bin_name = "brisk lab",
    version,
    max_term_width = 100
)]
struct Lab {
    /// What to measure.
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Measures how fast a program starts from its directory and from images, cold and warm.
    Launch(Box<LaunchArgs>),
    /// Compares codecs, and what can be chosen of them: size, time to pack, and how fast they are
    /// read.
    Codecs(Box<CodecsArgs>),
    /// Measures every way to get a large file into memory, cold and warm, up to the end of the process.
    Load(Box<load::Args>),
    /// Measures thousands of small reads of a file: mapped, by system calls, asynchronous.
    Reads(reads::Args),
    /// Makes the page with pictures again from raw runs that were kept, or tables and a picture for
    /// other pages.
    Report(ReportArgs),
    /// Puts back what an experiment changed, once it is over; the lab starts it by itself.
    #[command(hide = true)]
    Restore,
    /// Loads a file once; the lab starts it by itself.
    #[command(hide = true)]
    LoadWorker {
        /// What to do, as the lab says it.
        job: String,
    },
    /// Reads a file once; the lab starts it by itself.
    #[command(hide = true)]
    ReadsWorker {
        /// What to do, as the lab says it.
        job: String,
    },
    #[command(flatten)]
    Manual(Manual),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Formats:\n  \
  directory               the tree itself\n  \
  directory-replay        the tree itself, with a profile of the launch replayed beside it\n  \
  directory-replay-wrong  the same, with pages that the launch never asks for\n  \
  squashfs-CODEC          mksquashfs, mounted by the kernel: none, lz4, lzo, gzip, zstd or xz\n  \
  squashfs-zstd-sorted    the same, what the launch reads first and not compressed\n  \
  squashfuse              the image of squashfs-zstd, mounted by squashfuse\n  \
  erofs-CODEC             mkfs.erofs, mounted by the kernel: none, lz4, lz4hc, zstd or lzma\n  \
  NAME-replay             one of squashfs or erofs, with a profile of the launch replayed beside it\n  \
  brisk                   an image of brisk (zstd 15), started by brisk run, without a hot pack\n  \
  brisk-speed             the same, filled from a hot pack made for speed\n  \
  brisk-size              the same, filled from one made for size\n  \
  brisk-wrong             the same, filled from pages that the launch never asks for\n  \
  beside-CODEC            mksquashfs (xz, gzip, zstd), filled from a hot pack beside it\n  \
  beside:IMAGE            an image that is there already, filled from a hot pack beside it\n  \
  all                     every one of these but the last\n\n\
What --ablation adds:\n  \
  directory-replay-pages, brisk-speed-pages    no name is looked up ahead\n  \
  directory-replay-names, brisk-speed-names    names alone, no contents (of a pack one page)\n  \
  directory-replay-blocks, brisk-speed-blocks  whole blocks of 128 KiB instead of the pages asked for\n  \
  directory-replay-1-thread, -8-threads        read by so many threads, instead of 4\n  \
  brisk-speed-2-threads                        filled by two threads, instead of one\n\n\
A format that cannot run here, because a tool or the kernel lacks it, is named with the reason.\n\n\
In each repetition every format is launched cold and then warm, and walked cold (every file is read \
and hashed), in random order. Before a cold one, brisk and the files that the format reads are proven \
not to be in memory; the clock starts before the mount. A warm one is proven to read next to nothing \
from the disk: at most 256 KiB, or 2 % of what the cold one read if that is more. A launch that fails, \
or prints something else than it should, ends the experiment. Hot packs are made of a profile of the \
launch itself, and where a spec names other inputs to train on, of those too.\n\n\
Launches have an environment with PATH, HOME, LC_ALL and what is given, and an empty directory in \
memory as home. OUT/raw.json has every single run, the machine, and all commands, and OUT/report.html shows them in pictures. The lab sets \
read-ahead, stops what takes pages that were not used lately (DAMON), mounts in a namespace of its own, and \
makes images and sessions; nothing of that is left, however it ends. This needs root.\n\n\
Examples:\n  \
  brisk lab launch --tree /opt/app -- bin/app --version\n  \
  brisk lab launch --app lab/apps/python.toml --trees /var/tmp/trees")]
struct LaunchArgs {
    /// A spec of a program: lab/apps has examples. May be repeated.
    #[arg(long = "app", value_name = "SPEC", conflicts_with_all = ["tree", "command"])]
    apps: Vec<PathBuf>,

    /// Where the trees of specs are, or are built. [default: beside each spec]
    #[arg(long, value_name = "DIR", requires = "apps")]
    trees: Option<PathBuf>,

    /// The tree of the command, which is started from where it is.
    #[arg(long, value_name = "DIR", requires = "command")]
    tree: Option<PathBuf>,

    /// Text that the command prints on standard output when it works.
    #[arg(long, value_name = "TEXT", requires = "tree")]
    prints: Option<String>,

    /// When a launch is over: when the command exits (exit), when TEXT is in a line of its standard
    /// output or standard error (line:TEXT), or when it shows a window on the display that --env
    /// DISPLAY=:N names (window, or window:TITLE). The clock stops there.
    #[arg(long, value_name = "WHEN", requires = "tree", value_parser = readiness)]
    ready: Option<String>,

    /// Sets a variable of the command's environment. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", requires = "tree", value_parser = variable)]
    env: Vec<(String, String)>,

    /// What is measured, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = Format::DEFAULT)]
    formats: Vec<Formats>,

    /// Measures what each part of a replay and of a fill brings, too: with one of them left out, or
    /// done otherwise.
    #[arg(long)]
    ablation: bool,

    /// Launches of each format, cold and warm each.
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Recordings of each command that a profile is made of: no launch asks for quite the same pages as
    /// another.
    #[arg(long, value_name = "N", default_value_t = RECORDINGS,
          value_parser = clap::value_parser!(u32).range(1..))]
    recordings: u32,

    /// Three launches of each format are enough for a first look.
    #[arg(long, conflicts_with = "runs")]
    quick: bool,

    /// Lets no more than this be read from the disks below in a second while launches are measured:
    /// bytes (bps=200M), operations (iops=2000), or both, separated by a comma. It is proven by
    /// direct reads before anything is measured. This needs the controller blkio of cgroup v1, which
    /// bounds the lab's group then, or io of cgroup v2, which bounds the launches.
    #[arg(long, value_name = "LIMITS", value_delimiter = ',')]
    disk: Vec<Rate>,

    /// What programs find in their home directory: nothing, or what launches before have left.
    /// [default: what the spec says, else fresh]
    #[arg(long, value_name = "WHAT")]
    home: Option<Home>,

    #[command(flatten)]
    how: How,

    /// The command and its arguments. A program with a slash is taken from the tree (bin/app), one
    /// that starts with a slash as it is, and a bare name from PATH.
    #[arg(last = true, requires = "tree", value_name = "CMD")]
    command: Vec<OsString>,
}

/// What every experiment can be told.
#[derive(Debug, clap::Args)]
struct How {
    /// Where raw.json and report.html are written. Images are made below it and removed, so this
    /// chooses the disk.
    #[arg(
        short,
        long,
        alias = "output",
        value_name = "DIR",
        default_value = "brisk-lab"
    )]
    out: PathBuf,

    /// How much the kernel reads ahead on the disks below, in KiB. Users' machines have 128.
    #[arg(long, value_name = "KIB", default_value_t = 128)]
    read_ahead: u32,

    /// What is not in memory when it is cold: anything of the system, or the files of the format
    /// alone, which disturbs others less but leaves the directory its names and attributes.
    #[arg(long, value_name = "WHAT", default_value = "system")]
    cold: Chill,

    /// Decides the random orders. [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Prints what is in raw.json in place of the table.
    #[arg(long)]
    json: bool,

    /// Does not say how far it is.
    #[arg(short, long)]
    quiet: bool,
}

impl How {
    /// An experiment without apps.
    fn experiment(&self, formats: Vec<Format>, runs: u32) -> Experiment {
        Experiment {
            apps: Vec::new(),
            formats,
            runs,
            recordings: RECORDINGS,
            out: self.out.clone(),
            read_ahead_kib: self.read_ahead,
            chill: self.cold,
            limits: Vec::new(),
            seed: self.seed.unwrap_or_else(|| fastrand::u64(..)),
            sample: None,
            quiet: self.quiet,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Images of a sample of the tree are made with each codec at several levels, with dictionaries and branch \
filters of xz, and with large blocks, and are mounted by the kernel. Every file is read and hashed with \
nothing in memory before, in turns. The questions that are asked about codecs are answered in words, from \
what was measured.\n\n\
With a command behind --, images are made of the whole tree, and the command is launched from them, too, \
as brisk lab launch does. Images are made by brisk pack, and for the levels of lzo by mksquashfs. This \
needs root.\n\n\
Examples:\n  \
  brisk lab codecs /opt/app\n  \
  brisk lab codecs /opt/app --all --sample 200M --runs 5\n  \
  brisk lab codecs /opt/app -- bin/app --version")]
struct CodecsArgs {
    /// The tree whose files are packed.
    tree: PathBuf,

    /// About how many bytes of the tree are packed: of all kinds of files their share.
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = parse_size,
          conflicts_with = "command")]
    sample: u64,

    /// Every level, and more of what xz has to choose from: this takes hours for a large sample.
    #[arg(long)]
    all: bool,

    /// Walks of each image, and launches.
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    #[command(flatten)]
    how: How,

    /// A command to launch, and its arguments, as for brisk lab launch.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The page is one file and needs nothing else: it can be sent, and opens without a network. It has box \
plots of launches and walks, sizes, what the launch reads in which order, the machine, the method, what \
could not run, and the raw runs to save.\n\n\
Results of several experiments make one page, as those of other disks.\n\n\
Examples:\n  \
  brisk lab report fast/raw.json slow/raw.json -o report.html\n  \
  brisk lab report raw.json --formats directory,brisk-speed --markdown --svg launches.svg")]
struct ReportArgs {
    /// What brisk lab launch (raw.json), brisk lab load (load.json) or brisk lab reads
    /// (reads.json) has written.
    #[arg(required = true, value_name = "RAW.json")]
    raw: Vec<PathBuf>,

    /// The page to write. A file of this name is replaced when the new one is complete. [default:
    /// report.html, if neither --markdown nor --svg is asked for]
    #[arg(short, long, value_name = "PAGE")]
    output: Option<PathBuf>,

    /// Prints tables in Markdown, of launches and sizes.
    #[arg(long)]
    markdown: bool,

    /// Writes box plots of cold launches as a picture, which is light or dark as its reader has it.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Shows these alone, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    formats: Vec<String>,
}

fn readiness(text: &str) -> anyhow::Result<String> {
    ready(text).map(|_| text.to_owned())
}

fn variable(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => bail!("allowed is NAME=VALUE"),
    }
}

/// Does what the arguments of this process ask for.
pub fn run() -> anyhow::Result<Answer> {
    match &Lab::parse().action {
        Action::Launch(args) => launch(args),
        Action::Codecs(args) => codecs(args),
        Action::Load(args) => load::run(args),
        Action::Reads(args) => reads::run(args),
        Action::Report(args) => make_report(args),
        Action::Restore => Ok(match undo::restore()? {
            true => Answer::Yes,
            false => Answer::No,
        }),
        Action::LoadWorker { job } => worker::run(job).map(|()| Answer::Yes),
        Action::ReadsWorker { job } => crate::reads::work(job).map(|()| Answer::Yes),
        Action::Manual(manual) => manual.write(Some(Lab::command())),
    }
}

fn codecs(args: &CodecsArgs) -> anyhow::Result<Answer> {
    let command = Words::new(args.command.clone());
    let recipes = Recipe::list(args.all).into_iter();
    let packed = recipes.map(|recipe| Format::Kernel(Rival::Packed(recipe)));
    let formats = std::iter::once(Format::Directory).chain(packed);
    let mut experiment = args.how.experiment(formats.collect(), args.runs);
    experiment.sample = command.is_none().then_some(args.sample);
    experiment.check()?;
    // Of a sample nothing is launched.
    let words = command.or_else(|| Words::new(["none"]));
    let words = words.context("a command has a first word")?;
    experiment.apps.push(App::new(&args.tree, None, words)?);
    finish(&experiment, args.how.json)
}

fn make_report(args: &ReportArgs) -> anyhow::Result<Answer> {
    let (mut raws, parts) = kept::open(&args.raw)?;
    if !args.formats.is_empty() {
        report::keep(&mut raws, &args.formats)?;
    }
    let page = match &args.output {
        None if !args.markdown && args.svg.is_none() => Some(Path::new("report.html")),
        page => page.as_deref(),
    };
    if let Some(page) = page {
        report::write(&raws, &parts, page)?;
    }
    if let Some(svg) = &args.svg {
        write_whole(&report::picture(&raws), svg)?;
    }
    if args.markdown {
        let mut out = io::stdout().lock();
        let written = out.write_all(report::markdown(&raws).as_bytes());
        written
            .and_then(|()| out.flush())
            .context("cannot write the tables")?;
    }
    Ok(Answer::Yes)
}

fn launch(args: &LaunchArgs) -> anyhow::Result<Answer> {
    let formats = args.formats.iter().flat_map(|list| list.0.clone());
    let mut formats: Vec<_> = formats.collect();
    if args.ablation {
        let missing = Format::ablation().filter(|format| !formats.contains(format));
        let missing: Vec<_> = missing.collect();
        formats.extend(missing);
    }
    let runs = match args.quick {
        true => QUICK,
        false => args.runs,
    };
    let mut experiment = args.how.experiment(formats, runs);
    experiment.limits.clone_from(&args.disk);
    experiment.recordings = args.recordings;
    experiment.check()?;
    for spec in &args.apps {
        experiment
            .apps
            .push(App::open(spec, args.trees.as_deref())?);
    }
    if let (Some(tree), Some(command)) = (&args.tree, Words::new(args.command.clone())) {
        let mut app = App::new(tree, None, command)?;
        app.prints.clone_from(&args.prints);
        app.env.extend(args.env.iter().cloned());
        if let Some(ready) = &args.ready {
            app.ready.clone_from(ready);
        }
        experiment.apps.push(app);
    }
    if experiment.apps.is_empty() {
        bail!(
            "there is nothing to launch: name specs with --app, or --tree DIR and a command after --"
        );
    }
    if let Some(home) = args.home {
        experiment.apps.iter_mut().for_each(|app| app.home = home);
    }
    finish(&experiment, args.how.json)
}

/// Measures, shows what came out, and makes the page of it.
fn finish(experiment: &Experiment, json: bool) -> anyhow::Result<Answer> {
    let results = experiment.run()?;
    // First, as nobody may read what is printed.
    let page = kept::write_page_in(&experiment.out);
    let mut out = io::stdout().lock();
    match json {
        true => {
            serde_json::to_writer_pretty(&mut out, &results)?;
            writeln!(out)?;
        }
        false => write!(out, "{}", table::of(&results))?,
    }
    out.flush().context("cannot write the table")?;
    page?;
    Ok(Answer::Yes)
}
