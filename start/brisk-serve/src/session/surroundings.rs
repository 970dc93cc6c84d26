//! From where a process sees the system: its namespaces and its root directory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, makedev, openat, statx};
use rustix::io::{Errno, Result};

/// What a process must share with the one that made a session to be let into it.
///
/// A process that was confined to other namespaces or to another root directory would leave its confinement by joining:
/// it gets the session's own namespaces. So the guardian asks it for descriptors of its surroundings. A confined process
/// has none of those outside, and could leave without the guardian if it had. The guardian cannot look for itself: the
/// kernel shows a process in a user namespace nothing of the processes outside.
///
/// For each descriptor: device, inode, and mount (zero before Linux 5.8). Another mount of the same directory may be
/// read-only.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Surroundings([(u64, u64, u64); COUNT]);

/// How many descriptors stand for the surroundings of a process.
pub(super) const COUNT: usize = 4;

impl Surroundings {
    /// Those of the calling process.
    pub(super) fn of_this_process() -> Result<Self> {
        Self::shown(&descriptors()?)
    }

    /// Those that descriptors of another process show. `INVAL` if there are more or fewer descriptors than it takes.
    pub(super) fn shown(descriptors: &[OwnedFd]) -> Result<Self> {
        let Ok(descriptors) = <&[OwnedFd; COUNT]>::try_from(descriptors) else {
            return Err(Errno::INVAL);
        };
        let mut found = [(0, 0, 0); COUNT];
        for (found, descriptor) in found.iter_mut().zip(descriptors) {
            // A descriptor of a mount whose server never answers must not make the guardian wait.
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            let stat = statx(descriptor, "", flags, StatxFlags::INO | StatxFlags::MNT_ID)?;
            let device = makedev(stat.stx_dev_major, stat.stx_dev_minor);
            *found = (device, stat.stx_ino, stat.stx_mnt_id);
        }
        Ok(Self(found))
    }
}

/// Descriptors that show the surroundings of the calling process to a guardian.
pub(super) fn descriptors() -> Result<[OwnedFd; COUNT]> {
    let open = |path| openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    Ok([
        open("/proc/self/ns/user")?,
        open("/proc/self/ns/mnt")?,
        open("/proc/self/ns/pid")?,
        open("/")?,
    ])
}

/// The same descriptors, for sending.
pub(super) fn borrowed(descriptors: &[OwnedFd; COUNT]) -> [BorrowedFd<'_>; COUNT] {
    descriptors.each_ref().map(AsFd::as_fd)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::session::message::receive;

    /// Connects to the socket in its first argument, and shows its surroundings there.
    const PEER: &str = "\
import array, os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
paths = ['/proc/self/ns/user', '/proc/self/ns/mnt', '/proc/self/ns/pid', '/']
fds = array.array('i', [os.open(path, os.O_PATH) for path in paths])
s.sendmsg([b'join'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
sys.stdin.read()
";

    /// Enters its own namespace again, in a root directory that is another mount of this one.
    const BOUND: &str = "\
mount --make-rprivate / && mount --rbind / /mnt && exec chroot /mnt \"$@\"";

    /// What `python3`, started by `wrapper`, shows.
    fn shown_by(wrapper: &[&str]) -> Surroundings {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sock");
        let listener = UnixListener::bind(&path).expect("a new name");
        let mut child = Command::new(wrapper[0])
            .args(&wrapper[1..])
            .args(["python3", "-c", PEER])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .expect("it is installed");
        let (peer, _) = listener.accept().expect("it connects");
        let message = receive(&peer).expect("a packet").expect("not closed");
        let shown = Surroundings::shown(&message.descriptors).expect("four descriptors");
        child
            .stdin
            .take()
            .map(|mut hold| hold.write_all(b""))
            .expect("a pipe")
            .expect("open");
        child.wait().expect("our child");
        shown
    }

    #[test]
    fn a_peer_elsewhere_is_told_from_one_here() {
        let own = Surroundings::of_this_process().expect("/proc");
        assert_eq!(shown_by(&["env"]), own);
        for elsewhere in [
            ["unshare", "--mount"].as_slice(),
            &["unshare", "--user", "--map-root-user"],
            &["unshare", "--pid", "--fork"],
            // The same directory, by another mount.
            &["unshare", "--mount", "sh", "-c", BOUND, "sh"],
        ] {
            assert_ne!(shown_by(elsewhere), own, "{elsewhere:?}");
        }
    }

    #[test]
    fn a_peer_that_shows_less_or_more_is_refused() {
        let mut shown: Vec<OwnedFd> = descriptors().expect("/proc").into();
        shown.push(shown[0].try_clone().expect("a descriptor"));
        assert_eq!(Surroundings::shown(&shown), Err(Errno::INVAL));
        shown.truncate(3);
        assert_eq!(Surroundings::shown(&shown), Err(Errno::INVAL));
    }
}
