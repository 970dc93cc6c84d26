//! The program that a profile is replayed beside: what it is, and what it reads from the disk.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use brisk_io::ReadAt;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

/// What a program may read by itself before it is judged: what it was loaded from comes before all that
/// is replayed.
const ALLOWED: u64 = 8 << 20;

/// How often it is seen what a program has read that is watched to its end.
const WATCH_EVERY: Duration = Duration::from_millis(100);

/// Whether a program that read `own` bytes by itself seems to be another launch than the one whose
/// `known` bytes were replayed. One that finds what it needs reads next to nothing: 4 MB of Chromium's
/// 264, 7 of Python's 114.
pub(super) fn is_another_launch(own: u64, known: u64) -> bool {
    own > ALLOWED && own > known / 2
}

/// What a process runs.
#[derive(Debug)]
pub(super) struct Executable {
    /// Where it is, as this process sees it, unless it was removed.
    pub(super) path: PathBuf,
    /// Its device and its inode.
    pub(super) id: (u64, u64),
    /// Its bytes.
    pub(super) len: u64,
}

/// A process, by its directory in `/proc`, which it has through `exec`. It is that of the process that
/// opened it, whatever number that has elsewhere.
#[derive(Debug)]
pub(super) struct Bystander {
    process: OwnedFd,
    /// `/proc/PID/io`.
    accounts: File,
    /// Bytes that it had read when it was first asked for.
    before: Option<u64>,
}

impl Bystander {
    /// This process, before it becomes a program.
    pub(super) fn this() -> io::Result<Self> {
        Self::of(Path::new("/proc/self"))
    }

    /// The process whose directory in `/proc` that is.
    fn of(path: &Path) -> io::Result<Self> {
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

    /// What the process runs now. None once it has ended.
    ///
    /// # Errors
    ///
    /// `ACCESS` and others where the system does not tell, as of a program that may not be read.
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

    /// Whether the program seems to be [another launch](is_another_launch), when `asked` bytes were
    /// replayed. False where the system does not tell.
    pub(super) fn strays(&mut self, asked: u64) -> bool {
        self.own().is_some_and(|own| is_another_launch(own, asked))
    }

    /// Bytes that the process had the disk read since this was first asked.
    pub(super) fn own(&mut self) -> Option<u64> {
        let read = self.read()?;
        Some(read.saturating_sub(*self.before.get_or_insert(read)))
    }

    /// Waits for the end of the process, at most until then, and returns its [`Bystander::own`].
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

    /// Bytes that the process had the disk read.
    fn read(&self) -> Option<u64> {
        let mut text = [0; 512];
        let len = self.accounts.read_at(0, &mut text).ok()?;
        read_bytes(std::str::from_utf8(text.get(..len)?).ok()?)
    }
}

/// That line of the text of `/proc/PID/io`.
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

    const MIB: u64 = 1 << 20;

    /// Has `process` have read so many bytes.
    fn write(process: &Path, read: u64) {
        let text = format!("rchar: 9\nsyscr: 1\nread_bytes: {read}\nwrite_bytes: 0\n");
        std::fs::write(process.join("io"), text).expect("room");
    }

    #[test]
    fn a_program_strays_that_reads_as_much_as_is_replayed() {
        let process = tempfile::tempdir().expect("a directory");
        write(process.path(), 3 * MIB);
        let mut program = Bystander::of(process.path()).expect("made");
        assert!(!program.strays(0));
        for (read, asked, strays) in [
            (11, 0, false),
            (12, 0, true),
            (12, 17, true),
            (12, 18, false),
            (100, 200, false),
            (104, 200, true),
        ] {
            write(process.path(), read * MIB);
            assert_eq!(program.strays(asked * MIB), strays, "{read} of {asked}");
        }
        std::fs::write(process.path().join("io"), "").expect("room");
        assert!(!program.strays(0));
    }

    #[test]
    fn this_process_runs_this_test() {
        // Some systems keep no accounts.
        let Ok(this) = Bystander::this() else { return };
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
        // Some systems keep none, and then nothing is known.
        if let Ok(accounts) = Bystander::this() {
            assert!(accounts.read().is_some());
        }
    }
}
