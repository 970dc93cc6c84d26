use std::fmt;
use std::io::Write;
use std::sync::Arc;

use super::owners::Owners;
use super::recorder::Recorder;
use super::serve_counters::ServeCounters;
use crate::hot_pack::fill::Fill;
use crate::memory::free_memory;

/// Bytes of decoded blocks that are kept at most while a launch is recorded.
const MOST_RECORDED: u64 = 1 << 30;

/// Told of each fault of an image once: a damaged part, a disk that fails.
pub type OnFault = Arc<dyn Fn(&brisk_image::Error) + Send + Sync>;

/// How to serve an image.
#[derive(Clone)]
pub struct ServeOptions {
    /// Threads that answer, each with a channel of its own. 2.
    pub threads: usize,
    /// Whom the files belong to. As stored.
    pub owners: Owners,
    /// Put the rest of each decoded block into the page cache, from a thread more. Yes.
    pub read_ahead: bool,
    /// Bytes of decoded blocks that are kept: what stands beside a read is in the page cache. Where
    /// all that is asked for is to be recorded, it is a quarter of the free memory, at most 1 GiB, at
    /// first. 8 MiB.
    pub block_cache: u64,
    /// Puts the pages of a hot pack into the page cache, from threads more. None.
    pub fill: Option<Arc<Fill>>,
    /// Records what is asked for. No.
    ///
    /// Without `fill`, each page that the program demands is to be seen: the kernel is to read
    /// nothing ahead and to look up each name by itself, and nothing is put into the page cache
    /// unasked as long as it is recorded. Beside a `fill`, only names are recorded, and reads of what
    /// the hot pack has not, as the kernel makes them.
    pub recorder: Option<Arc<Recorder>>,
    /// Counts what is done; a clone of the options counts into the same.
    pub counters: Arc<ServeCounters>,
    /// Told of faults; a reader gets EIO and no more. Prints on standard error.
    pub on_fault: OnFault,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            threads: 2,
            owners: Owners::AsStored,
            read_ahead: true,
            block_cache: 8 << 20,
            fill: None,
            recorder: None,
            counters: Arc::default(),
            on_fault: Arc::new(|fault| {
                // A full log is no reason to leave a request without an answer.
                let mut out = std::io::stderr().lock();
                writeln!(out, "{fault}").ok();
                let mut cause = std::error::Error::source(fault);
                while let Some(error) = cause {
                    writeln!(out, "  {error}").ok();
                    cause = error.source();
                }
            }),
        }
    }
}

impl ServeOptions {
    /// Bytes of decoded blocks that are kept at first.
    pub(crate) fn first_block_cache(&self) -> u64 {
        if self.exact_recorder().is_none() {
            return self.block_cache;
        }
        // Each page of a block is asked for by itself, and nothing but what was asked for may be
        // stored: so the blocks of the whole launch stay decoded, or each is decoded again for most
        // of its pages.
        let room = free_memory().map_or(0, |free| free / 4);
        self.block_cache.max(room.min(MOST_RECORDED))
    }

    /// The recorder, if it is to see all that is asked for.
    pub(super) fn exact_recorder(&self) -> Option<&Arc<Recorder>> {
        self.recorder.as_ref().filter(|_| self.fill.is_none())
    }
}

impl fmt::Debug for ServeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeOptions")
            .field("threads", &self.threads)
            .field("owners", &self.owners)
            .field("read_ahead", &self.read_ahead)
            .field("block_cache", &self.block_cache)
            .field("fill", &self.fill)
            .field("recorder", &self.recorder)
            .finish_non_exhaustive()
    }
}
