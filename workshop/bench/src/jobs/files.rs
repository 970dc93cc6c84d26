//! The files of a store: whether they are in memory, and what they take on the disk.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use brisk_lab::{Chill, State, empty_caches, is_warm, prepare};
use walkdir::WalkDir;

/// All files below a directory.
fn below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in WalkDir::new(directory) {
        let entry = entry?;
        if !entry.file_type().is_dir() {
            files.push(entry.into_path());
        }
    }
    Ok(files)
}

/// Takes all files below a directory out of memory, and proves that. [`Chill::System`] takes names and attributes as
/// well, together with everything else that the system keeps of files.
pub fn make_cold(directory: &Path, chill: Chill) -> Result<()> {
    if chill == Chill::System {
        // At once, and not file by file. The proof brings names and attributes back, and then drops them.
        empty_caches()?;
    }
    let files = below(directory)?;
    chill.prove(files.iter().map(PathBuf::as_path))
}

/// Reads all files below a directory into memory, and proves that they are there.
pub fn make_warm(directory: &Path) -> Result<()> {
    let files = below(directory)?;
    files.iter().try_for_each(|file| prepare(file, State::Warm))
}

/// Whether all files below a directory are in memory.
pub fn all_are_warm(directory: &Path) -> Result<bool> {
    for file in below(directory)? {
        if !is_warm(&file)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Bytes that a directory takes on the disk. None exist if it does not.
pub fn bytes_on_disk(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    if directory.exists() {
        for entry in WalkDir::new(directory).min_depth(1) {
            bytes += entry?.metadata()?.blocks() * 512;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_directory_is_made_warm_and_cold() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        fs::create_dir(directory.path().join("in")).unwrap();
        for name in ["one", "in/two"] {
            fs::write(directory.path().join(name), vec![1; 100_000]).unwrap();
        }
        assert!(bytes_on_disk(directory.path()).unwrap() >= 200_000);
        make_warm(directory.path()).unwrap();
        assert!(all_are_warm(directory.path()).unwrap());
        make_cold(directory.path(), Chill::Files).unwrap();
        assert!(!all_are_warm(directory.path()).unwrap());
    }
}
