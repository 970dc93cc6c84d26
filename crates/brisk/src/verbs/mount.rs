//! `brisk mount`: mounts an image for all programs.

use std::path::{Path, PathBuf};

use brisk_image::Image;
use brisk_mount::{Backing, KernelMount, MountOptions, SharedMount};

use crate::answer::Answer;
use crate::image_args::ImageArgs;
use crate::messages::say;

/// What to mount, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The image is mounted read-only until brisk umount ends it. Three small processes serve it; they \
outlive this command and, where the system lets processes do so, the login: loginctl \
enable-linger allows it. Set-user-id bits and device nodes of the image count for nothing.\n\n\
A user other than root needs fusermount3 (package fuse3) and a directory of their own, and all \
files appear as theirs. Root's mounts are for everybody, and show the image's owners.")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory to mount it on; what it holds is covered.
    dir: PathBuf,

    /// Has the kernel read the image, without a process that serves. This needs root, and a kernel
    /// that knows the image's codec.
    #[arg(long, conflicts_with_all = ["foreground", "allow_other"])]
    kernel: bool,

    /// Stays until the image is unmounted, and unmounts it when this command ends, by Ctrl-C or
    /// otherwise: for service managers.
    #[arg(short, long)]
    foreground: bool,

    /// Lets other users in. Root's mounts always do; for others /etc/fuse.conf must have the line
    /// user_allow_other.
    #[arg(long)]
    allow_other: bool,

    /// Says what was mounted where, and with --kernel whether the image's file is read past the
    /// page cache (direct I/O), so that nothing is cached twice.
    #[arg(short, long)]
    verbose: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let image = args.image.open()?;
    if args.kernel {
        let mount = KernelMount::new(&args.image.image, &args.dir, &options(&image))?;
        args.report(mount.target(), how(mount.backing()));
        return Ok(Answer::Yes);
    }
    let mount = SharedMount {
        image: args.image.image.clone(),
        offset: image.offset(),
        target: args.dir.clone(),
        allow_other: args.allow_other,
    };
    drop(image);
    let how = "through FUSE".to_owned();
    if args.foreground {
        mount.mount_in_foreground(|at| args.report(at, how))?;
    } else {
        let at = mount.mount()?;
        args.report(&at, how);
    }
    Ok(Answer::Yes)
}

impl Args {
    fn report(&self, at: &Path, how: String) {
        if self.verbose {
            let (image, at) = (self.image.image.display(), at.display());
            say(&format!("{image}: mounted on {at} {how}"));
        }
    }
}

fn how(backing: &Backing) -> String {
    match backing {
        Backing::Loop { device, direct_io } => {
            let direct_io = match direct_io {
                true => "with direct I/O",
                false => "without direct I/O, through the page cache",
            };
            format!("through {}, {direct_io}", device.display())
        }
        Backing::BlockDevice => "as the block device that it is".to_owned(),
    }
}

/// What mounting has to know of `image`.
pub fn options(image: &Image) -> MountOptions {
    MountOptions {
        offset: image.offset(),
        codec: (!image.is_uncompressed()).then(|| image.codec().name().to_owned()),
        ..MountOptions::default()
    }
}
