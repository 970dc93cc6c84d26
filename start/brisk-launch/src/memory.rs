//! How much memory is free for what is read ahead.
//!
//! The system may have more memory than this process may use: each control group that it is in, of cgroup v1
//! or v2, can have a limit. Pages of a group's page cache that were not used lately count as free, as they do
//! for the whole system.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::mount_table::{MountEntry, mounts};

/// The control group that leaves the least memory to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryLimit {
    /// Its directory.
    pub group: PathBuf,
    /// Bytes that all its processes may use.
    pub limit: u64,
    /// How many of these bytes could be used without swapping anything out or ending a process.
    pub free: u64,
    /// The file of the group that holds the limit: `memory.max`, `memory.high`, or with cgroup v1
    /// `memory.limit_in_bytes`.
    pub file: &'static str,
}

impl MemoryLimit {
    /// The limit in force for this process. None if no group has a limit, or the system does not say.
    pub fn in_force() -> Option<Self> {
        Self::find().ok().flatten()
    }

    /// The same, or an error if the system does not say.
    pub fn find() -> io::Result<Option<Self>> {
        Self::find_in(&mounts()?, &fs::read_to_string("/proc/self/cgroup")?)
    }

    /// `own`: the text of `/proc/self/cgroup`.
    fn find_in(mounts: &[MountEntry], own: &str) -> io::Result<Option<Self>> {
        let group_paths = group_paths(mounts, own);
        let controllers = own.lines().filter_map(|line| line.split(':').nth(1));
        let mut bounding = controllers.filter(|names| names.is_empty() || has(names, "memory"));
        if group_paths.is_empty() && bounding.next().is_some() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the control groups of this process are not mounted here",
            ));
        }
        let limits = group_paths.iter().filter_map(GroupPath::tightest);
        Ok(limits.min_by_key(|limit| limit.free))
    }
}

/// How many bytes could be used without swapping anything out. None if that is not known.
pub fn free_memory() -> Option<u64> {
    let limit = MemoryLimit::in_force().map(|limit| limit.free);
    limit.into_iter().chain(free_of_system()).min()
}

fn free_of_system() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The names of the files in a version of cgroups.
#[derive(Debug, PartialEq, Eq)]
struct GroupFiles {
    limits: &'static [&'static str],
    used: &'static str,
    /// A line of `memory.stat` that includes the groups below.
    unused_cache: &'static str,
}

const V1: GroupFiles = GroupFiles {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    unused_cache: "total_inactive_file",
};

const V2: GroupFiles = GroupFiles {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    unused_cache: "inactive_file",
};

/// The value of v1 for "no limit" is the largest number of whole pages, so anything from here on is no limit.
const NONE: u64 = 1 << 62;

/// The group of this process in a hierarchy of groups.
#[derive(Debug, PartialEq, Eq)]
struct GroupPath {
    top: PathBuf,
    /// The path from there.
    own: PathBuf,
    names: &'static GroupFiles,
}

/// `own`: the text of `/proc/self/cgroup`.
fn group_paths(mounts: &[MountEntry], own: &str) -> Vec<GroupPath> {
    let mut group_paths = Vec::new();
    // A line is `hierarchy:controllers:path`, and v2 has no controllers.
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (fs_type, names) = match controllers {
            "" => ("cgroup2", &V2),
            _ if has(controllers, "memory") => ("cgroup", &V1),
            _ => continue,
        };
        let mut found = mounts.iter().filter(|mount| mount.fs_type == fs_type);
        let Some(mount) = found.find(|mount| *names == V2 || has(&mount.super_options, "memory"))
        else {
            continue;
        };
        // In a container, the mount may show only a part of the groups.
        let within = Path::new(path).strip_prefix(&mount.root);
        let within = within.unwrap_or(Path::new(""));
        let is_plain = !within.components().any(|part| part.as_os_str() == "..");
        group_paths.push(GroupPath {
            top: mount.target.clone(),
            own: if is_plain {
                within.to_owned()
            } else {
                PathBuf::new()
            },
            names,
        });
    }
    group_paths
}

fn has(list: &str, name: &str) -> bool {
    list.split(',').any(|one| one == name)
}

impl GroupPath {
    /// Among this group and those above it, the one that leaves the least.
    fn tightest(&self) -> Option<MemoryLimit> {
        let groups = self.own.ancestors().map(|own| self.top.join(own));
        let limits = groups.filter_map(|group| self.limit_of(group));
        limits.min_by_key(|limit| limit.free)
    }

    fn limit_of(&self, group: PathBuf) -> Option<MemoryLimit> {
        let number = |name: &str| -> Option<u64> {
            let text = fs::read_to_string(group.join(name)).ok()?;
            text.trim().parse().ok()
        };
        // "max" is not a number.
        let limits = self.names.limits.iter();
        let limits = limits.filter_map(|file| Some((number(file)?, *file)));
        let (limit, file) = limits.min().filter(|(limit, _)| *limit < NONE)?;
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let unused = stat.lines().find_map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            bytes
                .parse()
                .ok()
                .filter(|_: &u64| name == self.names.unused_cache)
        });
        let used = number(self.names.used)?.saturating_sub(unused.unwrap_or(0));
        Some(MemoryLimit {
            group,
            limit,
            free: limit.saturating_sub(used),
            file,
        })
    }
}

/// A directory with these files, which imitates one of the kernel.
#[cfg(test)]
pub fn directory_of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(fs_type: &str, options: &str, root: &str, target: &Path) -> MountEntry {
        MountEntry {
            target: target.to_owned(),
            fs_type: fs_type.to_owned(),
            device: "0:1".to_owned(),
            root: root.into(),
            super_options: options.to_owned(),
        }
    }

    /// The name of the group, its limit, and what is free.
    fn tightest(mounts: &[MountEntry], own: &str, top: &Path) -> Option<(String, u64, u64)> {
        let group_paths = group_paths(mounts, own);
        let found = group_paths.iter().filter_map(GroupPath::tightest);
        let MemoryLimit {
            group, limit, free, ..
        } = found.min_by_key(|limit| limit.free)?;
        let name = group.strip_prefix(top).unwrap().display().to_string();
        Some((name, limit, free))
    }

    #[test]
    fn of_v2_the_tightest_group_on_the_way_up_counts() {
        let found = directory_of(&[
            ("a/memory.max", "1000\n"),
            ("a/memory.high", "max\n"),
            ("a/memory.current", "900\n"),
            (
                "a/memory.stat",
                "anon 5\ninactive_file 300\nactive_file 100\n",
            ),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.high", "5000\n"),
            ("a/b/memory.current", "100\n"),
            ("a/b/c/memory.max", "max\n"),
            ("a/b/c/memory.current", "100\n"),
            ("x/memory.max", "1\n"),
            ("x/memory.current", "1\n"),
        ]);
        let top = found.path();
        let mounts = [mount("cgroup2", "rw", "/", top)];
        let expected = |name: &str, limit, free| Some((name.to_owned(), limit, free));
        let of = |own: &str| tightest(&mounts, own, top);
        assert_eq!(of("0::/a/b/c\n"), expected("a", 1000, 400));
        assert_eq!(of("0::/x"), expected("x", 1, 0));
        // The kernel says that the group is outside of what this process can see.
        assert_eq!(of("0::/../a"), None);
        assert_eq!(of("4:memory:/a"), None);
        let inside = [mount("cgroup2", "rw", "/a", &top.join("a"))];
        let of = tightest(&inside, "0::/a/b/c", top);
        assert_eq!(of, expected("a", 1000, 400));
    }

    #[test]
    fn the_file_that_bounds_is_named_and_no_group_is_told_from_none_to_be_seen() {
        let found = directory_of(&[
            ("a/memory.max", "1000\n"),
            ("a/memory.high", "800\n"),
            ("a/memory.current", "1\n"),
            ("b/memory.max", "1000\n"),
            ("b/memory.current", "1\n"),
        ]);
        let mounts = [mount("cgroup2", "rw", "/", found.path())];
        let file = |own: &str| {
            let limit = MemoryLimit::find_in(&mounts, own).unwrap();
            limit.map(|limit| limit.file)
        };
        assert_eq!(file("0::/a\n"), Some("memory.high"));
        assert_eq!(file("0::/b\n"), Some("memory.max"));
        assert_eq!(file("0::/\n"), None);
        for own in ["0::/a\n", "4:cpu,memory:/a\n"] {
            let e = MemoryLimit::find_in(&[], own).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::NotFound, "{own}");
        }
        // No memory controller limits it.
        for own in ["", "1:name=systemd:/\n3:cpu:/a\n"] {
            assert_eq!(MemoryLimit::find_in(&[], own).unwrap(), None, "{own}");
        }
    }

    #[test]
    fn of_v1_the_hierarchy_of_the_memory_controller_counts() {
        let found = directory_of(&[
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.usage_in_bytes", "7\n"),
            ("docker/memory.limit_in_bytes", "1000"),
            ("docker/memory.usage_in_bytes", "700"),
            (
                "docker/memory.stat",
                "inactive_file 1\ntotal_inactive_file 200\n",
            ),
        ]);
        let top = found.path();
        let mounts = [
            mount("cgroup", "rw,cpu", "/", Path::new("/nowhere")),
            mount("cgroup", "rw,memory", "/", top),
            mount("cgroup2", "rw", "/", Path::new("/nowhere")),
        ];
        let own = "5:cpu:/\n4:memory:/docker/x\n0::/\n";
        let expected = Some(("docker".to_owned(), 1000, 500));
        assert_eq!(tightest(&mounts, own, top), expected);
        assert_eq!(tightest(&mounts, "4:memory:/\n0::/\n", top), None);
    }
}
