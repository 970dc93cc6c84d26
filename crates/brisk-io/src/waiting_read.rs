//! A read that has to wait for a disk, and that another thread does.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Bytes of one read. What is longer is done one after the other.
pub(crate) const LARGEST: usize = 1 << 20;

/// A read that somebody waits for.
#[derive(Debug)]
pub(crate) struct WaitingRead {
    pub(crate) file: Arc<File>,
    pub(crate) bytes: Range<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Waiting(Option<Waker>),
    Done(io::Result<Vec<u8>>),
    /// Nobody wants it any more, or somebody has taken what was read.
    Over,
}

impl WaitingRead {
    /// A read of `len` bytes, at most [`LARGEST`], at `offset`, which nobody has begun. It gets fewer bytes only
    /// where the file ends.
    pub(crate) fn new(file: &Arc<File>, offset: u64, len: usize) -> Arc<Self> {
        let len = len.min(LARGEST) as u64;
        Arc::new(Self {
            file: Arc::clone(file),
            bytes: offset..offset.saturating_add(len),
            state: Mutex::new(State::Waiting(None)),
        })
    }

    /// What was read. It is returned once.
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

    /// Says that nobody waits for it any more. If it was not begun, it never is.
    pub(crate) fn cancel(&self) {
        *self.state() = State::Over;
    }

    pub(crate) fn is_wanted(&self) -> bool {
        matches!(*self.state(), State::Waiting(_))
    }

    /// Gives it what was read, and returns the waker to call.
    pub(crate) fn finish(&self, result: io::Result<Vec<u8>>) -> Option<Waker> {
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

/// Calls wakers. Call it only when every read that has ended is finished: a waker may at once run a future that waits
/// for another of these reads. A waker that panics does not stop this thread, as other reads wait for it.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        catch_unwind(AssertUnwindSafe(|| waker.wake())).ok();
    }
}
