/*!
Measures `brisk` against squashfs-tools, side by side, on the given trees.

Every result is checked before its time counts. `unsquashfs` unpacks an image, and the output is compared with the
source. An unpacked tree is compared with its source. A listing must name every file. Random reads must add up to the
same sum.
*/

mod codec;
mod extract;
mod list;
mod pack;
mod read;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use brisk_bench::{Options, Tool, Tree};
use clap::{Parser, ValueEnum};

use codec::Codec;

/// Measure brisk against squashfs-tools: pack, size, extract, list, read.
#[derive(Parser)]
struct Args {
    /// A tree to pack and unpack; may be repeated
    #[arg(long = "tree", value_name = "DIR")]
    trees: Vec<PathBuf>,

    /// The release binary of brisk
    #[arg(long, value_name = "PATH")]
    brisk: PathBuf,

    /// Only these figures; may be repeated [default: all]
    #[arg(long, value_name = "FIGURE")]
    only: Vec<Figure>,

    /// Only these codecs; may be repeated [default: all]
    #[arg(long = "codec", value_name = "NAME")]
    codecs: Vec<Codec>,

    /// How many processors both tools may use [default: all]
    #[arg(long, value_name = "N")]
    processors: Option<usize>,

    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Wall time of packing a tree
    Pack,
    /// Bytes of the image
    Size,
    /// Wall time of unpacking everything
    Extract,
    /// Wall time of opening an image of 100,000 files and listing it
    List,
    /// Random reads of 4 KiB
    Read,
}

/// What every figure of this bench needs.
struct Setup {
    brisk: Tool,
    mksquashfs: Tool,
    unsquashfs: Tool,
    processors: usize,
    /// An empty folder on the disk where outputs are measured.
    work: PathBuf,
}

fn main() -> ExitCode {
    brisk_bench::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let figures = or_all(&args.only);
    let codecs = or_all(&args.codecs);

    let work = args.options.work()?;
    let processors = brisk_bench::give_processors(args.processors)?;
    let now = jiff::Timestamp::now();
    let find = |name, path, flag| Tool::find(name, path, flag, now.as_second());
    let setup = Setup {
        brisk: find("brisk", Some(&args.brisk), "--version")?,
        mksquashfs: find("mksquashfs", None, "-version")?,
        unsquashfs: find("unsquashfs", None, "-version")?,
        processors,
        work: work.path().canonicalize()?,
    };

    let trees = args
        .trees
        .iter()
        .map(|path| Tree::read(&path.canonicalize().unwrap_or(path.clone())))
        .collect::<Result<Vec<_>>>()?;
    anyhow::ensure!(
        !trees.is_empty() || !figures.iter().any(Figure::needs_trees),
        "no tree to measure; add --tree DIR, such as one that workshop/lab/tree makes"
    );
    let about = serde_json::json!({
        "tools": [&setup.brisk, &setup.mksquashfs, &setup.unsquashfs],
        "trees": trees.iter().map(describe).collect::<Vec<_>>(),
    });
    let mut bench = args.options.bench(work.path(), processors, about)?;

    for tree in &trees {
        for &codec in &codecs {
            let measured = Measured {
                pack: figures.contains(&Figure::Pack),
                size: figures.contains(&Figure::Size),
            };
            if measured.pack || measured.size {
                pack::measure(&mut bench, &setup, tree, codec, measured)?;
            }
            if figures.contains(&Figure::Extract) {
                extract::measure(&mut bench, &setup, tree, codec)?;
            }
        }
    }
    if figures.contains(&Figure::List) {
        list::measure(&mut bench, &setup)?;
    }
    if figures.contains(&Figure::Read) {
        read::measure(&mut bench, &setup)?;
    }
    println!("{}", bench.table());
    Ok(())
}

/// Which of the figures of packing are wanted.
#[derive(Clone, Copy)]
struct Measured {
    pack: bool,
    size: bool,
}

impl Figure {
    fn needs_trees(&self) -> bool {
        matches!(self, Self::Pack | Self::Size | Self::Extract)
    }
}

fn or_all<T: ValueEnum + Copy>(chosen: &[T]) -> Vec<T> {
    if chosen.is_empty() {
        T::value_variants().to_vec()
    } else {
        chosen.to_vec()
    }
}

fn describe(tree: &Tree) -> serde_json::Value {
    serde_json::json!({
        "name": tree.name(),
        "files": tree.files().count(),
        "bytes": tree.bytes(),
    })
}

impl Setup {
    /// The file for the standard output of the tools.
    fn said(&self) -> PathBuf {
        self.work.join("said")
    }

    /// Packs `tree` into `image` with mksquashfs, outside of every clock.
    fn reference_image(&self, tree: &Path, codec: Codec, image: &Path) -> Result<()> {
        let args = codec.mksquashfs_args(tree, image, self.processors);
        self.mksquashfs.time(&args, &self.said())?;
        Ok(())
    }
}

/// Removes the file or tree at `path`, if there is one, and waits until nothing is left to write.
///
/// Otherwise one contender's write-back would cost the next one time.
fn clear(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(stat) if stat.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    };
    removed.with_context(|| format!("cannot remove {}", path.display()))?;
    rustix::fs::sync();
    Ok(())
}
