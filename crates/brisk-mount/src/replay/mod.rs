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
mod files;
mod warm;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::{Origin, PAGE, Profile, Root, RootKind};
use brisk_io::{
    Charge, DiskReads, Extent, MEASURED_LEN, Prefetch, PrefetchCounts, PrefetchFiles,
    PrefetchOptions, measure_charge, plan_extents,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use self::beside::{AfterReplay, ReplayBeside};
use self::bystander::{Bystander, is_another_launch};
use self::disk::{Disk, DiskCharges, open_root};
use self::files::{Files, LookUps};
pub use self::warm::warm;
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
        let listed = files.profile.files().len() as u64;
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
    use brisk_image::Limits;

    use super::*;

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
