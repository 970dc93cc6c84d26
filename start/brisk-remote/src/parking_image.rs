//! An image that arrives, for threads that must not wait.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use brisk_io::ByteSource;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::arriving::{Arriving, Window, may_renew};
use crate::error::{Error, Result};
use crate::fetcher::Lines;
use crate::protocol::{Ask, Tell, write_line};
use crate::schedule::Class;

/// An image that arrives. A read of bytes that are absent fails with [`Absent`](crate::Absent) at once. Whoever gets that says
/// [`want`](Self::want), and reads again when [`Arrivals`] say that something has come.
pub struct ParkingImage {
    arriving: Arc<Arriving>,
    asks: Mutex<Asks>,
    /// Both ends of a pipe. A byte in it says that something is to be sent.
    wake: (OwnedFd, OwnedFd),
    /// Held while [`ParkingImage::wait_for`] begins to wait, so that it misses nothing that is told.
    telling: Mutex<()>,
    told: Condvar,
}

/// What is to be sent.
#[derive(Default)]
struct Asks {
    unsent: Vec<Ask>,
    window: Window,
    renewed: Vec<Range<u64>>,
}

/// What the fetcher says about an image.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Something is there that was wanted.
    Here,
    /// These bytes do not come.
    Failed(Range<u64>, String),
    /// Nothing was said for the time that the caller gave.
    Nothing,
    /// The fetcher has ended. What was wanted must be wanted again, over a new connection.
    Lost,
}

impl ParkingImage {
    /// What arrives of `arriving`.
    ///
    /// # Errors
    ///
    /// `Io`, if there are no descriptors for a pipe.
    pub fn new(arriving: Arc<Arriving>) -> Result<Self> {
        let wake = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|e| Error::io("make a pipe", e))?;
        Ok(Self {
            arriving,
            asks: Mutex::default(),
            wake,
            telling: Mutex::default(),
            told: Condvar::new(),
        })
    }

    /// The descriptors that another process needs, besides those of [`Arriving`].
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.wake.0.as_raw_fd(), self.wake.1.as_raw_fd()]
    }

    /// What has arrived.
    pub fn arriving(&self) -> &Arc<Arriving> {
        &self.arriving
    }

    /// Has `bytes` asked for. This never waits.
    pub fn want(&self, bytes: &Range<u64>, class: Class) {
        let bytes = self.arriving.whole_units(bytes);
        {
            let mut asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
            let behind = match class {
                Class::Miss => asks.window.behind(&bytes, self.arriving.len()),
                _ => 0..0,
            };
            let ask = Ask::want(bytes, class);
            // Without a connection, it may be asked for many times.
            if !asks.unsent.contains(&ask) {
                asks.unsent.push(ask);
            }
            if !behind.is_empty() {
                asks.unsent.push(Ask::want(behind, Class::Behind));
            }
        }
        self.wake_up();
    }

    /// Whether something was asked for that is not sent.
    pub fn has_asks(&self) -> bool {
        let asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        !asks.unsent.is_empty()
    }

    /// Whether all of it is there, and nothing is to be sent.
    pub fn needs_nobody(&self) -> bool {
        let absent = self.arriving.first_absent(&(0..self.arriving.len()));
        matches!(absent, Ok(None)) && !self.has_asks()
    }

    /// Makes [`Arrivals::next`] return.
    pub fn wake_up(&self) {
        // A full pipe has bytes enough.
        rustix::io::write(&self.wake.1, &[0]).ok();
    }

    /// Waits until `bytes` are there, or `is_over` says that nobody needs them. Not for threads that answer. False if they do
    /// not come.
    pub fn wait_for(&self, bytes: &Range<u64>, class: Class, is_over: &dyn Fn() -> bool) -> bool {
        let mut asked = None;
        loop {
            match self.arriving.first_absent(bytes) {
                Ok(None) => return true,
                Ok(Some(_)) => {}
                Err(_) => return false,
            }
            if is_over() {
                return false;
            }
            let telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
            // Again from time to time: the fetcher may have given up on it, or be another one.
            if asked.is_none_or(|asked: Instant| asked.elapsed() > Duration::from_secs(2)) {
                self.want(bytes, class);
                asked = Some(Instant::now());
            }
            let waited = self.told.wait_timeout(telling, Duration::from_millis(100));
            drop(waited);
        }
    }

    /// Talks with the fetcher over `stream`. One thread does that.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn arrivals(&self, stream: UnixStream) -> Result<Arrivals<'_>> {
        let failed = |e| Error::io("hold the connection to brisk-fetch", e);
        let out = stream.try_clone().map_err(failed)?;
        Ok(Arrivals {
            image: self,
            out,
            lines: Lines::new(stream),
        })
    }
}

impl ByteSource for ParkingImage {
    fn size(&self) -> io::Result<u64> {
        Ok(self.arriving.len())
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.arriving.read_there(offset, buf)
    }

    fn read_again(&self, bytes: &Range<u64>) -> bool {
        let bytes = self.arriving.whole_units(bytes);
        {
            let mut asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
            if self.arriving.is_renewing(&bytes) {
                return true;
            }
            if !may_renew(&asks.renewed, &bytes) {
                return false;
            }
            // With the lock, so that one of two reads asks.
            self.arriving.forget(&bytes);
            asks.renewed.push(bytes.clone());
            asks.unsent.push(Ask::Renew {
                start: bytes.start,
                end: bytes.end,
            });
        }
        self.wake_up();
        true
    }
}

impl fmt::Debug for ParkingImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkingImage")
            .field("arriving", &self.arriving)
            .finish_non_exhaustive()
    }
}

/// The connection to the fetcher.
pub struct Arrivals<'a> {
    image: &'a ParkingImage,
    out: UnixStream,
    lines: Lines,
}

impl Drop for Arrivals<'_> {
    fn drop(&mut self) {
        // A thread with descriptors of its own may have a copy. What has ended need not be ended.
        self.out.shutdown(Shutdown::Both).ok();
    }
}

impl Arrivals<'_> {
    /// Sends what is to be sent, and waits for what the fetcher says, at most so long.
    pub fn next(&mut self, at_most: Duration) -> Arrival {
        let arrival = self.wait(at_most);
        let telling = &self.image.telling;
        drop(telling.lock().unwrap_or_else(PoisonError::into_inner));
        self.image.told.notify_all();
        arrival
    }

    fn wait(&mut self, at_most: Duration) -> Arrival {
        let end = Instant::now() + at_most;
        loop {
            if self.send().is_err() {
                return Arrival::Lost;
            }
            if !self.lines.has_more() {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Arrival::Nothing;
                }
                let left = Timespec::try_from(left).unwrap_or_default();
                let mut fds = [
                    PollFd::new(&self.out, PollFlags::IN),
                    PollFd::from_borrowed_fd(self.image.wake.0.as_fd(), PollFlags::IN),
                ];
                match poll(&mut fds, Some(&left)) {
                    Ok(0) | Err(Errno::INTR) => continue,
                    Ok(_) => {}
                    Err(_) => return Arrival::Lost,
                }
                let is_heard = !fds[0].revents().is_empty();
                let mut drained = [0; 64];
                while rustix::io::read(&self.image.wake.0, &mut drained).is_ok_and(|read| read > 0)
                {
                }
                if !is_heard {
                    return self.send().map_or(Arrival::Lost, |()| Arrival::Nothing);
                }
            }
            return match self.lines.next(at_most) {
                Ok(Some(Tell::Failed { start, end, why })) => Arrival::Failed(start..end, why),
                Ok(Some(Tell::Refused { why })) => Arrival::Failed(0..u64::MAX, why),
                Ok(Some(Tell::Here { start, end })) => {
                    self.image.arriving.has_come(&(start..end));
                    Arrival::Here
                }
                Ok(Some(_)) => Arrival::Here,
                Ok(None) => continue,
                Err(_) => Arrival::Lost,
            };
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let asks = {
            let mut asks = self
                .image
                .asks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut asks.unsent)
        };
        asks.iter()
            .try_for_each(|ask| write_line(&mut self.out, ask))
    }
}
