//! `brisk extract`: writes the tree of an image, or a part of it, into a directory.

use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::bail;
use brisk_image::Extractor;
use brisk_image::summary::ExtractSummary;
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{count, say, warn};
use brisk_terminal::size::parse_size;
use indicatif::BinaryBytes;
use serde::Serialize;

use crate::image_args::{ImageArgs, LimitArgs, advise};
use crate::path_hint::{LISTS, what_to_name};
use crate::progress::Progress;
use crate::summary_args::SummaryArgs;
use crate::verify_args::VerifyArgs;

/// What to extract, and where to.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    #[command(flatten)]
    verified: VerifyArgs,

    #[command(flatten)]
    limits: LimitArgs,

    /// The directory to extract into. brisk makes it if it does not exist. It must be empty.
    #[arg(value_name = "DIR")]
    target: PathBuf,

    /// Extracts only what matches one of these patterns, as in .gitignore, and the directories that lead
    /// there. [default: everything]
    #[arg(value_name = "GLOB")]
    select: Vec<String>,

    /// Gives all files to the extracting user. Only root can do otherwise. These files get no setuid bit, setgid bit or
    /// security.capability.
    #[arg(long)]
    no_owners: bool,

    /// Leaves out the setuid and setgid bits and security.capability.
    #[arg(long)]
    no_setuid: bool,

    /// Leaves out block and character devices.
    #[arg(long)]
    no_devices: bool,

    /// Leaves out extended attributes.
    #[arg(long)]
    no_xattrs: bool,

    /// How many files, and parts of large files, to decode and write at once. [default: one for each processor]
    #[arg(short, long, alias = "threads", value_name = "N")]
    jobs: Option<NonZero<usize>>,

    /// Refuses an image whose files have more bytes than this, without their holes: a number, such as 500M or 4G.
    /// [default: 1 GiB, and 1000 for each byte of the image]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    max_size: Option<u64>,

    #[command(flatten)]
    summary: SummaryArgs,
}

/// What `brisk extract --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExtractJson<'a> {
    /// Target directory, as given.
    directory: std::borrow::Cow<'a, str>,
    #[serde(flatten)]
    summary: &'a ExtractSummary,
    /// Duration.
    seconds: f64,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    match args.max_size {
        Some(_) => advise(extract(args), "raise --max-size"),
        None => args.limits.advise(extract(args)),
    }
}

fn extract(args: &Args) -> anyhow::Result<Answer> {
    let started = Instant::now();
    let mut extractor = Extractor::new()
        .select(&args.select)?
        .xattrs(!args.no_xattrs)
        .setuid(!args.no_setuid)
        .devices(!args.no_devices);
    if args.no_owners {
        extractor = extractor.owners(false);
    }
    if let Some(jobs) = args.jobs {
        extractor = extractor.threads(jobs.get());
    }
    let mut limits = args.limits.limits();
    if let Some(bytes) = args.max_size {
        limits = limits.contents(bytes);
    }
    let ImageArgs { image, offset } = &args.image;
    let image = args.verified.open_within(image, *offset, limits)?;
    let summary = {
        let progress = Progress::new(None, args.summary.quiet);
        let extractor = extractor.progress(progress.callback());
        extractor.extract(&image, &args.target)?
    };
    summary.warnings.iter().for_each(|text| warn(text));
    if !summary.unmatched.is_empty() {
        // The target itself counts as a directory.
        let others = summary.files + summary.symlinks + summary.specials;
        let rest = match others == 0 && summary.directories <= 1 {
            true => "",
            false => "; the rest was extracted",
        };
        bail!(
            "{}: nothing matches {}{rest}; {}",
            args.image.image.display(),
            summary.unmatched.join(" "),
            match &summary.unmatched[..] {
                [one] => what_to_name(&image, Path::new(one)),
                _ => LISTS.to_owned(),
            }
        );
    }
    let seconds = started.elapsed().as_secs_f64();
    if args.summary.json {
        let extraction = ExtractJson {
            directory: args.target.to_string_lossy(),
            summary: &summary,
            seconds,
        };
        let mut line = serde_json::to_vec(&extraction)?;
        line.push(b'\n');
        io::stdout().lock().write_all(&line)?;
    } else if !args.summary.quiet {
        say(&format!(
            "{}: {}, {}, {}, {}; {seconds:.1} s",
            args.target.display(),
            count(summary.files, "file", "files"),
            count(summary.directories, "directory", "directories"),
            count(summary.symlinks + summary.hard_links, "link", "links"),
            BinaryBytes(summary.bytes),
        ));
    }
    Ok(Answer::Yes)
}
