/*!
Records what a launch asks for.

Without root, brisk serves the launch's trees and its image through FUSE, and the server records the requests. With root, brisk can use the kernel's own events for the whole system instead
([`brisk_launch::system_trace`]).

Three kinds of processes take part. The caller stays outside of any namespace, so that it sees the real trees
afterwards. The *tracer* ([`tracer`]) enters namespaces, mounts, serves and watches. It starts the *program*
([`program`]), which may start others. All of them are the tracer's descendants, and end before it. An image that needs
no namespace is mounted in the user's own world before the tracer starts, and a watchdog unmounts it after the tracer.

A new mount has nothing in the page cache, so each recording sees every request of the program. The disk itself may
have been read before.
*/

mod mounts;
mod plan;
mod program;
mod traced;
mod tracer;
mod tracer_message;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use brisk_launch::error::{Advice, Cause, Error, ErrorKind, Result};
use brisk_launch::program::Variable;
use brisk_launch::sys::process::start_child;
use brisk_launch::system_trace::readiness::Readiness;
use brisk_launch::system_trace::system::WholeSystem;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitOptions, waitpid};

use self::plan::{Planned, PlannedSource, TracePlan};
pub use self::traced::{TraceSource, Traced};
use self::tracer_message::TracerMessage;
use crate::action::Action;
use crate::namespace::{is_privileged, several_threads};
use crate::session::{
    Bind, BriefMount, BriefMountEnd, Needs, Notice, OpenImage, SeenBy, SessionImage, World,
    is_of_way, mount_directory, no_place, places_overlap, world,
};
use crate::working_directory::WorkingDirectory;

/// A launch to record, without root. Its trees and its image are served through FUSE, and the server records the requests. A
/// new mount has nothing in memory, so each recording starts cold.
///
/// A tree is served at its own place, only to the launch and its descendants. An image alone is mounted as for a
/// [`Session`](crate::Session): see [`Trace::seen_by`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    /// An image, which the program sees at its place.
    pub image: Option<SessionImage>,
    /// Directories, which the program sees where they are. None is inside of another, or in the image's
    /// place.
    pub trees: Vec<PathBuf>,
    /// More images, each with its own place.
    pub with: Vec<SessionImage>,
    /// Makes the image, or else the first tree, the program's root directory, as
    /// [`Session::root`](crate::Session::root) does. The others have their places in it.
    pub root: bool,
    /// Files and directories that the program also sees elsewhere.
    pub binds: Vec<Bind>,
    /// Lets the program write to the trees and the image's place. What it writes stays in memory, and is lost
    /// when it ends.
    pub writable: bool,
    /// Who sees the image, as [`Session::seen_by`](crate::Session::seen_by) says. What other programs of the user ask of it
    /// is recorded, too.
    pub seen_by: Option<SeenBy>,
    /// When to cut the recording.
    pub ready: Readiness,
    /// Cuts the recording after this time at the latest. The program and everything that it has started then
    /// go on until they end by themselves.
    pub at_most: Option<Duration>,
    /// The program and its arguments. An absolute path is taken as it is, and a bare name is looked up in
    /// `PATH`. A name with a slash is a path in the image or in the program's root directory, or if there is
    /// neither, in the working directory.
    pub command: Vec<OsString>,
    /// The directory that the program starts in, from the root of the image or of the first tree. `None` is the
    /// present one.
    pub directory: Option<PathBuf>,
    /// What is set in the environment of the program.
    pub variables: Vec<Variable>,
}

/// A launch to record on the whole system, with the kernel's events of the page cache. This needs root.
///
/// The page cache is emptied first, and the disks' read-ahead is lowered during the recording, so other
/// programs are slower for that time. Files that other programs have mapped or in use stay in memory, and are
/// not recorded. Names are recorded if they were
/// opened, and not if they were only looked up: the kernel has no event for that.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SystemTrace {
    /// Records what any process of the system reads, and not only the program and what it starts. This process itself is
    /// one of them.
    pub all_processes: bool,
    /// Leaves the page cache as it is. What is in it is not recorded.
    pub keep_cache: bool,
    /// When to cut the recording.
    pub ready: Readiness,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

impl Trace {
    /// A launch of `command` without an image or a tree, until it exits.
    pub fn new(command: Vec<OsString>) -> Self {
        Self {
            image: None,
            trees: Vec::new(),
            with: Vec::new(),
            root: false,
            binds: Vec::new(),
            writable: false,
            seen_by: None,
            ready: Readiness::Exit,
            at_most: None,
            command,
            directory: None,
            variables: Vec::new(),
        }
    }

    /// Starts the program, records until it is ready, and then ends it. A program that is ready when it exits
    /// ends by itself, and so does one with [`Trace::at_most`]. Nothing of it stays behind. `tell` is called with
    /// [`Notice::InUserNamespace`] if `fusermount3` cannot mount the image.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the system refuses user namespaces or has no FUSE, or if it should wait for a window
    /// without the feature `window`. `Place` if something cannot be mounted at its place, or the display
    /// cannot be reached. `State` if the process has more than one thread. `CommandNotFound` and
    /// `CommandNotExecutable`.
    pub fn record(&self, tell: impl FnMut(Notice<'_>)) -> Result<Traced> {
        let path = match (&self.image, &*self.trees) {
            (Some(image), _) => &image.path,
            (None, [first, ..]) => first,
            (None, []) => return Err(Error::new(Action::Trace, nothing_to_trace())),
        };
        self.plan(tell)
            .and_then(|(plan, brief)| run(&plan, brief))
            .map_err(|cause| Error::new(Action::Trace, cause).with_path(path))
    }

    /// Also mounts the image, if it needs no namespace.
    fn plan(&self, tell: impl FnMut(Notice<'_>)) -> Result<(TracePlan, Option<Brief>), Cause> {
        let cwd = WorkingDirectory::now();
        let mut command = self.command.clone();
        let Some(program) = command.first_mut() else {
            return Err(Cause::no_command());
        };
        let mut served = Vec::new();
        let mut brief = None;
        if let Some(image) = &self.image {
            let taken = self.with.iter().filter_map(|image| image.at.as_deref());
            let taken = taken.collect::<Vec<_>>();
            let open = OpenImage::open(image, self.root)?;
            brief = self.mount_briefly(image, &open, tell)?;
            served.push(match &brief {
                Some((mount, _)) => Planned::seen_by_user(open, &mount.place),
                None => Planned::image(open, self.root, &taken)?,
            });
        }
        for tree in &self.trees {
            let tree = mount_directory(tree)?;
            if tree.parent().is_none() {
                let cause = Cause::place("the root directory cannot be traced as a tree");
                return Err(cause.advise(Advice::NameTrees));
            }
            served.push(Planned::at(tree.clone(), PlannedSource::Tree(tree)));
        }
        for image in &self.with {
            if image.at.is_none() {
                let image = image.path.clone();
                return Err(no_place(&image));
            }
            let image = OpenImage::open(image, self.root)?;
            served.push(Planned::image(image, self.root, &[])?);
        }
        if self.root {
            if let Some(first) = served.first_mut() {
                (first.at, first.recorded_at) = ("/".into(), "/".into());
            }
        } else if let (None, Some(first), Ok(path)) =
            (&self.image, served.first(), std::path::absolute(&*program))
            && program.as_bytes().contains(&b'/')
            && !first.at.join(&*program).exists()
            && path.exists()
        {
            // Decided before the tree is served, which would record the look-up.
            *program = path.into();
        }
        // In a root directory, all other places are below that of the first.
        apart(&served[usize::from(self.root)..])?;
        let plan = TracePlan {
            served,
            system: None,
            root: self.root,
            binds: self.binds.clone(),
            writable: self.writable,
            ready: self.ready.clone(),
            at_most: self.at_most,
            command,
            directory: self.directory.clone(),
            variables: self.variables.clone(),
            asked: self.command.clone(),
            cwd,
        };
        Ok((plan, brief))
    }

    /// Mounts the image in the user's own world. None if the trace is to be in namespaces.
    fn mount_briefly(
        &self,
        image: &SessionImage,
        open: &OpenImage,
        mut tell: impl FnMut(Notice<'_>),
    ) -> Result<Option<Brief>, Cause> {
        let mut needs = Needs::of(image, &self.with, self.root, &self.binds, self.writable);
        if !self.trees.is_empty() {
            needs.namespaces = Some("tracing a directory at its own place");
        }
        match world(self.seen_by, needs, is_privileged())? {
            World::Namespaces => Ok(None),
            World::Own => BriefMount::make(open).map(Some),
            World::OwnOrNamespaces => match BriefMount::make(open) {
                Err(cause) if is_of_way(&cause) => {
                    let why = Error::new(Action::Mount, cause);
                    tell(Notice::InUserNamespace(&why));
                    Ok(None)
                }
                made => made.map(Some),
            },
        }
    }
}

impl SystemTrace {
    /// A launch of `command` from cold, until it exits.
    pub fn new(command: Vec<OsString>) -> Self {
        Self {
            all_processes: false,
            keep_cache: false,
            ready: Readiness::Exit,
            command,
        }
    }

    /// Like [`Trace::record`]. All changes to the system are undone when this returns, or soon after this
    /// process has ended in another way.
    ///
    /// # Errors
    ///
    /// `State` without root. `Unsupported` if the kernel lacks a needed feature, or hides it from a
    /// container. `Busy` if another such trace runs. Otherwise as [`Trace::record`].
    pub fn record(&self) -> Result<Traced> {
        let trace = || {
            if !is_privileged() {
                return Err(nothing_to_trace());
            }
            let plan = TracePlan {
                served: Vec::new(),
                system: Some(WholeSystem {
                    keep_cache: self.keep_cache,
                    all_processes: self.all_processes,
                }),
                root: false,
                binds: Vec::new(),
                writable: false,
                ready: self.ready.clone(),
                at_most: None,
                command: self.command.clone(),
                directory: None,
                variables: Vec::new(),
                asked: self.command.clone(),
                cwd: WorkingDirectory::now(),
            };
            run(&plan, None)
        };
        trace().map_err(|cause| Error::new(Action::TraceSystem, cause))
    }
}

/// Checks that no place is on or in another one. Otherwise one would hide the other, or would be looked up in
/// it before it is served.
fn apart(planned: &[Planned]) -> Result<(), Cause> {
    for (i, this) in planned.iter().enumerate() {
        let place = &this.at;
        for other in planned[..i].iter().map(|other| &other.at) {
            if place.starts_with(other) || other.starts_with(place) {
                return Err(places_overlap(other, place));
            }
        }
    }
    Ok(())
}

/// An image that is mounted in the user's own world, and its end.
type Brief = (BriefMount, BriefMountEnd);

/// Lets a tracer do the work, and waits until nothing is mounted any more.
fn run(plan: &TracePlan, brief: Option<Brief>) -> Result<Traced, Cause> {
    let (brief, end) = brief.unzip();
    let traced = trace(plan, brief);
    end.into_iter().for_each(BriefMountEnd::wait);
    traced
}

fn trace(plan: &TracePlan, mut brief: Option<BriefMount>) -> Result<Traced, Cause> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| Cause::io("make a pipe", e))?;
    let (mut ours, mut theirs) = (Some(ours), Some(theirs));
    let tracer = start_child(|| {
        ours = None;
        let brief = brief.take();
        (theirs.take()).map_or(1, |report| tracer::run(plan, brief, report))
    })
    .map_err(|e| match Errno::from_io_error(&e) {
        // The number is only for the message.
        Some(Errno::DEADLK) => {
            several_threads(std::fs::read_dir("/proc/self/task").map_or(2, Iterator::count))
        }
        _ => Cause::io("start the process that records", e),
    })?;
    drop((theirs, brief));
    let mut text = Vec::new();
    let read = match ours {
        Some(ours) => File::from(ours).read_to_end(&mut text),
        None => Ok(0),
    };
    loop {
        match waitpid(Some(tracer), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            // The process that started this one may have chosen that children leave no status.
            Ok(_) | Err(Errno::CHILD) => break,
            Err(e) => return Err(Cause::io("wait for the process that records", e)),
        }
    }
    read.map_err(|e| Cause::io("read what was recorded", e))?;
    let mut traced = TracerMessage::parse(&text)?;
    traced.sources = match plan.system {
        None => plan.served.iter().map(Planned::source).collect(),
        Some(_) => {
            let roots = traced.profile.roots().iter();
            roots
                .map(|root| TraceSource::Directory(root.path.clone()))
                .collect()
        }
    };
    Ok(traced)
}

/// The caller has named nothing.
fn nothing_to_trace() -> Cause {
    let cause = Cause::new(
        ErrorKind::State,
        "there is neither an image nor a tree to trace",
    );
    cause.advise(Advice::NameTrees)
}
