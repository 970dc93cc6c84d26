//! What of the system, besides the kernel itself, decides how fast programs start.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use brisk_io::{try_cachestat, try_io_uring, try_nowait};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::memory::MemoryLimit;
use crate::mount_table::mounts;

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
    /// What takes pages out of memory although there is room, each for people; none if nothing was found
    /// and something of it cannot be read, as by a user other than root.
    pub reclaimers: Option<Vec<String>>,
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
            reclaimers: reclaimers(Path::new("/sys")),
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

/// The names in a directory, in order; none if it cannot be read.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// DAMON as a module that reclaims, and as what somebody has set up. Root alone may read either: none if
/// nothing was found, and something is there that cannot be read.
fn reclaimers(sys: &Path) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut sees_all = true;
    let mut says = |path: PathBuf, word: &str| match fs::read_to_string(path) {
        Ok(text) => text.trim() == word,
        Err(e) => {
            // Beside directories of threads and schemes, a file says how many there are.
            let is_there =
                ![io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&e.kind());
            sees_all &= !is_there;
            false
        }
    };
    if says(sys.join("module/damon_reclaim/parameters/enabled"), "Y") {
        found.push("damon_reclaim".to_owned());
    }
    let threads = sys.join("kernel/mm/damon/admin/kdamonds");
    for thread in names(&threads) {
        let thread = threads.join(thread);
        if !says(thread.join("state"), "on") {
            continue;
        }
        let contexts = thread.join("contexts");
        for context in names(&contexts) {
            let schemes = contexts.join(context).join("schemes");
            for scheme in names(&schemes) {
                if says(schemes.join(scheme).join("action"), "pageout") {
                    found.push(format!("DAMON by {}", thread.display()));
                }
            }
        }
    }
    found.dedup();
    (sees_all || !found.is_empty()).then_some(found)
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
    fn those_who_take_pages_are_named() {
        let damon = "kernel/mm/damon/admin/kdamonds";
        let [state, action] = ["state", "contexts/0/schemes/0/action"];
        let at = |thread: u32, file: &str| format!("{damon}/{thread}/{file}");
        let found = directory_of(&[
            ("module/damon_reclaim/parameters/enabled", "Y\n"),
            (&at(0, state), "on\n"),
            (&at(0, action), "pageout\n"),
            (&at(0, "contexts/0/schemes/1/action"), "pageout\n"),
            (&at(1, state), "off\n"),
            (&at(1, action), "pageout\n"),
            (&at(2, state), "on\n"),
            (&at(2, action), "stat\n"),
            (&format!("{damon}/nr_kdamonds"), "3\n"),
        ]);
        let by = format!("DAMON by {}", found.path().join(damon).join("0").display());
        let expected = vec!["damon_reclaim".to_owned(), by];
        assert_eq!(reclaimers(found.path()), Some(expected));
        let none = found.path().join("none");
        assert_eq!(reclaimers(&none), Some(Vec::new()));
        let none = directory_of(&[(&format!("{damon}/nr_kdamonds"), "0\n")]);
        assert_eq!(reclaimers(none.path()), Some(Vec::new()));
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_off() {
        // A directory stands for a file that is there and cannot be read: root reads every other.
        let enabled = "module/damon_reclaim/parameters/enabled";
        let found = directory_of(&[(&format!("{enabled}/x"), "")]);
        assert_eq!(reclaimers(found.path()), None);
        let damon = "kernel/mm/damon/admin/kdamonds/0";
        let found = directory_of(&[(enabled, "N\n"), (&format!("{damon}/state/x"), "")]);
        assert_eq!(reclaimers(found.path()), None);
        // What was found is told all the same.
        let found = directory_of(&[(enabled, "Y\n"), (&format!("{damon}/state/x"), "")]);
        let expected = vec!["damon_reclaim".to_owned()];
        assert_eq!(reclaimers(found.path()), Some(expected));
    }

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
