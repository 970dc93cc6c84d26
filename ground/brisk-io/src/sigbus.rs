/*!
Handles pages of a mapped file that cannot be read.

The kernel raises SIGBUS if the file was truncated before the page, or if its disk or the server of its filesystem failed.
The guard puts a page of zeros there and marks the mapping as torn. A copying read looks at the mark *after* the copy, and
returns an error instead of zeros. Faults anywhere else go to the handler that was installed before: that of a virtual
machine, or the default, which ends the process.
*/

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::page_size;

/// The addresses of one mapping, in a list that the handler reads.
///
/// 1. Slots are never freed, and `next` does not change once a slot can be reached from [`FIRST`].
/// 2. `generation` is odd while `start`, `end` and `writable` change. A reader that finds the same even number before and
///    after has read the values of one mapping.
/// 3. Only the thread that took a slot from [`FREE`], or made it, changes it, until it is back in `FREE`. It may never come
///    back.
/// 4. In a writable mapping, only the thread whose id is in `busy` replaces a page: see [`Slot::alone`].
#[derive(Debug, Default)]
struct Slot {
    generation: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    writable: AtomicBool,
    torn: AtomicBool,
    /// The id of the thread whose handler is putting a page into this mapping. 0 if there is none.
    busy: AtomicI32,
    next: AtomicPtr<Slot>,
}

/// How often a handler checks whether another one has finished its two system calls, before it lets other threads run
/// and checks that the other thread exists. And how often a thread asks for the free slots before it does without.
const SPINS: u32 = 1 << 10;

static FIRST: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
static FREE: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());

impl Slot {
    fn set(&self, start: usize, end: usize, writable: bool) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.writable.store(writable, Ordering::Relaxed);
        self.torn.store(false, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// None if `address` is not in this mapping. Otherwise whether the mapping is writable.
    fn covers(&self, address: usize) -> Option<bool> {
        let before = self.generation.load(Ordering::Acquire);
        let range = self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        let writable = self.writable.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let same = before.is_multiple_of(2) && self.generation.load(Ordering::Relaxed) == before;
        (same && range.contains(&address)).then_some(writable)
    }

    /// Runs `cure` in one handler of this process at a time, however long another one takes.
    ///
    /// Two at once would lose data: the second puts zeros over a page that the first has put there, and that the
    /// program has written to since. Waiting always ends:
    ///
    /// * A handler of another signal could interrupt `cure` in its own thread, fault too, and wait for itself. So all
    ///   signals are blocked meanwhile. `cure` touches no mapping, so it cannot fault.
    /// * A thread that was forked away leaves its id behind in the child, where nobody has it. So the id of a thread
    ///   that this process does not have counts for nothing.
    fn alone(&self, cure: impl FnOnce() -> bool) -> bool {
        let _blocked = BlockedSignals::all();
        // SAFETY: the call takes nothing and gives a number.
        let own = unsafe { libc::gettid() };
        let mut spins = 0;
        while let Err(other) =
            self.busy
                .compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed)
        {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            spins = 0;
            // This thread has no other handler under way, so its own id is that of a namesake, which another PID
            // namespace had.
            let gone = other == own || !is_thread_of_this_process(other);
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            // Only one of those who find it gone takes its place.
            if gone
                && self
                    .busy
                    .compare_exchange(other, own, acquire, relaxed)
                    .is_ok()
            {
                break;
            }
            // SAFETY: the call takes nothing.
            unsafe { libc::sched_yield() };
        }
        let cured = cure();
        self.busy.store(0, Ordering::Release);
        cured
    }
}

/// Whether a thread of this process has this id.
fn is_thread_of_this_process(id: i32) -> bool {
    // SAFETY: the call takes nothing and gives a number.
    let process = unsafe { libc::getpid() };
    // SAFETY: the call takes three numbers. Signal 0 is not sent: the kernel only looks for the thread.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, process, id, 0) };
    // If a filter refuses the call, nobody knows, and the thread is waited for.
    found == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// While this lives, no handler of a signal interrupts the calling thread.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn all() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: it writes a whole set to where one has room.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: the call above has written it, and all bytes were zero before, which is valid too.
        let all = unsafe { all.assume_init() };
        let mut before = all;
        // SAFETY: it reads one set and writes the other. Both live through the call.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before) };
        Self { before }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        let nothing = ptr::null_mut();
        // SAFETY: it reads a whole set, which lives through the call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, nothing) };
    }
}

/// Keeps a mapping under the guard as long as this lives.
#[derive(Debug)]
pub(crate) struct Watch(&'static Slot);

impl Watch {
    /// Guards `len` mapped bytes at `start`.
    pub(crate) fn new(start: usize, len: usize, writable: bool) -> Self {
        if let Some(slot) = free_slots().and_then(|mut free| free.pop()) {
            slot.set(start, start + len, writable);
            return Self(slot);
        }
        let slot: &'static Slot = Box::leak(Box::default());
        slot.set(start, start + len, writable);
        let mut first = FIRST.load(Ordering::Relaxed);
        loop {
            slot.next.store(first, Ordering::Relaxed);
            let this = ptr::from_ref(slot).cast_mut();
            match FIRST.compare_exchange_weak(first, this, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Self(slot),
                Err(now) => first = now,
            }
        }
    }

    /// Whether a touched page of the mapping could not be read so far.
    #[inline]
    pub(crate) fn is_torn(&self) -> bool {
        // Copies before this call happen before the mark is read.
        fence(Ordering::Acquire);
        self.0.torn.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.set(0, 0, false);
        // Otherwise nobody uses the slot again.
        if let Some(mut free) = free_slots() {
            free.push(self.0);
        }
    }
}

/// The slots that can be used again. None if another thread has them for long.
///
/// Nobody waits for them: a thread of the parent may have had them when it forked, and in the child they are taken for
/// ever.
fn free_slots() -> Option<MutexGuard<'static, Vec<&'static Slot>>> {
    for _ in 0..SPINS {
        match FREE.try_lock() {
            Ok(free) => return Some(free),
            Err(TryLockError::Poisoned(e)) => return Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
        }
    }
    None
}

/// The handler that was installed before ours. Null, or never freed and never changed.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Makes an unreadable page an error, where it would end the process: in every [`Mapping`] and in everything
/// that was [loaded](crate::Loaded), for the rest of the process's life.
///
/// It also covers mappings that were made before. Calling it again does nothing.
///
/// # What it does not do
///
/// * A borrowed slice reads zeros where a page is missing; [`Mapping::check`](crate::Mapping::check) says so
///   afterwards.
/// * A system call that gets a slice with such a page fails with `EFAULT`.
/// * A handler of SIGBUS that is installed later has to call this one for faults that are not its own.
/// * SIGBUS ends the process if the thread that faults blocks the signal.
/// * Each missing page that a borrowed slice touches costs one or two mappings until the file's mapping is
///   dropped. A process may have 65,530 (`vm.max_map_count`); at the next one the kernel ends it. Copying
///   reads stop at the first missing page.
///
/// # Errors
///
/// Those of `sigaction`. None is known to happen.
///
/// [`Mapping`]: crate::Mapping
pub fn guard_mappings() -> io::Result<()> {
    // No lock, which a thread of the parent may have had when it forked. Two threads that come here at once install the
    // same handler, one after the other.
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action given, `sigaction` only writes the present one, to memory of its size.
    let answer = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has written it, and all bytes were zero before, which is valid too.
    let before = unsafe { before.assume_init() };
    let handler = on_sigbus as *const () as usize;
    if before.sa_sigaction != handler {
        // Our handler may be called at once, and must know which one to call next.
        let this = Box::into_raw(Box::new(before));
        let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
        if BEFORE
            .compare_exchange(ptr::null_mut(), this, release, relaxed)
            .is_err()
        {
            // SAFETY: it came from `Box::into_raw` just above, and did not get into `BEFORE`, so nobody else has it.
            drop(unsafe { Box::from_raw(this) });
        }
    }
    let mut ours = before;
    ours.sa_sigaction = handler;
    // On a thread without an alternative stack, the handler runs on the thread's own stack.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `ours` is a whole action: the one that was there, with a handler of the type that
    // SA_SIGINFO asks for. The handler only makes calls that a signal allows.
    let answer = unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// Async-signal-safe: it touches atomics and makes system calls that keep no state in the C library.
extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a pointer to a whole `siginfo_t`.
    let info_there = unsafe { &*info };
    // Only BUS_ADRERR and BUS_MCEERR_AR say that this thread touched a missing page. A signal from `kill` has no address,
    // BUS_MCEERR_AO warns of bad memory that another thread may touch, and no page cures an unaligned address.
    let missing = [libc::BUS_ADRERR, libc::BUS_OBJERR, libc::BUS_MCEERR_AR];
    if missing.contains(&info_there.si_code) {
        // SAFETY: of a SIGBUS with one of these codes, which the kernel itself raises, `si_addr` is set.
        let address = unsafe { info_there.si_addr() }.addr();
        // SAFETY: it is where the C library keeps this thread's number of the last error.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: `errno` points to this thread's number for as long as the thread lives. Only this thread accesses
        // it, and the code that this handler has interrupted goes on after it.
        let before = unsafe { *errno };
        let cured = put_zeros(address);
        // SAFETY: `errno` still points to this thread's number, which only this thread accesses. What was interrupted
        // finds there what it has left.
        unsafe { *errno = before };
        if cured {
            return;
        }
    }
    chain(signal, info, context);
}

/// If `address` is in one of our mappings, marks the mapping as torn and puts a page of zeros there.
fn put_zeros(address: usize) -> bool {
    let mut slot = FIRST.load(Ordering::Acquire);
    // SAFETY: invariant 1: what `FIRST` and `next` point to is never freed.
    while let Some(known) = unsafe { slot.as_ref() } {
        if let Some(writable) = known.covers(address) {
            // The mark is set before anybody can read the zeros.
            known.torn.store(true, Ordering::SeqCst);
            return match writable {
                true => known.alone(|| is_there(address) || put_page(address, writable)),
                false => put_page(address, writable),
            };
        }
        slot = known.next.load(Ordering::Relaxed);
    }
    false
}

/// Whether the page at `address` can be read now. Before Linux 5.14 the kernel does not say.
///
/// Another thread may have faulted on the page too, got the page of zeros, and written to it.
fn is_there(address: usize) -> bool {
    let page = page_size();
    let start = (address & !(page - 1)) as *mut c_void;
    // SAFETY: populating changes neither contents nor protection of what is mapped there.
    unsafe { libc::madvise(start, page, libc::MADV_POPULATE_READ) == 0 }
}

/// Puts a page of zeros at `address`, where this thread has faulted in a mapping of this crate.
fn put_page(address: usize, writable: bool) -> bool {
    let page = page_size();
    let mut protection = libc::PROT_READ;
    if writable {
        protection |= libc::PROT_WRITE;
    }
    // SAFETY: MAP_FIXED replaces what is mapped there: a page of a mapping of this crate (invariant 2). It cannot
    // be unmapped meanwhile, because the thread that has faulted borrows it. That memory stays readable, and
    // writable if it was. The contents of an unreadable page are lost already. A page that is only read may be
    // replaced twice, by the same zeros.
    let mapped = unsafe {
        libc::mmap(
            (address & !(page - 1)) as *mut c_void,
            page,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}

/// Does what would have happened without the guard.
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what `BEFORE` points to is whole, and is never freed or changed.
    let Some(before) = (unsafe { BEFORE.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    // SAFETY: the kernel gives a handler with SA_SIGINFO a pointer to a whole `siginfo_t`.
    let was_sent = unsafe { (*info).si_code } <= 0;
    match before.sa_sigaction {
        libc::SIG_IGN if was_sent => {}
        // The kernel never ignores a real fault.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all zero is a whole action: the default, without flags.
            let default = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
            // SAFETY: `default` lives through the call. The instruction that faulted does so again as
            // the handler returns, and ends the process.
            unsafe { libc::sigaction(signal, &raw const default, ptr::null_mut()) };
            // SAFETY: `raise` takes no pointers. It is for a signal that somebody sent.
            unsafe { libc::raise(signal) };
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: it was installed with SA_SIGINFO, so it is a function of this type.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            type Handler = extern "C" fn(libc::c_int);
            // SAFETY: it was installed without SA_SIGINFO, so it is a function of this type.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_page_is_put_by_one_handler_at_a_time_however_long_it_takes() {
        let slot: &'static Slot = Box::leak(Box::default());
        let inside: &'static AtomicBool = Box::leak(Box::default());
        let (began, begun) = channel();
        let long = move || {
            slot.alone(|| {
                inside.store(true, Ordering::SeqCst);
                began.send(()).expect("somebody waits");
                thread::sleep(Duration::from_millis(1500));
                inside.store(false, Ordering::SeqCst);
                true
            })
        };
        let first = thread::spawn(long);
        begun.recv().expect("it begins");
        assert!(slot.alone(|| !inside.load(Ordering::SeqCst)));
        assert!(first.join().expect("no panic"));
        assert_eq!(slot.busy.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_child_maps_though_a_thread_of_its_parent_had_the_free_slots() {
        let free = FREE.lock().expect("nobody panics with it");
        // SAFETY: the child allocates, which the C library allows it, and ends by `_exit` or by the signal.
        let child = match unsafe { libc::fork() } {
            0 => {
                // It would wait for ever.
                // SAFETY: it takes a number.
                unsafe { libc::alarm(20) };
                let watch = Watch::new(1 << 40, 4096, false);
                drop(watch);
                // SAFETY: it takes a number and does not return.
                unsafe { libc::_exit(0) }
            }
            child => child,
        };
        drop(free);
        let mut status = -1;
        // SAFETY: it writes a number to where one is.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn a_handler_that_was_forked_away_is_not_waited_for() {
        let slot = Slot::default();
        // Ids of threads are at most 2^22.
        slot.busy.store(1 << 30, Ordering::SeqCst);
        assert!(slot.alone(|| true));
        assert_eq!(slot.busy.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn no_signal_interrupts_a_handler_that_puts_a_page() {
        let blocked = || {
            let mut now = MaybeUninit::<libc::sigset_t>::zeroed();
            // SAFETY: without a new set, it only writes the present one, to memory of its size.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), now.as_mut_ptr()) };
            // SAFETY: the set was written, and USR1 is a signal.
            unsafe { libc::sigismember(now.as_ptr(), libc::SIGUSR1) == 1 }
        };
        assert!(!blocked());
        assert!(Slot::default().alone(blocked));
        assert!(!blocked());
    }
}
