//! A server whose requests come from memory, and the rules that its answers must keep.
//!
//! The tests and the fuzz target `fuse` send it what the kernel never would: the server itself is the one that
//! answers the kernel.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brisk_image::profile::RootKind;
use brisk_image::{Image, Limits, OpenOptions};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use zerocopy::FromBytes;

use super::channel::{Channel, Device, Malformed, REQUEST, Request};
use super::directory::ServedDirectory;
use super::file_system::FileSystem;
use super::image::ServedImage;
use super::options::ServeOptions;
use super::recorder::Recording;
use super::server::Server;
use super::wire::{
    Attr, AttrOut, Dirent, EntryOut, GetxattrIn, GetxattrOut, LseekOut, OpenOut, OutHeader, ReadIn,
    StatfsOut, StoreOut, can, notify, op,
};
use crate::{Fill, FillRoot, Owners};

/// A device whose requests are in memory.
#[derive(Default)]
struct Packets {
    requests: Mutex<VecDeque<Vec<u8>>>,
    messages: Mutex<Vec<Vec<u8>>>,
}

impl Device for Packets {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        // At the end it says what the kernel says after an unmount.
        let mut requests = lock(&self.requests);
        let request = loop {
            let request = requests.pop_front().ok_or(Errno::NODEV)?;
            // The kernel refuses longer ones itself.
            if request.len() <= buf.len() {
                break request;
            }
        };
        let to = buf.get_mut(..request.len()).ok_or(Errno::INVAL)?;
        to.copy_from_slice(&request);
        Ok(request.len())
    }

    fn write(&self, message: &[IoSlice<'_>]) -> Result<(), Errno> {
        // As the device does.
        if message.len() > 1024 {
            return Err(Errno::INVAL);
        }
        lock(&self.messages).push(message.iter().flat_map(|slice| slice.to_vec()).collect());
        Ok(())
    }
}

/// How the server is set up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Setting {
    /// What was agreed in INIT.
    agreed: u64,
    /// The rest of decoded blocks is stored.
    read_ahead: bool,
    /// What is asked for is recorded.
    recorded: bool,
    /// A fill waits for its pack.
    filled: bool,
}

impl Setting {
    fn options(self) -> ServeOptions {
        let recording = Recording::start_brief();
        let recorder = || recording.add("/app", RootKind::Image);
        let fill = || Fill::new(Vec::new(), |_| {}).at(FillRoot::At("/app".into()));
        ServeOptions {
            read_ahead: self.read_ahead,
            recorder: self.recorded.then(recorder).flatten(),
            fill: self.filled.then(|| Arc::new(fill())),
            owners: Owners::AsStored,
            on_fault: Arc::new(|_| {}),
            ..ServeOptions::default()
        }
    }
}

/// A directory that cases are served from, with a file beside it that no server may show.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    /// The number of that file's inode.
    outside: u64,
}

impl Directory {
    /// Makes it in the empty directory `above`.
    pub fn make(above: &Path) -> io::Result<Self> {
        let root = above.join("root");
        fs::create_dir_all(root.join("sub/deep"))?;
        fs::write(root.join("sub/file"), "contents ".repeat(3000))?;
        fs::write(root.join("sub/deep/er"), "")?;
        symlink("../../outside", root.join("link"))?;
        let outside = above.join("outside");
        fs::write(&outside, "")?;
        let outside = fs::metadata(outside)?.ino();
        Ok(Self { root, outside })
    }

    fn open(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, &self.root, flags, Mode::empty())
    }

    /// Whether one of the messages has the attributes of the file outside. They begin with the number of the
    /// inode, after 40 bytes of the answer to a look-up, or 16 of that to a GETATTR.
    fn is_left_by(&self, messages: &[Vec<u8>]) -> bool {
        let inode = self.outside.to_ne_bytes();
        messages.iter().any(|message| {
            [size_of::<EntryOut>(), size_of::<AttrOut>()]
                .into_iter()
                .filter(|len| message.len() == size_of::<OutHeader>() + len)
                .any(|len| {
                    let at = size_of::<OutHeader>() + len - size_of::<Attr>();
                    message.get(at..at + 8) == Some(&inode)
                })
        })
    }
}

/// The images that cases are served from, in this order: one with every type of inode, and some that break a
/// rule where a server meets it.
pub const IMAGES: [&str; 7] = [
    "section-valid",
    "file-sparse-of-2-19-blocks",
    "file-length-2-62",
    "entry-name-slash-in-it",
    "directories-that-share-a-listing",
    "loop-to-the-parent",
    "xattr-set-with-too-many-names",
];

/// Opens [`IMAGES`] in the directory `bad`.
///
/// # Panics
///
/// If one is missing.
pub fn open_images(bad: &Path) -> Vec<Image> {
    let limits = Limits::new()
        .memory(16 << 20)
        .block_cache(256 << 10)
        .metadata_cache(64 << 10)
        .depth(32);
    let options = OpenOptions::new().limits(limits);
    IMAGES
        .iter()
        .map(|name| Image::open_with(bad.join(format!("{name}.img")), &options))
        .map(|image| image.expect("its superblock is right"))
        .collect()
}

/// Serves a case, and returns the answers as a person reads them.
///
/// The first byte of a case chooses what is served: one of [`IMAGES`], and with a higher number the directory.
/// The second says how. The rest is a list of packets: see [`packets`].
///
/// # Panics
///
/// If a message breaks a rule, or shows what is outside of the directory.
pub fn exercise(case: &[u8], images: &[Image], directory: &Directory) -> String {
    let &[served, how, ref rest @ ..] = case else {
        return "no case".to_owned();
    };
    let bit = |n: u8| how & (1 << n) != 0;
    let setting = Setting {
        agreed: match bit(0) {
            true => can::NO_OPEN | can::NO_OPENDIR,
            false => 0,
        },
        read_ahead: bit(1),
        recorded: bit(2),
        filled: bit(3),
    };
    let requests: Vec<_> = packets(rest).into_iter().take(64).collect();
    let messages = match images.get(usize::from(served % 8)) {
        Some(image) => serve_image(image, setting, &requests),
        None => {
            let root = directory.open().expect("the directory can be opened");
            let messages = serve_directory(root, setting, &requests);
            assert!(
                !directory.is_left_by(&messages),
                "a file outside of the directory was found"
            );
            messages
        }
    };
    if let Some(breach) = first_breach(&requests, &messages) {
        panic!("{breach}");
    }
    described(&messages)
}

/// What a server of `image` writes for these requests: answers, and stores.
fn serve_image(image: &Image, setting: Setting, requests: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let options = setting.options();
    let served = ServedImage::new(image, &options);
    let device = device(requests);
    answer(&served, &device, setting, &options);
    if let Some(ahead) = &served.ahead {
        ahead.run_waiting(Channel(&device), served.nodes, &options.counters);
    }
    device.messages.into_inner().unwrap_or_default()
}

/// Like [`serve_image`], for a server of the directory `root`.
pub(super) fn serve_directory(
    root: OwnedFd,
    setting: Setting,
    requests: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let options = setting.options();
    let served = ServedDirectory::new(root, options.owners);
    let device = device(requests);
    answer(&served, &device, setting, &options);
    device.messages.into_inner().unwrap_or_default()
}

fn device(requests: &[Vec<u8>]) -> Packets {
    Packets {
        requests: Mutex::new(requests.iter().cloned().collect()),
        messages: Mutex::default(),
    }
}

fn answer(tree: &impl FileSystem, device: &Packets, setting: Setting, options: &ServeOptions) {
    let server = Server::new(tree, setting.agreed, options);
    // A request that is cut ends a server. The next one goes on.
    while !lock(&device.requests).is_empty() {
        server.answer(Channel(device)).ok();
    }
}

/// The packets of a file: each is a length in two bytes, lowest first, and as many bytes. A length in a
/// request's own header that is 0 is replaced by the right one.
fn packets(mut file: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while let Some((len, rest)) = file.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
        let (packet, rest) = rest.split_at(len);
        let mut packet = packet.to_vec();
        if let Some((header @ [0, 0, 0, 0], _)) = packet.split_first_chunk_mut::<4>() {
            *header = u32::try_from(len).unwrap_or(0).to_ne_bytes();
        }
        packets.push(packet);
        file = rest;
    }
    packets
}

/// The first rule that the messages of a server break.
///
/// Each request with an answer has exactly one, with its number, in the order of the requests. Each message says
/// its length. An error has no body, and every other answer has the form and at most the size that was asked for.
fn first_breach(requests: &[Vec<u8>], messages: &[Vec<u8>]) -> Option<String> {
    // A number, and the request if it is not malformed.
    let mut asked = requests
        .iter()
        .filter(|bytes| bytes.len() <= REQUEST)
        .filter_map(|bytes| match Request::parse(bytes) {
            Ok(request) if op::is_answered(request.header.opcode) => {
                Some((request.header.unique, Some(request)))
            }
            Err(Malformed::Length { unique }) => Some((unique, None)),
            _ => None,
        });
    for (at, message) in messages.iter().enumerate() {
        let breach = |what: String| Some(format!("message {at}: {what}"));
        let Ok((header, body)) = OutHeader::read_from_prefix(message) else {
            return breach(format!("{} bytes are no header", message.len()));
        };
        if u64::from(header.len) != message.len() as u64 {
            return breach(format!("it says {} of {} bytes", header.len, message.len()));
        }
        if header.unique == 0 {
            match StoreOut::read_from_prefix(body) {
                Ok((store, pages))
                    if header.error == notify::STORE
                        && u64::from(store.size) == pages.len() as u64 => {}
                _ => return breach(format!("notification {}", header.error)),
            }
            continue;
        }
        if header.error < -511 || header.error > 0 || header.error != 0 && !body.is_empty() {
            return breach(format!("error {}, {} bytes", header.error, body.len()));
        }
        match asked.next() {
            Some((unique, _)) if unique != header.unique => {
                return breach(format!("it answers {}, not {unique}", header.unique));
            }
            Some((_, Some(request))) if header.error == 0 => {
                if let Some(what) = breach_of(&request, body) {
                    return breach(format!("code {}: {what}", request.header.opcode));
                }
            }
            Some((_, None)) if header.error == 0 => {
                return breach("a malformed request has no error".to_owned());
            }
            Some(_) => {}
            None => return breach(format!("nobody waits for answer {}", header.unique)),
        }
    }
    let (unique, _) = asked.next()?;
    Some(format!("request {unique} has no answer"))
}

/// What is wrong with an answer that is no error.
fn breach_of(request: &Request<'_>, body: &[u8]) -> Option<String> {
    let size = || {
        request
            .read::<ReadIn>()
            .map_or(0, |read| u64::from(read.size))
    };
    let len = body.len();
    let is = |allowed: usize| (len != allowed).then(|| format!("{len} bytes, not {allowed}"));
    match request.header.opcode {
        op::LOOKUP => is(size_of::<EntryOut>()),
        op::GETATTR => is(size_of::<AttrOut>()),
        op::OPEN | op::OPENDIR => is(size_of::<OpenOut>()),
        op::LSEEK => is(size_of::<LseekOut>()),
        op::STATFS => is(size_of::<StatfsOut>()),
        op::RELEASE | op::RELEASEDIR | op::DESTROY => is(0),
        op::READLINK => body.contains(&0).then(|| "a NUL in a link".to_owned()),
        op::READ => (len as u64 > size()).then(|| format!("{len} bytes of {}", size())),
        op::READDIR if len as u64 <= size() => breach_of_listing(body, false),
        op::READDIRPLUS if len as u64 <= size() => breach_of_listing(body, true),
        op::GETXATTR | op::LISTXATTR => match request.read::<GetxattrIn>() {
            Ok(GetxattrIn { size: 0, .. }) => is(size_of::<GetxattrOut>()),
            Ok(GetxattrIn { size, .. }) if len as u64 <= size.into() => None,
            _ => Some(format!("{len} bytes, more than asked for")),
        },
        code => Some(format!("{len} bytes for code {code}")),
    }
}

fn breach_of_listing(mut part: &[u8], plus: bool) -> Option<String> {
    while !part.is_empty() {
        let all = part.len();
        let rest = match plus {
            true => EntryOut::read_from_prefix(part).map_or(&[][..], |(_, rest)| rest),
            false => part,
        };
        let Ok((dirent, rest)) = Dirent::read_from_prefix(rest) else {
            return Some(format!("an entry of {all} bytes is cut"));
        };
        let len = usize::try_from(dirent.namelen).unwrap_or(usize::MAX);
        let Some(name) = rest.get(..len) else {
            return Some(format!("a name of {} bytes is cut", dirent.namelen));
        };
        // The kernel refuses the whole listing.
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Some(format!("the name {:?}", String::from_utf8_lossy(name)));
        }
        let used = (all - rest.len() + len).next_multiple_of(8);
        part = part.get(used..).unwrap_or(&[]);
    }
    None
}

/// The messages as a person reads them: what is stored is left out, because it comes in any order.
fn described(messages: &[Vec<u8>]) -> String {
    let mut words = Vec::new();
    for message in messages {
        let Ok((header, body)) = OutHeader::read_from_prefix(message) else {
            words.push("cut".to_owned());
            continue;
        };
        if header.unique == 0 {
            continue;
        }
        words.push(match header.error {
            0 => format!("{} bytes", body.len()),
            error => error_name(error),
        });
    }
    if words.is_empty() {
        words.push("no answer".to_owned());
    }
    words.join(", ")
}

/// The name of an error in an answer.
fn error_name(error: i32) -> String {
    let known = [
        (Errno::IO, "EIO"),
        (Errno::INVAL, "EINVAL"),
        (Errno::STALE, "ESTALE"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::NXIO, "ENXIO"),
        (Errno::ROFS, "EROFS"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NODATA, "ENODATA"),
        (Errno::RANGE, "ERANGE"),
        (Errno::NOTTY, "ENOTTY"),
        (Errno::NOENT, "ENOENT"),
    ];
    let found = known
        .iter()
        .find(|(errno, _)| errno.raw_os_error() == -error);
    found.map_or_else(|| format!("error {error}"), |(_, name)| (*name).to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
