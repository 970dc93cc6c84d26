//! The ioctls of loop devices (linux/loop.h).
//!
//! The meaning of an ioctl's number depends on the driver behind the descriptor. So each descriptor is in a type that has
//! checked its device: [`LoopControl`] and [`LoopNode`].

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr;

use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor, open};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};

const LOOP_SET_FD: Opcode = 0x4c00;
const LOOP_CLR_FD: Opcode = 0x4c01;
const LOOP_SET_STATUS64: Opcode = 0x4c04;
const LOOP_GET_STATUS64: Opcode = 0x4c05;
const LOOP_SET_DIRECT_IO: Opcode = 0x4c08;
const LOOP_SET_BLOCK_SIZE: Opcode = 0x4c09;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LOOP_CTL_GET_FREE: Opcode = 0x4c82;

pub(crate) const LO_FLAGS_READ_ONLY: u32 = 1;
pub(crate) const LO_FLAGS_AUTOCLEAR: u32 = 4;
pub(crate) const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64`. Offsets and limits in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopInfo {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) rdevice: u64,
    pub(crate) offset: u64,
    pub(crate) size_limit: u64,
    pub(crate) number: u32,
    pub(crate) encrypt_type: u32,
    pub(crate) encrypt_key_size: u32,
    pub(crate) flags: u32,
    pub(crate) file_name: [u8; 64],
    pub(crate) crypt_name: [u8; 64],
    pub(crate) encrypt_key: [u8; 32],
    pub(crate) init: [u64; 2],
}

impl LoopInfo {
    pub(crate) fn new(offset: u64, size_limit: u64, flags: u32) -> Self {
        Self {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset,
            size_limit,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

// The proofs below rest on these: the structs have the kernel's sizes, hence no padding.
const _: () = assert!(size_of::<LoopInfo>() == 232);
const _: () = assert!(size_of::<LoopConfig>() == 8 + 232 + 64);

/// `LOOP_CTL_GET_FREE`: takes no argument and returns a device number.
struct GetFree;

// SAFETY: the kernel's `loop_control_ioctl` ignores the argument of this opcode, so a null pointer
// is never followed; the output is the call's return value and the pointer is not read.
unsafe impl Ioctl for GetFree {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> Result<u32> {
        // The kernel numbers devices from 0 up to 2^20 (MINORBITS); an error never gets here.
        u32::try_from(out).map_err(|_| Errno::RANGE)
    }
}

/// An argument that is a number and not a pointer, as three ioctls of loop devices need it.
struct Number<const OPCODE: Opcode>(usize);

// SAFETY: implemented for use with LOOP_SET_FD, LOOP_SET_DIRECT_IO and LOOP_SET_BLOCK_SIZE, all in
// this file and none elsewhere (the type is private). The kernel's `lo_ioctl` takes the argument
// of each as an `unsigned long` and follows no pointer. There is no output.
unsafe impl<const OPCODE: Opcode> Ioctl for Number<OPCODE> {
    type Output = ();
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::without_provenance_mut(self.0)
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> Result<()> {
        Ok(())
    }
}

/// `/dev/loop-control`, open.
///
/// 1. The descriptor is that of the character device 10:237.
pub(crate) struct LoopControl(OwnedFd);

impl LoopControl {
    /// Opens the device at `path`; ENXIO if it is another device.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let fd = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&fd)?;
        let device = (major(stat.st_rdev), minor(stat.st_rdev));
        if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice || device != (10, 237)
        {
            return Err(Errno::NXIO);
        }
        Ok(Self(fd))
    }

    /// The number of a free loop device. If all are in use, the kernel makes a new one. Another process may
    /// take it first.
    pub(crate) fn get_free(&self) -> Result<u32> {
        // SAFETY: the driver is the loop driver's control device (invariant 1), for which
        // `GetFree` is right (see its impl).
        unsafe { ioctl(&self.0, GetFree) }
    }
}

/// A `/dev/loopN`, open for reading.
///
/// 1. The descriptor is that of a block device with major number 7, which is the loop driver's.
pub(crate) struct LoopNode(OwnedFd);

impl LoopNode {
    /// Opens the device at `path`. ENXIO if it is not a loop device.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let fd = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice
            || major(stat.st_rdev) != 7
        {
            return Err(Errno::NXIO);
        }
        Ok(Self(fd))
    }

    /// Attaches `file` in one step. EINVAL or ENOTTY on kernels before 5.8.
    pub(crate) fn configure(
        &self,
        file: BorrowedFd<'_>,
        block_size: u32,
        info: LoopInfo,
    ) -> Result<()> {
        let config = LoopConfig {
            fd: file.as_raw_fd().unsigned_abs(),
            block_size,
            info,
            reserved: [0; 8],
        };
        // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`, which `LoopConfig` is: `repr(C)`,
        // the fields of linux/loop.h, the same size (asserted above).
        let argument = unsafe { Setter::<LOOP_CONFIGURE, LoopConfig>::new(config) };
        // SAFETY: the driver is loop (invariant 1). It only reads the argument, which lives
        // through the call; the descriptor number in it belongs to `file`, borrowed as long.
        unsafe { ioctl(&self.0, argument) }
    }

    /// Attaches all of `file`, the first of the two steps of kernels before 5.8.
    pub(crate) fn set_fd(&self, file: BorrowedFd<'_>) -> Result<()> {
        let number = file.as_raw_fd().unsigned_abs() as usize;
        // SAFETY: the driver is loop (invariant 1), for which `Number` is right (see its impl);
        // the descriptor is borrowed through the call.
        unsafe { ioctl(&self.0, Number::<LOOP_SET_FD>(number)) }
    }

    /// Detaches at once, or at the last close if other processes have the device open.
    pub(crate) fn clear_fd(&self) -> Result<()> {
        // SAFETY: LOOP_CLR_FD takes no argument, which is what `NoArg` passes.
        let argument = unsafe { NoArg::<LOOP_CLR_FD>::new() };
        // SAFETY: the driver is loop (invariant 1), and no memory is passed.
        unsafe { ioctl(&self.0, argument) }
    }

    /// Sets offset, limit and flags.
    pub(crate) fn set_status(&self, info: LoopInfo) -> Result<()> {
        // SAFETY: LOOP_SET_STATUS64 reads one `struct loop_info64`, which `LoopInfo` is:
        // `repr(C)`, the fields of linux/loop.h, the same size (asserted above).
        let argument = unsafe { Setter::<LOOP_SET_STATUS64, LoopInfo>::new(info) };
        // SAFETY: the driver is loop (invariant 1). It only reads the argument, which lives
        // through the call.
        unsafe { ioctl(&self.0, argument) }
    }

    /// What the device is attached to, and how.
    pub(crate) fn status(&self) -> Result<LoopInfo> {
        // SAFETY: LOOP_GET_STATUS64 writes one whole `struct loop_info64`, which `LoopInfo` is
        // (size asserted above), and every bit pattern is a valid `LoopInfo`.
        let argument = unsafe { Getter::<LOOP_GET_STATUS64, LoopInfo>::new() };
        // SAFETY: the driver is loop (invariant 1). On success it has filled the output; on
        // failure rustix does not read it.
        unsafe { ioctl(&self.0, argument) }
    }

    /// Sets the logical block size in bytes.
    pub(crate) fn set_block_size(&self, bytes: u32) -> Result<()> {
        // SAFETY: the driver is loop (invariant 1), for which `Number` is right (see its impl).
        unsafe { ioctl(&self.0, Number::<LOOP_SET_BLOCK_SIZE>(bytes as usize)) }
    }

    /// Makes the kernel read the backing file past the page cache from now on. EINVAL if that is impossible.
    pub(crate) fn set_direct_io(&self) -> Result<()> {
        // SAFETY: the driver is loop (invariant 1), for which `Number` is right (see its impl).
        unsafe { ioctl(&self.0, Number::<LOOP_SET_DIRECT_IO>(1)) }
    }
}
