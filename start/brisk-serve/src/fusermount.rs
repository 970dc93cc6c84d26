//! `fusermount3`, the set-user-id helper of libfuse that mounts for ordinary users, or `fusermount`, that of version 2.
//!
//! It gets one end of a socket, mounts, and sends the open `/dev/fuse` through the socket (libfuse,
//! `lib/mount.c` and `util/fusermount.c`). Its standard input is that end, so that no other descriptor has to
//! be inherited.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use brisk_launch::error::{Advice, Cause, ErrorKind};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::action::{FUSERMOUNT_REFUSES, NO_FUSERMOUNT};
use crate::session::message::receive;

const PROGRAMS: [&str; 2] = ["fusermount3", "fusermount"];

/// Mounts a FUSE file system on `target`, and returns its channel.
///
/// `options` are those of `fusermount3 -o`. It adds `nosuid` and `nodev` for everybody but root.
pub(crate) fn mount(target: &Path, options: &OsStr) -> Result<OwnedFd, Cause> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|e| Cause::io("make a pair of sockets", e))?;
    run(|command| {
        let stdin = theirs.try_clone();
        let stdin = stdin.map_err(|e| Cause::io("hold a socket", e))?;
        command
            .arg("-o")
            .arg(options)
            .arg("--")
            .arg(target)
            .env("_FUSE_COMMFD", "0")
            .stdin(Stdio::from(stdin));
        Ok(())
    })?;
    // It has ended and its end of the socket is closed, so this does not wait.
    drop(theirs);
    receive_channel(&ours).map_err(|e| Cause::io("get the mount's channel from fusermount3", e))
}

/// Unmounts what is mounted on `target`, which must be a mount of the caller.
pub(crate) fn unmount(target: &Path, lazy: bool) -> Result<(), Cause> {
    let unmounted = run(|command| {
        command.arg("-u").stdin(Stdio::null());
        if lazy {
            command.arg("-z");
        }
        command.arg("--").arg(target);
        Ok(())
    });
    match unmounted {
        Err(cause) if cause.to_string().ends_with("busy") => Err(mount_busy()),
        result => result,
    }
}

/// Programs use the mount.
pub(crate) fn mount_busy() -> Cause {
    let cause = Cause::busy("a program still uses it (fuser -vm shows it)");
    cause.advise(Advice::EndPrograms)
}

/// Runs the first of the programs that there is, as `prepare` says.
fn run(prepare: impl Fn(&mut Command) -> Result<(), Cause>) -> Result<(), Cause> {
    let mut result = Ok(());
    for program in PROGRAMS {
        let mut command = Command::new(program);
        prepare(&mut command)?;
        match (finish(program, &mut command), &result) {
            // The first one is the one to install.
            (Err(cause), Ok(())) if cause.is(NO_FUSERMOUNT) => result = Err(cause),
            (Err(cause), Err(_)) if cause.is(NO_FUSERMOUNT) => {}
            (finished, _) => return finished,
        }
    }
    result
}

fn finish(name: &str, command: &mut Command) -> Result<(), Cause> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => Cause::unsupported(
            "there is no fusermount3; install the package fuse3, or run it as root",
        )
        .named(NO_FUSERMOUNT),
        _ => Cause::io("start fusermount3", e),
    };
    let mut program = command
        .env("LC_ALL", "C")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut said = String::new();
    if let Some(errors) = &mut program.stderr {
        let mut bytes = Vec::new();
        errors.read_to_end(&mut bytes).map_err(failed)?;
        said = String::from_utf8_lossy(&bytes).into_owned();
    }
    let how = match program.wait() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        // The process that started this one may have chosen that children leave no status.
        Err(e) if Errno::from_io_error(&e) == Some(Errno::CHILD) && said.is_empty() => {
            return Ok(());
        }
        Err(e) => e.to_string(),
    };
    let text = format!("{name} says: {}", last_words(&said, &how));
    Err(Cause::new(ErrorKind::NotPermitted, text).named(FUSERMOUNT_REFUSES))
}

/// The last message of the program, without its own name. If there is none, how it ended.
fn last_words(said: &str, how: &str) -> String {
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    match last {
        Some(line) => {
            let line = line.trim();
            let mut names = PROGRAMS.iter();
            let rest = names.find_map(|name| line.strip_prefix(name)?.strip_prefix(": "));
            rest.unwrap_or(line).to_owned()
        }
        None => format!("it ended with {how} and without a message"),
    }
}

fn receive_channel(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let message = receive(socket)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let mut descriptors = message.descriptors.into_iter();
    descriptors
        .next()
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Options of `fusermount3 -o` for an image: read-only, and with brisk's file system type.
///
/// Commas and backslashes in the image's name are escaped as libfuse does.
pub(crate) fn options(image: &Path, allow_other: bool) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut options = b"ro,nosuid,nodev,default_permissions,subtype=brisk".to_vec();
    if allow_other {
        options.extend(b",allow_other");
    }
    options.extend(b",fsname=");
    for &byte in image.as_os_str().as_bytes() {
        if matches!(byte, b',' | b'\\') {
            options.push(b'\\');
        }
        options.push(byte);
    }
    OsString::from_vec(options)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;
    use crate::session::message::send;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("sockets")
    }

    #[test]
    fn the_channel_comes_through_the_socket() {
        let (ours, theirs) = pair();
        let file = File::open("/proc/self/cmdline").expect("proc");
        send(&theirs, &[b"\0"], &[file.as_fd()]).expect("sent");
        let mut text = String::new();
        File::from(receive_channel(&ours).expect("received"))
            .read_to_string(&mut text)
            .expect("text");
        assert!(!text.is_empty());
    }

    #[test]
    fn an_end_without_a_channel_is_an_error() {
        let (ours, theirs) = pair();
        drop(theirs);
        let error = receive_channel(&ours).expect_err("nothing was sent");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let (ours, theirs) = pair();
        rustix::io::write(&theirs, &[0]).expect("a byte");
        let error = receive_channel(&ours).expect_err("no channel was sent");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn names_of_images_cannot_add_options() {
        assert_eq!(
            options(Path::new("/a,suid\\b.img"), false),
            "ro,nosuid,nodev,default_permissions,subtype=brisk,fsname=/a\\,suid\\\\b.img"
        );
        assert_eq!(
            options(Path::new("b"), true),
            "ro,nosuid,nodev,default_permissions,subtype=brisk,allow_other,fsname=b"
        );
    }

    #[test]
    fn the_last_words_are_without_the_name_of_the_program() {
        let how = "exit status: 1";
        assert_eq!(
            last_words("note\nfusermount3: user has no write access\n\n", how),
            "user has no write access"
        );
        assert_eq!(
            last_words("", how),
            "it ended with exit status: 1 and without a message"
        );
    }
}
