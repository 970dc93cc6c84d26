//! `brisk auto`: the hot packs and profiles that `brisk run --auto` has learned.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::Context;
use brisk_mount::{LearnedPack, LearnedPacks};
use clap::Subcommand;
use indicatif::BinaryBytes;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::json;
use crate::messages::count;
use crate::names::shown;

/// What to do with learned hot packs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A learned hot pack belongs to an image and to the place where it was mounted. A learned profile belongs to a \
directory and a program. brisk keeps both in $XDG_CACHE_HOME/brisk/hot, or else in ~/.cache/brisk/hot.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Lists what brisk has learned, the last used first. Exits with 1 if there is nothing.
    List(ListArgs),
    /// Forgets what brisk has learned about an image or a directory, or everything. Exits with 1 if there is nothing.
    Forget(ForgetArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ForgetArgs {
    /// The image or directory, which need not exist any more.
    #[arg(required_unless_present = "all", value_name = "IMAGE|DIR")]
    image: Option<PathBuf>,

    /// Forgets everything.
    #[arg(long, conflicts_with = "image")]
    all: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let packs = LearnedPacks::open(&LearnedPacks::path_of_user()?)?;
    match &args.action {
        Action::List(args) => list(&packs.list()?, args.json),
        Action::Forget(args) => forget(&packs, args.image.as_deref()),
    }
}

fn list(packs: &[LearnedPack], json: bool) -> anyhow::Result<Answer> {
    if json {
        let packs: Vec<_> = packs.iter().map(to_json).collect();
        json::print(&packs)?;
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        for pack in packs {
            print(&mut out, pack)?;
        }
        out.flush()?;
    }
    Ok(match packs.is_empty() {
        true => Answer::No,
        false => Answer::Yes,
    })
}

fn print(out: &mut impl Write, pack: &LearnedPack) -> anyhow::Result<()> {
    match (&pack.image, &pack.place) {
        (Some(directory), _) if pack.of_directory => {
            writeln!(out, "{}, a directory", shown(directory))?;
        }
        (Some(image), Some(place)) => writeln!(out, "{} on {}", shown(image), shown(place))?,
        (Some(image), None) => writeln!(out, "{}", shown(image))?,
        (None, _) => writeln!(out, "{}: of an unknown image", shown(&pack.key))?,
    }
    match pack.pages {
        Some(pages) => writeln!(out, "  pages       {pages}")?,
        None => writeln!(out, "  pages       none: the next session makes the pack")?,
    }
    writeln!(
        out,
        "  bytes       {} ({})",
        pack.bytes,
        BinaryBytes(pack.bytes)
    )?;
    if let Some(runs) = pack.runs {
        writeln!(
            out,
            "  learned     from {}",
            count(runs.into(), "launch", "launches")
        )?;
    }
    if !pack.command.is_empty() {
        let command: Vec<_> = pack.command.iter().map(shown).collect();
        writeln!(out, "  command     {}", command.join(" "))?;
    }
    let used =
        jiff::Timestamp::try_from(pack.used).context("the time is outside of the calendar")?;
    writeln!(out, "  used        {used}")?;
    Ok(())
}

fn to_json(pack: &LearnedPack) -> Value {
    let used = pack.used.duration_since(UNIX_EPOCH).ok();
    let name = |path: &Option<PathBuf>| path.as_ref().map(|p| json::name(p).0.into_owned());
    let bytes = |path: &Option<PathBuf>| path.as_ref().and_then(|p| json::name(p).1);
    let command = pack.command.iter().map(|word| json::name(word).0);
    json!({
        "key": pack.key,
        "kind": if pack.of_directory { "directory" } else { "image" },
        "image": name(&pack.image),
        "image_bytes": bytes(&pack.image),
        "place": name(&pack.place),
        "place_bytes": bytes(&pack.place),
        "command": command.collect::<Vec<_>>(),
        "runs": pack.runs,
        "pages": pack.pages,
        "bytes": pack.bytes,
        "used": used.map(|used| used.as_secs()),
    })
}

/// Removes the packs of `image`, which is found by its name, or all packs.
fn forget(packs: &LearnedPacks, image: Option<&Path>) -> anyhow::Result<Answer> {
    let image = image.map(|image| image.canonicalize().or_else(|_| std::path::absolute(image)));
    let image = image
        .transpose()
        .context("cannot resolve the image's name")?;
    let mut found = packs.list()?;
    if image.is_some() {
        found.retain(|pack| pack.image == image);
    }
    for pack in &found {
        packs.forget(&pack.key)?;
    }
    Ok(match found.is_empty() {
        true => Answer::No,
        false => Answer::Yes,
    })
}
