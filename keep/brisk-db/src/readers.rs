//! Who reads a database, as LMDB notes it in the file beside it.
//!
//! LMDB hands out no list without unsafe code, so this reads the table, whose form is in `mdb.c`. A process that reads has a lock
//! on the byte of its number, by which the kernel says whether it lives.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

/// The table begins with this.
const MAGIC: u32 = 0xbeef_c0de;
/// Each part of the table begins at a multiple of this.
const LINE: usize = 64;

/// A place of the table that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reader {
    pub(crate) process: u32,
    /// The state that it reads. None: it reads nothing at the moment.
    pub(crate) transaction: Option<u64>,
    /// Whether the process lives.
    pub(crate) is_alive: bool,
}

/// The places of a database that are taken. It must be closed: a process that closes this file loses its locks on it.
pub(crate) fn find(database: &Path) -> io::Result<Vec<Reader>> {
    let file = match File::open(lock_path(database)?) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    // Numbers, and then a mutex of readers, and one of writers.
    let mutex = size_of::<libc::pthread_mutex_t>();
    let first = (24 + mutex).next_multiple_of(LINE) + mutex.next_multiple_of(LINE);
    let mut head = [0; 24];
    if file.read_exact_at(&mut head, 0).is_err() || u32_at(&head, 0) != Some(MAGIC) {
        return Ok(Vec::new());
    }
    let count = u32_at(&head, 16).unwrap_or(0);
    let mut readers = Vec::new();
    for place in 0..u64::from(count) {
        let line = u64::try_from(LINE).unwrap_or(0);
        let at = u64::try_from(first)
            .unwrap_or(0)
            .saturating_add(place.saturating_mul(line));
        let mut slot = [0; 24];
        if file.read_exact_at(&mut slot, at).is_err() {
            break;
        }
        let process = u32_at(&slot, 8).unwrap_or(0);
        if process == 0 {
            continue;
        }
        readers.push(Reader {
            process,
            transaction: u64_at(&slot, 0).filter(|number| *number != u64::MAX),
            is_alive: is_locked(&file, process)?,
        });
    }
    Ok(readers)
}

fn lock_path(database: &Path) -> io::Result<PathBuf> {
    let mut path = database.canonicalize()?.into_os_string();
    path.push("-lock");
    Ok(path.into())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Whether a process holds the lock of its number.
fn is_locked(file: &File, process: u32) -> io::Result<bool> {
    let wanted = Flock {
        start: process.into(),
        length: 1,
        pid: None,
        typ: FlockType::ReadLock,
        offset_type: FlockOffsetType::Set,
    };
    // Readers hold it for writing.
    Ok(fcntl_getlk(file, &wanted)?.is_some())
}
