//! The program of a launch: how it is found, and how this process becomes it.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags, accessat, statvfs};

use crate::error::{Action, Advice, Cause, Error, ErrorKind, Result, Shown};
use crate::interpreter::missing_interpreter;
use crate::sys::inherited::become_command;

/// Where programs are searched if there is no `PATH`, as in the C library.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A program to start as it is, without a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlainLaunch {
    /// The directory that a program name with a slash is relative to, if it has such a file, and else the working directory.
    /// `BRISK_TREE` also names it. None for the working directory alone, and without that variable.
    pub tree: Option<PathBuf>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The directory that the program starts in, from the tree. None for the present one.
    pub directory: Option<PathBuf>,
}

impl PlainLaunch {
    /// A program in the working directory.
    pub fn new(command: Vec<OsString>) -> Self {
        Self {
            tree: None,
            command,
            directory: None,
        }
    }

    /// The absolute path of the program's file, as it is found. Links are not followed.
    ///
    /// # Errors
    ///
    /// As [`PlainLaunch::exec`].
    pub fn program(&self) -> Result<PathBuf> {
        let Some(program) = self.command.first() else {
            return Err(Error::new(Action::Run, Cause::no_command()));
        };
        let found = find_program(program, self.program_place(), &[]).and_then(|path| {
            std::path::absolute(path).map_err(|e| Cause::io("resolve its name", e))
        });
        found.map_err(|cause| Error::new(Action::Run, cause).with_path(program))
    }

    fn program_place(&self) -> ProgramPlace<'_> {
        self.tree
            .as_deref()
            .map_or(ProgramPlace::WorkingDirectory, ProgramPlace::Directory)
    }

    /// Becomes the program.
    ///
    /// # Errors
    ///
    /// `Place` if the tree does not exist, `CommandNotFound` and `CommandNotExecutable`.
    pub fn exec(&self) -> Result<Infallible> {
        let directory = self.directory.as_deref();
        Err(become_program(
            &self.command,
            self.program_place(),
            directory,
            &[],
        ))
    }
}

/// A variable that is set in the environment of a program, whatever the caller's environment has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    name: OsString,
    /// None for the mount point.
    value: Option<OsString>,
}

impl Variable {
    /// A variable with this value.
    pub fn new(name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        Self {
            name: name.into(),
            value: Some(value.into()),
        }
    }

    /// A variable with the directory that the image is mounted on, which is known only then.
    pub fn of_mount_point(name: impl Into<OsString>) -> Self {
        Self {
            name: name.into(),
            value: None,
        }
    }
}

/// Where a program is whose name has a slash and is not absolute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramPlace<'a> {
    /// In the image that is mounted here, and nowhere else: what is outside may be another program of that name.
    Image(&'a Path),
    /// In this directory, or else in the working directory.
    Directory(&'a Path),
    /// In the working directory.
    WorkingDirectory,
}

impl<'a> ProgramPlace<'a> {
    /// The value of `BRISK_TREE`.
    fn tree(self) -> Option<&'a Path> {
        match self {
            Self::Image(tree) | Self::Directory(tree) => Some(tree),
            Self::WorkingDirectory => None,
        }
    }
}

/// Executes `command`, in `directory` of the tree if there is one, and with `variables`. Returns why that failed.
pub fn become_program(
    command: &[OsString],
    place: ProgramPlace<'_>,
    directory: Option<&Path>,
    variables: &[Variable],
) -> Error {
    let [program, arguments @ ..] = command else {
        return Error::new(Action::Run, Cause::no_command());
    };
    let failed = |cause| Error::new(Action::Run, cause).with_path(program);
    let path = match find_program(program, place, variables) {
        Ok(path) => path,
        Err(cause) => return failed(cause),
    };
    if let Some(directory) = directory {
        let directory = place.tree().unwrap_or(Path::new("")).join(directory);
        if let Err(source) = env::set_current_dir(&directory) {
            let text = format!(
                "it should start in {}, which cannot be entered",
                Shown(&directory)
            );
            let cause = Cause::place(text).advise(Advice::NameDirectory);
            return failed(cause.because(source));
        }
    }
    let mut command = Command::new(&path);
    if !program.as_bytes().contains(&b'/') {
        command.arg0(program);
    }
    // Not earlier: they are for the program, and for nothing that brisk starts.
    for Variable { name, value } in variables {
        match value.as_deref().or(place.tree().map(Path::as_os_str)) {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(tree) = place.tree() {
        command.env("BRISK_TREE", tree);
    }
    let error = become_command(command.args(arguments));
    failed(explain(error, &path))
}

/// The file that `program` names, checked as far as the messages need it. `variables` may have another `PATH`.
fn find_program(
    program: &OsStr,
    place: ProgramPlace<'_>,
    variables: &[Variable],
) -> Result<PathBuf, Cause> {
    if program.as_bytes().contains(&b'/') {
        // An absolute `program` replaces the tree here.
        let inside = Path::new(program);
        let inside = inside.strip_prefix(".").unwrap_or(inside);
        let path = match place.tree() {
            Some(tree) => tree.join(inside),
            None => program.into(),
        };
        return match (examine(&path), place) {
            (Err(cause), ProgramPlace::Directory(_)) if is_missing(&cause) && path != program => {
                in_working_directory(program)
            }
            (examined, _) => examined.map(|()| path),
        };
    }
    let own = variables.iter().find(|variable| variable.name == "PATH");
    let own = own.and_then(|variable| variable.value.clone());
    let search = own.or_else(|| env::var_os("PATH"));
    let search = search.unwrap_or_else(|| DEFAULT_PATH.into());
    let tree = match place {
        ProgramPlace::Image(_) => Some("image"),
        ProgramPlace::Directory(_) => Some("directory"),
        ProgramPlace::WorkingDirectory => None,
    };
    let text = match tree {
        None => "not found in PATH".into(),
        Some(tree) => format!(
            "not found in PATH; to name a program of the {tree}, use its path in the {tree}, with a slash"
        ),
    };
    let mut result = Err(Cause::new(ErrorKind::CommandNotFound, text));
    if program.is_empty() {
        return result;
    }
    for directory in env::split_paths(&search) {
        // An empty entry is the working directory. With a slash in it, a bare name is not searched for again.
        let path = Path::new(".").join(directory).join(program);
        match examine(&path) {
            Ok(()) => return Ok(path),
            Err(cause) if cause.kind() == ErrorKind::CommandNotExecutable => result = Err(cause),
            Err(_) => {}
        }
    }
    result
}

/// The file that `program` names from the working directory. The directory that was named has none.
fn in_working_directory(program: &OsStr) -> Result<PathBuf, Cause> {
    // As a launch without a tree would name it to the program.
    let path = std::path::absolute(program).map_err(|e| Cause::io("resolve its name", e))?;
    match examine(&path) {
        Err(cause) if is_missing(&cause) => Err(Cause::new(
            ErrorKind::CommandNotFound,
            "no such file, neither in the directory that was named nor from the working directory",
        )),
        examined => examined.map(|()| path),
    }
}

fn not_executable(why: &'static str) -> Cause {
    Cause::new(ErrorKind::CommandNotExecutable, why)
}

fn is_missing(cause: &Cause) -> bool {
    cause.kind() == ErrorKind::CommandNotFound
}

/// Whether the file at `path` can be executed.
fn examine(path: &Path) -> Result<(), Cause> {
    let metadata = fs::metadata(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Cause::new(ErrorKind::CommandNotFound, "no such file")
        }
        io::ErrorKind::PermissionDenied => {
            not_executable("you may not enter a directory on the way to it")
        }
        io::ErrorKind::ConnectionAborted | io::ErrorKind::NotConnected => {
            let cause = Cause::new(
                ErrorKind::Io,
                "the processes that serve its files have ended; the last log in the directory of sessions ($XDG_RUNTIME_DIR/brisk, \
                 /run/brisk or /tmp/brisk-UID) says why",
            );
            cause.because(e)
        }
        _ => Cause::io("examine it", e),
    })?;
    if metadata.is_dir() {
        return Err(not_executable("it is a directory"));
    }
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).map_err(|_| {
        let may = metadata.mode() & 0o111 != 0;
        not_executable(match may && is_without_programs(path) {
            true => NOEXEC,
            false => "it may not be executed; give it the x permission, in an image before packing",
        })
    })
}

const NOEXEC: &str = "its filesystem is mounted with noexec, so no program starts from there; copy it to another filesystem";

/// Whether the filesystem of the file at `path` is mounted with `noexec` (mount(2)).
fn is_without_programs(path: &Path) -> bool {
    statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// Why `exec` failed on the file at `path`, which exists.
fn explain(error: io::Error, path: &Path) -> Cause {
    match error.kind() {
        io::ErrorKind::NotFound => match missing_interpreter(path) {
            Some(missing) => Cause::new(ErrorKind::CommandNotExecutable, missing.to_string()),
            None => {
                not_executable("the interpreter or dynamic loader that it names does not exist")
            }
        },
        io::ErrorKind::PermissionDenied => {
            not_executable("the system does not allow executing it or its interpreter")
        }
        io::ErrorKind::ArgumentListTooLong => Cause::io("pass so many arguments", error),
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            not_executable(
                "it is not a program for this system (wrong architecture, or not a program)",
            )
        }
        _ => Cause::io("execute it", error),
    }
}
