/*!
System calls that have no safe wrapper: the ioctls of loop devices (linux/loop.h) and of FUSE channels
(linux/fuse.h), `unshare`, fanotify, those that start processes: `fork`, `close_range`, `signal`, `_exit`, and those of a
process that limits itself: the handler of refused calls, the priority of its reads, and its scheduling. What a process has inherited before
Rust's runtime changes it, and how a program gets that. And `ptrace` and
`userfaultfd`, by which launches are observed, `bpf`, by which the whole system is, and `prctl`, by which a process says what
its arguments are.

The meaning of an ioctl's number depends on the driver behind the descriptor. So each descriptor is in a type that has
checked its device: [`LoopControl`] and [`LoopNode`].
*/
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor, open};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};
use rustix::process::{Pid, WaitOptions, child_subreaper, set_child_subreaper, waitpid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::session::is_fuse;

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

/// Gives the calling thread a mount namespace of its own, a copy of the present one.
pub(crate) fn unshare_mounts() -> Result<()> {
    // SAFETY: the one requirement concerns `UnshareFlags::FILES`, which is not passed.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
}

const FUSE_DEV_IOC_CLONE: Opcode = 0x8004_e500;

/// Another channel of the connection that `channel` belongs to. EINVAL if it belongs to none, or was opened
/// in another user namespace. ENXIO if `/dev/fuse` is another device.
pub(crate) fn clone_fuse_channel(channel: BorrowedFd<'_>) -> Result<OwnedFd> {
    let fd = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&fd)?;
    if !is_fuse(stat.st_mode, stat.st_rdev) {
        return Err(Errno::NXIO);
    }
    let number = channel.as_raw_fd().unsigned_abs();
    // SAFETY: FUSE_DEV_IOC_CLONE reads one `u32`, a descriptor's number.
    let argument = unsafe { Setter::<FUSE_DEV_IOC_CLONE, u32>::new(number) };
    // SAFETY: the driver is FUSE (checked above). It only reads the argument, which lives through
    // the call; the descriptor number in it belongs to `channel`, borrowed as long, and the driver
    // checks that it is a channel.
    unsafe { ioctl(&fd, argument) }?;
    Ok(fd)
}

/// Gives the calling thread a user namespace of its own, in which it has every capability, and a
/// mount namespace that belongs to it. EINVAL if the process has more than one thread.
pub(crate) fn unshare_user_and_mounts() -> Result<()> {
    // SAFETY: the one requirement concerns `UnshareFlags::FILES`, which is not passed.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
}

/// Starts a process that is nobody's child. It has a process session of its own without a terminal, `/` as
/// its working directory, `stdio` as its standard streams, and no descriptors except these and `kept`. It
/// runs `main` and ends with the status that `main` returns.
///
/// `main` must use no descriptor that is not in `kept`. Returns when the process has been started.
///
/// # Errors
///
/// EDEADLK if the process has other threads: in the copy, their locks would stay locked.
pub(crate) fn start_detached(
    kept: &[RawFd],
    stdio: BorrowedFd<'_>,
    main: impl FnOnce() -> i32,
) -> io::Result<()> {
    // An intermediate process starts it and ends. So this process, which may become a program, never has a
    // child that the program does not know. Nor does it adopt one, if it adopts the orphans of what it starts.
    let adopts = child_subreaper()?;
    if adopts.is_some() {
        set_child_subreaper(None)?;
    }
    let started = start_orphan(kept, stdio, main);
    if adopts.is_some() {
        set_child_subreaper(adopts)?;
    }
    started
}

/// As [`start_detached`].
fn start_orphan(
    kept: &[RawFd],
    stdio: BorrowedFd<'_>,
    main: impl FnOnce() -> i32,
) -> io::Result<()> {
    let Some(between) = fork()? else {
        let started = start_child(|| {
            if close_all_but(kept, stdio).is_err() || rustix::process::setsid().is_err() {
                return 1;
            }
            // If `/` cannot be entered, it cannot be left either, so that does no harm.
            match rustix::process::chdir("/") {
                Ok(()) => main(),
                Err(_) => 1,
            }
        });
        exit_now(i32::from(started.is_err()));
    };
    loop {
        match waitpid(Some(between), WaitOptions::empty()) {
            Ok(Some((_, status))) if status.exit_status() == Some(0) => return Ok(()),
            // The process that started this one may have chosen that children leave no status.
            Err(Errno::CHILD) => return Ok(()),
            Err(Errno::INTR) => {}
            Ok(_) => return Err(Errno::AGAIN.into()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Starts a child that is a copy of this process, runs `main` and ends with its status. EDEADLK if the
/// process has other threads.
pub(crate) fn start_child(main: impl FnOnce() -> i32) -> io::Result<Pid> {
    match fork()? {
        Some(child) => Ok(child),
        // Unwinding past this point would run the parent's code.
        None => exit_now(catch_unwind(AssertUnwindSafe(main)).unwrap_or(101)),
    }
}

/// A queue in the kernel of values of `LEN` bytes (`BPF_MAP_TYPE_QUEUE`, Linux 4.20). A [`Probe`] fills it.
#[derive(Debug)]
pub(crate) struct BpfQueue<const LEN: usize>(OwnedFd);

impl<const LEN: usize> BpfQueue<LEN> {
    /// Makes an empty queue for `most` values. EPERM without root, ENOSYS or EINVAL if the kernel has none.
    pub(crate) fn new(most: u32) -> Result<Self> {
        const TYPE_QUEUE: u32 = 22;
        let len = u32::try_from(LEN).map_err(|_| Errno::INVAL)?;
        bpf_map(TYPE_QUEUE, 0, len, most).map(Self)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes the value that has been there longest. False if the queue is empty.
    pub(crate) fn take(&self, value: &mut [u8; LEN]) -> Result<bool> {
        const MAP_LOOKUP_AND_DELETE_ELEM: c_int = 21;
        let mut attributes = BpfAttributes::default();
        attributes.0[0] = pair(self.0.as_raw_fd().unsigned_abs(), 0);
        attributes.0[2] = value.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the map is a queue of values of `LEN` bytes, as `new` makes it. A queue has no keys. The kernel writes one
        // value to the address, which lives through the call.
        match unsafe { bpf(MAP_LOOKUP_AND_DELETE_ELEM, &mut attributes) } {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// A number in the kernel that a [`Probe`] counts up (`BPF_MAP_TYPE_ARRAY`). It begins at 0, and has the key 0.
#[derive(Debug)]
pub(crate) struct BpfCounter(OwnedFd);

impl BpfCounter {
    /// The errors are those of [`BpfQueue::new`].
    pub(crate) fn new() -> Result<Self> {
        const TYPE_ARRAY: u32 = 2;
        bpf_map(TYPE_ARRAY, 4, 8, 1).map(Self)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn get(&self) -> Result<u64> {
        const MAP_LOOKUP_ELEM: c_int = 1;
        let (key, mut count) = (0u32, 0u64);
        let mut attributes = BpfAttributes::default();
        attributes.0[0] = pair(self.0.as_raw_fd().unsigned_abs(), 0);
        attributes.0[1] = ptr::from_ref(&key).expose_provenance() as u64;
        attributes.0[2] = ptr::from_mut(&mut count).expose_provenance() as u64;
        // SAFETY: the map has keys of 4 bytes and values of 8, as `new` makes it. The kernel reads the key and writes the
        // value, which both live through the call.
        unsafe { bpf(MAP_LOOKUP_ELEM, &mut attributes) }?;
        Ok(count)
    }
}

/// A set of processes in the kernel, which a [`Probe`] asks (`BPF_MAP_TYPE_HASH`). The keys are their numbers, and the values
/// say nothing.
#[derive(Debug)]
pub(crate) struct BpfProcesses(OwnedFd);

impl BpfProcesses {
    /// Makes an empty set for `most` processes. The errors are those of [`BpfQueue::new`].
    pub(crate) fn new(most: u32) -> Result<Self> {
        const TYPE_HASH: u32 = 1;
        bpf_map(TYPE_HASH, 4, 4, most).map(Self)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// E2BIG if there is no room.
    pub(crate) fn insert(&self, process: i32) -> Result<()> {
        const MAP_UPDATE_ELEM: c_int = 2;
        let value = 0u32;
        let value = ptr::from_ref(&value).expose_provenance() as u64;
        // SAFETY: the map has values of 4 bytes, and this one lives through the call.
        unsafe { self.change(MAP_UPDATE_ELEM, process, value) }
    }

    /// ENOENT if it is not there.
    pub(crate) fn remove(&self, process: i32) -> Result<()> {
        const MAP_DELETE_ELEM: c_int = 3;
        // SAFETY: removing takes no value.
        unsafe { self.change(MAP_DELETE_ELEM, process, 0) }
    }

    /// # Safety
    ///
    /// If the command takes a value, `value` must be the address of one.
    unsafe fn change(&self, command: c_int, process: i32, value: u64) -> Result<()> {
        let mut attributes = BpfAttributes::default();
        attributes.0[0] = pair(self.0.as_raw_fd().unsigned_abs(), 0);
        attributes.0[1] = ptr::from_ref(&process).expose_provenance() as u64;
        attributes.0[2] = value;
        // SAFETY: the map has keys of 4 bytes, as `new` makes it. The kernel reads one, which lives through the call. The
        // caller answers for the value.
        unsafe { bpf(command, &mut attributes) }.map(drop)
    }
}

/// Makes a map of values of a type, with the sizes of a key and of a value, and room for so many.
fn bpf_map(kind: u32, key: u32, value: u32, most: u32) -> Result<OwnedFd> {
    const MAP_CREATE: c_int = 0;
    let mut attributes = BpfAttributes::default();
    attributes.0[0] = pair(kind, key);
    attributes.0[1] = pair(value, most);
    // SAFETY: making a map reads numbers only.
    unsafe { bpf_descriptor(MAP_CREATE, &mut attributes) }
}

/// A program in the kernel that runs at one of its tracepoints, until this is dropped.
#[derive(Debug)]
pub(crate) struct Probe {
    _attached: OwnedFd,
}

impl Probe {
    /// Has the kernel check a program of these instructions (`struct bpf_insn`), and run it at the tracepoint `name`. EPERM
    /// without root, or if the system is locked down.
    pub(crate) fn at_tracepoint(name: &CStr, instructions: &[u64]) -> Result<Self> {
        const PROG_LOAD: c_int = 5;
        const RAW_TRACEPOINT_OPEN: c_int = 17;
        const TYPE_RAW_TRACEPOINT: u32 = 17;
        // The kernel lets only programs with such a licence read the memory of others.
        const LICENCE: &CStr = c"Dual MIT/GPL";
        let count = u32::try_from(instructions.len()).map_err(|_| Errno::INVAL)?;
        let mut attributes = BpfAttributes::default();
        attributes.0[0] = pair(TYPE_RAW_TRACEPOINT, count);
        attributes.0[1] = instructions.as_ptr().expose_provenance() as u64;
        attributes.0[2] = LICENCE.as_ptr().expose_provenance() as u64;
        // SAFETY: the kernel reads `count` instructions and the licence, which ends with a zero byte. Both live through the
        // call. It refuses a program that could do harm.
        let program = unsafe { bpf_descriptor(PROG_LOAD, &mut attributes) }?;
        let mut attributes = BpfAttributes::default();
        attributes.0[0] = name.as_ptr().expose_provenance() as u64;
        attributes.0[1] = pair(program.as_raw_fd().unsigned_abs(), 0);
        // SAFETY: the kernel reads the name, which ends with a zero byte and lives through the call.
        let attached = unsafe { bpf_descriptor(RAW_TRACEPOINT_OPEN, &mut attributes) }?;
        // What is attached keeps the program.
        Ok(Self {
            _attached: attached,
        })
    }
}

/// The first bytes of `union bpf_attr`. The kernel takes those that are not there for zero (bpf(2)).
#[repr(C)]
#[derive(Default)]
struct BpfAttributes([u64; 8]);

/// Two neighbouring fields of 32 bits.
fn pair(first: u32, second: u32) -> u64 {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// # Safety
///
/// What the attributes have addresses of must be as the command needs it.
unsafe fn bpf(command: c_int, attributes: &mut BpfAttributes) -> Result<c_int> {
    let len = size_of::<BpfAttributes>();
    // SAFETY: the kernel reads and writes at most `len` bytes of the attributes. The caller answers for the rest.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_mut(attributes), len) };
    match c_int::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(last_errno()),
    }
}

/// A command that makes a descriptor, which is closed when a program is executed.
///
/// # Safety
///
/// As for [`bpf`], and the command must make a descriptor.
unsafe fn bpf_descriptor(command: c_int, attributes: &mut BpfAttributes) -> Result<OwnedFd> {
    // SAFETY: the caller answers for the attributes.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the call has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A fanotify group that reports which files are opened. EPERM without root, ENOSYS if the kernel has no
/// fanotify.
pub(crate) fn watch_opens() -> Result<OwnedFd> {
    let flags = libc::FAN_CLASS_NOTIF
        | libc::FAN_CLOEXEC
        | libc::FAN_NONBLOCK
        | libc::FAN_UNLIMITED_QUEUE
        | libc::FAN_UNLIMITED_MARKS;
    let opened = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC;
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::fanotify_init(flags, opened.cast_unsigned()) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the call has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes `group` report files and directories that are opened in the file system of `path`. EINVAL before Linux 4.20.
pub(crate) fn watch_file_system(group: BorrowedFd<'_>, path: &CStr) -> Result<()> {
    let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    let group = group.as_raw_fd();
    let what = libc::FAN_OPEN | libc::FAN_ONDIR;
    // SAFETY: `path` ends with a zero byte and lives through the call, which reads it only; the
    // descriptor is borrowed as long.
    let result = unsafe { libc::fanotify_mark(group, flags, what, libc::AT_FDCWD, path.as_ptr()) };
    match result {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// The watched files and directories that were opened since the last call, with the number of the process that opened each.
/// Empty if there are none at the moment.
pub(crate) fn opened_files(group: BorrowedFd<'_>) -> Result<Vec<(OwnedFd, i32)>> {
    /// `struct fanotify_event_metadata`.
    const LEN: usize = 24;
    const FD: usize = 16;
    const PID: usize = 20;
    // No more events than a process surely has descriptors for.
    let mut buffer = [0u8; 128 * LEN];
    let len = match rustix::io::read(group, &mut buffer) {
        Err(Errno::AGAIN) => 0,
        result => result?,
    };
    let mut rest = buffer.get(..len).unwrap_or_default();
    let mut files = Vec::new();
    let number = |at: usize, event: &[u8]| {
        let bytes = event.get(at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    while let Some(event_len) = number(0, rest) {
        let fd = number(FD, rest).map_or(-1, u32::cast_signed);
        if fd >= 0 {
            // SAFETY: the kernel made this descriptor for this event, which is read once; nobody
            // else knows it.
            let file = unsafe { OwnedFd::from_raw_fd(fd) };
            files.push((file, number(PID, rest).unwrap_or(0).cast_signed()));
        }
        rest = rest
            .get((event_len as usize).max(LEN)..)
            .unwrap_or_default();
    }
    Ok(files)
}

/// Lets the process go on when a terminal or a service manager asks it to end. For a process that restores
/// what another has changed.
pub fn ignore_requests_to_end() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // SAFETY: SIG_IGN is no function of ours, so nothing runs when the signal comes; the numbers
        // are those of signals that may be ignored, so the call does not fail.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Makes children leave a status to wait for. The parent may have chosen otherwise.
pub(crate) fn keep_children() {
    // SAFETY: SIG_DFL is no function of ours, and SIGCHLD a signal whose handling may be set, so the call does
    // not fail.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

fn last_errno() -> Errno {
    errno(io::Error::last_os_error())
}

/// The system's number of an error. EIO if it has none.
pub(crate) fn errno(e: io::Error) -> Errno {
    Errno::from_io_error(&e).unwrap_or(Errno::IO)
}

/// The process session of `pid`. 0 if its leader is outside of the caller's PID namespace, as for a process
/// that was started in a container from outside. rustix's `getsid` treats that as an error.
pub(crate) fn process_session(pid: Pid) -> io::Result<i32> {
    // SAFETY: the call takes any number and gives one.
    match unsafe { libc::getsid(pid.as_raw_nonzero().get()) } {
        -1 => Err(io::Error::last_os_error()),
        session => Ok(session),
    }
}

/// What the process was given that Rust's runtime changes before `main`: a bit for each.
static INHERITED: AtomicU8 = AtomicU8::new(0);

/// A bit of [`INHERITED`]. Bits 0, 1 and 2 say that the descriptor of this number was closed.
const IGNORES_PIPE: u8 = 1 << 3;

/// The loader calls what this section lists before it calls the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_INHERITED: extern "C" fn() = note_inherited;

extern "C" fn note_inherited() {
    let mut inherited = 0;
    for descriptor in 0..3 {
        // SAFETY: the call takes two numbers, and changes nothing.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            inherited |= 1 << descriptor;
        }
    }
    if disposition(libc::SIGPIPE).is_some_and(|action| action.sa_sigaction == libc::SIG_IGN) {
        inherited |= IGNORES_PIPE;
    }
    INHERITED.store(inherited, Ordering::Relaxed);
}

/// What happens at a signal. None for a number that is no signal's.
fn disposition(signal: c_int) -> Option<libc::sigaction> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action given, the call only writes the present one, to memory of its size.
    let answer = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zero is a whole action, too, so it is one whether or not the call has written it.
    (answer == 0).then(|| unsafe { action.assume_init() })
}

/// Whether SIGCHLD has come and is blocked.
fn child_signal_waits() -> bool {
    // SAFETY: all zero is a whole set.
    let mut pending: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: it writes to a whole set.
    unsafe { libc::sigpending(&raw mut pending) };
    // SAFETY: it reads a whole set.
    unsafe { libc::sigismember(&raw const pending, libc::SIGCHLD) == 1 }
}

/// Becomes the program of `command`, which gets what this process was started with, as if whoever started this one had started
/// it: whether SIGPIPE is ignored, which of the descriptors 0, 1 and 2 are closed, and no SIGCHLD for a child of brisk. Blocked
/// signals and limits stay as they are. Returns why that failed.
pub fn become_command(command: &mut Command) -> io::Error {
    let inherited = INHERITED.load(Ordering::Relaxed);
    let standard = [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ];
    for (bit, descriptor) in standard.into_iter().enumerate() {
        // The runtime has opened it. It stays open for messages if the program does not start.
        if inherited & 1 << bit != 0
            && let Err(e) = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)
        {
            return e.into();
        }
    }
    let restore = move || {
        if inherited & IGNORES_PIPE != 0 {
            // SAFETY: SIG_IGN is no function of ours, and SIGPIPE may be ignored.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        if child_signal_waits() {
            forget_own_children();
        }
        Ok(())
    };
    // SAFETY: `exec` runs it in this process, where all functions may be called: it follows no `fork`.
    unsafe { command.pre_exec(restore) };
    command.exec()
}

/// Takes back a blocked SIGCHLD that a process of brisk has left, unless the program has a child that has ended.
fn forget_own_children() {
    let Some(same) = disposition(libc::SIGCHLD) else {
        return;
    };
    // POSIX: if what happens at a signal is nothing, to set that discards a signal that has come.
    // SAFETY: the action is the present one, and nobody asks for the earlier one.
    unsafe { libc::sigaction(libc::SIGCHLD, &raw const same, ptr::null_mut()) };
    // SAFETY: all zero is a whole `siginfo_t`.
    let mut ended: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the call writes one `siginfo_t`, and takes no child's status away.
    let answer = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut ended, how) };
    // SAFETY: the call has written it for a child, or left the number 0.
    if answer == 0 && unsafe { ended.si_pid() } != 0 {
        // SAFETY: the call takes one number.
        unsafe { libc::raise(libc::SIGCHLD) };
    }
}

/// A signal that has come to a process that waits for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceivedSignal {
    pub(crate) number: c_int,
    /// Whether the kernel has sent it by itself, as for a key of the terminal.
    pub(crate) is_of_kernel: bool,
}

/// All signals of a process of one thread, blocked, and what was blocked before.
pub(crate) struct BlockedSignals {
    before: libc::sigset_t,
    of_children: Option<libc::sigaction>,
}

impl BlockedSignals {
    /// Blocks all, and makes children leave a status to wait for.
    pub(crate) fn all() -> Self {
        // SAFETY: all zero is a whole set.
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
        // SAFETY: it writes to a whole set.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: it reads one whole set and writes another.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        let of_children = disposition(libc::SIGCHLD);
        keep_children();
        Self {
            before,
            of_children,
        }
    }

    /// As it was before.
    pub(crate) fn restore(self) {
        if let Some(before) = &self.of_children {
            // SAFETY: the action is one that was installed, and nobody asks for the present one.
            unsafe { libc::sigaction(libc::SIGCHLD, before, ptr::null_mut()) };
        }
        // SAFETY: it reads a whole set.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }

    /// Waits for a signal.
    pub(crate) fn next(&self) -> ReceivedSignal {
        // SAFETY: all zero is a whole set.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: it writes to a whole set.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: all zero is a whole `siginfo_t`.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: it reads a whole set and writes one `siginfo_t`.
            let number = unsafe { libc::sigwaitinfo(&raw const all, &raw mut info) };
            if number > 0 {
                return ReceivedSignal {
                    number,
                    is_of_kernel: info.si_code > 0,
                };
            }
        }
    }
}

/// Sends a signal by its number, of which rustix knows only some.
pub(crate) fn send_signal(process: Pid, signal: c_int) -> Result<()> {
    // SAFETY: the call takes two numbers.
    match unsafe { libc::kill(process.as_raw_pid(), signal) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Closes all descriptors of a process that uses none any more.
pub(crate) fn close_all() -> Result<()> {
    close_range(0, c_uint::MAX, 0)
}

/// The child's id, or None in the child.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(Errno::DEADLK.into());
    }
    // SAFETY: the process has one thread (counted above; only that thread could start another), so
    // no lock is held and no memory is half written in the copy, and all functions may be called.
    let id = unsafe { libc::fork() };
    match id {
        -1 => Err(io::Error::last_os_error()),
        id => Ok(Pid::from_raw(id)),
    }
}

/// Ends the process without running what the parent has registered for its own end.
pub(crate) fn exit_now(status: c_int) -> ! {
    // SAFETY: `_exit` takes any number and has no other requirement.
    unsafe { libc::_exit(status) }
}

/// Closes every descriptor but `kept`, and makes `stdio` the standard streams.
fn close_all_but(kept: &[RawFd], stdio: BorrowedFd<'_>) -> Result<()> {
    rustix::stdio::dup2_stdin(stdio)?;
    rustix::stdio::dup2_stdout(stdio)?;
    rustix::stdio::dup2_stderr(stdio)?;
    let mut kept: Vec<c_uint> = kept
        .iter()
        .map(|fd| fd.unsigned_abs())
        .filter(|fd| *fd > 2)
        .collect();
    kept.sort_unstable();
    let mut first: c_uint = 3;
    for fd in kept {
        close_range(first, fd.wrapping_sub(1), 0)?;
        first = first.max(fd.saturating_add(1));
    }
    close_range(first, c_uint::MAX, 0)
}

/// Closes `fds` in this thread and in those that it will start. From now on they have their own table of
/// descriptors, so what was in the old table stays open here until this thread closes it or ends.
///
/// Call it in a thread that never uses `fds` again, in a process whose other threads keep them.
pub(crate) fn close_in_this_thread<'a>(fds: impl IntoIterator<Item = &'a OwnedFd>) -> Result<()> {
    fds.into_iter().try_for_each(|fd| {
        let fd = fd.as_raw_fd().unsigned_abs();
        close_range(fd, fd, libc::CLOSE_RANGE_UNSHARE)
    })
}

/// Closes the descriptors `first..=last`; nothing if there are none.
fn close_range(first: c_uint, last: c_uint, flags: c_uint) -> Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: the call takes three numbers. What it closes is owned by nobody who uses it again:
    // this is called in a new process (`start_detached`), whose `main` uses what was kept, and
    // which never returns into the code that owns the rest; in a process that only waits for others and then ends
    // (`close_all`); and in a thread that gets a table of
    // its own and uses none of what it closes (`close_in_this_thread`).
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    match result {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// The version of Landlock. 0 or an error if the kernel has none.
pub(crate) fn landlock_version() -> Result<u32> {
    const CREATE_RULESET_VERSION: c_uint = 1;
    let nothing = ptr::null::<c_void>();
    // SAFETY: with this flag the call takes no memory: the pointer is null and the length 0.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            nothing,
            0usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(version).map_err(|_| last_errno())
}

/// Whether a filter of system calls can stop a call and let a handler answer it.
pub(crate) fn has_seccomp_filters() -> bool {
    let action = libc::SECCOMP_RET_TRAP;
    // SAFETY: the call reads one number, which lives through it.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0 as c_uint,
            &raw const action,
        )
    };
    answer == 0
}

/// How many system calls [`LISTED`] and [`REPORTED`] have room for. The kernel numbers them from 0, and has about 470.
const CALLS: usize = 512;

/// A set of system calls.
type CallSet = [AtomicU64; CALLS / 64];

/// The calls that the filter allows, with some arguments at least.
static LISTED: CallSet = [const { AtomicU64::new(0) }; CALLS / 64];

/// The calls that were reported as refused.
static REPORTED: CallSet = [const { AtomicU64::new(0) }; CALLS / 64];

/// Puts a call into the set, and returns whether it was there. A call without room counts as there.
fn put(set: &CallSet, call: i64) -> bool {
    let place = usize::try_from(call).ok();
    let Some((word, bit)) = place.and_then(|at| Some((set.get(at / 64)?, 1 << (at % 64)))) else {
        return true;
    };
    word.fetch_or(bit, Ordering::Relaxed) & bit != 0
}

fn is_in(set: &CallSet, call: i64) -> bool {
    let place = usize::try_from(call).ok();
    let word = place.and_then(|at| Some((set.get(at / 64)?, at % 64)));
    word.is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & (1 << bit) != 0)
}

/// Whether [`report_refused_calls`] knows the registers of this processor.
pub(crate) const fn can_report_refused_calls() -> bool {
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
}

/// Makes a call that a filter of system calls has stopped fail: with ENOSYS, or with EPERM if it is one of `listed`,
/// which the filter allows with other arguments. The first of each kind is written to the standard error stream.
///
/// The filter must stop calls with `SECCOMP_RET_TRAP`.
pub(crate) fn report_refused_calls(listed: &[i64]) {
    for set in [&LISTED, &REPORTED] {
        // A child that is confined again has another list.
        set.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
    for call in listed {
        put(&LISTED, *call);
    }
    // SAFETY: all zero is a whole action: the default, without flags and with no signal blocked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_refused_call as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
    // SAFETY: `action` is whole and lives through the call, and its handler has the type that SA_SIGINFO asks for and
    // makes only calls that a signal allows. SIGSYS may have a handler, so the call does not fail.
    unsafe { libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut()) };
}

/// Async-signal-safe: it touches atomics and registers, and makes the calls `write` and `getpid`.
extern "C" fn on_refused_call(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    const SYS_SECCOMP: c_int = 1;
    // SAFETY: the kernel gives a handler with SA_SIGINFO a pointer to a whole `siginfo_t`.
    if unsafe { (*info).si_code } != SYS_SECCOMP {
        // Somebody sent the signal.
        return;
    }
    // SAFETY: it is where the C library keeps this thread's number of the last error.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` points to this thread's number for as long as the thread lives, and only this thread accesses it.
    let before = unsafe { *errno };
    // SAFETY: the kernel gives a handler with SA_SIGINFO a pointer to the registers of the code that was interrupted,
    // which nobody else accesses until the handler returns.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    answer_refused_call(context);
    // SAFETY: as `before` was read, it can be written: what was interrupted finds there what it has left.
    unsafe { *errno = before };
}

/// Sets the result of the call in these registers.
fn answer_refused_call(context: &mut libc::ucontext_t) {
    let call = call_in(context);
    let (error, why) = match is_in(&LISTED, call) {
        true => (libc::EPERM, "must not have its arguments"),
        false => (libc::ENOSYS, "this process does not need"),
    };
    if !put(&REPORTED, call) {
        let mut line = Line::new();
        line.add(b"brisk[");
        line.add_number(u64::from(std::process::id()));
        line.add(b"]: system call ");
        line.add_number(call.unsigned_abs());
        line.add(b" was refused, which ");
        line.add(why.as_bytes());
        line.add(b": ");
        for argument in arguments_in(context) {
            line.add_number(argument);
            line.add(b" ");
        }
        line.add(b"\n");
        // SAFETY: it is the standard error stream, which this process never closes.
        let log = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
        // If the log is full, there is no place to say so.
        rustix::io::write(log, line.bytes()).ok();
    }
    set_result(context, -i64::from(error));
}

/// A line of text that needs no memory from the allocator, which the interrupted code may be using.
struct Line {
    text: [u8; 128],
    len: usize,
}

impl Line {
    fn new() -> Self {
        Self {
            text: [0; 128],
            len: 0,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(free) = self.text.get_mut(self.len) {
                *free = *byte;
                self.len += 1;
            }
        }
    }

    fn add_number(&mut self, number: u64) {
        if number >= 10 {
            self.add_number(number / 10);
        }
        // A digit.
        self.add(&[b'0' + (number % 10) as u8]);
    }

    fn bytes(&self) -> &[u8] {
        self.text.get(..self.len).unwrap_or_default()
    }
}

/// The number of the call that was stopped, and where its result goes.
#[cfg(target_arch = "x86_64")]
fn call_in(context: &libc::ucontext_t) -> i64 {
    context.uc_mcontext.gregs[libc::REG_RAX as usize]
}

/// Its first three arguments.
#[cfg(target_arch = "x86_64")]
fn arguments_in(context: &libc::ucontext_t) -> [u64; 3] {
    [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX]
        .map(|register| context.uc_mcontext.gregs[register as usize].cast_unsigned())
}

#[cfg(target_arch = "x86_64")]
fn set_result(context: &mut libc::ucontext_t, result: i64) {
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = result;
}

#[cfg(target_arch = "aarch64")]
fn call_in(context: &libc::ucontext_t) -> i64 {
    context.uc_mcontext.regs[8].cast_signed()
}

#[cfg(target_arch = "aarch64")]
fn arguments_in(context: &libc::ucontext_t) -> [u64; 3] {
    [0, 1, 2].map(|register| context.uc_mcontext.regs[register])
}

#[cfg(target_arch = "aarch64")]
fn set_result(context: &mut libc::ucontext_t, result: i64) {
    context.uc_mcontext.regs[0] = result.cast_unsigned();
}

// No filter is installed there: see `can_report_refused_calls`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn call_in(_: &libc::ucontext_t) -> i64 {
    -1
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn arguments_in(_: &libc::ucontext_t) -> [u64; 3] {
    [0; 3]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn set_result(_: &mut libc::ucontext_t, _: i64) {}

/// Gives reads and writes of the calling thread, and of those that it starts, the priority that follows from niceness.
pub(crate) fn set_default_io_priority() -> Result<()> {
    const WHO_PROCESS: c_int = 1;
    // SAFETY: the call takes three numbers.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0 as c_int, 0 as c_int) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Lets the calling thread, and those that it starts, run as ordinary threads do.
pub(crate) fn set_ordinary_scheduling() -> Result<()> {
    // SAFETY: all zero is a whole parameter, which an ordinary thread must have.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // The call itself, because musl's function of this name does nothing.
    // SAFETY: the call reads one whole parameter, which lives through it.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0 as c_int,
            libc::SCHED_OTHER,
            &raw const parameter,
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Lets all signals in, and gives those that a caller may have ignored their default effect.
pub(crate) fn reset_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: SIG_DFL is no function of ours, and the numbers are those of signals whose handling may be set.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: all zero is a whole set, which `sigemptyset` makes empty.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: it writes to a whole set.
    unsafe { libc::sigemptyset(&raw mut none) };
    // SAFETY: it reads a whole set, which lives through the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()) };
}

/// Why a traced process has stopped at a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallStop {
    /// It is about to make the call with this number.
    Entry { number: u64, arguments: [u64; 6] },
    /// The call has returned this. A number from -4095 to -1 is an error.
    Exit { value: i64 },
    /// A call of another architecture, as of a 32-bit program, or none.
    Other,
}

const PTRACE_GET_SYSCALL_INFO: c_uint = 0x420e;
const PTRACE_SYSCALL_INFO_ENTRY: u8 = 1;
const PTRACE_SYSCALL_INFO_EXIT: u8 = 2;

/// The architecture of this process (linux/audit.h), as `PTRACE_GET_SYSCALL_INFO` names it.
const AUDIT_ARCH: u32 = if cfg!(target_arch = "x86_64") {
    0xc000_003e
} else if cfg!(target_arch = "aarch64") {
    0xc000_00b7
} else if cfg!(target_arch = "riscv64") {
    0xc000_00f3
} else {
    0
};

/// Makes this thread the tracer of `process` and of what that starts. The process goes on.
pub(crate) fn seize(process: Pid) -> Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT;
    ptrace(libc::PTRACE_SEIZE, process, options)
}

/// Stops a process that was [seized](seize).
pub(crate) fn interrupt(process: Pid) -> Result<()> {
    ptrace(libc::PTRACE_INTERRUPT, process, 0)
}

/// Lets a stopped process go on to its next system call, with this signal or none (0).
pub(crate) fn go_on_to_call(process: Pid, signal: c_int) -> Result<()> {
    ptrace(libc::PTRACE_SYSCALL, process, signal)
}

/// Lets a stopped process go on without a tracer, with this signal or none (0).
pub(crate) fn let_go(process: Pid, signal: c_int) -> Result<()> {
    ptrace(libc::PTRACE_DETACH, process, signal)
}

fn ptrace(request: c_uint, process: Pid, number: c_int) -> Result<()> {
    let number = ptr::without_provenance_mut(number.cast_unsigned() as usize);
    // SAFETY: none of the requests that reach this reads or writes memory of this process: what they take is a number.
    unsafe { ptrace_with(request, process, 0, number) }
}

/// # Safety
///
/// The kernel must be allowed to read or write at `data` what this request reads or writes there with this address.
unsafe fn ptrace_with(
    request: c_uint,
    process: Pid,
    address: usize,
    data: *mut c_void,
) -> Result<()> {
    // SAFETY: the caller answers for `data`, and the address is a number for each request that brisk makes.
    let answer = unsafe { libc::ptrace(request, process.as_raw_pid(), address, data) };
    match answer {
        0.. => Ok(()),
        _ => Err(last_errno()),
    }
}

/// What belongs to the event for which a process has stopped: of a `fork`, the child's number.
pub(crate) fn event_message(process: Pid) -> Result<u64> {
    let mut message: libc::c_ulong = 0;
    let data = (&raw mut message).cast();
    // SAFETY: the kernel writes one `unsigned long`, which `message` is.
    unsafe { ptrace_with(libc::PTRACE_GETEVENTMSG, process, 0, data) }?;
    Ok(message)
}

/// The system call at which a process has stopped. EIO before Linux 5.3.
pub(crate) fn call_of(process: Pid) -> Result<CallStop> {
    // `struct ptrace_syscall_info`: the kind in the first byte, the architecture in the second half of the first word,
    // two pointers, and then what belongs to the kind.
    let mut words = [0u64; 11];
    let (len, data) = (size_of_val(&words), words.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most as many bytes as the third argument says, and `words` has them.
    unsafe { ptrace_with(PTRACE_GET_SYSCALL_INFO, process, len, data) }?;
    let [start, _, _, first, arguments @ .., _] = words;
    let [kind, _, _, _, arch @ ..] = start.to_ne_bytes();
    Ok(match kind {
        PTRACE_SYSCALL_INFO_ENTRY if u32::from_ne_bytes(arch) == AUDIT_ARCH => CallStop::Entry {
            number: first,
            arguments,
        },
        PTRACE_SYSCALL_INFO_EXIT => CallStop::Exit {
            value: first.cast_signed(),
        },
        _ => CallStop::Other,
    })
}

/// Where `/proc` finds parts of this process, as it says in `/proc/self/stat`. Ranges have a start and an end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownMemory {
    pub(crate) code: (u64, u64),
    pub(crate) stack: u64,
    pub(crate) data: (u64, u64),
    pub(crate) break_start: u64,
    pub(crate) environment: (u64, u64),
}

/// `struct prctl_mm_map` of linux/prctl.h.
#[repr(C)]
struct MemoryMap {
    code: [u64; 2],
    data: [u64; 2],
    break_start: u64,
    break_end: u64,
    stack: u64,
    arguments: [u64; 2],
    environment: [u64; 2],
    /// A pointer.
    auxiliary: usize,
    auxiliary_len: u32,
    program: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<MemoryMap>() == 104);

/// Shows `text`, words that each end with a zero, as the arguments of this process. `now` is what `/proc` shows of the rest,
/// which stays.
pub(crate) fn show_arguments(text: &'static [u8], now: ShownMemory) -> io::Result<()> {
    // SAFETY: an increment of 0 changes nothing, and the result is not read through.
    let break_end = unsafe { libc::sbrk(0) };
    let start = text.as_ptr().addr() as u64;
    let map = MemoryMap {
        code: [now.code.0, now.code.1],
        data: [now.data.0, now.data.1],
        break_start: now.break_start,
        break_end: break_end.addr() as u64,
        stack: now.stack,
        arguments: [start, start.saturating_add(text.len() as u64)],
        environment: [now.environment.0, now.environment.1],
        // None, so that the kernel keeps what it has.
        auxiliary: 0,
        auxiliary_len: 0,
        program: u32::MAX,
    };
    // SAFETY: the kernel reads one `struct prctl_mm_map`, which `MemoryMap` is: `repr(C)`, the fields of linux/prctl.h,
    // the same size (asserted above, and its size is passed). It keeps the addresses for `/proc` only, except that of the
    // break, which is the present one. `text` is never freed.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_MM,
            libc::PR_SET_MM_MAP as libc::c_ulong,
            ptr::from_ref(&map),
            size_of::<MemoryMap>() as libc::c_ulong,
            0 as libc::c_ulong,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
