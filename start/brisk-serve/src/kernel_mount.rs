use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use brisk_launch::error::{Advice, Cause, Error, Result, Shown};
use brisk_launch::mount_table::mounted_on;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};

use crate::action::Action;
use crate::fuse::connection::FS_TYPE;
use crate::fusermount;
use crate::fusermount::mount_busy;
use crate::kernel_support::{KernelSupport, Support, codec_instead_of};
use crate::loop_device::{DirectIo, LoopDevice, not_a_file, truncated};
use crate::namespace::is_privileged;

/// The first four bytes of a SquashFS image.
const MAGIC: u32 = 0x7371_7368;

/// Bytes in a SquashFS superblock, and the position of the image's length in it.
const SUPERBLOCK_LEN: usize = 96;
const BYTES_USED_AT: usize = 40;

/// How to mount an image. The default is right for an image in a file of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MountOptions {
    /// The byte of the file at which the image starts, as in an AppImage.
    pub offset: u64,
    /// The image's codec (`zstd`, `gzip`, …), if the caller knows it. A message names it if the kernel does
    /// not support it.
    pub codec: Option<String>,
    /// Whether the kernel reads the image's file directly, past the page cache.
    pub direct_io: DirectIo,
    /// Whether set-user-id bits and file capabilities have an effect.
    pub suid: bool,
    /// Whether device nodes have an effect.
    pub dev: bool,
}

/// What the kernel reads a mounted image from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// A loop device on the image's file. It disappears with the last mount.
    Loop {
        /// The device node, `/dev/loopN`.
        device: PathBuf,
        /// Whether the kernel reads the file directly, past the page cache.
        direct_io: bool,
    },
    /// The image is a block device itself.
    BlockDevice,
}

/// An image that the kernel has mounted, read-only.
///
/// The mount outlives this value and the process. [`unmount`] ends it, or the end of its mount namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelMount {
    target: PathBuf,
    backing: Backing,
}

impl KernelMount {
    /// Mounts the SquashFS image in the file or block device `image` on the directory `target`, read-only.
    ///
    /// # Errors
    ///
    /// `NotPermitted` without root. `Unsupported` if the kernel lacks SquashFS, the image's codec or loop
    /// devices. `Image` if the file is not an image, is truncated or lacks padding. `Place` if `target` is
    /// not a directory. `Busy` if the block device is in use. Nothing stays behind after an error.
    pub fn new(image: &Path, target: &Path, options: &MountOptions) -> Result<Self> {
        mount(image, target, options)
            .map_err(|cause| Error::new(Action::Mount, cause).with_path(image))
    }

    /// The directory on which it is mounted, absolute and without symbolic links.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// What the kernel reads it from.
    pub fn backing(&self) -> &Backing {
        &self.backing
    }
}

fn mount(image: &Path, target: &Path, options: &MountOptions) -> Result<KernelMount, Cause> {
    let file = File::open(image).map_err(|e| Cause::io("open the image", e))?;
    let file_type = file
        .metadata()
        .map_err(|e| Cause::io("examine the image", e))?
        .file_type();
    if !file_type.is_file() && !file_type.is_block_device() {
        return Err(not_a_file());
    }
    let len = image_len(&file, options.offset)?;
    let mount_point = MountPoint::open(target)?;
    let (device, backing, _loop_device) = if file_type.is_block_device() && options.offset == 0 {
        (image.to_owned(), Backing::BlockDevice, None)
    } else {
        let device = LoopDevice::attach(&file, options.offset, Some(len), options.direct_io)
            .map_err(Error::into_cause)?;
        let backing = Backing::Loop {
            device: device.path().to_owned(),
            direct_io: device.direct_io(),
        };
        // This holds the device until the mount holds it: when it is closed for the last time, the kernel
        // detaches it.
        (device.path().to_owned(), backing, Some(device))
    };
    mount_device(&device, &mount_point, options)
        .map_err(|failure| failure.explain(options.codec.as_deref()))?;
    Ok(KernelMount {
        target: mount_point.path,
        backing,
    })
}

/// The length in bytes that the superblock at `offset` states.
fn image_len(file: &File, offset: u64) -> Result<u64, Cause> {
    let mut superblock = [0; SUPERBLOCK_LEN];
    let mut have = 0;
    while let Some(rest) = superblock.get_mut(have..).filter(|rest| !rest.is_empty()) {
        let at = offset.saturating_add(have as u64);
        match file.read_at(rest, at) {
            Ok(0) => {
                return Err(truncated(SUPERBLOCK_LEN as u64, have as u64));
            }
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Cause::io("read the superblock", e)),
        }
    }
    let magic = superblock.first_chunk().copied().unwrap_or_default();
    let found = u32::from_le_bytes(magic);
    if found != MAGIC {
        return Err(Cause::image(format!(
            "magic number is {found:#010x}, allowed is 0x73717368 (SquashFS, little-endian)"
        )));
    }
    let len = superblock[BYTES_USED_AT..].first_chunk();
    Ok(u64::from_le_bytes(len.copied().unwrap_or_default()))
}

/// The directory to mount on. The descriptor keeps it the same one from the check to its use.
struct MountPoint {
    fd: OwnedFd,
    path: PathBuf,
}

impl MountPoint {
    fn open(target: &Path) -> Result<Self, Cause> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(target, flags, Mode::empty()).map_err(|e| match e {
            Errno::NOENT => no_target(target),
            Errno::NOTDIR => no_target_directory(target),
            e => Cause::io(format!("open {}", target.display()), e),
        })?;
        let path = target
            .canonicalize()
            .map_err(|e| Cause::io(format!("resolve {}", target.display()), e))?;
        Ok(Self { fd, path })
    }
}

/// `fsopen` and its family (Linux 5.2) return the kernel's messages. mount(2) is used if they are missing.
fn mount_device(
    device: &Path,
    mount_point: &MountPoint,
    options: &MountOptions,
) -> Result<(), Refusal> {
    match fsopen("squashfs", FsOpenFlags::FSOPEN_CLOEXEC) {
        Ok(context) => mount_context(&context, device, mount_point, options),
        Err(Errno::NOSYS) => mount_plain(device, mount_point, options),
        Err(errno) => Err(Refusal::silent(errno)),
    }
}

/// What keeps set-user-id bits and device nodes of an image from having an effect.
pub(crate) fn mount_flags(suid: bool, dev: bool) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NOSUID, !suid);
    flags.set(MountFlags::NODEV, !dev);
    flags
}

fn mount_plain(
    device: &Path,
    mount_point: &MountPoint,
    options: &MountOptions,
) -> Result<(), Refusal> {
    let flags = MountFlags::RDONLY | mount_flags(options.suid, options.dev);
    rustix::mount::mount(device, &mount_point.path, "squashfs", flags, None)
        .map_err(Refusal::silent)
}

fn mount_context(
    context: &OwnedFd,
    device: &Path,
    mount_point: &MountPoint,
    options: &MountOptions,
) -> Result<(), Refusal> {
    let failed = |errno| Refusal {
        errno,
        said: kernel_messages(context),
    };
    fsconfig_set_string(context.as_fd(), "source", device).map_err(failed)?;
    fsconfig_set_flag(context.as_fd(), "ro").map_err(failed)?;
    fsconfig_create(context.as_fd()).map_err(failed)?;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_RDONLY;
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOSUID, !options.suid);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, !options.dev);
    let mount =
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount.as_fd(), "", mount_point.fd.as_fd(), "", flags).map_err(Refusal::silent)
}

/// What the kernel logged for this mount, one message per read, joined. Each message starts with a letter for
/// its level, a space and the name of the file system.
fn kernel_messages(context: &OwnedFd) -> String {
    let mut messages = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(n) = rustix::io::read(context, &mut buffer) {
        let Some(bytes) = buffer.get(..n).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        let message = String::from_utf8_lossy(bytes);
        let message = message.trim_end();
        let message = message.split_once(' ').map_or(message, |(_, text)| text);
        messages.push(message.trim_start_matches("squashfs: ").to_owned());
    }
    messages.join("; ")
}

/// Why the kernel refused to mount.
#[derive(Debug)]
struct Refusal {
    errno: Errno,
    /// The kernel's own message. Empty if there is none.
    said: String,
}

impl Refusal {
    fn silent(errno: Errno) -> Self {
        Self {
            errno,
            said: String::new(),
        }
    }

    fn explain(self, codec: Option<&str>) -> Cause {
        self.explain_on(codec, &KernelSupport::probe())
    }

    fn explain_on(self, codec: Option<&str>, support: &KernelSupport) -> Cause {
        // squashfs_fill_super: `Filesystem uses "xz" compression. This is not supported`.
        let named = self
            .said
            .split_once("Filesystem uses \"")
            .and_then(|(_, rest)| rest.split_once("\" compression. This is not supported"))
            .map(|(name, _)| name);
        let no_codec = |name: &str| {
            let codec = codec.unwrap_or(name);
            let instead = codec_instead_of(codec, support);
            let text = format!(
                "the kernel was built without the {codec} decompressor; it can read {instead}"
            );
            Cause::unsupported(text).advise(Advice::OtherCodec)
        };
        match (self.errno, named, codec) {
            (Errno::NODEV, _, _) => Cause::unsupported(
                "the kernel has no SquashFS; load it with modprobe squashfs, or use a kernel built with CONFIG_SQUASHFS",
            ),
            (Errno::PERM | Errno::ACCESS, _, _) => Cause::not_permitted(),
            (Errno::BUSY, _, _) => Cause::busy(
                "the block device is in use; unmount it, or end the programs that use it",
            ),
            (_, Some(name), _) => no_codec(name),
            // Old kernels say this only in their log.
            (Errno::INVAL, None, Some(name)) if support.codec(name) == Support::No => {
                no_codec(name)
            }
            _ if !self.said.is_empty() => {
                let text = format!("the kernel refused the image: {}", self.said);
                Cause::image(text).because(io::Error::from(self.errno))
            }
            _ => Cause::io("mount it (dmesg says more)", self.errno),
        }
    }
}

/// Whether an image is mounted at `path`, as far as this process sees: by the kernel, or by a server of
/// brisk.
///
/// # Errors
///
/// If `/proc/self/mountinfo` cannot be read.
pub fn image_is_mounted(path: &Path) -> io::Result<bool> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let on_top = mounted_on(&path)?;
    Ok(on_top.is_some_and(|entry| [FS_TYPE, "squashfs"].contains(&&*entry.fs_type)))
}

/// Unmounts the image that is mounted on `target`.
///
/// With `lazy`, the mount is hidden at once, and the kernel lets go of it when the last program that uses it
/// does.
///
/// # Errors
///
/// `Place` if `target` is not a mount point, or something else than an image is mounted there. `Busy` if a
/// program uses it. `NotPermitted` without root, unless `fusermount3` has mounted it for the same user.
pub fn unmount(target: &Path, lazy: bool) -> Result<()> {
    try_unmount(target, lazy).map_err(|cause| Error::new(Action::Unmount, cause).with_path(target))
}

fn try_unmount(target: &Path, lazy: bool) -> Result<(), Cause> {
    let path = target.canonicalize().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            Cause::place("there is nothing of this name").advise(Advice::ListMounts)
        }
        _ => Cause::io("find the directory", e),
    })?;
    let entry = mounted_on(&path)
        .map_err(|e| Cause::io("read /proc/self/mountinfo", e))?
        .ok_or_else(not_mounted)?;
    if entry.fs_type == FS_TYPE && !is_privileged() {
        return fusermount::unmount(&path, lazy);
    }
    if entry.fs_type != "squashfs" && entry.fs_type != FS_TYPE {
        return Err(Cause::place(format!(
            "the mount there is {}, not squashfs; unmount it with umount",
            entry.fs_type
        )));
    }
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    rustix::mount::unmount(&path, flags).map_err(|e| match e {
        Errno::BUSY => mount_busy(),
        Errno::PERM => Cause::not_permitted(),
        Errno::INVAL => not_mounted(),
        e => Cause::io("unmount it", e),
    })
}

fn not_mounted() -> Cause {
    Cause::place("it is not a mount point").advise(Advice::ListMounts)
}

/// There is nothing to mount on.
pub(crate) fn no_target(target: &Path) -> Cause {
    let target = Shown(target);
    Cause::place(format!("{target} does not exist; make the directory first"))
}

/// What is there is no directory.
pub(crate) fn no_target_directory(target: &Path) -> Cause {
    let target = Shown(target);
    Cause::place(format!(
        "{target} is not a directory; name a directory to mount on"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(errno: Errno, said: &str, codec: Option<&str>, missing: &[&str]) -> String {
        let mut support = KernelSupport::probe();
        for (name, known) in &mut support.codecs {
            *known = if missing.contains(name) {
                Support::No
            } else {
                Support::Yes
            };
        }
        let said = said.to_owned();
        let cause = Refusal { errno, said }.explain_on(codec, &support);
        Error::new(Action::Mount, cause)
            .with_path("app.img")
            .to_string()
    }

    #[test]
    fn each_refusal_says_the_cure() {
        let unsupported = "Filesystem uses \"xz\" compression. This is not supported";
        let cure = "cannot mount app.img: the kernel was built without the xz decompressor; \
                    it can read zstd";
        assert_eq!(text(Errno::INVAL, unsupported, None, &["xz"]), cure);
        assert_eq!(text(Errno::INVAL, unsupported, Some("xz"), &["xz"]), cure);
        assert_eq!(text(Errno::INVAL, "", Some("xz"), &["xz"]), cure);
        assert_eq!(
            text(Errno::INVAL, "", Some("zstd"), &["zstd", "lz4"]),
            "cannot mount app.img: the kernel was built without the zstd decompressor; \
             it can read gzip"
        );
        assert_eq!(
            text(Errno::INVAL, "", Some("xz"), &[]),
            "cannot mount app.img: the system could not mount it (dmesg says more)"
        );
        assert_eq!(
            text(Errno::INVAL, "bad \u{1b}thing", Some("xz"), &[]),
            "cannot mount app.img: the kernel refused the image: bad \\u{1b}thing"
        );
        assert_eq!(
            text(Errno::NODEV, "", None, &[]),
            "cannot mount app.img: the kernel has no SquashFS; load it with modprobe squashfs, \
             or use a kernel built with CONFIG_SQUASHFS"
        );
        assert_eq!(
            text(Errno::PERM, "", None, &[]),
            "cannot mount app.img: this needs root (CAP_SYS_ADMIN); run it as root, \
             for example with sudo"
        );
        assert_eq!(
            text(Errno::BUSY, "", None, &[]),
            "cannot mount app.img: the block device is in use; unmount it, or end the programs that use it"
        );
    }

    /// The way of kernels before 5.2.
    #[test]
    fn mount_2_mounts_the_same() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (tree, image, at) = (
            dir.path().join("tree"),
            dir.path().join("image"),
            dir.path().join("at"),
        );
        for path in [&tree, &at] {
            std::fs::create_dir(path).expect("a directory");
        }
        std::fs::write(tree.join("file"), "contents").expect("a file");
        let output = std::process::Command::new("mksquashfs")
            .args([&tree, &image])
            .output()
            .expect("mksquashfs is needed for this test: install squashfs-tools");
        assert!(output.status.success(), "{output:?}");
        let file = File::open(&image).expect("the image");
        let device =
            LoopDevice::attach(&file, 0, None, DirectIo::Never).unwrap_or_else(|e| panic!("{e}"));
        let mount_point = MountPoint::open(&at).unwrap_or_else(|e| panic!("{e}"));
        mount_plain(device.path(), &mount_point, &MountOptions::default())
            .unwrap_or_else(|e| panic!("{e:?}"));
        let contents = std::fs::read_to_string(at.join("file"));
        unmount(&at, false).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(contents.expect("the file is there"), "contents");
    }
}
