//! The directory in which a user's sessions are found.
//!
//! It is `$XDG_RUNTIME_DIR/brisk`, else `/run/user/UID/brisk`, else `/run/brisk` for root, else `/tmp/brisk-UID`. If
//! another user has made that name in `/tmp`, it is `/tmp/brisk-UID.RANDOM`. Each session has files there. On
//! `KEY.sock` its guardian listens. A process holds `KEY.lock` while it makes or ends the session. `KEY.log` stays
//! if something went wrong. `KEY.mnt` is a directory to mount on, for what all programs of the user see.
//!
//! The directory is often in memory. So whoever lists sessions removes what those have left whose processes were killed, and
//! guardians remove all but the last logs.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use brisk_launch::error::{Cause, ErrorKind};
use brisk_launch::owner::is_own;
use brisk_launch::private_directory::open_private;
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, MemfdFlags, Mode, OFlags, flock, fstat, lstat,
    memfd_create, mkdirat, openat, renameat, stat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::{Uid, geteuid};

use crate::action::NO_ROOM;

/// The files of a session cannot be made.
const NO_ROOM_TEXT: &str = "the directory of sessions has no room; free space or inodes there, or set XDG_RUNTIME_DIR to another directory";

/// The files of a session, by their last names.
const KINDS: [&str; 4] = ["lock", "log", "mnt", "sock"];

/// How many logs of sessions that have ended are kept: those of the last in which something went wrong.
pub(super) const KEPT_LOGS: usize = 10;

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
    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

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
            return Err(no_room(io::Error::other(source)));
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
        let fd = open_private(path).map_err(|cause| match cause.io_error() {
            Some(e) if is_no_room(e) => cause.worded(NO_ROOM_TEXT).named(NO_ROOM),
            _ => cause,
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

    /// The file for errors of the session's own processes. As long as one of them has it, it is locked.
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
        let log = openat(
            &self.fd,
            format!("{key}.log"),
            flags,
            Mode::RUSR | Mode::WUSR,
        )?;
        // Others hold it only for the moment of a look: see `has_log_in_use`.
        while let Err(e) = flock(&log, FlockOperation::LockShared) {
            if e != Errno::INTR {
                return Err(e.into());
            }
        }
        Ok(log)
    }

    /// Whether a process of the session `key` lives, as far as its log tells.
    fn has_log_in_use(&self, key: &str) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let log = match openat(&self.fd, format!("{key}.log"), flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(false),
            log => log?,
        };
        match flock(&log, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(false),
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes a directory to mount on, if the user named none. It is removed with the session's other files.
    pub(super) fn make_place(&self, key: &str) -> Result<PathBuf, Cause> {
        match mkdirat(&self.fd, format!("{key}.mnt"), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) if is_no_room(&e.into()) => {
                return Err(no_room(e.into()));
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

    /// Gives the socket of the session `key` the name of another key, which has a dot behind this one.
    pub(super) fn retire(&self, key: &str, other: &str) -> io::Result<()> {
        let [old, new] = [key, other].map(|key| format!("{key}.sock"));
        match self.is_there {
            true => Ok(renameat(&self.fd, old, &self.fd, new)?),
            false => Ok(()),
        }
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
        // Something may still be mounted there, or again.
        self.keeps_place(key)?;
        self.remove(key, "lock")?;
        lock.release()
    }

    /// Removes the lock of the session `key`, after a step failed that needs it. Whether there is such a session is not
    /// known: a process that needs the lock makes another file.
    pub(super) fn abandon(&self, key: &str, lock: Lock) -> io::Result<()> {
        self.remove(key, "lock")?;
        lock.release()
    }

    /// Removes what sessions have left of which no process lives. Of their logs in which something is, the last `kept` stay.
    ///
    /// A socket on which nobody listens tells that all processes of its session were killed, and that a mount may be left, and so
    /// does a directory to mount on without a socket. With `mounts`, the caller has looked for such mounts. Otherwise these
    /// sessions keep their files.
    pub(super) fn sweep(&self, kept: usize, mounts: bool) -> io::Result<()> {
        if !self.is_there {
            return Ok(());
        }
        let spared = if mounts { Vec::new() } else { self.keys()? };
        let mut logs = Vec::new();
        for key in self.keys_of(&KINDS)? {
            // Without asking any guardian, because each would wake up.
            let of_log = key.split_once('.').map_or(&*key, |(key, _)| key);
            if spared.contains(&key) || self.has_log_in_use(of_log)? {
                continue;
            }
            // Somebody makes or ends this session now.
            let Some(lock) = self.try_lock(&key)? else {
                continue;
            };
            // A guardian of an earlier version of brisk locks no log.
            if self.connect(&key)?.is_some() || self.keeps_place(&key)? {
                lock.release()?;
                continue;
            }
            self.clear(&key, lock)?;
            match statat(&self.fd, format!("{key}.log"), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => logs.push((stat.st_mtime, stat.st_mtime_nsec, key)),
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
        }
        logs.sort_unstable();
        let old = logs.len().saturating_sub(kept);
        logs.iter()
            .take(old)
            .try_for_each(|(.., key)| self.remove(key, "log"))
    }

    /// Removes the directory to mount on, unless something is mounted there.
    fn keeps_place(&self, key: &str) -> io::Result<bool> {
        match unlinkat(&self.fd, format!("{key}.mnt"), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(false),
            Err(Errno::BUSY) => Ok(true),
            Err(e) => Err(e.into()),
        }
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

    /// The keys of the sessions that have a socket or a directory to mount on, sorted.
    pub(super) fn keys(&self) -> io::Result<Vec<String>> {
        self.keys_of(&["mnt", "sock"])
    }

    /// The keys of the files of these kinds, sorted, each once.
    fn keys_of(&self, kinds: &[&str]) -> io::Result<Vec<String>> {
        let mut keys = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let parts = name.rsplit_once('.');
            let parts = parts.filter(|(_, kind)| kinds.contains(kind));
            keys.extend(parts.map(|(key, _)| key.to_owned()));
        }
        keys.sort_unstable();
        keys.dedup();
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

fn no_room(e: io::Error) -> Cause {
    let cause = Cause::new(ErrorKind::Io, NO_ROOM_TEXT).named(NO_ROOM);
    cause.because(e)
}

/// The cause of a failed step in the directory of sessions.
pub(super) fn without_room(step: &'static str) -> impl Fn(io::Error) -> Cause + Copy {
    move |e| match is_no_room(&e) {
        true => no_room(e),
        false => Cause::io(step, e),
    }
}

/// The session of a key ended each time when somebody was about to join it.
pub(super) fn session_lost(tries: u32) -> Cause {
    Cause::busy(format!(
        "its session ended {tries} times just before this run could join it; try again"
    ))
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

    /// The names in a directory, sorted.
    fn names(path: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(path).expect("a directory");
        let names = entries.map(|entry| entry.expect("a name").file_name());
        let mut names: Vec<_> = names
            .map(|name| name.into_string().expect("text"))
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn only_what_no_process_has_is_swept_away() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("brisk");
        let directory = Directory::open_at(&path).expect("made");
        let listen = |key: &str| {
            let lock = directory.lock(key).expect("free");
            let socket = directory.listen(key, &lock).expect("made");
            lock.release().expect("ours");
            socket
        };
        // One that lives, one that ends with its last program, one that is being made, one of an earlier version, and one whose
        // processes were killed.
        let living = (listen("living"), directory.log("living").expect("made"));
        let lazy = directory.log("lazy").expect("made");
        let made = directory.lock("made").expect("free");
        let earlier = listen("earlier");
        std::fs::write(path.join("earlier.log"), "something\n").expect("room");
        drop((listen("killed"), directory.log("killed").expect("made")));
        std::fs::create_dir(path.join("killed.mnt")).expect("room");
        // No file of a session.
        std::fs::write(path.join("note.txt"), "").expect("room");
        let of_killed = ["killed.lock", "killed.log", "killed.mnt", "killed.sock"];
        directory.sweep(0, false).expect("swept");
        assert!(of_killed.iter().all(|name| path.join(name).exists()));
        directory.sweep(0, true).expect("swept");
        let of_earlier = ["earlier.lock", "earlier.log", "earlier.sock"];
        let of_others = [
            "lazy.log",
            "living.lock",
            "living.log",
            "living.sock",
            "made.lock",
            "note.txt",
        ];
        assert_eq!(names(&path), [&of_earlier[..], &of_others].concat());
        drop((living, lazy, earlier));
        made.release().expect("ours");
        directory.sweep(0, true).expect("swept");
        assert_eq!(names(&path), ["note.txt"]);
    }

    #[test]
    fn the_last_logs_in_which_something_is_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("brisk");
        let directory = Directory::open_at(&path).expect("made");
        for (second, key) in (0u64..).zip(["c", "a", "d", "b"]) {
            std::fs::write(path.join(format!("{key}.log")), "something\n").expect("room");
            let log = std::fs::File::open(path.join(format!("{key}.log"))).expect("made");
            let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second);
            log.set_modified(time).expect("ours");
        }
        std::fs::write(path.join("empty.log"), "").expect("room");
        directory.sweep(2, false).expect("swept");
        assert_eq!(names(&path), ["b.log", "d.log"]);
        directory.sweep(0, true).expect("swept");
        assert_eq!(names(&path), Vec::<String>::new());
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
