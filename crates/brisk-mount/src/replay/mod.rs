/*!
Replaying a profile: asking the kernel for what a launch will ask for, ahead of it.

Files are looked for where they are now, and are left out if they are not as long as when they were
recorded. Extents of them are planned by what the disk charges, and asked for in the order of the
profile by several threads; another looks up the names, so that what the kernel needs to find files is
in memory too. Nothing of a file is changed, and nothing that is there already is read.
*/

mod beside;
mod bystander;
mod disk;
mod warm;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::{Origin, PAGE, Profile, ProfileFile, Root, RootKind, Touch};
use brisk_io::{
    Charge, DiskReads, Extent, MEASURED_LEN, Prefetch, PrefetchCounts, PrefetchFiles,
    PrefetchOptions, measure_charge, plan_extents,
};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use self::beside::{AfterReplay, ReplayBeside};
use self::bystander::{Bystander, Executable, is_another_launch};
use self::disk::{Disk, DiskCharges, open_root, reopen};
pub use self::warm::warm;
use crate::beneath::{Reach, open_by_components};
use crate::error::{Action, Cause, Error, Result};
use crate::memory::free_memory;
use crate::page_log::PageLog;

/// Threads that ask for pages. Each may wait for the disk.
const THREADS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// The free memory where the system does not tell.
const UNKNOWN_MEMORY: u64 = 1 << 30;

/// How often it is seen whether the program asks for what is replayed.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long a program that no recorded launch started may take to become another one: a script of which the
/// shell is in the tree, or `env`.
const FOREIGN_FOR: Duration = Duration::from_secs(1);

/// Time that measuring a disk takes.
const MEASURING: Duration = Duration::from_millis(400);

/// Files that are read to measure a disk, at most: the largest of the profile.
const MEASURED_FILES: usize = 8;

/// A profile to be replayed.
#[derive(Debug)]
pub struct Replay {
    profile: Profile,
    /// Where the files of each root are now; none of a root that is not there.
    roots: Vec<Option<Arc<OwnedFd>>>,
    /// Those of which all was recorded that a launch asks for, by number: of the system, what was in
    /// memory is missing.
    whole: Vec<bool>,
    /// What the disk of each charges.
    disks: Vec<DiskReads>,
    /// Bytes that are asked for at most; half of the free memory is a bound always.
    pub budget: Option<u64>,
    /// Passes over what comes too late, and gives up where all is in memory, as who runs beside the
    /// program should.
    pub race: bool,
    /// Threads that ask for pages. 4.
    pub threads: NonZeroUsize,
    /// The program beside which this runs: the replay ends if it asks for other things.
    bystander: Option<Bystander>,
    /// Whether it also ends if the program [was not recorded](Files::is_foreign).
    judges_program: bool,
    /// Takes note of what is asked for.
    log: Option<PageLog>,
}

/// What a disk is taken to charge, as far as it is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCharge {
    /// Bytes in a second.
    pub bytes_per_second: Option<std::num::NonZeroU64>,
    /// Operations in a second.
    pub operations_per_second: Option<std::num::NonZeroU64>,
}

/// What came of a [`Replay`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// What was asked for.
    pub pages: PrefetchCounts,
    /// Files that the profile lists.
    pub listed: u64,
    /// Of these, those that were looked at.
    pub files: u64,
    /// Of these, those of another length than recorded.
    pub stale: u64,
    /// Of these, those that are not there or may not be read.
    pub missing: u64,
    /// Names that were looked up.
    pub look_ups: u64,
    /// Of these, those whose answer is now the other one.
    pub changed: u64,
    /// Whether it was given up as the program asked for other things.
    pub strayed: bool,
    /// Whether it was given up as the program is of the tree and was not started when that was recorded.
    pub foreign: bool,
    /// Bytes that the profile lists.
    pub listed_bytes: u64,
    /// Bytes that the program had the disk read by itself, if it was
    /// [watched](ReplayBeside::watch).
    pub own: Option<u64>,
    /// How long it took until all that was asked for had come.
    pub time: Duration,
}

impl Replayed {
    /// Whether more than a tenth of the files of the profile are known not to be what they were.
    pub fn is_stale(&self) -> bool {
        (self.stale + self.missing).saturating_mul(10) > self.listed
    }

    /// Whether the program, as far as it was watched, read so much by itself that the profile seems to
    /// be of another launch.
    pub fn is_of_another_launch(&self) -> bool {
        self.own
            .is_some_and(|own| is_another_launch(own, self.listed_bytes))
    }
}

/// A disk that was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeasuredDisk {
    /// What tells it from others: its number and its size, as one text.
    pub name: String,
    /// What it charges.
    pub charge: Charge,
}

/// A file of the profile.
enum Slot {
    Unseen,
    Open(Arc<File>),
    /// It was open, until others needed its descriptor.
    Closed,
    Stale,
    Missing,
}

impl Replay {
    /// Of `profile`, whose roots are where they were recorded, but for those that the directories
    /// `at` are taken for: see [`Origin::root_of`]. Roots that are not there are left out.
    ///
    /// # Errors
    ///
    /// `Place` if a directory of `at` cannot be used, or is none that the profile knows.
    pub fn new(profile: Profile, at: &[PathBuf], charge: DiskCharge) -> Result<Self> {
        let mut profile = profile;
        let whole = profile.roots().iter();
        let whole = whole.filter(|root| root.kind != RootKind::System);
        let whole: Vec<PathBuf> = whole.map(|root| root.path.clone()).collect();
        let mut places = BTreeMap::new();
        for path in at {
            let named = |source| {
                Error::new(Action::Replay, Cause::ReplayPlace { source }).with_path(path.as_path())
            };
            let origin = Origin::directory(path).map_err(named)?;
            profile = origin.narrow(&profile).map_err(named)?.into_owned();
            places.insert(origin.root_of(&profile).map_err(named)?, path);
        }
        let mut roots = Vec::new();
        let mut disks = Vec::new();
        let charges = DiskCharges::open(false).ok().flatten();
        for (number, root) in (0u32..).zip(profile.roots()) {
            let place = places.get(&number).map_or(&root.path, |place| *place);
            let fd = match open_root(place) {
                Ok(fd) => Some(fd),
                Err(e) if places.contains_key(&number) => {
                    let cause = Cause::io("open the directory", e);
                    return Err(Error::new(Action::Replay, cause).with_path(place.as_path()));
                }
                Err(_) => None,
            };
            let disk = fd.as_ref().map_or(Disk::NONE, Disk::of);
            let mut reads = disk.reads();
            let measured = disk.name().zip(charges.as_ref());
            if let Some(charge) = measured.and_then(|(name, charges)| charges.get(&name)) {
                reads.charge = charge;
            }
            let own = &mut reads.charge;
            own.bytes_per_second = charge.bytes_per_second.unwrap_or(own.bytes_per_second);
            own.operations_per_second = charge
                .operations_per_second
                .unwrap_or(own.operations_per_second);
            disks.push(reads);
            roots.push(fd.map(Arc::new));
        }
        let is_whole = |root: &Root| whole.contains(&root.path);
        Ok(Self {
            whole: profile.roots().iter().map(is_whole).collect(),
            profile,
            roots,
            disks,
            budget: None,
            race: true,
            threads: THREADS,
            bystander: None,
            judges_program: true,
            log: None,
        })
    }

    /// What is asked for, in order, and the bytes that are left out for lack of budget.
    fn plan(&self, budget: u64) -> (Vec<Extent>, u64) {
        let files = self.profile.files();
        let ranges = self.profile.ranges().map(|(_, range)| Extent {
            file: range.file,
            offset: range.first.saturating_mul(PAGE),
            len: files
                .get(range.file as usize)
                .map_or(0, |file| range.bytes_of(file.len)),
        });
        let (ranges, left_out) = within(ranges, budget);
        (plan_extents(ranges, |file| self.reads_of(file)), left_out)
    }

    fn reads_of(&self, file: u32) -> DiskReads {
        let root = self
            .profile
            .files()
            .get(file as usize)
            .map(|file| file.root);
        let own = root.and_then(|root| self.disks.get(root as usize));
        own.copied().unwrap_or_else(|| Disk::NONE.reads())
    }

    /// Replays, and waits until all that was asked for has come. The limit of open files is raised
    /// meanwhile, as far as the process may.
    ///
    /// # Errors
    ///
    /// `Io` if no thread can be started.
    pub fn run(self) -> Result<Replayed> {
        let started = Instant::now();
        let limit = raise_file_limit();
        let result = self.replay(started);
        if let Some(limit) = limit {
            // It was what it is set to.
            setrlimit(Resource::Nofile, limit).ok();
        }
        result.map_err(|e| {
            let cause = Cause::io("start the threads that read", e);
            Error::new(Action::Replay, cause)
        })
    }

    fn replay(self, started: Instant) -> io::Result<Replayed> {
        let options = PrefetchOptions {
            threads: self.threads.get(),
            budget: most(self.budget),
            race: self.race,
        };
        let (extents, left_out) = self.plan(options.budget);
        let charges: Vec<Charge> = (0u32..)
            .zip(self.profile.files())
            .map(|(number, _)| self.reads_of(number).charge)
            .collect();
        let demand = self.profile.demand_by_root().into_iter();
        let listed_bytes = demand.map(|root| root.bytes).fold(0, u64::saturating_add);
        let files = Arc::new(Files::new(self.profile, self.roots, self.whole));
        let listed = files.slots.len() as u64;
        let looks = Arc::new(LookUps::default());
        let looking = {
            let (files, course) = (Arc::clone(&files), Arc::clone(&looks));
            let looks = move || files.look_up(&course);
            thread::Builder::new()
                .name("look-ups".to_owned())
                .spawn(looks)?
        };
        let log = self.log.map(Arc::new);
        if let Some(log) = &log {
            log.know(files.shown_paths());
        }
        let own = ChargedFiles {
            files: Arc::clone(&files),
            charges,
            fallback: Disk::NONE.reads().charge,
            log: log.clone(),
        };
        let prefetch = match Prefetch::start_paused(extents, options, own) {
            Ok(prefetch) => prefetch,
            Err(e) => {
                looks.over.store(true, Ordering::Relaxed);
                looking.join().ok();
                return Err(e);
            }
        };
        let pause = |paused| {
            looks.paused.store(paused, Ordering::Relaxed);
            prefetch.pause(paused);
        };
        let given_up = match self.bystander {
            Some(program) => {
                let judge = self.judges_program.then_some(&*files);
                watch(program, judge, &prefetch, pause)
            }
            None => {
                pause(false);
                None
            }
        };
        if given_up.is_some() {
            prefetch.cancel();
        }
        let mut pages = prefetch.wait();
        pages.over_budget = pages.over_budget.saturating_add(left_out);
        if given_up.is_some() || (options.race && pages.asked == 0 && pages.passed > 0) {
            // It is of no use, or what is in memory has been found before.
            looks.over.store(true, Ordering::Relaxed);
        }
        if let Some(log) = log {
            // Who reads it finds no end if that fails.
            log.write().ok();
        }
        // A thread that panicked has looked up nothing that counts.
        let (look_ups, changed) = looking.join().unwrap_or_default();
        let (files, stale, missing) = files.count();
        Ok(Replayed {
            pages,
            listed,
            files,
            stale,
            missing,
            look_ups,
            changed,
            strayed: given_up == Some(GivenUp::Strayed),
            foreign: given_up == Some(GivenUp::Foreign),
            listed_bytes,
            own: None,
            time: started.elapsed(),
        })
    }

    /// Measures the disks that the profile's files are on, and keeps what they charge for this user:
    /// with `again` also of those that were measured before. Disks without a file that is large
    /// enough are left out.
    ///
    /// # Errors
    ///
    /// `Place` if there is no place to keep it, and `Io`.
    pub fn measure(self, again: bool) -> Result<Vec<MeasuredDisk>> {
        let mut disks: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (root, fd) in (0u32..).zip(&self.roots) {
            if let Some(name) = fd.as_ref().and_then(|fd| Disk::of(fd).name()) {
                disks.entry(name).or_default().push(root);
            }
        }
        let files = Files::new(self.profile, self.roots, self.whole);
        let mut measured = Vec::new();
        for (name, roots) in disks {
            let all = files.profile.files();
            let mut largest: Vec<u32> = (0u32..)
                .zip(all)
                .filter(|(_, file)| roots.contains(&file.root) && file.len >= MEASURED_LEN)
                .map(|(number, _)| number)
                .collect();
            if largest.is_empty() {
                continue;
            }
            let known = DiskCharges::open(false)?.and_then(|charges| charges.get(&name));
            if known.is_some() && !again {
                continue;
            }
            largest.sort_by_key(|&number| std::cmp::Reverse(all[number as usize].len));
            largest.truncate(MEASURED_FILES);
            let open: Vec<_> = largest.iter().filter_map(|&n| files.open(n)).collect();
            let open: Vec<&File> = open.iter().map(|file| &**file).collect();
            let charge = match measure_charge(&open, MEASURING) {
                Ok(charge) => charge,
                // Too little to read, or no way past the page cache.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => continue,
                Err(e) => {
                    let cause = Cause::io(format!("read from the disk {name}"), e);
                    return Err(Error::new(Action::Measure, cause));
                }
            };
            if let Some(charges) = DiskCharges::open(true)? {
                charges.keep(&name, charge)?;
            }
            measured.push(MeasuredDisk { name, charge });
        }
        Ok(measured)
    }
}

/// Why a replay ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GivenUp {
    /// The program asks for other things.
    Strayed,
    /// No launch of it was recorded.
    Foreign,
}

/// Watches `program` until all is in memory, or the replay is of no use to it: so by what it reads, and, with
/// `files`, by what it is. While it is one that was not recorded, nothing is asked for.
fn watch(
    mut program: Bystander,
    files: Option<&Files>,
    prefetch: &Prefetch,
    pause: impl Fn(bool),
) -> Option<GivenUp> {
    let (mut running, mut foreign_since): (_, Option<Instant>) = (None, None);
    while !prefetch.is_over() {
        match files.map(|files| (files, program.executable())) {
            Some((files, Ok(Some(executable)))) if running != Some(executable.id) => {
                running = Some(executable.id);
                foreign_since = files.is_foreign(&executable).then(Instant::now);
            }
            // It has ended.
            Some((_, Ok(None))) if foreign_since.is_some() => return Some(GivenUp::Foreign),
            Some((_, Ok(_))) => {}
            // It may be what was recorded.
            Some((_, Err(_))) | None => (running, foreign_since) = (None, None),
        }
        pause(foreign_since.is_some());
        if program.strays(prefetch.counts().asked) {
            return Some(GivenUp::Strayed);
        }
        if foreign_since.is_some_and(|since| since.elapsed() > FOREIGN_FOR) {
            return Some(GivenUp::Foreign);
        }
        thread::sleep(LOOK_EVERY);
    }
    None
}

/// How far names are looked up.
#[derive(Debug, Default)]
struct LookUps {
    paused: AtomicBool,
    over: AtomicBool,
}

impl LookUps {
    /// Waits for the end of a pause. False if it is over.
    fn goes_on(&self) -> bool {
        while self.paused.load(Ordering::Relaxed) && !self.over.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
        }
        !self.over.load(Ordering::Relaxed)
    }
}

/// The files of a profile, with what their disks charge.
struct ChargedFiles {
    files: Arc<Files>,
    /// By their numbers.
    charges: Vec<Charge>,
    /// Of a file that has none.
    fallback: Charge,
    log: Option<Arc<PageLog>>,
}

impl PrefetchFiles for ChargedFiles {
    fn open(&self, extent: &Extent) -> Option<Arc<File>> {
        self.files.open(extent.file)
    }

    fn charge(&self, file: u32) -> Charge {
        let charge = self.charges.get(file as usize);
        charge.copied().unwrap_or(self.fallback)
    }

    fn asked(&self, extent: &Extent) {
        if let Some(log) = &self.log {
            let end = extent.offset.saturating_add(extent.len).div_ceil(PAGE);
            log.add(true, extent.file.into(), extent.offset / PAGE..end);
        }
    }
}

/// The files of a profile, opened when they are asked for.
struct Files {
    profile: Profile,
    roots: Vec<Option<Arc<OwnedFd>>>,
    /// As [`Replay::whole`].
    whole: Vec<bool>,
    slots: Vec<Mutex<Slot>>,
}

impl Files {
    fn new(profile: Profile, roots: Vec<Option<Arc<OwnedFd>>>, whole: Vec<bool>) -> Self {
        let slots = profile.files().iter().map(|_| Mutex::new(Slot::Unseen));
        Self {
            slots: slots.collect(),
            profile,
            roots,
            whole,
        }
    }

    fn root(&self, number: u32) -> Option<BorrowedFd<'_>> {
        let root = self.roots.get(number as usize)?.as_ref()?;
        Some(root.as_fd())
    }

    /// The file with this number, if it is as long as it was.
    fn open(&self, number: u32) -> Option<Arc<File>> {
        let mut slot = lock(self.slots.get(number as usize)?);
        if let Slot::Unseen | Slot::Closed = *slot {
            let mut opened = self.find(number);
            if matches!(opened, Err(Errno::MFILE | Errno::NFILE)) {
                self.close_others();
                opened = self.find(number);
            }
            match opened {
                Ok(found) => *slot = found,
                // Of this file it says nothing.
                Err(Errno::MFILE | Errno::NFILE) => return None,
                Err(_) => *slot = Slot::Missing,
            }
        }
        match &*slot {
            Slot::Open(file) => Some(Arc::clone(file)),
            _ => None,
        }
    }

    /// Their paths for people, with their numbers.
    fn shown_paths(&self) -> impl Iterator<Item = (u64, PathBuf)> {
        let files = (0..).zip(self.profile.files());
        files.map(|(number, file)| (number, self.profile.shown_path(file)))
    }

    /// Closes what no thread uses at the moment. It is opened again when it is asked for.
    fn close_others(&self) {
        for slot in &self.slots {
            if let Ok(mut slot) = slot.try_lock()
                && let Slot::Open(file) = &*slot
                && Arc::strong_count(file) == 1
            {
                *slot = Slot::Closed;
            }
        }
    }

    fn find(&self, number: u32) -> rustix::io::Result<Slot> {
        let Some(known) = self.profile.files().get(number as usize) else {
            return Ok(Slot::Missing);
        };
        let Some(root) = self.root(known.root) else {
            return Ok(Slot::Missing);
        };
        // As a path only: to open a device, or a pipe, may do something.
        let file = beneath(root, &known.path)?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || u64::try_from(stat.st_size) != Ok(known.len)
        {
            return Ok(Slot::Stale);
        }
        let file = reopen(&file).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        Ok(Slot::Open(Arc::new(file)))
    }

    /// Whether `program` is in one of the roots that were recorded whole, and no launch of it was:
    /// whoever starts a program has its first page read.
    fn is_foreign(&self, program: &Executable) -> bool {
        let is_program =
            |file: &OwnedFd| fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == program.id);
        let whole = (0u32..).zip(&self.whole).filter(|(_, whole)| **whole);
        let places = whole.filter_map(|(number, _)| {
            let root = self.root(number)?;
            let path = program.path.strip_prefix(path_of(root).ok()?).ok()?;
            // What is mounted in the tree, as by `--bind`, was not recorded with it.
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let file = openat2(root, path, flags, Mode::empty(), within).ok()?;
            is_program(&file).then(|| (number, path.to_owned()))
        });
        let places: Vec<_> = places.collect();
        let is_recorded = |file: &ProfileFile| {
            let is_named = |(root, path): &(u32, PathBuf)| (*root, path) == (file.root, &file.path);
            // By a name of its own, whatever is there now, or by another of the same file.
            let here = || beneath(self.root(file.root)?, &file.path).ok();
            places.iter().any(is_named)
                || (file.len == program.len && here().is_some_and(|file| is_program(&file)))
        };
        let started = || {
            let first = self.profile.ranges().filter(|(_, range)| range.first == 0);
            let files = self.profile.files();
            let mut read = first.filter_map(|(_, range)| files.get(range.file as usize));
            read.any(is_recorded)
        };
        !places.is_empty() && !started()
    }

    /// Looks up the names of the profile until it is over. Returns how many, and how many of them
    /// are there though they were not, or the other way round.
    fn look_up(&self, course: &LookUps) -> (u64, u64) {
        let (mut look_ups, mut changed) = (0, 0);
        for step in self.profile.steps() {
            let Touch::LookUp(look_up) = &step.touch else {
                continue;
            };
            if !course.goes_on() {
                break;
            }
            let directory = self.profile.directories().get(look_up.directory as usize);
            let Some((directory, root)) =
                directory.and_then(|directory| Some((directory, self.root(directory.root)?)))
            else {
                continue;
            };
            let found = match beneath(root, &directory.path.join(&look_up.name)) {
                Ok(_) => Some(true),
                Err(Errno::NOENT | Errno::NOTDIR) => Some(false),
                Err(_) => None,
            };
            look_ups += 1;
            changed += u64::from(found.is_some_and(|found| found != look_up.found));
        }
        (look_ups, changed)
    }

    /// The files that were looked at, and of them those that are stale and those that are missing.
    fn count(&self) -> (u64, u64, u64) {
        let (mut seen, mut stale, mut missing) = (0, 0, 0);
        for slot in &self.slots {
            let slot = lock(slot);
            seen += u64::from(!matches!(*slot, Slot::Unseen));
            stale += u64::from(matches!(*slot, Slot::Stale));
            missing += u64::from(matches!(*slot, Slot::Missing));
        }
        (seen, stale, missing)
    }
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that may be asked for: what is allowed, within half of the free memory.
fn most(budget: Option<u64>) -> u64 {
    let half = free_memory().unwrap_or(UNKNOWN_MEMORY) / 2;
    budget.unwrap_or(u64::MAX).min(half)
}

/// The first `budget` bytes of `ranges`, and how many are left out: nobody has looked yet whether files
/// are as long as is said of them, and a list of extents takes memory.
fn within(ranges: impl Iterator<Item = Extent>, budget: u64) -> (Vec<Extent>, u64) {
    let (mut room, mut left_out) = (budget, 0u64);
    let mut kept = Vec::new();
    for range in ranges {
        let len = range.len.min(room);
        room -= len;
        left_out = left_out.saturating_add(range.len - len);
        if len > 0 {
            kept.push(Extent { len, ..range });
        }
    }
    (kept, left_out)
}

/// What is at `path`, as a path only, through no symbolic link.
fn beneath(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(root, path, flags, Mode::empty(), within) {
        // A link itself, at the end, is not followed.
        Err(Errno::LOOP) => {
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            let parent = path.parent().unwrap_or(Path::new(""));
            let parent = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            let directory = openat2(
                root,
                parent,
                flags | OFlags::DIRECTORY,
                Mode::empty(),
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            )?;
            let name = path.file_name().unwrap_or_default();
            openat2(directory, name, flags, Mode::empty(), within)
        }
        // Linux before 5.6, and filters of system calls that do not know this one.
        Err(Errno::NOSYS | Errno::PERM) => open_by_components(root, path, Reach::Mounts),
        result => result,
    }
}

/// Where the directory behind a descriptor is now.
fn path_of(directory: BorrowedFd<'_>) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Lets the process open as many files as it may. Returns the limit before; none if that stays.
fn raise_file_limit() -> Option<Rlimit> {
    let before = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: before.maximum,
        ..before
    };
    setrlimit(Resource::Nofile, most).ok()?;
    Some(before)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use brisk_image::Limits;

    use super::*;

    /// A profile of `kind` of a launch that read page `first` of two programs.
    fn profile(kind: &str, first: u64) -> Profile {
        let text = format!(
            r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["app"], "runs": 1,
"roots": [["/opt/app", "{kind}"]], "directories": [],
"files": [[0, "app", 12288, null], [0, "newer", 8192, null]],
"steps": [["pages", 0, {first}, 1, 1, 1], ["pages", 1, {first}, 1, 1, 1]]}}"#
        );
        Profile::from_text(text.as_bytes(), &Limits::of_profiles()).expect("a profile")
    }

    #[test]
    fn a_program_is_foreign_that_no_recorded_launch_started() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        std::fs::create_dir(&root).expect("room");
        for name in ["root/app", "root/newer", "root/other", "outside"] {
            std::fs::write(directory.path().join(name), [0; 12_288]).expect("room");
        }
        std::fs::hard_link(root.join("app"), root.join("link")).expect("room");
        let executable = |name: &str| {
            let path = directory.path().join(name);
            let path = path.canonicalize().expect("there");
            let stat = std::fs::metadata(&path).expect("there");
            Executable {
                path,
                id: (stat.dev(), stat.ino()),
                len: stat.len(),
            }
        };
        for (kind, first, name, foreign) in [
            ("directory", 0, "root/app", false),
            ("directory", 0, "root/link", false),
            ("image", 1, "root/app", true),
            ("directory", 0, "root/other", true),
            // A newer one than was recorded.
            ("directory", 0, "root/newer", false),
            // Of others nothing was recorded.
            ("directory", 1, "outside", false),
            // What was in memory already is in no profile of the system.
            ("system", 1, "root/app", false),
        ] {
            let fd = Arc::new(open_root(&root).expect("there"));
            let files = Files::new(profile(kind, first), vec![Some(fd)], vec![kind != "system"]);
            let found = files.is_foreign(&executable(name));
            assert_eq!(found, foreign, "{name} of a {kind}, from page {first}");
        }
        // The place of another file by now.
        let mut removed = executable("root/other");
        removed.id.1 += 1;
        let fd = Arc::new(open_root(&root).expect("there"));
        let files = Files::new(profile("directory", 0), vec![Some(fd)], vec![true]);
        assert!(!files.is_foreign(&removed));
    }

    #[test]
    fn a_directory_is_not_recorded_whole_by_a_profile_of_the_system() {
        let directory = tempfile::tempdir().expect("a directory");
        let tree = directory.path().canonicalize().expect("there");
        std::fs::write(tree.join("app"), "app").expect("room");
        let inner = tree.strip_prefix("/").expect("absolute").display();
        for (root, kind, file, whole) in [
            ("/", "system", format!("{inner}/app"), vec![false, false]),
            (
                tree.to_str().expect("text"),
                "directory",
                "app".to_owned(),
                vec![true],
            ),
        ] {
            let text = format!(
                r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["app"], "runs": 1,
"roots": [["{root}", "{kind}"]], "directories": [], "files": [[0, "{file}", 3, null]],
"steps": [["pages", 0, 0, 1, 1, 1]]}}"#
            );
            let profile = Profile::from_text(text.as_bytes(), &Limits::of_profiles());
            let profile = profile.expect("a profile");
            let at = [tree.clone()];
            let replay = Replay::new(profile, &at, DiskCharge::default()).expect("a replay");
            assert_eq!(replay.whole, whole, "{kind}");
        }
    }
}
