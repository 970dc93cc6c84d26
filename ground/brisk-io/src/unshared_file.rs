use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// An open file that forked children do not keep open.
///
/// A lock (`flock`, or one of a range) belongs to the open file. A child that is forked has the same open file. If its
/// parent is then killed, the lock stays until the child ends, too. So this closes the file in each child of `fork`,
/// before `fork` returns there. Until the child first runs, it still has the file. A child that the system call `clone` makes, without the C library, keeps it.
#[derive(Debug)]
pub struct UnsharedFile(&'static Slot);

/// The descriptor of one file, in a list that forked children go through.
///
/// 1. Slots are never freed, and `next` does not change once a slot can be reached from [`FIRST`].
/// 2. `fd` is [`FREE`], or a descriptor that belongs to the one `UnsharedFile` of this slot, or [`LOST`] if this process
///    is a child that has closed it. Only that `UnsharedFile` makes it `FREE`.
#[derive(Debug)]
struct Slot {
    fd: AtomicI32,
    next: AtomicPtr<Slot>,
}

const FREE: RawFd = -1;
const LOST: RawFd = -2;

static FIRST: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

impl UnsharedFile {
    /// Takes the file over. Lock it only afterwards.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the C library has no memory to note what a child does.
    pub fn new(file: impl Into<OwnedFd>) -> io::Result<Self> {
        close_in_children()?;
        let fd = file.into().into_raw_fd();
        let mut at = FIRST.load(Ordering::Acquire);
        // SAFETY: invariant 1: what `FIRST` and `next` point to is never freed.
        while let Some(slot) = unsafe { at.as_ref() } {
            let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
            if slot.fd.compare_exchange(FREE, fd, release, relaxed).is_ok() {
                return Ok(Self(slot));
            }
            at = slot.next.load(Ordering::Relaxed);
        }
        let slot: &'static Slot = Box::leak(Box::new(Slot {
            fd: AtomicI32::new(fd),
            next: AtomicPtr::default(),
        }));
        let mut first = FIRST.load(Ordering::Relaxed);
        loop {
            slot.next.store(first, Ordering::Relaxed);
            let this = ptr::from_ref(slot).cast_mut();
            match FIRST.compare_exchange_weak(first, this, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(Self(slot)),
                Err(now) => first = now,
            }
        }
    }

    /// The file. None in a child that was forked since.
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.0.fd.load(Ordering::Acquire);
        // SAFETY: by invariant 2, a descriptor in the slot belongs to `self`, which is borrowed. Only `drop` closes it
        // in this process.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Another descriptor of the same open file, for calls that want a [`File`]. A child keeps this one.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] in a child that was forked since. Otherwise those of `dup`.
    pub fn try_clone(&self) -> io::Result<File> {
        let fd = self.get().ok_or(io::ErrorKind::NotFound)?;
        fd.as_fd().try_clone_to_owned().map(File::from)
    }
}

impl Drop for UnsharedFile {
    fn drop(&mut self) {
        let fd = self.0.fd.swap(FREE, Ordering::AcqRel);
        if fd >= 0 {
            // SAFETY: by invariant 2 the descriptor belongs to `self` alone, and is in no slot any more.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

/// Has the C library call [`close_all`] in each child that it forks.
fn close_in_children() -> io::Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Relaxed) {
        return Ok(());
    }
    // Two threads may both come here. The second call of `close_all` in a child then finds nothing to close.
    // SAFETY: the function lives for ever, takes nothing, and makes only calls that a forked child may make.
    let answer = unsafe { libc::pthread_atfork(None, None, Some(close_all)) };
    if answer != 0 {
        return Err(io::Error::from_raw_os_error(answer));
    }
    DONE.store(true, Ordering::Relaxed);
    Ok(())
}

/// Runs in a forked child, in its only thread, before anything else of it does.
unsafe extern "C" fn close_all() {
    let mut at = FIRST.load(Ordering::Acquire);
    // SAFETY: invariant 1: what `FIRST` and `next` point to is never freed.
    while let Some(slot) = unsafe { at.as_ref() } {
        let fd = slot.fd.load(Ordering::Relaxed);
        if fd >= 0 {
            slot.fd.store(LOST, Ordering::Relaxed);
            // SAFETY: by invariant 2 the descriptor belongs to the slot's `UnsharedFile`, which from now on finds that
            // it is lost. No other thread of this child exists that could be using it.
            unsafe { libc::close(fd) };
        }
        at = slot.next.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::time::{Duration, Instant};

    #[test]
    fn a_child_keeps_no_lock_of_its_parent() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let locked = UnsharedFile::new(File::open(path.path()).unwrap()).unwrap();
        let try_lock = |file: BorrowedFd<'_>| flock(file, FlockOperation::NonBlockingLockExclusive);
        try_lock(locked.get().unwrap()).unwrap();
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        // SAFETY: the child makes system calls and ends by `_exit`.
        let child = match unsafe { libc::fork() } {
            0 => {
                let lost = locked.get().is_none();
                // It waits until the parent has let go of the lock.
                drop(writer);
                let mut byte = [0];
                let told = std::io::Read::read(&mut reader, &mut byte).is_ok();
                // SAFETY: it takes a number and does not return.
                unsafe { libc::_exit(i32::from(!(lost && told))) }
            }
            pid => pid,
        };
        // If the child had the file open still, the lock would stay.
        drop(locked);
        let another = File::open(path.path()).unwrap();
        // The child may not have run yet, and neither may that of another test.
        let begun = Instant::now();
        while try_lock(another.as_fd()).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(10), "a child has it");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::io::Write::write_all(&mut writer, &[0]).unwrap();
        let mut status = -1;
        // SAFETY: it writes a number to where one is.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn a_slot_is_used_again() {
        let open = || UnsharedFile::new(tempfile::tempfile().unwrap()).unwrap();
        let files: Vec<_> = (0..10).map(|_| open()).collect();
        assert!(files.iter().all(|file| file.get().is_some()));
        let slots = || {
            let mut count = 0;
            let mut at = FIRST.load(Ordering::Acquire);
            // SAFETY: invariant 1.
            while let Some(slot) = unsafe { at.as_ref() } {
                count += 1;
                at = slot.next.load(Ordering::Relaxed);
            }
            count
        };
        drop(files);
        let before = slots();
        let again: Vec<_> = (0..10).map(|_| open()).collect();
        // Another test may take one at the same time.
        assert!(slots() <= before + 1);
        drop(again);
    }
}
