//! Enters an existing session.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use brisk_launch::error::Cause;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat, stat};
use rustix::io::Errno;
use rustix::process::{chroot, fchdir};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::entered::EnteredSession;
use super::message::{Message, receive, send};
use super::surroundings;

/// How often a session may end just when a run joins it. Each time another run was faster.
pub(super) const TRIES: u32 = 10;

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
    let Some(answer) = receive(&socket).map_err(failed)? else {
        return Ok(None);
    };
    match JoinAnswer::parse(answer) {
        Err(Malformed) => Err(failed(Errno::PROTO)),
        Ok(JoinAnswer::Shared { place }) => Ok(Some(EnteredSession {
            tree: place.clone(),
            joined: false,
            covered: vec![place],
            made: Vec::new(),
            guardian: socket,
        })),
        Ok(JoinAnswer::Joined {
            place,
            namespaces: [mounts, root, user],
        }) => {
            enter(&mounts, &root, &user).map_err(failed)?;
            Ok(Some(EnteredSession {
                tree: place,
                joined: true,
                covered: Vec::new(),
                made: Vec::new(),
                guardian: socket,
            }))
        }
    }
}

/// The answer of a guardian to a run that joins.
///
/// 1. The place is an absolute path.
#[derive(Debug)]
pub(super) enum JoinAnswer {
    /// The image is mounted for all programs.
    Shared { place: PathBuf },
    /// The image is mounted in these namespaces: mounts, root directory and users.
    Joined {
        place: PathBuf,
        namespaces: [OwnedFd; 3],
    },
}

/// A message that is no answer to a run that joins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl JoinAnswer {
    /// Checks a message.
    pub(super) fn parse(message: Message) -> Result<Self, Malformed> {
        let Ok([verb, place]) = <[Vec<u8>; 2]>::try_from(message.fields) else {
            return Err(Malformed);
        };
        let place = PathBuf::from(OsString::from_vec(place));
        if !place.is_absolute() {
            return Err(Malformed);
        }
        match (&verb[..], <[OwnedFd; 3]>::try_from(message.descriptors)) {
            (b"shared", Err(none)) if none.is_empty() => Ok(Self::Shared { place }),
            (b"joined", Ok(namespaces)) => Ok(Self::Joined { place, namespaces }),
            _ => Err(Malformed),
        }
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn place(&self) -> &std::path::Path {
        let (Self::Shared { place } | Self::Joined { place, .. }) = self;
        place
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_with_a_place_and_its_descriptors_is_one() {
        for (fields, descriptors, is_answer) in [
            (&["shared", "/a"][..], 0, true),
            (&["joined", "/a"], 3, true),
            (&["shared", "/a"], 3, false),
            (&["joined", "/a"], 0, false),
            (&["joined", "/a"], 2, false),
            (&["joined", "/a"], 4, false),
            (&["joined", ""], 3, false),
            (&["joined", "a/b"], 3, false),
            (&["joined", "../a"], 3, false),
            (&["joined"], 3, false),
            (&["joined", "/a", "/b"], 3, false),
            (&["Joined", "/a"], 3, false),
            (&[""], 0, false),
        ] {
            let open = |_| openat(CWD, "/", OFlags::PATH, Mode::empty()).expect("a root");
            let message = Message {
                fields: fields
                    .iter()
                    .map(|field| field.as_bytes().to_vec())
                    .collect(),
                descriptors: (0..descriptors).map(open).collect(),
            };
            let parsed = JoinAnswer::parse(message);
            assert_eq!(
                parsed.is_ok(),
                is_answer,
                "{fields:?}, {descriptors} descriptors"
            );
        }
    }
}
