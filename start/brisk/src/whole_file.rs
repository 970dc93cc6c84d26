//! Writes files that appear whole or not at all.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use brisk_terminal::names::shown;
use tempfile::NamedTempFile;

use crate::output_file::directory_of;

/// A file to write.
#[derive(Clone, Copy)]
pub struct WholeFile<'a> {
    pub path: &'a Path,
    pub bytes: &'a [u8],
    /// Who may do what with it. The umask of the process takes away from that.
    pub mode: u32,
}

impl<'a> WholeFile<'a> {
    /// A file of data.
    pub fn data(path: &'a Path, bytes: &'a [u8]) -> Self {
        Self {
            path,
            bytes,
            mode: 0o666,
        }
    }

    /// In its directory, under another name. It goes unless it gets its own name.
    fn unnamed(&self) -> Result<NamedTempFile> {
        let mut file = tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(self.mode))
            .tempfile_in(directory_of(self.path))?;
        file.write_all(self.bytes)?;
        Ok(file)
    }
}

/// Writes `text` to `path`, whole or not at all.
pub fn write_whole(text: &str, path: &Path) -> Result<()> {
    write_together(&[WholeFile::data(path, text.as_bytes())])
}

/// Writes each file whole. Without room for all of them, no file changes.
pub fn write_together(files: &[WholeFile<'_>]) -> Result<()> {
    let named = |path: &Path| format!("cannot write {}", shown(path));
    let unnamed = files.iter().map(|file| {
        let made = file.unnamed();
        made.with_context(|| named(file.path))
    });
    let unnamed = unnamed.collect::<Result<Vec<_>>>()?;
    for (file, made) in files.iter().zip(unnamed) {
        made.persist(file.path).with_context(|| named(file.path))?;
    }
    Ok(())
}
