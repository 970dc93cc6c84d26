//! Paths whose end may not exist.

use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

/// How many symbolic links to follow that lead nowhere, as in the kernel.
const LINKS: usize = 40;

/// A path without links.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExistingPath {
    /// The longest part that exists.
    pub(crate) existing: PathBuf,
    /// What does not exist of it: names only. Empty if all of it exists.
    pub(crate) missing: PathBuf,
}

impl ExistingPath {
    /// Follows the links of `path`, also those that lead to what does not exist.
    ///
    /// # Errors
    ///
    /// Those of the system, and `NotFound` if `..` stands behind a name that does not exist.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let mut path = std::path::absolute(path)?;
        for _ in 0..LINKS {
            let found = Self::without_last_link(&path)?;
            let mut names = found.missing.components();
            let Some(first) = names.next() else {
                return Ok(found);
            };
            match found.existing.join(first).read_link() {
                Ok(target) => path = found.existing.join(target).join(names.as_path()),
                Err(_) if found.has_only_names() => return Ok(found),
                Err(_) => return Err(Errno::NOENT.into()),
            }
        }
        Err(Errno::LOOP.into())
    }

    /// Whether all of it exists.
    pub(crate) fn is_whole(&self) -> bool {
        self.missing.as_os_str().is_empty()
    }

    /// The path as one.
    pub(crate) fn whole(&self) -> PathBuf {
        match self.is_whole() {
            true => self.existing.clone(),
            false => self.existing.join(&self.missing),
        }
    }

    fn without_last_link(path: &Path) -> io::Result<Self> {
        for part in path.ancestors() {
            match part.canonicalize() {
                Ok(existing) => {
                    let missing = path.strip_prefix(part).unwrap_or(Path::new(""));
                    return Ok(Self {
                        existing,
                        missing: missing.to_owned(),
                    });
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Err(Errno::NOENT.into())
    }

    fn has_only_names(&self) -> bool {
        let mut parts = self.missing.components();
        parts.all(|part| matches!(part, Component::Normal(_)))
    }
}

/// The absolute path of a file or directory without symbolic links. What does not exist of it stays as it is named.
///
/// # Errors
///
/// Those of the system, and `NotFound` if `..` stands behind a name that does not exist.
pub fn resolve_path(path: &Path) -> io::Result<PathBuf> {
    Ok(ExistingPath::of(path)?.whole())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_though_they_lead_nowhere() {
        let dir = tempfile::tempdir().expect("a directory");
        let top = dir.path().canonicalize().expect("it is there");
        fs::create_dir(top.join("there")).expect("room");
        fs::write(top.join("file"), "").expect("room");
        symlink("there", top.join("link")).expect("room");
        symlink("there/none", top.join("dangling")).expect("room");
        symlink(top.join("dangling/x"), top.join("far")).expect("room");
        symlink("round", top.join("round")).expect("room");
        for (path, existing, missing) in [
            ("there", "there", ""),
            ("link", "there", ""),
            ("there/../link/a", "there", "a"),
            ("link/a/b", "there", "a/b"),
            ("none/./a", "", "none/a"),
            ("dangling", "there", "none"),
            ("dangling/y", "there", "none/y"),
            ("far/y", "there", "none/x/y"),
        ] {
            let found = ExistingPath::of(&top.join(path)).expect(path);
            // With an empty path, `join` appends a slash.
            let expected = top.join(existing).components().collect::<PathBuf>();
            assert_eq!(found.existing, expected, "{path}");
            assert_eq!(found.missing, Path::new(missing), "{path}");
        }
        for (path, kind) in [
            ("none/../there", io::ErrorKind::NotFound),
            ("far/../there", io::ErrorKind::NotFound),
            ("file/x", io::ErrorKind::NotADirectory),
        ] {
            let error = ExistingPath::of(&top.join(path)).expect_err(path);
            assert_eq!(error.kind(), kind, "{path}");
        }
        let error = ExistingPath::of(&top.join("round/x")).expect_err("it leads nowhere");
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        let root = ExistingPath::of(Path::new("/none-of-this-name/a")).expect("a root");
        assert_eq!(root.whole(), Path::new("/none-of-this-name/a"));
        assert_eq!(root.existing, Path::new("/"));
    }
}
