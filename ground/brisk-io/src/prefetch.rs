/*!
Asks the kernel to read parts of files before a program needs them.

`POSIX_FADV_WILLNEED` starts a read and usually returns at once. It waits if the disk's queue is full, or if the
filesystem must first read where the file's blocks are. So several threads ask. A thread that has asked for more than the
disk reads in [`IN_FLIGHT`] waits for its oldest extent, so that other readers of the disk never wait behind more than
that.

How long the disk takes is what it charges, and nobody may have measured that. So a prefetch looks how fast its first extents
arrive, and plans the rest anew for a disk that does fewer operations than it was taken for ([`Pace`]).
*/

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

use crate::page_cache::{ends_are_cached, is_cached};
use crate::{ByteSource, Charge, DiskReads, Extent, plan_extents};

/// How much may be in progress, in the disk's own time. At 2000 operations a second, a launch of Python,
/// which also reads much metadata, took 0.96 of the plain launch with 25 ms, and 0.89 with 8 ms.
const IN_FLIGHT: Duration = Duration::from_millis(8);

/// The most extents that a thread has in progress. Each may hold a file open.
const MOST_IN_FLIGHT: usize = 64;

/// The same, until enough extents have arrived to tell how fast the disk is.
const FIRST_IN_FLIGHT: usize = 4;

/// How many extents tell how fast the disk is.
const JUDGED: u32 = 16;

/// A disk is taken for slower if it needs this many times as long as it charges.
const SLOWER: u32 = 4;

/// How often a paused thread checks whether the pause is over.
const PAUSE: Duration = Duration::from_millis(1);

/// If this many extents, spread over the whole list, are resident, nothing has to be read.
const SAMPLES: usize = 16;

/// How to prefetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefetchOptions {
    /// Threads that ask. 0 counts as 1.
    pub threads: usize,
    /// The most bytes to ask for.
    pub budget: u64,
    /// Begins with a look, and gives up if everything is in memory. For a prefetch that runs while the program does.
    pub race: bool,
    /// Whether somebody has seen that not everything is in memory. Otherwise a race begins with a look, which waits for the
    /// disk where something is missing.
    pub known_missing: bool,
}

impl PrefetchOptions {
    /// At most `budget` bytes, by one thread, whatever the program does.
    pub fn new(budget: u64) -> Self {
        Self {
            threads: 1,
            budget,
            race: false,
            known_missing: false,
        }
    }

    /// Threads that ask; 0 counts as 1.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Whether to begin with a look, for a prefetch that runs while the program does.
    #[must_use]
    pub fn race(mut self, yes: bool) -> Self {
        self.race = yes;
        self
    }

    /// Whether it is known that not everything is in memory.
    #[must_use]
    pub fn known_missing(mut self, yes: bool) -> Self {
        self.known_missing = yes;
        self
    }
}

/// What a [`Prefetch`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefetchCounts {
    /// Bytes that the kernel was asked for.
    pub asked: u64,
    /// How many extents those bytes are.
    pub extents: u64,
    /// Bytes that were in memory, or being read, already.
    pub resident: u64,
    /// Bytes that nobody looked at, because a look at some of them said that all are resident.
    pub passed: u64,
    /// Bytes of files that [`PrefetchFiles::open`] did not return.
    pub missing: u64,
    /// Bytes that were over the budget.
    pub over_budget: u64,
    /// Bytes that the system refused to read.
    pub failed: u64,
}

/// Gives a [`Prefetch`] its files. Several threads call it at once.
pub trait PrefetchFiles: Send + Sync + 'static {
    /// The file of `extent`, or `None` to leave the extent out. Called once for each extent.
    fn open(&self, extent: &Extent) -> Option<Arc<File>>;

    /// How to read the file with this number, and what its disk charges.
    fn reads(&self, file: u32) -> DiskReads;

    /// Called if `extent` was resident, so that nobody asks for it.
    fn resident(&self, _extent: &Extent) {}

    /// Called after the kernel was asked for `extent`.
    fn asked(&self, _extent: &Extent) {}

    /// Called if the system refused to read `extent`.
    fn failed(&self, _extent: &Extent, _error: io::Error) {}
}

/// Threads that ask the kernel to read extents, in order.
///
/// Dropping it cancels it; [`Prefetch::wait`] waits for its end.
#[derive(Debug)]
pub struct Prefetch {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    options: PrefetchOptions,
    cancelled: AtomicBool,
    paused: AtomicBool,
    /// Whether everything was in memory before anything was asked for.
    is_late: OnceLock<bool>,
    course: Mutex<Course>,
}

/// The progress of a prefetch.
#[derive(Debug)]
struct Course {
    extents: Vec<Extent>,
    next: usize,
    counts: PrefetchCounts,
    pace: Pace,
}

impl Prefetch {
    /// Starts to ask for `extents` of `files`.
    ///
    /// The kernel reads only the first [`largest_advice`](crate::largest_advice) bytes of a longer extent.
    /// [`plan_extents`](crate::plan_extents) makes none that is longer.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started. Threads that were started before end.
    pub fn start(
        extents: Vec<Extent>,
        options: PrefetchOptions,
        files: impl PrefetchFiles,
    ) -> io::Result<Self> {
        Self::begin(extents, options, files, false)
    }

    /// Like [`Prefetch::start`], but paused: [`Prefetch::pause`] lets it go on.
    ///
    /// # Errors
    ///
    /// As [`Prefetch::start`].
    pub fn start_paused(
        extents: Vec<Extent>,
        options: PrefetchOptions,
        files: impl PrefetchFiles,
    ) -> io::Result<Self> {
        Self::begin(extents, options, files, true)
    }

    fn begin(
        extents: Vec<Extent>,
        options: PrefetchOptions,
        files: impl PrefetchFiles,
        paused: bool,
    ) -> io::Result<Self> {
        // For the kernel, a length of 0 means everything up to the end of the file.
        let extents = extents
            .into_iter()
            .filter(|extent| extent.len > 0)
            .collect();
        let shared = Arc::new(Shared {
            options,
            cancelled: AtomicBool::new(false),
            paused: AtomicBool::new(paused),
            is_late: OnceLock::new(),
            course: Mutex::new(Course {
                extents,
                next: 0,
                counts: PrefetchCounts::default(),
                pace: Pace::default(),
            }),
        });
        let mut this = Self {
            shared,
            threads: Vec::new(),
        };
        let files = Arc::new(files);
        for _ in 0..options.threads.max(1) {
            let (files, shared) = (Arc::clone(&files), Arc::clone(&this.shared));
            let thread = Builder::new().name("prefetch".to_owned());
            this.threads
                .push(thread.spawn(move || shared.work(&*files))?);
        }
        Ok(this)
    }

    /// Asks for nothing more. A thread that waits for the disk ends after that.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::Relaxed);
    }

    /// Pauses, or goes on. Each thread finishes the extent that it has begun.
    pub fn pause(&self, paused: bool) {
        self.shared.paused.store(paused, Ordering::Relaxed);
    }

    /// What it has done so far.
    pub fn counts(&self) -> PrefetchCounts {
        self.shared.course().counts
    }

    /// Whether all threads have ended: everything that they asked for is in memory.
    pub fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until everything that was asked for is in memory, and returns what was done.
    pub fn wait(mut self) -> PrefetchCounts {
        for thread in self.threads.drain(..) {
            // The counts of a thread that panicked are right up to there.
            thread.join().ok();
        }
        self.counts()
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl Shared {
    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, files: &impl PrefetchFiles) {
        let mut flight = Flight::new(self.options.threads);
        while !self.cancelled.load(Ordering::Relaxed) {
            let extent = {
                let mut course = self.course();
                let Some(&extent) = course.extents.get(course.next) else {
                    break;
                };
                course.next += 1;
                extent
            };
            if !self.goes_on() {
                break;
            }
            // The other threads wait for the answer. Otherwise they would ask for hundreds of extents meanwhile.
            let looks = self.options.race && !self.options.known_missing;
            let is_late = || looks && self.all_resident(files);
            if *self.is_late.get_or_init(is_late) {
                let mut course = self.course();
                course.counts.passed += extent.len + course.rest();
                course.next = course.extents.len();
                break;
            }
            let Some(file) = files.open(&extent) else {
                self.course().counts.missing += extent.len;
                continue;
            };
            let resident = is_cached(&file, extent.offset, extent.len) == Some(true);
            if !self.course().may_ask(&extent, resident, self) {
                if resident {
                    files.resident(&extent);
                }
                continue;
            }
            let advised = fadvise(
                &*file,
                extent.offset,
                NonZeroU64::new(extent.len),
                Advice::WillNeed,
            );
            match advised {
                Ok(()) => {
                    files.asked(&extent);
                    let charge = {
                        let mut course = self.course();
                        course.pace.begin(Instant::now());
                        course.pace.charge(files.reads(extent.file).charge)
                    };
                    flight.add(file, extent, charge);
                }
                Err(e) => {
                    files.failed(&extent, e.into());
                    self.course().counts.failed += extent.len;
                }
            }
            self.land(&mut flight, false, files);
        }
        self.land(&mut flight, true, files);
    }

    /// Waits until at most the limit is in progress, or with `all` nothing.
    fn land(&self, flight: &mut Flight, all: bool, files: &impl PrefetchFiles) {
        let is_judged = self.course().pace.is_judged;
        while let Some((extent, expected, read)) = flight.land(all, is_judged, &self.cancelled) {
            let failed = read.map_err(|e| files.failed(&extent, e)).is_err();
            let mut course = self.course();
            if failed {
                course.counts.failed += extent.len;
            }
            let reads = files.reads(extent.file);
            if course
                .pace
                .lands(extent.len, expected, reads.charge, Instant::now())
            {
                course.plan_anew(files);
            }
        }
    }

    /// Waits for the end of a pause. False if the prefetch is cancelled.
    fn goes_on(&self) -> bool {
        loop {
            match (
                self.cancelled.load(Ordering::Relaxed),
                self.paused.load(Ordering::Relaxed),
            ) {
                (true, _) => return false,
                (false, true) => sleep(PAUSE),
                (false, false) => return true,
            }
        }
    }

    /// Whether all extents seem to be resident. The search ends at the first one that is not, so it costs
    /// little if there is work to do.
    fn all_resident(&self, files: &impl PrefetchFiles) -> bool {
        let extents = self.course().extents.clone();
        let count = extents.len();
        let samples = SAMPLES.min(count);
        let mut known = 0;
        for sample in 0..samples {
            // The middle first, because the program itself was loaded from the first extents.
            let at = (count / 2 + sample * count / samples) % count;
            let Some(extent) = extents.get(at) else {
                continue;
            };
            let Some(file) = files.open(extent) else {
                continue;
            };
            // Most programs belong to root, and since Linux 6.14 the kernel tells nobody else of them. If the ends are not
            // in memory, the kernel may begin to read there, as this prefetch is about to ask.
            let told = is_cached(&file, extent.offset, extent.len)
                .or_else(|| ends_are_cached(&file, extent.offset, extent.len));
            match told {
                Some(true) => known += 1,
                Some(false) | None => return false,
            }
        }
        known > 0
    }
}

impl Course {
    /// Bytes of the extents that nobody has taken yet.
    fn rest(&self) -> u64 {
        let rest = self.extents.get(self.next..).unwrap_or_default();
        rest.iter().map(|extent| extent.len).sum()
    }

    /// Plans what is left for the disk as it turned out to be.
    fn plan_anew(&mut self, files: &impl PrefetchFiles) {
        let rest = self.extents.split_off(self.next.min(self.extents.len()));
        let pace = &self.pace;
        self.extents.extend(plan_extents(rest, |file| {
            let reads = files.reads(file);
            DiskReads::new(pace.charge(reads.charge), reads.largest)
        }));
    }

    fn may_ask(&mut self, extent: &Extent, resident: bool, shared: &Shared) -> bool {
        if resident {
            self.counts.resident += extent.len;
            return false;
        }
        let room = shared.options.budget.saturating_sub(self.counts.asked);
        if extent.len > room {
            self.counts.over_budget += extent.len + self.rest();
            self.next = self.extents.len();
            return false;
        }
        self.counts.asked += extent.len;
        self.counts.extents += 1;
        true
    }
}

/// What a thread has asked for and has not yet seen arrive.
struct Flight {
    extents: VecDeque<(Arc<File>, Extent, Duration)>,
    // The disk's time for all of it.
    time: Duration,
    most: Duration,
}

impl Flight {
    fn new(threads: usize) -> Self {
        let threads = u32::try_from(threads.max(1)).unwrap_or(u32::MAX);
        Self {
            extents: VecDeque::new(),
            time: Duration::ZERO,
            most: IN_FLIGHT / threads,
        }
    }

    fn add(&mut self, file: Arc<File>, extent: Extent, charge: Charge) {
        let time = charge.of(extent.len);
        self.time += time;
        self.extents.push_back((file, extent, time));
    }

    /// Waits for the oldest extent, if more than the limit is in progress, or with `all` if anything is. Returns it with the
    /// time that the disk was expected to take, and what reading its end gave.
    fn land(
        &mut self,
        all: bool,
        is_judged: bool,
        cancelled: &AtomicBool,
    ) -> Option<(Extent, Duration, io::Result<usize>)> {
        let most = match is_judged {
            true => MOST_IN_FLIGHT,
            false => FIRST_IN_FLIGHT,
        };
        let is_over =
            (self.time > self.most && self.extents.len() > 1) || self.extents.len() > most;
        if !(all || is_over) || cancelled.load(Ordering::Relaxed) {
            return None;
        }
        let (file, extent, time) = self.extents.pop_front()?;
        self.time = self.time.saturating_sub(time);
        let last = extent.offset.saturating_add(extent.len - 1);
        // The file may have been truncated meanwhile.
        let read = ByteSource::read_bytes_at(&*file, last, &mut [0]);
        Some((extent, time, read))
    }
}

/// How fast the disk turned out to be.
#[derive(Debug, Default)]
struct Pace {
    since: Option<Instant>,
    landed: u32,
    bytes: u64,
    /// The time that the disk was expected to take for them.
    expected: Duration,
    /// Whether enough have arrived.
    is_judged: bool,
    /// How many operations a second the disk does, if that is fewer than expected.
    operations: Option<NonZeroU64>,
}

impl Pace {
    /// Something was asked for.
    fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// What the disk charges.
    fn charge(&self, expected: Charge) -> Charge {
        let operations = expected.operations_per_second;
        Charge {
            operations_per_second: self
                .operations
                .map_or(operations, |own| own.min(operations)),
            ..expected
        }
    }

    /// An extent has arrived. Returns whether the disk turned out to be slower.
    fn lands(&mut self, bytes: u64, expected: Duration, charge: Charge, now: Instant) -> bool {
        self.landed += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.expected = self.expected.saturating_add(expected);
        if self.landed < JUDGED {
            return false;
        }
        let took = self.since.map_or(Duration::ZERO, |since| now - since);
        let slower = slower(self.landed, self.bytes, self.expected, took, charge);
        *self = Self {
            since: Some(now),
            is_judged: true,
            operations: slower.or(self.operations),
            ..Self::default()
        };
        slower.is_some()
    }
}

/// How many operations a second a disk does that took so long for so many extents, if that is far longer than expected.
fn slower(
    landed: u32,
    bytes: u64,
    expected: Duration,
    took: Duration,
    charge: Charge,
) -> Option<NonZeroU64> {
    if took <= expected.saturating_mul(SLOWER) {
        return None;
    }
    let moved = Duration::from_secs_f64(bytes as f64 / charge.bytes_per_second.get() as f64);
    let of_operations = took.saturating_sub(moved).as_secs_f64();
    NonZeroU64::new((f64::from(landed) / of_operations) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::evict_and_prove;
    use crate::{Residency, page_size, residency};
    use std::io::Write;
    use std::sync::Condvar;

    /// A file on a real disk, because tmpfs always keeps its pages.
    fn file_of(pages: usize) -> Arc<File> {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![1; pages * page_size()]).unwrap();
        evict_and_prove(&file).unwrap();
        Arc::new(file)
    }

    const OPTIONS: PrefetchOptions = PrefetchOptions {
        threads: 3,
        budget: u64::MAX,
        race: true,
        known_missing: false,
    };

    fn page(number: u64) -> Extent {
        Extent {
            file: 0,
            offset: number * page_size() as u64,
            len: page_size() as u64,
        }
    }

    /// The file with the number 0, on a disk that charges almost nothing.
    struct One {
        file: Arc<File>,
        asked: Arc<Mutex<Vec<u64>>>,
    }

    impl One {
        fn new(file: &Arc<File>) -> Self {
            Self {
                file: Arc::clone(file),
                asked: Arc::default(),
            }
        }
    }

    impl PrefetchFiles for One {
        fn open(&self, extent: &Extent) -> Option<Arc<File>> {
            (extent.file == 0).then(|| Arc::clone(&self.file))
        }

        fn reads(&self, _: u32) -> DiskReads {
            let many = NonZeroU64::new(1 << 30).unwrap();
            let charge = Charge {
                bytes_per_second: many,
                operations_per_second: many,
            };
            // In pieces of a page, whatever the disk turns out to be.
            DiskReads::new(charge, NonZeroU64::new(page_size() as u64).unwrap())
        }

        fn asked(&self, extent: &Extent) {
            self.asked.lock().unwrap().push(extent.offset);
        }
    }

    fn prefetch(
        file: &Arc<File>,
        extents: Vec<Extent>,
        options: PrefetchOptions,
    ) -> PrefetchCounts {
        let prefetch = Prefetch::start(extents, options, One::new(file)).unwrap();
        prefetch.wait()
    }

    fn resident(file: &File) -> u64 {
        match residency(file).unwrap() {
            Residency::Pages { resident, .. } => resident,
            Residency::Unknown => panic!("the file is ours"),
        }
    }

    /// Whether the kernel says that the first page, which is resident, is in memory. Before Linux 6.5 it does
    /// not.
    fn tells(file: &File) -> bool {
        let told = is_cached(file, 0, page_size() as u64);
        crate::machine::has(
            "cachestat",
            told.map(drop)
                .ok_or("the kernel does not say what is in memory"),
        )
    }

    #[test]
    fn a_disk_is_slower_if_it_takes_far_longer_than_it_charges() {
        let number = |n| NonZeroU64::new(n).unwrap();
        let charge = Charge::new(number(1 << 30), number(20_000));
        let ms = Duration::from_millis;
        for (landed, bytes, expected, took, operations) in [
            (16, 16 << 12, 1, 4, None),
            (16, 16 << 12, 1, 8, Some(2015)),
            // Its time goes into bytes.
            (16, 8 << 20, 8, 33, Some(635)),
            (16, 64 << 20, 62, 248, None),
            (16, 0, 0, 100_000, None),
        ] {
            let found = slower(landed, bytes, ms(expected), ms(took), charge);
            assert_eq!(found.map(NonZeroU64::get), operations, "{bytes} {took}");
        }
        let mut pace = Pace::default();
        let began = Instant::now();
        pace.begin(began);
        let at = |after| began + ms(after);
        for landed in 1..JUDGED {
            assert!(!pace.lands(4096, ms(0), charge, at(8)), "{landed}");
        }
        assert!(!pace.is_judged);
        assert!(pace.lands(4096, ms(0), charge, at(8)));
        assert_eq!(pace.charge(charge).operations_per_second.get(), 2015);
        // As fast as it was taken for from now on.
        for _ in 0..JUDGED {
            assert!(!pace.lands(4096, Duration::from_micros(500), charge, at(16)));
        }
        assert_eq!(pace.charge(charge).operations_per_second.get(), 2015);
    }

    #[test]
    fn what_is_left_is_planned_anew() {
        let file = file_of(64);
        let one = One::new(&file);
        let mut course = Course {
            extents: (0..64).step_by(2).map(page).collect(),
            next: 10,
            counts: PrefetchCounts::default(),
            pace: Pace::default(),
        };
        let before = course.rest();
        course.plan_anew(&one);
        assert_eq!((course.rest(), course.extents.len()), (before, 32));
        struct Whole(One);
        impl PrefetchFiles for Whole {
            fn open(&self, extent: &Extent) -> Option<Arc<File>> {
                self.0.open(extent)
            }

            fn reads(&self, file: u32) -> DiskReads {
                DiskReads::new(self.0.reads(file).charge, NonZeroU64::new(1 << 20).unwrap())
            }
        }
        course.pace.operations = NonZeroU64::new(100);
        course.plan_anew(&Whole(one));
        // One operation for all that is left.
        assert_eq!(course.extents.len(), 11);
        assert_eq!(course.extents[9], page(18));
        assert_eq!(course.extents[10].offset, page(20).offset);
    }

    #[test]
    fn what_the_system_refuses_is_told_with_its_cause() {
        type Told = Mutex<Vec<(Extent, Option<i32>)>>;
        struct Pipe(Arc<File>, Arc<Told>);
        impl PrefetchFiles for Pipe {
            fn open(&self, _: &Extent) -> Option<Arc<File>> {
                Some(Arc::clone(&self.0))
            }

            fn reads(&self, file: u32) -> DiskReads {
                One::new(&self.0).reads(file)
            }

            fn failed(&self, extent: &Extent, error: io::Error) {
                self.1.lock().unwrap().push((*extent, error.raw_os_error()));
            }
        }
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        let told = Arc::default();
        let pipe = Pipe(Arc::new(pipe.into()), Arc::clone(&told));
        let counts = Prefetch::start(vec![page(0), page(1)], OPTIONS, pipe);
        let counts = counts.unwrap().wait();
        assert_eq!(counts.failed, 2 * page_size() as u64);
        let refused = Some(rustix::io::Errno::SPIPE.raw_os_error());
        let mut told = told.lock().unwrap();
        told.sort_by_key(|(extent, _)| extent.offset);
        assert_eq!(*told, [(page(0), refused), (page(1), refused)]);
    }

    #[test]
    fn what_was_asked_for_is_resident_and_nothing_else() {
        let file = file_of(64);
        let mut extents: Vec<_> = (0..32).map(|n| page(n * 2)).collect();
        extents.insert(5, Extent { file: 1, ..page(0) });
        let counts = prefetch(&file, extents, OPTIONS);
        assert_eq!(resident(&file), 32);
        let page = page_size() as u64;
        assert_eq!((counts.asked, counts.extents), (32 * page, 32));
        assert_eq!((counts.missing, counts.failed), (page, 0));
    }

    #[test]
    fn what_is_asked_for_is_told() {
        let file = file_of(8);
        let one = One::new(&file);
        let told = Arc::clone(&one.asked);
        let mut extents = vec![page(6), page(2), Extent { file: 1, ..page(4) }];
        extents.push(Extent { len: 0, ..page(0) });
        Prefetch::start(extents, OPTIONS, one).unwrap().wait();
        let mut told = told.lock().unwrap().clone();
        told.sort_unstable();
        assert_eq!(told, [2, 6].map(|n| n * page_size() as u64));
    }

    #[test]
    fn nothing_is_asked_for_that_is_resident() {
        let file = file_of(64);
        file.read_exact_bytes_at(0, &mut vec![0; 64 * page_size()])
            .unwrap();
        let all: Vec<_> = (0..64).map(page).collect();
        if !tells(&file) {
            return;
        }
        let page = page_size() as u64;
        let counts = prefetch(&file, all.clone(), OPTIONS);
        assert_eq!((counts.asked, counts.passed), (0, 64 * page), "{counts:?}");
        // Without a look, it finds that out one by one.
        let counts = prefetch(&file, all.clone(), OPTIONS.known_missing(true));
        assert_eq!((counts.asked, counts.resident), (0, 64 * page));
        let patient = PrefetchOptions {
            race: false,
            ..OPTIONS
        };
        let counts = prefetch(&file, all, patient);
        assert_eq!((counts.asked, counts.resident), (0, 64 * page));
    }

    /// Takes this thread's right to write the files of others.
    fn give_up_rights() {
        let nobody = 65_534;
        if rustix::process::geteuid().is_root() {
            // SAFETY: the call takes three numbers. It changes this thread only, and those that it starts later.
            let answer = unsafe { libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody) };
            assert_eq!(answer, 0);
        }
    }

    #[test]
    fn nothing_is_asked_for_that_is_resident_in_a_file_of_others() {
        let file = Arc::new(File::open("/bin/sh").unwrap());
        let pages = ByteSource::size(&*file).unwrap() / page_size() as u64;
        file.read_exact_bytes_at(0, &mut vec![0; (pages as usize) * page_size()])
            .unwrap();
        let counts = std::thread::spawn(move || {
            give_up_rights();
            prefetch(&file, (0..pages).map(page).collect(), OPTIONS)
        });
        let counts = counts.join().unwrap();
        let all = pages * page_size() as u64;
        assert_eq!((counts.asked, counts.passed), (0, all), "{counts:?}");
    }

    #[test]
    fn who_comes_late_asks_for_what_others_have_left_out() {
        let file = file_of(64);
        // Another program has read the first 40 pages but for two, without read-ahead.
        fadvise(&*file, 0, None, Advice::Random).unwrap();
        let left_out = [9, 30];
        for number in (0..40).filter(|number| !left_out.contains(number)) {
            let at = number * page_size() as u64;
            file.read_exact_bytes_at(at, &mut [0]).unwrap();
        }
        if !tells(&file) {
            return;
        }
        let before = resident(&file);
        assert_eq!(before, 38);
        let page_len = page_size() as u64;
        let counts = prefetch(
            &file,
            (0..64).map(page).collect(),
            OPTIONS.known_missing(true),
        );
        assert_eq!(
            (counts.asked, counts.resident),
            (26 * page_len, 38 * page_len),
            "{counts:?}"
        );
        assert_eq!(resident(&file), 64);
    }

    #[test]
    fn no_more_is_asked_for_than_the_budget_has() {
        let file = file_of(64);
        let page_len = page_size() as u64;
        let options = PrefetchOptions {
            budget: 10 * page_len,
            ..OPTIONS
        };
        let counts = prefetch(&file, (0..64).map(page).collect(), options);
        assert_eq!(counts.asked, 10 * page_len);
        assert_eq!(counts.over_budget, 54 * page_len);
        assert_eq!(resident(&file), 10);
    }

    /// Files that can be opened only when a test allows it.
    struct Gated {
        one: One,
        gate: Arc<(Mutex<bool>, Condvar)>,
    }

    impl PrefetchFiles for Gated {
        fn open(&self, extent: &Extent) -> Option<Arc<File>> {
            let (opened, told) = &*self.gate;
            let opened = opened.lock().unwrap();
            drop(told.wait_while(opened, |opened| !*opened).unwrap());
            self.one.open(extent)
        }

        fn reads(&self, file: u32) -> DiskReads {
            self.one.reads(file)
        }
    }

    #[test]
    fn a_cancelled_one_asks_for_nothing_more() {
        let file = file_of(4);
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let files = Gated {
            one: One::new(&file),
            gate: Arc::clone(&gate),
        };
        let options = PrefetchOptions {
            race: false,
            ..OPTIONS
        };
        let prefetch = Prefetch::start(vec![page(0); 1000], options, files).unwrap();
        // Each thread has taken one extent, or will see that the prefetch is cancelled.
        prefetch.cancel();
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        let counts = prefetch.wait();
        let most = options.threads as u64 * page_size() as u64;
        assert!(counts.asked + counts.resident <= most, "{counts:?}");
    }

    #[test]
    fn one_that_pauses_goes_on() {
        let file = file_of(4);
        let extents = vec![page(0); 1000];
        let options = PrefetchOptions {
            race: false,
            ..OPTIONS
        };
        let prefetch = Prefetch::start_paused(extents, options, One::new(&file)).unwrap();
        sleep(10 * PAUSE);
        assert_eq!(prefetch.counts(), PrefetchCounts::default());
        assert!(!prefetch.is_over());
        prefetch.pause(false);
        let counts = prefetch.wait();
        let all = 1000 * page_size() as u64;
        assert_eq!(counts.asked + counts.resident, all);
    }

    #[test]
    fn one_that_is_cancelled_in_a_pause_ends() {
        let file = file_of(4);
        let prefetch = Prefetch::start_paused(vec![page(0); 9], OPTIONS, One::new(&file)).unwrap();
        prefetch.cancel();
        assert_eq!(prefetch.wait(), PrefetchCounts::default());
    }
}
