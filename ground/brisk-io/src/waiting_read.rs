//! A read that has to wait for a disk. Another thread does it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The most bytes of one read. Longer reads are done piece by piece.
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
    /// Nobody wants it any more, or its result was taken.
    Over,
}

impl WaitingRead {
    /// A read of `len` bytes, at most [`LARGEST`], at `offset`. Nobody has started it. It gets fewer bytes
    /// only at the end of the file.
    pub(crate) fn new(file: &Arc<File>, offset: u64, len: usize) -> Arc<Self> {
        let len = len.min(LARGEST) as u64;
        Arc::new(Self {
            file: Arc::clone(file),
            bytes: offset..offset.saturating_add(len),
            state: Mutex::new(State::Waiting(None)),
        })
    }

    /// The result. It is returned once.
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

    /// Says that nobody waits for it any more. If it was not started, it never will be.
    pub(crate) fn cancel(&self) {
        *self.state() = State::Over;
    }

    pub(crate) fn is_wanted(&self) -> bool {
        matches!(*self.state(), State::Waiting(_))
    }

    /// Sets its result, and returns the waker to call.
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

/// Calls wakers. Call this only when every completed read is finished, because a waker may at once run a
/// future that waits for another of these reads. A waker that panics does not stop this thread, because other
/// reads wait for it.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        catch_unwind(AssertUnwindSafe(|| waker.wake())).ok();
    }
}
