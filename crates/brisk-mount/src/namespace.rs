use std::fs;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};

use crate::error::{Action, Cause, Error, Result};
use crate::syscalls::unshare_mounts;

/// Gives the process a mount namespace of its own.
///
/// The mounts become slaves of the ones they were copied from, recursively: what the process
/// mounts from now on is seen by it and its descendants alone, while a disk that the system mounts
/// later still appears, and one it unmounts is let go of. Fully private mounts would pin every disk
/// that was mounted at the start for as long as the program runs.
///
/// # Errors
///
/// `State` if the process has more than one thread, since the others would stay outside;
/// `NotPermitted` without root; `Unsupported` if the root directory is not a mount point (a plain
/// chroot). After the last two, the process may be in the new namespace already.
pub fn enter_private() -> Result<()> {
    enter().map_err(|cause| Error::new(Action::Isolate, cause))
}

fn enter() -> Result<(), Cause> {
    let tasks =
        fs::read_dir("/proc/self/task").map_err(|e| Cause::io("count its own threads", e))?;
    let count = tasks.count();
    if count != 1 {
        return Err(Cause::Threads { count });
    }
    unshare_mounts().map_err(|e| match e {
        Errno::PERM => Cause::NotPermitted,
        e => Cause::io("make a mount namespace", e),
    })?;
    mount_change(
        "/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )
    .map_err(|e| match e {
        Errno::INVAL => Cause::RootNotMountPoint,
        Errno::PERM | Errno::ACCESS => Cause::NotPermitted,
        e => Cause::io("keep mounts from leaking out", e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_refused() {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        let error = enter_private().expect_err("the test harness has threads");
        drop(stop);
        assert_eq!(
            thread.join().expect("no panic"),
            Err(std::sync::mpsc::RecvError)
        );
        assert_eq!(error.kind(), crate::ErrorKind::State);
        let text = error.to_string();
        assert!(
            text.starts_with("cannot enter a mount namespace: the process has ")
                && text.ends_with(" threads, allowed is 1; enter before starting threads"),
            "{text}"
        );
    }
}
