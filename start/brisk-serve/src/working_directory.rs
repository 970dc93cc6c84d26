//! The working directory of a process that enters namespaces or mounts.

use std::env;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;

use brisk_launch::error::{Cause, Shown};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::fchdir;

/// The working directory as it was before.
pub(crate) struct WorkingDirectory {
    /// None if it was removed.
    path: Option<PathBuf>,
    /// None if it cannot be kept open.
    held: Option<OwnedFd>,
}

impl WorkingDirectory {
    pub(crate) fn now() -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self {
            path: env::current_dir().ok(),
            held: openat(CWD, ".", flags, Mode::empty()).ok(),
        }
    }

    /// Enters it again, if it is no longer the working directory. That is so in a session that was `joined`,
    /// below a place that a mount has `covered`, and in another root directory (`new_root`), which may not
    /// have a directory of that name.
    pub(crate) fn restore(
        &self,
        joined: bool,
        covered: &[PathBuf],
        new_root: bool,
    ) -> Result<(), Cause> {
        let Some(path) = &self.path else {
            // It was removed or cannot be reached, so a name would not lead to it.
            return match &self.held {
                Some(held) if joined && !new_root => {
                    fchdir(held).map_err(|e| Cause::io("go back to its directory", e))
                }
                _ => Ok(()),
            };
        };
        let is_covered = covered.iter().any(|place| path.starts_with(place));
        if !joined && !is_covered {
            return Ok(());
        }
        match env::set_current_dir(path) {
            Err(_) if new_root => {
                env::set_current_dir("/").map_err(|e| Cause::io("enter the root directory", e))
            }
            result => result.map_err(|e| hidden_working_directory(path, e)),
        }
    }
}

/// The image hides the working directory.
pub(crate) fn hidden_working_directory(cwd: &Path, e: io::Error) -> Cause {
    let text = format!(
        "the image hides the working directory {} and has no such directory; start from another directory",
        Shown(cwd)
    );
    Cause::place(text).because(e)
}
