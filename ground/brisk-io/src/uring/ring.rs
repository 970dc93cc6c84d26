use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use io_uring::{Builder, IoUring, Probe, opcode, squeue};

use crate::maker::Maker;

/// A ring that only the process that made it uses and unmaps.
///
/// A forked child has a copy of this, but the kernel does not give it the ring's memory (`dontfork`). By the time that
/// the child drops its copy, these addresses may hold something else, and the number of the descriptor may belong to
/// another file. So a child leaves both alone: it keeps a descriptor until it ends.
pub(super) struct OwnRing {
    ring: ManuallyDrop<IoUring>,
    maker: Maker,
}

impl OwnRing {
    fn new(ring: IoUring) -> Self {
        Self {
            ring: ManuallyDrop::new(ring),
            maker: Maker::this_process(),
        }
    }

    /// Whether this process made it, and not one from which this was forked.
    pub(super) fn is_own(&self) -> bool {
        self.maker.is_this_process()
    }
}

impl Deref for OwnRing {
    type Target = IoUring;

    fn deref(&self) -> &IoUring {
        &self.ring
    }
}

impl DerefMut for OwnRing {
    fn deref_mut(&mut self) -> &mut IoUring {
        &mut self.ring
    }
}

impl Drop for OwnRing {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: `drop` runs once, and nothing uses `ring` after it.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        }
    }
}

/// A ring for this many reads at once, which this process may use.
///
/// # Errors
///
/// `Unsupported` if the kernel, its settings, or a filter of system calls refuse `io_uring`, and before Linux
/// 5.6, whose rings cannot read.
pub(super) fn make(entries: u32) -> io::Result<OwnRing> {
    let mut builder = IoUring::builder();
    // Otherwise a forked child would submit its own addresses as those of this process.
    build(builder.dontfork(), entries)
}

/// The same, with the settings of `builder`.
pub(super) fn build(builder: &Builder<squeue::Entry>, entries: u32) -> io::Result<OwnRing> {
    let ring = builder.build(entries).map_err(refused)?;
    let mut probe = Probe::new();
    match ring.submitter().register_probe(&mut probe) {
        Ok(()) if probe.is_supported(opcode::Read::CODE) => {}
        Err(e) if e.raw_os_error() != Some(libc::EINVAL) => return Err(refused(e)),
        // The kernel cannot be asked what the ring supports, or it does not support reads.
        Ok(()) | Err(_) => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring cannot read; that needs Linux 5.6",
            ));
        }
    }
    // A filter may let a process make rings but not use them. Nothing is queued yet.
    ring.submit().map_err(refused)?;
    Ok(OwnRing::new(ring))
}

/// Submits what is queued to the kernel, and waits until this many reads have completed, or the kernel wants
/// to be asked again.
///
/// # Errors
///
/// If the kernel accepts nothing any more. It goes on with what it has accepted before.
pub(super) fn hand_over_and_wait(ring: &OwnRing, ended: usize) -> io::Result<()> {
    match ring.submit_and_wait(ended) {
        Err(e)
            if !matches!(
                e.raw_os_error(),
                Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
            ) =>
        {
            Err(e)
        }
        _ => Ok(()),
    }
}

fn refused(e: io::Error) -> io::Error {
    match e.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM | libc::EACCES) => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this system does not let this process use io_uring: {e}"),
        ),
        _ => e,
    }
}
