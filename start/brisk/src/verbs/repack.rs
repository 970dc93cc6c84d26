//! `brisk repack`: makes a new image of an old one.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use brisk_image::{Image, ImageWriter, Tree, TreeRules};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::warn;
use brisk_terminal::names::shown;

use super::pack::{CodecArgs, LayoutArgs, Written, faults_of_written, report};
use crate::entry_args::EntryArgs;
use crate::hot_pack_args::BehindArgs;
use crate::image_args::{ImageArgs, LimitArgs};
use crate::output_file::{check_no_input, check_output, is_same};
use crate::progress::Progress;
use crate::stale_pack::{pack_left_behind, pack_of_old_image, remove_stale_pack};
use crate::summary_args::SummaryArgs;
use crate::verify_args::VerifyArgs;

/// Which image to pack again, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The new image has exactly the tree of the old one: names, contents, owners, modes, times, links and extended \
attributes. It also keeps the time of the image, the directory that the tree belongs at, and how brisk run starts it; \
--entry replaces all of the latter. It does not keep a hot pack behind or beside the old image, because that fits the old image alone; --profile makes a new one.\n\n\
An image that brisk made also keeps its codec, its size of blocks and the order of its files, as brisk info shows them. brisk then \
copies the compressed blocks, which takes seconds; it decodes each, so a damaged one is an error. An option under \
Compression or Layout changes that, except --at, --no-at, --verity and --no-recipe. Then the defaults hold for what you do not name.\n\n\
Examples:\n  \
  brisk repack app.snap -o app.img --profile app.profile\n  \
  brisk repack App.AppImage -o app.img --codec lz4 --level 12\n  \
  brisk repack app.img -o app.img --no-at --entry bin/app --quiet")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    #[command(flatten)]
    verified: VerifyArgs,

    #[command(flatten)]
    limits: LimitArgs,

    /// The image to write, which may be the old one. It replaces a file of this name when it is complete.
    #[arg(short, long, value_name = "IMAGE")]
    output: PathBuf,

    /// Threads that read and compress; the image is the same with any number. [default: one for
    /// each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,

    #[command(flatten)]
    summary: SummaryArgs,

    #[command(flatten)]
    codec: CodecArgs,

    #[command(flatten)]
    layout: LayoutArgs,

    #[command(flatten)]
    hot: BehindArgs,

    #[command(flatten)]
    entry: EntryArgs,

    /// Records no directory that the tree belongs at.
    #[arg(long, conflicts_with = "at", help_heading = "Layout")]
    no_at: bool,

    /// Records no program.
    #[arg(long, conflicts_with = "entry", help_heading = "Entry")]
    no_entry: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    args.limits.advise(repack(args))
}

fn repack(args: &Args) -> anyhow::Result<Answer> {
    let started = Instant::now();
    check_output(&args.output, "-o")?;
    check_no_input(&args.output, args.hot.inputs())?;
    let asked = args.codec.writer(&args.layout)?;
    asked.check()?;
    let entry = args.entry.entry()?;
    let ImageArgs {
        image: path,
        offset,
    } = &args.image;
    let image = args
        .verified
        .open_within(path, *offset, args.limits.limits())?;
    if image.offset() > 0 && is_same(path, &args.output) {
        bail!(
            "{}: this file has a program before its image, which would be lost, because brisk writes only an image; name \
             another output",
            shown(&args.output)
        );
    }
    let mut warnings = Vec::new();
    let mut note = |text: String| {
        warn(&text);
        warnings.push(text);
    };
    let mut writer = match args.codec.is_given() || args.layout.is_arranged() {
        true => asked,
        false => match as_it_was_made(&image) {
            Ok(Some(writer)) => args.layout.behind(writer),
            Ok(None) => asked,
            Err(e) => {
                note(format!("{e:#}; brisk packs it with its own defaults"));
                asked
            }
        },
    };
    if let Some(threads) = args.threads {
        writer = writer.threads(threads.get());
    }
    writer = args.hot.apply(writer)?;
    writer = writer.time(image.mkfs_time());
    let says_place = args.no_at || args.layout.has_place();
    if let (false, Some(place)) = (says_place, image.recorded_place()?) {
        writer = writer.place(place);
    }
    let entry = match (entry, args.no_entry) {
        (None, false) => image.entry_point()?,
        (entry, _) => entry,
    };
    if let Some(entry) = entry {
        writer = writer.entry_point(entry);
    }
    let had_pack = image.hot_pack().is_ok_and(|pack| pack.is_some());
    let tree = Tree::from_image(&image, &TreeRules::default())?;
    tree.warnings().iter().cloned().for_each(&mut note);
    let progress = Progress::new(Some(tree.bytes()), args.summary.quiet);
    writer = writer.progress(progress.callback());
    let summary = writer.write(&tree, &args.output)?;
    drop(progress);
    let removed = remove_stale_pack(&args.output)?;
    let left = match is_same(path, &args.output) || args.hot.is_given() {
        true => None,
        false => pack_of_old_image(path, &args.output),
    };
    let behind = (had_pack && !args.hot.is_given()).then(|| pack_left_behind(&args.output));
    let faults = faults_of_written(&args.output, &summary)?;
    let all = removed.into_iter().chain(left).chain(behind).chain(faults);
    all.for_each(note);
    report(&Written {
        output: &args.output,
        summary: &summary,
        seconds: started.elapsed().as_secs_f64(),
        warnings: &warnings,
        json: args.summary.json,
        quiet: args.summary.quiet,
    })?;
    Ok(Answer::Yes)
}

/// A writer that compresses and arranges a tree as the recipe of `image` says; none if it has no recipe.
fn as_it_was_made(image: &Image) -> anyhow::Result<Option<ImageWriter>> {
    let Some(recipe) = image.recipe()? else {
        return Ok(None);
    };
    let writer = ImageWriter::from_recipe(&recipe).and_then(|writer| {
        writer.check()?;
        Ok(Some(writer))
    });
    writer.with_context(|| {
        let image = image.path().map(shown).unwrap_or_default();
        format!("{image}: brisk cannot follow the recipe of this image")
    })
}
