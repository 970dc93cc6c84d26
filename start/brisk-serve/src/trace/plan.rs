//! What a tracer serves, as far as it is known before anything is mounted.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brisk_launch::error::Cause;
use brisk_launch::program::{ProgramPlace, Variable};
use brisk_launch::system_trace::readiness::Readiness;
use brisk_launch::system_trace::system::WholeSystem;

use super::traced::TraceSource;
use crate::action::Action;
use crate::launch::{USUAL_PLACE, default_place};
use crate::session::{Bind, MissingPlace, OpenImage};
use crate::working_directory::WorkingDirectory;

/// What a tracer serves, as far as it is known before anything is mounted.
pub(super) struct TracePlan {
    /// The image, the trees and the other images. Empty if the whole system is traced.
    pub(super) served: Vec<Planned>,
    pub(super) system: Option<WholeSystem>,
    /// Whether the first of them is the program's root directory.
    pub(super) root: bool,
    pub(super) binds: Vec<Bind>,
    pub(super) writable: bool,
    pub(super) ready: Readiness,
    pub(super) at_most: Option<Duration>,
    pub(super) command: Vec<OsString>,
    pub(super) directory: Option<PathBuf>,
    pub(super) variables: Vec<Variable>,
    /// The command as the caller gave it.
    pub(super) asked: Vec<OsString>,
    pub(super) cwd: WorkingDirectory,
}

pub(super) struct Planned {
    pub(super) what: PlannedSource,
    /// Where the program sees it: a canonical path, or one in a root directory that does not exist yet.
    pub(super) at: PathBuf,
    /// What the profile calls this place. It is the same in all recordings, so that they can be merged.
    pub(super) recorded_at: PathBuf,
}

pub(super) enum PlannedSource {
    Image(OpenImage),
    /// A canonical path.
    Tree(PathBuf),
}

impl Planned {
    /// `in_root`: its place is in a root directory. `taken`: places of others, which a default place must not
    /// be.
    pub(super) fn image(image: OpenImage, in_root: bool, taken: &[&Path]) -> Result<Self, Cause> {
        let at = match &image.at {
            Some(at) => at.clone(),
            None if in_root => PathBuf::from("/"),
            None => default_place(taken)?,
        };
        Ok(Self::at(at, PlannedSource::Image(image)))
    }

    /// An image that is mounted on `place` in the user's own world.
    pub(super) fn seen_by_user(image: OpenImage, place: &Path) -> Self {
        let is_named = image.at.is_some();
        let planned = Self::at(place.to_owned(), PlannedSource::Image(image));
        match is_named {
            true => planned,
            // Each recording has another directory.
            false => Self {
                recorded_at: USUAL_PLACE.into(),
                ..planned
            },
        }
    }

    pub(super) fn at(at: PathBuf, what: PlannedSource) -> Self {
        Self {
            what,
            recorded_at: at.clone(),
            at,
        }
    }

    /// Its place, if that does not exist yet.
    pub(super) fn missing(&self) -> Option<&MissingPlace> {
        match &self.what {
            PlannedSource::Tree(_) => None,
            PlannedSource::Image(image) => image.missing.as_ref(),
        }
    }

    pub(super) fn source(&self) -> TraceSource {
        match &self.what {
            PlannedSource::Tree(path) => TraceSource::Directory(path.clone()),
            PlannedSource::Image(image) => TraceSource::Image {
                path: image.path.clone(),
                offset: image.offset,
            },
        }
    }
}

impl TracePlan {
    pub(super) fn places(&self) -> Vec<PathBuf> {
        self.served
            .iter()
            .map(|planned| planned.at.clone())
            .collect()
    }

    /// Where the command is, if its name has a slash.
    pub(super) fn program_place(&self) -> ProgramPlace<'_> {
        match self.served.first() {
            Some(Planned { what, at, .. }) => match what {
                PlannedSource::Image(_) => ProgramPlace::Image(at),
                PlannedSource::Tree(_) => ProgramPlace::Directory(at),
            },
            None => ProgramPlace::WorkingDirectory,
        }
    }

    pub(super) fn action(&self) -> Action {
        match self.system {
            None => Action::Trace,
            Some(_) => Action::TraceSystem,
        }
    }

    /// Enters the program's working directory, after everything is mounted.
    pub(super) fn enter_working_directory(&self) -> Result<(), Cause> {
        match self.directory {
            // It is entered when the program starts.
            Some(_) => Ok(()),
            None => self.cwd.restore(false, &self.places(), self.root),
        }
    }
}
