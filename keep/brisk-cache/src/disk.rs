use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, copy_file_range, fallocate, fdatasync, linkat, renameat, unlinkat,
};
use rustix::io::{Errno, pread, pwrite};

use crate::directory::{Directory, unnamed_path};

/// Everything that a cache does to its directory. Nothing else in this crate writes.
///
/// Each method does what the disk does. Tests have disks that do other things: one fails at any call, and one records the
/// calls, so that every state in which a loss of power can leave the disk can be made and opened.
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// What comes before each of the others, but a lock. An error is that of the call.
    #[inline]
    fn before(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes a file, which must not exist, and opens it for reading and writing.
    fn create(&self, directory: &Directory, name: &str) -> io::Result<File> {
        self.before()?;
        directory.create(name)
    }

    /// Makes a file without a name, which is gone if this process is killed. None if this filesystem has no such files.
    fn create_unnamed(&self, directory: &Directory) -> io::Result<Option<File>> {
        self.before()?;
        directory.create_unnamed()
    }

    /// Gives a file without a name its name, which must be new.
    fn link(&self, directory: &Directory, file: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        self.before()?;
        let path = unnamed_path(file);
        let linked = linkat(CWD, &path, directory.fd(), name, AtFlags::SYMLINK_FOLLOW);
        linked.map_err(|e| directory.told(name, e.into()))
    }

    /// Lengthens a file from `from` to `to` bytes, with room on the disk for them.
    fn reserve(&self, file: BorrowedFd<'_>, from: u64, to: u64) -> io::Result<()> {
        self.before()?;
        let len = to.saturating_sub(from);
        loop {
            return match fallocate(file, FallocateFlags::empty(), from, len) {
                Ok(()) => Ok(()),
                Err(Errno::INTR) => continue,
                // The filesystem cannot reserve.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => RealDisk.write_zeros(file, from, to),
                Err(e) => Err(e.into()),
            };
        }
    }

    /// Writes all the bytes.
    fn write(&self, file: BorrowedFd<'_>, mut at: u64, mut bytes: &[u8]) -> io::Result<()> {
        self.before()?;
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

    /// Copies a range of a file to another file.
    fn copy(
        &self,
        from: BorrowedFd<'_>,
        range: Range<u64>,
        to: BorrowedFd<'_>,
        mut at: u64,
    ) -> io::Result<()> {
        self.before()?;
        let mut done = range.start;
        while done < range.end {
            // A kernel copies 2 GiB at most.
            let left =
                usize::try_from(range.end - done).map_or(MOST_COPIED, |n| n.min(MOST_COPIED));
            match copy_file_range(from, Some(&mut done), to, Some(&mut at), left) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV | Errno::INVAL) => {
                    return RealDisk.copy_by_hand(from, done..range.end, to, at);
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Waits until the contents and the length of a file are on the disk.
    fn sync(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        self.before()?;
        Ok(fdatasync(file)?)
    }

    /// Gives a file another name, which may belong to another file.
    fn rename(&self, directory: &Directory, from: &str, to: &str) -> io::Result<()> {
        self.before()?;
        let renamed = renameat(directory.fd(), from, directory.fd(), to);
        renamed.map_err(|e| directory.told(to, e.into()))
    }

    /// Removes a name. Returns whether it was there.
    fn remove(&self, directory: &Directory, name: &str) -> io::Result<bool> {
        self.before()?;
        match unlinkat(directory.fd(), name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(directory.told(name, e.into())),
        }
    }

    /// Waits until the names are on the disk.
    fn sync_names(&self, directory: &Directory) -> io::Result<()> {
        self.before()?;
        directory.sync()
    }

    /// Locks a byte of a file, if no other open file has. Returns whether it is locked now.
    fn try_lock_byte(&self, file: BorrowedFd<'_>, byte: u64) -> io::Result<bool> {
        brisk_io::try_lock_byte(file, byte)
    }
}

/// The disk itself.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {}

const MOST_COPIED: usize = 1 << 30;

impl RealDisk {
    fn copy_by_hand(
        &self,
        from: BorrowedFd<'_>,
        range: Range<u64>,
        to: BorrowedFd<'_>,
        mut at: u64,
    ) -> io::Result<()> {
        let mut buf = vec![0; 256 << 10];
        let mut done = range.start;
        while done < range.end {
            let left = usize::try_from(range.end - done).map_or(buf.len(), |n| n.min(buf.len()));
            let part = buf.get_mut(..left).unwrap_or_default();
            let n = match pread(from, &mut *part, done) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            self.write(to, at, part.get(..n).unwrap_or_default())?;
            done += n as u64;
            at += n as u64;
        }
        Ok(())
    }

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
    fn both_ways_to_copy_copy_the_same() {
        let bytes: Vec<u8> = (0..700_000u32)
            .map(|n| (n.wrapping_mul(n) >> 5) as u8)
            .collect();
        let (from, there) = (tempfile::tempfile().unwrap(), 3_000..690_001);
        RealDisk.write(from.as_fd(), 0, &bytes).unwrap();
        let copy = |by_hand: bool| {
            let to = tempfile::tempfile().unwrap();
            let range = there.start as u64..there.end as u64;
            match by_hand {
                true => RealDisk.copy_by_hand(from.as_fd(), range, to.as_fd(), 65_536),
                false => RealDisk.copy(from.as_fd(), range, to.as_fd(), 65_536),
            }
            .unwrap();
            let mut copied = vec![0; there.len() + 1];
            let n = brisk_io::ByteSource::read_bytes_at(&to, 65_536, &mut copied).unwrap();
            copied.truncate(n);
            copied
        };
        assert!(copy(false) == bytes[there.clone()] && copy(true) == bytes[there.clone()]);
        let e = RealDisk.copy_by_hand(from.as_fd(), 0..700_001, from.as_fd(), 0);
        assert_eq!(e.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let to = tempfile::tempfile().unwrap();
        let e = RealDisk.copy(from.as_fd(), 0..700_001, to.as_fd(), 0);
        assert_eq!(e.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

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
