//! The directory in which a user's sessions are found.
//!
//! It is `$XDG_RUNTIME_DIR/brisk`, else `/run/user/UID/brisk`, else `/run/brisk` for root, else `/tmp/brisk-UID`. If
//! another user has made that name in `/tmp`, it is `/tmp/brisk-UID.RANDOM`. Each session has files there. On
//! `KEY.sock` its guardian listens. A process holds `KEY.lock` while it makes or ends the session. `KEY.log` stays
//! if something went wrong. Where the system refuses namespaces, `KEY.mnt` is a directory to mount on.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, MemfdFlags, Mode, OFlags, flock, fstat, lstat,
    memfd_create, mkdirat, openat, stat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::{Uid, geteuid};

use crate::error::Cause;
use crate::owner::is_own;
use crate::private_directory::open_private;

/// How many connections may wait to be accepted. With more, `connect` waits.
const BACKLOG: i32 = 128;

/// The directory of a user's sessions.
///
/// 1. It belongs to the user, and nobody else may enter it.
pub(super) struct Directory {
    fd: OwnedFd,
    /// Whether there is a directory, and `fd` is not merely a file in memory.
    is_there: bool,
}

/// A lock. While a process holds it, no other process makes or ends a session with the same key.
pub(super) struct Lock {
    file: OwnedFd,
}

impl Lock {
    /// Releases the lock, even if other processes have copies of the descriptor.
    pub(super) fn release(self) -> io::Result<()> {
        Ok(flock(&self.file, FlockOperation::Unlock)?)
    }
}

impl Directory {
    /// Opens the directory, and makes it if it does not exist.
    pub(super) fn open() -> Result<Self, Cause> {
        let user = geteuid();
        if !is_own(user.as_raw()) {
            let source = "this user has no number in its user namespace";
            return Err(Cause::NoRoomForSession {
                source: io::Error::other(source),
            });
        }
        let own = |path: &Path| {
            stat(path).is_ok_and(|stat| {
                FileType::from_raw_mode(stat.st_mode) == FileType::Directory && is_own(stat.st_uid)
            })
        };
        let runtime = env::var_os("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .into_iter()
            .chain([
                PathBuf::from(format!("/run/user/{}", user.as_raw())),
                // It belongs to root.
                PathBuf::from("/run"),
            ])
            .find(|path| own(path));
        match runtime {
            Some(runtime) => Self::open_at(&runtime.join("brisk")),
            None => Self::open_at(&place_among_others(Path::new("/tmp"), user)?),
        }
    }

    /// A directory of sessions at another place.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        Self::open_at(path).map_err(|cause| io::Error::other(cause.to_string()))
    }

    fn open_at(path: &Path) -> Result<Self, Cause> {
        let fd = open_private(path).map_err(|cause| match cause {
            Cause::Io { source, .. } if is_no_room(&source) => Cause::NoRoomForSession { source },
            cause => cause,
        })?;
        Ok(Self { fd, is_there: true })
    }

    /// No directory: a session with these files in memory, which no later run finds.
    pub(super) fn nowhere() -> Result<Self, Cause> {
        let fd = memory_file().map_err(|e| Cause::io("make a file in memory", e))?;
        Ok(Self {
            fd,
            is_there: false,
        })
    }

    /// Whether later runs can find a session.
    pub(super) fn is_there(&self) -> bool {
        self.is_there
    }

    /// Another descriptor of the directory.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
            is_there: self.is_there,
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The path of a socket may have at most 107 bytes. This one goes through the descriptor, so it is always
    /// short enough.
    fn address(&self, key: &str) -> rustix::io::Result<SocketAddrUnix> {
        SocketAddrUnix::new(format!("/proc/self/fd/{}/{key}.sock", self.fd.as_raw_fd()))
    }

    /// Connects to the guardian of the session `key`. None if there is none.
    pub(super) fn connect(&self, key: &str) -> io::Result<Option<OwnedFd>> {
        if !self.is_there {
            return Ok(None);
        }
        let socket = new_socket()?;
        match connect(&socket, &self.address(key)?) {
            Ok(()) => Ok(Some(socket)),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes a socket that [`Self::connect`] finds. It replaces a socket on which nobody listens.
    pub(super) fn listen(&self, key: &str, _: &Lock) -> io::Result<Option<OwnedFd>> {
        if !self.is_there {
            return Ok(None);
        }
        self.remove(key, "sock")?;
        let socket = new_socket()?;
        bind(&socket, &self.address(key)?)?;
        listen(&socket, BACKLOG)?;
        Ok(Some(socket))
    }

    /// The file for errors of the session's own processes.
    pub(super) fn log(&self, key: &str) -> io::Result<OwnedFd> {
        if !self.is_there {
            return self.fd.try_clone();
        }
        let flags = OFlags::WRONLY
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::TRUNC
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC;
        Ok(openat(
            &self.fd,
            format!("{key}.log"),
            flags,
            Mode::RUSR | Mode::WUSR,
        )?)
    }

    /// Makes a directory to mount on, if the user named none. It is removed with the session's other files.
    pub(super) fn make_place(&self, key: &str) -> Result<PathBuf, Cause> {
        match mkdirat(&self.fd, format!("{key}.mnt"), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) if is_no_room(&e.into()) => {
                return Err(Cause::NoRoomForSession { source: e.into() });
            }
            Err(e) => return Err(Cause::io("make a directory to mount on", e)),
        }
        self.place(key)
    }

    /// The path of the directory that [`Directory::make_place`] makes.
    pub(super) fn place(&self, key: &str) -> Result<PathBuf, Cause> {
        let own = std::fs::read_link(format!("/proc/self/fd/{}", self.fd.as_raw_fd()));
        own.map(|own| own.join(format!("{key}.mnt")))
            .map_err(|e| Cause::io("find the directory of sessions", e))
    }

    /// Waits for the lock of `key`.
    pub(super) fn lock(&self, key: &str) -> io::Result<Lock> {
        loop {
            if let Some(lock) = self.lock_by(key, FlockOperation::LockExclusive)? {
                return Ok(lock);
            }
        }
    }

    /// The lock of `key`. None if another process holds it.
    pub(super) fn try_lock(&self, key: &str) -> io::Result<Option<Lock>> {
        match self.lock_by(key, FlockOperation::NonBlockingLockExclusive) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            result => result,
        }
    }

    /// None if the file is no longer the one in the directory: the process that held the lock has removed it.
    fn lock_by(&self, key: &str, operation: FlockOperation) -> io::Result<Option<Lock>> {
        if !self.is_there {
            return memory_file().map(|file| Some(Lock { file }));
        }
        let name = format!("{key}.lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.fd, &name, flags, Mode::RUSR | Mode::WUSR)?;
        while let Err(e) = flock(&file, operation) {
            if e != Errno::INTR {
                return Err(e.into());
            }
        }
        let ours = fstat(&file)?;
        Ok(match statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) => {
                Some(Lock { file })
            }
            Ok(_) | Err(Errno::NOENT) => None,
            Err(e) => return Err(e.into()),
        })
    }

    /// Identifies the socket of the session `key`, by device and inode: a socket that is made later has
    /// another identity. None if there is none.
    pub(super) fn socket_id(&self, key: &str) -> Option<(u64, u64)> {
        if !self.is_there {
            return None;
        }
        let stat = statat(&self.fd, format!("{key}.sock"), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// Removes the socket, so that no run finds the session `key` any more.
    pub(super) fn unlist(&self, key: &str) -> io::Result<()> {
        self.remove(key, "sock")
    }

    /// Removes the other files of the session `key`, except a log that is not empty. If another process
    /// listens, the files belong to a later session, and stay.
    pub(super) fn clear(&self, key: &str, lock: Lock) -> io::Result<()> {
        if !self.is_there || self.connect(key)?.is_some() {
            return lock.release();
        }
        self.remove(key, "sock")?;
        match statat(&self.fd, format!("{key}.log"), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if stat.st_size == 0 => self.remove(key, "log")?,
            _ => {}
        }
        match unlinkat(&self.fd, format!("{key}.mnt"), AtFlags::REMOVEDIR) {
            // Something may still be mounted on it, or again.
            Ok(()) | Err(Errno::NOENT | Errno::BUSY) => {}
            Err(e) => return Err(e.into()),
        }
        self.remove(key, "lock")?;
        lock.release()
    }

    /// Removes the lock of the session `key`, after a step failed that needs it. Whether there is such a session is not
    /// known: a process that needs the lock makes another file.
    pub(super) fn abandon(&self, key: &str, lock: Lock) -> io::Result<()> {
        self.remove(key, "lock")?;
        lock.release()
    }

    fn remove(&self, key: &str, kind: &str) -> io::Result<()> {
        if !self.is_there {
            return Ok(());
        }
        match unlinkat(&self.fd, format!("{key}.{kind}"), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The keys of the sessions that have a socket, sorted.
    pub(super) fn keys(&self) -> io::Result<Vec<String>> {
        let mut keys = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            keys.extend(name.strip_suffix(".sock").map(str::to_owned));
        }
        keys.sort_unstable();
        Ok(keys)
    }
}

/// The user's directory in `shared`, in which every user can make names. It may not be there yet.
///
/// Another user can make the usual name first, but cannot make a directory that belongs to this user.
fn place_among_others(shared: &Path, user: Uid) -> Result<PathBuf, Cause> {
    let usual = format!("brisk-{}", user.as_raw());
    let owner = |name: &OsStr| lstat(shared.join(name)).map(|stat| stat.st_uid);
    match owner(OsStr::new(&usual)) {
        Ok(found) if found != user.as_raw() => {}
        _ => return Ok(shared.join(usual)),
    }
    let prefix = format!("{usual}.");
    let look = || -> io::Result<PathBuf> {
        let mut own = Vec::new();
        for entry in std::fs::read_dir(shared)? {
            let name = entry?.file_name();
            if name.as_encoded_bytes().starts_with(prefix.as_bytes())
                && owner(&name).is_ok_and(|found| found == user.as_raw())
            {
                own.push(name);
            }
        }
        // All runs of the user take the same one.
        if let Some(first) = own.into_iter().min() {
            return Ok(shared.join(first));
        }
        // Nobody can guess it, so nobody else has made it.
        let random = RandomState::new().build_hasher().finish();
        let made = shared.join(format!("{prefix}{random:016x}"));
        DirBuilder::new().mode(0o700).create(&made)?;
        Ok(made)
    };
    look().map_err(|e| Cause::io(format!("make a directory in {}", shared.display()), e))
}

/// Whether a file cannot be made because its filesystem is full or read-only.
pub(super) fn is_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(
        error.kind(),
        QuotaExceeded | ReadOnlyFilesystem | StorageFull
    )
}

fn memory_file() -> io::Result<OwnedFd> {
    Ok(memfd_create("brisk-session", MemfdFlags::CLOEXEC)?)
}

fn new_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_by_one_and_a_removed_one_by_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = Directory::open_at(&dir.path().join("brisk")).expect("made");
        let lock = directory.lock("k").expect("free");
        assert!(directory.try_lock("k").expect("a file").is_none());
        directory.clear("k", lock).expect("cleared");
        let again = directory.try_lock("k").expect("a file");
        assert!(again.is_some());
        assert_eq!(directory.keys().expect("a list"), Vec::<String>::new());
    }

    #[test]
    fn a_name_that_another_user_has_taken_is_left_to_them() {
        let shared = tempfile::tempdir().expect("a directory");
        let me = geteuid();
        let usual = shared.path().join(format!("brisk-{}", me.as_raw()));
        let place = || place_among_others(shared.path(), me).expect("a place");
        assert_eq!(place(), usual);
        std::fs::create_dir(&usual).expect("a new name");
        assert_eq!(place(), usual);
        // Another user's, which takes root to make.
        let stranger = me.as_raw() + 7;
        std::os::unix::fs::chown(&usual, Some(stranger), None).expect("tests run as root");
        let others = shared.path().join(format!("brisk-{}.0", me.as_raw()));
        std::fs::create_dir(&others).expect("a new name");
        std::os::unix::fs::chown(&others, Some(stranger), None).expect("tests run as root");
        let own = place();
        assert!(own != usual && own != others, "{}", own.display());
        assert_eq!(place(), own);
        Directory::open_at(&own).expect("it is ours");
    }

    #[test]
    fn without_a_directory_there_are_a_lock_and_a_log_and_nobody_to_find_them() {
        let nowhere = Directory::nowhere().expect("memory");
        let lock = nowhere.lock("k").expect("a file");
        assert!(nowhere.listen("k", &lock).expect("no file").is_none());
        assert!(nowhere.connect("k").expect("no file").is_none());
        nowhere.log("k").expect("memory");
        nowhere.clear("k", lock).expect("nothing to do");
    }

    #[test]
    fn a_socket_nobody_listens_on_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = Directory::open_at(&dir.path().join("brisk")).expect("made");
        assert!(directory.connect("k").expect("no fault").is_none());
        let lock = directory.lock("k").expect("free");
        drop(directory.listen("k", &lock).expect("made").expect("shared"));
        assert!(directory.connect("k").expect("no fault").is_none());
        let listener = directory.listen("k", &lock).expect("made");
        assert!(directory.connect("k").expect("no fault").is_some());
        assert_eq!(directory.keys().expect("a list"), ["k"]);
        drop(listener);
    }
}
