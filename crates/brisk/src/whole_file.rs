//! Writes files that appear whole or not at all.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

/// Writes `text` to `path`, whole or not at all, readable by everybody.
pub fn write_whole(text: &str, path: &Path) -> Result<()> {
    write_together([(text, path)])
}

/// Writes each text to its path, like [`write_whole`]. Without room for all of them, no file changes.
pub fn write_together<const N: usize>(texts: [(&str, &Path); N]) -> Result<()> {
    let named = |path: &Path| format!("cannot write {}", path.display());
    let mut files = Vec::new();
    for (text, path) in texts {
        let file = unnamed(text, path).with_context(|| named(path))?;
        files.push((file, path));
    }
    for (file, path) in files {
        file.persist(path).with_context(|| named(path))?;
    }
    Ok(())
}

/// A file with `text` in the directory of `path`. It goes unless it gets that name.
fn unnamed(text: &str, path: &Path) -> Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    // A temporary file is readable by its owner only.
    let mode = fs::Permissions::from_mode(0o644);
    file.as_file().set_permissions(mode)?;
    Ok(file)
}
