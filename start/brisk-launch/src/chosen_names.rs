//! Which of the names that a launch looks up are worth a look-up ahead of it.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Of so many names of a directory each is chosen, and of its other files one in [`OTHERS`]: the kernel reads 16 inodes and more
/// at once, and a replay of thousands of names takes longer than they save. The inodes of directories lie apart, so each is
/// chosen.
pub const FIRST: u32 = 8;
const OTHERS: u64 = 8;

/// A path that was looked up, and what was found, as a number that is the same in every launch.
pub fn digest(path: &Path, found: bool) -> u64 {
    let mut digest = DefaultHasher::new();
    (path.as_os_str().as_bytes(), found).hash(&mut digest);
    digest.finish()
}

/// Chooses among the names of each directory.
#[derive(Debug)]
pub struct ChosenNames<Directory> {
    /// How many names of each directory have come.
    seen: HashMap<Directory, u32>,
}

impl<Directory> Default for ChosenNames<Directory> {
    fn default() -> Self {
        Self {
            seen: HashMap::new(),
        }
    }
}

impl<Directory: Eq + Hash> ChosenNames<Directory> {
    /// Whether this name is one of those. `path` is that of the name, and `digest` that of the look-up.
    pub fn chooses(&mut self, directory: Directory, path: &Path, found: bool, digest: u64) -> bool {
        let seen = self.seen.entry(directory).or_default();
        *seen = seen.saturating_add(1);
        *seen <= FIRST || digest.is_multiple_of(OTHERS) || found && is_directory(path)
    }
}

/// Whether a directory is at this path, which is not followed if it is a link.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}
