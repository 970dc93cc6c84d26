//! Opening what is in a directory through no symbolic link, where the system has no `openat2`: Linux before
//! 5.6, and filters of system calls that do not know it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

/// Where a path may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Into what is mounted in the directory, too.
    Mounts,
    /// To nothing that is mounted in it.
    OneFileSystem,
}

/// What is at `path` in `root`, as a path only, one directory after the other. A link on the way is LOOP; what
/// leads elsewhere is XDEV, and so is the directory above, wherever that is.
pub(crate) fn open_by_components(
    root: BorrowedFd<'_>,
    path: &Path,
    reach: Reach,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT);
    }
    let mut found = openat(root, ".", flags | OFlags::DIRECTORY, Mode::empty())?;
    let device = fstat(&found)?.st_dev;
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(Errno::XDEV);
            }
        };
        found = openat(&found, name, flags, Mode::empty())?;
        let stat = fstat(&found)?;
        // The link itself was opened. At the end of the path that is right; below it is nothing.
        if components.peek().is_some() && FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
        {
            return Err(Errno::LOOP);
        }
        if reach == Reach::OneFileSystem && stat.st_dev != device {
            return Err(Errno::XDEV);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, ResolveFlags, openat2};
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    /// What is opened, as its type and its inode's number.
    fn seen(opened: rustix::io::Result<OwnedFd>) -> rustix::io::Result<(FileType, u64)> {
        let stat = fstat(opened?)?;
        Ok((FileType::from_raw_mode(stat.st_mode), stat.st_ino))
    }

    #[test]
    fn without_openat2_the_same_is_found_and_no_link_leads_out() {
        let place = tempfile::tempdir().unwrap();
        let [tree, outside] = ["tree", "outside"].map(|name| place.path().join(name));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(tree.join("a/b/file"), "inside").unwrap();
        fs::write(outside.join("file"), "outside").unwrap();
        symlink(&outside, tree.join("out")).unwrap();
        symlink("b", tree.join("a/in")).unwrap();
        symlink("/proc/self/root", tree.join("a/top")).unwrap();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = openat(CWD, &tree, flags, Mode::empty()).unwrap();
        let by_components = |path: &str| {
            seen(open_by_components(
                root.as_fd(),
                Path::new(path),
                Reach::OneFileSystem,
            ))
        };
        let table = [
            (".", Ok(FileType::Directory)),
            ("a/b", Ok(FileType::Directory)),
            ("a/./b/file", Ok(FileType::RegularFile)),
            ("out", Ok(FileType::Symlink)),
            ("a/in", Ok(FileType::Symlink)),
            ("", Err(Errno::NOENT)),
            ("a/none", Err(Errno::NOENT)),
            ("a/b/file/x", Err(Errno::NOTDIR)),
            ("out/file", Err(Errno::LOOP)),
            ("a/in/file", Err(Errno::LOOP)),
            ("a/top/etc", Err(Errno::LOOP)),
            ("../outside/file", Err(Errno::XDEV)),
            ("/etc", Err(Errno::XDEV)),
        ];
        for (path, expected) in table {
            let found = by_components(path);
            assert_eq!(found.map(|(kind, _)| kind), expected, "{path}");
            // Of a link on the way, the two refuse it by different errors.
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let other = match found {
                Ok((FileType::Symlink, _)) => continue,
                _ => seen(openat2(&root, path, flags, Mode::empty(), within)),
            };
            assert_eq!(other.ok(), found.ok(), "{path}");
        }
        assert_eq!(by_components("a/../a/b"), Err(Errno::XDEV));
        // What is mounted in a directory is seen, or is not.
        let top = openat(CWD, "/", flags, Mode::empty()).unwrap();
        let version = |over| {
            seen(open_by_components(
                top.as_fd(),
                Path::new("proc/version"),
                over,
            ))
        };
        assert!(version(Reach::Mounts).is_ok());
        assert_eq!(version(Reach::OneFileSystem), Err(Errno::XDEV));
    }
}
