//! The file, as LMDB opens it. The only unsafe code of this crate.

#![allow(unsafe_code)]

use std::ops::Deref;
use std::path::Path;
use std::{io, mem};

use heed::{Env, EnvFlags, EnvOpenOptions, WithoutTls};

use crate::durability::Durability;
use crate::error::Error;
use crate::lock_file;
use crate::opener::Opener;
use crate::store_error;

/// Readers at one time, unless the options say another number.
pub(crate) const READERS: u32 = 1024;

/// Pages of all machines divide this.
const PAGE: u64 = 1 << 16;

/// An open file.
///
/// A forked child does not close it: that waits for a lock of heed, which another thread of the parent may have had at the
/// fork, and nobody gives back in the child.
pub(crate) struct Environment {
    env: Env<WithoutTls>,
    opener: Opener,
}

impl Environment {
    fn new(env: Env<WithoutTls>) -> Self {
        let opener = Opener::this_process();
        Self { env, opener }
    }

    /// An error in a forked child of the process that has opened the file.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.opener.check()
    }
}

impl Deref for Environment {
    type Target = Env<WithoutTls>;

    fn deref(&self) -> &Self::Target {
        &self.env
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // With one handle more, the last one is never dropped.
            mem::forget(self.env.clone());
        }
    }
}

/// What an open file has room for, and what its commits wait for.
pub(crate) struct Room {
    /// The most bytes of the file.
    pub(crate) limit: u64,
    /// The most readers at one time.
    pub(crate) readers: u32,
    /// Tables that can be open, besides the one that says what the others are.
    pub(crate) tables: u32,
    pub(crate) durability: Durability,
}

/// Opens the file.
///
/// # Safety
///
/// While the environment is open, nothing but LMDB writes to the file.
pub(crate) unsafe fn open(path: &Path, room: &Room) -> Result<Environment, Error> {
    let limit = whole_pages(room.limit)?;
    lock_file::make_for_owner(path)?;
    let mut open = EnvOpenOptions::new().read_txn_without_tls();
    open.map_size(limit)
        .max_readers(room.readers)
        .max_dbs(room.tables.saturating_add(1));
    let mut flags = EnvFlags::NO_SUB_DIR;
    flags |= match room.durability {
        Durability::Full => EnvFlags::empty(),
        Durability::Last => EnvFlags::NO_META_SYNC,
        Durability::Lazy => EnvFlags::NO_SYNC,
    };
    // SAFETY: no flag breaks what LMDB promises for its memory: the first is about names, and the others about what a loss of
    // power leaves. That is a whole older state (LMDB, `MDB_NOMETASYNC`), or a file that is refused, since it is marked
    // (`MDB_NOSYNC`, `lazy_mark.rs`).
    unsafe { open.flags(flags) };
    // SAFETY: the caller promises that nothing else writes to the file.
    let opened = unsafe { open.open(path) };
    opened
        .map(Environment::new)
        .map_err(|e| unopened(path, Some(limit), e))
}

/// What a file that is there is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// To read it while others write. A place in the file of the readers is written.
    Read,
    /// To read what nobody writes to. Nothing is written, and no file of readers is needed.
    ReadFrozen,
    /// To change it, up to a limit of bytes.
    Write(u64),
}

/// Opens a file that is there, with room for so many tables.
///
/// # Safety
///
/// While the environment is open, nothing but LMDB writes to the file; and with [`Access::ReadFrozen`], LMDB does not, either.
pub(crate) unsafe fn open_existing(
    path: &Path,
    tables: u32,
    access: Access,
) -> Result<Environment, Error> {
    if access != Access::ReadFrozen {
        lock_file::make_for_owner(path)?;
    }
    let mut open = EnvOpenOptions::new().read_txn_without_tls();
    open.max_dbs(tables).max_readers(READERS);
    let mut flags = EnvFlags::NO_SUB_DIR;
    let mut limit = None;
    match access {
        Access::Write(bytes) => {
            open.map_size(*limit.insert(whole_pages(bytes)?));
        }
        // Who only reads maps what the file has.
        Access::Read => flags |= EnvFlags::READ_ONLY,
        Access::ReadFrozen => flags |= EnvFlags::READ_ONLY | EnvFlags::NO_LOCK,
    }
    // SAFETY: no flag breaks what LMDB promises for its memory: one is about names, another one allows less, and locks keep
    // writers from pages that are read, where the caller promises that there is none.
    unsafe { open.flags(flags) };
    // SAFETY: the caller promises that nothing else writes to the file.
    let opened = unsafe { open.open(path) };
    opened
        .map(Environment::new)
        .map_err(|e| unopened(path, limit, e))
}

/// A limit in whole pages.
fn whole_pages(limit: u64) -> Result<usize, Error> {
    let whole = limit.max(PAGE).checked_next_multiple_of(PAGE);
    let bytes = whole.and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| {
        let message = format!("a limit of {limit} bytes, which no address can have");
        io::Error::new(io::ErrorKind::InvalidInput, message).into()
    })
}

/// The error of a file that could not be opened, with a limit of so many bytes if there is one.
fn unopened(path: &Path, limit: Option<usize>, e: heed::Error) -> Error {
    match (e, limit) {
        (heed::Error::Io(e), Some(limit)) if e.kind() == io::ErrorKind::OutOfMemory => {
            let message = format!(
                "cannot open {}: {e}; its limit reserves {limit} bytes of addresses, perhaps more than this process may have \
                 (ulimit -v): name a lower limit",
                path.display()
            );
            io::Error::new(e.kind(), message).into()
        }
        (e, _) => store_error::told(path, "open", e),
    }
}
