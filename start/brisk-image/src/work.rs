use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::error::{Error, Result};

/// How work is done: on how many threads, which callback hears of its progress, and whether it goes
/// on.
///
/// Any thread of the work may call the callback, also several at once. If the callback returns
/// [`ControlFlow::Break`], the work ends with an error of the kind
/// [`Cancelled`](crate::ErrorKind::Cancelled). Threads that have not noticed yet may still call it.
///
/// ```
/// use std::ops::ControlFlow;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
///
/// use brisk_image::Work;
///
/// let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
/// let work = Work::new().threads(2).progress({
///     let (done, stop) = (Arc::clone(&done), Arc::clone(&stop));
///     move |bytes| {
///         done.fetch_add(bytes, Ordering::Relaxed);
///         match stop.load(Ordering::Relaxed) {
///             true => ControlFlow::Break(()),
///             false => ControlFlow::Continue(()),
///         }
///     }
/// });
/// # let _ = work;
/// ```
#[derive(Clone)]
pub struct Work {
    threads: usize,
    progress: Option<Arc<Callback>>,
}

type Callback = dyn Fn(u64) -> ControlFlow<()> + Send + Sync;

impl Work {
    /// On all processors, without a callback.
    pub fn new() -> Self {
        Self::default()
    }

    /// Threads that work; at least one does.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Calls `progress` with the bytes of files that were dealt with since the last call.
    ///
    /// The bytes are 0 if the work only asks whether to go on.
    #[must_use]
    pub fn progress(
        mut self,
        progress: impl Fn(u64) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    pub(crate) fn thread_count(&self) -> usize {
        self.threads
    }

    /// Tells that `bytes` more were dealt with.
    ///
    /// # Errors
    ///
    /// `Cancelled` if the work is to end.
    pub(crate) fn tell(&self, bytes: u64) -> Result<()> {
        match self.progress.as_ref().map(|progress| progress(bytes)) {
            Some(ControlFlow::Break(())) => Err(Error::cancelled()),
            Some(ControlFlow::Continue(())) | None => Ok(()),
        }
    }

    /// Asks whether to go on, in work whose bytes are not counted.
    pub(crate) fn ask(&self) -> Result<()> {
        self.tell(0)
    }

    /// The same for a part of the work whose bytes are not counted.
    pub(crate) fn uncounted(&self) -> Self {
        let progress = self.progress.clone().map(|progress| {
            let uncounted: Arc<Callback> = Arc::new(move |_| progress(0));
            uncounted
        });
        Self {
            threads: self.threads,
            progress,
        }
    }
}

/// The methods of a type with a field `work` that say how it works.
#[cfg(target_os = "linux")]
macro_rules! set_work {
    () => {
        /// Threads that work; at least one does.
        #[must_use]
        pub fn threads(mut self, threads: usize) -> Self {
            self.work = self.work.threads(threads);
            self
        }

        /// Calls `progress` with the bytes that were dealt with since the last call, and ends the work when it returns
        /// [`ControlFlow::Break`](std::ops::ControlFlow::Break): see [`Work::progress`](crate::Work::progress).
        #[must_use]
        pub fn progress(
            mut self,
            progress: impl Fn(u64) -> std::ops::ControlFlow<()> + Send + Sync + 'static,
        ) -> Self {
            self.work = self.work.progress(progress);
            self
        }
    };
}
#[cfg(target_os = "linux")]
pub(crate) use set_work;

impl Default for Work {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, Into::into),
            progress: None,
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("threads", &self.threads)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}
