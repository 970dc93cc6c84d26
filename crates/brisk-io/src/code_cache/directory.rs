use std::ffi::CStr;
use std::fs::{DirBuilder, File, Metadata};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, fdatasync, flock, fstat, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::key::is_file_name;

/// Names of entries that are being written begin so.
const UNFINISHED: &str = ".new-";

/// A directory whose entries this user or root has written, and nobody else.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

/// A file that has an entry, of whatever key.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) len: u64,
    pub(super) last_use: (i64, u64),
}

impl Directory {
    /// Opens the directory, and makes it if there is none, open to this user alone.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let told =
            |e: io::Error| io::Error::new(e.kind(), format!("code cache {}: {e}", path.display()));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut opened = openat(CWD, path, flags, Mode::empty());
        if matches!(opened, Err(Errno::NOENT)) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(told)?;
            opened = openat(CWD, path, flags, Mode::empty());
        }
        let fd = opened.map_err(|e| told(e.into()))?;
        let stat = fstat(&fd).map_err(|e| told(e.into()))?;
        let user = rustix::process::geteuid().as_raw();
        match others_may_write(stat.st_uid, stat.st_mode, user) {
            None => Ok(Self(fd)),
            Some(Distrust {
                field,
                found,
                allowed,
            }) => Err(told(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "{field} is {found}, allowed is {allowed}, for who writes there decides what this user \
                     executes; name another directory, or remove this one: what others have put there stays"
                ),
            ))),
        }
    }

    /// Opens an entry to be read; a name that leads elsewhere is not followed.
    pub(super) fn entry(&self, name: &str) -> io::Result<File> {
        // A named pipe would have the open wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::empty())?.into())
    }

    /// Why an entry cannot be trusted, if it is so: in a directory that others could write once, files of
    /// theirs can be.
    pub(super) fn distrust(metadata: &Metadata) -> Option<Distrust> {
        let user = rustix::process::geteuid().as_raw();
        others_may_write(metadata.uid(), metadata.mode(), user)
    }

    /// Takes away the name of an entry; that of another file, if `only` is given, stays.
    pub(super) fn remove(&self, name: &str, only: Option<&File>) -> io::Result<bool> {
        if let Some(file) = only {
            let metadata = file.metadata()?;
            match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(now) if (now.st_dev, now.st_ino) == (metadata.dev(), metadata.ino()) => {}
                Ok(_) | Err(Errno::NOENT) => return Ok(false),
                Err(e) => return Err(e.into()),
            }
        }
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Has `name` be a file of these bytes, or what it was before.
    ///
    /// With `synced`, the bytes are on the disk before.
    pub(super) fn write(&self, name: &str, parts: &[&[u8]], synced: bool) -> io::Result<()> {
        let mut unfinished = Unfinished::new(self)?;
        for part in parts {
            unfinished.file.write_all(part)?;
        }
        if synced {
            fdatasync(&unfinished.file)?;
        }
        unfinished.finish(name)
    }

    /// All entries, after what killed writers have left is removed.
    pub(super) fn list(&self) -> io::Result<Vec<Listed>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_bytes().starts_with(UNFINISHED.as_bytes()) {
                self.remove_if_left(name)?;
                continue;
            }
            let Some(name) = name.to_str().ok().filter(|name| is_file_name(name)) else {
                continue;
            };
            match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if !FileType::from_raw_mode(stat.st_mode).is_file() => {}
                Ok(stat) => entries.push(Listed {
                    name: name.to_owned(),
                    len: u64::try_from(stat.st_size).unwrap_or(0),
                    last_use: (stat.st_mtime, stat.st_mtime_nsec),
                }),
                // Somebody else has removed it.
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(entries)
    }

    /// Removes an unfinished file that nobody writes any more.
    fn remove_if_left(&self, name: &CStr) -> io::Result<()> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |access: OFlags| openat(&self.0, name, access | flags, Mode::empty());
        // One of root's may be only to read, which is enough but for networks' locks.
        let opened = match open(OFlags::RDWR) {
            Err(Errno::ACCESS) => open(OFlags::RDONLY),
            opened => opened,
        };
        let file = match opened {
            Ok(file) => file,
            // It is finished, or was removed by somebody else, or is not a file.
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Ok(()),
            // It is root's, who removes it.
            Err(Errno::ACCESS | Errno::PERM) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            // It is being written, or cannot be known.
            Err(Errno::WOULDBLOCK | Errno::BADF) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// What of a file or a directory lets somebody write there who is neither this user nor root.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Distrust {
    pub(super) field: &'static str,
    pub(super) found: String,
    pub(super) allowed: String,
}

/// None if nobody but `user` and root can write what has this owner and mode.
fn others_may_write(owner: u32, mode: u32, user: u32) -> Option<Distrust> {
    if owner != user && owner != 0 {
        return Some(Distrust {
            field: "its owner",
            found: format!("user {owner}"),
            allowed: format!("user {user} or root"),
        });
    }
    let mode = mode & 0o7777;
    (mode & 0o022 != 0).then(|| Distrust {
        field: "its mode",
        found: format!("{mode:o}"),
        allowed: format!("{:o}", mode & !0o022),
    })
}

/// A file that is being written.
///
/// Its writer holds a lock on it. The kernel takes that back when the writer is killed, and who lists the
/// directory knows by it that the file is nobody's.
struct Unfinished<'a> {
    directory: &'a Directory,
    name: String,
    file: File,
    named: bool,
}

impl<'a> Unfinished<'a> {
    fn new(directory: &'a Directory) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        // The directory says who may read.
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        // Others may list the directory between the next two calls, but not forever.
        for _ in 0..64 {
            let name = format!(
                "{UNFINISHED}{:016x}",
                RandomState::new().build_hasher().finish()
            );
            let file = match openat(&directory.0, &name, flags, mode) {
                Ok(file) => File::from(file),
                Err(Errno::EXIST) => continue,
                Err(e) => return Err(e.into()),
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => continue,
                Err(e) => {
                    directory.remove(&name, None)?;
                    return Err(e.into());
                }
            }
            if file.metadata()?.nlink() > 0 {
                return Ok(Self {
                    directory,
                    name,
                    file,
                    named: true,
                });
            }
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "64 files that were to be written were removed by others at once",
        ))
    }

    fn finish(mut self, name: &str) -> io::Result<()> {
        let directory = &self.directory.0;
        renameat(directory, self.name.as_str(), directory, name)?;
        self.named = false;
        Ok(())
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.named {
            // If it fails, the next who lists the directory removes it.
            self.directory.remove(&self.name, None).ok();
        }
    }
}

/// Notes that `file` is used now, if the last note is a day old: a cache that is read must not become one
/// that is written.
///
/// Where that cannot be, as on a read-only or a full filesystem, what is used is taken for unused.
pub(super) fn note_use(file: &File) {
    const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let now = SystemTime::now();
    let noted = file.metadata().and_then(|metadata| metadata.modified());
    // A time to come is a clock's mistake.
    let is_new = noted.is_ok_and(|noted| now.duration_since(noted).is_ok_and(|age| age < A_DAY));
    if !is_new {
        file.set_modified(now).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_user_and_root_are_trusted() {
        for (owner, mode) in [(1000, 0o40700), (1000, 0o40755), (0, 0o40755), (0, 0o41500)] {
            assert_eq!(others_may_write(owner, mode, 1000), None);
        }
        for (owner, mode, user, found, allowed) in [
            (1001, 0o40700, 1000, "user 1001", "user 1000 or root"),
            (1000, 0o40700, 0, "user 1000", "user 0 or root"),
            (1000, 0o40720, 1000, "720", "700"),
            (0, 0o41777, 1000, "1777", "1755"),
        ] {
            let distrust = others_may_write(owner, mode, user).unwrap();
            assert_eq!((&*distrust.found, &*distrust.allowed), (found, allowed));
        }
    }
}
