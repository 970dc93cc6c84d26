//! The device `/dev/fuse` (linux/fuse.h).

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor, open};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Setter, ioctl};

/// Whether a file with this type and this device number is FUSE. The numbers are in the kernel's `devices.txt`. A sandbox
/// may have bound `/dev/null` over `/dev/fuse`.
pub(crate) fn is_fuse(mode: u32, device: u64) -> bool {
    FileType::from_raw_mode(mode) == FileType::CharacterDevice
        && (major(device), minor(device)) == (10, 229)
}

const FUSE_DEV_IOC_CLONE: Opcode = 0x8004_e500;

/// Another channel of the connection that `channel` belongs to. EINVAL if it belongs to none, or was opened
/// in another user namespace. ENXIO if `/dev/fuse` is another device.
pub(crate) fn clone_fuse_channel(channel: BorrowedFd<'_>) -> Result<OwnedFd> {
    let fd = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&fd)?;
    if !is_fuse(stat.st_mode, stat.st_rdev) {
        return Err(Errno::NXIO);
    }
    let number = channel.as_raw_fd().unsigned_abs();
    // SAFETY: FUSE_DEV_IOC_CLONE reads one `u32`, a descriptor's number.
    let argument = unsafe { Setter::<FUSE_DEV_IOC_CLONE, u32>::new(number) };
    // SAFETY: the driver is FUSE (checked above). It only reads the argument, which lives through
    // the call; the descriptor number in it belongs to `channel`, borrowed as long, and the driver
    // checks that it is a channel.
    unsafe { ioctl(&fd, argument) }?;
    Ok(fd)
}
