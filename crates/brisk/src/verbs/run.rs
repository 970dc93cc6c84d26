//! `brisk run`: starts a program from an image, in a session that its user's runs share.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use brisk_image::Image;
use brisk_mount::{ErrorKind, Launch, Session, SessionFill, SessionImage};

use super::mount;
use crate::Answer;
use crate::args::ImageArgs;
use crate::messages::say;
use crate::size::parse_size;
use crate::surroundings::SurroundingsArgs;

/// What to start, and from which image.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The program takes the place of brisk: signals, job control, descriptors and the exit status \
are the program's. It and what it starts see the image, nobody else does. The environment has \
the mount point in BRISK_TREE.\n\n\
The first run of an image starts two small processes, which serve it; later runs of the same \
user join them and find in memory what was read before. They leave some time after the last \
program has ended. brisk stat shows them, brisk umount ends them.\n\n\
The first run also fills memory with the pages of the image's hot pack, if it has one, while the \
program starts: as it takes brisk's place, what was filled is shown by brisk stat, not at the \
end.\n\n\
Exits as the program does, or with 125 if brisk failed, 126 if the program cannot be \
executed and 127 if there is none.")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory to mount the image on; what it holds is covered, for the program only.
    /// [default: the place that the image records, else the first of /mnt, /media and /srv that is
    /// empty]
    #[arg(long, value_name = "DIR", conflicts_with = "root")]
    at: Option<PathBuf>,

    #[command(flatten)]
    surroundings: SurroundingsArgs,

    /// Lets programs write where the image is. What they write is kept in memory, and lost when the
    /// session ends.
    #[arg(long, conflicts_with = "kernel")]
    writable: bool,

    /// How long the image stays in memory after the last program that was started from it has
    /// ended; 0 leaves nothing. That of the latest run counts.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        conflicts_with = "kernel"
    )]
    linger: u32,

    /// Fills memory with the pages of this hot pack, in place of IMAGE.hot beside the image or the
    /// pack behind it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernel", "no_fill"])]
    hot: Option<PathBuf>,

    /// Fills no memory from hot packs: what programs ask for is read then.
    #[arg(long, conflicts_with = "kernel")]
    no_fill: bool,

    /// How many bytes of each image are filled at most; half of the free memory is a bound always.
    /// [default: the whole hot pack]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with_all = ["kernel", "no_fill"])]
    fill_budget: Option<u64>,

    /// Says what will be filled, or why not. What was filled is shown by brisk stat.
    #[arg(short, long)]
    verbose: bool,

    /// Mounts through the kernel, for this run alone, without a process that serves. This needs
    /// root.
    #[arg(long, conflicts_with_all = ["root", "bind", "with"])]
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
        None if args.surroundings.root => None,
        None => image.recorded_place()?,
    };
    if args.verbose {
        tell_fill(args, &image)?;
    }
    let at = args.at.clone().or_else(|| recorded.clone());
    let result = if args.kernel {
        launch(args, at, &image).exec()
    } else {
        session(args, at, &image)?.exec(|place| {
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

fn session(args: &Args, at: Option<PathBuf>, image: &Image) -> anyhow::Result<Session> {
    Ok(Session {
        image: SessionImage {
            path: args.image.image.clone(),
            offset: image.offset(),
            at,
        },
        with: args.surroundings.with()?,
        root: args.surroundings.root,
        binds: args.surroundings.bind.clone(),
        writable: args.writable,
        linger: Duration::from_secs(args.linger.into()),
        fill: fill(args),
        command: args.command.clone(),
    })
}

fn fill(args: &Args) -> Option<SessionFill> {
    (!args.no_fill && !args.kernel).then(|| SessionFill {
        hot: args.hot.clone(),
        budget: args.fill_budget,
    })
}

/// Says what will be filled, as far as can be told before.
fn tell_fill(args: &Args, image: &Image) -> anyhow::Result<()> {
    let Some(fill) = fill(args) else {
        return Ok(());
    };
    match fill.check(&args.image.image, image)? {
        None => say("there is no hot pack: nothing is filled"),
        Some(Ok(bytes)) => say(&format!(
            "a new session fills {bytes} bytes from its hot pack; brisk stat shows how far it is"
        )),
        Some(Err(error)) => say(&format!("{:#}", anyhow::Error::from(error))),
    }
    Ok(())
}

/// The exit code for a failure of [`run`].
pub fn exit_code(e: &anyhow::Error) -> u8 {
    e.downcast_ref()
        .map_or(125, |e: &brisk_mount::Error| e.exit_code())
}
