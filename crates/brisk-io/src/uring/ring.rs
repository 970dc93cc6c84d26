use std::io;

use io_uring::{Builder, IoUring, Probe, opcode, squeue};

/// A ring for this many reads at once, which this process may use.
///
/// # Errors
///
/// `Unsupported` where the kernel, its settings, or a filter of system calls refuse `io_uring`, and before
/// Linux 5.6, whose rings do not read.
pub(super) fn make(entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    // A child that was forked would hand over its own addresses as those of this process.
    build(builder.dontfork(), entries)
}

/// The same, as `builder` has it.
pub(super) fn build(builder: &Builder<squeue::Entry>, entries: u32) -> io::Result<IoUring> {
    let ring = builder.build(entries).map_err(refused)?;
    let mut probe = Probe::new();
    match ring.submitter().register_probe(&mut probe) {
        Ok(()) if probe.is_supported(opcode::Read::CODE) => {}
        Err(e) if e.raw_os_error() != Some(libc::EINVAL) => return Err(refused(e)),
        // It cannot be asked what it knows, or does not know this.
        Ok(()) | Err(_) => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring does not read: that takes Linux 5.6",
            ));
        }
    }
    // A filter may let a process make rings and not use them. Nothing is queued yet.
    ring.submit().map_err(refused)?;
    Ok(ring)
}

/// Hands what is queued to the kernel, and waits until so much has ended, or the kernel wants to be asked again.
///
/// # Errors
///
/// Where the kernel takes nothing any more. What it took before, it goes on with.
pub(super) fn hand_over_and_wait(ring: &IoUring, ended: usize) -> io::Result<()> {
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
            format!("this system lets nobody, or not this process, use io_uring: {e}"),
        ),
        _ => e,
    }
}
