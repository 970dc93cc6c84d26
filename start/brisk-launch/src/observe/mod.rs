/*!
Observes a launch where it is: nothing is mounted or served, and nobody needs root.

The program is what it would be without brisk. Another process, the *observer*, looks at it from [`outside`]: at the page tables
of the program and of what it starts (`/proc/PID/pagemap`), by `inotify` at directories that it is known to use, and at how much
it reads. Nobody is stopped or attached to, and the program can tell nothing of it. Such looks miss something: each further
launch that is observed adds to what is known. Processes that the user may not look at, such as those with the rights of others,
are left alone.

With [`Observe::every_call`], the [`observer`] attaches to the calling process with `ptrace`, before that becomes the program, and
sees each system call of the program and of what it starts. It inserts nothing. It lets everything go, for good,

* when the launch has taken its time,
* when a program starts that gets more [`rights`] than its user has: a traced one would not get them, so its process alone is let
  go before that,
* when a program itself wants to trace, as a debugger does,
* when the program is suspended.

If the observer ends by itself, or is killed, the kernel lets everything go.

In both, [`inputs`] says which files count: those that were there before the launch, and that it does not change.
*/

mod calls;
mod files;
mod inputs;
mod observed;
mod observer;
mod outside;
mod pages;
mod process;
mod process_events;
mod rights;
mod watch;

pub use self::observed::{ObservationEnd, Observed};
pub use self::rights::gives_rights;

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use brisk_image::profile::{ProfileFile, Ready};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PTracer, Pid, getpid, set_ptracer};

use self::files::Files;
use self::inputs::Inputs;
use self::observer::{Observer, start_alarm};
use self::outside::Outside;
use self::process_events::ProcessEvents;
use crate::LAUNCH;
use crate::error::{Action, Cause, Error, Result};
use crate::learn::learned_packs::LearnedLaunch;
use crate::open::open_null;
use crate::sys::errno;
use crate::sys::process::start_detached;

/// A launch to observe without root, wherever its files lie.
#[derive(Debug)]
#[non_exhaustive]
pub struct Observe {
    /// Arguments that name data: a file that one of them names is a document.
    pub arguments: Vec<OsString>,
    /// How long to observe at most. The program then goes on alone.
    pub at_most: Duration,
    /// Attaches to the program and sees each system call, however slow that makes it.
    pub every_call: bool,
    /// Descriptors that are open until all is observed and told, for example one with a lock.
    pub held: Vec<Arc<OwnedFd>>,
    /// What is known of this launch. It is replayed meanwhile, which opens its files, too: of those nothing is learned from the
    /// fact that somebody has read them.
    pub known: Option<Arc<LearnedLaunch>>,
    /// A number of the user that nobody else has, for digests of documents.
    pub secret: [u8; 32],
}

impl Default for Observe {
    fn default() -> Self {
        Self::new()
    }
}

impl Observe {
    /// A launch that is observed from outside for 15 s at most.
    pub fn new() -> Self {
        Self {
            arguments: Vec::new(),
            at_most: LAUNCH,
            every_call: false,
            held: Vec::new(),
            known: None,
            secret: [0; 32],
        }
    }

    fn known_files(&self) -> HashSet<PathBuf> {
        let known = self.known.as_ref();
        let Some(known) = known.and_then(|known| known.profile().ok()) else {
            return HashSet::new();
        };
        let roots = known.roots();
        let path = |file: &ProfileFile| {
            let root = roots.get(file.root as usize)?;
            Some(root.path.join(&file.path))
        };
        known.files().iter().filter_map(path).collect()
    }

    fn inputs(&self) -> Inputs {
        let known = self.known.as_ref();
        let documents = known.map_or(&[][..], |known| known.documents());
        Inputs::new(&self.arguments, self.secret, documents)
    }

    /// Starts the observer of this process, which then becomes the program by `exec`. The observer calls `then` when it has
    /// let everything go, unless nothing was started.
    ///
    /// # Errors
    ///
    /// `Io`. To see every call, also `Unsupported` if the system does not let a process be traced, as the setting
    /// `kernel.yama.ptrace_scope` and containers may do, or if this process is traced already, and `State` if it has other
    /// threads.
    pub fn start(self, then: impl FnOnce(Observed)) -> Result<()> {
        let started = match self.every_call {
            true => self.start_attached(then),
            false => self.start_outside(then),
        };
        started.map_err(|cause| Error::new(Action::Observe, cause))
    }

    fn start_outside(self, then: impl FnOnce(Observed)) -> Result<(), Cause> {
        // From now on, nothing that the program starts is missed. Where the kernel tells this user nothing, the observer looks
        // for it.
        let events = ProcessEvents::listen().ok();
        let told = events
            .as_ref()
            .map(|events| events.descriptor().as_raw_fd());
        let kept: Vec<_> = told.into_iter().chain(self.held_descriptors()).collect();
        let program = getpid().as_raw_nonzero().get();
        // In this process, because the observer has another working directory.
        let (inputs, directory) = (self.inputs(), std::env::current_dir().ok());
        let main = move || observer_ends(self.look(program, events, inputs, directory), then);
        start(&kept, main)
    }

    /// In the observer. None if there is nothing to tell.
    fn look(
        &self,
        program: i32,
        events: Option<ProcessEvents>,
        inputs: Inputs,
        directory: Option<PathBuf>,
    ) -> Option<Observed> {
        let named: Vec<_> = inputs.named_directories().chain(directory).collect();
        let mut files = Files::new(inputs).ok()?;
        let known = self.known_files();
        let parents = known.iter().filter_map(|path| path.parent());
        let directories: HashSet<_> = parents.map(PathBuf::from).chain(named).collect();
        let mut outside = Outside::new(program, events, self.at_most, directories.into_iter());
        let end = outside.run(&mut files);
        if !outside.is_started {
            return None;
        }
        let at = outside.elapsed();
        let read = outside.finish(&mut files, &known);
        self.observed(files, end, at, Some(read))
    }

    fn start_attached(self, then: impl FnOnce(Observed)) -> Result<(), Cause> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|e| Cause::io("make a pipe", e));
        let ((answers, answer), (waits, go)) = (pipe()?, pipe()?);
        let program = getpid();
        let kept: Vec<_> = [answer.as_raw_fd(), waits.as_raw_fd()]
            .into_iter()
            .chain(self.held_descriptors())
            .collect();
        let inputs = self.inputs();
        let main = move || {
            let observed = self.trace(program, File::from(answer), File::from(waits), inputs);
            observer_ends(observed, then)
        };
        start(&kept, main)?;
        agree(File::from(answers), File::from(go)).map_err(|error| match error {
            Errno::PERM | Errno::NOSYS | Errno::ACCESS => Cause::unsupported(
                "the system does not let one process trace another; in a container allow ptrace, and elsewhere set \
                 kernel.yama.ptrace_scope to 0 or 1",
            )
            .because(io::Error::from(error)),
            error => Cause::io("let another process observe this one", error),
        })
    }

    /// In the observer: attaches to the program, says so, and observes it to the end. None if there is nothing to tell.
    fn trace(
        &self,
        program: Pid,
        mut answer: File,
        mut waits: File,
        inputs: Inputs,
    ) -> Option<Observed> {
        let mut tell = move |number: i32| answer.write_all(&number.to_ne_bytes()).ok();
        tell(getpid().as_raw_nonzero().get())?;
        waits.read_exact(&mut [0]).ok()?;
        let alarm = start_alarm(self.at_most);
        let trace = move || {
            let files = Files::new(inputs).map_err(errno);
            let attached = alarm.and_then(|alarm| Observer::attach(program, files?, alarm));
            let mut observer = match attached {
                Ok(observer) => observer,
                Err(e) => {
                    tell(e.raw_os_error());
                    return None;
                }
            };
            tell(0)?;
            drop((tell, waits));
            let end = observer.run();
            Some((observer, end))
        };
        // The kernel lets everything go when the thread ends.
        let (observer, end) = thread::scope(|scope| scope.spawn(trace).join().ok()?)?;
        if !observer.is_started {
            return None;
        }
        let at = observer.elapsed();
        self.observed(observer.files, end, at, None)
    }

    fn observed(
        &self,
        files: Files,
        end: ObservationEnd,
        at: Duration,
        read: Option<u64>,
    ) -> Option<Observed> {
        let at = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let documents = files.documents();
        let recorded = files.finish(Vec::new(), Ready::new(end.describe(), at));
        Some(Observed {
            profile: recorded.ok()?.profile,
            end,
            read,
            documents,
        })
    }

    fn held_descriptors(&self) -> impl Iterator<Item = i32> {
        let known = self.known.iter().map(|known| known.descriptor());
        self.held.iter().map(AsRawFd::as_raw_fd).chain(known)
    }
}

/// Starts the observer, which keeps these descriptors.
fn start(kept: &[i32], main: impl FnOnce() -> i32) -> Result<(), Cause> {
    let null = open_null()?;
    let named = || {
        // The name is only for people, so a failure does not matter.
        rustix::thread::set_name(c"brisk-observe").ok();
        main()
    };
    start_detached(kept, null.as_fd(), named)
        .map_err(|e| Cause::io("start the process that observes", e))
}

/// Tells what was observed, and returns the exit status.
fn observer_ends(observed: Option<Observed>, then: impl FnOnce(Observed)) -> i32 {
    match observed {
        Some(observed) => {
            then(observed);
            0
        }
        None => 1,
    }
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
