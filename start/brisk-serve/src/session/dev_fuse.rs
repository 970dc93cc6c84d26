//! Mounts a FUSE file system through `/dev/fuse`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use brisk_launch::error::Cause;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{getegid, geteuid};

use crate::action::MOUNT_REFUSED;
use crate::fuse::connection::{FS_TYPE, mount_data};
use crate::sys::fuse_device::is_fuse;

/// Opens `/dev/fuse`.
pub(crate) fn open_channel() -> Result<OwnedFd, Cause> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let channel = openat(CWD, "/dev/fuse", flags, Mode::empty()).map_err(|e| match e {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => no_fuse(),
        Errno::ACCESS | Errno::PERM => Cause::unsupported(
            "this user may not open /dev/fuse; allow it with chmod 666 /dev/fuse, as udev does",
        )
        .because(io::Error::from(e)),
        e => Cause::io("open /dev/fuse", e),
    })?;
    let stat = fstat(&channel).map_err(|e| Cause::io("examine /dev/fuse", e))?;
    match is_fuse(stat.st_mode, stat.st_rdev) {
        true => Ok(channel),
        false => Err(Cause::unsupported(
            "/dev/fuse is not the FUSE device; a sandbox has put another file there: give it the real one (--device /dev/fuse)",
        )),
    }
}

fn no_fuse() -> Cause {
    Cause::unsupported(
        "there is no /dev/fuse; load it with modprobe fuse, or give a container /dev/fuse (--device /dev/fuse)",
    )
}

/// Mounts a file system with this name on the directory `on`, and returns its channel to the kernel. Nobody
/// answers requests yet, so nothing in the mount may be touched.
pub(crate) fn mount_channel(name: &Path, on: &Path) -> Result<OwnedFd, Cause> {
    mount_channel_with(name, on, MountFlags::NOSUID | MountFlags::NODEV)
}

/// The same with these flags, besides that it is read-only.
pub(crate) fn mount_channel_with(
    name: &Path,
    on: &Path,
    flags: MountFlags,
) -> Result<OwnedFd, Cause> {
    let channel = open_channel()?;
    let data = mount_data(channel.as_fd(), geteuid().as_raw(), getegid().as_raw());
    let data = std::ffi::CString::new(data).map_err(|e| Cause::io("mount", e))?;
    let flags = flags | MountFlags::RDONLY;
    mount(name, on, FS_TYPE, flags, Some(data.as_c_str())).map_err(|e| match e {
        Errno::NODEV => no_fuse(),
        Errno::PERM | Errno::ACCESS => Cause::unsupported(
            "the system allows a user namespace but no mount in it; allow brisk to mount (AppArmor, seccomp), or run it as root",
        )
        .named(MOUNT_REFUSED)
        .because(io::Error::from(e)),
        e => Cause::io(format!("mount on {}", on.display()), e),
    })?;
    Ok(channel)
}
