//! A program of an image that the kernel mounts.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use brisk_launch::error::{Advice, Cause, Error, ErrorKind, Result, Shown};
use brisk_launch::mount_table::mounted_on;
use brisk_launch::program::{ProgramPlace, Variable, become_program};

use crate::action::Action;
use crate::kernel_mount::{KernelMount, MountOptions};
use crate::namespace::enter_private;
use crate::working_directory::hidden_working_directory;

/// Where to mount an image if the caller names no place: the first of these directories that nobody uses.
///
/// The Filesystem Hierarchy Standard has them on every system, and most systems leave them empty. A directory
/// that was made for this purpose would stay behind, because the program takes the place of this process.
const DEFAULT_PLACES: [&str; 3] = [USUAL_PLACE, "/media", "/srv"];

/// The first of them.
pub(crate) const USUAL_PLACE: &str = "/mnt";

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
