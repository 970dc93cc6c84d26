//! The files that a first look has opened.

use std::sync::{Mutex, MutexGuard};

use crate::index::IndexFile;
use crate::segment::SegmentFile;

/// What a first look has opened, for the second question.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) index: Option<IndexFile>,
    pub(crate) segment: Option<SegmentFile>,
}

/// The files of a handle until it maps them.
///
/// Nobody waits for the lock: a child that was forked would wait for ever for a thread that it does not have.
#[derive(Debug)]
pub(crate) struct FirstFiles(Mutex<State>);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) kept: Kept,
    is_over: bool,
}

impl FirstFiles {
    /// With the index, if there is one.
    pub(crate) fn new(index: Option<IndexFile>) -> Self {
        let kept = Kept {
            index,
            segment: None,
        };
        Self(Mutex::new(State {
            kept,
            is_over: false,
        }))
    }

    /// For the first look, and for no other.
    pub(crate) fn begin(&self) -> Option<MutexGuard<'_, State>> {
        let mut state = self.0.try_lock().ok()?;
        (!std::mem::replace(&mut state.is_over, true)).then_some(state)
    }

    /// What it has opened. From now on, nobody looks like this.
    pub(crate) fn end(&self) -> Kept {
        let Ok(mut state) = self.0.try_lock() else {
            return Kept::default();
        };
        state.is_over = true;
        std::mem::take(&mut state.kept)
    }
}
