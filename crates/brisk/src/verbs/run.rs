//! `brisk run`: starts a program from an image that it alone sees.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context;
use brisk_mount::{ErrorKind, Launch};

use super::mount;
use crate::Answer;
use crate::args::ImageArgs;

/// What to start, and from which image.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The image is mounted in a mount namespace of its own, and the program takes the place of \
brisk: signals, job control, descriptors and the exit status are the program's. When the \
last process that it started has ended, the mount goes away. The environment has the mount \
point in BRISK_TREE. This needs root.\n\n\
Exits as the program does, or with 125 if brisk failed, 126 if the program cannot be \
executed and 127 if there is none.")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory to mount the image on; what it holds is covered, for the program only.
    /// [default: the place that the image records, else the first of /mnt, /media and /srv that is
    /// empty]
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,

    /// The program and its arguments. A program with a slash is taken from the image (bin/app),
    /// one that starts with a slash as it is, and a bare name from PATH.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Never comes back if the program starts.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    // Opening an image and asking it starts no thread: the namespace needs there to be one only.
    let image = args.image.open()?;
    let recorded = match args.at {
        Some(_) => None,
        None => image.recorded_place()?,
    };
    let launch = Launch {
        image: args.image.image.clone(),
        at: args.at.clone().or_else(|| recorded.clone()),
        command: args.command.clone(),
        options: mount::options(&image),
    };
    drop(image);
    let error = match launch.exec() {
        Ok(never) => match never {},
        Err(error) => error,
    };
    match recorded {
        Some(_) if error.kind() == ErrorKind::Place => {
            Err(error).context("at the place that the image records; --at DIR names another")
        }
        _ => Err(error.into()),
    }
}

/// The exit code for a failure of [`run`].
pub fn exit_code(e: &anyhow::Error) -> u8 {
    e.downcast_ref()
        .map_or(125, |e: &brisk_mount::Error| e.exit_code())
}
