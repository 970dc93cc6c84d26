//! `brisk mount`: mounts an image for all programs.

use std::path::{Path, PathBuf};

use brisk_image::Image;
use brisk_serve::{Backing, KernelMount, MountOptions, SharedMount};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::say;

use crate::image_args::ImageArgs;
use crate::remote_images::whole_file;
use crate::verify_args::{OpenedImage, VerifyArgs};

/// What to mount, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
brisk mounts the image read-only, until brisk umount ends that. Three small processes serve the mount. They \
outlive this command and, where the system allows it, the login (loginctl enable-linger). Set-user-id bits, file \
capabilities and device nodes of the image have no effect, unless root asks for it (--suid, --dev).\n\n\
Root mounts for everybody, with the image's owners. Other users need fusermount3 (package fuse3) and a directory \
of their own, and all files appear as theirs.")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    #[command(flatten)]
    verified: VerifyArgs,

    /// The directory to mount it on. The mount hides its contents.
    dir: PathBuf,

    /// Mounts through the kernel, without processes of brisk. Needs root, and a kernel that knows the image's codec.
    #[arg(long, conflicts_with_all = ["foreground", "allow_other"])]
    kernel: bool,

    /// Stays until the image is unmounted, and unmounts it when this command ends, by Ctrl-C or otherwise. For
    /// service managers.
    #[arg(short, long)]
    foreground: bool,

    /// Lets other users in. Root's mounts always do. Other users need the line user_allow_other in /etc/fuse.conf.
    #[arg(long)]
    allow_other: bool,

    /// Lets set-user-id bits and file capabilities of the image have their effect: who made the image then decides what every
    /// user may do as root. Needs root.
    #[arg(long)]
    suid: bool,

    /// Lets device nodes of the image have their effect. Needs root.
    #[arg(long)]
    dev: bool,

    /// Says what is mounted where, and with --kernel whether the kernel reads the image's file past the page cache
    /// (direct I/O), so that it caches nothing twice.
    #[arg(short, long)]
    verbose: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    if args.kernel {
        args.verified.refuse_with_kernel(&args.image.image)?;
    }
    let OpenedImage { image, remote } =
        args.verified
            .open_to_mount(&args.image.image, args.image.offset, args.kernel)?;
    if args.kernel {
        let mut options = options(&image);
        options.suid = args.suid;
        options.dev = args.dev;
        let file = match &remote {
            Some(remote) => whole_file(remote)?,
            None => args.image.image.clone(),
        };
        let mount = KernelMount::new(&file, &args.dir, &options)?;
        args.report(mount.target(), how(mount.backing()));
        return Ok(Answer::Yes);
    }
    let name = match &remote {
        Some(remote) => Path::new(&remote.entry.about.url),
        None => &args.image.image,
    };
    let mut mount = SharedMount::new(name, &args.dir);
    mount.offset = image.offset();
    mount.verity = image.verified().map(|file| file.verity());
    mount.remote = remote.map(|remote| remote.remote());
    mount.allow_other = args.allow_other;
    mount.suid = args.suid;
    mount.dev = args.dev;
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
        Backing::BlockDevice => "from the block device".to_owned(),
    }
}

/// The mount options that `image` needs.
pub fn options(image: &Image) -> MountOptions {
    let mut options = MountOptions::default();
    options.offset = image.offset();
    options.codec = (!image.is_uncompressed()).then(|| image.codec().name().to_owned());
    options
}
