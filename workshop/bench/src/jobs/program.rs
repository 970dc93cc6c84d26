//! The program that does the jobs, each in a process of its own.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::spent::{Values, monotonic};

/// How long after the last process is ready all begin.
const HEAD_START_NS: u64 = 50_000_000;

/// What a process that serves prints when it waits for the time at which to begin.
pub const READY: &str = "ready";

/// The program that does the jobs.
pub struct Program {
    path: PathBuf,
    /// The same program, which counts allocations.
    counting: Option<PathBuf>,
}

impl Program {
    /// This program itself.
    pub fn own() -> Result<Self> {
        Self::at(&env::current_exe().context("cannot find the own program")?)
    }

    /// Another program. One that counts allocations has the same name with `-counted` behind it.
    pub fn at(path: &Path) -> Result<Self> {
        let path = path
            .canonicalize()
            .with_context(|| format!("cannot find {}", path.display()))?;
        let mut counting = path.clone().into_os_string();
        counting.push("-counted");
        let counting = PathBuf::from(counting);
        Ok(Self {
            path,
            counting: counting.exists().then_some(counting),
        })
    }

    /// It, copied into a directory, as whoever installs a program copies it.
    ///
    /// A linker writes a program in small pieces, so that its file lies in small pages of the page cache. Each start of it then
    /// has more page faults than a start of an installed one.
    pub fn installed(mut self, directory: &Path) -> Result<Self> {
        let directory = directory.join(".program");
        fs::create_dir(&directory)?;
        let programs = [&mut self.path].into_iter().chain(&mut self.counting);
        for program in programs {
            let name = program.file_name().context("a program has no name")?;
            let copy = directory.join(name);
            fs::copy(&*program, &copy)
                .with_context(|| format!("cannot copy {}", program.display()))?;
            *program = copy;
        }
        Ok(self)
    }

    /// Whether it has a program beside it that counts allocations.
    pub fn counts(&self) -> bool {
        self.counting.is_some()
    }

    /// It, with an argument.
    pub fn command(&self, job: &str) -> Command {
        let mut command = Command::new(&self.path);
        command.arg(job);
        command
    }

    /// The names of all that it can do.
    pub fn list(&self) -> Result<Vec<String>> {
        let output = self.command("list").output()?;
        ensure!(output.status.success(), "{}", told(&output.stderr));
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{} lists no names", self.path.display()))
    }

    /// The names of what is to be measured: those of `only`, or all if it has none.
    pub fn chosen(&self, only: &[String]) -> Result<Vec<String>> {
        let mut names = self.list()?;
        for wanted in only {
            ensure!(
                names.contains(wanted),
                "--only: found {wanted}, allowed are {}",
                names.join(", ")
            );
        }
        names.retain(|name| only.is_empty() || only.contains(name));
        Ok(names)
    }

    /// Reads the program into memory, so that no run waits for its code.
    pub fn warm(&self) -> Result<()> {
        fs::read(&self.path)?;
        self.list().map(drop)
    }

    pub fn run(&self, job: &impl Serialize) -> Result<Values> {
        let mut command = self.command(&serde_json::to_string(job)?);
        values_of(&command.output().context("cannot start a worker")?)
    }

    /// The allocations of one operation of a job. None if no program counts them.
    pub fn allocations(&self, job: &impl Serialize) -> Result<Option<f64>> {
        let Some(counting) = &self.counting else {
            return Ok(None);
        };
        let mut command = Command::new(counting);
        command.arg(serde_json::to_string(job)?);
        let values = values_of(&command.output().context("cannot start a worker")?)?;
        Ok(values.get("allocations").copied())
    }

    /// What strace writes about a job. None if it cannot trace here.
    pub fn traced(&self, job: &impl Serialize) -> Result<Option<String>> {
        let trace = tempfile::NamedTempFile::new()?;
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-y", "-s", "0", "-e", "signal=none", "-o"]);
        command.arg(trace.path()).arg(&self.path);
        command.arg(serde_json::to_string(job)?);
        let output = command.output().context("cannot start strace")?;
        match output.status.success() {
            true => Ok(Some(fs::read_to_string(trace.path())?)),
            false => Ok(None),
        }
    }

    /// Does jobs at once, each in a process that says [`READY`], and begins at the time that it then reads from its input.
    /// Returns the sum of what they did in a second, and the processor time of one operation.
    pub fn serve_at_once(&self, jobs: &[impl Serialize]) -> Result<Values> {
        let processes = jobs.len();
        let mut serving: Vec<Serving> = jobs
            .iter()
            .map(|job| {
                let mut command = self.command(&serde_json::to_string(&job)?);
                Serving::start(&mut command)
            })
            .collect::<Result<_>>()?;
        for process in &mut serving {
            process.wait_until_ready()?;
        }
        let start = monotonic() + HEAD_START_NS;
        for process in &mut serving {
            process.begin_at(start)?;
        }
        let all: Vec<Values> = serving
            .into_iter()
            .map(Serving::finish)
            .collect::<Result<_>>()?;
        let sum = |name: &str| -> f64 { all.iter().filter_map(|values| values.get(name)).sum() };
        let mean = |name: &str| sum(name) / processes.max(1) as f64;
        Ok(Values::from([
            ("per_second".to_owned(), sum("per_second")),
            ("user_ns".to_owned(), mean("user_ns")),
            ("system_ns".to_owned(), mean("system_ns")),
        ]))
    }
}

/// A process that reads when it is told to.
struct Serving {
    process: Child,
    says: BufReader<ChildStdout>,
}

impl Serving {
    fn start(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().context("cannot start a worker")?;
        let says = process.stdout.take().context("a worker has no output")?;
        Ok(Self {
            process,
            says: BufReader::new(says),
        })
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        if line.trim_end() == READY {
            return Ok(());
        }
        let mut stderr = Vec::new();
        if let Some(errors) = &mut self.process.stderr {
            errors.read_to_end(&mut stderr)?;
        }
        bail!("a worker cannot read: {}", told(&stderr));
    }

    fn begin_at(&mut self, start: u64) -> Result<()> {
        let mut told = self.process.stdin.take().context("a worker has no input")?;
        writeln!(told, "{start}").context("a worker ended before it began")
    }

    fn finish(mut self) -> Result<Values> {
        let mut stdout = Vec::new();
        self.says.read_to_end(&mut stdout)?;
        let rest = self.process.wait_with_output()?;
        values_of(&Output { stdout, ..rest })
    }
}

fn told(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).trim().to_owned()
}

/// What a worker printed.
fn values_of(output: &Output) -> Result<Values> {
    ensure!(output.status.success(), "{}", told(&output.stderr));
    serde_json::from_slice(&output.stdout).context("a worker printed no values")
}
