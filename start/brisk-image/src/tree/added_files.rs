//! Contents of files that were added to a tree one by one.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brisk_io::{ByteSource, Window};

use super::entry::Contents;
use super::{FileSource, SourceFile, SourceId};
use crate::error::{Error, Result};
use crate::read::image::Image;

/// Bytes that are read and spooled at once.
const CHUNK: usize = 256 << 10;

/// Files that were added to those of another source, or to none.
#[derive(Default)]
pub(super) struct AddedFiles {
    base: Option<Box<dyn FileSource>>,
    /// The number of the first that was added; smaller ones are those of `base`.
    first: SourceId,
    files: Vec<AddedFile>,
    spool: Spool,
}

struct AddedFile {
    source: Box<dyn ByteSource>,
    len: u64,
    /// Where in the tree it was added.
    path: PathBuf,
}

/// A file without a name for contents that could be read once.
#[derive(Default)]
struct Spool {
    /// Where it is; none for the directory for temporary files.
    directory: Option<PathBuf>,
    file: Option<Arc<File>>,
    len: u64,
}

impl AddedFiles {
    /// No files yet, beside those of `base`, whose numbers are below `first`.
    pub(super) fn to(base: Box<dyn FileSource>, first: SourceId) -> Self {
        Self {
            base: Some(base),
            first,
            ..Self::default()
        }
    }

    pub(super) fn spool_in(&mut self, directory: PathBuf) {
        self.spool = Spool {
            directory: Some(directory),
            ..Spool::default()
        };
    }

    /// Adds the file that has `contents`, and returns its number and its length.
    pub(super) fn add(&mut self, path: &Path, contents: Contents<'_>) -> Result<(SourceId, u64)> {
        let number = u32::try_from(self.files.len()).ok();
        let number = number.and_then(|number| self.first.checked_add(number));
        let number = number.ok_or_else(|| {
            let files = self.files.len() as u64 + u64::from(self.first);
            Error::limit("the number of files", files, u32::MAX.into())
        })?;
        let (source, len) = match contents {
            Contents::Source(source) => {
                let len = source.size();
                let len = len.map_err(|e| Error::io("read the length of the contents", e))?;
                (source, len)
            }
            Contents::Reader(mut reader) => {
                let kept = self.spool.keep(&mut *reader)?;
                let len = kept.1;
                (Box::new(kept.0) as Box<dyn ByteSource>, len)
            }
        };
        self.files.push(AddedFile {
            source,
            len,
            path: path.to_owned(),
        });
        Ok((number, len))
    }
}

impl Spool {
    /// Keeps what `reader` gives, and returns where, and how much it is.
    fn keep(&mut self, reader: &mut dyn Read) -> Result<(Window<Arc<File>>, u64)> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let directory = self.directory.clone().unwrap_or_else(std::env::temp_dir);
                let file = tempfile::tempfile_in(&directory).map_err(|e| {
                    Error::io("make a temporary file for the contents", e).with_path(directory)
                })?;
                Arc::clone(self.file.insert(Arc::new(file)))
            }
        };
        let start = self.len;
        let mut buf = vec![0; CHUNK];
        let mut len = 0;
        loop {
            let n = match reader.read(&mut buf) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::io("read the contents", e)),
            };
            file.write_all_at(&buf[..n], start + len)
                .map_err(|e| Error::io("write the contents to a temporary file", e))?;
            len += n as u64;
        }
        // Of what could not be read whole nothing is kept: the next starts in its place.
        self.len = start + len;
        Ok((Window::new(file, start, len), len))
    }
}

impl FileSource for AddedFiles {
    fn open(&self, file: SourceId) -> Result<Box<dyn SourceFile + Send + '_>> {
        match (file.checked_sub(self.first), &self.base) {
            (Some(number), _) => Ok(Box::new(&self.files[number as usize])),
            (None, Some(base)) => base.open(file),
            (None, None) => Err(Error::input("a file has no contents")),
        }
    }

    fn image(&self) -> Option<&Image> {
        self.base.as_ref()?.image()
    }

    fn is_stream(&self) -> bool {
        self.base.as_ref().is_some_and(|base| base.is_stream())
    }

    fn digest(&self, file: SourceId) -> Option<[u8; 32]> {
        self.base
            .as_ref()
            .filter(|_| file < self.first)?
            .digest(file)
    }
}

impl SourceFile for &AddedFile {
    fn read_exact_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Err(e) = ByteSource::read_exact_bytes_at(&self.source, offset, buf) else {
            return Ok(());
        };
        if e.kind() == io::ErrorKind::UnexpectedEof {
            self.check_unchanged()?;
        }
        Err(Error::io("read the contents", e).with_path(&self.path))
    }

    fn is_hole(&mut self, _: u64, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn check_unchanged(&mut self) -> Result<()> {
        let named = |e: Error| e.with_path(&self.path);
        match self.source.size() {
            Ok(len) if len == self.len => Ok(()),
            Ok(len) => Err(named(Error::changed("length", self.len, len))),
            Err(e) => Err(named(Error::io("read the length of the contents", e))),
        }
    }
}

impl std::fmt::Debug for AddedFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AddedFiles")
            .field("base", &self.base.is_some())
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}
