//! `brisk hot`: writes a hot pack beside a tree or an image.

use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::bail;
use brisk_image::TreeRules;
use brisk_image::hot_pack::{HotPackWriter, HotSummary};
use brisk_mount::ImageOfPack;
use serde::Serialize;

use super::profile::{open, origin};
use crate::answer::Answer;
use crate::hot_pack_args::{PreferArg, summary_text};
use crate::image_args::LimitArgs;
use crate::messages::{say, warn};
use crate::output_file::{check_outside, is_same};
use crate::progress::Progress;

/// What to take the pages from, and where to put them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A hot pack holds the pages that a profile asks for, in about the order of the launch. It belongs to the \
contents: the directory or image stays as it is, and brisk does not use the pack for another one. brisk leaves \
out files that changed since the profile was recorded.\n\n\
brisk pack --profile puts a hot pack behind a new image, and brisk repack --profile behind a copy of an old one.")]
pub struct Args {
    /// The directory or the image.
    #[arg(value_name = "TREE|IMAGE")]
    tree: PathBuf,

    /// The profile.
    #[arg(long, value_name = "PROFILE")]
    profile: PathBuf,

    /// The hot pack to write, such as app.img.hot. It replaces a file of this name when it is complete.
    #[arg(short, long, value_name = "HOT")]
    output: PathBuf,

    #[command(flatten)]
    prefer: PreferArg,

    #[command(flatten)]
    limits: LimitArgs,

    /// Threads that read and compress; the pack is the same with any number. [default: one for each
    /// processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,

    /// Prints a summary as one JSON object.
    #[arg(long)]
    json: bool,

    /// Shows no progress and no summary; warnings are still shown.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Serialize)]
struct WrittenHotPack<'a> {
    hot_pack: std::borrow::Cow<'a, str>,
    #[serde(flatten)]
    summary: &'a HotSummary,
    seconds: f64,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    args.limits.advise(make(args))
}

fn make(args: &Args) -> anyhow::Result<Answer> {
    let started = Instant::now();
    let profile = open(&args.profile)?;
    // Before the image is read.
    let image = ImageOfPack::open(&args.tree);
    let origin = origin(&args.tree, &args.limits)?;
    if is_same(&args.tree, Path::new("/")) {
        // Every output is inside of it, and nobody packs all of it.
    } else if args.tree.is_dir() {
        check_outside(&args.tree, &args.output, &TreeRules::default())?;
    } else if is_same(&args.tree, &args.output) {
        bail!(
            "{}: the output would replace the image; name another file",
            args.output.display()
        );
    }
    let mut writer = HotPackWriter::new().prefer(args.prefer.prefer);
    if let Some(threads) = args.threads {
        writer = writer.threads(threads.get());
    }
    let progress = Progress::new(None, args.quiet);
    let writer = writer.progress(progress.callback());
    let summary = writer.write(&profile, &origin, &args.output)?;
    drop(progress);
    if let (Some(read), Ok(image)) = (origin.as_image(), image) {
        // If this fails, the first session compares the two.
        image.keep_comparison(read.offset(), &args.output).ok();
    }
    if let Some(text) = summary.left_out() {
        warn(&text);
    }
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        let report = WrittenHotPack {
            hot_pack: args.output.to_string_lossy(),
            summary: &summary,
            seconds,
        };
        let mut line = serde_json::to_vec(&report)?;
        line.push(b'\n');
        io::stdout().lock().write_all(&line)?;
    } else if !args.quiet {
        say(&format!(
            "{}: {}; {seconds:.1} s",
            args.output.display(),
            summary_text(&summary)
        ));
    }
    Ok(Answer::Yes)
}
