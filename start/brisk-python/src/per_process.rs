//! What each process opens anew.

use std::process;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

/// A value that a process has opened, until it is closed. After a fork, the other process opens its own.
///
/// 1. The mutex is held only under Python's lock. `os.fork` holds that lock, so no fork finds the mutex held.
pub struct PerProcess<T>(Mutex<Option<(u32, T)>>);

impl<T: Clone> PerProcess<T> {
    /// `opened` by this process.
    pub fn new(opened: T) -> Self {
        Self(Mutex::new(Some((process::id(), opened))))
    }

    /// The value, which `open` opens if another process has opened it last. None if it is closed. `open` must not call Python, which
    /// could give the lock away.
    pub fn get(
        &self,
        _attached: Python<'_>,
        open: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<Option<T>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((opener, opened)) = &mut *state else {
            return Ok(None);
        };
        if *opener != process::id() {
            (*opener, *opened) = (process::id(), open()?);
        }
        Ok(Some(opened.clone()))
    }

    /// Whether it is closed.
    pub fn is_closed(&self, _attached: Python<'_>) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
    }

    /// Closes it.
    pub fn close(&self, _attached: Python<'_>) {
        let closed = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // What it holds may be an object of Python, whose end may run Python.
        drop(closed);
    }
}
