//! Errors of LMDB, which names neither a file nor a page, told with both.

use std::io;
use std::path::Path;

use heed::{Env, MdbError, WithoutTls};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, fallocate, openat};
use rustix::io::Errno;

use crate::error::Error;
use crate::untyped::pages;

/// An outcome of LMDB whose error is to be told.
pub(crate) trait Told<T> {
    /// Names the file of `env`, which is open.
    fn told(self, env: &Env<WithoutTls>) -> Result<T, Error>;
}

impl<T> Told<T> for heed::Result<T> {
    #[inline]
    fn told(self, env: &Env<WithoutTls>) -> Result<T, Error> {
        self.map_err(|e| of_open_file(env, e))
    }
}

/// An error in the use of a file that is open.
#[cold]
pub(crate) fn of_open_file(env: &Env<WithoutTls>, e: heed::Error) -> Error {
    match e {
        heed::Error::Mdb(MdbError::MapFull) => {
            // If killed readers hold pages, the next transaction has room. If they cannot be told, it is full again.
            env.clear_stale_readers().ok();
            let limit = u64::try_from(env.info().map_size).unwrap_or(u64::MAX);
            Error::Full { limit }
        }
        heed::Error::Mdb(MdbError::MapResized) => Error::HigherLimit {
            path: env.path().to_owned(),
        },
        heed::Error::Mdb(MdbError::ReadersFull) => Error::TooManyReaders {
            most: env.max_readers(),
        },
        e => told(env.path(), "read or write", e),
    }
}

/// An error of LMDB, after it tried to do something with a file.
#[cold]
pub(crate) fn told(path: &Path, doing: &str, e: heed::Error) -> Error {
    let own = path.to_owned();
    match e {
        heed::Error::EnvAlreadyOpened => Error::OpenAlready { path: own },
        heed::Error::Mdb(kind @ (MdbError::Invalid | MdbError::VersionMismatch)) => {
            Error::Foreign {
                path: own,
                found: kind.to_string(),
            }
        }
        heed::Error::Io(e) if e.kind() == io::ErrorKind::WouldBlock => {
            Error::SameProcessNumber { path: own }
        }
        heed::Error::Io(e) => {
            let e = match e.raw_os_error() {
                Some(code) if code == Errno::IO.raw_os_error() => short_write(path).unwrap_or(e),
                _ => e,
            };
            let message = format!("cannot {doing} {}: {e}", path.display());
            io::Error::new(e.kind(), message).into()
        }
        // It says no more than that a page is wrong, and from then on only that something was.
        e => match pages::first_fault(path) {
            Some((page, more)) => Error::Pages {
                path: own,
                page,
                more,
            },
            None => Error::Store {
                path: own,
                found: e.to_string(),
            },
        },
    }
}

/// Why the system wrote less than it should. LMDB says EIO then, whatever the cause is. None if there is room.
fn short_write(path: &Path) -> Option<io::Error> {
    /// More than is left where a write came to its end.
    const ROOM: u64 = 64 << 10;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = openat(CWD, path.parent()?, flags, Mode::RUSR | Mode::WUSR);
    match file.and_then(|file| fallocate(&file, FallocateFlags::empty(), 0, ROOM)) {
        Err(e @ (Errno::NOSPC | Errno::DQUOT)) => Some(e.into()),
        _ => None,
    }
}
