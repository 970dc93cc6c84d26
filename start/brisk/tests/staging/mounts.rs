//! A mount namespace for each test.

use std::cell::Cell;
use std::fs;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Where a thread finds its own mounts. `/proc/self` shows those of the first thread.
pub const TABLE: &str = "/proc/thread-self/mountinfo";

/// Gives the thread of a test, and what it starts, mounts of its own. A namespace that another test makes meanwhile would have
/// copies of them, and keep a session that is unmounted.
pub fn have_mounts_of_ones_own() {
    thread_local!(static HAS: Cell<bool> = const { Cell::new(false) });
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt")).expect("procfs");
    // What is mounted already, by this thread or the one that has started it, must stay in its one namespace.
    if HAS.replace(true) || namespace("thread-self") != namespace("self") {
        return;
    }
    // SAFETY: the one requirement concerns `UnshareFlags::FILES`, which is not passed.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.expect("root may");
    let inwards = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", inwards).expect("root may");
}
