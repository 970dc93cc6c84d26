//! Opens files below a directory without following symbolic links, if the system has no `openat2`. That is so
//! before Linux 5.6, and under filters of system calls that do not know it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

/// How far a path may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Also into other mounts inside of the directory.
    Mounts,
    /// Not into other mounts.
    OneFileSystem,
}

/// Opens `path` in `root` as a path only, one component at a time. A link on the way is LOOP. A path that
/// leads elsewhere is XDEV, and so is one with `..`, even if it stays inside.
pub fn open_by_components(
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
        // This is the link itself. As the last component it is the result, but it has nothing below it.
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

    /// The type and the inode number of what was opened.
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
            // The two refuse a link on the way with different errors.
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let other = match found {
                Ok((FileType::Symlink, _)) => continue,
                _ => seen(openat2(&root, path, flags, Mode::empty(), within)),
            };
            assert_eq!(other.ok(), found.ok(), "{path}");
        }
        assert_eq!(by_components("a/../a/b"), Err(Errno::XDEV));
        // Mounts inside of the directory are followed, or not.
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
