//! A run that has entered a session.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::missing_place::MissingPlace;

/// The state of a run that has entered a session and will become its program.
pub(super) struct EnteredSession {
    /// The value of `BRISK_TREE`.
    pub(super) tree: PathBuf,
    /// Whether the session existed before.
    pub(super) joined: bool,
    /// Directories that mounts now hide, if it did not exist before.
    pub(super) covered: Vec<PathBuf>,
    /// Places that it has made just now.
    pub(super) made: Vec<MissingPlace>,
    /// Open until the program is executed, or this process ends.
    pub(super) guardian: OwnedFd,
}
