//! Directories that only the calling user may enter.

use std::fs::{self, DirBuilder};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, fstat, mkdirat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::{Cause, Shown};
use crate::owner::is_own;

/// Opens the directory at `path`, and makes it if it does not exist. Refuses a directory that belongs to
/// somebody else, or that others may enter.
pub fn open_private(path: &Path) -> Result<OwnedFd, Cause> {
    match mkdirat(CWD, path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(Cause::io(format!("make {}", path.display()), e)),
    }
    let refused = |found: &str| {
        let directory = Shown(path);
        Cause::place(format!(
            "{directory} {found}, allowed is a directory of yours with mode 0700; move it away"
        ))
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(CWD, path, flags, Mode::empty()).map_err(|e| match e {
        Errno::NOTDIR | Errno::LOOP => refused("is not a directory"),
        Errno::ACCESS => refused("belongs to somebody else"),
        e => Cause::io(format!("open {}", path.display()), e),
    })?;
    let stat = fstat(&fd).map_err(|e| Cause::io(format!("examine {}", path.display()), e))?;
    if !is_own(stat.st_uid) {
        return Err(refused("belongs to somebody else"));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(refused("can be entered by others"));
    }
    Ok(fd)
}

/// The directory for data of the calling user that can be made again.
pub fn cache_directory() -> Result<PathBuf, Cause> {
    let home = brisk_io::cache_home().ok_or_else(|| {
        Cause::place(
            "neither XDG_CACHE_HOME nor HOME is the absolute path of a directory; set one of them",
        )
    })?;
    // Others cannot make files where they may not. Root can, and `sudo` may leave HOME as it was.
    if geteuid().is_root() {
        not_of_another(&home)?;
    }
    Ok(home.join("brisk"))
}

/// Refuses a directory that is, or would be made, in one of another user.
fn not_of_another(directory: &Path) -> Result<(), Cause> {
    let there = directory
        .ancestors()
        .find_map(|path| fs::metadata(path).ok());
    match there.map(|there| there.uid()) {
        Some(owner) if !is_own(owner) => Err(Cause::place(format!(
            "the caches of root would be in {}, which belongs to the user {owner}; set HOME or XDG_CACHE_HOME to a directory \
             of root (sudo -H does)",
            Shown(directory)
        ))),
        _ => Ok(()),
    }
}

/// Makes a directory of caches and those above it, if they do not exist. Nobody else may enter the new ones.
pub fn make_cache_directory(path: &Path) -> Result<(), Cause> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| Cause::io(format!("make {}", path.display()), e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn refusal(path: &Path) -> String {
        open_private(path).map_or_else(|e| e.to_string(), |_| "opened".to_owned())
    }

    /// Sessions may be kept in the same directory, and they refuse one that others can enter.
    #[test]
    fn a_new_cache_directory_is_private() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("cache/brisk");
        make_cache_directory(&path).expect("made");
        make_cache_directory(&path).expect("there already");
        assert_eq!(refusal(&path), "opened");
    }

    #[test]
    fn root_leaves_no_files_in_the_home_of_another() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = dir.path().join("home/.cache");
        not_of_another(&cache).expect("it would be ours");
        fs::create_dir(dir.path().join("home")).expect("a home");
        not_of_another(&cache).expect("ours");
        chown(dir.path().join("home"), Some(1000), None).expect("these tests need root");
        assert_eq!(
            not_of_another(&cache).map_err(|e| e.to_string()),
            Err(format!(
                "the caches of root would be in {}, which belongs to the user 1000; set HOME or XDG_CACHE_HOME to a \
                 directory of root (sudo -H does)",
                cache.display()
            ))
        );
    }

    #[test]
    fn a_directory_that_others_can_use_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("brisk");
        assert_eq!(refusal(&path), "opened");
        assert_eq!(refusal(&path), "opened");
        let cure = "allowed is a directory of yours with mode 0700; move it away";
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).expect("ours");
        assert_eq!(
            refusal(&path),
            format!("{} can be entered by others, {cure}", path.display())
        );
        let link = dir.path().join("link");
        symlink("brisk", &link).expect("a link");
        assert_eq!(
            refusal(&link),
            format!("{} is not a directory, {cure}", link.display())
        );
    }
}
