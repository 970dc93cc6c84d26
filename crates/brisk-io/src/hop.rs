/*!
Reads that have to wait for a disk, done by threads that may.

There is one pool in a process, and a thread may read for itself in its place ([`executor`]). Where the system lets it, one thread hands all reads to the kernel by
`io_uring`. Elsewhere a thread is started when a read waits and all threads are busy, up to
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
use crate::executor;
use crate::uring::{Alarm, Hops};

/// Reads that a disk is given at once. Those of servers take more, and few programs have more to give.
const MOST_THREADS: usize = 64;

const IDLE: Duration = Duration::from_secs(10);

/// Bytes between two waiting reads that are read along: less than a disk's operation costs.
const GAP: u64 = 16 << 10;

/// Waiting reads among which those are looked for that are near each other: of ten thousand others, each would
/// be looked at ten thousand times.
const LOOKED_AT: usize = 256;

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
        if !executor::take(&hop) {
            POOL.submit(Arc::clone(&hop))?;
        }
        Ok(hop)
    }

    /// Has the pool read what a thread that began to read it does not.
    pub(crate) fn start_again(self: Arc<Self>) {
        if self.is_wanted()
            && let Err(e) = POOL.submit(Arc::clone(&self))
        {
            wake_all(self.finish(Err(e)));
        }
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

    pub(crate) fn is_wanted(&self) -> bool {
        matches!(*self.state(), State::Waiting(_))
    }

    /// Gives it what was read, and returns whom to wake.
    fn finish(&self, result: io::Result<Vec<u8>>) -> Option<Waker> {
        let mut state = self.state();
        let State::Waiting(waker) = &mut *state else {
            return None;
        };
        let waker = waker.take();
        *state = State::Done(result);
        waker
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes those whose reads have ended, when all are finished that have: what is woken may run what asked, at once, and
/// that may wait for another of them. Whatever happens there, others wait for this thread.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        catch_unwind(AssertUnwindSafe(|| waker.wake())).ok();
    }
}

static POOL: Pool = Pool {
    queue: Mutex::new(Queue {
        hops: VecDeque::new(),
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
    hops: VecDeque<Arc<Hop>>,
    ring: Ring,
    threads: usize,
    /// Threads that wait for work, or were woken for some and have not taken it yet.
    idle: usize,
}

/// The thread that reads by `io_uring`.
enum Ring {
    Untried,
    /// It was started, and looks at the queue when the kernel lets it.
    Starting,
    /// It reads, and has to be woken to look at the queue if it sleeps.
    Reads {
        alarm: Alarm,
        sleeps: bool,
    },
    /// Threads read.
    Refused,
}

impl Pool {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&'static self, hop: Arc<Hop>) -> io::Result<()> {
        let mut queue = self.queue();
        queue.hops.push_back(hop);
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
                    queue.hops.pop_back();
                }
                started
            }
        }
    }

    /// Has a thread look at the queue: one more, if there are too few.
    ///
    /// # Errors
    ///
    /// If none can be started, and there is none.
    fn start_thread(&'static self, queue: &mut Queue) -> io::Result<()> {
        if queue.hops.len() > queue.idle && queue.threads < MOST_THREADS {
            let started = thread::Builder::new()
                .name("brisk-io".to_owned())
                .spawn(move || self.run());
            match started {
                Ok(_) => queue.threads += 1,
                // The others come to it.
                Err(_) if queue.threads > 0 => {}
                Err(e) => return Err(e),
            }
        }
        self.work.notify_one();
        Ok(())
    }

    /// Reads by `io_uring`; where that is refused, as one of the threads.
    fn run_ring(&'static self) {
        let Ok(mut hops) = Hops::new() else {
            return self.run_without_ring(Vec::new());
        };
        // Everybody would wait for ever for what this thread does not read.
        let guard = NeverUnwinds;
        self.queue().ring = Ring::Reads {
            alarm: hops.alarm(),
            sleeps: false,
        };
        loop {
            hops.begin(self.take(hops.room()));
            if hops.enter(true).is_err() {
                break;
            }
            wake_all(hops.finish());
        }
        std::mem::forget(guard);
        self.run_without_ring(hops.give_up());
    }

    /// What the thread that reads by `io_uring` reads next: at most `room` groups.
    fn take(&self, room: usize) -> Vec<Group> {
        let mut queue = self.queue();
        let groups = Group::take_some(&mut queue.hops, room);
        let all = queue.hops.is_empty();
        if let Ring::Reads { sleeps, .. } = &mut queue.ring {
            // With reads in the queue for which there is no room, it looks again when others end.
            *sleeps = all;
        }
        groups
    }

    /// Reads as one of the threads, which read from here on. `left` was taken from the queue and not read.
    fn run_without_ring(&'static self, left: Vec<Group>) {
        let mut queue = self.queue();
        queue.ring = Ring::Refused;
        queue
            .hops
            .extend(left.into_iter().flat_map(Group::into_hops));
        // What came meanwhile has threads, as if it came now.
        queue.threads += 1;
        for _ in 1..queue.hops.len() {
            // This one is there.
            self.start_thread(&mut queue).ok();
        }
        drop(queue);
        self.run();
    }

    fn run(&self) {
        let mut queue = self.queue();
        loop {
            if let Some(group) = Group::take(&mut queue.hops) {
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
            if waited.timed_out() && queue.hops.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}

/// Ends the process where a thread unwinds.
struct NeverUnwinds;

impl Drop for NeverUnwinds {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Reads of one file that are near each other, and done as one.
pub(crate) struct Group {
    /// 1. There is at least one, and all are of the same file.
    hops: Vec<Arc<Hop>>,
    /// From the first byte of any to the last one, at most [`LARGEST`].
    bytes: Range<u64>,
}

impl Group {
    /// Takes the first read that somebody wants, and all that are near it.
    fn take(hops: &mut VecDeque<Arc<Hop>>) -> Option<Self> {
        let first = loop {
            match hops.pop_front()? {
                hop if hop.is_wanted() => break hop,
                _ => {}
            }
        };
        let mut group = Self::of(first);
        // What joins may bring others near.
        loop {
            let mut next = hops.iter().take(LOOKED_AT);
            let near = next.position(|hop| group.is_near(hop));
            let Some(hop) = near.and_then(|number| hops.remove(number)) else {
                return Some(group);
            };
            if hop.is_wanted() {
                group.bytes = group.with(&hop);
                group.hops.push(hop);
            }
        }
    }

    /// Takes as many as there are, and at most `most`.
    pub(crate) fn take_some(hops: &mut VecDeque<Arc<Hop>>, most: usize) -> Vec<Self> {
        let groups = std::iter::from_fn(|| Self::take(hops));
        groups.take(most).collect()
    }

    /// The reads that it is of.
    pub(crate) fn into_hops(self) -> Vec<Arc<Hop>> {
        self.hops
    }

    fn of(hop: Arc<Hop>) -> Self {
        Self {
            bytes: hop.bytes.clone(),
            hops: vec![hop],
        }
    }

    fn with(&self, hop: &Hop) -> Range<u64> {
        self.bytes.start.min(hop.bytes.start)..self.bytes.end.max(hop.bytes.end)
    }

    fn is_near(&self, hop: &Hop) -> bool {
        let joined = self.with(hop);
        Arc::ptr_eq(&hop.file, &self.hops[0].file)
            && hop.bytes.start <= self.bytes.end.saturating_add(GAP)
            && self.bytes.start <= hop.bytes.end.saturating_add(GAP)
            && joined.end - joined.start <= LARGEST as u64
    }

    pub(crate) fn file(&self) -> &File {
        // Invariant 1.
        &self.hops[0].file
    }

    /// Where it starts in the file.
    pub(crate) fn start(&self) -> u64 {
        self.bytes.start
    }

    /// Bytes, if the file does not end before.
    pub(crate) fn len(&self) -> usize {
        // At most `LARGEST`.
        (self.bytes.end - self.bytes.start) as usize
    }

    /// Reads it, in this thread.
    fn read(self) {
        let mut woken = Vec::new();
        let bytes = read(self.file(), self.start(), self.len());
        for single in self.finish(bytes, &mut woken) {
            let bytes = read(single.file(), single.start(), single.len());
            single.finish(bytes, &mut woken);
        }
        wake_all(woken);
    }

    /// Gives each its part of the bytes, of which there are fewer where the file ends, and says who is to be woken.
    /// Returns what has to be read again by itself: one of several reads may be at fault, and the others not.
    pub(crate) fn finish(self, bytes: io::Result<Vec<u8>>, woken: &mut Vec<Waker>) -> Vec<Self> {
        match (bytes, self.hops.as_slice()) {
            (bytes, [hop]) => woken.extend(hop.finish(bytes)),
            (Ok(bytes), hops) => {
                for hop in hops {
                    // At most `len`.
                    let at = |place: u64| ((place - self.bytes.start) as usize).min(bytes.len());
                    let part = &bytes[at(hop.bytes.start)..at(hop.bytes.end)];
                    woken.extend(hop.finish(Ok(part.to_vec())));
                }
            }
            (Err(_), _) => return self.hops.into_iter().map(Self::of).collect(),
        }
        Vec::new()
    }
}

#[cfg(feature = "io-uring")]
impl Group {
    /// Whether somebody waits for one of its reads.
    pub(crate) fn is_wanted(&self) -> bool {
        self.hops.iter().any(|hop| hop.is_wanted())
    }

    pub(crate) fn hops(&self) -> &[Arc<Hop>] {
        &self.hops
    }
}

/// The bytes; fewer where the file ends.
fn read(file: &File, start: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buf = vec![0; len];
    let mut done = 0;
    while done < len {
        match ReadAt::read_at(file, start + done as u64, &mut buf[done..]) {
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
    use std::iter;
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
        let together = Group::take(&mut queue).unwrap();
        assert_eq!(together.hops.len(), 3);
        together.read();
        assert_eq!(taken(&near[0]), bytes[..10]);
        assert_eq!(taken(&near[1]), bytes[30_000..30_010]);
        assert_eq!(taken(&near[2]), bytes[15_000..15_010]);
        let rest: Vec<_> = queue.iter().map(|hop| hop.bytes.start).collect();
        assert_eq!(rest, [5, 99_990]);
        while let Some(group) = Group::take(&mut queue) {
            group.read();
        }
        // Where the file ends, there is less.
        assert_eq!(taken(&near[3]), bytes[99_990..]);
    }

    #[test]
    fn no_more_than_some_are_looked_at() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let far = (1..LOOKED_AT as u64 + 2).map(|n| n << 30..(n << 30) + 1);
        let places = iter::once(0..1).chain(far).chain(iter::once(1..2));
        let mut queue: VecDeque<_> = places.map(|bytes| hop(&file, bytes)).collect();
        let len = queue.len();
        assert_eq!(Group::take(&mut queue).unwrap().len(), 1);
        assert_eq!(queue.len(), len - 1);
    }

    #[test]
    fn a_read_that_fails_takes_no_other_with_it() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(&[7; 100], 0).unwrap();
        let hops = [hop(&file, 0..10), hop(&file, 20..30)];
        let mut queue = hops.iter().cloned().collect();
        let group = Group::take(&mut queue).unwrap();
        assert_eq!((group.start(), group.len()), (0, 30));
        let single = group.finish(Err(io::ErrorKind::Other.into()), &mut Vec::new());
        let single: Vec<_> = single
            .into_iter()
            .map(|group| group.bytes.clone())
            .collect();
        assert_eq!(single, [0..10, 20..30]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_for_each() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let written = File::options().write(true).open(path.path()).unwrap();
        let written = Arc::new(written);
        let hops = [0, 50, 1 << 20].map(|offset| Hop::start(&written, offset, 10).unwrap());
        for hop in hops {
            let result = loop {
                match hop.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(result) => break result,
                    Poll::Pending => thread::yield_now(),
                }
            };
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
    }
}
