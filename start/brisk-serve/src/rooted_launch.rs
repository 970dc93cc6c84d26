use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use brisk_launch::error::{Advice, Cause, Error, Result};
use brisk_launch::program::{ProgramPlace, become_program};
use rustix::process::{getegid, geteuid};

use crate::action::Action;
use crate::namespace::enter_session;
use crate::session::{Bind, BoundTree, Layout, mount_directory};
use crate::working_directory::WorkingDirectory;

/// A program to start with a directory as its root directory.
///
/// Only the program and its descendants see that, in a mount namespace of their own. The program takes the place of the
/// calling process, and no process of brisk stays. An ordinary user can do this if the system allows user namespaces.
///
/// The program sees the same of the system as with [`Session::root`](crate::Session::root). The directory itself is never
/// written to. What is mounted in it is not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RootedLaunch {
    /// The directory.
    pub tree: PathBuf,
    /// Files and directories that the program also sees elsewhere in its root directory.
    pub binds: Vec<Bind>,
    /// Lets the program write in its root directory. What it writes stays in memory, and is lost when the last program in
    /// the namespace ends.
    pub writable: bool,
    /// The program and its arguments. A name with a slash is a path in the directory, and a bare name is looked up in
    /// `PATH`, in the directory too.
    pub command: Vec<OsString>,
    /// The directory that the program starts in, from its root directory. `None` is the present one, or if the root
    /// directory has none of that name, the root directory.
    pub directory: Option<PathBuf>,
}

impl RootedLaunch {
    /// A program in the root directory `tree`, where nothing can be written.
    pub fn new(tree: impl Into<PathBuf>, command: Vec<OsString>) -> Self {
        Self {
            tree: tree.into(),
            binds: Vec::new(),
            writable: false,
            command,
            directory: None,
        }
    }

    /// Becomes the program. Its environment has `/` in `BRISK_TREE`.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the system refuses user namespaces. `Place` if the directory does not exist or is the system's root
    /// directory, or if something cannot be bound. `State` if the process has more than one thread. `CommandNotFound` and
    /// `CommandNotExecutable`. The process may be in the namespace by then: report the error and exit with
    /// [`Error::exit_code`].
    pub fn exec(&self) -> Result<Infallible> {
        self.exec_after(|| ())
    }

    /// Like [`RootedLaunch::exec`], but calls `prepare` in the root directory.
    ///
    /// # Errors
    ///
    /// Those of [`RootedLaunch::exec`].
    pub fn exec_after(&self, prepare: impl FnOnce()) -> Result<Infallible> {
        if self.command.is_empty() {
            return Err(Error::new(Action::Run, Cause::no_command()));
        }
        self.enter()
            .map_err(|cause| Error::new(Action::Root, cause).with_path(&self.tree))?;
        prepare();
        Err(become_program(
            &self.command,
            ProgramPlace::Image(Path::new("/")),
            self.directory.as_deref(),
            &[],
        ))
    }

    fn enter(&self) -> Result<(), Cause> {
        let cwd = WorkingDirectory::now();
        let tree = mount_directory(&self.tree)?;
        if tree.parent().is_none() {
            let cause = Cause::place("it is the root directory of the system");
            return Err(cause.advise(Advice::LeaveOutRoot));
        }
        let root = Path::new("/");
        let namespace = enter_session(geteuid(), getegid())?;
        // Before anything hides it. In the root directory it is visible a second time, so it is read-only there.
        let tree = BoundTree::open(&tree, root, true)?;
        let layout = Layout::prepare(
            vec![root.to_owned()],
            true,
            self.writable.into(),
            &self.binds,
        )?;
        tree.mount(&layout.image_place(0))?;
        layout.finish(namespace)?;
        if self.directory.is_none() {
            cwd.restore(false, &[root.to_owned()], true)?;
        }
        Ok(())
    }
}
