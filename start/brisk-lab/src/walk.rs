//! Reads every file of a tree.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The contents of a tree.
#[derive(Debug, Clone)]
pub struct Walked {
    /// A digest of every path, type, link target and content, in the order of names.
    pub digest: blake3::Hash,
    /// Its regular files. A file with several names is in it once.
    pub files: Vec<WalkedFile>,
    /// The size of all of them.
    pub bytes: u64,
}

/// A regular file of a tree.
#[derive(Debug, Clone)]
pub struct WalkedFile {
    pub path: PathBuf,
    /// Bytes.
    pub len: u64,
}

/// Reads all of the tree at `root`, on one thread.
pub fn walk(root: &Path) -> Result<Walked> {
    let mut hasher = blake3::Hasher::new();
    let mut walked = Walked {
        digest: hasher.finalize(),
        files: Vec::new(),
        bytes: 0,
    };
    directory(root, &mut hasher, &mut HashSet::new(), &mut walked)?;
    walked.digest = hasher.finalize();
    Ok(walked)
}

fn directory(
    path: &Path,
    hasher: &mut blake3::Hasher,
    seen: &mut HashSet<(u64, u64)>,
    walked: &mut Walked,
) -> Result<()> {
    let list = || {
        let mut entries = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        Ok::<_, std::io::Error>(entries)
    };
    let entries = list().with_context(|| format!("cannot list {}", path.display()))?;
    for entry in entries {
        let path = entry.path();
        let read = || format!("cannot read {}", path.display());
        let kind = entry.file_type().with_context(read)?;
        hasher.update(entry.file_name().as_encoded_bytes());
        // No name contains these bytes.
        hasher.update(b"\0");
        if kind.is_dir() {
            directory(&path, hasher, seen, walked)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).with_context(read)?;
            hasher.update(target.as_os_str().as_encoded_bytes());
        } else if kind.is_file() {
            let before = hasher.count();
            let file = File::open(&path).with_context(read)?;
            hasher.update_reader(&file).with_context(read)?;
            let len = hasher.count() - before;
            let metadata = file.metadata().with_context(read)?;
            if metadata.nlink() == 1 || seen.insert((metadata.dev(), metadata.ino())) {
                walked.bytes += len;
                walked.files.push(WalkedFile { path, len });
            }
        }
        hasher.update(b"/");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_content_counts() {
        let digest_of = |files: &[(&str, &str)]| {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let path = dir.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let walked = walk(dir.path()).unwrap();
            assert_eq!(walked.files.len(), files.len());
            walked.digest
        };
        let one = digest_of(&[("a/b", "text"), ("c", "")]);
        assert_eq!(digest_of(&[("c", ""), ("a/b", "text")]), one);
        for other in [
            &[("a/b", "texT"), ("c", "")][..],
            &[("a/d", "text"), ("c", "")],
            &[("a/b", "text")],
            &[("a/b", "text"), ("a/c", "")],
        ] {
            assert_ne!(digest_of(other), one, "{other:?}");
        }
    }

    #[test]
    fn a_file_with_two_names_has_one_size() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "text").unwrap();
        fs::write(dir.path().join("b"), "te").unwrap();
        let one = walk(dir.path()).unwrap();
        fs::hard_link(dir.path().join("a"), dir.path().join("c")).unwrap();
        let two = walk(dir.path()).unwrap();
        assert_eq!((one.files.len(), one.bytes), (2, 6));
        assert_eq!((two.files.len(), two.bytes), (2, 6));
        assert_ne!(one.digest, two.digest);
    }
}
