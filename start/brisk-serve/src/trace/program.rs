//! Starts the traced program, and ends all its processes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use brisk_launch::error::{Cause, Error};
use brisk_launch::program::become_program;
use brisk_launch::sys::process::start_child;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpid, kill_process, set_parent_process_death_signal};

use super::plan::TracePlan;
use super::tracer_message::Failure;
use crate::action::Action;

/// A program that was started.
pub(super) struct Program {
    pub(super) pid: Pid,
    /// The pipes of its standard output and standard error, if they were requested.
    pub(super) output: Option<[OwnedFd; 2]>,
    /// Closes without data when the program has started. Has a [`Failure`] if it could not be started.
    pub(super) started: OwnedFd,
}

impl Program {
    /// Starts it. In the new process, `let_go` closes what it must not hold, such as channels. Then `prepare`
    /// runs, after the mounts are served.
    pub(super) fn start(
        plan: &TracePlan,
        piped: bool,
        let_go: impl FnOnce(),
        prepare: impl FnOnce() -> Result<(), Cause>,
    ) -> io::Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let (started, starts) = pipe()?;
        let mut ours = None;
        let mut theirs = None;
        if piped {
            let ((out, out_end), (err, err_end)) = (pipe()?, pipe()?);
            ours = Some([out, err]);
            theirs = Some([out_end, err_end]);
        }
        let pid = start_child(|| {
            let_go();
            let error = become_it(plan, theirs.as_ref(), prepare);
            let failure = Failure::new(&error);
            // If nobody reads it, nobody waits for it either.
            File::from(starts).write_all(&failure.to_bytes()).ok();
            i32::from(failure.kind.exit_code())
        })?;
        Ok(Self {
            pid,
            output: ours,
            started,
        })
    }

    /// Waits until the program has started. Its files must be served for that.
    pub(super) fn wait_for_start(started: OwnedFd) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        // An error means the same as the end: how the program ended will be seen.
        File::from(started).read_to_end(&mut bytes).ok();
        Failure::from_bytes(&bytes).map_or(Ok(()), Err)
    }
}

/// Becomes the program, or returns why not.
fn become_it(
    plan: &TracePlan,
    output: Option<&[OwnedFd; 2]>,
    prepare: impl FnOnce() -> Result<(), Cause>,
) -> Error {
    let failed = |cause| Error::new(Action::Run, cause);
    // When the tracer is gone, nobody answers for its files.
    if let Err(e) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return failed(Cause::io("bind the program to the process that records", e));
    }
    if let Some([out, err]) = output {
        let redirected =
            rustix::stdio::dup2_stdout(out).and_then(|()| rustix::stdio::dup2_stderr(err));
        if let Err(e) = redirected {
            return failed(Cause::io("redirect the program's output", e));
        }
    }
    if let Err(cause) = prepare() {
        let action = match plan.system {
            None => Action::Mount,
            Some(_) => Action::TraceSystem,
        };
        return Error::new(action, cause);
    }
    become_program(
        &plan.command,
        plan.program_place(),
        plan.directory.as_deref(),
        &plan.variables,
    )
}

/// The processes that descend from this one, and their parents.
pub(super) fn descendants() -> io::Result<Vec<(Pid, Pid)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.parse().ok())
            .and_then(Pid::from_raw);
        // A process that has ended meanwhile does not count.
        if let Some(pid) = pid
            && let Ok(stat) = fs::read_to_string(Path::new("/proc").join(&name).join("stat"))
            && let Some(parent) = parent_of(&stat)
        {
            all.push((pid, parent));
        }
    }
    let mut found = vec![getpid()];
    let mut descendants = Vec::new();
    let mut next = 0;
    while let Some(&at) = found.get(next) {
        for &(pid, parent) in all.iter().filter(|(_, parent)| *parent == at) {
            found.push(pid);
            descendants.push((pid, parent));
        }
        next += 1;
    }
    Ok(descendants)
}

/// The parent in the text of `/proc/PID/stat`, in which only the program's name contains brackets. None for a
/// process that has ended.
fn parent_of(stat: &str) -> Option<Pid> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    match fields.next()? {
        "Z" | "X" => None,
        // It is -1 while somebody else reaps the process.
        _ => Pid::from_raw(fields.next()?.parse().ok().filter(|parent| *parent > 0)?),
    }
}

/// Sends `signal` to a process, which may have ended already.
pub(super) fn send(pid: Pid, signal: Signal) {
    // It belongs to another user, for example a set-user-ID program from outside of the trees. It ends by
    // itself, or stays.
    kill_process(pid, signal).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_found_whatever_a_program_is_called() {
        for (stat, parent) in [
            ("12 (sh) S 7 12 12 0", Some(7)),
            ("12 (a) b) R) S 1 12 12 0", Some(1)),
            ("2 (kthreadd) S 0 0 0 0", None),
            ("12 (sh", None),
            ("12 (sh) Z 7 12 12 0", None),
            ("12 (sh) D -1 -1 -1 0", None),
        ] {
            assert_eq!(
                parent_of(stat).map(Pid::as_raw_nonzero).map(i32::from),
                parent,
                "{stat}"
            );
        }
    }
}
