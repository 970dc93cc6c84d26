//! `brisk cat`: writes the contents of files in an image to stdout.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::PathBuf;

use anyhow::{Context, bail};
use brisk_image::InodeKind;
use brisk_terminal::answer::Answer;
use brisk_terminal::size::parse_size;

use crate::image_args::ImageArgs;
use crate::path_hint::what_to_name;
use crate::verify_args::VerifyArgs;

/// What to write.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    #[command(flatten)]
    verified: VerifyArgs,

    /// Paths of files from the root of the image. brisk follows symbolic links inside the image.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Prints only these bytes of each file, from FROM up to but not including TO. Without FROM it begins at
    /// the start of the file, without TO it ends at the end.
    #[arg(long, value_name = "FROM..TO", default_value = "..", hide_default_value = true, value_parser = parse_range)]
    range: Range<u64>,

    /// Threads that decode. [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,
}

fn parse_range(text: &str) -> anyhow::Result<Range<u64>> {
    let (from, to) = text
        .split_once("..")
        .context("allowed is FROM..TO, FROM.. or ..TO")?;
    let end = |text: &str, absent| match text {
        "" => Ok(absent),
        _ => parse_size(text),
    };
    let range = end(from, 0)?..end(to, u64::MAX)?;
    if range.start > range.end {
        bail!("FROM is {}, which is past TO", range.start);
    }
    Ok(range)
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let image = args.verified.open(&args.image.image, args.image.offset)?;
    let shown = args.image.image.display();
    // Looks up all files before it writes the first, so that a wrong name writes nothing.
    let mut inodes = Vec::new();
    for path in &args.paths {
        match image.resolve(path)? {
            Some(inode) if matches!(inode.kind(), InodeKind::File(_)) => inodes.push(inode),
            Some(inode) => bail!(
                "{shown}: {} is a {}; name a file",
                path.display(),
                inode.file_type().name()
            ),
            None => {
                if let Some(link) = image.lookup(path)?
                    && let InodeKind::Symlink(target) = link.kind()
                {
                    bail!(
                        "{shown}: {} is a symbolic link to {}, which the image does not have; \
                         name a file that it has",
                        path.display(),
                        target.display()
                    );
                }
                bail!(
                    "{shown}: there is no {}; {}",
                    path.display(),
                    what_to_name(&image, path)
                )
            }
        }
    }
    let threads = match args.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism()?,
    };
    // Blocks are large. `Stdout` would search them for line ends, for nothing.
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    for inode in &inodes {
        let file = image.file(inode)?;
        file.copy_to(args.range.clone(), &mut out, threads.get())?;
    }
    Ok(Answer::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_end_of_a_range_may_be_missing() {
        let table = [
            ("..", 0..u64::MAX),
            ("5..", 5..u64::MAX),
            ("..5", 0..5),
            ("1K..2K", 1024..2048),
            ("5..5", 5..5),
        ];
        for (text, range) in table {
            assert_eq!(parse_range(text).ok(), Some(range), "{text}");
        }
        let message = |text| parse_range(text).unwrap_err().to_string();
        assert_eq!(message("5"), "allowed is FROM..TO, FROM.. or ..TO");
        assert_eq!(message("6..5"), "FROM is 6, which is past TO");
        assert_eq!(
            message("a.."),
            "allowed is a number of bytes, such as 131072, 128K or 1M"
        );
    }
}
