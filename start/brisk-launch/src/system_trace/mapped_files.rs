//! How much a launch has of files that are not served to it: its programs, their libraries, and what else it maps.
//!
//! The server of the traced trees sees no request for such files. So the tracer looks now and then at what the processes have
//! mapped (`/proc/PID/smaps`), and keeps the largest size for each file. Files that are read and not mapped do not count,
//! nor do those of processes that end between two looks.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::process_maps::MapsLine;

/// How long to wait for the second look. Each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(5);
const LAST_WAIT: Duration = Duration::from_millis(80);

/// A look takes at most one part in so many of the time.
const SHARE: u32 = 20;

/// The files that processes have mapped, except those below some directories.
#[derive(Debug)]
pub struct MappedFiles {
    /// Where the served files are.
    served: Vec<PathBuf>,
    /// How many bytes of each file were in memory and mapped at most, by its device and inode.
    most: HashMap<(String, String), u64>,
    wait: Duration,
    next: Instant,
}

impl MappedFiles {
    /// Of files that are not below these directories.
    pub fn outside_of(served: Vec<PathBuf>) -> Self {
        Self {
            served,
            most: HashMap::new(),
            wait: FIRST_WAIT,
            next: Instant::now(),
        }
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.most.values().copied().fold(0, u64::saturating_add)
    }

    /// How long to wait for the next look.
    pub fn due(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Looks at these processes, if it is time.
    pub fn look(&mut self, processes: impl FnOnce() -> Vec<Pid>) {
        let began = Instant::now();
        if began < self.next {
            return;
        }
        for pid in processes() {
            // It may have ended, or have another user's rights.
            if let Ok(text) = fs::read(format!("/proc/{pid}/smaps")) {
                self.note(&text);
            }
        }
        let wait = self.wait.max(began.elapsed().saturating_mul(SHARE));
        self.wait = self.wait.saturating_mul(2).min(LAST_WAIT);
        self.next = Instant::now() + wait;
    }

    /// Notes what one process has mapped.
    fn note(&mut self, smaps: &[u8]) {
        let mut own: HashMap<(&str, &str), u64> = HashMap::new();
        let mut file = None;
        for line in smaps.split(|byte| *byte == b'\n') {
            if let Some(mapped) = MapsLine::parse(line) {
                let counts = mapped.path.is_some_and(|path| self.counts(path));
                file = counts.then_some((mapped.device, mapped.inode));
            } else if let Some((file, kib)) = file.zip(resident_kib(line)) {
                let bytes = own.entry(file).or_default();
                *bytes = bytes.saturating_add(kib.saturating_mul(1024));
            }
        }
        for ((device, inode), bytes) in own {
            let most = self.most.entry((device.to_owned(), inode.to_owned()));
            let most = most.or_default();
            *most = bytes.max(*most);
        }
    }

    /// Whether this is a file with a name, no device, and not below what is served.
    fn counts(&self, path: &Path) -> bool {
        !path.as_os_str().as_bytes().ends_with(b" (deleted)")
            && !path.starts_with("/dev")
            && !self.served.iter().any(|at| path.starts_with(at))
    }
}

/// How much of a mapping is in memory, if this is the line that says it.
fn resident_kib(line: &[u8]) -> Option<u64> {
    let text = str::from_utf8(line.strip_prefix(b"Rss:")?).ok()?;
    text.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_each_file_outside_counts_once() {
        let mut files = MappedFiles::outside_of(vec!["/opt/app".into()]);
        let mapping = |start: u32, inode: u32, name: &str, kib: u32| {
            format!(
                "{start:x}000-{start:x}fff r-xp 00001000 fe:00 {inode}    {name}\nSize: 4 kB\nRss: {kib} kB\n\
                 Pss: 1 kB\nVmFlags: rd mr\n"
            )
        };
        let libc = mapping(1, 7, "/usr/lib/libc.so.6", 8) + &mapping(2, 7, "/usr/lib/libc.so.6", 4);
        files.note((libc.clone() + &mapping(3, 8, "/opt/app/lib/libapp.so", 99)).as_bytes());
        assert_eq!(files.bytes(), 12 << 10);
        // Another process has less of it, and something else.
        let mut text =
            mapping(1, 7, "/usr/lib/libc.so.6", 4) + &mapping(2, 9, "/opt/application", 1);
        for (inode, name) in [
            (0, ""),
            (0, "[heap]"),
            (5, "/tmp/x (deleted)"),
            (6, "/dev/zero"),
        ] {
            text += &mapping(4, inode, name, 50);
        }
        files.note(text.as_bytes());
        assert_eq!(files.bytes(), 13 << 10);
        // A name with spaces.
        files.note(mapping(5, 10, "/srv/a b", 1).as_bytes());
        assert_eq!(files.bytes(), 14 << 10);
    }

    #[test]
    fn a_look_is_taken_when_it_is_due() {
        let mut files = MappedFiles::outside_of(Vec::new());
        let this = rustix::process::getpid();
        files.look(|| vec![this]);
        let own = files.bytes();
        assert!(own > 0);
        assert!(files.due() > Duration::ZERO);
        files.look(|| panic!("it is too early"));
    }
}
