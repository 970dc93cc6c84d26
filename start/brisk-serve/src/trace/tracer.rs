//! The process that mounts, serves, starts the program and watches it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use brisk_image::profile::Recorded;
use brisk_launch::error::{Cause, Error};
use brisk_launch::sys::process::start_child;
use brisk_launch::system_trace::Instance;
use brisk_launch::system_trace::mapped_files::MappedFiles;
use brisk_launch::system_trace::readiness::{Readiness, Search};
use brisk_launch::system_trace::system::{RecordedLaunch, System, tracer_lost};
use brisk_launch::system_trace::x_display::XDisplay;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getegid, geteuid, getpid, pidfd_open,
    set_child_subreaper, set_parent_process_death_signal, setpgid, setsid, wait,
};

use super::mounts::mount_all;
use super::plan::TracePlan;
use super::program::{Program, descendants, send};
use super::traced::Traced;
use super::tracer_message::{Failure, TracerMessage};
use crate::namespace::{NamespaceKind, enter_session, is_privileged};
use crate::session::BriefMount;
use crate::{Owners, Recording};

/// How long the program may take to end after a request, and after it was killed.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// How often to look for ended processes while the program is being ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How often to check whether a program that has exited has left living processes.
const LEFT_EVERY: Duration = Duration::from_millis(50);

/// Bytes of output to pass on at once.
const OUTPUT: usize = 64 << 10;

struct Tracer<'a> {
    plan: &'a TracePlan,
    /// Where the report goes. It becomes an error when nobody waits for it any more.
    report: &'a OwnedFd,
    program: Pid,
    program_fd: OwnedFd,
    /// How the program ended.
    status: Option<ExitStatus>,
    /// The process that looks for a file, socket or window, and its descriptor.
    lookout: Option<(Pid, OwnedFd)>,
    /// The program's output, and where it is passed on to.
    output: Vec<Output>,
    /// Whether the expected text was written.
    line_seen: bool,
    /// What the program maps of files that nobody serves. None if the whole system is traced.
    mapped: Option<MappedFiles>,
}

struct Output {
    from: File,
    to: Box<dyn Write>,
    search: Search,
    /// Whether nobody reads it any more.
    closed: bool,
}

/// Why a recording is cut.
enum Cut {
    Ready,
    /// All processes have ended before it was ready.
    Ended,
}

/// Does everything, and reports. `brief` is the image, if it is mounted already. Returns the exit status.
pub(super) fn run(plan: &TracePlan, brief: Option<BriefMount>, report: OwnedFd) -> i32 {
    let result = Tracer::trace(plan, brief, &report).map_err(|e| Failure::new(&e));
    let result = result.and_then(|result| result);
    // If nobody waits for it any more, nobody needs to know.
    match TracerMessage::write(report, &result) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

impl<'a> Tracer<'a> {
    /// The inner error says that the program could not be started.
    fn trace(
        plan: &'a TracePlan,
        brief: Option<BriefMount>,
        report: &'a OwnedFd,
    ) -> Result<Result<Traced, Failure>, Error> {
        let action = plan.action();
        let failed = |cause| Error::new(action, cause);
        let io = |step: &'static str| move |e: io::Error| Error::new(action, Cause::io(step, e));
        // While the display's name still has its meaning on the system.
        let mut display = match plan.ready {
            Readiness::Window(_) => Some(XDisplay::open(None).map_err(failed)?),
            _ => None,
        };
        // Started before this process adopts others, because the process that restores the system does not
        // belong to the program.
        let mut system = match &plan.system {
            Some(system) => Some(System::prepare(system).map_err(failed)?),
            None => None,
        };
        let namespace = match (&system, &brief) {
            (None, None) => Some(enter_session(geteuid(), getegid()).map_err(failed)?),
            // The program must see all mounts that come and go, or an image that is mounted already.
            _ => None,
        };
        let owners = Owners::of_mount(match namespace {
            Some(kind) => kind == NamespaceKind::Privileged,
            None => is_privileged(),
        });
        // Daemons become children of this process, so that none is missed at the end.
        set_child_subreaper(Some(getpid()))
            .map_err(|e| failed(Cause::io("adopt what the program leaves", e)))?;
        let (mut mounted, layout) = mount_all(plan, brief).map_err(failed)?;
        let recording = Recording::start();
        // Open until the program has started.
        let (starts, started) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(Cause::io("make a pipe", e)))?;
        let mut started = Some(started);
        let lookout = match plan.ready.is_looked_for() {
            false => None,
            true => Some(
                start_lookout(plan, display.as_mut(), starts, || {
                    mounted.clear();
                    started = None;
                })
                .map_err(io("start the process that looks whether it is ready"))?,
            ),
        };
        let line = match &plan.ready {
            Readiness::Line(text) => Some(text),
            _ => None,
        };
        let events = system.as_ref().map(System::directory);
        let all = (plan.system.as_ref()).is_some_and(|system| system.all_processes);
        let prepare = move || {
            if let Some(kind) = namespace {
                layout.finish(kind)?;
            }
            plan.enter_working_directory()?;
            events.map_or(Ok(()), |directory| {
                Instance::follow(&directory, all)
                    .map_err(|e| Cause::io("have the kernel tell of its pages", e))
            })
        };
        let program = Program::start(plan, line.is_some(), || mounted.clear(), prepare)
            .map_err(io("start the program"))?;
        drop((started, display));
        // What the terminal sends reaches the program and the process that waits for the report. This process
        // outlives both and ends what is left. The program itself could not leave its group and come back: in
        // a container, a group from outside has no number inside. This process leaves the session, too: else the kernel hangs
        // up the program's group, if it has a stopped member and no other parent in the session, at the end (POSIX, _exit()).
        setsid().map_err(|e| failed(Cause::io("leave the process group", e)))?;
        let program_fd = pidfd_open(program.pid, PidfdFlags::empty())
            .map_err(|e| failed(Cause::io("watch the program", e)))?;
        let mut tracer = Self {
            plan,
            report,
            program: program.pid,
            program_fd,
            status: None,
            lookout,
            output: Vec::new(),
            line_seen: false,
            mapped: match plan.system {
                Some(_) => None,
                None => Some(MappedFiles::outside_of(plan.places())),
            },
        };
        if let (Some([out, err]), Some(text)) = (program.output, line) {
            tracer.pass_on(out, Box::new(io::stdout()), Search::new(text));
            tracer.pass_on(err, Box::new(io::stderr()), Search::new(text));
        }
        // No process may be started from here on, because this one has threads.
        let served = mounted
            .into_iter()
            .try_for_each(|mounted| mounted.serve(&recording, owners))
            .and_then(|()| match &mut system {
                Some(system) => system.start().map_err(failed),
                None => Ok(()),
            });
        if let Err(e) = served {
            tracer.end(Signal::KILL);
            return Err(e);
        }
        if let Err(failure) = Program::wait_for_start(program.started) {
            tracer.end(Signal::KILL);
            return Ok(Err(failure));
        }
        let cut = tracer.watch();
        let outside = tracer.mapped.take().map_or(0, |mapped| mapped.bytes());
        let by = match (plan.at_most, tracer.status) {
            (Some(time), None) => format!("after {} s", time.as_secs()),
            _ => plan.ready.describe(),
        };
        let command = plan.asked.clone();
        let recorded = match &mut system {
            Some(system) => system.cut(command, by).map_err(failed),
            None => match recording.cut(command, by) {
                Ok(Some(recorded)) => Ok(RecordedLaunch {
                    recorded,
                    written: 0,
                }),
                Ok(None) => Err(failed(tracer_lost())),
                Err(e) => Err(io("make a profile")(io::Error::other(e))),
            },
        };
        let left = match (plan.at_most, &cut) {
            // If nobody waits any more, the program is ended.
            (Some(_), Cut::Ready) if tracer.outlast() => 0,
            _ => {
                // Looked at before the program is ended, so that a failure of its own is seen.
                let status = tracer.status;
                let left = tracer.end(Signal::TERM);
                tracer.status = status;
                left
            }
        };
        let status = tracer.status;
        let RecordedLaunch { recorded, written } = recorded?;
        let Recorded {
            profile,
            unnamed,
            dropped,
            ..
        } = recorded;
        Ok(Ok(Traced {
            profile,
            sources: Vec::new(),
            was_ready: matches!(cut, Cut::Ready),
            status,
            left: match plan.ready {
                Readiness::Exit => left,
                _ => 0,
            },
            unnamed,
            dropped,
            written,
            outside,
        }))
    }

    fn pass_on(&mut self, from: OwnedFd, to: Box<dyn Write>, search: Search) {
        self.output.push(Output {
            from: from.into(),
            to,
            search,
            closed: false,
        });
    }

    /// Returns when the recording must be cut.
    fn watch(&mut self) -> Cut {
        let started = Instant::now();
        loop {
            let alive = self.reap();
            if self.status.is_some() && self.plan.ready == Readiness::Exit {
                return Cut::Ready;
            }
            if self.line_seen {
                return Cut::Ready;
            }
            let mut timeout: Option<Duration> = None;
            let after = match self.plan.ready {
                Readiness::After(time) => Some(time),
                _ => None,
            };
            for time in after.into_iter().chain(self.plan.at_most) {
                let left = time.saturating_sub(started.elapsed());
                if left.is_zero() {
                    return Cut::Ready;
                }
                timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
            }
            if self.status.is_some() {
                // There is no event for the end of the last descendant.
                timeout = Some(timeout.map_or(LEFT_EVERY, |timeout| timeout.min(LEFT_EVERY)));
            }
            if let Some(mapped) = &mut self.mapped {
                let lookout = self.lookout.as_ref().map(|(pid, _)| *pid);
                mapped.look(|| {
                    let all = descendants().unwrap_or_default().into_iter();
                    let all = all.map(|(pid, _)| pid);
                    all.filter(|pid| Some(*pid) != lookout).collect()
                });
                let due = mapped.due();
                timeout = Some(timeout.map_or(due, |timeout| timeout.min(due)));
            }
            match self.wait(timeout) {
                Event::Ready => return Cut::Ready,
                Event::Abandoned => return Cut::Ended,
                Event::Other => {}
            }
            // What it wrote before its end has been read by now.
            if !alive && self.output.is_empty() && !self.line_seen {
                return Cut::Ended;
            }
        }
    }

    /// Waits until all processes have ended by themselves. False if nobody waits for them any more.
    fn outlast(&mut self) -> bool {
        while self.reap() {
            // There is no event for the end of the last descendant.
            let timeout = self.status.is_some().then_some(LEFT_EVERY);
            if let Event::Abandoned = self.wait(timeout) {
                return false;
            }
        }
        true
    }

    /// Waits for the next event, and passes output on.
    fn wait(&mut self, timeout: Option<Duration>) -> Event {
        let mut fds = vec![PollFd::new(self.report, PollFlags::empty())];
        for output in &self.output {
            fds.push(PollFd::new(&output.from, PollFlags::IN));
        }
        let outputs = fds.len();
        if let Some((_, lookout)) = &self.lookout {
            fds.push(PollFd::new(lookout, PollFlags::IN));
        }
        let others = fds.len();
        if self.status.is_none() {
            fds.push(PollFd::new(&self.program_fd, PollFlags::IN));
        }
        let timeout = timeout.map(|timeout| Timespec {
            // Seconds of a time that the caller chose.
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            // A signal, or a short lack of memory: the caller checks everything again.
            Err(_) => return Event::Other,
        }
        let happened: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if happened.first() == Some(&true) {
            return Event::Abandoned;
        }
        for (output, happened) in self.output.iter_mut().zip(&happened[1..outputs]) {
            if *happened {
                self.line_seen |= output.pass_on();
            }
        }
        self.output.retain(|output| !output.closed);
        match happened[outputs..others].contains(&true) {
            true => Event::Ready,
            false => Event::Other,
        }
    }

    /// Collects the statuses of ended processes. False if no process is left except the lookout.
    fn reap(&mut self) -> bool {
        loop {
            if !self.take_statuses().0 {
                return false;
            }
            let Some((lookout, _)) = &self.lookout else {
                return true;
            };
            // Other processes can only be found by looking for them.
            if descendants().map_or(true, |all| all.iter().any(|(pid, _)| pid != lookout)) {
                return true;
            }
            // A process is missed if it starts after its parent was looked at, and the parent then ends. In that
            // case a child of this process has ended meanwhile. So if none has, nothing was missed.
            if self.take_statuses().1 == 0 {
                return false;
            }
        }
    }

    /// Whether there are children, and how many statuses were collected.
    fn take_statuses(&mut self) -> (bool, u64) {
        let mut taken = 0;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    taken += 1;
                    if pid == self.program {
                        self.status = Some(ExitStatus::from_raw(status.as_raw()));
                    }
                }
                Ok(None) => return (true, taken),
                Err(Errno::INTR) => {}
                Err(_) => return (false, taken),
            }
        }
    }

    /// Ends all processes, first with `signal`. Returns how many there were.
    fn end(&mut self, signal: Signal) -> u64 {
        if let Some((lookout, _)) = self.lookout.take() {
            send(lookout, Signal::KILL);
        }
        let mut asked = HashSet::new();
        let started = Instant::now();
        loop {
            let alive = self.reap();
            let waited = started.elapsed();
            if !alive || waited > 2 * ENDS_WITHIN {
                return asked.len() as u64;
            }
            for (pid, parent) in descendants().unwrap_or_default() {
                if waited > ENDS_WITHIN {
                    send(pid, Signal::KILL);
                } else if parent == getpid() && asked.insert(pid) {
                    // Processes that these have started are theirs to end, or become children of this one.
                    send(pid, signal);
                }
            }
            self.wait(Some(LOOK_EVERY));
        }
    }
}

/// An event.
enum Event {
    /// The lookout has found what it looks for.
    Ready,
    /// Nobody waits for the report any more.
    Abandoned,
    Other,
}

impl Output {
    /// Passes on the output that is there. Returns whether the text was in it.
    fn pass_on(&mut self) -> bool {
        let mut bytes = vec![0; OUTPUT];
        match self.from.read(&mut bytes) {
            Ok(0) => {
                self.closed = true;
                false
            }
            Ok(n) => {
                let bytes = bytes.get(..n).unwrap_or(&[]);
                // The program goes on even if nobody reads its output any more.
                self.to.write_all(bytes).and_then(|()| self.to.flush()).ok();
                self.search.push(bytes)
            }
            Err(e) => {
                self.closed = e.kind() != io::ErrorKind::Interrupted;
                false
            }
        }
    }
}

/// Starts the lookout: a process that looks for a file, socket or window, as the program would see it, and
/// ends when it finds that. `starts` closes when the program has started. `let_go` closes what the process
/// must not hold: channels, and the other end of `starts`.
fn start_lookout(
    plan: &TracePlan,
    display: Option<&mut XDisplay>,
    starts: OwnedFd,
    let_go: impl FnOnce(),
) -> io::Result<(Pid, OwnedFd)> {
    let pid = start_child(|| {
        let_go();
        let bound = set_parent_process_death_signal(Some(Signal::KILL));
        // It goes on looking when the terminal interrupts the program.
        if bound.and_then(|()| setpgid(None, None)).is_err() {
            return 1;
        }
        // If the program cannot be started, that is reported elsewhere.
        File::from(starts).read_to_end(&mut Vec::new()).ok();
        plan.enter_working_directory().ok();
        plan.ready.look(display);
        0
    })?;
    Ok((pid, pidfd_open(pid, PidfdFlags::empty())?))
}
