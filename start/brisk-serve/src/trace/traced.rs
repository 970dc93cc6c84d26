//! What a traced launch has asked for.

use std::path::PathBuf;
use std::process::ExitStatus;

use brisk_image::profile::Profile;

/// The result of a [`Trace`](crate::Trace) or [`SystemTrace`](crate::SystemTrace).
#[derive(Debug)]
#[non_exhaustive]
pub struct Traced {
    /// What the launch asked for, in one run, without digests.
    pub profile: Profile,
    /// Where the files of each root of the profile are.
    pub sources: Vec<TraceSource>,
    /// False if the program ended before it was ready.
    pub was_ready: bool,
    /// How the program ended, if it ended by itself.
    pub status: Option<ExitStatus>,
    /// If the program was ready when it exited: how many processes it left behind. They were ended.
    pub left: u64,
    /// How many requests have no name.
    pub unnamed: u64,
    /// How many requests the recording had no room for.
    pub dropped: u64,
    /// How many files are left out, because they were written while the whole system was traced.
    pub written: u64,
    /// About how many bytes the launch had mapped of files that are not in the profile, because they lie outside of the
    /// image and the trees. 0 if the whole system was traced.
    pub outside: u64,
}

/// Where the files of a traced root are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceSource {
    /// In a directory.
    Directory(PathBuf),
    /// In an image.
    Image {
        /// The image's file.
        path: PathBuf,
        /// The byte at which the image starts in it.
        offset: u64,
    },
}
