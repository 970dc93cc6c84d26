//! A launch without an image.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use brisk_launch::PlainLaunch;
use brisk_serve::RootedLaunch;

use crate::path_hint::with_program_of_directory;

/// A program to start without an image.
pub enum DirectLaunch {
    /// Where it is.
    Plain(PlainLaunch),
    /// With a directory as its root directory.
    Rooted(RootedLaunch),
}

impl DirectLaunch {
    /// The program and its arguments.
    pub fn command(&self) -> &[OsString] {
        match self {
            Self::Plain(launch) => &launch.command,
            Self::Rooted(launch) => &launch.command,
        }
    }

    /// Where the files are that the program finds by other names, for a replay outside of its root directory.
    pub fn places(&self) -> Vec<PathBuf> {
        match self {
            Self::Plain(_) => Vec::new(),
            Self::Rooted(launch) => vec![launch.tree.clone()],
        }
    }

    /// Becomes the program.
    pub fn exec(&self) -> anyhow::Result<Infallible> {
        self.exec_after(|| ())
    }

    /// Becomes the program. Before that, but where the names are those that the program has, calls `prepare`.
    pub fn exec_after(&self, prepare: impl FnOnce()) -> anyhow::Result<Infallible> {
        match self {
            Self::Plain(launch) => {
                prepare();
                exec_plain(launch)
            }
            Self::Rooted(launch) => launch.exec_after(prepare).map_err(|error| {
                let program = launch.command.first().map_or(Path::new(""), Path::new);
                // If the program was not found, the process is in the root directory.
                with_program_of_directory(error, program, Path::new("/"))
            }),
        }
    }
}

/// Becomes the program. The error says if the directory has a similar program.
pub fn exec_plain(launch: &PlainLaunch) -> anyhow::Result<Infallible> {
    launch.exec().map_err(|error| {
        let program = launch.command.first().map_or(Path::new(""), Path::new);
        match &launch.tree {
            Some(tree) => with_program_of_directory(error, program, tree),
            None => error.into(),
        }
    })
}
