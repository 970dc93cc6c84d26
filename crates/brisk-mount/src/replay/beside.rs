//! Replaying beside a program, in a process that the program does not know.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use brisk_image::{Limits, Profile};
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::bystander::Bystander;
use super::{DiskCharge, Replay, Replayed};
use crate::error::{Action, Cause, Error, Result, with_reasons};
use crate::page_log::PageLog;
use crate::syscalls::start_detached;

/// What is done with what came of a replay; none if the profile is damaged.
pub type AfterReplay = Box<dyn FnOnce(Option<&Replayed>)>;

/// A profile to be replayed by a process of its own, while this one becomes a program.
///
/// The process is nobody's child, has no terminal, and gets none of the program's signals. It reads the
/// profile by itself, so that the program does not wait for that.
pub struct ReplayBeside {
    path: PathBuf,
    profile: File,
    /// The directories that roots of the profile are taken to be in: see [`Replay::new`].
    pub at: Vec<PathBuf>,
    /// What the disk charges, where that is not to be known from elsewhere.
    pub charge: DiskCharge,
    /// Bytes that are asked for at most.
    pub budget: Option<u64>,
    /// Threads that ask, where they are not as many as usual.
    pub threads: Option<NonZeroUsize>,
    /// Where it is written, at the end, what was asked for when: [`PageEvent::list`](crate::PageEvent::list)
    /// reads it.
    pub log: Option<PathBuf>,
    /// How long the program is watched for [`Replayed::own`], which is told to `then` alone.
    pub watch: Option<Duration>,
    /// Is done in the process at its end.
    pub then: Option<AfterReplay>,
    /// Says on standard error what was done, for which it is held until then.
    pub report: Option<fn(&Replayed) -> String>,
}

impl ReplayBeside {
    /// Of the profile at `path`.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be opened.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        match File::open(&path) {
            Ok(profile) => Ok(Self::of(path, profile)),
            Err(e) => {
                let cause = Cause::io("open the profile", e);
                Err(Error::new(Action::Replay, cause).with_path(path))
            }
        }
    }

    /// Of a profile that is open; `path` is for messages.
    pub fn of(path: PathBuf, profile: File) -> Self {
        Self {
            path,
            profile,
            at: Vec::new(),
            charge: DiskCharge::default(),
            budget: None,
            threads: None,
            log: None,
            watch: None,
            then: None,
            report: None,
        }
    }

    /// Starts the process, and returns at once. What is wrong with the profile it says on standard
    /// error; the program goes on.
    ///
    /// # Errors
    ///
    /// `Place` if a directory is not there, `State` if this process has other threads, and `Io`.
    pub fn start(self) -> Result<()> {
        let path = self.path.clone();
        self.start_process()
            .map_err(|cause| Error::new(Action::Replay, cause).with_path(path))
    }

    fn start_process(mut self) -> Result<(), Cause> {
        for at in &mut self.at {
            // The process has another working directory.
            *at = std::path::absolute(&*at)
                .map_err(|e| Cause::io(format!("resolve {}", at.display()), e))?;
        }
        let null = openat(
            CWD,
            "/dev/null",
            OFlags::RDWR | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| Cause::io("open /dev/null", e))?;
        let errors = rustix::io::fcntl_dupfd_cloexec(io::stderr(), 3).map(File::from);
        let log = self.log.as_ref().map(|path| {
            File::create(path).map_err(|e| Cause::io(format!("make {}", path.display()), e))
        });
        let log = log.transpose()?;
        // A program without standard error gets no words there.
        let mut errors = errors.ok();
        // Where there are no accounts, nobody knows whether the program asks for what is replayed.
        let mut program = Bystander::this().ok();
        let mut watched = self.watch.zip(Bystander::this().ok());
        if let Some((_, program)) = &mut watched {
            // From now on: by the time the other process looks, the program may have read all.
            program.own();
        }
        let mut kept = vec![self.profile.as_raw_fd()];
        let watched_program = watched.as_ref().map(|(_, program)| program);
        let programs = program.iter().chain(watched_program);
        kept.extend(programs.flat_map(Bystander::descriptors));
        kept.extend(errors.iter().chain(&log).map(AsRawFd::as_raw_fd));
        let main = move || {
            // A name for those who look for it; all works without.
            rustix::thread::set_name(c"brisk-replay").ok();
            let began = Instant::now();
            let report = self.report;
            let then = self.then.take();
            let path = self.path.clone();
            let replay = match self.prepare() {
                Ok(mut replay) => {
                    replay.bystander = program.take();
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
                    if let Some(then) = then.filter(|_| e.is::<brisk_image::Error>()) {
                        then(None);
                    }
                    return 1;
                }
            };
            if report.is_none() {
                // Whoever reads what the program writes waits for its end, not for this.
                errors = None;
            }
            match replay.run() {
                Ok(mut replayed) => {
                    if let Some(report) = report {
                        say(&mut errors, &report(&replayed));
                    }
                    drop(errors);
                    // Of other files nothing more needs to be known.
                    let watched = watched.filter(|_| !replayed.is_stale());
                    if let Some((time, mut program)) = watched {
                        replayed.own = program.watch(began + time);
                    }
                    if let Some(then) = then {
                        then(Some(&replayed));
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
            .map_err(|e| Cause::io("start the process that replays", e))
    }

    fn prepare(mut self) -> Result<Replay, Box<dyn std::error::Error>> {
        let limits = Limits::of_profiles();
        let mut text = Vec::new();
        // More than a profile may have is refused when it is read.
        let most = limits.memory.saturating_add(1);
        (&mut self.profile).take(most).read_to_end(&mut text)?;
        let profile = Profile::from_text(&text, &limits)?;
        let mut replay = Replay::new(profile, &self.at, self.charge)?;
        replay.budget = self.budget;
        replay.threads = self.threads.unwrap_or(replay.threads);
        // Who watches the program learns what it asks for, and keeps a profile of all that goes by its name.
        replay.judges_program = self.watch.is_none();
        Ok(replay)
    }
}

/// Says something on standard error, if there is one.
fn say(errors: &mut Option<File>, text: &str) {
    if let Some(errors) = errors {
        // There is nobody else to tell.
        errors.write_all(format!("brisk: {text}\n").as_bytes()).ok();
    }
}
