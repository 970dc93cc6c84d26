//! A hot pack behind the image that is written. Without the feature `profile` there is none.

#[cfg(feature = "profile")]
mod enabled;
#[cfg(feature = "profile")]
pub(super) use enabled::HotPackBehind;

#[cfg(not(feature = "profile"))]
mod disabled;
#[cfg(not(feature = "profile"))]
pub(super) use disabled::HotPackBehind;

use std::fs::File;
use std::path::Path;

/// How the image is read while it is written, to make its hot pack.
#[cfg_attr(
    not(feature = "profile"),
    expect(dead_code, reason = "nothing is read back")
)]
pub(super) struct ReadBack<'a> {
    pub(super) file: File,
    /// The directory for temporary files.
    pub(super) spool: &'a Path,
    /// The image in messages.
    pub(super) name: Option<&'a Path>,
}
