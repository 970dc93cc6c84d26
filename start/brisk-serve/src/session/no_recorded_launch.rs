//! No launch is recorded: this build lacks the feature `learning`. [`RecordedLaunch`] has the face that it has in builds with it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use brisk_image::Image;
use brisk_launch::LearnedPacks;
use brisk_launch::learn::rules::Recorded;

use super::image_source::ImageSource;
use crate::{Recorder, ServeOptions};

/// There is none.
pub(super) enum RecordedLaunch {}

impl RecordedLaunch {
    pub(super) fn new(
        _: &Arc<LearnedPacks>,
        _: &str,
        _: u64,
        _: &Path,
        _: &[OsString],
        _: Recorded,
    ) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn descriptors(&self) -> [RawFd; 2] {
        match *self {}
    }

    pub(super) fn recorded(&self) -> Recorded {
        match *self {}
    }

    pub(super) fn recorder(&self, _: &Path) -> Option<Arc<Recorder>> {
        match *self {}
    }

    pub(super) fn wait(&self, _: &OwnedFd, _: &ServeOptions, _: &Image) {
        match *self {}
    }

    pub(super) fn hand_over(&self, _: &OwnedFd, _: &ServeOptions, _: &Image) {
        match *self {}
    }

    pub(super) fn note_fill(&self, _: &[u8], _: &[u8]) {
        match *self {}
    }

    pub(super) fn learn(&self, _: ImageSource, _: OwnedFd) -> i32 {
        match *self {}
    }
}
