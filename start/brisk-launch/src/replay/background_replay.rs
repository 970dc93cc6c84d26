//! Replays in a background process while a program starts.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_image::Limits;
use brisk_image::profile::Profile;

use super::disk::DiskCharge;
use super::head_start::{HeadStart, gives_head_start, head_start};
use super::profile_replay::{Replay, Replayed};
use super::sample::Look;
use super::verdict::{FoundFiles, NextLaunch, ReplayEnd, StartReads, next_launch};
use super::watched_program::WatchedProgram;
use crate::error::{Action, Cause, Error, Result, with_reasons};
use crate::first_process;
use crate::learn::learned_packs::LearnedLaunch;
use crate::open::open_null;
use crate::page_log::PageLog;
use crate::sys::process::start_detached;

/// Called at the end of a replay of a learned profile.
pub type AfterReplay = Box<dyn FnOnce(ReplayEnd)>;

/// Where a profile is.
enum Source {
    File(File),
    Learned(Arc<LearnedLaunch>),
}

impl Source {
    fn descriptor(&self) -> RawFd {
        match self {
            Self::File(file) => file.as_raw_fd(),
            Self::Learned(launch) => launch.descriptor(),
        }
    }

    fn read(self) -> brisk_image::Result<Profile> {
        match self {
            Self::File(file) => Profile::from_reader(file, &Limits::of_profiles()),
            Self::Learned(launch) => launch.profile(),
        }
    }
}

/// A profile for a background process to replay while this process becomes a program.
///
/// The background process is not a child of the program, has no terminal, and gets none of the program's
/// signals. It also reads the profile, so that the program does not wait for that.
pub struct BackgroundReplay {
    path: PathBuf,
    profile: Source,
    /// The directories where roots of the profile are now: see [`Replay::new`].
    pub at: Vec<PathBuf>,
    /// What the disk charges, instead of what was measured.
    pub charge: DiskCharge,
    /// The most bytes to ask for.
    pub budget: Option<u64>,
    /// Threads that ask for pages, instead of [`Replay::threads`].
    pub threads: Option<NonZeroUsize>,
    /// What a look at a sample has told. After it, the program may give the replay a head start.
    pub look: Option<Look>,
    /// A file for a log of what was asked for, and when. It is written at the end, and
    /// [`PageEvent::list`](crate::PageEvent::list) reads it.
    pub log: Option<PathBuf>,
    /// How long to watch what the program itself reads, for `then`. A program that is watched keeps its
    /// replay, even if no recorded launch started it.
    pub watch: Option<Duration>,
    /// Called in the background process at its end.
    pub then: Option<AfterReplay>,
    /// Makes the line on standard error that says what was done. Without it, the background process closes
    /// standard error at its start.
    pub report: Option<fn(&Replayed) -> String>,
}

impl BackgroundReplay {
    /// A replay of the profile at `path`.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be opened.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        match File::open(&path) {
            Ok(profile) => Ok(Self::of(path, Source::File(profile))),
            Err(e) => {
                let cause = Cause::io("open the profile", e);
                Err(Error::new(Action::Replay, cause).with_path(path))
            }
        }
    }

    /// A replay of what was learned of a launch.
    pub fn of_learned(launch: Arc<LearnedLaunch>) -> Self {
        Self::of(launch.path().to_owned(), Source::Learned(launch))
    }

    /// `path` is for messages.
    fn of(path: PathBuf, profile: Source) -> Self {
        Self {
            path,
            profile,
            at: Vec::new(),
            charge: DiskCharge::default(),
            budget: None,
            threads: None,
            look: None,
            log: None,
            watch: None,
            then: None,
            report: None,
        }
    }

    /// Starts the background process. Returns at once, or for a long launch when the process has asked for the first pages. If
    /// the profile cannot be replayed, that process says so on standard error, and the program goes on.
    ///
    /// If the calling process is the first of its PID namespace, it stays, and the call returns in a child: see
    /// [`leave_first_process`](crate::leave_first_process).
    ///
    /// # Errors
    ///
    /// `Place` if a directory does not exist, `State` if this process has other threads, and `Io`.
    pub fn start(self) -> Result<()> {
        let path = self.path.clone();
        self.start_process()
            .map_err(|cause| Error::new(Action::Replay, cause).with_path(path))
    }

    fn start_process(mut self) -> Result<(), Cause> {
        first_process::leave()?;
        for at in &mut self.at {
            // The background process has another working directory.
            *at = std::path::absolute(&*at)
                .map_err(|e| Cause::io(format!("resolve {}", at.display()), e))?;
        }
        let null = open_null()?;
        let errors = rustix::io::fcntl_dupfd_cloexec(io::stderr(), 3).map(File::from);
        let log = self.log.as_ref().map(|path| {
            File::create(path).map_err(|e| Cause::io(format!("make {}", path.display()), e))
        });
        let log = log.transpose()?;
        // Standard error may be closed. Then nothing is said.
        let mut errors = errors.ok();
        // If the kernel keeps no accounts of processes, it does not say what the program reads.
        let mut program = WatchedProgram::this().ok();
        let mut watched = self.watch.zip(WatchedProgram::this().ok());
        if let Some((_, program)) = &mut watched {
            // Counts from now on, because the program may have read everything before the process first
            // looks.
            program.own();
        }
        let mut kept = vec![self.profile.descriptor()];
        let watched_program = watched.as_ref().map(|(_, program)| program);
        let programs = program.iter().chain(watched_program);
        kept.extend(programs.flat_map(WatchedProgram::descriptors));
        kept.extend(errors.iter().chain(&log).map(AsRawFd::as_raw_fd));
        let waits = self.look.filter(gives_head_start);
        // Without it, the two begin side by side.
        let (head_start, start_line) = waits.and_then(|_| head_start().ok()).unzip();
        kept.extend(head_start.as_ref().and_then(HeadStart::descriptor));
        let main = move || {
            // The name is only for people, so a failure does not matter.
            rustix::thread::set_name(c"brisk-replay").ok();
            let began = Instant::now();
            let report = self.report;
            let then = self.then.take();
            let path = self.path.clone();
            let replay = match self.prepare() {
                Ok(mut replay) => {
                    replay.program = program.take();
                    replay.head_start = head_start;
                    replay.log = log.map(PageLog::new);
                    replay
                }
                Err(e) => {
                    let reasons = with_reasons(&*e);
                    let text = format!(
                        "warning: {}: {reasons}; nothing is replayed",
                        path.display()
                    );
                    say(&mut errors, &text);
                    // The profile is damaged.
                    if let Some(then) = then.filter(|_| e.is::<brisk_image::Error>()) {
                        then(ReplayEnd {
                            next: NextLaunch::RecordsAnew,
                            reads: None,
                        });
                    }
                    return 1;
                }
            };
            if report.is_none() {
                // Whoever reads the program's output waits until every process has closed it, and must not
                // wait for this one.
                errors = None;
            }
            let listed = replay.listed_files();
            match replay.run() {
                Ok(replayed) => {
                    if let Some(report) = report {
                        say(&mut errors, &report(&replayed));
                    }
                    drop(errors);
                    let files = FoundFiles {
                        listed,
                        stale: replayed.stale,
                        missing: replayed.missing,
                    };
                    // If the files are others now, what the program reads says nothing.
                    let watched = watched.filter(|_| !files.are_others());
                    let own = watched.and_then(|(time, mut program)| program.watch(began + time));
                    if let Some(then) = then {
                        let pages = replayed.pages;
                        let ahead = pages.asked.saturating_sub(pages.failed);
                        then(ReplayEnd {
                            next: next_launch(files, own),
                            reads: own.map(|own| StartReads { ahead, own }),
                        });
                    }
                    0
                }
                Err(e) => {
                    say(&mut errors, &with_reasons(&e));
                    1
                }
            }
        };
        start_detached(&kept, null.as_fd(), main)
            .map_err(|e| Cause::io("start the process that replays", e))?;
        if let Some(start_line) = start_line {
            start_line.wait();
        }
        Ok(())
    }

    fn prepare(self) -> Result<Replay, Box<dyn std::error::Error>> {
        let profile = self.profile.read()?;
        let mut replay = Replay::new(profile, &self.at, self.charge)?;
        replay.budget = self.budget;
        replay.threads = self.threads.unwrap_or(replay.threads);
        // A watched program's profile is learned under the name that the program is started by, and may
        // belong to several programs.
        replay.ends_if_unrecorded = self.watch.is_none();
        Ok(replay)
    }
}

/// Prints a message on standard error, if there is one.
fn say(errors: &mut Option<File>, text: &str) {
    if let Some(errors) = errors {
        // If this fails, there is no other place to say it.
        errors.write_all(format!("brisk: {text}\n").as_bytes()).ok();
    }
}
