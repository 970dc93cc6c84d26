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
use crate::kernel_mount::{KernelMount, MountOptions};
use crate::mount_table::mounted_on;
use crate::namespace::enter_private;
use crate::sys::inherited::become_command;
use crate::working_directory::hidden_working_directory;

/// Where to mount an image if the caller names no place: the first of these directories that nobody uses.
///
/// The Filesystem Hierarchy Standard has them on every system, and most systems leave them empty. A directory
/// that was made for this purpose would stay behind, because the program takes the place of this process.
const DEFAULT_PLACES: [&str; 3] = ["/mnt", "/media", "/srv"];

/// Where programs are searched if there is no `PATH`, as in the C library.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A program to start from an image that only it and its descendants see.
///
/// The image is mounted in a mount namespace of its own, and the program takes the place of the calling
/// process. Signals, job control, the exit status and the descriptors are the program's own, and no process
/// of brisk stays. When the last process in the namespace has ended, even by SIGKILL, the kernel drops the
/// mount and the loop device.
///
/// The program inherits what the calling process has inherited: ignored and blocked signals, limits, and which of its first
/// three descriptors are closed, although Rust's runtime has changed some of that.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launch {
    /// The image's file or block device.
    pub image: PathBuf,
    /// The directory to mount the image on. The mount hides its contents. `None` is the first of `/mnt`,
    /// `/media` and `/srv` that is empty and not a mount point.
    pub at: Option<PathBuf>,
    /// The program and its arguments. An absolute path is taken as it is, a name with a slash is a path in
    /// the image (`bin/app`), and a bare name is looked up in `PATH`.
    pub command: Vec<OsString>,
    /// The directory that the program starts in, from the root of the image. `None` is the present one.
    pub directory: Option<PathBuf>,
    /// What is set in the environment of the program.
    pub variables: Vec<Variable>,
    /// How to mount.
    pub options: MountOptions,
}

impl Launch {
    /// A program from the image at `image`, which is mounted on any free place.
    pub fn new(image: impl Into<PathBuf>, command: Vec<OsString>) -> Self {
        Self {
            image: image.into(),
            at: None,
            command,
            directory: None,
            variables: Vec::new(),
            options: MountOptions::default(),
        }
    }

    /// Becomes the program. Its environment has the mount point in `BRISK_TREE`.
    ///
    /// If the mount hides the working directory, the working directory becomes the image's directory of that
    /// name.
    ///
    /// # Errors
    ///
    /// Those of [`enter_private`] and [`KernelMount::new`]. `Place` if no default place can be used, or if
    /// the working directory is not in the image. `CommandNotFound` and `CommandNotExecutable`. The process
    /// may be in the namespace by then, and the image mounted in it: report the error and exit with
    /// [`Error::exit_code`].
    pub fn exec(&self) -> Result<Infallible> {
        self.exec_after(|_| ())
    }

    /// Like [`Launch::exec`], but calls `prepare` with the mount point when the image is mounted.
    ///
    /// # Errors
    ///
    /// Those of [`Launch::exec`].
    pub fn exec_after(&self, prepare: impl FnOnce(&Path)) -> Result<Infallible> {
        if self.command.is_empty() {
            return Err(Error::new(Action::Run, Cause::no_command()));
        }
        let mount_failed = |cause| Error::new(Action::Mount, cause).with_path(&self.image);
        let at = match &self.at {
            Some(at) => at.clone(),
            None => default_place(&[]).map_err(mount_failed)?,
        };
        // A working directory that was removed has no path, and is not below a mount point either.
        let cwd = env::current_dir().ok();
        enter_private().map_err(|e| e.within(Action::Mount, &self.image))?;
        let mount = KernelMount::new(&self.image, &at, &self.options)?;
        let kept = cwd.filter(|cwd| self.directory.is_none() && cwd.starts_with(mount.target()));
        if let Some(cwd) = kept {
            env::set_current_dir(&cwd)
                .map_err(|source| mount_failed(hidden_working_directory(&cwd, source)))?;
        }
        prepare(mount.target());
        Err(become_program(
            &self.command,
            ProgramPlace::Image(mount.target()),
            self.directory.as_deref(),
            &self.variables,
        ))
    }
}

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
pub(crate) enum ProgramPlace<'a> {
    /// In the image that is mounted here, and nowhere else: what is outside may be another program of that name.
    Image(&'a Path),
    /// In this directory, or else in the working directory.
    Directory(&'a Path),
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
pub(crate) fn become_program(
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

/// The first of the default places that nobody uses and that is not in `taken`. The error is that of the
/// first place.
pub(crate) fn default_place(taken: &[&Path]) -> Result<PathBuf, Cause> {
    let free = |place: &Path| {
        let free = free_place(place)?;
        match taken
            .iter()
            .any(|taken| taken.starts_with(&free) || free.starts_with(taken))
        {
            true => Err(no_default_place(place, "is another image's")),
            false => Ok(free),
        }
    };
    let mut refused = None;
    for place in DEFAULT_PLACES.map(Path::new) {
        match free(place) {
            // Of all refusals, that of the first place is the one to report.
            Err(why) if why.kind() == ErrorKind::Place => _ = refused.get_or_insert(why),
            result => return result,
        }
    }
    Err(refused.expect("there are default places"))
}

fn no_default_place(place: &Path, why: &str) -> Cause {
    let text = format!(
        "it would be mounted on {}, which {why}, and neither /media nor /srv is free",
        Shown(place)
    );
    Cause::place(text).advise(Advice::NamePlace)
}

/// `place`, if nobody uses it.
fn free_place(place: &Path) -> Result<PathBuf, Cause> {
    let refused = |why| no_default_place(place, why);
    let mut entries = fs::read_dir(place).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => refused("does not exist"),
        io::ErrorKind::NotADirectory => refused("is not a directory"),
        _ => Cause::io(format!("read {}", place.display()), e),
    })?;
    if entries.next().is_some() {
        return Err(refused("is not empty"));
    }
    let path = place
        .canonicalize()
        .map_err(|e| Cause::io(format!("resolve {}", place.display()), e))?;
    let mounted = mounted_on(&path).map_err(|e| Cause::io("read /proc/self/mountinfo", e))?;
    if mounted.is_some() {
        return Err(refused("is a mount point"));
    }
    Ok(path)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(place: &Path) -> String {
        free_place(place).map_or_else(|e| e.to_string(), |p| panic!("{}", p.display()))
    }

    #[test]
    fn the_default_place_must_be_free() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let place = dir.path();
        assert_eq!(
            free_place(place).ok(),
            Some(place.canonicalize().expect("a path"))
        );
        let file = place.join("file");
        fs::write(&file, "").expect("the file can be written");
        let (shown, cure) = (place.display(), "and neither /media nor /srv is free");
        assert_eq!(
            refusal(place),
            format!("it would be mounted on {shown}, which is not empty, {cure}")
        );
        assert_eq!(
            refusal(&file),
            format!("it would be mounted on {shown}/file, which is not a directory, {cure}")
        );
        assert_eq!(
            refusal(&place.join("none")),
            format!("it would be mounted on {shown}/none, which does not exist, {cure}")
        );
    }
}
