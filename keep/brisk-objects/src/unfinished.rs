use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::opener::Opener;

/// A file that is being written beside the name that it gets in the end. It goes when this is dropped, unless by a forked
/// child. The lock of the file (`flock`) says that somebody is still writing: if its writer was killed, the next one removes
/// it.
pub(crate) struct Unfinished {
    /// The name that it gets.
    target: PathBuf,
    path: PathBuf,
    /// Has the lock.
    file: File,
    opener: Opener,
}

/// What the names end with.
const END: &str = ".load";
/// Digits of a name.
const DIGITS: usize = 16;
/// How often a file is made again that another process has removed before it was locked.
const TRIES: usize = 100;

impl Unfinished {
    /// Makes an empty file, and removes what killed writers to the same target have left.
    pub(crate) fn beside(target: &Path) -> Result<Self, Error> {
        remove_left(target)?;
        for _ in 0..TRIES {
            if let Some(made) = Self::make(target)? {
                return Ok(made);
            }
        }
        let message = format!(
            "other programs remove what is written beside {}; try again",
            target.display()
        );
        Err(io::Error::new(ErrorKind::ResourceBusy, message).into())
    }

    /// None: the name was taken, or another process has removed the file.
    fn make(target: &Path) -> io::Result<Option<Self>> {
        let mut name = target.as_os_str().to_owned();
        // Each state has keys of its own, which the kernel has drawn.
        let number = RandomState::new().hash_one(std::process::id());
        name.push(format!(".{number:0DIGITS$x}{END}"));
        let path = PathBuf::from(name);
        let mut options = OpenOptions::new();
        // As LMDB makes its files.
        let made = options.write(true).create_new(true).mode(0o600).open(&path);
        let file = match made {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(None),
            made => made.map_err(|e| {
                let message = format!("cannot make {}: {e}", path.display());
                io::Error::new(e.kind(), message)
            })?,
        };
        // Another process may have come between the file and its lock.
        let is_mine = is_locked(&file)? && is_at(&file, &path)?;
        Ok(is_mine.then(|| Self {
            target: target.to_owned(),
            path,
            file,
            opener: Opener::this_process(),
        }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file its name. Another one of this name is an error.
    pub(crate) fn appear(self) -> Result<(), Error> {
        match self.has_appeared()? {
            true => Ok(()),
            false => Err(self.taken()),
        }
    }

    /// Gives the file its name. False: there is another one of this name, which stays.
    pub(crate) fn has_appeared(&self) -> Result<bool, Error> {
        let target = &self.target;
        match fs::hard_link(&self.path, target) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(false),
            linked => linked.map_err(|e| {
                let message = format!("cannot give {} its name: {e}", target.display());
                io::Error::new(e.kind(), message)
            })?,
        }
        remove(&self.path)?;
        let directory = target.parent().unwrap_or(Path::new("/"));
        File::open(directory)?.sync_all()?;
        Ok(true)
    }

    /// The error of a name that another program has taken.
    pub(crate) fn taken(&self) -> Error {
        let message = format!(
            "another program has made {} meanwhile; nothing was written, so write again",
            self.target.display()
        );
        io::Error::new(ErrorKind::AlreadyExists, message).into()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.opener.check().is_ok() {
            // If this fails, the next writer tries again.
            remove(&self.path).ok();
        }
    }
}

/// Takes the lock of a file. False if another process has it.
fn is_locked(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

/// Whether a file still has a name.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let metadata = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (metadata.dev(), metadata.ino())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes a file and that of its readers: first the latter, which nobody would find without the other one.
fn remove(path: &Path) -> io::Result<()> {
    let mut readers = path.as_os_str().to_owned();
    readers.push("-lock");
    for path in [Path::new(&readers), path] {
        match fs::remove_file(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Removes what killed writers to a target have left.
fn remove_left(target: &Path) -> io::Result<()> {
    let directory = target.parent().unwrap_or(Path::new("/"));
    let target = target.file_name().unwrap_or_default();
    let entries = match fs::read_dir(directory) {
        // Files may be made there all the same.
        Err(e) if e.kind() == ErrorKind::PermissionDenied => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if is_unfinished(&entry.file_name(), target) && entry.file_type()?.is_file() {
            let path = entry.path();
            // One that another user has made is that user's.
            let Ok(file) = File::open(&path) else {
                continue;
            };
            if is_locked(&file)? && is_at(&file, &path)? {
                remove(&path).ok();
            }
        }
    }
    Ok(())
}

/// Whether a file of this name was made to become `target`.
fn is_unfinished(name: &OsStr, target: &OsStr) -> bool {
    let digits = name
        .as_bytes()
        .strip_prefix(target.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"."))
        .and_then(|rest| rest.strip_suffix(END.as_bytes()));
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}
