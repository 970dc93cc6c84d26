//! What is measured: a format, and the hot pack that it is filled from.

use std::path::PathBuf;

use super::format::{Format, Learned, Squashfuse};
use super::training::Training;

/// How to start a contender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// From the tree itself.
    Directory,
    /// From the tree itself, by `brisk run --auto`, which keeps what it learns below this directory.
    Auto { learned: Learned, cache: PathBuf },
    /// From an image that the kernel mounts, as a file system of this type.
    Kernel {
        image: PathBuf,
        filesystem: &'static str,
    },
    /// From an image that squashfuse mounts.
    Squashfuse { image: PathBuf, by: Squashfuse },
    /// By `brisk run`, with or without a hot pack.
    Session {
        image: PathBuf,
        hot: Option<PathBuf>,
        /// The number of threads that fill, if it is not the default.
        threads: Option<u8>,
        /// The file for the log of what was stored when.
        log: Option<PathBuf>,
    },
}

/// What `brisk replay` does while a launch runs.
#[derive(Debug, Clone)]
pub struct Replay {
    pub profile: PathBuf,
    /// What the disk charges, if known.
    pub disk: Option<String>,
    /// The number of threads that read, if it is not the default.
    pub threads: Option<u8>,
    /// The file for the log of what was asked for when.
    pub log: Option<PathBuf>,
}

/// A format as it is measured, with its files.
#[derive(Debug, Clone)]
pub struct Contender {
    pub format: Format,
    pub training: Option<Training>,
    pub start: Start,
    pub replay: Option<Replay>,
    /// The size of its files.
    pub bytes: u64,
    /// The time to make its files, without recording the profile.
    pub build_seconds: f64,
    /// The commands that made its files.
    pub built_by: Vec<Vec<String>>,
}

impl Contender {
    /// Its name in tables.
    pub fn name(&self) -> String {
        let format = match self.format.image_name() {
            Some(name) => format!("beside:{}", name.display()),
            None => self.format.to_string(),
        };
        match self.training {
            Some(Training::Another) => format!("{format}, trained on another"),
            None | Some(Training::Same | Training::Wrong) => format,
        }
    }

    /// Whether to walk it too. Hot packs and replays change nothing for walks.
    pub fn walks(&self) -> bool {
        match self.format {
            Format::Directory | Format::Kernel(_) | Format::Squashfuse(_) | Format::Brisk => true,
            Format::Beside(_) | Format::BesideImage(_) => self.training == Some(Training::Same),
            Format::Filled(_)
            | Format::Wrong
            | Format::DirectoryReplayed
            | Format::DirectoryWrong
            | Format::ReplayedBut(_)
            | Format::FilledBut(_)
            | Format::Auto(_)
            | Format::KernelReplayed(_) => false,
        }
    }

    /// Whether brisk starts it anew each time, so that it has a bound. What the kernel mounts has none: a new mount of the
    /// kernel's has nothing in memory, whatever was read before.
    pub fn has_bound(&self) -> bool {
        match self.start {
            Start::Session { .. } | Start::Auto { .. } => true,
            Start::Directory => self.replay.is_some(),
            Start::Kernel { .. } | Start::Squashfuse { .. } => false,
        }
    }

    /// Whether a process of brisk may go on after the end of its launch.
    pub fn leaves_brisk(&self) -> bool {
        self.replay.is_some() || matches!(self.start, Start::Auto { .. })
    }
}
