//! `brisk umount`: ends a mount.

use std::path::PathBuf;

use crate::Answer;

/// Which mount to end.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only images are unmounted, nothing else. This needs root.")]
pub struct Args {
    /// The directory that the image is mounted on.
    dir: PathBuf,

    /// Takes the mount out of the tree of directories at once, even if programs use it; the kernel
    /// lets go of the image when the last of them ends.
    #[arg(short, long)]
    lazy: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    brisk_mount::unmount(&args.dir, args.lazy)?;
    Ok(Answer::Yes)
}
