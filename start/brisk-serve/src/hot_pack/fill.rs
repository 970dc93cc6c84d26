//! Puts the pages of a hot pack into the page cache before a program asks for them.
//!
//! The threads that fill never answer requests. A thread that answers waits for them only while they read and decode a frame
//! that the answer needs. One thread tells the kernel the names that a launch looks up. The others decode and store, in about the order in which
//! the launch asks. They skip what the program has asked for already, so a fill that starts late catches up.
//!
//! The kernel may drop pages before the next program comes. So for each program that comes later, the fill looks at a
//! sample of the pack. If much of it is gone, it stores the parts again whose page is gone.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::{ControlFlow, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::hot_pack::{HotFile, HotPack};
use brisk_image::profile::{Origin, PAGE};
use brisk_image::{Codec, Image, Work};
use brisk_io::page_size;
use brisk_launch::error::{Advice, Cause, Error};
use brisk_launch::memory::free_memory;
use brisk_launch::page_log::PageLog;
use rustix::fs::{Mode, OFlags};
use rustix::process::nice;

use super::batch_ring::Batches;
use super::cache_sample::{CacheSample, is_much};
use super::candidate::{OpenPack, PackCandidate, open_first};
use super::comparison::Comparison;
use super::decoded_frames::DecodedFrames;
use super::fill_counts::FillCounters;
use super::fill_end::budget;
use super::fill_sources::FillSources;
use super::fill_target::FillTarget;
use super::fill_work::{FillWork, Progress};
use super::image_blocks::ImageBlocks;
use super::late_pages::LatePages;
use super::pack_file::PackFile;
use super::page_states::PageStates;
use crate::action::Action;
use crate::remote::{Absent, Class};

/// How many reads are remembered until the pack is known.
const EARLY: usize = 1 << 14;

/// How long after the fill a pack is compared with the image: most launches are over by then.
const COMPARE_AFTER: Duration = Duration::from_secs(5);

/// How many pages of a pack a look asks for at most.
const SAMPLE: usize = 128;

/// How many threads decode and store, unless somebody says otherwise.
const THREADS: usize = 2;

/// What `nice` adds for the least priority.
const LEAST_PRIORITY: i32 = 19;

/// How to reach the mount, so that the kernel learns about the files in it.
#[derive(Debug)]
pub enum FillRoot {
    /// Its root directory, opened as a path only.
    Held(OwnedFd),
    /// The directory on which it is mounted.
    At(PathBuf),
}

/// A fill that has not begun: see [`ServeOptions::fill`](crate::ServeOptions::fill).
pub struct Fill {
    candidates: Vec<PackCandidate>,
    /// None: the kernel is told no names.
    root: Option<FillRoot>,
    budget: Option<u64>,
    threads: usize,
    tell: fn(&Error),
    started: Instant,
    /// What the program has asked for. Set once the pack is known.
    pages: OnceLock<PageStates>,
    /// Set with `pages`.
    frames: OnceLock<DecodedFrames>,
    /// Set with `pages`, if frames may be used and are decoded faster than blocks of the image.
    late: OnceLock<LatePages>,
    /// What the program asked for before that. None once the pack is known, or once nothing will be filled.
    early: Mutex<Option<Vec<Read>>>,
    log: Option<PageLog>,
    /// Signals that `early` is None, that `joined` is true, or that the fill must end.
    settled: Condvar,
    ended: Arc<AtomicBool>,
    /// Whether a program has come since the last look.
    joined: AtomicBool,
    sample: CacheSample,
    keeper: OnceLock<Keeper>,
    sources: FillSources,
    /// The byte of its file at which the pack starts. Set with `pages`, for a pack that arrives.
    pack_start: OnceLock<u64>,
}

/// Keeps that the pack of the pair with this name was compared with the image.
pub(crate) type Keeper = Box<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// A node, and the pages of it that the kernel asked for.
type Read = (u64, Range<u64>);

/// Called with pages that the kernel asked for and the pack lacks.
pub(crate) type Missed<'a> = &'a (dyn Fn(u64, Range<u64>) + Sync);

impl std::fmt::Debug for Fill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fill")
            .field("candidates", &self.candidates)
            .field("root", &self.root)
            .field("budget", &self.budget)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl Fill {
    /// A fill from the first usable pack among `candidates`. Calls `tell` with the reason for each pack that cannot be used.
    pub fn new(candidates: Vec<PackCandidate>, tell: fn(&Error)) -> Self {
        Self {
            candidates,
            root: None,
            budget: None,
            threads: THREADS,
            tell,
            started: Instant::now(),
            pages: OnceLock::new(),
            frames: OnceLock::new(),
            late: OnceLock::new(),
            early: Mutex::new(Some(Vec::new())),
            log: None,
            settled: Condvar::new(),
            ended: Arc::default(),
            joined: AtomicBool::new(false),
            sample: CacheSample::default(),
            keeper: OnceLock::new(),
            sources: FillSources::default(),
            pack_start: OnceLock::new(),
        }
    }

    /// Fills the mount with this root, from now on.
    pub fn at(mut self, root: FillRoot) -> Self {
        self.root = Some(root);
        self.started = Instant::now();
        self
    }

    /// Fills from files that arrive.
    pub(crate) fn of_arriving(mut self, sources: FillSources) -> Self {
        self.sources = sources;
        self
    }

    /// A pack that arrives beside its image does not come: from now on the image answers in its place.
    pub(crate) fn lose_pack(&self) {
        self.sources.lose_pack();
    }

    /// Stores pages of at most this many bytes. Half of the free memory is always a limit.
    pub fn budget(mut self, bytes: Option<u64>) -> Self {
        self.budget = bytes;
        self
    }

    /// How many threads decode and store. The default is 2.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Writes a log to `file` when the server ends: what was stored and asked for, and when.
    pub(crate) fn log(mut self, file: File) -> Self {
        self.log = Some(PageLog::new(file));
        self
    }

    pub(crate) fn write_log(&self) {
        if let Some(Err(e)) = self.log.as_ref().map(PageLog::write) {
            let cause = Cause::io("write what was filled", e);
            (self.tell)(&Error::new(Action::Fill, cause));
        }
    }

    /// The kernel asks for `size` bytes at `offset` of a node. If the pack has none of these pages, `missed`
    /// is called. Pages near one that the pack has may only be read-ahead of the kernel.
    pub(crate) fn asked(
        &self,
        counters: &FillCounters,
        missed: Missed<'_>,
        node: u64,
        offset: u64,
        size: u32,
    ) {
        let range = offset / PAGE..offset.saturating_add(size.into()).div_ceil(PAGE);
        if let Some(log) = &self.log {
            log.add(false, node, range.clone());
        }
        if let Some(pages) = self.pages.get() {
            return count(pages, counters, missed, (node, range));
        }
        if let Some(early) = &mut *self.early() {
            if early.len() < EARLY {
                early.push((node, range));
            }
            return;
        }
        // The pack has become known meanwhile, or there is none.
        if let Some(pages) = self.pages.get() {
            count(pages, counters, missed, (node, range));
        }
    }

    /// Calls `answer` with bytes of a node that the kernel asks for, from frames of the pack. `len`: how many bytes the file has.
    /// None if the image is to answer.
    pub(crate) fn late<T>(
        &self,
        node: u64,
        bytes: Range<u64>,
        len: u64,
        answer: impl FnOnce(&[IoSlice<'_>]) -> T,
    ) -> Option<T> {
        let (late, frames) = self.late.get().zip(self.frames.get())?;
        late.answer(frames, self.pages.get()?, node, bytes, len, answer)
    }

    /// What is absent of the frames that have these bytes of a node, if the pack arrives: whoever needs them waits for these, and not
    /// for blocks of the image that no launch needs. Reading them would wait.
    pub(crate) fn absent_frame(&self, node: u64, bytes: Range<u64>, len: u64) -> Option<Absent> {
        let arriving = self.sources.of_pack()?.arriving();
        if self.sources.is_pack_lost() {
            return None;
        }
        let (late, pages) = self.late.get().zip(self.pages.get())?;
        let start = self.pack_start.get()?;
        let frames = late.frames_of(pages, node, bytes, len);
        let mut frames = frames.into_iter().filter_map(|number| late.stored(number));
        frames.find_map(|stored| {
            let stored = start.saturating_add(stored.start)..start.saturating_add(stored.end);
            let absent = arriving.first_absent(&stored);
            absent.ok().flatten().map(|_| arriving.absent(stored))
        })
    }

    fn early(&self) -> MutexGuard<'_, Option<Vec<Read>>> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `keeper` keep that a pack was compared with the image, because this process may not write. It gets the name
    /// of the pair, for [`Fill::keep_comparison`] in another process.
    pub(crate) fn keep_comparisons_by(&self, keeper: Keeper) {
        // It is set once, before the fill runs.
        self.keeper.set(keeper).ok();
    }

    /// Keeps that a pack was compared with the image. Does nothing if the pair is not one of this fill.
    pub(crate) fn keep_comparison(&self, pair: &[u8]) -> io::Result<()> {
        let mut comparisons = self.candidates.iter().filter_map(PackCandidate::comparison);
        let known = comparisons.find(|comparison| comparison.pair().as_bytes() == pair);
        known.map_or(Ok(()), Comparison::keep)
    }

    /// Where it looks for a pack, in order.
    pub(crate) fn candidates(&self) -> &[PackCandidate] {
        &self.candidates
    }

    /// The descriptors that it needs in another process.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let candidates = self.candidates.iter().flat_map(PackCandidate::descriptors);
        candidates.chain(self.log.iter().map(PageLog::file))
    }

    /// The files of its packs. A direct read opens them again.
    pub(crate) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let files = self.candidates.iter().map(PackCandidate::file);
        files.map(AsFd::as_fd)
    }

    /// Makes [`Fill::run`] end.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.sample.end();
        // Under the lock, so that no thread starts to wait between the two.
        let _early = self.early();
        self.settled.notify_all();
    }

    /// Makes [`Fill::run`] look whether the pages are still in the page cache, because another program starts. Nobody waits
    /// for that. Programs that come during a look or a fill cause one look together.
    pub(crate) fn look_again(&self) {
        self.joined.store(true, Ordering::Relaxed);
        // As in `end`.
        let _early = self.early();
        self.settled.notify_all();
    }

    /// Takes an answer of the kernel: see [`FillTarget::ask_whether_cached`].
    pub(crate) fn hear(&self, question: u64, is_cached: bool) {
        self.sample.hear(question, is_cached);
    }

    /// Waits until all reads so far were looked up in the pack, or there is no pack. A short program may end
    /// before its pack is open.
    pub(crate) fn settle(&self, at_most: Duration) {
        let unsettled = |early: &mut Option<Vec<Read>>| early.is_some() && !self.is_over();
        drop(
            self.settled
                .wait_timeout_while(self.early(), at_most, unsettled),
        );
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Fills, in this thread and in others that end with it. Then fills again what the kernel drops, whenever a program
    /// comes, until the fill must end.
    pub(crate) fn run(
        &self,
        target: &dyn FillTarget,
        image: &Image,
        counters: &FillCounters,
        missed: Missed<'_>,
    ) {
        let Some(opened) = self.begin(target, image, counters, missed) else {
            return;
        };
        thread::scope(|scope| {
            if let Some(comparison) = &opened.comparison {
                let compare = || {
                    self.wait_for_the_launch();
                    self.unless_it_panics(|| self.compare(&opened.pack, image, comparison));
                };
                // A thread of its own, because its priority stays low. Without it, the next session compares.
                let thread = thread::Builder::new().name("brisk-compare".into());
                thread.spawn_scoped(scope, compare).ok();
            }
            while self.wait_for_a_program() {
                self.unless_it_panics(|| self.look(&opened, target, image, counters));
                counters.looked();
            }
        });
    }

    /// The first fill. None if nothing can be filled.
    fn begin(
        &self,
        target: &dyn FillTarget,
        image: &Image,
        counters: &FillCounters,
        missed: Missed<'_>,
    ) -> Option<OpenPack> {
        let filled = self.unless_it_panics(|| {
            let opened = self.open(target, image, counters, missed)?;
            self.fill(&opened, &opened.file, target, image, counters, false);
            Some(opened)
        });
        *self.early() = None;
        self.settled.notify_all();
        counters.over(self.started);
        filled.flatten()
    }

    /// Waits until a program has come since the last look. False if the fill must end.
    fn wait_for_a_program(&self) -> bool {
        let nobody =
            |_: &mut Option<Vec<Read>>| !self.is_over() && !self.joined.load(Ordering::Relaxed);
        drop(self.settled.wait_while(self.early(), nobody));
        self.joined.store(false, Ordering::Relaxed);
        !self.is_over()
    }

    /// Fills again what the kernel has dropped.
    fn look(
        &self,
        opened: &OpenPack,
        target: &dyn FillTarget,
        image: &Image,
        counters: &FillCounters,
    ) {
        let Some(pages) = self.pages.get() else {
            return;
        };
        let parts = pages.sample(SAMPLE);
        let asked: Vec<_> = parts.iter().map(|part| (part.node, part.page)).collect();
        let gone = self.sample.gone(&asked, target);
        let gone: Vec<_> = parts.iter().zip(gone).filter(|(_, gone)| *gone).collect();
        if !is_much(gone.len(), parts.len()) || self.is_over() {
            return;
        }
        for (part, _) in gone {
            pages.forget(part);
        }
        match opened.file.again(&opened.pack) {
            Ok(file) => {
                self.fill(opened, &file, target, image, counters, true);
                counters.filled_again();
            }
            Err(e) => {
                let cause = Cause::io("hold the hot pack", e);
                (self.tell)(&Error::new(Action::Fill, cause));
            }
        }
    }

    /// A fault of this program must not end the server.
    fn unless_it_panics<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let result = catch_unwind(AssertUnwindSafe(work));
        if result.is_err() {
            let cause = Cause::io("finish", io::Error::other("it panicked"));
            (self.tell)(&Error::new(Action::Fill, cause));
        }
        result.ok()
    }

    /// Waits until most launches are over, because they need the processors first.
    fn wait_for_the_launch(&self) {
        let wait = |_: &mut Option<Vec<Read>>| !self.is_over();
        drop(
            self.settled
                .wait_timeout_while(self.early(), COMPARE_AFTER, wait),
        );
    }

    /// Compares the frames of a pack with the image, for later sessions.
    fn compare(&self, pack: &HotPack, image: &Image, comparison: &Comparison) {
        // Of this thread, and of those that it starts. What cannot be made slower is made all the same.
        nice(LEAST_PRIORITY).ok();
        let ended = Arc::clone(&self.ended);
        let work =
            Work::default()
                .threads(1)
                .progress(move |_| match ended.load(Ordering::Relaxed) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                });
        // Whether the pack belongs to the image was found out before the fill.
        let checked = pack.verify(&Origin::image(image), &work, |_| {});
        let tell = |cause| (self.tell)(&Error::new(Action::Fill, cause));
        match checked {
            Ok(checked) if checked.faults > 0 => {
                let text = format!(
                    "{} of its frames have other contents than the image, so brisk reads its pages from the image",
                    checked.faults
                );
                tell(Cause::image(text).advise(Advice::PackAgain));
            }
            Ok(_) => {
                let kept = match self.keeper.get() {
                    Some(keeper) => keeper(comparison.pair()),
                    None => comparison.keep(),
                };
                if let Err(e) = kept {
                    tell(Cause::io("keep that the hot pack was compared", e));
                }
            }
            // The session ends, or the next one tries again.
            Err(_) => {}
        }
    }

    /// Opens the pack, and counts the reads so far. None if there is no usable pack.
    fn open(
        &self,
        target: &dyn FillTarget,
        image: &Image,
        counters: &FillCounters,
        missed: Missed<'_>,
    ) -> Option<OpenPack> {
        let opened = loop {
            let mut absent = None;
            let tell = |why: Error| match Absent::of(&why) {
                Some(found) => absent = Some(found.clone()),
                None => (self.tell)(&why),
            };
            let opened = open_first(&self.candidates, image, || self.is_over(), tell);
            let comes = |absent| {
                let is_over = &|| self.is_over();
                self.sources.wait_for(&absent, Class::Tables, is_over)
            };
            match opened {
                Some(opened) => break opened,
                None if absent.is_some_and(comes) => {}
                None => return None,
            }
        };
        let pack = &opened.pack;
        counters.pack(pack.launch_pages());
        if let Some(log) = &self.log {
            let of = |file: HotFile<'_>| Some((target.node(file.inode()?), file.path().to_owned()));
            log.know(pack.files().filter_map(of));
        }
        {
            let mut early = self.early();
            let node = |inode| target.node(inode);
            let pages = self.pages.get_or_init(|| PageStates::of(pack, node));
            self.frames.get_or_init(|| DecodedFrames::of(pack));
            if let Some(arriving) = self.sources.of_pack().filter(|_| opened.arrives) {
                let (launch, neighbours) = opened.file.frames(pack);
                arriving.want(&launch, Class::Pack);
                arriving.want(&neighbours, Class::Neighbours);
                self.pack_start
                    .get_or_init(|| opened.file.in_file(&(0..0)).start);
            }
            if opened.uses_frames && (pack.codec() == Codec::Lz4 || opened.arrives) {
                self.late.get_or_init(|| LatePages::of(pack));
            }
            for read in early.take().into_iter().flatten() {
                count(pages, counters, missed, read);
            }
        }
        self.settled.notify_all();
        Some(opened)
    }

    /// Stores what nobody has asked for and nobody has stored. `file` is that of the pack. `again`: this is not the first
    /// fill.
    fn fill(
        &self,
        opened: &OpenPack,
        file: &PackFile,
        target: &dyn FillTarget,
        image: &Image,
        counters: &FillCounters,
        again: bool,
    ) {
        let pack = &opened.pack;
        let (Some(pages), Some(frames), Some(root)) =
            (self.pages.get(), self.frames.get(), self.open_root())
        else {
            return;
        };
        let of_image = || {
            let block_size = u64::from(image.block_size());
            ImageBlocks::of(pack, block_size, page_size() as u64)
        };
        let blocks = (!opened.uses_frames).then(of_image);
        let work = FillWork {
            target,
            image,
            root: root.fd(),
            pack,
            file,
            blocks: blocks.as_ref(),
            frames,
            pages,
            counters,
            log: self.log.as_ref(),
            tell: self.tell,
            started: self.started,
            sources: &self.sources,
            pack_source: self.sources.of_pack().filter(|_| opened.arrives),
            again,
            ended: &self.ended,
            progress: Progress::of(pack.files().len(), budget(self.budget, free_memory())),
        };
        frames.keep_many();
        self.work(&work);
        file.forget();
        frames.keep_one();
    }

    /// Does the work in this thread and others. If threads cannot be started, it works without them: names
    /// are also looked up for each file, and this thread reads frames that no other thread has read.
    fn work(&self, work: &FillWork<'_>) {
        thread::scope(|scope| {
            let prime = thread::Builder::new().name("brisk-prime".into());
            prime.spawn_scoped(scope, || work.prime()).ok();
            if let Some(arriving) = work.sources.image.as_deref().filter(|_| !work.again) {
                let near = thread::Builder::new().name("brisk-near".into());
                // Without it, a launch with another input waits more often.
                near.spawn_scoped(scope, || work.want_more(arriving)).ok();
            }
            let store = || thread::Builder::new().name("brisk-fill".into());
            if let Some(blocks) = work.blocks {
                for _ in 1..self.threads {
                    let store_blocks = || work.store_blocks(blocks);
                    store().spawn_scoped(scope, store_blocks).ok();
                }
                return work.store_blocks(blocks);
            }
            let (ring, batches) = Batches::ring();
            // Ends at once if the pack is not read with direct reads.
            let read = thread::Builder::new().name("brisk-read".into());
            read.spawn_scoped(scope, move || work.read_batches(&ring))
                .ok();
            for _ in 1..self.threads {
                let batches = batches.clone();
                let store_frames = || work.store_frames(batches);
                store().spawn_scoped(scope, store_frames).ok();
            }
            work.store_frames(batches);
        });
    }

    fn open_root(&self) -> Option<OpenRoot<'_>> {
        let path = match self.root.as_ref()? {
            FillRoot::Held(fd) => return Some(OpenRoot::Held(fd.as_fd())),
            FillRoot::At(path) => path,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Some(OpenRoot::Opened(fd)),
            Err(e) => {
                let cause = Cause::io("open the mount", e);
                (self.tell)(&Error::new(Action::Fill, cause).with_path(path));
                None
            }
        }
    }
}

/// Counts a read.
fn count(pages: &PageStates, counters: &FillCounters, missed: Missed<'_>, (node, range): Read) {
    let asked = pages.ask(node, range.clone());
    counters.asked(asked);
    if asked.is_outside() {
        missed(node, range);
    }
}

enum OpenRoot<'a> {
    Held(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl OpenRoot<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Held(fd) => *fd,
            Self::Opened(fd) => fd.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::AtomicU64;

    use brisk_image::hot_pack::{HotPackWriter, Prefer};
    use brisk_image::profile::{Named, Profile, ProfileBuilder, RootKind};
    use brisk_image::{Compression, ImageWriter, InodeRef, Limits, OpenOptions, Tree, TreeRules};
    use brisk_io::ByteSource;
    use rustix::io::Errno;

    use super::*;

    /// A number that no file has for the kernel.
    const NOBODY: u64 = u64::MAX;

    /// Bytes of the two files. The last page of one is not full.
    const SMALL: u64 = 3 * PAGE + 100;
    const LARGE: u64 = 1100 * PAGE;

    /// A page cache that takes what the test allows.
    struct Cache {
        takes: fn(u64) -> Result<(), Errno>,
        stored: Mutex<BTreeMap<(u64, u64), Vec<u8>>>,
        /// Nodes that it has forgotten.
        forgotten: Vec<u64>,
        /// Where it answers questions. None if it does not.
        hears: Option<Arc<Fill>>,
    }

    impl FillTarget for Cache {
        fn node(&self, inode: InodeRef) -> u64 {
            inode.to_word()
        }

        fn store(&self, node: u64, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
            (self.takes)(offset)?;
            let mut stored = self.stored.lock().expect("nobody panics");
            for (page, bytes) in (offset / PAGE..).zip(bytes.chunks(PAGE as usize)) {
                stored.insert((node, page), bytes.to_vec());
            }
            Ok(())
        }

        fn ask_whether_cached(&self, question: u64, node: u64, offset: u64) -> Result<(), Errno> {
            if self.forgotten.contains(&node) {
                return Err(Errno::NOENT);
            }
            let stored = self.stored.lock().expect("nobody panics");
            let fill = self.hears.as_ref().ok_or(Errno::NODEV)?;
            fill.hear(question, stored.contains_key(&(node, offset / PAGE)));
            Ok(())
        }
    }

    /// An image of two files whose pack has all of their pages. The tree stands for its mount.
    struct Mounted {
        directory: tempfile::TempDir,
        image: Image,
        small: u64,
        large: u64,
    }

    /// The results of a fill.
    struct Filled {
        cache: Cache,
        counters: FillCounters,
        missed: Mutex<Vec<Read>>,
    }

    fn contents(len: u64) -> Vec<u8> {
        (0..len)
            .map(|at| (at / 7) as u8 ^ (at / PAGE) as u8)
            .collect()
    }

    /// A launch that asks for all of the two files.
    fn profile(tree: &std::path::Path) -> Profile {
        let builder = ProfileBuilder::new();
        let root = builder.add_root(tree, RootKind::Directory);
        let files = [("app", SMALL), ("lib/large", LARGE)];
        for (node, (_, len)) in (0..).zip(files) {
            builder.range(root, node, 0, len, Duration::ZERO);
        }
        let named = |_, node: u64| {
            let (path, len) = files.get(usize::try_from(node).ok()?)?;
            Some(Named::new(path, *len))
        };
        let built = builder.finish(vec!["app".into()], None, named);
        built.expect("two files").profile
    }

    fn mounted() -> Mounted {
        let directory = tempfile::tempdir().expect("a directory");
        let tree = directory.path().join("tree");
        std::fs::create_dir_all(tree.join("lib")).expect("room");
        std::fs::write(tree.join("app"), contents(SMALL)).expect("room");
        std::fs::write(tree.join("lib/large"), contents(LARGE)).expect("room");
        let profile = profile(&tree);
        let path = directory.path().join("image");
        let packed = Tree::from_directory(&tree, &TreeRules::default()).expect("a tree");
        ImageWriter::new()
            .hot_pack(profile, Prefer::Speed)
            .write(&packed, &path)
            .expect("room");
        let file = File::open(&path).expect("made");
        let image = Image::from_source(file, &OpenOptions::new()).expect("an image");
        let node = |path: &str| {
            let found = image.lookup(path).expect("an image");
            found.expect("there").reference().to_word()
        };
        Mounted {
            small: node("app"),
            large: node("lib/large"),
            directory,
            image,
        }
    }

    impl Mounted {
        fn fill(&self) -> Fill {
            let path = self.directory.path().join("image");
            let file = File::open(&path).expect("made");
            let root = FillRoot::At(self.directory.path().join("tree"));
            let candidates = vec![PackCandidate::behind(path, file)];
            Fill::new(candidates, |e| panic!("{e}")).at(root)
        }

        /// Runs `fill` with a cache that accepts stores as `takes` says, after the kernel has asked for
        /// `early`.
        fn run(&self, fill: &Fill, takes: fn(u64) -> Result<(), Errno>, early: &[Read]) -> Filled {
            let filled = Filled {
                cache: Cache {
                    takes,
                    stored: Mutex::default(),
                    forgotten: Vec::new(),
                    hears: None,
                },
                counters: FillCounters::default(),
                missed: Mutex::default(),
            };
            let missed = |node, range| filled.missed.lock().expect("alive").push((node, range));
            for (node, range) in early {
                let size = (range.end - range.start) * PAGE;
                let size = u32::try_from(size).expect("short");
                fill.asked(&filled.counters, &missed, *node, range.start * PAGE, size);
            }
            fill.begin(&filled.cache, &self.image, &filled.counters, &missed);
            filled
        }
    }

    impl Filled {
        /// The pages of a file that were stored. They must have the contents of the file.
        fn pages(&self, node: u64, len: u64) -> Vec<u64> {
            let bytes = contents(len);
            let stored = self.cache.stored.lock().expect("alive");
            let of_file = stored.iter().filter(|((of, _), _)| *of == node);
            let pages = of_file.map(|((_, page), stored)| {
                let start = usize::try_from(page * PAGE).expect("short");
                let end = bytes.len().min(start + PAGE as usize);
                assert!(stored[..] == bytes[start..end], "page {page}");
                *page
            });
            pages.collect()
        }
    }

    #[test]
    fn all_pages_of_a_pack_are_stored() {
        let mounted = mounted();
        let filled = mounted.run(&mounted.fill(), |_| Ok(()), &[]);
        assert_eq!(filled.pages(mounted.small, SMALL), [0, 1, 2, 3]);
        assert_eq!(filled.pages(mounted.large, LARGE).len(), 1100);
        let counts = filled.counters.counts();
        assert_eq!((counts.pack, counts.stored), (1104, 1104));
        assert!(!counts.gave_up);
        assert!(counts.over >= counts.last && counts.last >= counts.first);
    }

    /// A page cache for which a program asks for pages around those that are stored. A store waits for the answers, as the
    /// kernel's does.
    struct Asking {
        fill: Arc<Fill>,
        large: u64,
        contents: Vec<u8>,
        answered: AtomicU64,
    }

    impl Asking {
        fn ask(&self, bytes: Range<u64>) {
            let right = &self.contents[bytes.start as usize..bytes.end as usize];
            let is_right = |slices: &[IoSlice<'_>]| {
                let sent: Vec<u8> = slices.iter().flat_map(|s| s.to_vec()).collect();
                sent == right
            };
            let answer = self.fill.late(self.large, bytes, LARGE, is_right);
            assert_eq!(answer, Some(true));
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl FillTarget for Asking {
        fn node(&self, inode: InodeRef) -> u64 {
            inode.to_word()
        }

        fn store(&self, node: u64, offset: u64, _: &[u8]) -> Result<(), Errno> {
            let starts = [offset, offset + 8 * PAGE, offset + 40 * PAGE];
            let asked = starts.map(|start| start..LARGE.min(start + 32 * PAGE));
            thread::scope(|scope| {
                for bytes in asked {
                    if node == self.large && !bytes.is_empty() {
                        scope.spawn(|| self.ask(bytes));
                    }
                }
            });
            Ok(())
        }

        fn ask_whether_cached(&self, _: u64, _: u64, _: u64) -> Result<(), Errno> {
            Err(Errno::NODEV)
        }
    }

    #[test]
    fn a_program_gets_answers_from_the_frames_that_are_being_stored() {
        let mounted = mounted();
        let cache = Asking {
            fill: Arc::new(mounted.fill()),
            large: mounted.large,
            contents: contents(LARGE),
            answered: AtomicU64::new(0),
        };
        let (done, waiting) = std::sync::mpsc::channel();
        // Nobody joins it, because it may wait for ever.
        thread::spawn(move || {
            let counters = FillCounters::default();
            let fill = Arc::clone(&cache.fill);
            fill.begin(&cache, &mounted.image, &counters, &|_, _| {});
            done.send(cache.answered.into_inner()).ok();
        });
        let answered = waiting.recv_timeout(Duration::from_secs(60));
        let answered = answered.expect("all answers are right, and no store waits for ever");
        assert!(answered > LARGE / PAGE / 32);
    }

    #[test]
    fn an_answer_of_many_frames_comes_from_the_image() {
        let mounted = mounted();
        let fill = mounted.fill();
        mounted.run(&fill, |_| Ok(()), &[]);
        let answered = |bytes| fill.late(mounted.large, bytes, LARGE, |_| ());
        assert_eq!(answered(0..1 << 20), Some(()));
        assert_eq!(answered(0..LARGE), None);
    }

    #[test]
    fn what_was_asked_for_before_is_left_out() {
        let mounted = mounted();
        let (small, large) = (mounted.small, mounted.large);
        let early = [(small, 1..3), (large, 1100..1102), (NOBODY, 0..1)];
        let filled = mounted.run(&mounted.fill(), |_| Ok(()), &early);
        assert_eq!(filled.pages(small, SMALL), [0, 3]);
        let counts = filled.counters.counts();
        assert_eq!((counts.late, counts.strayed, counts.evicted), (2, 3, 0));
        let missed = filled.missed.lock().expect("alive");
        assert_eq!(*missed, [(large, 1100..1102), (NOBODY, 0..1)]);
    }

    #[test]
    fn frames_whose_pages_were_all_asked_for_are_not_decoded() {
        let mounted = mounted();
        let fill = mounted.fill().threads(1);
        let early = [(mounted.large, 0..1092)];
        let filled = mounted.run(&fill, |_| Ok(()), &early);
        let counts = filled.counters.counts();
        // Otherwise it would have given up after 4 MiB.
        assert_eq!(counts.stored, 4 + 8);
        assert!(!counts.gave_up);
    }

    #[test]
    fn a_fill_ends_with_its_budget() {
        let mounted = mounted();
        let fill = mounted.fill().budget(Some(100 * PAGE)).threads(1);
        let filled = mounted.run(&fill, |_| Ok(()), &[]);
        let counts = filled.counters.counts();
        assert!(counts.gave_up);
        assert!((1..=100).contains(&counts.stored), "{}", counts.stored);
    }

    #[test]
    fn what_the_kernel_does_not_take_counts_as_decoded_in_vain() {
        let mounted = mounted();
        let filled = mounted.run(&mounted.fill(), |_| Err(Errno::NOMEM), &[]);
        let counts = filled.counters.counts();
        assert_eq!((counts.stored, counts.gave_up), (0, true));
        // If the connection has ended, the fill did not give up.
        let filled = mounted.run(&mounted.fill(), |_| Err(Errno::NODEV), &[]);
        let counts = filled.counters.counts();
        assert_eq!((counts.stored, counts.gave_up), (0, false));
    }

    #[test]
    fn a_file_that_is_not_in_the_mount_is_left_out() {
        let mounted = mounted();
        std::fs::remove_file(mounted.directory.path().join("tree/app")).expect("there");
        let filled = mounted.run(&mounted.fill(), |_| Ok(()), &[]);
        assert_eq!(filled.pages(mounted.small, SMALL), [0; 0]);
        assert_eq!(filled.counters.counts().stored, 1100);
    }

    /// Fills, lets `lose` change the cache, and looks. Returns how often it filled again, and how many pages.
    fn look_after(
        mounted: &Mounted,
        lose: impl FnOnce(&mut Cache, &Mounted),
    ) -> (Filled, u64, u64) {
        let fill = Arc::new(mounted.fill());
        let mut filled = mounted.run(&fill, |_| Ok(()), &[(mounted.small, 0..1)]);
        filled.cache.hears = Some(Arc::clone(&fill));
        // What was asked for is there, too.
        let asked = contents(PAGE);
        let stored = filled.cache.stored.get_mut().expect("nobody panics");
        stored.insert((mounted.small, 0), asked);
        lose(&mut filled.cache, mounted);
        let missed = |_, _| {};
        thread::scope(|scope| {
            scope.spawn(|| fill.run(&filled.cache, &mounted.image, &filled.counters, &missed));
            fill.look_again();
            let deadline = Instant::now() + Duration::from_secs(20);
            while filled.counters.counts().looks == 0 && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            fill.end();
        });
        let counts = filled.counters.counts();
        assert_eq!((counts.looks, counts.stored), (1, 1103));
        (filled, counts.refills, counts.refilled)
    }

    #[test]
    fn what_has_left_memory_is_stored_again() {
        let mounted = mounted();
        let (filled, refills, pages) = look_after(&mounted, |cache, mounted| {
            let mut stored = cache.stored.lock().expect("alive");
            stored.retain(|(node, page), _| *node != mounted.large || *page < 550);
        });
        // The part with the first page that is gone is left out: its own first page is there.
        assert_eq!((refills, pages), (1, 528));
        let stored = filled.pages(mounted.large, LARGE);
        assert_eq!(
            stored,
            [(0..550), (572..1100)]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn files_that_the_kernel_has_forgotten_are_stored_again() {
        let (_, refills, pages) = look_after(&mounted(), |cache, mounted| {
            cache.forgotten = vec![mounted.small, mounted.large];
        });
        // The page that was asked for has gone with the others.
        assert_eq!((refills, pages), (1, 1104));
    }

    #[test]
    fn nothing_is_stored_again_if_little_or_nothing_is_gone_or_nobody_says_so() {
        type Lose = fn(&mut Cache, &Mounted);
        let lose: [(&str, Lose); 3] = [
            ("nothing", |_, _| {}),
            ("little", |cache, mounted| {
                let mut stored = cache.stored.lock().expect("alive");
                stored.retain(|(node, page), _| *node != mounted.large || *page < 1040);
            }),
            ("not known", |cache, _| cache.hears = None),
        ];
        for (what, lose) in lose {
            let (_, refills, pages) = look_after(&mounted(), lose);
            assert_eq!((refills, pages), (0, 0), "{what}");
        }
    }

    /// What a read does that fails.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Fault {
        /// The disk is broken.
        Error,
        /// The file ends here.
        End,
        /// One byte comes, which is no failure.
        OneByte,
    }

    /// How the disk fails that the image and its pack are on.
    struct Disk {
        calls: AtomicU64,
        /// The number of the call that fails.
        at: AtomicU64,
        fault: Fault,
    }

    /// A file on the disk.
    struct OnDisk {
        bytes: Vec<u8>,
        disk: Arc<Disk>,
    }

    impl ByteSource for OnDisk {
        fn size(&self) -> io::Result<u64> {
            self.bytes.size()
        }

        fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            let call = self.disk.calls.fetch_add(1, Ordering::Relaxed);
            let mut len = buf.len();
            if call == self.disk.at.load(Ordering::Relaxed) {
                match self.disk.fault {
                    Fault::Error => return Err(Errno::IO.into()),
                    Fault::End => return Ok(0),
                    Fault::OneByte => len = len.min(1),
                }
            }
            self.bytes.read_bytes_at(offset, &mut buf[..len])
        }
    }

    /// An image, and a pack beside it, whose table belongs to the image.
    struct Pair {
        directory: tempfile::TempDir,
        image: Vec<u8>,
        pack: Vec<u8>,
    }

    impl Pair {
        /// A `forged` pack has other bytes in a page of a file.
        fn new(forged: bool) -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let path = |name: &str| directory.path().join(name);
            std::fs::create_dir_all(path("tree/lib")).expect("room");
            std::fs::write(path("tree/app"), contents(SMALL)).expect("room");
            std::fs::write(path("tree/lib/large"), contents(LARGE)).expect("room");
            let rules = TreeRules::default().times(brisk_image::rules::Times::All(1));
            let pack = |image: &str| {
                let tree = Tree::from_directory(path("tree"), &rules).expect("a tree");
                // Then the length of what is stored does not depend on the contents.
                let writer = ImageWriter::new().compression(Compression::None);
                writer.write(&tree, path(image)).expect("room");
                Image::open(path(image)).expect("an image")
            };
            let image = pack("image");
            let of_pack = if forged {
                let mut other = contents(LARGE);
                other[700 * PAGE as usize] ^= 1;
                std::fs::write(path("tree/lib/large"), other).expect("room");
                pack("other")
            } else {
                image.clone()
            };
            HotPackWriter::new()
                .write(
                    &profile(&path("tree")),
                    &Origin::image(&of_pack),
                    path("hot"),
                )
                .expect("room");
            let read = |name: &str| std::fs::read(path(name)).expect("written");
            Self {
                image: read("image"),
                pack: read("hot"),
                directory,
            }
        }

        /// Compares the two while call `at` fails. Returns whether brisk would keep that they are equal, and how many
        /// calls there were.
        fn compare(&self, at: u64, fault: Fault) -> (bool, u64) {
            let disk = Arc::new(Disk {
                calls: AtomicU64::new(0),
                at: AtomicU64::new(u64::MAX),
                fault,
            });
            let on_disk = |bytes: &[u8]| OnDisk {
                bytes: bytes.to_vec(),
                disk: Arc::clone(&disk),
            };
            let image = Image::from_source(on_disk(&self.image), &OpenOptions::new());
            let image = image.expect("an image");
            let pack = HotPack::from_source(on_disk(&self.pack), &Limits::default());
            let pack = pack.expect("a pack");
            assert!(pack.is_of(&image).expect("no fault yet"));

            let file = |name: &str| File::open(self.directory.path().join(name)).expect("written");
            let (file_of_image, file_of_pack) = (file("image"), file("hot"));
            // Then no result is kept in the cache of whoever runs this.
            let of_all = std::fs::Permissions::from_mode(0o666);
            file_of_pack.set_permissions(of_all).expect("ours");
            let comparison = Comparison::wanted(&file_of_image, 0, &file_of_pack);
            let comparison = comparison.expect("files").expect("not made before");

            let root = FillRoot::At(self.directory.path().join("tree"));
            let fill = Fill::new(Vec::new(), |_| {}).at(root);
            let kept = Arc::new(AtomicBool::new(false));
            let keeper = Arc::clone(&kept);
            fill.keep_comparisons_by(Box::new(move |_| {
                keeper.store(true, Ordering::Relaxed);
                Ok(())
            }));
            disk.calls.store(0, Ordering::Relaxed);
            disk.at.store(at, Ordering::Relaxed);
            // It makes its thread slower.
            thread::scope(|scope| {
                scope.spawn(|| fill.compare(&pack, &image, &comparison));
            });
            let calls = disk.calls.load(Ordering::Relaxed);
            (kept.load(Ordering::Relaxed), calls)
        }
    }

    #[test]
    fn a_comparison_that_meets_an_error_at_any_call_is_not_kept() {
        let pair = Pair::new(false);
        let (kept, calls) = pair.compare(u64::MAX, Fault::Error);
        assert!(kept && calls > 20, "{calls} calls");
        for fault in [Fault::Error, Fault::End, Fault::OneByte] {
            for at in 0..calls {
                let (kept, _) = pair.compare(at, fault);
                assert_eq!(kept, fault == Fault::OneByte, "{fault:?} at call {at}");
            }
        }
    }

    #[test]
    fn no_fault_makes_a_forged_pack_one_that_was_compared() {
        let pair = Pair::new(true);
        let (kept, calls) = pair.compare(u64::MAX, Fault::Error);
        assert!(!kept && calls > 20, "{calls} calls");
        for fault in [Fault::Error, Fault::End, Fault::OneByte] {
            for at in 0..calls {
                assert!(!pair.compare(at, fault).0, "{fault:?} at call {at}");
            }
        }
    }
}
