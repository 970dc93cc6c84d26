//! `brisk bundle`: one executable file of an image and the program that starts it.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use brisk_bundle::desktop_file;
use brisk_bundle::elf::Elf;
use brisk_bundle::entry::{Entry, desktop_files, is_program, text_of};
use brisk_image::verity::append_tree;
use brisk_image::{Codec, Image, Work};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{count, say, warn};
use brisk_terminal::names::shown;

use crate::image_args::ImageArgs;
use crate::launcher::beside;
use crate::manifest::hot_pack_beside;
use crate::output_file::{check_no_input, check_output, directory_of};
use crate::progress::Progress;

/// The program in front of the image. It is installed beside brisk.
const RUNTIME: &str = "brisk-bundle";

/// The codecs that this program decodes.
const CODECS: [Codec; 2] = [Codec::Zstd, Codec::Lz4];

/// What to bundle.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file is an AppImage of type 2. Who starts it starts the program of the image, as brisk run IMAGE does, with the hot pack \
behind the image. That needs neither brisk nor root: fusermount3 or fusermount mounts the image, or a user namespace. Where \
neither is allowed, APP --appimage-extract-and-run starts the program. When the program ends, nothing of it is left. \
APP --appimage-help lists what else the file can do.\n\n\
The image keeps its bytes, and gets a hash tree, with which each block is compared whenever it is read. Its codec must be zstd or \
lz4, and it must say what it starts (brisk repack --entry), or have AppRun or one .desktop file at its top. brisk warns of what \
a desktop misses: a .desktop file, its icon and .DirIcon at the top. brisk run, ls, extract, sign and verify take the file \
as an image.\n\n\
The same image and version of brisk give the same file.\n\n\
Examples:\n  \
  brisk bundle app.img -o App\n  \
  brisk bundle app.img -o App --update-information 'zsync|https://example.org/App.zsync'")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The file to write. It replaces a file of this name when it is complete.
    #[arg(short, long, value_name = "APP")]
    output: PathBuf,

    /// Says where newer versions are, in the form of the AppImage specification. At most 1024 bytes.
    #[arg(
        short,
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    update_information: String,

    /// The program in front of the image. [default: brisk-bundle beside brisk]
    #[arg(long, value_name = "FILE")]
    runtime: Option<PathBuf>,

    /// Threads that hash; the file is the same with any number. [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,

    /// Shows no progress and no summary.
    #[arg(short, long)]
    quiet: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let path = &args.image.image;
    check_output(&args.output, "-o")?;
    check_no_input(&args.output, [(path.as_path(), "image")])?;
    let image = args.image.open()?;
    let name = shown(path);
    if !CODECS.contains(&image.codec()) {
        bail!(
            "{name}: its codec is {}, and a bundle decodes only zstd and lz4; make another image: brisk repack {name} -o \
             new.img --codec zstd",
            image.codec()
        );
    }
    let entry = Entry::of(&image)?.map_err(|why| why.to_be_recorded(path, "bundle"))?;
    for missing in missing_for_desktops(&image)? {
        warn(&format!("{name}: {missing}"));
    }
    let hot = hot_pack_beside(path);
    if image.hot_pack_range()?.is_none() && hot.exists() {
        warn(&format!(
            "{}: only a hot pack behind the image comes into the file; brisk repack --profile puts one there",
            shown(&hot)
        ));
    }
    let front = front(args)?;
    let progress = Progress::new(Some(image.file_len()?), args.quiet);
    let mut work = Work::new().progress(progress.callback());
    if let Some(threads) = args.threads {
        work = work.threads(threads.get());
    }
    let len = write(args, &image, &front, &work)
        .with_context(|| format!("cannot write {}", shown(&args.output)))?;
    drop(progress);
    if !args.quiet {
        say(&format!(
            "{}: {len} bytes, of which the first {} are the program that starts the image; starts {}",
            shown(&args.output),
            front.len(),
            entry.shown_command(),
        ));
    }
    Ok(Answer::Yes)
}

/// What stands in front of the image.
fn front(args: &Args) -> anyhow::Result<Vec<u8>> {
    let runtime = match &args.runtime {
        Some(runtime) => runtime.clone(),
        None => beside(RUNTIME).context("cannot find brisk's own file")?,
    };
    let name = shown(&runtime);
    let bytes = fs::read(&runtime).with_context(|| {
        format!("cannot read {name}; brisk bundle needs it; install it beside brisk, as make install does")
    })?;
    let front = Elf::parse(&bytes).and_then(|elf| elf.front(args.update_information.as_bytes()));
    front.with_context(|| name)
}

/// Writes the file, whole or not at all. Returns its length.
fn write(args: &Args, image: &Image, front: &[u8], work: &Work) -> anyhow::Result<u64> {
    let mut builder = tempfile::Builder::new();
    builder.permissions(Permissions::from_mode(0o755));
    let mut out = builder.tempfile_in(directory_of(&args.output))?;
    out.write_all(front)?;
    let mut from = File::open(&args.image.image)?;
    from.seek(SeekFrom::Start(image.offset()))?;
    // A tree of the image's own would not be of this file.
    io::copy(&mut from.take(image.verity_place()?), &mut out)?;
    let offset = u64::try_from(front.len())?;
    append_tree(out.as_file(), Some(offset), work)?;
    let len = out.as_file().metadata()?.len();
    out.persist(&args.output)?;
    Ok(len)
}

/// What a desktop misses that integrates an AppImage: the specification asks for these at the top of the image.
fn missing_for_desktops(image: &Image) -> anyhow::Result<Vec<String>> {
    let mut missing = Vec::new();
    if !is_program(image, Path::new("AppRun"))? {
        missing.push(
            "it has no program AppRun at its top, so other programs of AppImages cannot start it from an extracted directory"
                .to_owned(),
        );
    }
    let mut miss =
        |what: &str| missing.push(format!("{what}, so desktops may not integrate the bundle"));
    let (names, number) = desktop_files(image, Path::new(""))?;
    match (number, names.first()) {
        (1, Some(name)) => {
            let text = text_of(image, Path::new(name))?.unwrap_or_default();
            match desktop_file::value(&text, "Icon") {
                Some(icon) if !has_icon(image, icon)? => {
                    miss(&format!("it has no icon {} at its top", shown(icon)));
                }
                Some(_) => {}
                None => miss(&format!("{} names no Icon=", shown(name))),
            }
            for key in ["Type", "Name", "Categories"] {
                if desktop_file::value(&text, key).is_none() {
                    miss(&format!("{} has no {key}=", shown(name)));
                }
            }
        }
        (number, _) => miss(&format!(
            "it has {} at its top, allowed is one",
            count(number, ".desktop file", ".desktop files")
        )),
    }
    if image.resolve(Path::new(".DirIcon"))?.is_none() {
        miss("it has no .DirIcon at its top");
    }
    Ok(missing)
}

/// Whether the image has the icon of this name at its top.
fn has_icon(image: &Image, icon: &str) -> anyhow::Result<bool> {
    for end in ["", ".png", ".svg", ".xpm"] {
        let name = format!("{icon}{end}");
        // A name with slashes is none of the top.
        if Path::new(&name).file_name() == Some(OsStr::new(&name))
            && image.resolve(Path::new(&name))?.is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}
