//! Writes files that appear whole or not at all.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes `text` to `path`, whole or not at all, readable by everybody.
pub fn write_whole(text: &str, path: &Path) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        let file = file.persist(path)?;
        // A temporary file is readable by its owner only.
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        anyhow::Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
