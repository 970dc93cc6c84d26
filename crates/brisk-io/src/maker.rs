use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::page_size;

/// The process that made something. A forked child has a copy of what was made, but is not its maker.
///
/// A process id alone cannot tell: a child in another PID namespace can have the id of its parent, and ids are used
/// again. So the id is in a page that the kernel clears in each forked child (`MADV_WIPEONFORK`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Maker(u64);

/// How many processes of this line, each forked from the one before, have asked for their id. A child inherits its
/// parent's number, so its own is higher.
static LINE: AtomicU64 = AtomicU64::new(0);

impl Maker {
    /// The calling process.
    pub(crate) fn this_process() -> Self {
        let Some(id) = id_of_this_process() else {
            // Before Linux 4.14.
            return Self(std::process::id().into());
        };
        match id.load(Ordering::Relaxed) {
            0 => {
                let new = LINE.fetch_add(1, Ordering::Relaxed) + 1;
                let set = id.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
                // Another thread may have been first.
                Self(set.map_or_else(|first| first, |_| new))
            }
            known => Self(known),
        }
    }

    /// Whether the calling process is this one, and not a child that was forked from it.
    pub(crate) fn is_this_process(self) -> bool {
        self == Self::this_process()
    }
}

/// The number in the page that each forked child finds cleared. None if the kernel cannot clear it.
fn id_of_this_process() -> Option<&'static AtomicU64> {
    static ID: OnceLock<Option<&AtomicU64>> = OnceLock::new();
    *ID.get_or_init(|| {
        let len = page_size();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is given, so the kernel picks a range that is free.
        let page =
            unsafe { mmap_anonymous(ptr::null_mut(), len, protection, MapFlags::PRIVATE) }.ok()?;
        // SAFETY: the page was just mapped, and nobody uses it yet. The advice changes only what a forked child finds.
        unsafe { madvise(page, len, Advice::LinuxWipeOnFork) }.ok()?;
        // SAFETY: the page is aligned, readable and writable, and is never unmapped. It holds zeros, in a forked child
        // too, which are an `AtomicU64`. Nobody has another reference to it.
        let id: &AtomicU64 = unsafe { AtomicU64::from_ptr(page.cast()) };
        // A page that is read first takes two faults: one for zeros, and one for a page of its own.
        id.store(LINE.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `child` in a forked child, and returns whether it said yes.
    fn in_child(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child makes system calls and touches atomics, and ends by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                let status = i32::from(!child());
                // SAFETY: it takes a number and does not return.
                unsafe { libc::_exit(status) }
            }
            pid => {
                let mut status = -1;
                // SAFETY: it writes a number to where one is.
                assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
                status == 0
            }
        }
    }

    #[test]
    fn a_forked_child_is_not_its_parent_and_neither_is_its_child() {
        let maker = Maker::this_process();
        assert!(id_of_this_process().is_some(), "this needs Linux 4.14");
        assert!(maker.is_this_process());
        assert!(in_child(|| {
            let of_child = Maker::this_process();
            !maker.is_this_process()
                && of_child.is_this_process()
                && in_child(|| !maker.is_this_process() && !of_child.is_this_process())
        }));
        assert!(maker.is_this_process());
    }
}
