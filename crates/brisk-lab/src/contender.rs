//! Who is measured: a format, with the hot pack that it is filled from.

use std::path::PathBuf;

use super::format::{Format, Squashfuse};
use super::training::Training;

/// How a contender is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// From the tree itself.
    Directory,
    /// From an image that the kernel mounts, as this type of file system.
    Kernel {
        image: PathBuf,
        filesystem: &'static str,
    },
    /// From an image that squashfuse mounts.
    Squashfuse { image: PathBuf, by: Squashfuse },
    /// By `brisk run`, filled from a hot pack or not.
    Session {
        image: PathBuf,
        hot: Option<PathBuf>,
        /// Threads that fill, where they are not as many as usual.
        threads: Option<u8>,
        /// Where it is written what was stored when.
        log: Option<PathBuf>,
    },
}

/// What `brisk replay` does beside a launch.
#[derive(Debug, Clone)]
pub struct Replay {
    pub profile: PathBuf,
    /// What the disk charges, if that is known.
    pub disk: Option<String>,
    /// Threads that read, where they are not as many as usual.
    pub threads: Option<u8>,
    /// Where it is written what was asked for when.
    pub log: Option<PathBuf>,
}

/// Somebody who is measured.
#[derive(Debug, Clone)]
pub struct Contender {
    pub format: Format,
    pub training: Option<Training>,
    pub start: Start,
    pub replay: Option<Replay>,
    /// Bytes of its files.
    pub bytes: u64,
    /// To make them, without recording the profile.
    pub build_seconds: f64,
    /// What made them.
    pub built_by: Vec<Vec<String>>,
}

impl Contender {
    /// What tables call it.
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

    /// Whether a walk of it says something: hot packs and replays are not for walks.
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
            | Format::KernelReplayed(_) => false,
        }
    }
}
