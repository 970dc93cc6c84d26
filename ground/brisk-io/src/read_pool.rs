/*!
The threads of the process that do the reads that have to wait for a disk.

If the system allows it, one thread gives all reads to the kernel with `io_uring`. Otherwise, a read that finds all
threads busy starts another thread, up to [`MOST_THREADS`]. A thread ends when it has had nothing to do for [`IDLE`].
*/

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::read_group::ReadGroup;
use crate::uring::{Alarm, RingReads};
use crate::waiting_read::{WaitingRead, wake_all};

/// How many reads a disk gets at once. Disks of servers could do more, but few programs have more to read.
const MOST_THREADS: usize = 64;

const IDLE: Duration = Duration::from_secs(10);

/// Gives the read to a thread.
///
/// # Errors
///
/// If there is no thread and none can be started.
pub(crate) fn submit(read: Arc<WaitingRead>) -> io::Result<()> {
    POOL.submit(read)
}

static POOL: Pool = Pool {
    queue: Mutex::new(Queue {
        reads: VecDeque::new(),
        ring: Ring::Untried,
        threads: 0,
        idle: 0,
    }),
    work: Condvar::new(),
};

struct Pool {
    queue: Mutex<Queue>,
    work: Condvar,
}

struct Queue {
    reads: VecDeque<Arc<WaitingRead>>,
    ring: Ring,
    threads: usize,
    /// Threads that wait for work, or that were woken for some and have not taken it yet.
    idle: usize,
}

/// The thread that reads with `io_uring`.
enum Ring {
    Untried,
    /// It was started. It looks at the queue when the kernel allows it to make a ring.
    Starting,
    /// It reads. If it sleeps, it must be woken to look at the queue.
    Reads {
        alarm: Alarm,
        sleeps: bool,
    },
    /// Threads read instead.
    Refused,
}

impl Pool {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&'static self, read: Arc<WaitingRead>) -> io::Result<()> {
        let mut queue = self.queue();
        queue.reads.push_back(read);
        if let Ring::Untried = queue.ring {
            let name = "brisk-io-ring".to_owned();
            let started = thread::Builder::new().name(name).spawn(|| self.run_ring());
            queue.ring = match started {
                Ok(_) => Ring::Starting,
                Err(_) => Ring::Refused,
            };
        }
        match &mut queue.ring {
            Ring::Untried | Ring::Starting => Ok(()),
            Ring::Reads { alarm, sleeps } => {
                let alarm = std::mem::take(sleeps).then(|| alarm.clone());
                drop(queue);
                if let Some(alarm) = alarm {
                    alarm.ring();
                }
                Ok(())
            }
            Ring::Refused => {
                let started = self.start_thread(&mut queue);
                if started.is_err() {
                    queue.reads.pop_back();
                }
                started
            }
        }
    }

    /// Makes sure that a thread looks at the queue. Starts one more if there are too few.
    ///
    /// # Errors
    ///
    /// If there is none, and none can be started.
    fn start_thread(&'static self, queue: &mut Queue) -> io::Result<()> {
        if queue.reads.len() > queue.idle && queue.threads < MOST_THREADS {
            let started = thread::Builder::new()
                .name("brisk-io".to_owned())
                .spawn(move || self.run());
            match started {
                Ok(_) => queue.threads += 1,
                // The other threads will take the read.
                Err(_) if queue.threads > 0 => {}
                Err(e) => return Err(e),
            }
        }
        self.work.notify_one();
        Ok(())
    }

    /// Reads with `io_uring`, or like the other threads if that is refused.
    fn run_ring(&'static self) {
        let Ok(mut reads) = RingReads::new() else {
            return self.run_without_ring(Vec::new());
        };
        // Without this thread, everybody would wait forever.
        let guard = NeverUnwinds;
        self.queue().ring = Ring::Reads {
            alarm: reads.alarm(),
            sleeps: false,
        };
        loop {
            reads.begin(self.take(reads.room()));
            if reads.enter().is_err() {
                break;
            }
            wake_all(reads.finish());
        }
        std::mem::forget(guard);
        self.run_without_ring(reads.give_up());
    }

    /// What the thread with `io_uring` reads next: at most `room` groups.
    fn take(&self, room: usize) -> Vec<ReadGroup> {
        let mut queue = self.queue();
        let groups = ReadGroup::take_some(&mut queue.reads, room);
        let all = queue.reads.is_empty();
        if let Ring::Reads { sleeps, .. } = &mut queue.ring {
            // If the queue still has reads for which there is no room, it looks again when others complete.
            *sleeps = all;
        }
        groups
    }

    /// Reads like the other threads, which also read from here on. `left` was taken from the queue but not
    /// read.
    fn run_without_ring(&'static self, left: Vec<ReadGroup>) {
        let mut queue = self.queue();
        queue.ring = Ring::Refused;
        queue
            .reads
            .extend(left.into_iter().flat_map(ReadGroup::into_reads));
        // Starts threads for what has arrived meanwhile, as if it arrived now.
        queue.threads += 1;
        for _ in 1..queue.reads.len() {
            // This thread is one already, so an error does no harm.
            self.start_thread(&mut queue).ok();
        }
        drop(queue);
        self.run();
    }

    fn run(&self) {
        let mut queue = self.queue();
        loop {
            if let Some(group) = ReadGroup::take(&mut queue.reads) {
                drop(queue);
                group.read();
                queue = self.queue();
                continue;
            }
            queue.idle += 1;
            let (woken, waited) = self
                .work
                .wait_timeout(queue, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if waited.timed_out() && queue.reads.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}

/// Ends the process if a thread unwinds.
struct NeverUnwinds;

impl Drop for NeverUnwinds {
    fn drop(&mut self) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_for_each() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let written = std::fs::File::options()
            .write(true)
            .open(path.path())
            .unwrap();
        let written = Arc::new(written);
        let reads = [0, 50, 1 << 20].map(|offset| WaitingRead::new(&written, offset, 10));
        for read in &reads {
            submit(Arc::clone(read)).unwrap();
        }
        for read in reads {
            let result = loop {
                match read.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(result) => break result,
                    Poll::Pending => thread::yield_now(),
                }
            };
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
    }
}
