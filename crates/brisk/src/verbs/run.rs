//! `brisk run`: starts a program from an image, in a session that its user's runs share.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use brisk_image::Image;
use brisk_mount::{ErrorKind, Launch, Session, SessionImage};

use super::mount;
use crate::Answer;
use crate::args::ImageArgs;
use crate::messages::say;

/// What to start, and from which image.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The program takes the place of brisk: signals, job control, descriptors and the exit status \
are the program's. It and what it starts see the image, nobody else does. The environment has \
the mount point in BRISK_TREE.\n\n\
The first run of an image starts two small processes, which serve it; later runs of the same \
user join them and find in memory what was read before. They leave some time after the last \
program has ended. brisk stat shows them, brisk umount ends them.\n\n\
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

    /// How long the image stays in memory after the last program that was started from it has
    /// ended; 0 leaves nothing. That of the latest run counts.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        conflicts_with = "kernel"
    )]
    linger: u32,

    /// Mounts through the kernel, for this run alone, without a process that serves. This needs
    /// root.
    #[arg(long)]
    kernel: bool,

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
    let at = args.at.clone().or_else(|| recorded.clone());
    let result = if args.kernel {
        launch(args, at, &image).exec()
    } else {
        session(args, at, &image).exec(|place| {
            say(&format!(
                "the system refuses user namespaces: the image is mounted on {}, where all your \
                 programs see it",
                place.display()
            ));
        })
    };
    let error = match result {
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

fn launch(args: &Args, at: Option<PathBuf>, image: &Image) -> Launch {
    Launch {
        image: args.image.image.clone(),
        at,
        command: args.command.clone(),
        options: mount::options(image),
    }
}

fn session(args: &Args, at: Option<PathBuf>, image: &Image) -> Session {
    Session {
        image: SessionImage {
            path: args.image.image.clone(),
            offset: image.offset(),
            at,
        },
        linger: Duration::from_secs(args.linger.into()),
        command: args.command.clone(),
    }
}

/// The exit code for a failure of [`run`].
pub fn exit_code(e: &anyhow::Error) -> u8 {
    e.downcast_ref()
        .map_or(125, |e: &brisk_mount::Error| e.exit_code())
}
