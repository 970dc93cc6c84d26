//! What the program reads from the disk that a profile is replayed beside.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use brisk_io::ReadAt;

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

/// The accounts of a process, `/proc/PID/io`, which it has through `exec`. They are those of the process
/// that opened them, whatever number that has elsewhere.
#[derive(Debug)]
pub(super) struct Bystander {
    accounts: File,
    /// Bytes that it had read when it was first asked for.
    before: Option<u64>,
}

impl Bystander {
    /// That of this process, before it becomes a program.
    pub(super) fn this() -> io::Result<Self> {
        let accounts = File::open("/proc/self/io")?;
        Ok(Self {
            accounts,
            before: None,
        })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.accounts.as_raw_fd()
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
    use super::*;

    #[test]
    fn a_program_strays_that_reads_as_much_as_is_replayed() {
        let text = tempfile::tempdir().expect("a directory");
        let path = text.path().join("io");
        let write = |read: u64| {
            let text = format!("rchar: 9\nsyscr: 1\nread_bytes: {read}\nwrite_bytes: 0\n");
            std::fs::write(&path, text).expect("room");
        };
        let mib = 1 << 20;
        write(3 * mib);
        let mut program = Bystander {
            accounts: File::open(&path).expect("made"),
            before: None,
        };
        assert!(!program.strays(0));
        for (read, asked, strays) in [
            (11, 0, false),
            (12, 0, true),
            (12, 17, true),
            (12, 18, false),
            (100, 200, false),
            (104, 200, true),
        ] {
            write(read * mib);
            assert_eq!(program.strays(asked * mib), strays, "{read} of {asked}");
        }
        std::fs::write(&path, "").expect("room");
        assert!(!program.strays(0));
    }

    #[test]
    fn this_process_has_accounts() {
        // Some systems keep none, and then nothing is known.
        if let Ok(accounts) = Bystander::this() {
            assert!(accounts.read().is_some());
        }
    }
}
