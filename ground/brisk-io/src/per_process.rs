use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::maker::Maker;

/// A value that each process makes for itself: a forked child never sees that of its parent.
///
/// For what a child must not share: locks that a thread of the parent may have held while it forked, and descriptors
/// whose locks belong to parent and child together. The child makes its own value when it first asks. The parent's
/// value stays in the child's memory, unused: nobody can know whether a thread of the parent was just changing it.
pub struct PerProcess<T> {
    /// 1. Null, or the newest of a list of nodes. Each came from `Box::into_raw`, and none is freed or changed before
    ///    `drop`.
    /// 2. At most one node has the maker that is the calling process.
    newest: AtomicPtr<Node<T>>,
}

struct Node<T> {
    maker: Maker,
    value: T,
    older: *mut Node<T>,
}

impl<T> PerProcess<T> {
    /// Without a value: the first to ask makes it.
    pub const fn new() -> Self {
        Self {
            newest: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The value of this process, if it has made one.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        let mut at = self.newest.load(Ordering::Acquire);
        // SAFETY: invariant 1: every node that the list reaches is whole and is not freed while `self` is borrowed.
        while let Some(node) = unsafe { at.as_ref() } {
            if node.maker.is_this_process() {
                return Some(&node.value);
            }
            at = node.older;
        }
        None
    }

    /// The value of this process. If it has none, it becomes the one that `make` returns.
    ///
    /// Two threads may make one at once: then both get the first, and the second is dropped.
    ///
    /// # Errors
    ///
    /// Those of `make`.
    #[inline]
    pub fn get_or_try_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        match self.get() {
            Some(value) => Ok(value),
            None => make().map(|value| self.put(value)),
        }
    }

    #[cold]
    fn put(&self, value: T) -> &T {
        let maker = Maker::this_process();
        let mut node = Box::new(Node {
            maker,
            value,
            older: self.newest.load(Ordering::Acquire),
        });
        loop {
            if let Some(first) = self.get() {
                return first;
            }
            let older = node.older;
            let raw = Box::into_raw(node);
            let (release, acquire) = (Ordering::Release, Ordering::Acquire);
            match self.newest.compare_exchange(older, raw, release, acquire) {
                // SAFETY: `raw` came from `Box::into_raw` just above and is in the list now, so by invariant 1 nobody
                // frees or changes it while `self` is borrowed.
                Ok(_) => return unsafe { &(*raw).value },
                Err(now) => {
                    // SAFETY: `raw` came from `Box::into_raw` just above, and did not get into the list, so nobody
                    // else has it.
                    node = unsafe { Box::from_raw(raw) };
                    node.older = now;
                }
            }
        }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PerProcess").field(&self.get()).finish()
    }
}

impl<T> Drop for PerProcess<T> {
    /// Drops the value of this process. Those of its parents are left alone, and so is their memory.
    fn drop(&mut self) {
        let mut at = *self.newest.get_mut();
        // SAFETY: invariant 1: the list is whole until here. The only node that is freed below is not looked at again.
        while let Some(node) = unsafe { at.as_ref() } {
            let older = node.older;
            if node.maker.is_this_process() {
                // SAFETY: the node came from `Box::into_raw` (invariant 1), `&mut self` says that nobody borrows it,
                // and no other node is this one.
                drop(unsafe { Box::from_raw(at) });
            }
            at = older;
        }
    }
}

// SAFETY: the nodes belong to this value alone, and a value that may go to another thread takes them along.
unsafe impl<T: Send> Send for PerProcess<T> {}
// SAFETY: through `&PerProcess` several threads get `&T`, and each may put in a `T` that another one later drops.
unsafe impl<T: Send + Sync> Sync for PerProcess<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    static DROPPED: AtomicUsize = AtomicUsize::new(0);

    struct Counted(Mutex<u32>);

    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Runs `child` in a forked child, and returns whether it said yes.
    fn in_child(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`.
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
    fn a_forked_child_makes_its_own_and_a_lock_of_its_parent_does_not_stop_it() {
        let cell = PerProcess::new();
        let make = |number| move || Ok::<_, Infallible>(Counted(Mutex::new(number)));
        let Ok(first) = cell.get_or_try_make(make(1));
        let held = first.0.lock().unwrap();
        assert!(in_child(|| {
            assert!(cell.get().is_none());
            let Ok(own) = cell.get_or_try_make(make(2));
            // A child that found its parent's lock would wait for ever.
            own.0.lock().is_ok_and(|number| *number == 2) && cell.get().is_some()
        }));
        drop(held);
        let Ok(again) = cell.get_or_try_make(make(3));
        assert_eq!(*again.0.lock().unwrap(), 1);
        // A child drops what it has made, and nothing else.
        assert!(in_child(|| {
            let Ok(_) = cell.get_or_try_make(make(4));
            drop(cell);
            DROPPED.load(Ordering::SeqCst) == 1
        }));
    }

    #[test]
    fn threads_that_make_it_at_once_get_one() {
        let cell = PerProcess::new();
        let made: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|number| {
                    let cell = &cell;
                    scope.spawn(move || {
                        let Ok(value) =
                            cell.get_or_try_make(|| Ok::<_, Infallible>(Box::new(number)));
                        **value
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(made.iter().all(|&number| number == made[0]), "{made:?}");
    }
}
