//! `brisk verity`: writes the hash tree of an image beside it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZero;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use brisk_image::verity::{BLOCK, VeritySummary, VerityTree, beside, root_hash_beside};
use brisk_image::{Image, Work};
use brisk_io::ByteSource;
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::say;
use brisk_terminal::names::shown;
use serde::Serialize;

use crate::image_args::ImageArgs;
use crate::json;
use crate::output_file::{check_no_input, check_output};
use crate::progress::Progress;
use crate::whole_file::write_whole;

/// What to hash, and where to put the tree.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes a dm-verity hash tree, as veritysetup format does, to IMAGE.verity, and its root hash to IMAGE.roothash. If \
the image is called X.raw, the names are X.verity and X.roothash: systemd looks for these. The image stays as it \
is. It may be any SquashFS image, also a snap or an AppImage: the tree covers the whole file from its first byte.\n\n\
Prints the root hash. Whoever knows it can tell whether the image is still the same:\n  \
  brisk run IMAGE --verify roothash=HASH -- CMD\n  \
  veritysetup verify IMAGE IMAGE.verity HASH\n\n\
The same image gives the same tree. brisk pack --verity puts the tree into a new image instead.")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The file to write the tree to. The root hash goes to the same name with .roothash instead of .verity at its end.
    /// [default: IMAGE.verity]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Threads that hash; the tree is the same with any number. [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,

    /// Prints a summary as JSON, instead of the root hash.
    #[arg(long)]
    json: bool,

    /// Shows no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// What `brisk verity --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerityJson<'a> {
    /// Path of the hash tree.
    hash_tree: std::borrow::Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_tree_hex: Option<String>,
    #[serde(flatten)]
    summary: &'a VeritySummary,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let path = &args.image.image;
    let image = args.image.open()?;
    let (tree_path, root_path) = match &args.output {
        Some(output) => (output.clone(), root_hash_of_tree(output)),
        None => (beside(path), root_hash_beside(path)),
    };
    for output in [&tree_path, &root_path] {
        check_output(output, "-o")?;
        check_no_input(output, [(path.as_path(), "image")])?;
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", shown(path)))?;
    let len = covered(&image, &file, path)?;
    let progress = Progress::new(Some(len), args.quiet);
    let mut work = Work::new().progress(progress.callback());
    if let Some(threads) = args.threads {
        work = work.threads(threads.get());
    }
    let built = VerityTree::build(&file, len, &work).map_err(|e| e.with_path(path))?;
    drop(progress);
    let summary = built.write(&tree_path)?;
    write_root_hash(&summary, &root_path)?;
    if args.json {
        let (hash_tree, hash_tree_hex) = json::name(&tree_path);
        json::print(&VerityJson {
            hash_tree,
            hash_tree_hex,
            summary: &summary,
        })?;
    } else {
        writeln!(io::stdout().lock(), "{}", summary.root_hash)?;
    }
    Ok(Answer::Yes)
}

/// Writes the root hash as a line of its own, as systemd reads it.
pub fn write_root_hash(summary: &VeritySummary, path: &Path) -> anyhow::Result<()> {
    write_whole(&format!("{}\n", summary.root_hash), path)
}

/// Says where the tree behind a new image is, and writes its root hash beside the image.
pub fn report_behind(summary: &VeritySummary, image: &Path, quiet: bool) -> anyhow::Result<()> {
    let path = root_hash_beside(image);
    write_root_hash(summary, &path)?;
    if !quiet {
        say(&format!(
            "verity: root hash {} (in {}), tree at byte {}",
            summary.root_hash,
            path.display(),
            summary.hash_offset
        ));
    }
    Ok(())
}

/// The bytes of the file that a tree can cover: its whole blocks, as for veritysetup. The image must end there.
fn covered(image: &Image, file: &File, path: &Path) -> anyhow::Result<u64> {
    let len = ByteSource::size(file).with_context(|| format!("cannot examine {}", shown(path)))?;
    let whole = len - len % BLOCK;
    let end = image.offset().saturating_add(image.bytes_used());
    if end > whole {
        bail!(
            "{}: the file has {len} bytes, and its image ends at byte {end}; dm-verity covers only whole blocks of \
             {BLOCK} bytes, which end at byte {whole}; append zeros to a copy: truncate -s %{BLOCK} COPY",
            shown(path)
        );
    }
    Ok(whole)
}

/// `X.roothash` for `X.verity`, and else the name with `.roothash` behind it.
fn root_hash_of_tree(tree: &Path) -> PathBuf {
    let name = tree.as_os_str().as_bytes();
    let stem = name.strip_suffix(b".verity").unwrap_or(name);
    let mut root_hash = OsString::from_vec(stem.to_vec());
    root_hash.push(".roothash");
    root_hash.into()
}
