/*!
An executor for one thread that waits for the disk itself.

Under another executor, a thread of the pool waits for data that is not in memory: each read wakes that thread, which
wakes the executor. Here the thread that runs the future has its own `io_uring`. It gives the kernel all reads that have
collected, and sleeps until one of them completes or a waker calls.
*/

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::read_group::ReadGroup;
use crate::read_pool::{submit, submit_again};
use crate::uring::{Alarm, RingReads};
use crate::waiting_read::{WaitingRead, wake_all};

/// Runs a future to its end in this thread, and waits here for reads of an [`AsyncFile`] that are not in
/// memory.
///
/// Such a read costs less than under another executor, where a second thread waits for it. This needs the
/// feature `io-uring` and a system that lets the process use it. Otherwise other threads read, and the future
/// sees no difference.
///
/// For many reads at once, join futures, for example with `FuturesUnordered` of the crate `futures`.
///
/// # What it does not do
///
/// * Read while the future holds the thread. It gives reads to the kernel, and notices their completion, when
///   the future is pending. So the future must not block until a read completes that it started here: not by
///   another executor that it runs inside, and not by joining a thread that waits for that read. A `block_on`
///   inside a `block_on` is allowed.
/// * Wait for reads that the future leaves behind. When the outermost `block_on` ends, other threads start a
///   read again if something still waits for it. The files of other reads stay open until the kernel is done
///   and this thread runs another future or ends.
/// * Close its two descriptors (of the ring and of its alarm) before the thread ends.
/// * Go on in a forked child with a future that ran when the process was forked. New futures in the child get
///   a new ring.
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
    if OWN.try_with(|_| ()).is_err() {
        // The thread is ending.
        return Own::refused().run(future);
    }
    OWN.with(|own| own.run(future))
}

/// Starts a read: in this thread, if it runs a future of [`block_on`], or else in another one.
///
/// # Errors
///
/// If there is no other thread and none can be started.
pub(crate) fn start(read: &Arc<WaitingRead>) -> io::Result<()> {
    match take(read) {
        true => Ok(()),
        false => submit(Arc::clone(read)),
    }
}

/// Takes the read if this thread runs a future of [`block_on`] and so can wait for it.
fn take(read: &Arc<WaitingRead>) -> bool {
    let taken = OWN.try_with(|own| {
        let takes = own.futures.get() > 0 && !matches!(*own.ring.borrow(), Ring::Refused);
        if takes {
            own.queue.borrow_mut().push_back(Arc::clone(read));
        }
        takes
    });
    taken.unwrap_or(false)
}

thread_local! {
    static OWN: Own = const { Own::new(Ring::Untried) };
}

/// The reads of this thread. Nothing of this is borrowed while a future is polled or a task is woken.
struct Own {
    /// How many futures run, one inside of the other.
    futures: Cell<usize>,
    /// Reads that must be started.
    queue: RefCell<VecDeque<Arc<WaitingRead>>>,
    ring: RefCell<Ring>,
}

enum Ring {
    /// The ring is made for the first read.
    Untried,
    Reads(Box<RingReads>),
    /// Other threads read.
    Refused,
}

impl Own {
    const fn new(ring: Ring) -> Self {
        Self {
            futures: Cell::new(0),
            queue: RefCell::new(VecDeque::new()),
            ring: RefCell::new(ring),
        }
    }

    fn refused() -> Self {
        Self::new(Ring::Refused)
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        self.forget_of_parent();
        self.futures.set(self.futures.get() + 1);
        let _running = Running(self);
        // Dropped before the reads that it leaves are looked at.
        let mut future = pin!(future);
        let alert = Arc::new(Alert {
            woken: AtomicBool::new(true),
            sleeps: AtomicBool::new(false),
            alarm: OnceLock::new(),
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
            if let Err(e) = self.turn(&alert) {
                self.leave_to_others(&e);
            }
        }
    }

    /// A forked child has the parent's ring, but not its memory.
    fn forget_of_parent(&self) {
        let mut ring = self.ring.borrow_mut();
        if let Ring::Reads(reads) = &*ring
            && !reads.is_own()
        {
            // Its alarm and files have numbers that may belong to other files here.
            std::mem::forget(std::mem::replace(&mut *ring, Ring::Untried));
        }
    }

    /// Starts the reads in the queue, waits unless the future was woken, and wakes the tasks whose reads have
    /// completed.
    ///
    /// # Errors
    ///
    /// If no ring can be made, or the kernel accepts nothing any more.
    fn turn(&self, alert: &Alert) -> io::Result<()> {
        let mut ring = self.ring.borrow_mut();
        let mut queue = self.queue.borrow_mut();
        if let Ring::Untried = *ring
            && !queue.is_empty()
        {
            *ring = Ring::Reads(Box::new(RingReads::new()?));
        }
        let Ring::Reads(reads) = &mut *ring else {
            drop((ring, queue));
            if alert.fall_asleep() {
                thread::park();
            }
            alert.wake_up();
            return Ok(());
        };
        alert.alarm.get_or_init(|| reads.alarm());
        let groups = ReadGroup::take_some(&mut queue, reads.room());
        reads.begin(groups);
        let entered = reads.enter(alert.fall_asleep());
        alert.wake_up();
        entered?;
        let woken = reads.finish();
        drop((ring, queue));
        wake_all(woken);
        Ok(())
    }

    /// Leaves unfinished reads to other threads, because there is no ring, or it reads no more.
    fn leave_to_others(&self, e: &io::Error) {
        let mut left: Vec<_> = self.queue.take().into();
        let mut ring = self.ring.borrow_mut();
        // There may be enough descriptors or memory later.
        let then = match (&*ring, e.kind()) {
            (Ring::Untried, kind) if kind != io::ErrorKind::Unsupported => Ring::Untried,
            _ => Ring::Refused,
        };
        if let Ring::Reads(reads) = std::mem::replace(&mut *ring, then) {
            left.extend(reads.give_up().into_iter().flat_map(ReadGroup::into_reads));
        }
        drop(ring);
        left.into_iter().for_each(submit_again);
    }
}

/// While this lives, a future runs.
struct Running<'a>(&'a Own);

impl Drop for Running<'_> {
    /// Other threads do the reads that the outermost future leaves.
    fn drop(&mut self) {
        let Self(own) = self;
        own.futures.set(own.futures.get() - 1);
        if own.futures.get() > 0 {
            return;
        }
        let mut left: Vec<_> = own.queue.take().into();
        if let Ring::Reads(reads) = &mut *own.ring.borrow_mut() {
            left.extend(reads.leave());
        }
        left.into_iter().for_each(submit_again);
    }
}

/// Wakes the thread that runs a future.
struct Alert {
    woken: AtomicBool,
    sleeps: AtomicBool,
    /// Rings where the thread waits for its ring. Without it, the thread is parked.
    alarm: OnceLock<Alarm>,
    thread: Thread,
}

impl Alert {
    /// Whether the thread may wait. From here on, a wake-up rings the alarm.
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
            if let Some(alarm) = self.alarm.get() {
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
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::time::Duration;

    use crate::{AsyncFile, ReadAtFuture, evict};

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::from_iter(0..251).repeat(12_000);
        bytes.truncate(3_000_000);
        bytes
    }

    /// A file whose reads all have to wait.
    fn waiting_file() -> AsyncFile {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all_at(&bytes(), 0).unwrap();
        evict(&file).unwrap();
        AsyncFile::new(file).always_wait()
    }

    /// Whether this thread reads for itself. If others do, a read may have completed at any time.
    fn has_ring() -> bool {
        // Without the feature there is nothing to test.
        cfg!(feature = "io-uring") && crate::machine::has("io_uring", RingReads::new().map(drop))
    }

    /// Every read that has not completed is polled whenever one of them is woken.
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

    /// Starts many reads at once, at places that are not near each other.
    async fn read_all(file: &AsyncFile, number: usize) {
        let mut bufs = vec![[0; 100]; number];
        let reads = bufs.iter_mut().enumerate();
        let reads = reads.map(|(number, buf)| file.read_at(number as u64 * 20_000, buf));
        all(reads.collect()).await;
        for (number, buf) in bufs.iter().enumerate() {
            assert_eq!(*buf, bytes()[number * 20_000..][..100], "{number}");
        }
    }

    /// Polls once, and returns whether it has completed.
    async fn begin(read: &mut Pin<Box<ReadAtFuture<'_>>>) -> bool {
        poll_fn(|context| Poll::Ready(read.as_mut().poll(context).is_ready())).await
    }

    /// Completes when it is polled for the second time.
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
        let file = waiting_file();
        // Twice, because the ring is kept.
        for _ in 0..2 {
            block_on(read_all(&file, 140));
        }
        assert_eq!(file.counts().waited, 280);
    }

    #[test]
    fn whoever_wakes_it_is_heard() {
        let file = waiting_file();
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
        if !has_ring() {
            return;
        }
        let file = waiting_file();
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
        if !has_ring() {
            return;
        }
        let file = waiting_file();
        let mut buf = [0; 100];
        block_on(async {
            let mut read = Box::pin(file.read_at(9, &mut buf));
            assert!(!begin(&mut read).await);
            // The inner one completes what was started outside.
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
        if !has_ring() {
            return;
        }
        let file = waiting_file();
        let mut bufs = [[0; 100]; 3];
        let places = [7, 500_000, 900_000];
        let mut reads: Vec<_> = bufs
            .iter_mut()
            .zip(places)
            .map(|(buf, at)| Box::pin(file.read_at(at, buf)))
            .collect();
        block_on(async {
            // One read is in the kernel, one is in the queue, and nobody wants the third.
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
        if !has_ring() {
            return;
        }
        let file = waiting_file();
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
                // It is one of the reads of the outer future.
                let mut buf = [0; 100];
                let mut read = Box::pin(self.0.read_at(40, &mut buf));
                let mut context = Context::from_waker(Waker::noop());
                assert!(read.as_mut().poll(&mut context).is_pending());
                assert_eq!(block_on(read).unwrap(), 100);
                assert_eq!(buf, bytes()[40..140]);
                block_on(read_all(&self.0, 2));
                self.1.send(()).unwrap();
            }
        }

        if !has_ring() {
            return;
        }
        let file = Arc::new(waiting_file());
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

    /// Reads that nobody wants any more must not take memory forever.
    #[test]
    fn a_future_that_leaves_reads_keeps_the_ring() {
        if !has_ring() {
            return;
        }
        let file = waiting_file();
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        block_on(read_all(&file, 1));
        let before = descriptors();
        for _ in 0..200 {
            let mut buf = [0; 100];
            block_on(async {
                let mut read = Box::pin(file.read_at(700, &mut buf));
                begin(&mut read).await;
                once_more().await;
            });
        }
        // Other tests run at the same time.
        assert!(descriptors() < before + 100);
        OWN.with(|own| assert!(matches!(*own.ring.borrow(), Ring::Reads(_))));
        block_on(read_all(&file, 100));
    }

    #[test]
    fn a_future_that_reads_nothing_needs_no_ring() {
        block_on(once_more());
        OWN.with(|own| assert!(matches!(*own.ring.borrow(), Ring::Untried)));
    }

    #[test]
    fn a_thread_without_a_ring_has_others_read() {
        let own = Own::refused();
        let file = waiting_file();
        own.run(read_all(&file, 20));
        assert_eq!(file.counts().waited, 20);
    }
}
