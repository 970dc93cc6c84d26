//! Images in a mapped file.

use std::path::Path;

use brisk_io::{ImmutableFile, ImmutableMapping};

use super::image::{Image, OpenOptions};
use super::stored_image::Source;
use crate::error::{Error, Result};

impl Image {
    /// Opens the image in `file`, and maps it: files that are stored raw can be borrowed
    /// ([`FileReader::as_slice`](crate::FileReader::as_slice)), and reads cost no system call.
    ///
    /// Errors call the file `path`. An [`ImmutableFile`] is the promise that nobody changes it.
    ///
    /// # Errors
    ///
    /// As [`Image::open`], and `Io` where the filesystem has no mappings.
    pub fn open_mapped(
        path: impl AsRef<Path>,
        file: &ImmutableFile,
        options: &OpenOptions,
    ) -> Result<Self> {
        let path = path.as_ref();
        let open = || {
            let mapping = ImmutableMapping::new(file).map_err(|e| Error::io("map the image", e))?;
            Self::from_parts(Source::Mapped(mapping), Some(path), options)
        };
        open().map_err(|e| e.with_path(path))
    }
}
