//! The verbs of `brisk lab`.

mod load;
mod reads;
mod remote;
mod repeated;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use brisk::{Manual, Rate, write_manual, write_whole};
use brisk_terminal::answer::Answer;
use brisk_terminal::size::parse_size;
use clap::{CommandFactory, Parser, Subcommand};

use self::repeated::QUICK;
use crate::app::{App, Home, Words, ready};
use crate::cold::Chill;
use crate::experiment::Experiment;
use crate::format::{Format, Formats};
use crate::load::worker;
use crate::recipe::Recipe;
use crate::rival::Rival;
use crate::{kept, network, raw, report, table, undo};

/// How often a command is recorded by default.
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
    /// Compares codecs and their options: size, time to pack, and time to read.
    Codecs(Box<CodecsArgs>),
    /// Measures ways to load a large file into memory, cold and warm, until the process has ended.
    Load(Box<load::Args>),
    /// Measures thousands of small reads of a file: from mappings, by system calls, and asynchronous.
    Reads(reads::Args),
    /// Measures how fast a program starts from an image on a server, over a line with a rate and a delay.
    Remote(Box<remote::Args>),
    /// Makes the page with pictures again from kept results, or tables and a picture for other pages.
    Report(ReportArgs),
    /// Restores what an experiment changed, once it is over. The lab starts this itself.
    #[command(hide = true)]
    Restore,
    /// Carries packets from one network device to another. The lab starts this itself.
    #[command(hide = true)]
    Relay {
        /// The job, in the form that the lab writes.
        job: String,
    },
    /// Loads a file once. The lab starts this itself.
    #[command(hide = true)]
    LoadWorker {
        /// The job, in the form that the lab writes.
        job: String,
    },
    /// Reads a file once. The lab starts this itself.
    #[command(hide = true)]
    ReadsWorker {
        /// The job, in the form that the lab writes.
        job: String,
    },
    #[command(flatten)]
    Manual(Manual),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Formats:\n  \
  directory               the tree itself\n  \
  directory-replay        the tree, and a profile of the launch is replayed beside it\n  \
  directory-replay-wrong  the same, with pages that the launch never asks for\n  \
  squashfs-CODEC          mksquashfs, mounted by the kernel: none, lz4, lzo, gzip, zstd or xz\n  \
  squashfs-zstd-sorted    the same; the files that the launch reads come first, uncompressed\n  \
  squashfuse              the image of squashfs-zstd, mounted by squashfuse\n  \
  squashfuse_ll           the same, mounted by squashfuse_ll\n  \
  erofs-CODEC             mkfs.erofs, mounted by the kernel: none, lz4, lz4hc, zstd or lzma\n  \
  NAME-replay             one of squashfs or erofs, and a profile of the launch is replayed beside it\n  \
  brisk                   an image of brisk (zstd 15) without a hot pack, started by brisk run\n  \
  brisk-speed             the same, filled from a hot pack made for speed\n  \
  brisk-size              the same, filled from a hot pack made for size\n  \
  brisk-wrong             the same, filled with pages that the launch never asks for\n  \
  beside-CODEC            mksquashfs (xz, gzip, zstd), filled from a hot pack beside it\n  \
  beside:IMAGE            an image that exists already, filled from a hot pack beside it\n  \
  auto                    the tree, started by brisk run --auto when that has learned the program\n  \
  auto-first              the same, each time for the first time: brisk observes the start\n  \
  all                     all of these but the last\n\n\
--ablation adds:\n  \
  directory-replay-pages, brisk-speed-pages    without looking up names ahead\n  \
  directory-replay-names, brisk-speed-names    only names, no contents (one page of a pack)\n  \
  directory-replay-blocks, brisk-speed-blocks  whole blocks of 128 KiB instead of pages\n  \
  directory-replay-1-thread, -8-threads        1 or 8 threads read instead of 4\n  \
  brisk-speed-1-thread                         one thread fills instead of two\n\n\
The lab names each format that cannot run here, because a tool or the kernel lacks it, with the reason.\n\n\
In each repetition the lab launches every format cold and then warm, and walks it cold (reads and hashes every \
file), in random order. Before a cold launch it proves that brisk and the files that the format reads are not in \
memory, and the clock starts before the mount. After a warm launch it proves that the launch read next to nothing \
from the disk: at most 256 KiB, or 2 % of what the cold launch read if that is more. What brisk starts has a bound, the \
time that it reaches if reading takes no time: the lab ends the session and launches once more, from before the mount, \
with all that the launch reads from the disk in memory. A launch that fails, or does not print what it should, ends the \
experiment. Hot packs are made from a profile of the launch itself and, if a \
spec names other inputs to train on, also from profiles of those.\n\n\
Launches get an environment with PATH, HOME, LC_ALL and the given variables, and an empty home directory in \
memory. OUT/raw.json has every single run, the machine and all commands; OUT/report.html shows them in pictures. \
The lab sets read-ahead, stops services that take unused pages from memory (DAMON), mounts in a namespace of its \
own, and makes images and sessions. It undoes all of that, however it ends. Needs root.\n\n\
Examples:\n  \
  brisk lab launch --tree /opt/app -- bin/app --version\n  \
  brisk lab launch --app workshop/lab/apps/python.toml --trees /var/tmp/trees")]
struct LaunchArgs {
    /// A spec of a program: workshop/lab/apps has examples. May be repeated.
    #[arg(long = "app", value_name = "SPEC", conflicts_with_all = ["tree", "command"])]
    apps: Vec<PathBuf>,

    /// Where the trees of specs are, or are built. [default: beside each spec]
    #[arg(long, value_name = "DIR", requires = "apps")]
    trees: Option<PathBuf>,

    /// The tree of the command. The command runs in the tree itself.
    #[arg(long, value_name = "DIR", requires = "command")]
    tree: Option<PathBuf>,

    /// A text that the command prints on standard output if it works.
    #[arg(long, value_name = "TEXT", requires = "tree")]
    prints: Option<String>,

    /// When a launch is over and the clock stops: when the command exits (exit), when TEXT is in a line of its
    /// standard output or standard error (line:TEXT), or when it shows a window on the display that --env DISPLAY=:N
    /// names (window, or window:TITLE).
    #[arg(long, value_name = "WHEN", requires = "tree", value_parser = readiness)]
    ready: Option<String>,

    /// Sets a variable of the command's environment. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", requires = "tree", value_parser = variable)]
    env: Vec<(String, String)>,

    /// The formats to measure, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = Format::DEFAULT)]
    formats: Vec<Formats>,

    /// Also measures what each part of a replay and of a fill gains, by leaving one of them out or changing
    /// it.
    #[arg(long)]
    ablation: bool,

    /// How many cold launches, and how many warm launches, to make of each format.
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// How often to record each command for its profile. No two launches ask for exactly the same pages.
    #[arg(long, value_name = "N", default_value_t = RECORDINGS,
          value_parser = clap::value_parser!(u32).range(1..))]
    recordings: u32,

    /// Makes three launches of each format, for a first look.
    #[arg(long, conflicts_with = "runs")]
    quick: bool,

    /// Limits the disks below while launches are measured, to this many bytes (bps=200M) or operations
    /// (iops=2000) in a second, or both, separated by a comma. Direct reads first prove that the limits hold.
    /// Needs the controller blkio of cgroup v1, which then limits the lab's group, or io of cgroup v2, which
    /// limits the launches.
    #[arg(long, value_name = "LIMITS", value_delimiter = ',')]
    disk: Vec<Rate>,

    /// Starts programs as the ordinary user with this number, with sessions of that user. Under chroot, brisk replay
    /// stays root's, and the program becomes the user's. Measures no walks, as root cannot read a mount of that user.
    #[arg(long, value_name = "UID", value_parser = clap::value_parser!(u32).range(1..))]
    user: Option<u32>,

    /// Measures launches only, and does not read whole trees.
    #[arg(long)]
    no_walks: bool,

    /// What programs find in their home directory: nothing, or what earlier launches have left. [default: what the
    /// spec says, else fresh]
    #[arg(long, value_name = "WHAT")]
    home: Option<Home>,

    #[command(flatten)]
    how: How,

    /// The command and its arguments. A name with a slash is a path in the tree (bin/app), an absolute path is taken
    /// as it is, and a bare name is looked up in PATH.
    #[arg(last = true, requires = "tree", value_name = "CMD")]
    command: Vec<OsString>,
}

/// Options of every experiment.
#[derive(Debug, clap::Args)]
struct How {
    /// The directory for raw.json and report.html. The lab also makes images below it and removes them, so it chooses
    /// the disk.
    #[arg(
        short,
        long,
        alias = "output",
        value_name = "DIR",
        default_value = "brisk-lab"
    )]
    out: PathBuf,

    /// Read-ahead of the disks below, in KiB. Most machines have 128.
    #[arg(long, value_name = "KIB", default_value_t = 128)]
    read_ahead: u32,

    /// What is not in memory before a cold launch: anything of the system, or only the files of the format.
    /// The latter disturbs other programs less, but the directory then keeps its names and attributes in
    /// memory.
    #[arg(long, value_name = "WHAT", default_value = "system")]
    cold: Chill,

    /// Seed of the random orders. [default: a new one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Prints the contents of raw.json instead of the table.
    #[arg(long)]
    json: bool,

    /// Shows no progress.
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
            user: None,
            skip_walks: false,
            seed: self.seed.unwrap_or_else(|| fastrand::u64(..)),
            sample: None,
            quiet: self.quiet,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The lab makes images of a sample of the tree with each codec at several levels, with dictionaries and branch \
filters of xz, and with large blocks. The kernel mounts them, and the lab reads and hashes every file with \
nothing in memory before, in turns. It answers common questions about codecs in words, from what it measured.\n\n\
With a command behind --, the images are of the whole tree, and the lab also launches the command from them, as \
brisk lab launch does. brisk pack makes the images, and mksquashfs those for the levels of lzo. Needs root.\n\n\
Examples:\n  \
  brisk lab codecs /opt/app\n  \
  brisk lab codecs /opt/app --all --sample 200M --runs 5\n  \
  brisk lab codecs /opt/app -- bin/app --version")]
struct CodecsArgs {
    /// The tree to pack.
    tree: PathBuf,

    /// About how many bytes of the tree to pack, with a share of every kind of file.
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = parse_size,
          conflicts_with = "command")]
    sample: u64,

    /// Measures every level, and more options of xz. Takes hours for a large sample.
    #[arg(long)]
    all: bool,

    /// How many walks of each image, and how many launches, to make.
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    #[command(flatten)]
    how: How,

    /// A command to launch with its arguments, as for brisk lab launch.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The page is one file, which opens without a network. It shows launches and walks as box plots, sizes, what the \
launch reads in which order, the machine, the method and what could not run, and holds the raw runs to save. \
Results of several experiments, such as those on different disks, make one page.\n\n\
Examples:\n  \
  brisk lab report fast/raw.json slow/raw.json -o report.html\n  \
  brisk lab report raw.json --formats directory,brisk-speed --markdown --svg launches.svg")]
struct ReportArgs {
    /// Files that brisk lab launch (raw.json), load (load.json) or reads (reads.json) wrote.
    #[arg(required = true, value_name = "RAW.json")]
    raw: Vec<PathBuf>,

    /// The page to write. It replaces a file of this name when it is complete. [default: report.html, without
    /// --markdown, --summary and --svg]
    #[arg(short, long, value_name = "PAGE")]
    output: Option<PathBuf>,

    /// Prints tables of launches and of sizes in Markdown.
    #[arg(long)]
    markdown: bool,

    /// Prints one table in Markdown with a row for each program, of at most 16.
    #[arg(long, conflicts_with = "markdown")]
    summary: bool,

    /// Writes box plots of cold launches as a picture that follows its reader's light or dark setting.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Shows only these formats, separated by commas. brisk-speed/same means only the row with a profile of
    /// the same launch, and brisk-speed/another only the one with a profile of another launch.
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

/// Runs the verb that the arguments name.
pub fn run() -> anyhow::Result<Answer> {
    match &Lab::parse().action {
        Action::Launch(args) => launch(args),
        Action::Codecs(args) => codecs(args),
        Action::Load(args) => load::run(args),
        Action::Reads(args) => reads::run(args),
        Action::Remote(args) => remote::run(args),
        Action::Report(args) => make_report(args),
        Action::Restore => Ok(match undo::restore()? {
            true => Answer::Yes,
            false => Answer::No,
        }),
        Action::Relay { job } => network::run_relay(job).map(|()| Answer::Yes),
        Action::LoadWorker { job } => worker::run(job).map(|()| Answer::Yes),
        Action::ReadsWorker { job } => crate::reads::work(job).map(|()| Answer::Yes),
        Action::Manual(manual) => write_manual(manual, Some(Lab::command())),
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
    // No program is launched from a sample.
    let words = command.or_else(|| Words::new(["none"]));
    let words = words.context("a command has a first word")?;
    experiment.apps.push(App::new(&args.tree, None, words)?);
    finish(&experiment, args.how.json)
}

fn make_report(args: &ReportArgs) -> anyhow::Result<Answer> {
    let (mut raws, parts) = kept::open(&args.raw)?;
    if !args.formats.is_empty() {
        raw::keep(&mut raws, &args.formats)?;
    }
    let page = match &args.output {
        None if !args.markdown && !args.summary && args.svg.is_none() => {
            Some(Path::new("report.html"))
        }
        page => page.as_deref(),
    };
    if let Some(page) = page {
        report::write(&raws, &parts, page)?;
    }
    if let Some(svg) = &args.svg {
        write_whole(&report::picture(&raws), svg)?;
    }
    let tables = match (args.markdown, args.summary) {
        (true, _) => Some(report::markdown(&raws)),
        (_, true) => Some(report::summary(&raws)?),
        _ => None,
    };
    if let Some(tables) = tables {
        let mut out = io::stdout().lock();
        let written = out.write_all(tables.as_bytes());
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
    experiment.user = args.user;
    experiment.skip_walks = args.no_walks;
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

/// Measures, prints the results, and makes their page.
fn finish(experiment: &Experiment, json: bool) -> anyhow::Result<Answer> {
    let results = experiment.run()?;
    // The page comes first, because nobody may read what is printed.
    let page = report::write_in(&experiment.out);
    let mut out = io::stdout().lock();
    match json {
        true => {
            serde_json::to_writer_pretty(&mut out, &results)?;
            writeln!(out)?;
        }
        false => {
            let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let text = table::of(&results);
            match out.is_terminal() && !is_plain {
                true => write!(out, "{}", table::emphasised(&text))?,
                false => write!(out, "{text}")?,
            }
        }
    }
    out.flush().context("cannot write the table")?;
    page?;
    Ok(Answer::Yes)
}
