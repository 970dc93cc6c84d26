//! The mark of a file whose commits wait for no disk.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::Error;

/// A file beside a database, whose name ends with `-lazy`. It is on the disk before the first commit that waits for none, and goes
/// when all is on the disk.
///
/// 1. It has the number of the boot, which another boot does not have. So what the machine had in memory is lost.
/// 2. Each process that commits so has it locked together with the others. So if nobody has, they were killed.
pub(crate) struct LazyMark {
    file: File,
    path: PathBuf,
}

fn mark_of(database: &Path) -> PathBuf {
    let mut name = OsString::from(database);
    name.push("-lazy");
    name.into()
}

fn boot() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
}

impl LazyMark {
    /// Refuses a database that was open so when the machine stopped.
    pub(crate) fn refuse(database: &Path) -> Result<(), Error> {
        let mark = mark_of(database);
        match fs::read_to_string(&mark) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            // Nothing was committed before the mark was on the disk, with its contents.
            Ok(found) if found.is_empty() || found == boot()? => Ok(()),
            Ok(_) => Err(Error::Unsynced {
                path: database.to_owned(),
                mark,
            }),
            Err(e) => Err(told(&mark, e)),
        }
    }

    /// Marks a database.
    pub(crate) fn set(database: &Path) -> Result<Self, Error> {
        let path = mark_of(database);
        let set = || {
            loop {
                let mut file = File::options()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(&path)?;
                flock(&file, FlockOperation::LockShared)?;
                if !has_name(&file, &path)? {
                    // The last one who had it has removed it meanwhile.
                    continue;
                }
                let mut found = String::new();
                file.read_to_string(&mut found)?;
                let boot = boot()?;
                if found != boot {
                    file.rewind()?;
                    file.write_all(boot.as_bytes())?;
                }
                file.sync_all()?;
                File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
                let path = path.clone();
                return Ok(Self { file, path });
            }
        };
        set().map_err(|e| told(&path, e))
    }

    /// Takes the mark back, unless others still commit so. To be called when all is on the disk.
    pub(crate) fn end(self) {
        if flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // If that fails, a later boot refuses the file, and says why.
            fs::remove_file(&self.path).ok();
        }
    }

    /// Takes back the mark of processes that were killed, after `sync` has put all on the disk.
    pub(crate) fn end_of_killed(
        database: &Path,
        sync: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let path = mark_of(database);
        let file = match File::open(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            file => file.map_err(|e| told(&path, e))?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                sync()?;
                if has_name(&file, &path)? {
                    fs::remove_file(&path).map_err(|e| told(&path, e))?;
                }
                Ok(())
            }
            Err(Errno::WOULDBLOCK) => Ok(()),
            Err(e) => Err(told(&path, e.into())),
        }
    }
}

/// Whether a file still has its name.
fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        named => Ok(id(named?) == id(file.metadata()?)),
    }
}

fn told(mark: &Path, e: io::Error) -> Error {
    let message = format!("cannot use the mark {}: {e}", mark.display());
    io::Error::new(e.kind(), message).into()
}
