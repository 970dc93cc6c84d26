//! What a process shows as its arguments (prctl(2)).

use std::io;
use std::ptr;

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
