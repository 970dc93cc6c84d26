use std::fmt;
use std::io::Write;
use std::sync::Arc;

use brisk_launch::memory::free_memory;

use super::owners::Owners;
use super::parked::ArrivingSource;
use super::recorder::Recorder;
use super::serve_counters::ServeCounters;
use crate::hot_pack::fill::Fill;

/// The most bytes of decoded blocks to keep while a launch is recorded.
const MOST_RECORDED: u64 = 1 << 30;

/// Called once for each fault of an image, such as a damaged part or a failing disk.
pub type OnFault = Arc<dyn Fn(&brisk_image::Error) + Send + Sync>;

/// How to serve an image.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Threads that answer. Each has its own channel. Default: 2.
    pub threads: usize,
    /// The owners of the files. Default: as stored.
    pub owners: Owners,
    /// Whether another thread puts the rest of each decoded block into the page cache. Default: yes.
    pub read_ahead: bool,
    /// How many bytes of decoded blocks to keep. That can be little, because data near a read is in the page
    /// cache. While everything is recorded, a quarter of the free memory is kept at first, but at most 1 GiB.
    /// Default: 8 MiB.
    pub block_cache: u64,
    /// Puts the pages of a hot pack into the page cache, from more threads. Default: none.
    pub fill: Option<Arc<Fill>>,
    /// Records what is asked for. Default: no.
    ///
    /// Without `fill`, the recording must see each page that the program demands. So the kernel reads nothing
    /// ahead and looks up each name, and nothing is put into the page cache unasked while the recording
    /// lasts. With a `fill`, it records only names, and those reads of the kernel that the hot pack lacks.
    pub recorder: Option<Arc<Recorder>>,
    /// Where the image and its pack come from, as far as they still arrive. Default: nowhere, all of it is there.
    pub(crate) arriving: Vec<Arc<ArrivingSource>>,
    /// Counts what the server does. Clones of the options count together.
    pub counters: Arc<ServeCounters>,
    /// Called for each fault, because a reader only gets EIO. Default: prints on standard error.
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
            arriving: Vec::new(),
            counters: Arc::default(),
            on_fault: Arc::new(|fault| {
                // A full log must not leave a request unanswered.
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
    /// How many bytes of decoded blocks to keep at first.
    pub(crate) fn first_block_cache(&self) -> u64 {
        if self.exact_recorder().is_none() {
            return self.block_cache;
        }
        // While recording, the kernel asks for each page of a block alone, and nothing else may be stored. So
        // the blocks of the whole launch stay decoded. Otherwise most pages would decode their block again.
        let room = free_memory().map_or(0, |free| free / 4);
        self.block_cache.max(room.min(MOST_RECORDED))
    }

    /// The recorder, if it must see everything that is asked for.
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
