use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, fallocate, fdatasync, fsync, linkat, renameat, unlinkat,
};
use rustix::io::{Errno, pwrite};

use crate::directory::{Directory, unnamed_path};

/// Everything that a cache does to its directory. Nothing else in this crate writes.
///
/// Tests have others: one that fails at any call, and one that records the calls, so that every state in which a loss of
/// power can leave the disk can be made and opened.
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// Makes a file, which must not exist, and opens it for reading and writing.
    fn create(&self, directory: &Directory, name: &str) -> io::Result<File>;

    /// Makes a file without a name, which is gone if this process is killed. None if this filesystem has no such files.
    fn create_unnamed(&self, directory: &Directory) -> io::Result<Option<File>>;

    /// Gives a file without a name its name, which must be new.
    fn link(&self, directory: &Directory, file: BorrowedFd<'_>, name: &str) -> io::Result<()>;

    /// Lengthens a file from `from` to `to` bytes, with room on the disk for them.
    fn reserve(&self, file: BorrowedFd<'_>, from: u64, to: u64) -> io::Result<()>;

    /// Writes all the bytes.
    fn write(&self, file: BorrowedFd<'_>, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Waits until the contents and the length of a file are on the disk.
    fn sync(&self, file: BorrowedFd<'_>) -> io::Result<()>;

    /// Gives a file another name, which may belong to another file.
    fn rename(&self, directory: &Directory, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name. Returns whether it was there.
    fn remove(&self, directory: &Directory, name: &str) -> io::Result<bool>;

    /// Waits until the names are on the disk.
    fn sync_names(&self, directory: &Directory) -> io::Result<()>;
}

/// The disk itself.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, directory: &Directory, name: &str) -> io::Result<File> {
        directory.create(name)
    }

    fn create_unnamed(&self, directory: &Directory) -> io::Result<Option<File>> {
        directory.create_unnamed()
    }

    fn link(&self, directory: &Directory, file: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let path = unnamed_path(file);
        let linked = linkat(CWD, &path, directory.fd(), name, AtFlags::SYMLINK_FOLLOW);
        linked.map_err(|e| directory.told(name, e.into()))
    }

    fn reserve(&self, file: BorrowedFd<'_>, from: u64, to: u64) -> io::Result<()> {
        let len = to.saturating_sub(from);
        loop {
            return match fallocate(file, FallocateFlags::empty(), from, len) {
                Ok(()) => Ok(()),
                Err(Errno::INTR) => continue,
                // The filesystem cannot reserve.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(file, from, to),
                Err(e) => Err(e.into()),
            };
        }
    }

    fn write(&self, file: BorrowedFd<'_>, mut at: u64, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match pwrite(file, bytes, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    at += n as u64;
                    bytes = bytes.get(n..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn sync(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        Ok(fdatasync(file)?)
    }

    fn rename(&self, directory: &Directory, from: &str, to: &str) -> io::Result<()> {
        let renamed = renameat(directory.fd(), from, directory.fd(), to);
        renamed.map_err(|e| directory.told(to, e.into()))
    }

    fn remove(&self, directory: &Directory, name: &str) -> io::Result<bool> {
        match unlinkat(directory.fd(), name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(directory.told(name, e.into())),
        }
    }

    fn sync_names(&self, directory: &Directory) -> io::Result<()> {
        Ok(fsync(directory.fd())?)
    }
}

impl RealDisk {
    fn write_zeros(&self, file: BorrowedFd<'_>, from: u64, to: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut at = from;
        while at < to {
            let n = usize::try_from(to - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
            self.write(file, at, ZEROS.get(..n).unwrap_or(&ZEROS))?;
            at += n as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn zeros_are_written_where_nothing_can_be_reserved() {
        let file = tempfile::tempfile().unwrap();
        RealDisk.write(file.as_fd(), 0, &[7; 100]).unwrap();
        RealDisk.write_zeros(file.as_fd(), 100, 200_000).unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut &file, &mut bytes).ok();
        assert_eq!(file.metadata().unwrap().len(), 200_000);
    }
}
