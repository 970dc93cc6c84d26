//! Processes that load a file at the same time. The time counts until the parent has seen them end.

use std::env;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, pipe};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::resource::UsageWho;

use super::worker::{Cost, Job, Memory, Said, Seen, now};

/// The result of one process.
#[derive(Debug)]
pub struct Ended {
    pub seen: Seen,
    /// When the parent saw its end: nanoseconds of the monotonic clock.
    pub exit: u64,
}

/// The result of all processes.
#[derive(Debug)]
pub struct Run {
    pub ended: Vec<Ended>,
    /// What all processes together have cost, from their start to their end.
    pub cost: Cost,
}

/// The result of a run.
#[derive(Debug)]
pub enum Outcome<T> {
    Done(T),
    /// The way is refused here, for this reason.
    Refused(String),
}

/// A process that has started.
struct Worker {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a process, and waits until it says that it is ready.
    fn start(job: &Job, gate: &PipeReader) -> Result<Self> {
        let lab = env::current_exe().context("cannot find brisk-lab's own file")?;
        let mut child = Command::new(lab)
            .arg("load-worker")
            .arg(serde_json::to_string(job)?)
            .stdin(Stdio::from(gate.try_clone()?))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a process that loads")?;
        let out = child.stdout.take().context("standard output is a pipe")?;
        let mut worker = Self {
            child,
            out: BufReader::new(out),
        };
        let line = worker.line()?;
        if line != "ready\n" {
            return Err(worker.failure());
        }
        Ok(worker)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.out.read_line(&mut line)?;
        Ok(line)
    }

    /// The error of a process that ended without its answer.
    fn failure(&mut self) -> anyhow::Error {
        let mut said = String::new();
        if let Some(err) = &mut self.child.stderr {
            // If its messages cannot be read, the error goes without them.
            err.read_to_string(&mut said).ok();
        }
        match self.child.wait() {
            Ok(status) => anyhow!("a process that loads ended with {status}: {}", said.trim()),
            Err(e) => e.into(),
        }
    }

    fn said(&mut self) -> Result<Said> {
        let line = self.line()?;
        if line.is_empty() {
            return Err(self.failure());
        }
        serde_json::from_str(&line).context("a process that loads gave an answer of another form")
    }

    /// Waits for its answer and its end.
    fn watch(mut self) -> Result<(Said, u64)> {
        let said = self.said()?;
        let status = self.child.wait()?;
        let exit = now();
        ensure!(status.success(), "a process that loads ended with {status}");
        Ok((said, exit))
    }
}

/// Starts the processes of `job`. They wait until the pipe is dropped.
fn start(job: &Job) -> Result<(Vec<Worker>, PipeWriter)> {
    let (gate, opener) = pipe().context("cannot make a pipe")?;
    let workers = (0..job.case.processes).map(|_| Worker::start(job, &gate));
    Ok((workers.collect::<Result<_>>()?, opener))
}

/// Lets the processes of `job` load at once. Each must find `sum`.
pub fn run(job: &Job, sum: u64) -> Result<Outcome<Run>> {
    let (workers, opener) = start(job)?;
    let before = Cost::of(UsageWho::RUSAGE_CHILDREN)?;
    drop(opener);
    let watched = thread::scope(|scope| -> Result<Vec<_>> {
        let watch = |worker: Worker| scope.spawn(|| worker.watch());
        let threads: Vec<_> = workers.into_iter().map(watch).collect();
        let results = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        results.collect()
    })?;
    let mut cost = Cost::of(UsageWho::RUSAGE_CHILDREN)?.since(before);
    let mut ended = Vec::with_capacity(watched.len());
    for (said, exit) in watched {
        match said {
            Said::Refused(reason) => return Ok(Outcome::Refused(reason)),
            Said::Seen(seen) => {
                check(&seen, sum)?;
                // Starting a process does not count.
                cost = cost.since(seen.before);
                ended.push(Ended { seen: *seen, exit });
            }
        }
    }
    Ok(Outcome::Done(Run { ended, cost }))
}

/// Lets the processes of `job` load, and counts their memory while all of them have the file loaded.
pub fn memory(job: &Job, sum: u64) -> Result<Outcome<Vec<(Seen, Memory)>>> {
    let (mut workers, opener) = start(job)?;
    let mut counted = Vec::with_capacity(workers.len());
    let mut refused = None;
    for worker in &mut workers {
        match worker.said()? {
            Said::Refused(reason) => refused = Some(reason),
            Said::Seen(seen) => {
                check(&seen, sum)?;
                let memory = seen.memory.context("no memory was counted")?;
                counted.push((*seen, memory));
            }
        }
    }
    drop(opener);
    for mut worker in workers {
        let status = worker.child.wait()?;
        ensure!(status.success(), "a process that loads ended with {status}");
    }
    Ok(match refused {
        Some(reason) => Outcome::Refused(reason),
        None => Outcome::Done(counted),
    })
}

/// A wrong sum means that the process did something else than what is measured.
fn check(seen: &Seen, sum: u64) -> Result<()> {
    if seen.sum != sum {
        bail!(
            "{}: the sum of the touched pages is {:#x}, but the file has {sum:#x}",
            seen.taken.as_deref().unwrap_or("nothing"),
            seen.sum
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_sum_is_an_error() {
        let seen: Seen = serde_json::from_value(serde_json::json!({
            "start": 1, "loaded": 2, "first": 3, "last": 4, "used": 5, "released": 6, "sum": 0x10,
            "taken": "read", "reason": null, "refused": [], "memory": null,
            "before": Cost::default(),
        }))
        .unwrap();
        check(&seen, 0x10).unwrap();
        assert_eq!(
            check(&seen, 0x11).unwrap_err().to_string(),
            "read: the sum of the touched pages is 0x10, but the file has 0x11"
        );
    }
}
