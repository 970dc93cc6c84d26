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

/// The start of the names of unfinished entries.
const UNFINISHED: &str = ".new-";

/// A directory whose entries only this user or root has written.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

/// A file with an entry, for any key.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) len: u64,
    pub(super) last_use: (i64, u64),
}

impl Directory {
    /// Opens the directory. If it does not exist, makes it, for this user alone.
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
                    "{field} is {found}, allowed is {allowed}, because whoever writes there decides what this user \
                     executes; name another directory, or remove this one with everything in it"
                ),
            ))),
        }
    }

    /// Opens an entry for reading. A symbolic link is not followed.
    pub(super) fn entry(&self, name: &str) -> io::Result<File> {
        // Otherwise opening a named pipe would wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::empty())?.into())
    }

    /// Why an entry cannot be trusted, if that is so. A directory that others could write once may have files
    /// of theirs.
    pub(super) fn distrust(metadata: &Metadata) -> Option<Distrust> {
        let user = rustix::process::geteuid().as_raw();
        others_may_write(metadata.uid(), metadata.mode(), user)
    }

    /// Removes the name of an entry. With `only`, the name stays if it belongs to another file.
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

    /// Makes `name` a file with these bytes, or leaves it as it was before.
    ///
    /// With `synced`, the bytes are on the disk first.
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

    /// All entries. Removes what killed writers have left.
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
                // Another process has removed it.
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(entries)
    }

    /// Removes an unfinished file if nobody writes it any more.
    fn remove_if_left(&self, name: &CStr) -> io::Result<()> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |access: OFlags| openat(&self.0, name, access | flags, Mode::empty());
        // A file of root may be read-only. That is enough, except for locks on networks.
        let opened = match open(OFlags::RDWR) {
            Err(Errno::ACCESS) => open(OFlags::RDONLY),
            opened => opened,
        };
        let file = match opened {
            Ok(file) => file,
            // It is finished, or another process has removed it, or it is not a file.
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Ok(()),
            // It belongs to root, who will remove it.
            Err(Errno::ACCESS | Errno::PERM) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            // It is being written, or the system does not say.
            Err(Errno::WOULDBLOCK | Errno::BADF) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// Why somebody else than this user and root may write to a file or a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Distrust {
    pub(super) field: &'static str,
    pub(super) found: String,
    pub(super) allowed: String,
}

/// None if only `user` and root can write a file with this owner and mode.
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
/// Its writer holds a lock on it. If the writer is killed, the kernel releases the lock. So whoever lists the
/// directory sees that nobody writes the file any more.
struct Unfinished<'a> {
    directory: &'a Directory,
    name: String,
    file: File,
    named: bool,
}

impl<'a> Unfinished<'a> {
    fn new(directory: &'a Directory) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        // The mode of the directory says who may read.
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        // Others may list the directory between the next two calls and remove the file, but not forever.
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
            "others removed 64 new files before they could be written; try again",
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
            // If this fails, the next one who lists the directory removes it.
            self.directory.remove(&self.name, None).ok();
        }
    }
}

/// Records that `file` is used now, if the last record is a day old: reading the cache must not write to it
/// each time.
///
/// If that is impossible, as on a read-only or full filesystem, the entry counts as unused.
pub(super) fn note_use(file: &File) {
    const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let now = SystemTime::now();
    let noted = file.metadata().and_then(|metadata| metadata.modified());
    // A time in the future is a mistake of a clock.
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
