//! Enters an existing session.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, fstat, openat, stat};
use rustix::io::Errno;
use rustix::process::{chroot, fchdir};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::EnteredSession;
use super::message::{receive, send};
use super::surroundings;
use crate::error::Cause;

/// Enters the session whose guardian is at the other end of `socket`. The socket stays open until the program
/// is executed, and the session does not end before. None if the session has ended.
pub(super) fn join(socket: OwnedFd, linger: Duration) -> Result<Option<EnteredSession>, Cause> {
    let failed = |e| Cause::io("join the session", e);
    let request = ["join".to_owned(), linger.as_millis().to_string()];
    let own = surroundings::descriptors().map_err(failed)?;
    match send(&socket, &request, &surroundings::borrowed(&own)) {
        Ok(()) => {}
        Err(Errno::PIPE | Errno::CONNRESET) => return Ok(None),
        Err(e) => return Err(failed(e)),
    }
    let Some(mut answer) = receive(&socket).map_err(failed)? else {
        return Ok(None);
    };
    let shared = answer.verb() == b"shared";
    let (place, descriptors) = (answer.fields.pop(), answer.descriptors);
    if let (Some(place), true) = (&place, shared) {
        let place = PathBuf::from(OsString::from_vec(place.clone()));
        return Ok(Some(EnteredSession {
            tree: place.clone(),
            joined: false,
            covered: vec![place],
            guardian: socket,
        }));
    }
    let (Some(place), Ok([mounts, root, user])) = (place, <[OwnedFd; 3]>::try_from(descriptors))
    else {
        return Err(failed(Errno::PROTO));
    };
    enter(&mounts, &root, &user).map_err(failed)?;
    Ok(Some(EnteredSession {
        tree: PathBuf::from(OsString::from_vec(place)),
        joined: true,
        covered: Vec::new(),
        guardian: socket,
    }))
}

fn enter(mounts: &OwnedFd, root: &OwnedFd, user: &OwnedFd) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let own = fstat(openat(CWD, "/proc/self/ns/user", flags, Mode::empty())?)?;
    let theirs = fstat(user)?;
    // The kernel refuses to enter the user namespace that the process is in already, as root is.
    if (own.st_dev, own.st_ino) != (theirs.st_dev, theirs.st_ino) {
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
    }
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
    // That changed this process's root directory to that of the namespace. A session that was made in a
    // chroot has another root.
    let (here, there) = (stat("/")?, fstat(root)?);
    if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino) {
        fchdir(root)?;
        chroot(".")?;
    }
    Ok(())
}
