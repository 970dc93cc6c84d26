//! Putting the pages of a hot pack into the page cache before a program asks for them.
//!
//! The threads that do so never answer requests, and nobody waits for them: one makes the kernel
//! know the names that a launch looks up, the others decode and store, in about the order in which the
//! launch asks. What the program has asked for by itself is left out, so that a fill which comes
//! late catches up.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::hot_pack::{HotFile, HotFrame, HotPack};
use brisk_image::profile::{PAGE, PageRange};
use brisk_image::{Codec, ErrorKind, Image, InodeKind, InodeRef, Limits};
use brisk_io::page_size;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use rustix::io::Errno;

use super::ahead::whole_pages;
use super::channel::Channel;
use super::pack_source::{Batches, ReadRing, Source};
use super::recorder::Recorder;
use super::served::Served;
use super::wire::ROOT;
use crate::beneath::{Reach, open_by_components};
use crate::error::{Action, Cause, Error, Result};
use crate::memory::free_memory;
use crate::page_log::PageLog;

/// Bytes of the header of a section, which stands before a pack behind an image.
const SECTION_HEADER: u64 = 64;

/// Bytes decoded one after the other of which the program had asked for everything by the time
/// that they were decoded. After them the fill is given up: it only takes time from the program.
const IN_VAIN: u64 = 4 << 20;

/// Reads that are remembered until the pack is known.
const EARLY: usize = 1 << 14;

/// Pages of a pack that is used, at most: 16 GiB.
const MOST_PAGES: u64 = 1 << 22;

/// Directories that are held at once while names are looked up.
const DIRECTORIES: usize = 128;

/// What may have become of a page: the kernel asked for it, or it was stored.
const ASKED: u8 = 1;
const STORED: u8 = 2;

/// Where a hot pack may be.
#[derive(Debug)]
pub enum PackPlace {
    /// In a file of its own.
    Beside {
        /// Its name, for messages.
        path: PathBuf,
        /// It.
        file: File,
        /// Why it may be of others than the image, in which case it is not used.
        of_others: Option<String>,
    },
    /// Behind the image.
    Behind {
        /// The image's name, for messages.
        path: PathBuf,
        /// Its file.
        file: File,
    },
}

/// How the mount is reached, so that the kernel gets to know what is in it.
#[derive(Debug)]
pub enum FillRoot {
    /// Its root directory, opened as a path only.
    Held(OwnedFd),
    /// The directory that it is mounted on.
    At(PathBuf),
}

/// A fill that was not begun yet: see [`ServeOptions::fill`](super::options::ServeOptions::fill).
pub struct Fill {
    places: Vec<PackPlace>,
    root: FillRoot,
    budget: Option<u64>,
    /// Threads that decode and store, where they are not as many as usual.
    threads: Option<usize>,
    tell: fn(&Error),
    started: Instant,
    asked: OnceLock<Pages>,
    /// Reads from before `asked` is there; none once it is or nothing will be filled.
    early: Mutex<Option<Vec<Asked>>>,
    log: Option<PageLog>,
    /// `early` became none, or the fill is to end.
    settled: Condvar,
    ended: AtomicBool,
}

/// A node and the pages of it that the kernel asked for.
type Asked = (u64, Range<u64>);

impl std::fmt::Debug for Fill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fill")
            .field("places", &self.places)
            .field("root", &self.root)
            .field("budget", &self.budget)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl Fill {
    /// A fill of the mount with this `root`, from the first of `places` that has a pack of the
    /// image. `tell` gets the reason for each pack that cannot be used.
    pub fn new(places: Vec<PackPlace>, root: FillRoot, tell: fn(&Error)) -> Self {
        Self {
            places,
            root,
            budget: None,
            threads: None,
            tell,
            started: Instant::now(),
            asked: OnceLock::new(),
            early: Mutex::new(Some(Vec::new())),
            log: None,
            settled: Condvar::new(),
            ended: AtomicBool::new(false),
        }
    }

    /// Stores pages of at most this many bytes; half of the free memory is a bound always.
    pub fn budget(mut self, bytes: Option<u64>) -> Self {
        self.budget = bytes;
        self
    }

    /// The threads that decode and store. 1, and 2 of a pack whose codec takes its time to decode.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    fn threads_for(&self, codec: Codec) -> usize {
        self.threads.unwrap_or(match codec {
            Codec::Lz4 => 1,
            _ => 2,
        })
    }

    /// Writes what was stored when, and what was asked for, to `file` when the server ends.
    pub(crate) fn log(mut self, file: File) -> Self {
        self.log = Some(PageLog::new(file));
        self
    }

    pub(super) fn write_log(&self) {
        if let Some(Err(e)) = self.log.as_ref().map(PageLog::write) {
            let cause = Cause::io("write what was filled", e);
            (self.tell)(&Error::new(Action::Fill, cause));
        }
    }

    /// Takes note that the kernel asks for `size` bytes at `offset` of a node. `missed` records it
    /// if nothing of it is in the pack: what stands around a page that is in it, the kernel may have
    /// read ahead.
    pub(super) fn asked(
        &self,
        served: &Served,
        missed: Option<&Recorder>,
        nodeid: u64,
        offset: u64,
        size: u32,
    ) {
        let pages = offset / PAGE..offset.saturating_add(size.into()).div_ceil(PAGE);
        if let Some(log) = &self.log {
            log.add(false, nodeid, pages.clone());
        }
        let ask = |known: &Pages, pages: Range<u64>| {
            if !known.ask(served, nodeid, Range::clone(&pages))
                && let Some(missed) = missed
            {
                missed.read_pages(nodeid, pages);
            }
        };
        if let Some(known) = self.asked.get() {
            return ask(known, pages);
        }
        if let Some(early) = &mut *self.early() {
            if early.len() < EARLY {
                early.push((nodeid, pages));
            }
            return;
        }
        // The pack became known meanwhile, or there is none.
        if let Some(known) = self.asked.get() {
            ask(known, pages);
        }
    }

    fn early(&self) -> MutexGuard<'_, Option<Vec<Asked>>> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes [`Fill::run`] end.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        // Under the lock, so that nobody goes to sleep meanwhile.
        let _early = self.early();
        self.settled.notify_all();
    }

    /// Waits until all reads so far were looked up in the pack, or there is none: a short program
    /// has ended before its pack is open.
    pub(crate) fn settle(&self, at_most: Duration) {
        let unsettled = |early: &mut Option<Vec<Asked>>| early.is_some() && !self.is_over();
        drop(
            self.settled
                .wait_timeout_while(self.early(), at_most, unsettled),
        );
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Fills, in this thread and others that end with it.
    pub(super) fn run(
        &self,
        channel: Channel<'_>,
        image: &Image,
        served: &Served,
        missed: Option<&Recorder>,
    ) {
        let filled = || self.fill(channel, image, served, missed);
        let filled = catch_unwind(AssertUnwindSafe(filled));
        // A fault of this program is no reason to end the server.
        if filled.is_err() {
            let cause = Cause::io("finish", io::Error::other("it panicked"));
            (self.tell)(&Error::new(Action::Fill, cause));
        }
        *self.early() = None;
        self.settled.notify_all();
        served.fill.over(self.started);
    }

    fn fill(
        &self,
        channel: Channel<'_>,
        image: &Image,
        served: &Served,
        missed: Option<&Recorder>,
    ) {
        let Some(chosen) = self.choose(image) else {
            return;
        };
        let most = match free_memory() {
            Some(free) => self.budget.unwrap_or(u64::MAX).min(free / 2),
            None => self.budget.unwrap_or(u64::MAX),
        };
        let pack = &chosen.pack;
        served.fill.pack(pack.pages());
        if let Some(log) = &self.log {
            let of = |file: HotFile<'_>| Some((nodeid_of(file.inode()?), file.path().to_owned()));
            log.know(pack.files().filter_map(of));
        }
        {
            let mut early = self.early();
            let pages = self.asked.get_or_init(|| Pages::of(pack));
            for (nodeid, range) in early.take().into_iter().flatten() {
                if !pages.ask(served, nodeid, range.clone())
                    && let Some(missed) = missed
                {
                    missed.read_pages(nodeid, range);
                }
            }
        }
        self.settled.notify_all();
        let (Some(pages), Some(root)) = (self.asked.get(), self.open_root()) else {
            return;
        };
        let work = Work {
            fill: self,
            channel,
            image,
            served,
            pack,
            pages,
            root: root.fd(),
            source: &chosen.source,
            files: (0..pack.files().len()).map(|_| OnceLock::new()).collect(),
            next: AtomicUsize::new(0),
            left: AtomicU64::new(most),
            vain: AtomicU64::new(0),
            over: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            // What cannot be started is done without: names are looked up for each file anyway.
            let work = &work;
            let prime = thread::Builder::new().name("brisk-prime".into());
            prime.spawn_scoped(scope, || work.prime()).ok();
            let (ring, batches) = Batches::ring();
            // Ends at once where nothing is read so.
            let read = thread::Builder::new().name("brisk-read".into());
            read.spawn_scoped(scope, move || work.read_batches(&ring))
                .ok();
            for _ in 1..self.threads_for(pack.codec()) {
                let store = thread::Builder::new().name("brisk-fill".into());
                let batches = batches.clone();
                store
                    .spawn_scoped(scope, || work.store_frames(batches))
                    .ok();
            }
            work.store_frames(batches);
        });
        chosen.source.forget();
    }

    fn open_root(&self) -> Option<OpenRoot<'_>> {
        let path = match &self.root {
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

    /// The first pack of the image. Those that cannot be used are told of.
    fn choose(&self, image: &Image) -> Option<Chosen> {
        for place in &self.places {
            if self.is_over() {
                return None;
            }
            match place.open(image) {
                Ok(Some(chosen)) => return Some(chosen),
                Ok(None) => {}
                Err(error) => (self.tell)(&error),
            }
        }
        None
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

/// A pack of the image that is served.
struct Chosen {
    pack: HotPack,
    source: Source,
}

impl PackPlace {
    /// None if there is no pack.
    fn open(&self, image: &Image) -> Result<Option<Chosen>> {
        let (Self::Beside { path, .. } | Self::Behind { path, .. }) = self;
        self.chosen(image)
            .map_err(|cause| Error::new(Action::Fill, cause).with_path(path))
    }

    fn chosen(&self, image: &Image) -> Result<Option<Chosen>, Cause> {
        let unreadable = |source| Cause::HotPack { source };
        let hold = |file: &File| {
            file.try_clone()
                .map_err(|e| Cause::io("hold the hot pack", e))
        };
        let (pack, file, start) = match self {
            Self::Beside {
                of_others: Some(why),
                ..
            } => return Err(Cause::HotPackOfOthers { why: why.clone() }),
            Self::Beside { file, .. } => {
                let pack = HotPack::from_source(hold(file)?, &Limits::default());
                (pack.map_err(unreadable)?, hold(file)?, 0)
            }
            Self::Behind { file, .. } => {
                let Some(pack) = image.hot_pack().map_err(unreadable)? else {
                    return Ok(None);
                };
                let start = image.hot_pack_start().map_err(unreadable)?;
                let start = start.map(|start| start.saturating_add(SECTION_HEADER));
                let start = start.unwrap_or(0).saturating_add(image.offset());
                (pack, hold(file)?, start)
            }
        };
        let source = Source::new(file, start, &pack);
        if !source.is_direct() {
            // While the identity is computed, which reads the image's tables.
            source.read_ahead_of(0);
        }
        if !pack.is_of(image).map_err(unreadable)? {
            return Err(Cause::HotPackOfAnother);
        }
        let pages = pack.pages();
        if pages > MOST_PAGES {
            let allowed = MOST_PAGES;
            return Err(Cause::HotPackLarge { pages, allowed });
        }
        Ok(Some(Chosen { pack, source }))
    }
}

/// The first pack of `image` in `places`, or why none is of use; none if there is none.
pub(crate) fn first_pack(places: &[PackPlace], image: &Image) -> Option<Result<HotPack>> {
    let mut ignored = None;
    for place in places {
        match place.open(image) {
            Ok(Some(chosen)) => return Some(Ok(chosen.pack)),
            Ok(None) => {}
            Err(error) => ignored = Some(Err(error)),
        }
    }
    ignored
}

/// What has become of the pages of a pack.
struct Pages {
    /// By node; its ranges in order: first page, the one behind the last, number of the first in
    /// `states`.
    files: HashMap<u64, Vec<(u64, u64, usize)>>,
    /// Where the pages of each range of the pack are in `states`.
    bases: Vec<usize>,
    states: Vec<AtomicU8>,
}

impl Pages {
    fn of(pack: &HotPack) -> Self {
        let nodes: Vec<_> = pack
            .files()
            .map(|file| file.inode().map(nodeid_of))
            .collect();
        let mut files: HashMap<u64, Vec<_>> = HashMap::new();
        let mut bases = Vec::with_capacity(pack.range_count());
        let mut sum = 0;
        for range in (0..pack.range_count()).map_while(|number| pack.range(number)) {
            bases.push(sum);
            if let Some(Some(node)) = nodes.get(range.file as usize) {
                let ranges = files.entry(*node).or_default();
                ranges.push((range.first, range.end(), sum));
            }
            // As many in all as the pack says that it has pages, which is bounded.
            sum += usize::try_from(range.count).unwrap_or(0);
        }
        for ranges in files.values_mut() {
            ranges.sort_unstable();
        }
        Self {
            files,
            bases,
            states: std::iter::repeat_with(AtomicU8::default)
                .take(sum)
                .collect(),
        }
    }

    fn state(&self, nodeid: u64, page: u64) -> Option<&AtomicU8> {
        let ranges = self.files.get(&nodeid)?;
        let behind = ranges.partition_point(|range| range.0 <= page);
        let (first, end, base) = *ranges.get(behind.checked_sub(1)?)?;
        let within = (page < end).then(|| page - first)?;
        self.states
            .get(base.checked_add(usize::try_from(within).ok()?)?)
    }

    /// Counts what is asked for. False if none of it is in the pack.
    fn ask(&self, served: &Served, nodeid: u64, pages: Range<u64>) -> bool {
        let (mut late, mut evicted, mut strayed) = (0, 0, 0);
        let asked = pages.end.saturating_sub(pages.start);
        for page in pages {
            match self.state(nodeid, page) {
                None => strayed += 1,
                Some(state) => match state.fetch_or(ASKED, Ordering::Relaxed) {
                    was if was & STORED != 0 => evicted += 1,
                    was if was & ASKED == 0 => late += 1,
                    _ => {}
                },
            }
        }
        served.fill.asked(late, evicted, strayed);
        strayed < asked
    }

    /// The pages of the range with this number.
    fn of_range(&self, number: usize, count: u64) -> &[AtomicU8] {
        let base = self.bases.get(number).copied().unwrap_or(usize::MAX);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.states
            .get(base..base.saturating_add(count))
            .unwrap_or(&[])
    }
}

/// The number of a file's node: see [`super::node`].
fn nodeid_of(inode: InodeRef) -> u64 {
    inode.to_word().saturating_add(ROOT + 1)
}

/// What the threads of a fill share.
struct Work<'a> {
    fill: &'a Fill,
    channel: Channel<'a>,
    image: &'a Image,
    served: &'a Served,
    pack: &'a HotPack,
    pages: &'a Pages,
    root: BorrowedFd<'a>,
    source: &'a Source,
    /// Whether each file is what the pack says and the kernel knows it.
    files: Vec<OnceLock<bool>>,
    next: AtomicUsize,
    /// Bytes that may be stored still.
    left: AtomicU64,
    /// Bytes that were decoded in vain, one after the other.
    vain: AtomicU64,
    over: AtomicBool,
}

/// Why there is nothing more to store.
struct Over;

impl Work<'_> {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.fill.is_over()
    }

    fn give_up(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.served.fill.gave_up();
    }

    /// Looks up all names, so that the program finds the kernel's answer.
    fn prime(&self) {
        let mut held: HashMap<&Path, Option<OwnedFd>> = HashMap::new();
        let mut primed = 0;
        for look_up in self.pack.look_ups() {
            if self.is_over() {
                break;
            }
            if held.len() >= DIRECTORIES && !held.contains_key(look_up.directory) {
                held.clear();
            }
            let directory = held
                .entry(look_up.directory)
                .or_insert_with(|| open_directory(self.root, look_up.directory));
            if let Some(directory) = directory {
                ask_for(directory.as_fd(), look_up.name);
                primed += 1;
                if primed % 64 == 0 {
                    self.served.fill.primed(64);
                }
            }
        }
        self.served.fill.primed(primed % 64);
    }

    fn read_batches(&self, ring: &ReadRing) {
        let wanted = |frame: &HotFrame| !self.is_over() && self.is_wanted(frame);
        let read = self
            .source
            .read_batches(self.pack, &self.next, wanted, ring);
        self.served.fill.read_directly(read);
    }

    fn store_frames(&self, batches: Batches) {
        let mut reader = self.pack.frame_reader();
        while let Some(batch) = batches.next() {
            for number in batch.frames() {
                let Some(frame) = self.pack.frame(number) else {
                    return;
                };
                if self.is_over() {
                    return;
                }
                if self.is_wanted(&frame) {
                    let pieces = reader.decode(number, batch.stored(&frame));
                    self.store_frame(&frame, pieces);
                }
            }
        }
        while !self.is_over() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(frame) = self.pack.frame(number) else {
                return;
            };
            self.source.read_ahead_of(frame.stored.start);
            if self.is_wanted(&frame) {
                let pieces = reader.read(number);
                self.store_frame(&frame, pieces);
            }
        }
    }

    fn is_wanted(&self, frame: &HotFrame) -> bool {
        frame.ranges.clone().any(|number| {
            let count = self.pack.range(number).map_or(0, |range| range.count);
            let mut states = self.pages.of_range(number, count).iter();
            states.any(|state| state.load(Ordering::Relaxed) == 0)
        })
    }

    fn store_frame<'p>(
        &self,
        frame: &HotFrame,
        pieces: brisk_image::Result<impl Iterator<Item = (PageRange, &'p [u8])>>,
    ) {
        let stored = match pieces {
            Ok(pieces) => self.store_pieces(frame, pieces),
            Err(e) => {
                let kind = e.kind();
                if self.served.fill.damaged() == 0 {
                    let cause = Cause::HotPack { source: e };
                    (self.fill.tell)(&Error::new(Action::Fill, cause));
                }
                match kind {
                    ErrorKind::Corrupt => Ok(()),
                    _ => Err(Over),
                }
            }
        };
        if stored.is_err() {
            self.over.store(true, Ordering::Relaxed);
        }
    }

    fn store_pieces<'p>(
        &self,
        frame: &HotFrame,
        pieces: impl Iterator<Item = (PageRange, &'p [u8])>,
    ) -> Result<(), Over> {
        let mut stored = false;
        for (number, (range, bytes)) in frame.ranges.clone().zip(pieces) {
            stored |= self.store_range(number, range, bytes)?;
        }
        if stored {
            self.vain.store(0, Ordering::Relaxed);
        } else {
            let decoded = frame.len as u64;
            if self.vain.fetch_add(decoded, Ordering::Relaxed) + decoded >= IN_VAIN {
                self.give_up();
            }
        }
        Ok(())
    }

    /// Stores what nobody has asked for of a range. False if that is nothing.
    fn store_range(&self, number: usize, range: PageRange, bytes: &[u8]) -> Result<bool, Over> {
        let Some(file) = self.pack.file(range.file as usize) else {
            return Ok(false);
        };
        let states = self.pages.of_range(number, range.count);
        let Some(node) = file.inode().map(nodeid_of) else {
            return Ok(false);
        };
        let known = self.files.get(range.file as usize);
        if !known.is_some_and(|known| *known.get_or_init(|| self.meet(range.file))) {
            return Ok(false);
        }
        let page = page_size() as u64;
        let mut any = false;
        let mut at = 0;
        while at < states.len() {
            let wanted = |state: &AtomicU8| state.load(Ordering::Relaxed) == 0;
            let rest = states.get(at..).unwrap_or(&[]);
            let run = rest.iter().take_while(|state| wanted(state)).count();
            if run == 0 {
                at += rest.iter().take_while(|state| !wanted(state)).count();
                continue;
            }
            let first = range.first.saturating_add(at as u64);
            let start = first.saturating_mul(PAGE);
            let end = start.saturating_add((run as u64).saturating_mul(PAGE));
            let whole = whole_pages(start..end.min(file.len()), file.len(), page);
            let within = range.first.saturating_mul(PAGE);
            let slice = usize::try_from(whole.start.saturating_sub(within))
                .ok()
                .zip(usize::try_from(whole.end.saturating_sub(within)).ok())
                .and_then(|(from, to)| bytes.get(from..to));
            if let Some(slice) = slice.filter(|slice| !slice.is_empty()) {
                if self.is_over() {
                    return Err(Over);
                }
                // In memory, the last page of a file is a whole one.
                let pages = (slice.len() as u64).div_ceil(PAGE);
                self.take(pages.saturating_mul(PAGE))?;
                if self.store(range.file, node, whole.start, slice)? {
                    // Within the run: `whole` is.
                    let skipped = ((whole.start - start) / PAGE) as usize;
                    for state in rest.iter().skip(skipped).take(pages as usize) {
                        state.fetch_or(STORED, Ordering::Relaxed);
                    }
                    self.served.fill.stored(pages, self.fill.started);
                    if let Some(log) = &self.fill.log {
                        let first = whole.start / PAGE;
                        log.add(true, node, first..first.saturating_add(pages));
                    }
                    any = true;
                }
            }
            at += run;
        }
        Ok(any)
    }

    /// Takes bytes from the budget.
    fn take(&self, bytes: u64) -> Result<(), Over> {
        let left = |left: u64| left.checked_sub(bytes);
        match self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
        {
            Ok(_) => Ok(()),
            Err(_) => {
                self.give_up();
                Err(Over)
            }
        }
    }

    /// False if the kernel does not take it.
    fn store(&self, file: u32, node: u64, offset: u64, bytes: &[u8]) -> Result<bool, Over> {
        let store = || self.channel.store(node, offset, &[IoSlice::new(bytes)]);
        let mut result = store();
        if result == Err(Errno::NOENT) && self.meet(file) {
            // The kernel had forgotten it, or had not met it.
            result = store();
        }
        match result {
            Ok(()) => Ok(true),
            // Not a node that it has, or no memory for it.
            Err(Errno::NOENT | Errno::NOMEM | Errno::INVAL) => Ok(false),
            // The connection has ended, or the kernel takes no stores.
            Err(_) => Err(Over),
        }
    }

    /// Makes the kernel know the file with this number, by its name. False if it is not the file
    /// that the pack says: a store past its end would lengthen it.
    fn meet(&self, number: u32) -> bool {
        let Some(file) = self.pack.file(number as usize) else {
            return false;
        };
        let inode = file.inode().map(|inode| self.image.inode(inode));
        let Some(Ok(inode)) = inode else {
            return false;
        };
        if !matches!(inode.kind(), InodeKind::File(_)) || inode.len() != file.len() {
            return false;
        }
        let path = file.path();
        let parent = path.parent().unwrap_or(Path::new(""));
        match (open_directory(self.root, parent), path.file_name()) {
            (Some(directory), Some(name)) => ask_for(directory.as_fd(), name),
            _ => false,
        }
    }
}

/// Opens a directory of the mount as a path only, which asks the server for names alone.
fn open_directory(root: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // What is mounted in it is none of its own, and a link leads to what has a name of its own.
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match openat2(root, path, flags, Mode::empty(), within) {
        // Linux before 5.6, and filters of system calls that do not know this one.
        Err(Errno::NOSYS | Errno::PERM) => open_by_components(root, path, Reach::OneFileSystem),
        result => result,
    }
    .ok()
}

/// Has the kernel look a name up. False if it is absent.
fn ask_for(directory: BorrowedFd<'_>, name: &OsStr) -> bool {
    let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    statx(directory, name, how, StatxFlags::empty()).is_ok()
}
