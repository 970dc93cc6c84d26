/*!
Observes a launch where it is: nothing is mounted or served, and nobody needs root.

Another process, the *observer*, attaches to the calling process with `ptrace`, and the calling process then becomes the
program. The observer sees the system calls of the program and of what it starts: which names they look up, which parts of
files they read, and which files they map. Which pages of a mapping were touched, the page tables say (`/proc/PID/pagemap`)
when it goes away. So a launch with everything in memory tells as much as one from cold. For that, the observer keeps the
kernel from mapping pages around those that are touched, where it can (Linux 6.7 on x86-64).

The program notices nothing of it. Its process, its parent and its signals are the same as ever. The observer lets
everything go, for good,

* when the launch has taken its time,
* when a program starts that gets more rights than its user has (setuid, setgid, file capabilities): a traced one would
  not get them, so its process alone is let go before that,
* when a program itself wants to trace, as a debugger does,
* when the program is suspended.

Observing takes 10 ms of the program's time, and then an eighth of it. When it has taken that, it lets everything go for a
while, and then attaches again. In between it looks only at what stops nobody: page tables, by `inotify` the directories that
the program is known to use, and how much it reads. So mappings are seen then, of what is read most, and of names that do not
exist none.

If the observer ends by itself, or is killed, the kernel lets everything go.
*/

mod calls;
mod fault_around;
mod files;
mod inserted_calls;
mod observer;
mod pages;
mod passive;
mod process;
mod watch;
mod yama;

pub(crate) use self::calls::{LOOK_UPS, LOOK_UPS_IN_DIRECTORY};
pub(crate) use self::process::{absolute, directory_of};

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brisk_image::Limits;
use brisk_image::profile::{Profile, ProfileFile};
use rustix::fs::getxattr;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PTracer, Pid, getpid, set_ptracer};

use self::observer::Observer;
use crate::error::{Action, Cause, Error, Result};
use crate::open::open_null;
use crate::syscalls::{errno, start_detached};

/// A launch to observe without root, wherever its files lie.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Observe {
    /// The program and its arguments, for the profile.
    pub command: Vec<OsString>,
    /// How long to observe at most. The program then goes on alone.
    pub at_most: Duration,
    /// How much of the program's time it may cost.
    pub effort: Effort,
    /// Descriptors that are open until all is observed and told, for example one with a lock.
    pub held: Vec<Arc<OwnedFd>>,
    /// A profile of what is known of this launch. What is known is replayed meanwhile, which opens its files, too: of those
    /// nothing is learned from the fact that somebody has read them.
    pub known: Option<PathBuf>,
    /// How many launches were observed before. With long turns, each but the first two begins them at another time, so that it
    /// sees other calls.
    pub earlier: u32,
}

/// How much of a program's time it may cost to observe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effort {
    /// 10 ms, and then an eighth of its first two seconds and a twentieth of what comes later.
    Turns,
    /// 60 ms, and then a quarter of its first two seconds and a twentieth of what comes later. For a program of which something
    /// was missed.
    LongTurns,
    /// Whatever it costs to see every system call.
    EveryCall,
}

/// The first seconds of a program, which may cost more than later ones.
const START: Duration = Duration::from_secs(2);

impl Effort {
    /// Whether a program may have lost this time when it has run for so long.
    fn allows(self, lost: Duration, elapsed: Duration) -> bool {
        let (free, share) = match self {
            Self::Turns => (10, 8),
            Self::LongTurns => (60, 4),
            Self::EveryCall => return true,
        };
        let later = elapsed.saturating_sub(START) / 20;
        lost <= Duration::from_millis(free) + elapsed.min(START) / share + later
    }
}

/// What was observed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Observed {
    /// What the launch asked for, in one run, without digests. Its roots are the mounts that have the files.
    pub profile: Profile,
    /// Why nothing more was observed.
    pub end: ObservationEnd,
    /// How many bytes were read by system calls while no call was seen, as far as the system says.
    pub unseen: u64,
}

/// Why an observation has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObservationEnd {
    /// The program and all that it has started have ended, or were let go for their rights.
    Ended,
    /// It took as long as it may take.
    Time,
    /// The program makes so many system calls that observing all would make it slow: some were not seen.
    Cost,
    /// The program was suspended.
    Suspended,
    /// The program itself traces.
    Tracer,
}

impl ObservationEnd {
    /// In words, as a part of a sentence.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Ended => "until it ended",
            Self::Time => "as long as brisk observes a launch",
            Self::Cost => "in turns, because all of its system calls would take too much time",
            Self::Suspended => "until it was suspended",
            Self::Tracer => "until it traced a process itself",
        }
    }
}

impl Observe {
    /// The launch of a program and its arguments, observed for 15 s at most.
    pub fn new(command: Vec<OsString>) -> Self {
        Self {
            command,
            at_most: Duration::from_secs(15),
            effort: Effort::Turns,
            held: Vec::new(),
            known: None,
            earlier: 0,
        }
    }

    fn known_files(&self) -> HashSet<PathBuf> {
        let limits = Limits::of_profiles();
        let known = self.known.as_ref();
        let Some(known) = known.and_then(|path| Profile::open(path, &limits).ok()) else {
            return HashSet::new();
        };
        let roots = known.roots();
        let path = |file: &ProfileFile| {
            let root = roots.get(file.root as usize)?;
            Some(root.path.join(&file.path))
        };
        known.files().iter().filter_map(path).collect()
    }

    /// Starts the observer of this process, which then becomes the program by `exec`. The observer calls `then` when it has
    /// let everything go, unless nothing was started.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the system does not let a process be traced, as the setting `kernel.yama.ptrace_scope` and
    /// containers may do, or if this process is traced already. `State` if it has other threads, and `Io`.
    pub fn start(self, then: impl FnOnce(Observed)) -> Result<()> {
        self.start_observer(then)
            .map_err(|cause| Error::new(Action::Observe, cause))
    }

    fn start_observer(self, then: impl FnOnce(Observed)) -> Result<(), Cause> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|e| Cause::io("make a pipe", e));
        let ((answers, answer), (waits, go)) = (pipe()?, pipe()?);
        let null = open_null()?;
        let program = getpid();
        let held = self.held.iter().map(AsRawFd::as_raw_fd);
        let kept: Vec<_> = [answer.as_raw_fd(), waits.as_raw_fd()]
            .into_iter()
            .chain(held)
            .collect();
        let main = move || {
            // The name is only for people, so a failure does not matter.
            rustix::thread::set_name(c"brisk-observe").ok();
            match observe(&self, program, File::from(answer), File::from(waits)) {
                Some(observed) => {
                    then(observed);
                    0
                }
                None => 1,
            }
        };
        start_detached(&kept, null.as_fd(), main)
            .map_err(|e| Cause::io("start the process that observes", e))?;
        agree(File::from(answers), File::from(go)).map_err(|error| match error {
            Errno::PERM | Errno::NOSYS | Errno::ACCESS => Cause::NoTracing {
                source: error.into(),
            },
            error => Cause::io("let another process observe this one", error),
        })
    }
}

/// Whether the program at this path gets more rights than its user has: setuid, setgid, file capabilities. A traced one would
/// not get them, so it is not observed. A program that does not exist gives nothing.
pub fn gives_rights(program: &Path) -> bool {
    const SETS_IDS: u32 = 0o6000;
    let mode = fs::metadata(program).map(|found| found.permissions().mode());
    mode.is_ok_and(|mode| mode & SETS_IDS != 0)
        || getxattr(program, c"security.capability", &mut [0u8; 0]).is_ok()
}

/// Lets the observer attach, and waits until it has.
fn agree(mut answers: File, mut go: File) -> rustix::io::Result<()> {
    let number = |answers: &mut File| {
        let mut bytes = [0; 4];
        answers.read_exact(&mut bytes).map_err(errno)?;
        Ok(i32::from_ne_bytes(bytes))
    };
    let observer = number(&mut answers)?;
    // Without the security module Yama, any process of the user may trace this one.
    if let Some(observer) = Pid::from_raw(observer) {
        set_ptracer(PTracer::ProcessID(observer)).ok();
    }
    go.write_all(&[1]).map_err(errno)?;
    match number(&mut answers)? {
        0 => Ok(()),
        error => Err(Errno::from_raw_os_error(error)),
    }
}

/// Attaches to the program, says so, and observes it to the end. None if there is nothing to tell.
fn observe(plan: &Observe, program: Pid, mut answer: File, mut waits: File) -> Option<Observed> {
    let mut tell = |number: i32| answer.write_all(&number.to_ne_bytes()).ok();
    tell(getpid().as_raw_nonzero().get())?;
    waits.read_exact(&mut [0]).ok()?;
    let mut observer = match Observer::attach(program, plan) {
        Ok(observer) => observer,
        Err(e) => {
            tell(e.raw_os_error());
            return None;
        }
    };
    tell(0)?;
    drop((answer, waits));
    let end = observer.run(|| plan.known_files());
    observer.finish(plan.command.clone(), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_loses_a_part_of_its_time_at_most() {
        // Milliseconds.
        for (effort, elapsed, most) in [
            (Effort::Turns, 0, 10),
            (Effort::Turns, 80, 20),
            (Effort::Turns, 2000, 260),
            (Effort::Turns, 12_000, 760),
            (Effort::LongTurns, 0, 60),
            (Effort::LongTurns, 80, 80),
            (Effort::LongTurns, 12_000, 1060),
        ] {
            let allows = |lost| {
                let [lost, elapsed] = [lost, elapsed].map(Duration::from_millis);
                effort.allows(lost, elapsed)
            };
            assert!(allows(most), "{effort:?} {elapsed}");
            assert!(!allows(most + 1), "{effort:?} {elapsed}");
        }
        assert!(Effort::EveryCall.allows(Duration::MAX, Duration::ZERO));
    }
}
