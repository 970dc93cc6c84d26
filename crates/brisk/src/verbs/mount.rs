//! `brisk mount`: mounts an image for everybody, through the kernel.

use std::path::PathBuf;

use brisk_image::Image;
use brisk_mount::{Backing, KernelMount, MountOptions};

use crate::Answer;
use crate::args::ImageArgs;
use crate::messages::say;

/// What to mount, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The kernel mounts the image, read-only, for every program of the system, until brisk \
umount ends it. Set-user-id bits and device nodes of the image count for nothing. This \
needs root.")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory to mount it on; what it holds is covered.
    dir: PathBuf,

    /// Says what was mounted where, and whether the image's file is read past the page cache
    /// (direct I/O), so that nothing is cached twice.
    #[arg(short, long)]
    verbose: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let image = args.image.open()?;
    let mount = KernelMount::new(&args.image.image, &args.dir, &options(&image))?;
    if args.verbose {
        let how = match mount.backing() {
            Backing::Loop { device, direct_io } => {
                let direct_io = match direct_io {
                    true => "with direct I/O",
                    false => "without direct I/O, through the page cache",
                };
                format!("through {}, {direct_io}", device.display())
            }
            Backing::BlockDevice => "as the block device that it is".to_owned(),
        };
        let (image, at) = (args.image.image.display(), mount.target().display());
        say(&format!("{image}: mounted on {at} {how}"));
    }
    Ok(Answer::Yes)
}

/// What mounting has to know of `image`.
pub fn options(image: &Image) -> MountOptions {
    MountOptions {
        offset: image.offset(),
        codec: (!image.is_uncompressed()).then(|| image.codec().name().to_owned()),
        ..MountOptions::default()
    }
}
