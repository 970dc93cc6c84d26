//! Mounts that all programs of a user see, and that nobody serves any more.

use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use brisk_launch::error::Cause;
use brisk_launch::mount_table::mounts;
use brisk_launch::open::open_null;
use brisk_launch::sys::process::start_detached;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::geteuid;

use super::shared_mount_point::SharedMountPoint;
use crate::fuse::connection::FS_TYPE;

/// How long a mount may be without a server before its guardian unmounts it.
const ENDING: Duration = Duration::from_millis(100);

/// How soon the kernel says that nobody serves a mount, also on a busy machine. Only a server that was stopped makes anybody wait
/// for so long.
const DEAD_WITHIN: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Unmounts what the calling user has mounted for all of their programs and nobody serves any more, because all processes were
/// killed that could unmount it. A mount that is looked at cannot be unmounted meanwhile, so those on `kept` are not.
pub(super) fn remove_dead_mounts(kept: &[&Path]) -> Result<(), Cause> {
    let user = format!("user_id={}", geteuid().as_raw());
    let mounts = mounts().map_err(|e| Cause::io("read /proc/self/mountinfo", e))?;
    let own = mounts.into_iter().filter(|entry| {
        let mut options = entry.super_options.split(',');
        entry.fs_type == FS_TYPE
            && options.any(|option| option == user)
            && !kept.contains(&&*entry.target)
    });
    let places: Vec<_> = own.map(|entry| entry.target).collect();
    let mut dead = dead_of(&places)?;
    if !dead.is_empty() {
        // One whose guardian is just about to unmount it looks the same, and a new one may be mounted there right after.
        thread::sleep(ENDING);
        dead = dead_of(&dead)?;
    }
    let taken_out = dead.into_iter();
    let taken_out = taken_out.map(|place| SharedMountPoint::of(place, true).take_out());
    // One that stays keeps no other.
    taken_out.fold(Ok(()), Result::and)
}

/// The places of mounts that nobody serves any more. Other processes ask, one for each, because a server that is stopped does not
/// answer.
fn dead_of(places: &[PathBuf]) -> Result<Vec<PathBuf>, Cause> {
    let failed = |e| Cause::io("look for mounts that nobody serves", e);
    let (said, says) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    let null = open_null()?;
    let kept = [says.as_raw_fd()];
    for (index, place) in (0u8..).zip(places) {
        let says = &says;
        start_detached(&kept, null.as_fd(), move || {
            let asks = AtFlags::STATX_FORCE_SYNC;
            let found = statx(CWD, place, asks, StatxFlags::BASIC_STATS);
            if let Err(Errno::NOTCONN | Errno::CONNABORTED) = found {
                // If nobody waits any more, a later look finds the same.
                rustix::io::write(says, &[index]).ok();
            }
            0
        })
        .map_err(failed)?;
    }
    drop(says);
    let mut dead = Vec::new();
    let mut fds = [PollFd::new(&said, PollFlags::IN)];
    let mut index = [0];
    while poll(&mut fds, Some(&DEAD_WITHIN)).map_err(|e| failed(e.into()))? > 0
        && rustix::io::read(&said, &mut index).map_err(|e| failed(e.into()))? > 0
    {
        dead.extend(places.get(usize::from(index[0])).cloned());
    }
    Ok(dead)
}
