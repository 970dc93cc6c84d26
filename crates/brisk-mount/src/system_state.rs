//! What of the system, besides the kernel itself, decides how fast programs start.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use brisk_io::measure::{try_cachestat, try_io_uring, try_nowait};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::memory::MemoryLimit;
use crate::mount_table::mounts;
use crate::reclaimer::{Reclaimer, names};

/// What was found. Asking changes nothing.
#[derive(Debug)]
#[non_exhaustive]
pub struct SystemState {
    /// Whether reads can be asked not to wait, of the file system that this program is on.
    pub nowait: io::Result<()>,
    /// Whether the kernel says what of a file is in memory.
    pub cachestat: io::Result<()>,
    /// Whether this process may use io_uring.
    pub io_uring: io::Result<()>,
    /// A seccomp filter decides about this process's calls; none if the system does not tell.
    pub seccomp: Option<bool>,
    /// What takes pages out of memory although there is room: [`Reclaimer::all`].
    pub reclaimers: Option<Vec<Reclaimer>>,
    /// Disks, and the bytes that the kernel reads ahead on each.
    pub read_aheads: Vec<(String, u64)>,
    /// The control group that bounds this process's memory, if one does; an error if the system does not
    /// tell.
    pub memory: io::Result<Option<MemoryLimit>>,
    /// Whether tracefs is mounted; none if the system does not tell.
    pub tracefs: Option<bool>,
}

impl SystemState {
    /// Asks the system. What it does not tell is none, or an error; asking cannot fail.
    pub fn probe() -> Self {
        let own = std::env::current_exe().and_then(File::open);
        let status = fs::read_to_string("/proc/self/status");
        Self {
            nowait: own.and_then(|file| try_nowait(&file)),
            cachestat: in_memory().and_then(|file| try_cachestat(&file)),
            io_uring: try_io_uring(),
            seccomp: status.ok().and_then(|status| has_filter(&status)),
            reclaimers: Reclaimer::all(),
            read_aheads: read_aheads(Path::new("/sys/block")),
            memory: MemoryLimit::find(),
            tracefs: mounts()
                .ok()
                .map(|all| all.iter().any(|mount| mount.fs_type == "tracefs")),
        }
    }
}

/// A file of this process's own.
fn in_memory() -> io::Result<File> {
    let file = memfd_create("brisk-probe", MemfdFlags::CLOEXEC)?;
    Ok(file.into())
}

/// Of what `/proc/PID/status` says: 0 is none, 1 allows reading and writing alone, 2 is a filter.
fn has_filter(status: &str) -> Option<bool> {
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"))?;
    Some(mode.trim() != "0")
}

fn text(path: PathBuf) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Of disks alone: not of what is in memory, or in a file.
fn read_aheads(block: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for name in names(block) {
        let directory = block.join(&name);
        let is_empty = text(directory.join("size")).is_none_or(|size| size == "0");
        if is_empty
            || ["loop", "ram", "zram"]
                .iter()
                .any(|kind| name.starts_with(kind))
        {
            continue;
        }
        let kib = text(directory.join("queue/read_ahead_kb")).and_then(|kib| kib.parse().ok());
        if let Some(bytes) = kib.and_then(|kib: u64| kib.checked_mul(1024)) {
            found.push((name, bytes));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::directory_of;

    #[test]
    fn disks_alone_read_ahead() {
        let found = directory_of(&[
            ("vdb/size", "8\n"),
            ("vdb/queue/read_ahead_kb", "64\n"),
            ("sda/size", "8\n"),
            ("sda/queue/read_ahead_kb", "128\n"),
            ("sdb/size", "0\n"),
            ("sdb/queue/read_ahead_kb", "128\n"),
            ("loop0/size", "8\n"),
            ("loop0/queue/read_ahead_kb", "128\n"),
            ("odd/size", "8\n"),
            ("odd/queue/read_ahead_kb", "-1\n"),
        ]);
        let expected = [("sda".to_owned(), 128 << 10), ("vdb".to_owned(), 64 << 10)];
        assert_eq!(read_aheads(found.path()), expected);
    }

    #[test]
    fn a_filter_is_told_from_none() {
        let table = [
            ("Name:\tx\nSeccomp:\t0\n", Some(false)),
            ("Seccomp:\t2\nSeccomp_filters:\t1\n", Some(true)),
            ("Seccomp_filters:\t1\n", None),
        ];
        for (status, expected) in table {
            assert_eq!(has_filter(status), expected, "{status}");
        }
    }
}
