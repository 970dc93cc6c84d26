//! Restores what the lab changed on the machine, however the lab ends.
//!
//! A separate process reads from the lab what to restore. It restores everything when the lab's end of the
//! pipe closes: when the lab is done, was interrupted, or was killed. It stays outside of the lab's mount
//! namespace, so that nothing is mounted in the directories that it removes.

use std::env;
use std::fs::{self, Permissions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk_launch::ignore_requests_to_end;
use brisk_serve::{end_session, sessions};
use brisk_terminal::messages::warn;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getppid, kill_process_group, test_kill_process_group};
use serde::{Deserialize, Serialize};

use super::ip;

/// How often to ask a session to end that is still starting or ending.
const TRIES: u32 = 50;

/// How long an X server may take to remove its socket and its lock.
pub const ENDING: Duration = Duration::from_secs(2);

/// How long processes that were ended may still write into a directory that is removed.
const WRITING: Duration = Duration::from_secs(1);

/// How long the processes of a control group may take to disappear after they were ended.
const LEAVING: Duration = Duration::from_secs(10);

/// A step that restores something.
#[derive(Debug, Serialize, Deserialize)]
enum Step {
    /// Writes this text to a file of the kernel.
    Write(PathBuf, String),
    /// Names the user of the sessions, if it is not root.
    User(Option<u32>),
    /// Removes a directory with everything in it.
    Remove(PathBuf),
    /// Removes an empty directory, or an empty file.
    RemovePlace(PathBuf),
    /// Removes a control group, once its processes have ended.
    RemoveGroup(PathBuf),
    /// Removes the network namespace with this name, once the processes in it have ended.
    RemoveNetwork(String),
    /// Moves the process with this number into the control group with this list of processes.
    Leave(PathBuf, u32),
    /// Ends the running program, which has this process group. None if no program runs.
    Program(Option<i32>),
    /// Ends the process that serves the mount.
    Server(Option<i32>),
    /// Ends the X server on which programs show their windows.
    Display(Option<i32>),
}

/// The directory where sessions are found.
pub fn runtime(ground: &Path) -> PathBuf {
    ground.join("run")
}

/// Measures, and then restores what that changed on the machine, however it ended.
pub fn undoing<T>(measure: impl FnOnce(&mut Undo) -> Result<T>) -> Result<T> {
    let ground = tempfile::Builder::new().prefix("brisk-lab-").tempdir()?;
    fs::create_dir(runtime(ground.path()))?;
    fs::set_permissions(runtime(ground.path()), Permissions::from_mode(0o700))?;
    let mut undo = Undo::start(&runtime(ground.path()))?;
    undo.remove(&ground.keep())?;
    let measured = measure(&mut undo);
    let undone = undo.finish();
    let results = measured?;
    undone.map(|()| results)
}

/// The lab's end of the pipe.
pub struct Undo {
    process: Child,
    steps: Option<ChildStdin>,
    runtime: PathBuf,
}

impl Undo {
    /// Starts the process. It also ends all sessions of `runtime`.
    pub fn start(runtime: &Path) -> Result<Self> {
        let lab = env::current_exe().context("cannot find brisk-lab's own file")?;
        let mut process = Command::new(lab)
            .arg("restore")
            .env("XDG_RUNTIME_DIR", runtime)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A group of its own, so that an interrupt from the terminal reaches only the lab.
            .process_group(0)
            .spawn()
            .context("cannot start the process that restores what the lab changes")?;
        let steps = process.stdin.take();
        Ok(Self {
            process,
            steps,
            runtime: runtime.to_owned(),
        })
    }

    /// The directory whose sessions it ends.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// Promises to write `text` to `path`, a file of the kernel.
    pub fn write(&mut self, path: &Path, text: &str) -> Result<()> {
        self.add(&Step::Write(path.to_owned(), text.to_owned()))
    }

    /// Names the user of the sessions, if it is not root.
    pub fn user(&mut self, user: Option<u32>) -> Result<()> {
        self.add(&Step::User(user))
    }

    /// Promises to remove the directory.
    pub fn remove(&mut self, path: &Path) -> Result<()> {
        self.add(&Step::Remove(path.to_owned()))
    }

    /// Promises to remove the directory or the file, if it is empty.
    pub fn remove_place(&mut self, path: &Path) -> Result<()> {
        self.add(&Step::RemovePlace(path.to_owned()))
    }

    /// Promises to remove the control group.
    pub fn remove_group(&mut self, path: &Path) -> Result<()> {
        self.add(&Step::RemoveGroup(path.to_owned()))
    }

    /// Promises to end all processes in the network namespace with this name but the lab, and to remove it.
    pub fn remove_network(&mut self, name: &str) -> Result<()> {
        self.add(&Step::RemoveNetwork(name.to_owned()))
    }

    /// Promises to move this process back into the control group `home`.
    pub fn leave_for(&mut self, home: &Path) -> Result<()> {
        let list = home.join("cgroup.procs");
        self.add(&Step::Leave(list, std::process::id()))
    }

    /// Says which program runs, by the first process of its group, or that none runs.
    pub fn program(&mut self, group: Option<u32>) -> Result<()> {
        let group = group.map(i32::try_from).transpose()?;
        self.add(&Step::Program(group))
    }

    /// Runs `command`, and returns what it prints and how it ends. It ends with the lab at the latest, as a
    /// program does.
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

    /// Says which process serves the mount, by the first process of its group, or that none does.
    pub fn server(&mut self, group: Option<u32>) -> Result<()> {
        let group = group.map(i32::try_from).transpose()?;
        self.add(&Step::Server(group))
    }

    /// Says which X server runs, by the first process of its group, or that none runs.
    pub fn display(&mut self, group: Option<u32>) -> Result<()> {
        let group = group.map(i32::try_from).transpose()?;
        self.add(&Step::Display(group))
    }

    fn add(&mut self, step: &Step) -> Result<()> {
        let mut line = serde_json::to_vec(step)?;
        line.push(b'\n');
        self.steps
            .as_mut()
            .context("the lab has ended")?
            .write_all(&line)
            .context("the process that restores what the lab changes has ended")
    }

    /// Restores everything, and waits until that is done.
    pub fn finish(mut self) -> Result<()> {
        self.steps = None;
        let status = self.process.wait()?;
        ensure!(status.success(), "what the lab changed is not all restored");
        Ok(())
    }
}

/// Runs `brisk-lab restore`: reads steps from standard input to its end, and then does them, the last one
/// first. Returns false if a step failed, after a message about it.
pub fn restore() -> Result<bool> {
    // Ending the lab may end all processes of its service or login. This one must go on.
    ignore_requests_to_end();
    let mut steps = Vec::new();
    let (mut program, mut server, mut display, mut user) = (None, None, None, None);
    for line in io::stdin().lock().lines() {
        // An incomplete line is from a lab that was killed while it wrote it. What it announced has not
        // happened.
        match serde_json::from_str(&line?) {
            Ok(Step::Program(group)) => program = group,
            Ok(Step::Server(group)) => server = group,
            Ok(Step::Display(group)) => display = group,
            Ok(Step::User(number)) => user = number,
            Ok(step) => steps.push(step),
            Err(_) => {}
        }
    }
    if let Some(display) = display.and_then(Pid::from_raw) {
        end_display(display);
    }
    for group in [program, server, display].into_iter().flatten() {
        if let Some(group) = Pid::from_raw(group) {
            // It may have ended already.
            kill_process_group(group, Signal::KILL).ok();
        }
    }
    let mut done = true;
    let mut failed = |what: &str, e: &dyn std::fmt::Display| {
        warn(&format!("cannot {what}: {e}"));
        done = false;
    };
    let ended = match user {
        None => end_sessions(),
        Some(user) => end_sessions_of(user),
    };
    if let Err(e) = ended {
        failed("end the lab's sessions", &e);
    }
    for step in steps.into_iter().rev() {
        match step {
            Step::Write(path, text) => {
                // A kernel thread that runs already refuses to be started.
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
            Step::RemovePlace(path) => {
                let gone = match fs::symlink_metadata(&path) {
                    Ok(place) if place.is_file() && place.len() == 0 => fs::remove_file(&path),
                    Ok(_) => fs::remove_dir(&path),
                    Err(e) => Err(e),
                };
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
                // The group was announced once for each disk, so it may be gone already.
                if let Err(e) = gone.or_else(absent) {
                    failed(&format!("remove the control group {}", path.display()), &e);
                }
            }
            Step::RemoveNetwork(name) => {
                // The lab is in it, and waits for this process.
                if let Err(e) = ip::remove_namespace(&name, getppid()) {
                    failed(
                        &format!("remove the network namespace {name}"),
                        &format!("{e:#}"),
                    );
                }
            }
            Step::Program(_) | Step::Server(_) | Step::Display(_) | Step::User(_) => {}
        }
    }
    Ok(done)
}

/// Repeats `remove` for some time while it fails with this error.
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

/// A missing file needs no removal.
fn absent(e: io::Error) -> io::Result<()> {
    match e.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(e),
    }
}

/// Ends an X server so that it can remove its socket and its lock.
fn end_display(group: Pid) {
    // It may have ended already.
    kill_process_group(group, Signal::TERM).ok();
    let deadline = Instant::now() + ENDING;
    while test_kill_process_group(group).is_ok() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the sessions of an ordinary user. Only that user may end them, so the user runs `restore` without a step.
fn end_sessions_of(user: u32) -> Result<()> {
    let lab = env::current_exe().context("cannot find brisk-lab's own file")?;
    let status = Command::new(lab)
        .arg("restore")
        .stdin(Stdio::null())
        .uid(user)
        .gid(user)
        .status()
        .with_context(|| format!("cannot start brisk-lab as user {user}"))?;
    ensure!(
        status.success(),
        "brisk-lab restore, as user {user}: {status}"
    );
    Ok(())
}

/// Repeats, because programs that were ended may take a moment to disappear.
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
