//! `brisk warm`: reads an image, a directory or a profile's pages into the page cache.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use brisk_launch::{DiskCharge, Replay, Warmed, warm};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{count, say};
use brisk_terminal::names::shown;
use brisk_terminal::size::parse_size;
use indicatif::BinaryBytes;
use serde::Serialize;

use super::profile;
use super::replay::tell;
use crate::file_kind::FileKind;
use crate::image_args::open_image;
use crate::json;

/// What to read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Of an image, brisk reads the hot pack beside it (IMAGE.hot) and then the file. Of a directory, it reads each \
regular file, but not its holes, and of a profile the pages that it lists, as brisk replay does. It does not read again what is in \
memory already. Everything stays in memory until the system needs the room. If something is there that brisk cannot read, it \
reads the rest and fails.")]
pub struct Args {
    /// The image, the directory or the profile.
    #[arg(value_name = "IMAGE|DIR|PROFILE")]
    what: PathBuf,

    /// Where the files of a recorded directory or image are now. May be repeated. [default: where they were recorded]
    #[arg(long, value_name = "DIR")]
    at: Vec<PathBuf>,

    /// Reads at most this many bytes, and never more than half of the free memory. [default: everything]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    budget: Option<u64>,

    /// Prints JSON.
    #[arg(long)]
    json: bool,

    /// Prints nothing.
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    quiet: bool,

    /// Says first what it will read.
    #[arg(short, long)]
    verbose: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let (files, mut unread) = if args.what.is_dir() {
        files_of(&args.what)?
    } else if FileKind::of(&args.what) == Some(FileKind::Profile) {
        return replay(args);
    } else {
        (image_files(&args.what)?, Vec::new())
    };
    if !args.at.is_empty() {
        bail!("--at is for profiles, and {} is none", args.what.display());
    }
    let bytes = files
        .iter()
        .map(|(_, len)| len)
        .fold(0, |sum: u64, len| sum.saturating_add(*len));
    let number = files.len() as u64;
    if args.verbose {
        if !args.what.is_dir() {
            for (path, len) in &files {
                say(&format!("{}, {}", shown(path), BinaryBytes(*len)));
            }
        }
        say(&format!(
            "{}, {}",
            count(number, "file", "files"),
            BinaryBytes(bytes)
        ));
    }
    let warmed = warm(files, args.budget)?;
    let pages = &warmed.pages;
    if args.json {
        json::print(&WarmJson {
            files: number,
            bytes,
            asked_bytes: pages.asked,
            resident_bytes: pages.resident,
            hole_bytes: warmed.holes,
            missing_bytes: pages.missing,
            over_budget_bytes: pages.over_budget,
            failed_bytes: pages.failed,
        })?;
    } else if !args.quiet {
        writeln!(io::stdout(), "{}", summary(bytes, &warmed))?;
    }
    unread.extend(warmed.unread);
    let mut unread = unread.into_iter();
    let Some((path, e)) = unread.next() else {
        return Ok(Answer::Yes);
    };
    let others = match unread.len() as u64 {
        0 => String::new(),
        more => format!(" and {}", count(more, "other", "others")),
    };
    Err(e).with_context(|| format!("cannot read {}{others}", shown(&path)))
}

/// What `brisk warm --json` prints of an image or a directory.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WarmJson {
    /// The image with the hot pack beside it, or the regular files of the directory.
    files: u64,
    /// Size of these files.
    bytes: u64,
    /// Bytes that brisk asked the kernel to read.
    asked_bytes: u64,
    /// Bytes that were in memory already, or that the kernel was already reading.
    resident_bytes: u64,
    /// Bytes in holes of the files, which need no reading.
    hole_bytes: u64,
    /// Bytes in files that brisk may not read, or that are gone.
    missing_bytes: u64,
    /// Bytes that brisk left out because of `--budget` or too little free memory.
    over_budget_bytes: u64,
    /// The part of `asked_bytes` that could not be read.
    failed_bytes: u64,
}

/// What was done about `bytes`, for people.
pub fn summary(bytes: u64, warmed: &Warmed) -> String {
    let counts = &warmed.pages;
    let mut text = format!(
        "{} of {} read, {} in memory already",
        BinaryBytes(counts.asked),
        BinaryBytes(bytes),
        BinaryBytes(counts.resident)
    );
    for (bytes, what) in [
        (warmed.holes, "in holes"),
        (counts.over_budget, "left out for lack of memory or budget"),
        (counts.missing, "in files that may not be read"),
        (counts.failed, "could not be read"),
    ] {
        if bytes > 0 {
            text += &format!("; {} {what}", BinaryBytes(bytes));
        }
    }
    text
}

fn replay(args: &Args) -> Result<Answer> {
    let profile = profile::open(&args.what)?;
    if args.verbose {
        for (root, demand) in profile.roots().iter().zip(profile.demand_by_root()) {
            say(&format!(
                "recorded in {}: {} of {}, {}",
                shown(&root.path),
                BinaryBytes(demand.bytes),
                count(demand.files, "file", "files"),
                count(demand.found.saturating_add(demand.absent), "name", "names"),
            ));
        }
        for at in &args.at {
            say(&format!("read in {}", shown(at)));
        }
    }
    let mut replay = Replay::new(profile, &args.at, DiskCharge::default())?;
    replay.budget = args.budget;
    replay.race = false;
    let replayed = replay.run()?;
    tell(&replayed, args.json, args.quiet)?;
    let failed = replayed.pages.failed;
    ensure!(
        failed == 0,
        "{}: {} of its pages could not be read",
        shown(&args.what),
        BinaryBytes(failed)
    );
    Ok(Answer::Yes)
}

/// Files with their lengths, and what could not be read on the way to them, and why.
type Found = (Vec<(PathBuf, u64)>, Vec<(PathBuf, io::Error)>);

/// The regular files of a directory, each once, sorted by name. In a tree that is in use, files may disappear.
fn files_of(top: &Path) -> Result<Found> {
    let (mut files, mut unread) = (Vec::new(), Vec::new());
    let mut known = HashSet::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        let listed = fs::read_dir(&directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match listed {
            Ok(entries) => entries,
            Err(e) if directory == top => {
                return Err(e).with_context(|| format!("cannot read {}", shown(top)));
            }
            Err(e) => {
                note(&mut unread, directory, e);
                continue;
            }
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        let mut inner = Vec::new();
        for entry in entries {
            let path = entry.path();
            // Links are not followed. If their target is in the directory, it is read anyway; if not, it is
            // not wanted.
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(e) => {
                    note(&mut unread, path, e);
                    continue;
                }
            };
            if metadata.is_dir() {
                inner.push(path);
            } else if metadata.is_file()
                && (metadata.nlink() == 1 || known.insert((metadata.dev(), metadata.ino())))
            {
                files.push((path, metadata.len()));
            }
        }
        directories.extend(inner.into_iter().rev());
    }
    Ok((files, unread))
}

/// Notes what cannot be read, unless it has gone.
fn note(unread: &mut Vec<(PathBuf, io::Error)>, path: PathBuf, e: io::Error) {
    if e.kind() != io::ErrorKind::NotFound {
        unread.push((path, e));
    }
}

/// The hot pack beside the image, if there is one, and the image.
fn image_files(image: &Path) -> Result<Vec<(PathBuf, u64)>> {
    // Reading a file that is not an image would be useless.
    open_image(image, None)?;
    let mut hot = image.as_os_str().to_owned();
    hot.push(".hot");
    let mut files = Vec::new();
    // Reads the targets of links, and opens them without following links again.
    for path in [PathBuf::from(hot).canonicalize(), image.canonicalize()] {
        if let Ok(path) = path
            && let Ok(metadata) = path.metadata()
        {
            files.push((path, metadata.len()));
        }
    }
    Ok(files)
}
