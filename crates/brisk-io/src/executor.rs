/*!
An executor of one thread, which waits for the disk itself.

Whoever runs futures elsewhere has the pool's thread wait for what is not in memory: each read wakes that thread,
and is woken by it. Here reads go to a ring of `io_uring` of the thread that runs the future, which hands over
all that have come together, and sleeps until one of them has ended or a waker calls.
*/

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::hop::{Group, Hop};
use crate::uring::{Alarm, Hops};

/// Runs a future to its end in this thread, which itself waits for what reads of an [`AsyncFile`] do not find in
/// memory: they take less than with another executor, where a thread of their own waits for them.
///
/// Many reads at once are futures that are joined, as by `FuturesUnordered` of the crate `futures`. Where the
/// system refuses `io_uring`, and without the feature `io-uring`, other threads read, and the future sees no
/// difference.
///
/// A read that was begun here goes on while this thread is here. So a future must not hold the thread up until a
/// read has ended, as by another executor that it runs in itself; `block_on` in `block_on` is allowed. Reads that
/// have not ended when the future has, because they were moved elsewhere, are begun again by other threads.
///
/// # Example
///
/// ```
/// use brisk_io::AsyncFile;
///
/// # fn main() -> std::io::Result<()> {
/// let magic = brisk_io::block_on(async {
///     let file = AsyncFile::new(std::fs::File::open("/proc/self/exe")?);
///     let mut magic = [0; 4];
///     file.read_at(0, &mut magic).await?;
///     Ok::<_, std::io::Error>(magic)
/// })?;
/// assert_eq!(&magic, b"\x7fELF");
/// # Ok(())
/// # }
/// ```
///
/// [`AsyncFile`]: crate::AsyncFile
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match OWN.try_with(|own| own.run(future.as_mut())) {
        Ok(output) => output,
        // The thread is ending.
        Err(_) => Own::refused().run(future),
    }
}

/// Takes a read that this thread waits for itself: where it runs a future of [`block_on`].
pub(crate) fn take(hop: &Arc<Hop>) -> bool {
    let taken = OWN.try_with(|own| {
        let open = own.open.get();
        if open {
            own.queue.borrow_mut().push_back(Arc::clone(hop));
        }
        open
    });
    taken.unwrap_or(false)
}

thread_local! {
    static OWN: Own = const { Own::new(Ring::Untried) };
}

/// What a thread reads for itself.
struct Own {
    /// Whether reads that are begun in this thread are put into the queue.
    open: Cell<bool>,
    /// Reads that have to be begun.
    queue: RefCell<VecDeque<Arc<Hop>>>,
    /// Borrowed while it is entered, and not while a future is polled; but what is woken may run one.
    ring: RefCell<Ring>,
}

enum Ring {
    Untried,
    Reads(Box<Hops>),
    /// Others read.
    Refused,
}

impl Own {
    const fn new(ring: Ring) -> Self {
        Self {
            open: Cell::new(false),
            queue: RefCell::new(VecDeque::new()),
            ring: RefCell::new(ring),
        }
    }

    fn refused() -> Self {
        Self::new(Ring::Refused)
    }

    fn run<F: Future>(&self, mut future: Pin<&mut F>) -> F::Output {
        let alarm = self.alarm();
        let _opened = Opened {
            own: self,
            before: self.open.replace(alarm.is_some()),
        };
        let alert = Arc::new(Alert {
            woken: AtomicBool::new(true),
            sleeps: AtomicBool::new(false),
            alarm,
            thread: thread::current(),
        });
        let waker = Waker::from(Arc::clone(&alert));
        let mut context = Context::from_waker(&waker);
        loop {
            if alert.woken.swap(false, SeqCst)
                && let Poll::Ready(output) = future.as_mut().poll(&mut context)
            {
                return output;
            }
            self.turn(&alert);
        }
    }

    /// What rings in this thread's ring. None where there is none, or it is being entered: what is woken by that
    /// runs this future.
    fn alarm(&self) -> Option<Alarm> {
        let mut ring = self.ring.try_borrow_mut().ok()?;
        if let Ring::Untried = *ring {
            *ring = Hops::new().map_or(Ring::Refused, |hops| Ring::Reads(Box::new(hops)));
        }
        match &*ring {
            Ring::Reads(hops) => Some(hops.alarm()),
            Ring::Untried | Ring::Refused => None,
        }
    }

    /// Begins what is in the queue, waits unless the future was woken, and tells who waits for what has ended.
    fn turn(&self, alert: &Alert) {
        let wait = alert.fall_asleep();
        let mut ring = self.ring.try_borrow_mut();
        let Ok(Ring::Reads(hops)) = ring.as_deref_mut() else {
            drop(ring);
            if wait {
                thread::park();
            }
            return alert.wake_up();
        };
        let groups = Group::take_some(&mut self.queue.borrow_mut(), hops.room());
        hops.begin(groups);
        let entered = hops.enter(wait);
        alert.wake_up();
        match entered {
            Ok(()) => hops.finish(),
            Err(_) => {
                drop(ring);
                self.open.set(false);
                self.leave_to_others(Ring::Refused);
            }
        }
    }

    /// Has others begin what has not ended.
    fn leave_to_others(&self, then: Ring) {
        let mut left: Vec<_> = self.queue.take().into();
        if let Ok(mut ring) = self.ring.try_borrow_mut()
            && let Ring::Reads(hops) = std::mem::replace(&mut *ring, then)
        {
            left.extend(hops.give_up().into_iter().flat_map(Group::into_hops));
        }
        left.into_iter().for_each(Hop::start_again);
    }
}

/// A future is run. What it leaves is left to others when the outermost one ends.
struct Opened<'a> {
    own: &'a Own,
    before: bool,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        let ring = self.own.ring.try_borrow();
        let (is_refused, is_idle) = match ring.as_deref() {
            Ok(Ring::Reads(hops)) => (false, hops.is_idle()),
            Ok(Ring::Untried | Ring::Refused) => (true, true),
            // It is entered further out.
            Err(_) => (false, true),
        };
        drop(ring);
        let is_left = !is_idle || !self.own.queue.borrow().is_empty();
        self.own.open.set(self.before && !is_refused);
        if is_left && !self.before {
            self.own.leave_to_others(Ring::Untried);
        }
    }
}

/// Wakes the thread that runs a future.
struct Alert {
    woken: AtomicBool,
    sleeps: AtomicBool,
    /// Where it waits for its ring. Else it is parked.
    alarm: Option<Alarm>,
    thread: Thread,
}

impl Alert {
    /// Whether the thread may wait: what wakes it from here on rings.
    fn fall_asleep(&self) -> bool {
        self.sleeps.store(true, SeqCst);
        !self.woken.load(SeqCst)
    }

    fn wake_up(&self) {
        self.sleeps.store(false, SeqCst);
    }
}

impl Wake for Alert {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, SeqCst);
        if self.sleeps.swap(false, SeqCst) {
            if let Some(alarm) = &self.alarm {
                alarm.ring();
            }
            self.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::os::unix::fs::FileExt;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;
    use std::time::Duration;

    use crate::{AsyncFile, ReadAtFuture, evict};

    fn bytes() -> Vec<u8> {
        (0..3_000_000_u32).map(|n| (n % 251) as u8).collect()
    }

    /// A file whose reads all have to wait.
    fn hopping() -> AsyncFile {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all_at(&bytes(), 0).unwrap();
        evict(&file).unwrap();
        AsyncFile::new(file).always_hop()
    }

    /// What of them has not ended is polled whenever one of them is woken.
    async fn all(reads: Vec<ReadAtFuture<'_>>) {
        let mut reads: Vec<_> = reads.into_iter().map(Box::pin).collect();
        poll_fn(|context| {
            reads.retain_mut(|read| match read.as_mut().poll(context) {
                Poll::Ready(n) => {
                    assert_eq!(n.unwrap(), 100);
                    false
                }
                Poll::Pending => true,
            });
            match reads.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Reads at places that are not near each other, so many at once.
    async fn read_all(file: &AsyncFile, number: usize) {
        let mut bufs = vec![[0; 100]; number];
        let reads = bufs.iter_mut().enumerate();
        let reads = reads.map(|(number, buf)| file.read_at(number as u64 * 20_000, buf));
        all(reads.collect()).await;
        for (number, buf) in bufs.iter().enumerate() {
            assert_eq!(*buf, bytes()[number * 20_000..][..100], "{number}");
        }
    }

    /// Polls once, and tells whether it has ended.
    async fn begin(read: &mut Pin<Box<ReadAtFuture<'_>>>) -> bool {
        poll_fn(|context| Poll::Ready(read.as_mut().poll(context).is_ready())).await
    }

    /// Ends the second time that it is polled.
    async fn once_more() {
        let mut polled = false;
        poll_fn(|context| match std::mem::replace(&mut polled, true) {
            true => Poll::Ready(()),
            false => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
    }

    #[test]
    fn more_reads_than_there_is_room_for_all_end() {
        let file = hopping();
        // Twice: the ring is kept.
        for _ in 0..2 {
            block_on(read_all(&file, 140));
        }
        assert_eq!(file.counts().hopped, 280);
    }

    #[test]
    fn whoever_wakes_it_is_heard() {
        let file = hopping();
        let (sender, receiver) = mpsc::channel::<Waker>();
        let other = thread::spawn(move || {
            for waker in receiver {
                thread::sleep(Duration::from_millis(1));
                waker.wake();
            }
        });
        block_on(async {
            for round in 0..20 {
                let mut sent = false;
                poll_fn(|context| match std::mem::replace(&mut sent, true) {
                    true => Poll::Ready(()),
                    false => {
                        sender.send(context.waker().clone()).unwrap();
                        Poll::Pending
                    }
                })
                .await;
                if round % 3 == 0 {
                    read_all(&file, 1).await;
                }
            }
        });
        drop(sender);
        other.join().unwrap();
    }

    #[test]
    fn a_future_that_never_sleeps_gets_its_reads() {
        let file = hopping();
        let mut buf = [0; 100];
        let rounds = block_on(async {
            let mut read = Box::pin(file.read_at(5, &mut buf));
            let mut rounds = 0;
            while !begin(&mut read).await {
                once_more().await;
                rounds += 1;
            }
            rounds
        });
        assert_eq!(buf, bytes()[5..105]);
        assert!(rounds > 0);
    }

    #[test]
    fn one_may_run_another() {
        let file = hopping();
        let mut buf = [0; 100];
        block_on(async {
            let mut read = Box::pin(file.read_at(9, &mut buf));
            assert!(!begin(&mut read).await);
            // That one ends what was begun out here.
            let n = block_on(async {
                read_all(&file, 3).await;
                read.await
            });
            assert_eq!(n.unwrap(), 100);
            read_all(&file, 3).await;
        });
        assert_eq!(buf, bytes()[9..109]);
    }

    #[test]
    fn what_is_taken_elsewhere_ends_there() {
        let file = hopping();
        let mut bufs = [[0; 100]; 3];
        let places = [7, 500_000, 900_000];
        let mut reads: Vec<_> = bufs
            .iter_mut()
            .zip(places)
            .map(|(buf, at)| Box::pin(file.read_at(at, buf)))
            .collect();
        block_on(async {
            // One is handed to the kernel, one is in the queue, and nobody wants the third.
            assert!(!begin(&mut reads[0]).await);
            once_more().await;
            assert!(!begin(&mut reads[1]).await);
            assert!(!begin(&mut reads[2]).await);
            reads.truncate(2);
        });
        thread::scope(|scope| {
            for read in reads {
                scope.spawn(|| assert_eq!(block_on(read).unwrap(), 100));
            }
        });
        for (buf, at) in bufs[..2].iter().zip(places) {
            assert_eq!(*buf, bytes()[at as usize..][..100]);
        }
    }

    #[test]
    fn a_future_that_panics_takes_nothing_with_it() {
        let file = hopping();
        let mut buf = [0; 100];
        let mut read = Box::pin(file.read_at(11, &mut buf));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            block_on(async {
                assert!(!begin(&mut read).await);
                once_more().await;
                panic!("of a test");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(block_on(read).unwrap(), 100);
        assert_eq!(buf, bytes()[11..111]);
        block_on(read_all(&file, 20));
    }

    #[test]
    fn what_is_woken_may_run_one() {
        struct Runs(Arc<AsyncFile>, mpsc::Sender<()>);

        impl Wake for Runs {
            fn wake(self: Arc<Self>) {
                block_on(read_all(&self.0, 2));
                self.1.send(()).unwrap();
            }
        }

        let file = Arc::new(hopping());
        let (sender, receiver) = mpsc::channel();
        let waker = Waker::from(Arc::new(Runs(Arc::clone(&file), sender)));
        let mut buf = [0; 100];
        block_on(async {
            let mut read = Box::pin(file.read_at(3, &mut buf));
            let polled = read.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            while receiver.try_recv().is_err() {
                read_all(&file, 1).await;
            }
            assert_eq!(read.await.unwrap(), 100);
            read_all(&file, 2).await;
        });
        assert_eq!(buf, bytes()[3..103]);
    }

    #[test]
    fn a_thread_without_a_ring_has_others_read() {
        let own = Own::refused();
        let file = hopping();
        own.run(pin!(read_all(&file, 20)));
        assert_eq!(file.counts().hopped, 20);
    }
}
