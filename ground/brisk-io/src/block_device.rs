//! What the kernel says about disks.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// A whole disk, loop device or similar, not a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    directory: PathBuf,
}

impl BlockDevice {
    /// The disk with this number (`st_dev` of a file on it), or the disk of the partition with this number.
    ///
    /// None for filesystems in memory, on the network, or on several disks, and if `/sys` is not mounted.
    pub fn of(device: u64) -> Option<Self> {
        let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        let own = fs::canonicalize(link).ok()?;
        // A partition's directory is inside that of its disk, which has the queue.
        let mut directories = own.ancestors().take(2);
        let directory = directories.find(|directory| directory.join("queue").is_dir())?;
        Some(Self {
            directory: directory.to_owned(),
        })
    }

    /// The disk of the file. None as for [`BlockDevice::of`].
    pub fn of_file(file: &File) -> Option<Self> {
        file.metadata().ok().and_then(|m| Self::of(m.dev()))
    }

    /// The disk's directory in `/sys`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The text of a file in that directory, such as `dev`.
    pub fn text(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.directory.join(file)).ok()?;
        Some(text.trim().to_owned())
    }

    /// The number in a file of that directory, such as `queue/rotational`.
    pub fn number(&self, file: &str) -> Option<u64> {
        self.text(file)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_disk_is_none() {
        let proc = fs::metadata("/proc").unwrap();
        assert_eq!(BlockDevice::of(proc.dev()), None);
    }

    #[test]
    fn a_disk_is_found_by_its_number_and_those_of_its_parts() {
        for entry in fs::read_dir("/sys/dev/block").unwrap() {
            let entry = entry.unwrap();
            let number = entry.file_name().into_string().unwrap();
            let (major, minor) = number.split_once(':').unwrap();
            let device = rustix::fs::makedev(major.parse().unwrap(), minor.parse().unwrap());
            // Other tests make and remove loop devices at the same time.
            let Some(disk) = BlockDevice::of(device) else {
                assert!(!entry.path().join("queue").is_dir(), "{number}");
                continue;
            };
            let own = fs::canonicalize(entry.path());
            assert!(
                own.is_err() || own.unwrap().starts_with(disk.directory()),
                "{number}"
            );
        }
    }
}
