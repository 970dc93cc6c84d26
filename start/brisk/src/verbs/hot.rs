//! `brisk hot`: writes a hot pack beside a tree or an image.

use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Instant;

use brisk_image::TreeRules;
use brisk_image::hot_pack::{HotPackWriter, HotSummary};
use brisk_image::profile::Origin;
use brisk_serve::ImageOfPack;
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{say, warn};
use serde::Serialize;

use super::profile::open_all;
use crate::hot_pack_args::{PreferArg, summary_text};
use crate::image_args::LimitArgs;
use crate::json;
use crate::output_file::{check_no_input, check_output, check_outside, is_same};
use crate::progress::Progress;
use crate::remote_images::local_name;
use crate::summary_args::SummaryArgs;
use crate::verify_args::VerifyArgs;

/// What to take the pages from, and where to put them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A hot pack holds the pages that a profile asks for, in about the order of the launch. It belongs to the \
contents: the directory or image stays as it is, and brisk does not use the pack for another one. brisk leaves \
out files that changed since the profile was recorded.\n\n\
brisk pack --profile puts a hot pack behind a new image, and brisk repack --profile behind a copy of an old one.")]
pub struct Args {
    /// The directory, the image, or its URL.
    #[arg(value_name = "TREE|IMAGE")]
    tree: PathBuf,

    /// The profile. May be repeated: the pack then has what any of them asks for, first what all do.
    #[arg(long = "profile", required = true, value_name = "PROFILE")]
    profiles: Vec<PathBuf>,

    /// The hot pack to write. It replaces a file of this name when it is complete. [default: IMAGE.hot, where brisk run
    /// looks for it, TREE.hot, or the last part of the URL with .hot]
    #[arg(short, long, value_name = "HOT")]
    output: Option<PathBuf>,

    #[command(flatten)]
    prefer: PreferArg,

    #[command(flatten)]
    verified: VerifyArgs,

    #[command(flatten)]
    limits: LimitArgs,

    /// Threads that read and compress; the pack is the same with any number. [default: one for each
    /// processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,

    #[command(flatten)]
    summary: SummaryArgs,
}

/// What `brisk hot --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HotJson<'a> {
    /// Path of the pack, as given.
    path: std::borrow::Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(flatten)]
    summary: &'a HotSummary,
    /// Duration.
    seconds: f64,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    args.limits.advise(make(args))
}

impl Args {
    fn output(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| {
            // Without a slash at the end.
            let beside = local_name(&self.tree);
            let mut beside = beside.components().collect::<PathBuf>().into_os_string();
            beside.push(".hot");
            beside.into()
        })
    }
}

fn make(args: &Args) -> anyhow::Result<Answer> {
    let started = Instant::now();
    let output = &args.output();
    check_output(output, "-o")?;
    let profiles = args.profiles.iter().map(|path| (path.as_path(), "profile"));
    check_no_input(output, profiles.chain([(args.tree.as_path(), "image")]))?;
    let profile = open_all(&args.profiles)?;
    // Before the image is read.
    let image = ImageOfPack::open(&args.tree);
    let origin = match args.tree.is_dir() {
        true => {
            args.verified.refuse_without_image()?;
            Origin::directory(&args.tree)?
        }
        false => {
            let limits = args.limits.limits();
            Origin::image(&args.verified.open_within(&args.tree, None, limits)?)
        }
    };
    if is_same(&args.tree, Path::new("/")) {
        // Every output is inside of it, and nobody packs all of it.
    } else if args.tree.is_dir() {
        check_outside(&args.tree, output, &TreeRules::default())?;
    }
    let mut writer = HotPackWriter::new().prefer(args.prefer.prefer);
    if let Some(threads) = args.threads {
        writer = writer.threads(threads.get());
    }
    let progress = Progress::new(None, args.summary.quiet);
    let writer = writer.progress(progress.callback());
    let summary = writer.write(&profile, &origin, output)?;
    drop(progress);
    if let (Some(read), Ok(image)) = (origin.as_image(), image) {
        // If this fails, the first session compares the two.
        image.keep_comparison(read.offset(), output).ok();
    }
    if let Some(text) = summary.left_out() {
        warn(&text);
    }
    let seconds = started.elapsed().as_secs_f64();
    if args.summary.json {
        let (path, path_hex) = json::name(output);
        let report = HotJson {
            path,
            path_hex,
            summary: &summary,
            seconds,
        };
        let mut line = serde_json::to_vec(&report)?;
        line.push(b'\n');
        io::stdout().lock().write_all(&line)?;
    } else if !args.summary.quiet {
        say(&format!(
            "{}: {}; {seconds:.1} s",
            output.display(),
            summary_text(&summary)
        ));
    }
    Ok(Answer::Yes)
}
