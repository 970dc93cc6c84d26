use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

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

/// The start of a page that each forked child finds cleared, once somebody has asked for it.
///
/// No lock is around it: a thread of the parent may have had that when it forked, and the child would wait for ever.
///
/// 1. It is null, or [`NO_PAGE`], or the start of a page that is never unmapped, and that holds an `AtomicU64`.
struct Page(AtomicPtr<AtomicU64>);

static PAGE: Page = Page(AtomicPtr::new(ptr::null_mut()));

/// In place of a page that the kernel clears, where it cannot.
static NO_PAGE: AtomicU64 = AtomicU64::new(0);

/// The number in the page that each forked child finds cleared. None if the kernel cannot clear it.
fn id_of_this_process() -> Option<&'static AtomicU64> {
    PAGE.get_or_make(cleared_page)
}

impl Page {
    fn get_or_make(
        &'static self,
        make: impl FnOnce() -> Option<*mut AtomicU64>,
    ) -> Option<&'static AtomicU64> {
        let mut id = self.0.load(Ordering::Acquire);
        if id.is_null() {
            id = self.make(make);
        }
        if ptr::eq(id, &NO_PAGE) {
            return None;
        }
        // SAFETY: by invariant 1 it is an `AtomicU64` for ever: it is not null any more.
        Some(unsafe { &*id })
    }

    /// Makes the page, unless another thread is first.
    #[cold]
    fn make(&self, make: impl FnOnce() -> Option<*mut AtomicU64>) -> *mut AtomicU64 {
        let page = make();
        let new = page.unwrap_or_else(|| ptr::from_ref(&NO_PAGE).cast_mut());
        let (release, acquire) = (Ordering::Release, Ordering::Acquire);
        match self
            .0
            .compare_exchange(ptr::null_mut(), new, release, acquire)
        {
            Ok(_) => new,
            Err(first) => {
                if let Some(page) = page {
                    // SAFETY: it is the whole page that `make` has mapped, and nobody else knows it. If the call fails,
                    // the page stays.
                    unsafe { munmap(page.cast(), page_size()) }.ok();
                }
                first
            }
        }
    }
}

/// A page that each forked child finds cleared, with the number of this process in it.
fn cleared_page() -> Option<*mut AtomicU64> {
    let len = page_size();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: no address is given, so the kernel picks a range that is free.
    let page =
        unsafe { mmap_anonymous(ptr::null_mut(), len, protection, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the page was just mapped, and nobody uses it yet. The advice changes only what a forked child finds.
    unsafe { madvise(page, len, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: the page is aligned, readable and writable, and holds zeros, which are an `AtomicU64`. Nobody has another
    // reference to it.
    let id: &AtomicU64 = unsafe { AtomicU64::from_ptr(page.cast()) };
    // A page that is read first takes two faults: one for zeros, and one for a page of its own.
    id.store(LINE.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
    Some(page.cast())
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
    fn a_child_has_an_id_though_a_thread_of_its_parent_was_making_the_page() {
        static PAGE: Page = Page(AtomicPtr::new(ptr::null_mut()));
        let (asks, asked) = std::sync::mpsc::channel();
        let (goes_on, go_on) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let make = || {
                asks.send(()).unwrap();
                go_on.recv().unwrap();
                cleared_page()
            };
            PAGE.get_or_make(make).is_some()
        });
        asked.recv().unwrap();
        assert!(in_child(|| {
            // A child that waits for the thread would wait for ever.
            // SAFETY: it takes a number.
            unsafe { libc::alarm(20) };
            PAGE.get_or_make(cleared_page).is_some()
        }));
        // Here, the thread finds that another one was first.
        let first = PAGE.get_or_make(cleared_page).unwrap();
        goes_on.send(()).unwrap();
        assert!(thread.join().unwrap());
        assert!(ptr::eq(first, PAGE.get_or_make(|| None).unwrap()));
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
