//! A directory of the user that keeps what programs write over an image, from one session to the next.
//!
//! It has three entries: `upper`, the layer itself, `work`, in which the kernel prepares changes, and `lock`, which a
//! session holds as long as it lives. The kernel marks what was removed or replaced by attributes whose names begin with
//! `user.overlay.`, for root too, so that it does not matter who writes to the layer first.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use brisk_launch::error::{Advice, Cause, Shown};
use brisk_launch::open::by_descriptor;
use brisk_launch::owner::is_own;
use rustix::fs::{
    CWD, FlockOperation, Mode, OFlags, XattrFlags, flock, fremovexattr, fsetxattr, fstat, fstatfs,
    mkdirat, openat,
};
use rustix::io::Errno;

const UPPER: &str = "upper";
const WORK: &str = "work";
const LOCK: &str = "lock";

/// File systems that hold files of their own, but no layer: by their number in the kernel's `magic.h`.
const UNFIT: [(u64, &str); 7] = [
    (0x794c_7630, "an overlay"),
    (0x6573_5546, "FUSE"),
    (0x6969, "NFS"),
    (0x0102_1997, "9p"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0x4d44, "FAT"),
];

/// How long a session that has ended may hold its lock.
const ENDS: Duration = Duration::from_secs(5);

/// How long to wait until the lock is tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// Bytes of the lock that are read: the path of an image.
const NAME: usize = 4096;

/// An attribute to try whether the file system has any.
const TRIED: &str = "user.brisk";

/// A layer that this process has locked.
pub(crate) struct LastingLayer {
    directory: PathBuf,
    held: OwnedFd,
    upper: OwnedFd,
    /// None until [`LastingLayer::prepare`]. So a layer that has it was prepared once.
    work: Option<OwnedFd>,
}

/// The lock of a layer. Whoever holds it keeps other sessions from writing there.
pub(crate) struct LayerLock {
    file: File,
    directory: PathBuf,
}

impl LayerLock {
    pub(crate) fn fd(&self) -> std::os::fd::RawFd {
        self.file.as_raw_fd()
    }

    /// The directory of the layer, by its name when the session was made.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// The canonical path of the layer in `directory`, which is made if it does not exist.
pub(crate) fn make(directory: &Path) -> Result<PathBuf, Cause> {
    match rustix::fs::mkdir(directory, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(Cause::io(format!("make {}", directory.display()), e)),
    }
    directory
        .canonicalize()
        .map_err(|e| Cause::io(format!("resolve {}", directory.display()), e))
}

impl LastingLayer {
    /// Opens and locks the layer in `directory`, and makes it if there is none. `image` is what is written there.
    pub(crate) fn open(directory: &Path, image: &Path) -> Result<(Self, LayerLock), Cause> {
        let failed = |what: &str| {
            let what = format!("{what} {}", directory.display());
            move |e: Errno| Cause::io(what, e)
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = openat(CWD, directory, flags, Mode::empty()).map_err(failed("open"))?;
        let refused = |why: String| {
            let directory = Shown(directory);
            Cause::unsupported(format!(
                "what is written cannot be kept in {directory}: {why}"
            ))
        };
        let stat = fstat(&held).map_err(failed("examine"))?;
        if !is_own(stat.st_uid) || stat.st_mode & 0o022 != 0 {
            return Err(refused(
                "others own it or may write to it, and could change programs there; name a directory that only you may \
                 write to"
                    .to_owned(),
            ));
        }
        if let Some(other) = other_entry(directory)? {
            return Err(refused(format!(
                "it has {other:?}, which is no part of a layer; name an empty directory, or one that does not exist"
            )));
        }
        let file_system = fstatfs(&held).map_err(failed("examine"))?.f_type;
        // The kernel's numbers have 32 bits, and some systems extend their sign.
        let number = file_system as u64 & 0xffff_ffff;
        if let Some((_, name)) = UNFIT.iter().find(|(unfit, _)| *unfit == number) {
            return Err(refused(format!(
                "it is on {name}, which cannot hold the writable layer of an overlay; name a directory on a local disk \
                 (ext4, XFS, Btrfs)"
            )));
        }
        let lock = lock(&held, directory, image)?;
        let upper = match mkdirat(&held, UPPER, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {
                directory_in(&held, UPPER).map_err(failed("use the layer in"))?
            }
            Err(e) => return Err(failed("make a layer in")(e)),
        };
        // Of the layer itself, the user may have no right to write: it has the mode of the image's root.
        match fsetxattr(&lock.file, TRIED, b"1", XattrFlags::empty()) {
            Ok(()) => fremovexattr(&lock.file, TRIED).map_err(failed("use the layer in"))?,
            Err(Errno::OPNOTSUPP) => {
                return Err(refused(
                    "its file system keeps no attributes of users, by which an overlay marks what was removed; name a \
                     directory on a local disk (ext4, XFS, Btrfs)"
                        .to_owned(),
                ));
            }
            Err(e) => return Err(failed("use the layer in")(e)),
        }
        let work = match directory_in(&held, WORK) {
            Ok(work) => Some(work),
            Err(Errno::NOENT) => None,
            Err(e) => return Err(failed("use the layer in")(e)),
        };
        let layer = Self {
            directory: directory.to_owned(),
            held,
            upper,
            work,
        };
        Ok((layer, lock))
    }

    /// Opens it again in the mount namespace of this process: the kernel takes no directories of another one.
    pub(super) fn enter_namespace(&mut self) -> Result<(), Cause> {
        let failed =
            |e: Errno| Cause::io(format!("use the layer in {}", self.directory.display()), e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = openat(CWD, &self.directory, flags, Mode::empty()).map_err(failed)?;
        let id = |fd: &OwnedFd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        if id(&held).map_err(failed)? != id(&self.held).map_err(failed)? {
            // It was exchanged just now.
            return Err(failed(Errno::STALE));
        }
        self.upper = directory_in(&held, UPPER).map_err(failed)?;
        if self.work.is_some() {
            self.work = Some(directory_in(&held, WORK).map_err(failed)?);
        }
        self.held = held;
        Ok(())
    }

    /// Makes it like the root of the image at `image`, when it is used for the first time.
    pub(super) fn prepare(&mut self, image: &Path) -> Result<(), Cause> {
        if self.work.is_none() {
            super::overlay::copy_owner_and_mode(image, &by_descriptor(&self.upper))?;
            let failed =
                |e: Errno| Cause::io(format!("make a layer in {}", self.directory.display()), e);
            mkdirat(&self.held, WORK, Mode::RWXU).map_err(failed)?;
            self.work = Some(directory_in(&self.held, WORK).map_err(failed)?);
        }
        Ok(())
    }

    /// The options of the overlay. The names need no escapes, and lead to the directories wherever they are.
    pub(super) fn options(&self) -> String {
        let upper = by_descriptor(&self.upper);
        let work = by_descriptor(self.work.as_ref().unwrap_or(&self.held));
        format!(
            ",upperdir={},workdir={},index=off,userxattr",
            upper.display(),
            work.display()
        )
    }

    /// Why the overlay could not be mounted.
    pub(super) fn failure(&self, source: io::Error) -> Cause {
        let text = format!(
            "the system could not mount an overlay that writes to {}; use Linux 5.11 or later and a directory on a local disk \
             (ext4, XFS, Btrfs), or load it with modprobe overlay",
            Shown(&self.directory)
        );
        Cause::unsupported(text)
            .advise(Advice::OtherLayer)
            .because(source)
    }
}

/// The first entry that no layer has. The kernel empties `work`, so it counts as one only beside a lock, which comes first.
fn other_entry(directory: &Path) -> Result<Option<std::ffi::OsString>, Cause> {
    let failed = |e| Cause::io(format!("list {}", directory.display()), e);
    let is_locked = is_lock(&directory.join(LOCK)).map_err(failed)?;
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !is_locked || ![UPPER, WORK, LOCK].iter().any(|known| name == *known) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Whether a file is the lock of a layer: it has the path of an image, or nothing.
fn is_lock(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => {
            Ok(found.len() == 0 || holder(&File::open(path)?).is_absolute())
        }
        Ok(_) => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// A directory in another one, without following links.
fn directory_in(parent: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Locks the layer, and writes into the lock which image it belongs to meanwhile.
fn lock(held: &OwnedFd, directory: &Path, image: &Path) -> Result<LayerLock, Cause> {
    let failed = |e: io::Error| Cause::io(format!("lock the layer in {}", directory.display()), e);
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(held, LOCK, flags, Mode::RUSR | Mode::WUSR);
    let file = File::from(file.map_err(|e| failed(e.into()))?);
    let deadline = Instant::now() + ENDS;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => thread::sleep(AGAIN),
            Err(Errno::WOULDBLOCK) => {
                let text = format!(
                    "another session keeps in {} what is written to {}",
                    Shown(directory),
                    Shown(&holder(&file))
                );
                return Err(Cause::busy(text).advise(Advice::LayerTaken));
            }
            Err(e) => return Err(failed(e.into())),
        }
    }
    file.set_len(0).map_err(failed)?;
    file.write_all_at(image.as_os_str().as_bytes(), 0)
        .map_err(failed)?;
    let directory = directory.to_owned();
    Ok(LayerLock { file, directory })
}

/// The image of the session that holds the lock. Empty if it says none.
fn holder(file: &File) -> PathBuf {
    let mut name = vec![0; NAME];
    // If it cannot be read, only the message has less to say.
    let read = file.read_at(&mut name, 0);
    name.truncate(read.unwrap_or(0));
    std::ffi::OsString::from_vec(name).into()
}
