//! Namespaces of one's own (unshare(2)).

use rustix::io::Result;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives the calling thread a mount namespace of its own, a copy of the present one.
pub(crate) fn unshare_mounts() -> Result<()> {
    // SAFETY: the one requirement concerns `UnshareFlags::FILES`, which is not passed.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
}

/// Gives the calling thread a user namespace of its own, in which it has every capability, and a
/// mount namespace that belongs to it. EINVAL if the process has more than one thread.
pub(crate) fn unshare_user_and_mounts() -> Result<()> {
    // SAFETY: the one requirement concerns `UnshareFlags::FILES`, which is not passed.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
}
