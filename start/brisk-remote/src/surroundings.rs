//! What a fetcher asks servers with and cannot change while it lives: its network, and the variables that name proxies and
//! certificates.

use std::env;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{PathBuf, absolute};

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::hex::sha256_of;
use crate::protocol::{Ask, MOST_LINE, write_line};

/// Variables that name proxies. They count in small and large letters.
const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];

/// Variables that name a file or a directory with certificates.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The variables with certificates that are set. The paths are absolute, because a fetcher is in no directory of the user.
pub fn certificates() -> impl Iterator<Item = (&'static str, PathBuf)> {
    let named = CERTIFICATES
        .into_iter()
        .filter_map(|name| Some((name, env::var_os(name)?)));
    named.filter_map(|(name, path)| Some((name, absolute(path).ok()?)))
}

/// Those of a process.
///
/// A process without a network would get one by a fetcher that has one. So it shows a descriptor of its network, and a confined one
/// has none of another.
#[derive(Debug)]
pub struct Surroundings {
    network: OwnedFd,
    /// A digest of the variables, and of which file has the certificates.
    variables: String,
}

impl Surroundings {
    /// Those of this process.
    ///
    /// # Errors
    ///
    /// If there is no `/proc`.
    pub fn of_this_process() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let network = openat(CWD, "/proc/self/ns/net", flags, Mode::empty())?;
        let proxies = PROXIES
            .into_iter()
            .flat_map(|name| [name.to_owned(), name.to_ascii_uppercase()]);
        let mut parts: Vec<Vec<u8>> = proxies
            .map(|name| env::var_os(name).unwrap_or_default().into_vec())
            .collect();
        for (name, path) in certificates() {
            // Another file under the same name is told from the one that was read.
            let file = fs::metadata(&path).map(|file| {
                let time = (file.mtime(), file.mtime_nsec());
                format!("{} {} {time:?}", file.dev(), file.ino())
            });
            parts.push(name.into());
            parts.push(path.into_os_string().into_vec());
            parts.push(file.unwrap_or_default().into_bytes());
        }
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        Ok(Self {
            network,
            variables: sha256_of(&parts),
        })
    }

    /// Says them first on a connection to a fetcher.
    pub(crate) fn show(&self, stream: impl AsFd) -> io::Result<()> {
        let mut line = Vec::new();
        let variables = self.variables.clone();
        write_line(&mut line, &Ask::Hello { variables })?;
        let network = [self.network.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&network));
        // It is short, so it goes as a whole into the empty buffer.
        sendmsg(
            stream,
            &[IoSlice::new(&line)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// The first bytes on a connection, and the network that was shown with them. `WouldBlock` if there are none yet, and the socket
    /// does not wait.
    ///
    /// # Errors
    ///
    /// Those of `recvmsg`.
    pub fn receive(stream: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let mut bytes = vec![0; MOST_LINE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            stream,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        bytes.truncate(received.bytes);
        let shown = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        Ok((bytes, shown))
    }

    /// How others differ, which are shown by this descriptor and say this of their variables. None if they do not.
    pub fn difference(&self, network: Option<&OwnedFd>, variables: &str) -> Option<&'static str> {
        let place = |fd: &OwnedFd| fstat(fd).map(|file| (file.st_dev, file.st_ino)).ok();
        let own = place(&self.network);
        if own.is_none() || network.and_then(place) != own {
            return Some("another network (network namespace)");
        }
        (variables != self.variables).then_some("other proxies or certificates (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR)")
    }
}
