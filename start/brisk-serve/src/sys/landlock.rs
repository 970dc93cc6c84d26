//! Which version of Landlock the kernel has (landlock(7)).

use std::ffi::{c_uint, c_void};
use std::ptr;

use brisk_launch::sys::last_errno;
use rustix::io::Result;

/// The version of Landlock. 0 or an error if the kernel has none.
pub(crate) fn landlock_version() -> Result<u32> {
    const CREATE_RULESET_VERSION: c_uint = 1;
    let nothing = ptr::null::<c_void>();
    // SAFETY: with this flag the call takes no memory: the pointer is null and the length 0.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            nothing,
            0usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(version).map_err(|_| last_errno())
}
