use std::thread::sleep;
use std::time::Duration;
use std::{fs, io};

use brisk_launch::error::{Advice, Cause, Error, ErrorKind, Result};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, capabilities};

use crate::action::{Action, NO_NAMESPACES};
use crate::kernel_support::UserNamespaces;
use crate::sys::namespaces::{unshare_mounts, unshare_user_and_mounts};

/// Whether this process may mount without help.
pub(crate) fn is_privileged() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Gives the process a mount namespace of its own.
///
/// The mounts become slaves of the ones they were copied from, recursively. So only the process and its
/// descendants see what it mounts from now on. But a disk that the system mounts later still appears, and one
/// that it unmounts is released. Fully private mounts would keep every disk busy that was mounted at the
/// start, as long as the program runs.
///
/// # Errors
///
/// `State` if the process has more than one thread, because the others would stay outside. `NotPermitted`
/// without root. `Unsupported` if the root directory is not a mount point (a plain chroot). After the last
/// two errors, the process may be in the new namespace already.
pub fn enter_private() -> Result<()> {
    enter().map_err(|cause| Error::new(Action::Isolate, cause))
}

/// The kind of namespace of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamespaceKind {
    /// A mount namespace that belongs to the user namespace of the process, as for root.
    Privileged,
    /// Also a user namespace, in which the process has every capability.
    UserNamespace,
}

/// Gives the process namespaces in which it may mount: a mount namespace, and without root also a user
/// namespace. In that one, only `user` and `group` exist, with their own numbers.
pub(crate) fn enter_session(user: Uid, group: Gid) -> Result<NamespaceKind, Cause> {
    if user.is_root() {
        match enter() {
            // Root of a container may lack the right but may make a user namespace.
            Err(cause) if cause.kind() == ErrorKind::NotPermitted => {}
            result => return result.map(|()| NamespaceKind::Privileged),
        }
    }
    one_thread()?;
    let refused = |source: io::Error| {
        let cause = Cause::unsupported(
            "the system refuses user namespaces to this user, and mounting without root needs them; run it as root",
        );
        let cause = cause.named(NO_NAMESPACES).because(source);
        cause.advise(Advice::AllowNamespaces)
    };
    // If AppArmor restricts user namespaces, one can be made but nothing can be done in it, and there is no
    // way back. So this checks first.
    if !UserNamespaces::probe().unprivileged() {
        return Err(refused(Errno::PERM.into()));
    }
    unshare_user_and_mounts().map_err(|e| refused(e.into()))?;
    // An ordinary user may map itself, and also its group once groups can no longer be dropped.
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{0} {0} 1", user.as_raw())),
        ("gid_map", format!("{0} {0} 1", group.as_raw())),
    ] {
        fs::write(format!("/proc/self/{file}"), text).map_err(refused)?;
    }
    contain().map_err(|cause| match cause {
        cause if cause.kind() == ErrorKind::NotPermitted => refused(Errno::PERM.into()),
        cause => cause,
    })?;
    Ok(NamespaceKind::UserNamespace)
}

/// How often, and how far apart, threads are counted that may be about to end.
const COUNTS: u32 = 200;
const APART: Duration = Duration::from_millis(1);

/// Fails if the process has several threads. One that was joined is still counted until the kernel has removed it.
fn one_thread() -> Result<(), Cause> {
    let mut left = COUNTS;
    loop {
        let tasks = fs::read_dir("/proc/self/task");
        let tasks = tasks.map_err(|e| Cause::io("count its own threads", e))?;
        match tasks.count() {
            1 => return Ok(()),
            several if left == 0 => return Err(several_threads(several)),
            _ => left -= 1,
        }
        sleep(APART);
    }
}

/// A process with several threads cannot do it.
pub(crate) fn several_threads(count: usize) -> Cause {
    Cause::new(
        ErrorKind::State,
        format!("the process has {count} threads, allowed is 1; enter before starting threads"),
    )
}

fn enter() -> Result<(), Cause> {
    one_thread()?;
    unshare_mounts().map_err(|e| match e {
        Errno::PERM => Cause::not_permitted(),
        e => Cause::io("make a mount namespace", e),
    })?;
    contain()
}

/// Keeps later mounts inside of the namespace.
fn contain() -> Result<(), Cause> {
    mount_change(
        "/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )
    .map_err(|e| match e {
        Errno::INVAL => Cause::unsupported(
            "the root directory is not a mount point, so mounts would be visible outside; in a chroot, bind its root onto \
             itself first",
        ),
        Errno::PERM | Errno::ACCESS => Cause::not_permitted(),
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
