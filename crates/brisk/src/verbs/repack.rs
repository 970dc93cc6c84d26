//! `brisk repack`: makes a new image of an old one.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::bail;
use brisk_image::{Tree, TreeRules};

use super::pack::{CodecArgs, LayoutArgs, Written, report};
use crate::answer::Answer;
use crate::hot_pack_args::BehindArgs;
use crate::image_args::ImageArgs;
use crate::messages::warn;
use crate::names::shown;
use crate::output_file::is_same;
use crate::progress::Progress;

/// Which image to pack again, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The tree of the new image is exactly that of the old one: names, contents, owners, modes, times, \
links and extended attributes. The time of the image, and the directory that its tree belongs at, are \
kept. A hot pack behind the old image is not, as it belongs to that image alone; --profile makes a new \
one.\n\n\
Examples:\n  \
  brisk repack app.snap -o app.img --profile app.profile\n  \
  brisk repack App.AppImage -o app.img --codec lz4 --level 12")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The image to write, which may be the old one. A file of this name is replaced when the new one
    /// is complete.
    #[arg(short, long, value_name = "IMAGE")]
    output: PathBuf,

    /// Threads that read and compress; the image is the same with any number. [default: one for
    /// each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,

    /// Prints what became of the tree as one JSON object.
    #[arg(long)]
    json: bool,

    /// Shows no progress and no summary; warnings are still shown.
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    codec: CodecArgs,

    #[command(flatten)]
    layout: LayoutArgs,

    #[command(flatten)]
    hot: BehindArgs,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let started = Instant::now();
    let mut writer = args.codec.writer(&args.layout)?;
    if let Some(threads) = args.threads {
        writer = writer.threads(threads.get());
    }
    writer.check()?;
    writer = args.hot.apply(writer)?;
    let image = args.image.open()?;
    if image.offset() > 0 && is_same(&args.image.image, &args.output) {
        bail!(
            "{}: the program before the image would be lost, as an image is written and nothing else; name \
             another output",
            shown(&args.output)
        );
    }
    writer = writer.time(image.mkfs_time());
    if let (false, Some(place)) = (args.layout.has_place(), image.recorded_place()?) {
        writer = writer.place(place);
    }
    let tree = Tree::from_image(&image, &TreeRules::default())?;
    tree.warnings().iter().for_each(|text| warn(text));
    let progress = Progress::new(Some(tree.bytes()), args.quiet);
    writer = writer.progress(progress.callback());
    let summary = writer.write(&tree, &args.output)?;
    drop(progress);
    report(&Written {
        output: &args.output,
        summary: &summary,
        seconds: started.elapsed().as_secs_f64(),
        warnings: tree.warnings(),
        json: args.json,
        quiet: args.quiet,
    })?;
    Ok(Answer::Yes)
}
