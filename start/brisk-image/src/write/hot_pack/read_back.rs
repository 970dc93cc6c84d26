//! How the image is read while it is written.

use std::fs::File;
use std::path::Path;

/// How the image is read while it is written, to make its hot pack.
#[cfg_attr(
    not(feature = "profile"),
    expect(dead_code, reason = "nothing is read back")
)]
pub(in crate::write) struct ReadBack<'a> {
    pub(in crate::write) file: File,
    /// The directory for temporary files.
    pub(in crate::write) spool: &'a Path,
    /// The image in messages.
    pub(in crate::write) name: Option<&'a Path>,
}
