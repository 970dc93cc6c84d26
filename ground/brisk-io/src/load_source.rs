use std::fs::File;

use crate::ImmutableFile;

/// What [`load`](crate::load) reads.
///
/// * A [`File`] may be changed by other processes at any time, so its bytes are copied.
/// * An [`ImmutableFile`] may be mapped.
#[derive(Debug, Clone, Copy)]
pub struct LoadSource<'a> {
    file: &'a File,
    /// True only if the file keeps the promise of [`ImmutableFile::new`].
    immutable: bool,
}

impl<'a> LoadSource<'a> {
    pub(crate) fn file(self) -> &'a File {
        self.file
    }

    /// Whether nobody changes the file, so that mapped bytes of it may be borrowed.
    pub(crate) fn is_immutable(self) -> bool {
        self.immutable
    }
}

impl<'a> From<&'a File> for LoadSource<'a> {
    fn from(file: &'a File) -> Self {
        Self {
            file,
            immutable: false,
        }
    }
}

impl<'a> From<&'a ImmutableFile> for LoadSource<'a> {
    fn from(file: &'a ImmutableFile) -> Self {
        Self {
            file: file.as_file(),
            immutable: true,
        }
    }
}
