//! What decides how fast programs start on this system, besides the kernel's features.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use brisk_io::measure::{try_cachestat, try_io_uring, try_nowait};
use brisk_launch::memory::MemoryLimit;
use brisk_launch::mount_table::mounts;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::confinement::{can_filter_calls, landlock_version};
use crate::reclaimer::{Reclaimer, names};

/// The findings. Asking changes nothing.
#[derive(Debug)]
#[non_exhaustive]
pub struct SystemState {
    /// Whether a read can be told not to wait, on the file system of this program.
    pub nowait: io::Result<()>,
    /// Whether the kernel says which pages of a file are in memory.
    pub cachestat: io::Result<()>,
    /// Whether this process may use io_uring.
    pub io_uring: io::Result<()>,
    /// Whether a seccomp filter restricts this process's system calls. None if the system does not say.
    pub seccomp: Option<bool>,
    /// Whether a process can limit its own system calls by a filter, as the processes of a session do.
    pub call_filters: bool,
    /// The version of Landlock, by which a process limits the files that it may open. None if the kernel has none, or
    /// if it was not enabled when the system started.
    pub landlock: Option<u32>,
    /// What takes pages out of memory although there is room: [`Reclaimer::all`].
    pub reclaimers: Option<Vec<Reclaimer>>,
    /// The disks, and how many bytes the kernel reads ahead on each.
    pub read_aheads: Vec<(String, u64)>,
    /// The control group that limits this process's memory, if there is one. An error if the system does not
    /// say.
    pub memory: io::Result<Option<MemoryLimit>>,
    /// Whether tracefs is mounted. None if the system does not say.
    pub tracefs: Option<bool>,
}

impl SystemState {
    /// Asks the system. What the system does not say is None or an error, so this cannot fail.
    pub fn probe() -> Self {
        let own = std::env::current_exe().and_then(File::open);
        let status = fs::read_to_string("/proc/self/status");
        Self {
            nowait: own.and_then(|file| try_nowait(&file)),
            cachestat: in_memory().and_then(|file| try_cachestat(&file)),
            io_uring: try_io_uring(),
            seccomp: status.ok().and_then(|status| has_filter(&status)),
            call_filters: can_filter_calls(),
            landlock: landlock_version(),
            reclaimers: Reclaimer::all(),
            read_aheads: read_aheads(Path::new("/sys/block")),
            memory: MemoryLimit::find(),
            tracefs: mounts()
                .ok()
                .map(|all| all.iter().any(|mount| mount.fs_type == "tracefs")),
        }
    }
}

/// A file that only this process has.
fn in_memory() -> io::Result<File> {
    let file = memfd_create("brisk-probe", MemfdFlags::CLOEXEC)?;
    Ok(file.into())
}

/// Reads the text of `/proc/PID/status`: 0 means no filter, 1 allows only reading and writing, 2 is a filter.
fn has_filter(status: &str) -> Option<bool> {
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"))?;
    Some(mode.trim() != "0")
}

fn text(path: PathBuf) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Only of disks, and not of devices in memory or in a file.
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

/// A directory with these files, which imitates one of the kernel.
#[cfg(test)]
pub(crate) fn directory_of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("the file can be written");
    }
    directory
}

#[cfg(test)]
mod tests {
    use super::*;

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
