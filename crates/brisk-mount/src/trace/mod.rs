/*!
Recording what a launch asks for, without root: the trees and the image that it starts from are
served through FUSE, to it alone, and the server takes note.

Three kinds of processes take part. The caller stays where it is, outside of any namespace, so that
what it does next sees the real trees. The *tracer* ([`tracer`]) enters namespaces, mounts, serves
and watches. The *program* ([`program`]) is started by it, and may become many: all of them are the
tracer's descendants, and end before it.

A mount that was just made has nothing cached, so each recording is one from cold, as far as it
goes: the disk may have been read before, but the program's requests all arrive.
*/

mod mounts;
mod program;
mod readiness;
mod report;
mod tracer;

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use brisk_image::Profile;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitOptions, waitpid};

pub use self::readiness::Readiness;
use self::report::Report;
use crate::error::{Action, Cause, Error, Result};
use crate::run::default_place;
use crate::session::{SessionImage, place};
use crate::syscalls::start_child;

/// A launch to be recorded: see the text of the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// An image, which the program sees at its place.
    pub image: Option<SessionImage>,
    /// Directories, which the program sees where they are. None is in another, or in the image's
    /// place.
    pub trees: Vec<PathBuf>,
    /// Lets the program write to the trees and the image's place. What it writes is kept in memory,
    /// and lost when it ends.
    pub writable: bool,
    /// When to cut the recording.
    pub ready: Readiness,
    /// The program and its arguments. An absolute program is taken as it is, a bare name from
    /// `PATH`, and one with a slash from the image's root, or from the working directory if there
    /// is no image.
    pub command: Vec<OsString>,
}

/// What came of a [`Trace`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Traced {
    /// What the launch asked for, of one run, without digests.
    pub profile: Profile,
    /// False if the program ended before it was ready.
    pub was_ready: bool,
    /// How the program ended, if it did so by itself.
    pub status: Option<ExitStatus>,
    /// Processes that the program left behind, which were ended, if it was ready when it exited.
    pub left: u64,
    /// Requests that could not be given a name.
    pub unnamed: u64,
    /// Requests for which the recording had no room.
    pub dropped: u64,
}

/// What a tracer serves: all that can be said before anything is mounted.
struct Plan {
    image: Option<PlannedImage>,
    /// Canonical.
    trees: Vec<PathBuf>,
    writable: bool,
    ready: Readiness,
    command: Vec<OsString>,
    /// The command as it was asked for.
    asked: Vec<OsString>,
    /// What `BRISK_TREE` says.
    tree: PathBuf,
    /// None if it was removed.
    cwd: Option<PathBuf>,
}

struct PlannedImage {
    path: PathBuf,
    file: File,
    offset: u64,
    at: PathBuf,
}

impl Trace {
    /// Starts the program, records until it is ready, and ends it then; a program that is ready
    /// when it exits ends by itself. Nothing of it is left.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the system refuses user namespaces or has no FUSE, `Place` if something
    /// cannot be mounted where it should be, `State` if the process has more than one thread,
    /// `CommandNotFound` and `CommandNotExecutable`.
    pub fn record(&self) -> Result<Traced> {
        let path = match (&self.image, &*self.trees) {
            (Some(image), _) => &image.path,
            (None, [first, ..]) => first,
            (None, []) => return Err(Error::new(Action::Trace, Cause::NothingToTrace)),
        };
        self.plan()
            .and_then(|plan| run(&plan))
            .map_err(|cause| Error::new(Action::Trace, cause).with_path(path))
    }

    fn plan(&self) -> Result<Plan, Cause> {
        let cwd = env::current_dir().ok();
        let mut trees = Vec::new();
        for tree in &self.trees {
            trees.push(place(tree)?);
        }
        let image = self.image.as_ref().map(plan_image).transpose()?;
        apart(&trees, image.as_ref().map(|image| &*image.at))?;
        let mut command = self.command.clone();
        let Some(program) = command.first_mut() else {
            return Err(Cause::NoCommand);
        };
        let tree = match (&image, &*trees) {
            (Some(image), _) => image.at.clone(),
            (None, [first, ..]) => {
                if let (true, Some(cwd)) = (program.as_bytes().contains(&b'/'), &cwd) {
                    // An absolute program stays what it is.
                    *program = cwd.join(&*program).into();
                }
                first.clone()
            }
            (None, []) => return Err(Cause::NothingToTrace),
        };
        Ok(Plan {
            image,
            trees,
            writable: self.writable,
            ready: self.ready.in_directory(cwd.as_deref()),
            command,
            asked: self.command.clone(),
            tree,
            cwd,
        })
    }
}

fn plan_image(image: &SessionImage) -> Result<PlannedImage, Cause> {
    let file = File::open(&image.path).map_err(|e| Cause::io("open the image", e))?;
    let path = image
        .path
        .canonicalize()
        .map_err(|e| Cause::io("resolve the image's name", e))?;
    Ok(PlannedImage {
        path,
        file,
        offset: image.offset,
        at: match &image.at {
            Some(at) => place(at)?,
            None => default_place()?,
        },
    })
}

/// Checks that nothing is mounted on or in another: of those, one would hide the other, or be
/// looked for in it before anybody answers for it.
fn apart(trees: &[PathBuf], at: Option<&Path>) -> Result<(), Cause> {
    let places: Vec<&Path> = trees.iter().map(|tree| &**tree).chain(at).collect();
    for (i, place) in places.iter().enumerate() {
        if place.parent().is_none() {
            return Err(Cause::TracedRoot);
        }
        for other in &places[..i] {
            if place.starts_with(other) || other.starts_with(place) {
                return Err(Cause::PlacesOverlap {
                    one: other.to_path_buf(),
                    other: place.to_path_buf(),
                });
            }
        }
    }
    Ok(())
}

/// Has a tracer do it.
fn run(plan: &Plan) -> Result<Traced, Cause> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| Cause::io("make a pipe", e))?;
    let (mut ours, mut theirs) = (Some(ours), Some(theirs));
    let tracer = start_child(|| {
        ours = None;
        theirs.take().map_or(1, |report| tracer::run(plan, report))
    })
    .map_err(|e| match Errno::from_io_error(&e) {
        // The number is counted for the message alone.
        Some(Errno::DEADLK) => Cause::Threads {
            count: std::fs::read_dir("/proc/self/task").map_or(2, Iterator::count),
        },
        _ => Cause::io("start the process that records", e),
    })?;
    drop(theirs);
    let mut text = Vec::new();
    let read = match ours {
        Some(ours) => File::from(ours).read_to_end(&mut text),
        None => Ok(0),
    };
    loop {
        match waitpid(Some(tracer), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            // Whoever started this process may have chosen that children leave no status.
            Ok(_) | Err(Errno::CHILD) => break,
            Err(e) => return Err(Cause::io("wait for the process that records", e)),
        }
    }
    read.map_err(|e| Cause::io("read what was recorded", e))?;
    Report::parse(&text)
}
