//! Programs in the kernel, and what they share with this process (bpf(2)).

use std::ffi::{CStr, c_int};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::io::{Errno, Result};

use super::last_errno;

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
