use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use brisk_io::BlockDevice;
use brisk_launch::error::{Cause, Error, Result};
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;

use crate::action::Action;
use crate::sys::loop_node::{
    LO_FLAGS_AUTOCLEAR, LO_FLAGS_DIRECT_IO, LO_FLAGS_READ_ONLY, LoopControl, LoopInfo, LoopNode,
};

/// The kernel measures a device in sectors of this many bytes, and drops an incomplete one.
const SECTOR: u64 = 512;

/// The smallest block, in bytes, that SquashFS reads from its device (`SQUASHFS_DEVBLK_SIZE`). If an image's
/// last bytes do not fill one, mounting it fails with EIO, although all its bytes exist.
const LEAST_BLOCK: u32 = 1024;

/// How often to try, because another process may take the free device first, or the device node may appear
/// late.
const TRIES: u32 = 64;

/// Whether a loop device reads its file directly, past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DirectIo {
    /// If file system, offset and length allow it. The image's blocks are then cached once, as decoded pages,
    /// and not a second time as stored.
    #[default]
    WhenPossible,
    /// Never.
    Never,
}

/// A read-only block device that shows a part of a file.
///
/// The kernel detaches it at the last close or unmount, even if the process is killed.
pub struct LoopDevice {
    /// Only held, not read: when its last descriptor closes, the kernel detaches the device.
    _held: LoopNode,
    path: PathBuf,
    block_size: u32,
    direct_io: bool,
}

impl LoopDevice {
    /// Attaches a free loop device to `len` bytes of `file` (`None`: all that follow), from byte `offset` on.
    ///
    /// The device ends with a whole block, because the kernel would drop an incomplete one. So `len` is
    /// rounded up to a block if the file has the bytes. If the file does not have them, that is an error. A
    /// block is [`block_size`](Self::block_size) or 1024 bytes, whichever is more. With direct I/O, blocks
    /// are those of the disk below. A file that does not fill the last one of these is read through the page
    /// cache instead; [`direct_io`](Self::direct_io) says which it became.
    ///
    /// # Errors
    ///
    /// `NotPermitted` without root. `Unsupported` without loop devices. `Image` if the file ends too early.
    /// `Busy` if other processes take every free device first.
    pub fn attach(file: &File, offset: u64, len: Option<u64>, direct: DirectIo) -> Result<Self> {
        attach(file, offset, len, direct, bind).map_err(|cause| Error::new(Action::Attach, cause))
    }

    /// The device node, `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The logical block size in bytes.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Whether the kernel reads the file directly, past the page cache, as it says itself.
    pub fn direct_io(&self) -> bool {
        self.direct_io
    }
}

/// Attaches a device, which is free or was a moment ago, to the file from this byte on.
type Configure = fn(&LoopNode, &File, u64, Geometry) -> rustix::io::Result<()>;

fn attach(
    file: &File,
    offset: u64,
    len: Option<u64>,
    direct: DirectIo,
    bind: Configure,
) -> Result<LoopDevice, Cause> {
    let backing = BackingFile::of(file)?;
    let direct_block = match direct {
        DirectIo::WhenPossible => backing.direct_block,
        DirectIo::Never => None,
    };
    let geometry = Geometry::fit(backing.len, offset, len, direct_block)?;
    let control = LoopControl::open(Path::new("/dev/loop-control")).map_err(|e| match e {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => Cause::unsupported(
            "there is no /dev/loop-control; load loop devices with modprobe loop, or give a container the host's /dev",
        ),
        Errno::ACCESS | Errno::PERM => Cause::not_permitted(),
        e => Cause::io("open /dev/loop-control", e),
    })?;
    for attempt in 0..TRIES {
        let number = control.get_free().map_err(|e| match e {
            Errno::ACCESS | Errno::PERM => Cause::not_permitted(),
            e => Cause::io("find a free loop device", e),
        })?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let node = match LoopNode::open(&path) {
            Ok(node) => node,
            // The node may appear late, or its device may have been removed again.
            Err(Errno::NOENT | Errno::NXIO) if attempt < TRIES - 1 => {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(Errno::NOENT | Errno::NXIO) => {
                return Err(Cause::unsupported(format!(
                    "the kernel offers {} but there is no such device node; give a container the host's /dev",
                    path.display()
                )));
            }
            Err(Errno::ACCESS | Errno::PERM) => return Err(Cause::not_permitted()),
            Err(e) => return Err(Cause::io(format!("open {}", path.display()), e)),
        };
        match bind(&node, file, offset, geometry) {
            Ok(()) => {
                let status = node
                    .status()
                    .map_err(|e| Cause::io("ask the loop device for its state", e))?;
                return Ok(LoopDevice {
                    _held: node,
                    path,
                    block_size: geometry.block_size,
                    direct_io: status.flags & LO_FLAGS_DIRECT_IO != 0,
                });
            }
            // Another process has just taken it, or is releasing it.
            Err(Errno::BUSY | Errno::NXIO | Errno::AGAIN) => {
                thread::sleep(Duration::from_millis(u64::from(attempt.min(10))));
            }
            Err(Errno::ACCESS | Errno::PERM) => return Err(Cause::not_permitted()),
            Err(e) => return Err(Cause::io(format!("attach {}", path.display()), e)),
        }
    }
    Err(Cause::busy(format!(
        "other processes took {TRIES} free loop devices first; try again"
    )))
}

fn info(offset: u64, geometry: Geometry) -> LoopInfo {
    let flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
    LoopInfo::new(offset, geometry.size, flags)
}

/// With LOOP_CONFIGURE (Linux 5.8), or in the older way if the kernel lacks it or refuses its flags.
fn bind(node: &LoopNode, file: &File, offset: u64, geometry: Geometry) -> rustix::io::Result<()> {
    let mut info = info(offset, geometry);
    if geometry.direct {
        info.flags |= LO_FLAGS_DIRECT_IO;
    }
    match node.configure(file.as_fd(), geometry.block_size, info) {
        Err(Errno::INVAL | Errno::NOTTY) => bind_in_steps(node, file, offset, geometry),
        done => done,
    }
}

fn bind_in_steps(
    node: &LoopNode,
    file: &File,
    offset: u64,
    geometry: Geometry,
) -> rustix::io::Result<()> {
    node.set_fd(file.as_fd())?;
    let finish = || {
        // While the kernel still writes back the pages of the last user, it asks to try again.
        let mut tries = TRIES;
        loop {
            match node.set_status(info(offset, geometry)) {
                Err(Errno::AGAIN) if tries > 0 => {
                    tries -= 1;
                    thread::sleep(Duration::from_millis(1));
                }
                done => break done?,
            }
        }
        if geometry.direct
            && let Err(e) = node
                .set_block_size(geometry.block_size)
                .and_then(|()| node.set_direct_io())
            && e != Errno::INVAL
            && e != Errno::NOTTY
        {
            return Err(e);
        }
        Ok(())
    };
    finish().inspect_err(|_| {
        // The first error is the one to report. Autoclear may already be on, which has the same effect.
        node.clear_fd().ok();
    })
}

/// What is known about the file below a loop device.
struct BackingFile {
    /// Length in bytes.
    len: u64,
    /// Offsets and lengths of direct reads must be multiples of this many bytes. `None` if direct I/O is
    /// impossible.
    direct_block: Option<u32>,
}

impl BackingFile {
    fn of(file: &File) -> Result<Self, Cause> {
        let metadata = file
            .metadata()
            .map_err(|e| Cause::io("examine the image", e))?;
        if metadata.file_type().is_block_device() {
            let len = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))
                .map_err(|e| Cause::io("measure the block device", e))?;
            let direct_block = logical_block_size(metadata.rdev());
            return Ok(Self { len, direct_block });
        }
        if !metadata.is_file() {
            return Err(not_a_file());
        }
        let len = metadata.len();
        let direct_block = match statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
            // Since Linux 6.1, some file systems say this. An alignment of 0 means "impossible".
            Ok(stat) if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
                Some(stat.stx_dio_offset_align).filter(|align| *align != 0)
            }
            // Otherwise the disk below says it. If there is none (btrfs, network file systems), a block of
            // 4096 suits all, and the kernel decides whether direct I/O is possible.
            _ => logical_block_size(metadata.dev()).or(Some(4096)),
        };
        Ok(Self { len, direct_block })
    }
}

/// The logical block size of the disk with this device number, in bytes.
fn logical_block_size(device: u64) -> Option<u32> {
    let size = BlockDevice::of(device)?.number("queue/logical_block_size")?;
    size.try_into().ok()
}

/// The geometry of a loop device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Geometry {
    /// Size in bytes, a multiple of the larger of 1024 and `block_size`.
    size: u64,
    /// Logical block size in bytes.
    block_size: u32,
    direct: bool,
}

impl Geometry {
    /// For `len` bytes from byte `offset` on, in a file of `file_len` bytes whose file system does direct
    /// reads in blocks of `direct_block` bytes.
    fn fit(
        file_len: u64,
        offset: u64,
        len: Option<u64>,
        direct_block: Option<u32>,
    ) -> Result<Self, Cause> {
        let have = file_len.saturating_sub(offset);
        let need = len.unwrap_or(have);
        if need > have || have == 0 {
            return Err(truncated(need.max(1), have));
        }
        let sized = |block: u32| {
            need.checked_next_multiple_of(block.max(LEAST_BLOCK).into())
                .filter(|size| *size <= have)
        };
        // The kernel accepts powers of two from a sector to a page as logical block sizes.
        let usable = direct_block
            .filter(|b| b.is_power_of_two() && (SECTOR..=4096).contains(&u64::from(*b)))
            .filter(|b| offset.is_multiple_of(u64::from(*b)));
        if let Some(block) = usable
            && let Some(size) = sized(block)
        {
            return Ok(Self {
                size,
                block_size: block,
                direct: true,
            });
        }
        let block_size = SECTOR as u32;
        let size = sized(block_size).ok_or_else(|| {
            Cause::image(format!(
                "the image ends at {need} bytes, inside a block of {LEAST_BLOCK}, and the kernel cannot read such a last block; \
                 pad the file to a multiple of 4096 bytes (truncate -s %4096 FILE)"
            ))
        })?;
        Ok(Self {
            size,
            block_size,
            direct: false,
        })
    }
}

/// What is named is no image.
pub(crate) fn not_a_file() -> Cause {
    Cause::image("it is neither a regular file nor a block device; name the image's file")
}

/// The file is shorter than its image.
pub(crate) fn truncated(need: u64, have: u64) -> Cause {
    Cause::image(format!(
        "the image needs {need} bytes, but there are only {have}; get a complete copy of it"
    ))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn fit(file_len: u64, offset: u64, len: Option<u64>, direct: Option<u32>) -> (u64, u32, bool) {
        let g = Geometry::fit(file_len, offset, len, direct).unwrap_or_else(|e| panic!("{e}"));
        (g.size, g.block_size, g.direct)
    }

    fn refusal(file_len: u64, offset: u64, len: Option<u64>) -> String {
        Geometry::fit(file_len, offset, len, Some(512))
            .map_or_else(|e| e.to_string(), |g| panic!("{g:?}"))
    }

    #[test]
    fn a_device_holds_whole_blocks_or_is_refused() {
        // A padded image, on both kinds of disks.
        assert_eq!(fit(8192, 0, Some(5000), Some(512)), (5120, 512, true));
        assert_eq!(fit(8192, 0, Some(5000), Some(4096)), (8192, 4096, true));
        // Padded for 1024 but not for the disk's 4096, so without direct I/O.
        assert_eq!(fit(5120, 0, Some(5000), Some(4096)), (5120, 512, false));
        // No direct read can start at this offset.
        assert_eq!(fit(9000, 100, Some(5000), Some(512)), (5120, 512, false));
        // The bytes after an image in a larger file are its padding.
        assert_eq!(fit(1 << 20, 512, Some(5000), Some(512)), (5120, 512, true));
        assert_eq!(fit(4096, 0, None, None), (4096, 512, false));
        // No logical block has this size.
        assert_eq!(fit(8192, 0, None, Some(65536)), (8192, 512, false));
        assert_eq!(fit(8192, 0, None, Some(3)), (8192, 512, false));
    }

    #[test]
    fn a_tail_that_would_be_lost_is_refused() {
        assert_eq!(
            refusal(5000, 0, Some(5000)),
            "the image ends at 5000 bytes, inside a block of 1024, and the kernel cannot read such \
             a last block; pad the file to a multiple of 4096 bytes (truncate -s %4096 FILE)"
        );
        assert_eq!(
            refusal(5000, 100, Some(4901)),
            "the image needs 4901 bytes, but there are only 4900; get a complete copy of it"
        );
        assert_eq!(
            refusal(10, 11, None),
            "the image needs 1 bytes, but there are only 0; get a complete copy of it"
        );
        assert!(Geometry::fit(u64::MAX, 0, Some(u64::MAX), None).is_err());
    }

    fn contents(device: &LoopDevice) -> Vec<u8> {
        let mut bytes = Vec::new();
        File::open(device.path())
            .and_then(|mut f| f.read_to_end(&mut bytes))
            .expect("the device can be read");
        bytes
    }

    #[test]
    fn both_interfaces_of_the_kernel_show_the_same_bytes() {
        let bytes: Vec<u8> = (0..32768u32).flat_map(u32::to_le_bytes).collect();
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&bytes).expect("the file can be written");
        for (way, bind) in [
            ("configure", bind as Configure),
            ("steps", bind_in_steps as Configure),
        ] {
            for direct in [DirectIo::WhenPossible, DirectIo::Never] {
                let device = attach(&file, 4096, Some(8192), direct, bind)
                    .unwrap_or_else(|e| panic!("{way} {direct:?}: {e}"));
                assert!(
                    contents(&device) == bytes[4096..4096 + 8192],
                    "{way} {direct:?}"
                );
                let node = LoopNode::open(device.path()).expect("a device");
                let status = node.status().expect("a state");
                let flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_READ_ONLY;
                assert_eq!(status.flags & flags, flags, "{way} {direct:?}");
                assert_eq!(
                    status.flags & LO_FLAGS_DIRECT_IO != 0,
                    device.direct_io(),
                    "{way} {direct:?}"
                );
                if direct == DirectIo::Never {
                    assert!(!device.direct_io(), "{way}");
                }
            }
        }
    }

    #[test]
    fn many_at_once_get_a_device_each() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&[7; 4096]).expect("the file can be written");
        let mut paths: Vec<PathBuf> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        LoopDevice::attach(&file, 0, None, DirectIo::Never)
                            .unwrap_or_else(|e| panic!("{e}"))
                    })
                })
                .collect();
            let devices: Vec<_> = threads
                .into_iter()
                .map(|t| t.join().expect("no panic"))
                .collect();
            devices.iter().map(|d| d.path().to_owned()).collect()
        });
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 8);
    }
}
