//! A body that is read by several at their own pace while it comes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use tokio::sync::Notify;

use super::fetch_error::FetchError;

/// How far the origin may be ahead of the slowest reader of a body that is not kept.
const WINDOW: u64 = 1 << 20;

/// What has come of a body.
///
/// 1. The bytes from `first` to `len` are in `pieces`, in order and without a gap.
/// 2. No reader is before `first`.
/// 3. While all is kept, `first` is 0.
#[derive(Debug)]
pub(crate) struct Spool {
    state: Mutex<State>,
    /// A reader has got on, or left.
    drained: Notify,
}

#[derive(Debug)]
struct State {
    pieces: VecDeque<Piece>,
    first: u64,
    len: u64,
    end: Option<Result<(), FetchError>>,
    readers: BTreeMap<u64, Place>,
    readers_so_far: u64,
    keeps_all: bool,
}

#[derive(Debug)]
struct Piece {
    start: u64,
    bytes: Bytes,
}

/// Where a reader is.
#[derive(Debug)]
struct Place {
    at: u64,
    waker: Option<Waker>,
}

impl State {
    fn wake_readers(&mut self) -> Vec<Waker> {
        let places = self.readers.values_mut();
        places.filter_map(|place| place.waker.take()).collect()
    }

    /// Lets go of what every reader has got.
    fn release(&mut self) {
        if self.keeps_all {
            return;
        }
        let slowest = self.slowest();
        while let Some(piece) = self.pieces.front() {
            let end = piece.start + piece.bytes.len() as u64;
            if end > slowest {
                break;
            }
            self.first = end;
            self.pieces.pop_front();
        }
    }

    fn slowest(&self) -> u64 {
        let places = self.readers.values();
        places.map(|place| place.at).min().unwrap_or(self.len)
    }

    /// The bytes from a position on that are in one piece.
    fn piece(&self, at: u64) -> Option<Bytes> {
        let number = self.pieces.partition_point(|piece| piece.start <= at);
        let piece = self.pieces.get(number.checked_sub(1)?)?;
        let mut bytes = piece.bytes.clone();
        bytes.advance(usize::try_from(at - piece.start).ok()?);
        Some(bytes)
    }
}

impl Spool {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                pieces: VecDeque::new(),
                first: 0,
                len: 0,
                end: None,
                readers: BTreeMap::new(),
                readers_so_far: 0,
                keeps_all: true,
            }),
            drained: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader of all bytes. None if the first ones are gone.
    pub(crate) fn reader(self: &Arc<Self>) -> Option<SpoolReader> {
        let mut state = self.state();
        if state.first > 0 {
            return None;
        }
        let number = state.readers_so_far;
        state.readers_so_far += 1;
        state.readers.insert(number, Place { at: 0, waker: None });
        Some(SpoolReader {
            spool: Arc::clone(self),
            number,
        })
    }

    /// Adds bytes.
    pub(crate) fn push(&self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let wakers = {
            let mut state = self.state();
            let start = state.len;
            state.len += bytes.len() as u64;
            state.pieces.push_back(Piece { start, bytes });
            state.release();
            state.wake_readers()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until there is room for more: if not all is kept, until the slowest reader has come near.
    pub(crate) async fn room(&self) {
        loop {
            {
                let state = self.state();
                if state.keeps_all || state.len - state.slowest() <= WINDOW {
                    return;
                }
            }
            self.drained.notified().await;
        }
    }

    /// From now on, keeps no more than what its readers still have to get.
    pub(crate) fn stop_keeping(&self) {
        let mut state = self.state();
        state.keeps_all = false;
        state.release();
    }

    /// Says that there is nothing more to come.
    pub(crate) fn end(&self, how: Result<(), FetchError>) {
        let wakers = {
            let mut state = self.state();
            state.end.get_or_insert(how);
            state.wake_readers()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// All pieces. Only right while all is kept.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        let state = self.state();
        state
            .pieces
            .iter()
            .map(|piece| piece.bytes.clone())
            .collect()
    }
}

/// Reads a [`Spool`] from its start.
#[derive(Debug)]
pub(crate) struct SpoolReader {
    spool: Arc<Spool>,
    number: u64,
}

impl SpoolReader {
    /// The next bytes. None: there are no more.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, FetchError>>> {
        let mut state = self.spool.state();
        let len = state.len;
        let Some(at) = state.readers.get(&self.number).map(|place| place.at) else {
            return Poll::Ready(None);
        };
        if at < len
            && let Some(bytes) = state.piece(at)
        {
            if let Some(place) = state.readers.get_mut(&self.number) {
                place.at += bytes.len() as u64;
            }
            state.release();
            drop(state);
            self.spool.drained.notify_one();
            return Poll::Ready(Some(Ok(bytes)));
        }
        match &state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(e)) => Poll::Ready(Some(Err(e.clone()))),
            None => {
                let waker = context.waker().clone();
                let before = state
                    .readers
                    .get_mut(&self.number)
                    .and_then(|place| place.waker.replace(waker));
                drop(state);
                drop(before);
                Poll::Pending
            }
        }
    }

    /// The number of bytes that it has got.
    pub(crate) fn position(&self) -> u64 {
        let state = self.spool.state();
        state.readers.get(&self.number).map_or(0, |place| place.at)
    }

    /// Whether it has got all there will be.
    pub(crate) fn is_at_end(&self) -> bool {
        let state = self.spool.state();
        let at = state.readers.get(&self.number).map(|place| place.at);
        matches!(state.end, Some(Ok(()))) && at == Some(state.len)
    }
}

impl Drop for SpoolReader {
    fn drop(&mut self) {
        let mut state = self.spool.state();
        let place = state.readers.remove(&self.number);
        state.release();
        drop(state);
        drop(place);
        self.spool.drained.notify_one();
    }
}
