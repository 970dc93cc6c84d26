//! Putting back what the lab changed on the machine, whatever becomes of the lab.
//!
//! A process of its own reads from the lab what is to be put back, and does so when the lab's end
//! of the pipe is closed: when the lab has done its work, was interrupted, or was killed. It stays
//! outside of the lab's mount namespace, so that nothing is mounted where it removes files.

use std::env;
use std::fs;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk_mount::{end_session, ignore_requests_to_end, sessions};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde::{Deserialize, Serialize};

use brisk::warn;

/// How often a session is asked to end that still starts, or ends.
const TRIES: u32 = 50;

/// How long an X server may take to remove its socket and its lock.
pub const ENDING: Duration = Duration::from_secs(2);

/// How long processes that were ended may still write where a directory is removed.
const WRITING: Duration = Duration::from_secs(1);

/// How long the processes of a control group, which were ended, may take to go.
const LEAVING: Duration = Duration::from_secs(10);

/// What is to be put back.
#[derive(Debug, Serialize, Deserialize)]
enum Step {
    /// This text is written to a file of the kernel's.
    Write(PathBuf, String),
    /// A directory is removed with all it holds.
    Remove(PathBuf),
    /// A control group is removed, once its processes have ended.
    RemoveGroup(PathBuf),
    /// The process with this number enters the control group that has this list of processes.
    Leave(PathBuf, u32),
    /// The program that runs, by its process group, is ended; none runs if there is none.
    Program(Option<i32>),
    /// The same of the process that serves what is mounted.
    Server(Option<i32>),
    /// The same of the X server that programs show their windows on.
    Display(Option<i32>),
}

/// The lab's end.
pub struct Undo {
    process: Child,
    steps: Option<ChildStdin>,
}

impl Undo {
    /// Starts the process. Sessions are those of `runtime`, and all of them are ended.
    pub fn start(runtime: &Path) -> Result<Self> {
        let lab = env::current_exe().context("cannot find brisk-lab's own file")?;
        let mut process = Command::new(lab)
            .arg("restore")
            .env("XDG_RUNTIME_DIR", runtime)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // An interrupt from the terminal is for the lab.
            .process_group(0)
            .spawn()
            .context("cannot start the process that restores what the lab changes")?;
        let steps = process.stdin.take();
        Ok(Self { process, steps })
    }

    /// `text` will be written to `path`, a file of the kernel's.
    pub fn write(&mut self, path: &Path, text: &str) -> Result<()> {
        self.add(&Step::Write(path.to_owned(), text.to_owned()))
    }

    /// The directory will be removed.
    pub fn remove(&mut self, path: &Path) -> Result<()> {
        self.add(&Step::Remove(path.to_owned()))
    }

    /// The control group will be removed.
    pub fn remove_group(&mut self, path: &Path) -> Result<()> {
        self.add(&Step::RemoveGroup(path.to_owned()))
    }

    /// This process enters a control group, and will be back in this one.
    pub fn leave_for(&mut self, home: &Path) -> Result<()> {
        let list = home.join("cgroup.procs");
        self.add(&Step::Leave(list, std::process::id()))
    }

    /// A program runs, the first of its process group, or none.
    pub fn program(&mut self, group: Option<u32>) -> Result<()> {
        let group = group.map(i32::try_from).transpose()?;
        self.add(&Step::Program(group))
    }

    /// What `command` prints and how it ends, which it does with the lab at the latest, as a program
    /// does.
    pub fn output(&mut self, command: &mut Command) -> Result<Output> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        self.program(Some(child.id()))?;
        let output = child.wait_with_output();
        self.program(None)?;
        Ok(output?)
    }

    /// A process serves what is mounted, the first of its process group, or none.
    pub fn server(&mut self, group: Option<u32>) -> Result<()> {
        let group = group.map(i32::try_from).transpose()?;
        self.add(&Step::Server(group))
    }

    /// An X server runs, the first of its process group, or none.
    pub fn display(&mut self, group: Option<u32>) -> Result<()> {
        let group = group.map(i32::try_from).transpose()?;
        self.add(&Step::Display(group))
    }

    fn add(&mut self, step: &Step) -> Result<()> {
        let mut line = serde_json::to_vec(step)?;
        line.push(b'\n');
        self.steps
            .as_mut()
            .context("the lab is over")?
            .write_all(&line)
            .context("the process that restores what the lab changes has ended")
    }

    /// Puts everything back, and waits for that.
    pub fn finish(mut self) -> Result<()> {
        self.steps = None;
        let status = self.process.wait()?;
        ensure!(status.success(), "what the lab changed is not all restored");
        Ok(())
    }
}

/// What `brisk-lab restore` does: reads steps from standard input to its end, and does them then,
/// the last first. Returns false if one failed, which it said.
pub fn restore() -> Result<bool> {
    // Who ends the lab may end all processes of its service, or of its login.
    ignore_requests_to_end();
    let mut steps = Vec::new();
    let (mut program, mut server, mut display) = (None, None, None);
    for line in io::stdin().lock().lines() {
        // What the lab was about to write when it was killed has not happened.
        match serde_json::from_str(&line?) {
            Ok(Step::Program(group)) => program = group,
            Ok(Step::Server(group)) => server = group,
            Ok(Step::Display(group)) => display = group,
            Ok(step) => steps.push(step),
            Err(_) => {}
        }
    }
    if let Some(display) = display.and_then(Pid::from_raw) {
        end_display(display);
    }
    for group in [program, server, display].into_iter().flatten() {
        if let Some(group) = Pid::from_raw(group) {
            // It may have ended by itself.
            kill_process_group(group, Signal::KILL).ok();
        }
    }
    let mut done = true;
    let mut failed = |what: &str, e: &dyn std::fmt::Display| {
        warn(&format!("cannot {what}: {e}"));
        done = false;
    };
    if let Err(e) = end_sessions() {
        failed("end the lab's sessions", &e);
    }
    for step in steps.into_iter().rev() {
        match step {
            Step::Write(path, text) => {
                // Threads of the kernel's that run refuse to be started.
                let is_there = || fs::read_to_string(&path).is_ok_and(|found| found.trim() == text);
                if let Err(e) = fs::write(&path, &text)
                    && !is_there()
                {
                    failed(&format!("write {text} to {}", path.display()), &e);
                }
            }
            Step::Remove(path) => {
                let gone = until(io::ErrorKind::DirectoryNotEmpty, WRITING, || {
                    fs::remove_dir_all(&path)
                });
                if let Err(e) = gone.or_else(absent) {
                    failed(&format!("remove {}", path.display()), &e);
                }
            }
            Step::Leave(list, process) => {
                let moved = fs::write(&list, process.to_string());
                // It may have ended.
                let ended = |e: &io::Error| Errno::from_io_error(e) == Some(Errno::SRCH);
                if let Err(e) = moved
                    && !ended(&e)
                {
                    failed(&format!("write {process} to {}", list.display()), &e);
                }
            }
            Step::RemoveGroup(path) => {
                let gone = until(io::ErrorKind::ResourceBusy, LEAVING, || {
                    fs::remove_dir(&path)
                });
                // It was noted for each disk.
                if let Err(e) = gone.or_else(absent) {
                    failed(&format!("remove the control group {}", path.display()), &e);
                }
            }
            Step::Program(_) | Step::Server(_) | Step::Display(_) => {}
        }
    }
    Ok(done)
}

/// Does `remove` again for some time if it fails in this way.
fn until(
    kind: io::ErrorKind,
    time: Duration,
    remove: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    let deadline = Instant::now() + time;
    loop {
        match remove() {
            Err(e) if e.kind() == kind && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

/// What is not there needs not be removed.
fn absent(e: io::Error) -> io::Result<()> {
    match e.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(e),
    }
}

/// Lets an X server remove its socket and its lock.
fn end_display(group: Pid) {
    // It may have ended by itself.
    kill_process_group(group, Signal::TERM).ok();
    let deadline = Instant::now() + ENDING;
    while test_kill_process_group(group).is_ok() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Programs that were ended may take a moment to go.
fn end_sessions() -> Result<()> {
    let mut tries = 0;
    loop {
        let found = sessions()?;
        if found.is_empty() {
            return Ok(());
        }
        for session in found {
            let ended = end_session(&session.key, tries + 1 >= TRIES);
            if tries >= TRIES {
                ended?;
            }
        }
        tries += 1;
        thread::sleep(Duration::from_millis(20));
    }
}
