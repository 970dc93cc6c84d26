//! The program for which a profile is replayed: which program it is, and what it reads from the disk.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use brisk_io::ByteSource;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::verdict::FileId;

/// How often to look at a program that is watched to its end.
const WATCH_EVERY: Duration = Duration::from_millis(100);

/// The program that a process runs.
#[derive(Debug)]
pub(super) struct Executable {
    /// Its path, as this process sees it, unless it was removed.
    pub(super) path: PathBuf,
    /// Its device and its inode.
    pub(super) id: FileId,
    /// Its length in bytes.
    pub(super) len: u64,
}

/// A process that is or becomes the program, by its directory in `/proc`. The directory stays the same
/// through `exec`, and belongs to the right process in every PID namespace.
#[derive(Debug)]
pub(super) struct WatchedProgram {
    process: OwnedFd,
    /// `/proc/PID/io`.
    accounts: File,
    /// How many bytes it had read at the first look.
    before: Option<u64>,
}

impl WatchedProgram {
    /// This process, before it becomes a program.
    pub(super) fn this() -> io::Result<Self> {
        Self::of(Path::new("/proc/self"))
    }

    /// The process with this directory in `/proc`.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let process = openat(CWD, path, flags, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let accounts = openat(&process, "io", flags, Mode::empty())?.into();
        Ok(Self {
            process,
            accounts,
            before: None,
        })
    }

    pub(super) fn descriptors(&self) -> [RawFd; 2] {
        [self.process.as_raw_fd(), self.accounts.as_raw_fd()]
    }

    /// What the process runs now. None after it has ended.
    ///
    /// # Errors
    ///
    /// `ACCESS` and others if the system does not say, for example for a program that the user may not read.
    pub(super) fn executable(&self) -> rustix::io::Result<Option<Executable>> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = match openat(&self.process, "exe", flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::SRCH) => return Ok(None),
            Err(e) => return Err(e),
        };
        let path = readlinkat(&self.process, "exe", Vec::new())?;
        let stat = fstat(&file)?;
        Ok(Some(Executable {
            path: OsString::from_vec(path.into_bytes()).into(),
            id: (stat.st_dev, stat.st_ino),
            len: u64::try_from(stat.st_size).unwrap_or(0),
        }))
    }

    /// How many bytes the process has read from the disk since the first call.
    pub(super) fn own(&mut self) -> Option<u64> {
        let read = self.read()?;
        Some(read.saturating_sub(*self.before.get_or_insert(read)))
    }

    /// Waits until the process ends, or until this time, and returns its last [`WatchedProgram::own`].
    pub(super) fn watch(&mut self, until: Instant) -> Option<u64> {
        let mut last = None;
        while let Some(own) = self.own() {
            last = Some(own);
            if Instant::now() >= until {
                break;
            }
            thread::sleep(WATCH_EVERY);
        }
        last
    }

    /// How many bytes the process has read from the disk in total.
    fn read(&self) -> Option<u64> {
        let mut text = [0; 512];
        let len = self.accounts.read_bytes_at(0, &mut text).ok()?;
        read_bytes(std::str::from_utf8(text.get(..len)?).ok()?)
    }
}

/// The value of `read_bytes` in the text of `/proc/PID/io`.
fn read_bytes(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Imitates a process that has read this many bytes.
    fn write(process: &Path, read: u64) {
        let text = format!("rchar: 9\nsyscr: 1\nread_bytes: {read}\nwrite_bytes: 0\n");
        std::fs::write(process.join("io"), text).expect("room");
    }

    #[test]
    fn what_a_program_reads_counts_from_the_first_look() {
        let process = tempfile::tempdir().expect("a directory");
        write(process.path(), 3);
        let mut program = WatchedProgram::of(process.path()).expect("made");
        assert_eq!(program.own(), Some(0));
        write(process.path(), 11);
        assert_eq!(program.own(), Some(8));
        // A counter that runs backwards is ignored.
        write(process.path(), 2);
        assert_eq!(program.own(), Some(0));
        std::fs::write(process.path().join("io"), "").expect("room");
        assert_eq!(program.own(), None);
    }

    #[test]
    fn this_process_runs_this_test() {
        let this = WatchedProgram::this().expect("the kernel keeps accounts of processes");
        let told = this.executable().expect("an answer");
        let executable = told.expect("an executable");
        let path = std::env::current_exe().expect("this one");
        let stat = std::fs::metadata(&path).expect("there");
        assert_eq!(executable.path, path);
        let (id, len) = (executable.id, executable.len);
        assert_eq!((id, len), ((stat.dev(), stat.ino()), stat.len()));
    }

    #[test]
    fn this_process_has_accounts() {
        let this = WatchedProgram::this().expect("the kernel keeps accounts of processes");
        assert!(this.read().is_some());
    }
}
