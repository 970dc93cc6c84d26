//! What each process opens anew.

use std::mem;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::fault::Fault;

/// A value that a process has opened, until it is closed. After a fork, the other process opens its own.
///
/// 1. The mutex is held only under Python's lock. `os.fork` holds that lock, so no fork finds the mutex held.
pub struct PerProcess<T>(Mutex<Option<Opened<T>>>);

/// A value, and the process that has opened it.
///
/// 1. A process neither uses nor drops what another one has opened: a thread that the fork has left behind may have stopped in
///    the middle of a change.
struct Opened<T> {
    process: u32,
    /// None only while it is dropped.
    value: Option<T>,
}

impl<T> Opened<T> {
    fn here(value: T) -> Self {
        Self {
            process: process::id(),
            value: Some(value),
        }
    }

    fn is_of_another(&self) -> bool {
        self.process != process::id()
    }
}

impl<T> Drop for Opened<T> {
    fn drop(&mut self) {
        if self.is_of_another() {
            mem::forget(self.value.take());
        }
    }
}

impl<T: Clone> PerProcess<T> {
    /// `opened` by this process.
    pub fn new(opened: T) -> Self {
        Self(Mutex::new(Some(Opened::here(opened))))
    }

    /// The value, which `open` opens if another process has opened it last. None if it is closed. `open` must not call Python, which
    /// could give the lock away.
    pub fn get(
        &self,
        attached: Python<'_>,
        open: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let mut state = self.lock(attached);
        let Some(opened) = &mut *state else {
            return Ok(None);
        };
        if opened.is_of_another() {
            *opened = Opened::here(open()?);
        }
        Ok(opened.value.clone())
    }

    /// Whether it is closed.
    pub fn is_closed(&self, attached: Python<'_>) -> bool {
        self.lock(attached).is_none()
    }

    /// Closes it.
    pub fn close(&self, attached: Python<'_>) {
        let closed = self.lock(attached).take();
        // The end of an object of Python may run Python, so the mutex is free by now.
        drop(closed);
    }

    fn lock(&self, _attached: Python<'_>) -> MutexGuard<'_, Option<Opened<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
