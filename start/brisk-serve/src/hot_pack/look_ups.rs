//! Looks up the files of a mount, because pages can only be stored in files that the kernel knows.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use brisk_image::hot_pack::HotPack;
use brisk_launch::beneath::{Reach, open_by_components};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use rustix::io::Errno;

use super::fill_counts::FillCounters;

/// How many directories are open at once while names are looked up.
const DIRECTORIES: usize = 128;

/// How many names are counted at once.
const STEP: u64 = 64;

/// Looks up all names of a pack in the mount with this root, so that the kernel has the answers when the
/// program asks.
pub(super) fn look_up_all(
    root: BorrowedFd<'_>,
    pack: &HotPack,
    counters: &FillCounters,
    is_over: impl Fn() -> bool,
) {
    let mut open: HashMap<&Path, Option<OwnedFd>> = HashMap::new();
    let mut uncounted = 0;
    for look_up in pack.look_ups() {
        if is_over() {
            break;
        }
        if open.len() >= DIRECTORIES && !open.contains_key(look_up.directory) {
            open.clear();
        }
        let directory = open
            .entry(look_up.directory)
            .or_insert_with(|| open_directory(root, look_up.directory));
        if let Some(directory) = directory {
            is_there(directory.as_fd(), look_up.name);
            uncounted += 1;
            if uncounted == STEP {
                counters.primed(uncounted);
                uncounted = 0;
            }
        }
    }
    counters.primed(uncounted);
}

/// Looks up the file at `path` in the mount with this root. False if it is not there.
pub(super) fn look_up(root: BorrowedFd<'_>, path: &Path) -> bool {
    let parent = path.parent().unwrap_or(Path::new(""));
    match (open_directory(root, parent), path.file_name()) {
        (Some(directory), Some(name)) => is_there(directory.as_fd(), name),
        _ => false,
    }
}

/// Opens a directory of the mount as a path only. That asks the server only for names.
fn open_directory(root: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Other mounts in it do not belong to the image, and the target of a link has a name of its own.
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match openat2(root, path, flags, Mode::empty(), within) {
        // Linux before 5.6, or a filter of system calls that does not know this one.
        Err(Errno::NOSYS | Errno::PERM) => open_by_components(root, path, Reach::OneFileSystem),
        result => result,
    }
    .ok()
}

/// Makes the kernel look up a name. False if it is absent.
fn is_there(directory: BorrowedFd<'_>, name: &OsStr) -> bool {
    let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    statx(directory, name, how, StatxFlags::empty()).is_ok()
}
