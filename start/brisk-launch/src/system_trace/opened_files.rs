//! Learns the names of files by their inodes, from all files that are opened while it watches, and what traced processes
//! open.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;

use super::asked_names::{Asked, AskedNames};
use super::tracefs::lacks;
use crate::error::Cause;
use crate::mount_table::{MountEntry, mounts};
use crate::sys::fanotify::{opened_files, watch_file_system, watch_opens};

/// File systems without a disk whose files are in the page cache by inode, as the kernel's events say.
const DISKLESS: [&str; 7] = [
    "btrfs", "bcachefs", "nfs", "nfs4", "cifs", "ceph", "virtiofs",
];

/// How many names of files are kept: about 200 MB.
const MAX_NAMES: usize = 1 << 20;

pub struct OpenedFiles {
    group: OwnedFd,
    /// By device and inode, as `stat` shows them.
    names: HashMap<(u64, u64), PathBuf>,
    opened: AskedNames,
}

/// What was seen of files that were opened.
pub struct Names {
    /// The names of files, by device and inode.
    pub of_files: HashMap<(u64, u64), PathBuf>,
    /// What traced processes have opened.
    pub opened: Vec<Asked>,
}

/// File systems whose files lie on the disks of others, or of which the kernel's events do not tell.
const ON_OTHERS: [&str; 3] = ["overlay", "zfs", "fuseblk"];

/// Whether files of this mount lie on a disk.
pub fn is_on_disk(mount: &MountEntry) -> bool {
    is_watched(mount) || ON_OTHERS.contains(&&*mount.fs_type)
}

/// Whether files of this mount are watched.
pub fn is_watched(mount: &MountEntry) -> bool {
    DISKLESS.contains(&&*mount.fs_type)
        || mount.device_numbers().is_some_and(|(major, _)| major != 0)
}

impl OpenedFiles {
    /// Watches all file systems on disks from now on.
    pub fn watch() -> Result<Self, Cause> {
        let group = watch_opens().map_err(|e| match e {
            Errno::PERM => Cause::not_permitted(),
            Errno::NOSYS => lacks("fanotify (CONFIG_FANOTIFY)"),
            e => Cause::io("watch for files that are opened", e),
        })?;
        let mounts = mounts().map_err(|e| Cause::io("read /proc/self/mountinfo", e))?;
        let mut devices = Vec::new();
        for mount in mounts.iter().filter(|mount| is_watched(mount)) {
            if devices.contains(&&mount.device) {
                continue;
            }
            let target = CString::new(mount.target.as_os_str().as_bytes());
            let target = target.map_err(|e| Cause::io("name a mount point", e))?;
            match watch_file_system(group.as_fd(), &target) {
                Ok(()) => devices.push(&mount.device),
                Err(Errno::INVAL) => {
                    return Err(lacks("fanotify for whole file systems (Linux 4.20)"));
                }
                // It is hidden by another mount, or its kind has no identity. Its files have no names then.
                Err(_) => {}
            }
        }
        Ok(Self {
            group,
            names: HashMap::new(),
            opened: AskedNames::default(),
        })
    }

    /// Notes which files were opened `at` about this time. False if there were none.
    pub fn read(&mut self, at: Duration) -> rustix::io::Result<bool> {
        let files = opened_files(self.group.as_fd())?;
        let some = !files.is_empty();
        for (file, pid) in files {
            let file = File::from(file);
            let Ok(metadata) = file.metadata() else {
                continue;
            };
            let Ok(path) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) else {
                continue;
            };
            let id = (metadata.dev(), metadata.ino());
            // The newest counts: the number may have been that of another file, which was removed.
            let is_named = metadata.is_file() && metadata.nlink() > 0;
            if is_named && (self.names.len() < MAX_NAMES || self.names.contains_key(&id)) {
                self.names.insert(id, path.clone());
            }
            self.opened.add(pid, Asked { path, at });
        }
        Ok(some)
    }

    /// Keeps what traced processes have opened. The names of files stay in any case.
    pub fn settle(&mut self, is_traced: impl Fn(i32) -> bool) {
        self.opened.settle(is_traced);
    }

    pub fn into_names(self) -> Names {
        Names {
            of_files: self.names,
            opened: self.opened.into_names(),
        }
    }
}

impl AsFd for OpenedFiles {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}
