//! Where a learned pack is made.
//!
//! Who makes a pack decodes the blocks of an image, which anybody may have written. The pages of learned packs get into
//! the memory of programs, so nobody who decodes may write beside the packs of other images. A pack is made in a
//! directory of its own, and a process that decodes nothing gives it its name.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::getpid;

/// How the names of unfinished files start.
pub const TEMPORARY: &str = ".brisk-";

/// A directory in that of the learned packs, for one pack.
///
/// 1. It has files only, because who writes there may make no directories.
pub struct Staging<'a> {
    packs: BorrowedFd<'a>,
    name: String,
    directory: OwnedFd,
}

impl<'a> Staging<'a> {
    /// Makes it in `packs`, for the calling process.
    pub fn make(packs: BorrowedFd<'a>) -> io::Result<Self> {
        let name = format!("{TEMPORARY}staging-{}", getpid());
        // A killed process of the same number may have left it.
        remove(packs, &name)?;
        mkdirat(packs, &name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(packs, &name, flags, Mode::empty())?;
        Ok(Self {
            packs,
            name,
            directory,
        })
    }

    /// The open directory.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The path of a file in it.
    pub fn reach(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()).into()
    }

    /// The length of a file in it.
    pub fn len(&self, name: &str) -> io::Result<u64> {
        let stat = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// A file in it, which whoever writes there may have replaced with anything.
    pub fn open(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.directory, name, flags, Mode::empty())?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(Errno::INVAL.into()),
        }
    }

    /// Gives a file of it the name `learned` among the learned packs.
    pub fn keep(&self, name: &str, learned: &str) -> io::Result<()> {
        Ok(renameat(&self.directory, name, self.packs, learned)?)
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        // What stays is removed as any abandoned file is.
        remove(self.packs, &self.name).ok();
    }
}

/// Removes such a directory with its files, if there is one.
pub fn remove(packs: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(packs, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            unlinkat(&directory, entry.file_name(), AtFlags::empty())?;
        }
    }
    Ok(unlinkat(packs, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_kept_gets_its_name_and_the_rest_goes() {
        let packs = tempfile::tempdir().expect("a directory");
        let directory = File::open(packs.path()).expect("made");
        let names = || -> Vec<_> {
            let entries = fs::read_dir(packs.path()).expect("a directory");
            entries.map(|e| e.expect("read").file_name()).collect()
        };
        let staging = Staging::make(directory.as_fd()).expect("room");
        fs::write(staging.reach("hot"), "pack").expect("room");
        fs::write(staging.reach("rest"), "").expect("room");
        assert_eq!(staging.len("hot").expect("written"), 4);
        staging.keep("hot", "a.hot").expect("room");
        drop(staging);
        assert_eq!(names(), ["a.hot"]);
        assert_eq!(fs::read(packs.path().join("a.hot")).expect("kept"), b"pack");

        // Of a process that was killed.
        let left = Staging::make(directory.as_fd()).expect("room");
        fs::write(left.reach("hot"), "half").expect("room");
        std::mem::forget(left);
        let again = Staging::make(directory.as_fd()).expect("room");
        assert!(!again.reach("hot").exists());
    }
}
