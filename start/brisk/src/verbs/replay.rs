//! `brisk replay`: asks the kernel to read what a launch will need.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use brisk_launch::{BackgroundReplay, DiskCharge, GivenUp, PlainLaunch, Replay, Replayed};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{count, say, warn};
use brisk_terminal::names::shown;
use brisk_terminal::size::parse_size;
use indicatif::BinaryBytes;
use serde::Serialize;

use super::profile::{self, ChangedJson};
use crate::direct_launch::exec_plain;
use crate::disk_rate::parse_charge;
use crate::file_kind::check_profile;
use crate::json;
use crate::known_launch::start_or_warn;

/// What to replay.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
brisk asks the kernel for the pages and names of the profile, in the order of the launch. It reads nothing that \
is in memory already, uses at most half of the free memory, and leaves out files that have another length than \
when they were recorded, or that it may not read.\n\n\
brisk asks in pieces that suit the disk: where operations are expensive, it also reads what lies between two \
ranges. brisk trace measures what a disk charges, once, and so does --measure. The result is in \
$XDG_CACHE_HOME/brisk/devices, or else in ~/.cache/brisk/devices. Without it, brisk assumes what is usual for \
the disk's kind.\n\n\
With a command, brisk becomes the command at once, and a process of its own replays beside it. That process \
gives up when it is late, and when the command reads other things or is a program of the tree that no recorded \
launch started. Then the exit code is the command's, or 125 if brisk failed, 126 if the command cannot be \
executed and 127 if it does not exist.")]
pub struct Args {
    /// The profile (see brisk trace), or a directory of profiles: brisk replays each file of it that ends in .profile, in
    /// the order of their names. May be repeated, but not with a command.
    #[arg(required = true, value_name = "PROFILE|DIR")]
    profiles: Vec<PathBuf>,

    /// Where the files of a recorded directory or image are now. May be repeated. [default: where they were recorded]
    #[arg(long, value_name = "DIR")]
    at: Vec<PathBuf>,

    #[command(flatten)]
    reading: ReadingArgs,

    /// Writes a log of what was asked for when to this file, for brisk lab.
    #[arg(long, value_name = "FILE", hide = true, requires = "command")]
    log: Option<PathBuf>,

    /// Measures the disks first, even if they were measured before.
    #[arg(long, conflicts_with = "command")]
    measure: bool,

    /// Prints JSON.
    #[arg(long, conflicts_with = "command")]
    json: bool,

    /// Prints nothing.
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    quiet: bool,

    /// With a command, says on standard error what was replayed, when the replay is over.
    #[arg(short, long)]
    verbose: bool,

    /// The command and its arguments.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How to read.
#[derive(Debug, clap::Args)]
pub struct ReadingArgs {
    /// What the disk can do in a second: bytes, operations, or both. [default: as measured]
    #[arg(long, value_name = "bps=SIZE,iops=N", value_parser = parse_charge)]
    disk: Option<DiskCharge>,

    /// Reads at most this many bytes, and never more than half of the free memory. [default: everything]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    budget: Option<u64>,

    /// How many threads ask for pages, for brisk lab.
    #[arg(long, value_name = "N", hide = true)]
    threads: Option<NonZeroUsize>,
}

impl ReadingArgs {
    /// Whether any of these options was given.
    pub fn is_given(&self) -> bool {
        self.disk.is_some() || self.budget.is_some() || self.threads.is_some()
    }

    pub fn charge(&self) -> DiskCharge {
        self.disk.unwrap_or_default()
    }

    /// Sets the options that were given.
    pub fn apply(&self, background: &mut BackgroundReplay) {
        background.charge = self.charge();
        background.budget = self.budget;
        background.threads = self.threads;
    }
}

impl Args {
    /// Whether the replay is for a command.
    pub fn has_command(&self) -> bool {
        !self.command.is_empty()
    }
}

/// Does not return if there is a command and it starts.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    if args.has_command() {
        let [profile] = &*args.profiles else {
            bail!(
                "brisk replays one profile beside a command, and not {}; brisk profile merge makes one of several",
                args.profiles.len()
            );
        };
        let mut background = open_background(profile)?;
        background.at = args.at.clone();
        args.reading.apply(&mut background);
        background.log = args.log.clone();
        background.report = args.verbose.then_some(summary);
        return start_with(background, &PlainLaunch::new(args.command.clone()));
    }
    let named = named(&args.profiles)?;
    let mut left = args.reading.budget;
    let mut all = Vec::new();
    for NamedProfile {
        path,
        is_of_directory,
    } in &named
    {
        match replay(args, path, left) {
            Ok(replayed) => {
                left = left.map(|left| left.saturating_sub(replayed.pages.asked));
                if named.len() > 1 && !args.json && !args.quiet {
                    let mut out = std::io::stdout();
                    writeln!(out, "{}: {}", shown(path), summary(&replayed))?;
                }
                all.push(replayed);
            }
            // The others are as useful as before.
            Err(error) if *is_of_directory => warn(&format!("{error:#}")),
            Err(error) => return Err(error),
        }
    }
    ensure!(!all.is_empty(), "no profile was replayed");
    match &*all {
        _ if args.json => json::print(&ReplayJson::of(&all))?,
        [one] if named.len() == 1 => tell(one, false, args.quiet)?,
        _ => {}
    }
    Ok(Answer::Yes)
}

/// A profile to replay.
struct NamedProfile {
    path: PathBuf,
    /// Whether a directory was named, and not this file.
    is_of_directory: bool,
}

/// What a profile in a directory ends in.
const PROFILE: &[u8] = b".profile";

/// The profiles at these paths. Those of a directory are sorted by name.
fn named(paths: &[PathBuf]) -> anyhow::Result<Vec<NamedProfile>> {
    let mut named = Vec::new();
    for path in paths {
        if !path.is_dir() {
            named.push(NamedProfile {
                path: path.clone(),
                is_of_directory: false,
            });
            continue;
        }
        let failed = || format!("cannot read {}", shown(path));
        let mut found = Vec::new();
        for entry in fs::read_dir(path).with_context(failed)? {
            let entry = entry.with_context(failed)?;
            // A pipe would wait for whoever writes into it.
            if entry.file_name().as_bytes().ends_with(PROFILE) && entry.path().is_file() {
                found.push(entry.path());
            }
        }
        let name = shown(path);
        let plain = name.trim_end_matches('/');
        ensure!(
            !found.is_empty(),
            "{name} is a directory, and no file in it ends in .profile: `brisk trace --tree {plain} -o {plain}.profile -- CMD` \
             records one"
        );
        found.sort();
        named.extend(found.into_iter().map(|path| NamedProfile {
            path,
            is_of_directory: true,
        }));
    }
    Ok(named)
}

/// Replays one profile, and waits for it.
fn replay(args: &Args, path: &Path, budget: Option<u64>) -> anyhow::Result<Replayed> {
    let open = || -> anyhow::Result<Replay> {
        let profile = profile::open(path)?;
        Ok(Replay::new(profile, &args.at, args.reading.charge())?)
    };
    if args.measure {
        let measured = open()?.measure(true)?;
        if measured.is_empty() {
            warn(
                "no disk was measured: that needs a file of at least 4 MiB that the profile lists",
            );
        }
        for disk in measured.iter().filter(|_| !args.quiet) {
            say(&format!(
                "disk {}: bps={} ({}), iops={}",
                disk.name,
                disk.charge.bytes_per_second,
                BinaryBytes(disk.charge.bytes_per_second.get()),
                disk.charge.operations_per_second
            ));
        }
    }
    let mut replay = open()?;
    replay.budget = budget;
    replay.threads = args.reading.threads.unwrap_or(replay.threads);
    // There is no program to race: the kernel is asked piece by piece what is in memory.
    replay.race = false;
    Ok(replay.run()?)
}

/// A replay of the profile in the file at `path`.
pub fn open_background(path: &Path) -> anyhow::Result<BackgroundReplay> {
    let background = BackgroundReplay::open(path)?;
    // Otherwise the program would start, with nothing replayed.
    check_profile(path)?;
    Ok(background)
}

/// Prints what was replayed.
pub fn tell(replayed: &Replayed, json: bool, quiet: bool) -> std::io::Result<()> {
    if json {
        return json::print(&ReplayJson::of(std::slice::from_ref(replayed)));
    }
    if !quiet {
        writeln!(std::io::stdout(), "{}", summary(replayed))?;
    }
    Ok(())
}

/// Starts the process that replays, and becomes the program, even if nothing can be replayed.
pub fn start_with(background: BackgroundReplay, launch: &PlainLaunch) -> anyhow::Result<Answer> {
    start_or_warn(background);
    match exec_plain(launch)? {}
}

/// What was replayed, for people.
pub fn summary(replayed: &Replayed) -> String {
    let pages = &replayed.pages;
    let mut text = format!(
        "{} asked for in {} and {}, {} in memory already; {} looked up; {} ms",
        BinaryBytes(pages.asked),
        count(pages.extents, "piece", "pieces"),
        count(replayed.files, "file", "files"),
        BinaryBytes(pages.resident.saturating_add(pages.passed)),
        count(replayed.look_ups, "name", "names"),
        replayed.time.as_millis()
    );
    text += match replayed.given_up {
        None => "",
        Some(GivenUp::OtherReads) => "; given up: the program reads other things",
        Some(GivenUp::UnrecordedProgram) => "; given up: no recorded launch started this program",
        Some(_) => "; given up",
    };
    let lacks = [
        (replayed.stale, "of another length"),
        (replayed.missing, "missing"),
    ];
    for (files, what) in lacks.into_iter().filter(|(files, _)| *files > 0) {
        text += &format!("; {} {what}", count(files, "file", "files"));
    }
    let left = [
        (pages.over_budget, "left out for lack of memory or budget"),
        (pages.failed, "could not be read"),
    ];
    for (bytes, what) in left.into_iter().filter(|(bytes, _)| *bytes > 0) {
        text += &format!("; {} {what}", BinaryBytes(bytes));
    }
    text
}

/// What `brisk replay --json` prints. Without a program, no page is passed over and nothing is given up.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReplayJson {
    /// Profiles that brisk replayed.
    profiles: usize,
    /// Bytes that brisk asked the kernel to read.
    asked_bytes: u64,
    /// Requests for these bytes.
    pieces: u64,
    /// Bytes that were in memory already, or that the kernel was already reading.
    resident_bytes: u64,
    /// Bytes in files that are gone, that brisk may not read, or that have another length.
    missing_bytes: u64,
    /// Bytes that brisk left out because of `--budget` or too little free memory.
    over_budget_bytes: u64,
    /// The part of `asked_bytes` that could not be read.
    failed_bytes: u64,
    /// Files of the profile that brisk looked at.
    files: u64,
    /// Files of another length, and files that are not regular.
    changed_files: u64,
    /// Files that are gone, or that brisk may not read.
    missing_files: u64,
    /// Names that brisk looked up.
    look_ups: ChangedJson,
    /// Time until everything was in memory.
    seconds: f64,
}

impl ReplayJson {
    /// All of these together.
    fn of(replayed: &[Replayed]) -> Self {
        let sum = |count: fn(&Replayed) -> u64| {
            let counts = replayed.iter().map(count);
            counts.fold(0, u64::saturating_add)
        };
        let time: Duration = replayed.iter().map(|replayed| replayed.time).sum();
        Self {
            profiles: replayed.len(),
            asked_bytes: sum(|replayed| replayed.pages.asked),
            pieces: sum(|replayed| replayed.pages.extents),
            resident_bytes: sum(|replayed| replayed.pages.resident),
            missing_bytes: sum(|replayed| replayed.pages.missing),
            over_budget_bytes: sum(|replayed| replayed.pages.over_budget),
            failed_bytes: sum(|replayed| replayed.pages.failed),
            files: sum(|replayed| replayed.files),
            changed_files: sum(|replayed| replayed.stale),
            missing_files: sum(|replayed| replayed.missing),
            look_ups: ChangedJson {
                same: sum(|replayed| replayed.look_ups.saturating_sub(replayed.changed)),
                changed: sum(|replayed| replayed.changed),
            },
            seconds: time.as_secs_f64(),
        }
    }
}
