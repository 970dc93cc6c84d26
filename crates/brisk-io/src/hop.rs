/*!
Reads that have to wait for a disk, done by threads that may.

There is one pool in a process. A thread is started when a read waits and all threads are busy, up to
[`MOST_THREADS`], and ends when it had nothing to do for [`IDLE`]. Reads that wait in the queue and are near
each other in the same file are done as one.
*/

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::ReadAt;

/// Reads that a disk is given at once. Those of servers take more, and few programs have more to give.
const MOST_THREADS: usize = 64;

const IDLE: Duration = Duration::from_secs(10);

/// Bytes between two waiting reads that are read along: less than a disk's operation costs.
const GAP: u64 = 16 << 10;

/// Bytes of one read; what is longer is done one after the other.
pub(crate) const LARGEST: usize = 1 << 20;

/// A read that somebody waits for.
#[derive(Debug)]
pub(crate) struct Hop {
    file: Arc<File>,
    bytes: Range<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Waiting(Option<Waker>),
    Done(io::Result<Vec<u8>>),
    /// Nobody wants it any more, or it was taken.
    Over,
}

impl Hop {
    /// Has a thread read `len` bytes, at most [`LARGEST`], at `offset`: fewer only where the file ends.
    ///
    /// # Errors
    ///
    /// If no thread can be started and none is there.
    pub(crate) fn start(file: &Arc<File>, offset: u64, len: usize) -> io::Result<Arc<Self>> {
        let len = len.min(LARGEST) as u64;
        let hop = Arc::new(Self {
            file: Arc::clone(file),
            bytes: offset..offset.saturating_add(len),
            state: Mutex::new(State::Waiting(None)),
        });
        POOL.submit(Arc::clone(&hop))?;
        Ok(hop)
    }

    /// What was read, once.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let mut state = self.state();
        match &mut *state {
            State::Waiting(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            State::Done(_) | State::Over => match std::mem::replace(&mut *state, State::Over) {
                State::Done(result) => Poll::Ready(result),
                State::Waiting(_) | State::Over => Poll::Pending,
            },
        }
    }

    /// Nobody waits for it any more. If it was not begun, it never is.
    pub(crate) fn cancel(&self) {
        *self.state() = State::Over;
    }

    fn is_wanted(&self) -> bool {
        matches!(*self.state(), State::Waiting(_))
    }

    fn finish(&self, result: io::Result<Vec<u8>>) {
        let mut state = self.state();
        if let State::Waiting(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Done(result);
            drop(state);
            // It may run what asked at once. Whatever happens there, others wait for this thread.
            if let Some(waker) = waker {
                catch_unwind(AssertUnwindSafe(|| waker.wake())).ok();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static POOL: Pool = Pool {
    queue: Mutex::new(Queue {
        hops: VecDeque::new(),
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
    hops: VecDeque<Arc<Hop>>,
    threads: usize,
    /// Threads that wait for work, or were woken for some and have not taken it yet.
    idle: usize,
}

impl Pool {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&'static self, hop: Arc<Hop>) -> io::Result<()> {
        let mut queue = self.queue();
        queue.hops.push_back(hop);
        if queue.hops.len() > queue.idle && queue.threads < MOST_THREADS {
            let started = thread::Builder::new()
                .name("brisk-io".to_owned())
                .spawn(move || self.run());
            match started {
                Ok(_) => queue.threads += 1,
                // The others come to it.
                Err(_) if queue.threads > 0 => {}
                Err(e) => {
                    queue.hops.pop_back();
                    return Err(e);
                }
            }
        }
        self.work.notify_one();
        Ok(())
    }

    fn run(&self) {
        let mut queue = self.queue();
        loop {
            let together = take_together(&mut queue.hops);
            if !together.is_empty() {
                drop(queue);
                read_together(&together);
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
            if waited.timed_out() && queue.hops.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}

/// Takes the first read that somebody wants, and all that are near it.
fn take_together(hops: &mut VecDeque<Arc<Hop>>) -> Vec<Arc<Hop>> {
    let first = loop {
        match hops.pop_front() {
            None => return Vec::new(),
            Some(hop) if hop.is_wanted() => break hop,
            Some(_) => {}
        }
    };
    let mut all = first.bytes.clone();
    let mut together = vec![first];
    // What joins may bring others near.
    loop {
        let near = hops.iter().position(|hop| {
            let joined = all.start.min(hop.bytes.start)..all.end.max(hop.bytes.end);
            Arc::ptr_eq(&hop.file, &together[0].file)
                && hop.bytes.start <= all.end.saturating_add(GAP)
                && all.start <= hop.bytes.end.saturating_add(GAP)
                && joined.end - joined.start <= LARGEST as u64
        });
        let Some(hop) = near.and_then(|number| hops.remove(number)) else {
            return together;
        };
        if hop.is_wanted() {
            all = all.start.min(hop.bytes.start)..all.end.max(hop.bytes.end);
            together.push(hop);
        }
    }
}

fn read_together(hops: &[Arc<Hop>]) {
    if let [hop] = hops {
        hop.finish(read(&hop.file, &hop.bytes));
        return;
    }
    let start = hops.iter().map(|hop| hop.bytes.start).min().unwrap_or(0);
    let end = hops.iter().map(|hop| hop.bytes.end).max().unwrap_or(0);
    match read(&hops[0].file, &(start..end)) {
        Ok(all) => {
            for hop in hops {
                let at = |place: u64| {
                    usize::try_from(place - start)
                        .unwrap_or(usize::MAX)
                        .min(all.len())
                };
                let part = &all[at(hop.bytes.start)..at(hop.bytes.end)];
                hop.finish(Ok(part.to_vec()));
            }
        }
        // One of them may be at fault, and the others not.
        Err(_) => {
            for hop in hops {
                hop.finish(read(&hop.file, &hop.bytes));
            }
        }
    }
}

/// The bytes; fewer where the file ends.
fn read(file: &File, bytes: &Range<u64>) -> io::Result<Vec<u8>> {
    let len = usize::try_from(bytes.end - bytes.start).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut buf = vec![0; len];
    let mut done = 0;
    while done < len {
        match ReadAt::read_at(file, bytes.start + done as u64, &mut buf[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    buf.truncate(done);
    Ok(buf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn hop(file: &Arc<File>, bytes: Range<u64>) -> Arc<Hop> {
        Arc::new(Hop {
            file: Arc::clone(file),
            bytes,
            state: Mutex::new(State::Waiting(None)),
        })
    }

    fn taken(hop: &Hop) -> Vec<u8> {
        match hop.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.unwrap(),
            Poll::Pending => panic!("it was not read"),
        }
    }

    #[test]
    fn reads_that_are_near_are_done_as_one() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let other = Arc::new(tempfile::tempfile().unwrap());
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        let near = [0..10, 30_000..30_010, 15_000..15_010, 99_990..100_100];
        let near = near.map(|bytes| hop(&file, bytes));
        let foreign = hop(&other, 5..6);
        let gone = hop(&file, 10..20);
        gone.cancel();
        let [first, second, third, far] = near.clone();
        let mut queue = VecDeque::from([first, foreign, second, gone, third, far]);
        // 30000 is near only when 15000 has joined, and 99990 never is.
        let together = take_together(&mut queue);
        assert_eq!(together.len(), 3);
        read_together(&together);
        assert_eq!(taken(&near[0]), bytes[..10]);
        assert_eq!(taken(&near[1]), bytes[30_000..30_010]);
        assert_eq!(taken(&near[2]), bytes[15_000..15_010]);
        let rest: Vec<_> = queue.iter().map(|hop| hop.bytes.start).collect();
        assert_eq!(rest, [5, 99_990]);
        read_together(&take_together(&mut queue));
        read_together(&take_together(&mut queue));
        // Where the file ends, there is less.
        assert_eq!(taken(&near[3]), bytes[99_990..]);
    }
}
