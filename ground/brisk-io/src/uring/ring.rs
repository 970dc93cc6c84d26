use std::io;

use io_uring::{Builder, IoUring, Probe, opcode, squeue};

/// A ring for this many reads at once, which this process may use.
///
/// # Errors
///
/// `Unsupported` if the kernel, its settings, or a filter of system calls refuse `io_uring`, and before Linux
/// 5.6, whose rings cannot read.
pub(super) fn make(entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    // Otherwise a forked child would submit its own addresses as those of this process.
    build(builder.dontfork(), entries)
}

/// The same, with the settings of `builder`.
pub(super) fn build(builder: &Builder<squeue::Entry>, entries: u32) -> io::Result<IoUring> {
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
    Ok(ring)
}

/// Submits what is queued to the kernel, and waits until a read has completed, or the kernel wants to be asked
/// again.
///
/// # Errors
///
/// If the kernel accepts nothing any more. It goes on with what it has accepted before.
pub(super) fn hand_over_and_wait(ring: &IoUring) -> io::Result<()> {
    match ring.submit_and_wait(1) {
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
