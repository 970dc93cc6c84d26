//! Finds the files of a profile, plans what to read of them, and reads it ahead.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brisk_image::profile::{Origin, PAGE, Profile, ProfileFile, Root, RootKind};
use brisk_io::{
    DiskReads, Extent, Prefetch, PrefetchCounts, PrefetchFiles, PrefetchOptions, plan_extents,
};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::budget::{budget, within};
use super::disk::{Disk, DiskCharge, MeasuredCharges, open_root};
use super::head_start::HeadStart;
use super::look_ups::{LOOK_UP_THREADS, LookUpSwitch, LookUps};
use super::profile_files::ProfileFiles;
use super::verdict::{FileId, GivenUp, Judge, Moment, Running, Step, look_ups_end};
use super::watched_program::WatchedProgram;
use crate::error::{Action, Cause, Error, Result};
use crate::page_log::PageLog;

/// Threads that ask for pages. Each may wait for the disk.
pub(super) const THREADS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// How many files a replay opens beside those of its profile: directories, and what its process has open already.
const OTHER_FILES: u64 = 64;

/// The most bytes of which [`Replay::disk_time`] says how long the disks take for them.
const MOST_TIMED: u64 = 1 << 30;

/// If a disk is known to do no more operations a second, names are looked up last. brisk and the program need the same
/// operations for a name, but the program asks for pages in smaller pieces.
const FEW_OPERATIONS: u64 = 5000;

/// How often to look at the program.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A profile to replay.
#[derive(Debug)]
pub struct Replay {
    pub(super) profile: Profile,
    /// The directory of each root. None for a root that does not exist.
    pub(super) roots: Vec<Option<Arc<OwnedFd>>>,
    /// Whether each root was recorded completely. A profile of the whole system lacks what was in memory when
    /// it was recorded.
    pub(super) complete: Vec<bool>,
    /// What the disk of each root charges.
    disks: Vec<DiskReads>,
    /// Whether that was measured, or is what the caller says.
    is_charge_known: Vec<bool>,
    /// Whether names are looked up when all pages are in memory, and not meanwhile.
    looks_up_last: bool,
    /// The most bytes to ask for. Half of the free memory is always a limit.
    pub budget: Option<u64>,
    /// Whether this runs while the program starts. If so, the replay gives up if all pages are in memory.
    pub race: bool,
    /// Threads that ask for pages. Default: 4.
    pub threads: NonZeroUsize,
    /// The program that starts meanwhile. The replay ends if the program reads other things.
    pub(super) program: Option<WatchedProgram>,
    /// Whether the replay also ends if the program [was not recorded](ProfileFiles::is_unrecorded).
    pub(super) ends_if_unrecorded: bool,
    /// Lets the program begin when this is ahead of it. For a replay of which something is known to be missing.
    pub(super) head_start: Option<HeadStart>,
    /// Records what is asked for.
    pub(super) log: Option<PageLog>,
}

/// What a [`Replay`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// What was asked for.
    pub pages: PrefetchCounts,
    /// Files of the profile that were looked at.
    pub files: u64,
    /// How many of these have another length than recorded.
    pub stale: u64,
    /// How many of these do not exist or may not be read.
    pub missing: u64,
    /// Names that were looked up.
    pub look_ups: u64,
    /// For how many of these the answer (found or absent) has changed since the recording.
    pub changed: u64,
    /// Why it ended early, if it did.
    pub given_up: Option<GivenUp>,
    /// The time until everything that was asked for was in memory.
    pub time: Duration,
}

impl Replay {
    /// A replay of `profile`. Each directory of `at` stands for one of the profile's roots;
    /// [`Origin::root_of`] says for which one. The other roots are where they were recorded. Roots that do
    /// not exist are left out.
    ///
    /// # Errors
    ///
    /// `Place` if a directory of `at` cannot be used, or stands for no root of the profile.
    pub fn new(profile: Profile, at: &[PathBuf], charge: DiskCharge) -> Result<Self> {
        let measured = MeasuredCharges::open(false).ok().flatten();
        Self::on_measured(profile, at, charge, measured.as_ref())
    }

    fn on_measured(
        mut profile: Profile,
        at: &[PathBuf],
        charge: DiskCharge,
        measured: Option<&MeasuredCharges>,
    ) -> Result<Self> {
        let complete = profile.roots().iter();
        let complete = complete.filter(|root| root.kind != RootKind::System);
        let complete: Vec<PathBuf> = complete.map(|root| root.path.clone()).collect();
        let mut places = BTreeMap::new();
        for path in at {
            let named = |e: brisk_image::Error| {
                let cause = Cause::place("the profile's files cannot be found there").because(e);
                Error::new(Action::Replay, cause).with_path(path.as_path())
            };
            let origin = Origin::directory(path).map_err(named)?;
            if let Cow::Owned(narrowed) = origin.narrow(&profile).map_err(named)? {
                profile = narrowed;
            }
            places.insert(origin.root_of(&profile).map_err(named)?, path);
        }
        let mut roots = Vec::new();
        let mut disks = Vec::new();
        let mut is_charge_known = Vec::new();
        let mut looks_up_last = false;
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
            let measured = disk.name().zip(measured);
            let measured = measured.and_then(|(name, charges)| charges.get(&name));
            let mut reads = disk.reads();
            reads.charge = charge.charge(measured, reads.charge);
            is_charge_known.push(measured.is_some() || charge.is_whole());
            let is_known = measured.is_some() || charge.operations_per_second.is_some();
            looks_up_last |= is_known && reads.charge.operations_per_second.get() <= FEW_OPERATIONS;
            disks.push(reads);
            roots.push(fd.map(Arc::new));
        }
        let is_complete = |root: &Root| complete.contains(&root.path);
        Ok(Self {
            complete: profile.roots().iter().map(is_complete).collect(),
            profile,
            roots,
            disks,
            is_charge_known,
            looks_up_last,
            budget: None,
            race: true,
            threads: THREADS,
            program: None,
            ends_if_unrecorded: true,
            head_start: None,
            log: None,
        })
    }

    /// What to ask for, in order, and how many bytes the budget leaves out.
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

    /// How long the disks take for all that the profile lists, if they do nothing else. None if nobody has measured one of
    /// them, or if it is more than 1 GiB.
    pub fn disk_time(&self) -> Option<Duration> {
        let is_known = |file: &ProfileFile| self.is_charge_known.get(file.root as usize);
        let mut known = self.profile.files().iter().map(is_known);
        if !known.all(|is_known| is_known == Some(&true)) {
            return None;
        }
        let (extents, left_out) = self.plan(MOST_TIMED);
        let times = extents
            .iter()
            .map(|extent| self.reads_of(extent.file).charge.of(extent.len));
        let time = times.fold(Duration::ZERO, Duration::saturating_add);
        (left_out == 0).then_some(time)
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

    /// Replays, and waits until everything that was asked for is in memory. During this call the process may
    /// open as many files as the system allows.
    ///
    /// # Errors
    ///
    /// `Io` if no thread can be started.
    pub fn run(self) -> Result<Replayed> {
        let started = Instant::now();
        let limit = raise_file_limit();
        self.make_room_for_files();
        let result = self.replay(started);
        if let Some(limit) = limit {
            // The limit had this value before, so setting it cannot fail.
            setrlimit(Resource::Nofile, limit).ok();
        }
        result.map_err(|e| {
            let cause = Cause::io("start the threads that read", e);
            Error::new(Action::Replay, cause)
        })
    }

    /// Makes the process's table of open files large enough for those of the profile, before there are threads.
    ///
    /// The kernel makes a full table larger, from 64 entries on. If threads share it, that takes 10 to 16 ms, because the
    /// kernel waits until no processor uses the old one, and all threads that open files wait with it (`expand_fdtable`,
    /// `fs/file.c`).
    fn make_room_for_files(&self) {
        let Some(open) = self.roots.iter().flatten().next() else {
            return;
        };
        let files = self.listed_files().saturating_add(OTHER_FILES);
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let last = i32::try_from(files.min(limit)).unwrap_or(i32::MAX) - 1;
        // The table keeps its size when this descriptor is closed. Without room, files are opened more slowly.
        fcntl_dupfd_cloexec(open, last).ok();
    }

    /// How many bytes the profile lists.
    pub(super) fn listed_bytes(&self) -> u64 {
        let demand = self.profile.demand_by_root().into_iter();
        demand.map(|root| root.bytes).fold(0, u64::saturating_add)
    }

    /// How many files the profile lists.
    pub(super) fn listed_files(&self) -> u64 {
        self.profile.files().len() as u64
    }

    fn replay(self, started: Instant) -> io::Result<Replayed> {
        let options = PrefetchOptions::new(budget(self.budget))
            .threads(self.threads.get())
            .race(self.race)
            .known_missing(self.head_start.is_some());
        // A learned profile is that of this very launch. On a fast disk the program is often ahead of its replay, and reads
        // by itself what was about to be asked for. So only a program that reads more than all of it reads other things.
        let expected = match self.ends_if_unrecorded {
            true => 0,
            false => self.listed_bytes().saturating_mul(2),
        };
        let (extents, left_out) = self.plan(options.budget);
        let reads: Vec<DiskReads> = (0u32..)
            .zip(self.profile.files())
            .map(|(number, _)| self.reads_of(number))
            .collect();
        let look_ups = Arc::new(LookUps::new(&self.profile, self.roots.clone()));
        let files = Arc::new(ProfileFiles::new(self.profile, self.roots, self.complete));
        let switch = Arc::new(LookUpSwitch::default());
        let looks_up = !(options.race && look_ups.all_in_memory(&files.profile));
        let looks_up_last = looks_up && self.looks_up_last && self.program.is_some();
        let mut looking = match looks_up && !looks_up_last {
            true => start_looking(&look_ups, &files, &switch),
            false => Vec::new(),
        };
        let looked = |looking: Vec<JoinHandle<()>>| {
            for thread in looking {
                // The counts of a thread that panicked are right up to there.
                thread.join().ok();
            }
        };
        let log = self.log.map(Arc::new);
        if let Some(log) = &log {
            log.know(files.shown_paths());
        }
        let charged = ChargedFiles {
            files: Arc::clone(&files),
            reads,
            fallback: Disk::NONE.reads(),
            head_start: self.head_start,
            log: log.clone(),
        };
        let begun = match charged.head_start {
            Some(_) => Prefetch::start(extents, options, charged),
            // The program is judged first.
            None => Prefetch::start_paused(extents, options, charged),
        };
        let prefetch = match begun {
            Ok(prefetch) => prefetch,
            Err(e) => {
                switch.end();
                looked(looking);
                return Err(e);
            }
        };
        let judged_files = self.ends_if_unrecorded.then_some(&*files);
        let mut watch = self.program.map(|program| Watch {
            program,
            files: judged_files,
            expected,
            began: Instant::now(),
            judge: Judge::default(),
            known: None,
        });
        let mut given_up = match &mut watch {
            Some(watch) => watch.until(
                || prefetch.is_over(),
                || prefetch.counts().asked,
                |paused| {
                    switch.pause(paused);
                    prefetch.pause(paused);
                },
            ),
            None => {
                prefetch.pause(false);
                None
            }
        };
        if given_up.is_some() {
            prefetch.cancel();
        }
        let mut pages = prefetch.wait();
        pages.over_budget = pages.over_budget.saturating_add(left_out);
        if look_ups_end(given_up, options.race, pages.asked, pages.passed) {
            switch.end();
        } else if let Some(watch) = &mut watch {
            if looks_up_last {
                // The program is judged first.
                switch.pause(true);
                looking = start_looking(&look_ups, &files, &switch);
            }
            given_up = watch.until(
                || looking.iter().all(JoinHandle::is_finished),
                || pages.asked,
                |paused| switch.pause(paused),
            );
            if given_up.is_some() {
                switch.end();
            }
        }
        if let Some(log) = log {
            // If this fails, its reader finds no end in it.
            log.write().ok();
        }
        looked(looking);
        let (look_ups, changed) = look_ups.counts();
        let (files, found) = files.count();
        Ok(Replayed {
            pages,
            files,
            stale: found.stale,
            missing: found.missing,
            look_ups,
            changed,
            given_up,
            time: started.elapsed(),
        })
    }
}

/// Starts the threads that look up names.
fn start_looking(
    look_ups: &Arc<LookUps>,
    files: &Arc<ProfileFiles>,
    switch: &Arc<LookUpSwitch>,
) -> Vec<JoinHandle<()>> {
    let mut looking = Vec::new();
    for _ in 0..LOOK_UP_THREADS {
        let (look_ups, files) = (Arc::clone(look_ups), Arc::clone(files));
        let switch = Arc::clone(switch);
        let thread = thread::Builder::new().name("look-ups".to_owned());
        match thread.spawn(move || look_ups.work(&files.profile, &switch)) {
            Ok(thread) => looking.push(thread),
            // Fewer do it, too.
            Err(_) => break,
        }
    }
    looking
}

/// Watches the program beside which a replay runs.
struct Watch<'a> {
    program: WatchedProgram,
    /// To check whether the program was recorded.
    files: Option<&'a ProfileFiles>,
    /// The program is judged as if at least so many bytes had been asked for.
    expected: u64,
    began: Instant,
    judge: Judge,
    /// The last answer of [`running`].
    known: Option<(FileId, bool)>,
}

impl Watch<'_> {
    /// Watches until something is over, or the replay gives up. `asked`: how many bytes were asked for by now.
    fn until(
        &mut self,
        is_over: impl Fn() -> bool,
        asked: impl Fn() -> u64,
        pause: impl Fn(bool),
    ) -> Option<GivenUp> {
        while !is_over() {
            let running = self.files.map_or(Running::Unknown, |files| {
                running(&self.program, files, &mut self.known)
            });
            let now = Moment {
                at: self.began.elapsed(),
                running,
                own: self.program.own(),
                asked: asked().max(self.expected),
            };
            match self.judge.step(now) {
                Step::GoOn => pause(false),
                Step::Pause => pause(true),
                Step::GiveUp(why) => return Some(why),
            }
            thread::sleep(LOOK_EVERY);
        }
        None
    }
}

/// What `program` runs now. `known` is the last answer for a file, because an answer takes many system calls.
fn running(
    program: &WatchedProgram,
    files: &ProfileFiles,
    known: &mut Option<(FileId, bool)>,
) -> Running {
    let executable = match program.executable() {
        Ok(Some(executable)) => executable,
        Ok(None) => return Running::Nothing,
        Err(_) => return Running::Unknown,
    };
    let file = executable.id;
    let unrecorded = match *known {
        Some((of, unrecorded)) if of == file => unrecorded,
        _ => files.is_unrecorded(&executable),
    };
    *known = Some((file, unrecorded));
    Running::Program { file, unrecorded }
}

/// The files of a profile, with what their disks charge.
struct ChargedFiles {
    files: Arc<ProfileFiles>,
    /// How to read each file, by its number.
    reads: Vec<DiskReads>,
    /// How to read other files.
    fallback: DiskReads,
    /// Ends with the threads that ask.
    head_start: Option<HeadStart>,
    log: Option<Arc<PageLog>>,
}

impl ChargedFiles {
    /// The program no longer waits for this extent.
    fn gain(&self, extent: &Extent) {
        if let Some(head_start) = &self.head_start {
            head_start.gain(self.reads(extent.file).charge.of(extent.len));
        }
    }
}

impl PrefetchFiles for ChargedFiles {
    fn open(&self, extent: &Extent) -> Option<Arc<File>> {
        let file = self.files.open(extent.file);
        if file.is_none() {
            self.gain(extent);
        }
        file
    }

    fn reads(&self, file: u32) -> DiskReads {
        let reads = self.reads.get(file as usize);
        reads.copied().unwrap_or(self.fallback)
    }

    fn resident(&self, extent: &Extent) {
        self.gain(extent);
    }

    fn asked(&self, extent: &Extent) {
        self.gain(extent);
        if let Some(log) = &self.log {
            let end = extent.offset.saturating_add(extent.len).div_ceil(PAGE);
            log.add(true, extent.file.into(), extent.offset / PAGE..end);
        }
    }
}

/// Raises the limit of open files as far as the system allows. Returns the previous limit, if it changed.
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
    use std::path::Path;

    use brisk_image::Limits;

    use super::*;

    /// A profile of one root and of no directories, with files and steps as its text has them.
    fn profile(root: &Path, kind: &str, files: &str, steps: &str) -> Profile {
        let text = format!(
            r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["app"], "runs": 1,
"roots": [["{}", "{kind}"]], "directories": [], "files": [{files}], "steps": [{steps}]}}"#,
            root.display(),
        );
        Profile::from_text(text.as_bytes(), &Limits::of_profiles()).expect("a profile")
    }

    #[test]
    fn the_disk_takes_as_long_as_it_charges() {
        let directory = tempfile::tempdir().expect("a directory");
        let time = |root: &Path, len: u64, charge: DiskCharge| {
            let last = len.div_ceil(PAGE) - 15;
            let profile = profile(
                root,
                "directory",
                &format!(r#"[0, "app", {len}, null]"#),
                &format!(r#"["pages", 0, 0, 10, 1, 1], ["pages", 0, {last}, 15, 1, 1]"#),
            );
            // Whatever was measured on this machine.
            let replay = Replay::on_measured(profile, &[], charge, None);
            replay.expect("a replay").disk_time()
        };
        let charge = |bytes, operations| DiskCharge {
            bytes_per_second: std::num::NonZeroU64::new(bytes),
            operations_per_second: std::num::NonZeroU64::new(operations),
        };
        // 25 pages in two reads: 100 ms for the bytes and 2 ms for the operations.
        let known = charge(25 * PAGE * 10, 1000);
        let len = 100 << 20;
        let here = directory.path();
        assert_eq!(time(here, len, known), Some(Duration::from_millis(102)));
        // Half of it is what is usual for a disk of its kind.
        assert_eq!(time(here, len, charge(1, 0)), None);
        assert_eq!(time(here, len, charge(0, 0)), None);
    }

    #[test]
    fn names_are_looked_up_last_on_a_disk_of_few_operations() {
        let directory = tempfile::tempdir().expect("a directory");
        let here = directory.path();
        let replay = |operations| {
            let charge = DiskCharge {
                operations_per_second: std::num::NonZeroU64::new(operations),
                ..DiskCharge::default()
            };
            let profile = profile(here, "directory", "", "");
            Replay::on_measured(profile, &[], charge, None).expect("a replay")
        };
        assert!(replay(FEW_OPERATIONS).looks_up_last);
        assert!(!replay(FEW_OPERATIONS + 1).looks_up_last);
        // Nobody knows, whatever is usual for a disk of its kind.
        assert!(!replay(0).looks_up_last);
    }

    #[test]
    fn a_program_is_judged_before_names_that_come_last() {
        let directory = tempfile::tempdir().expect("a directory");
        let here = directory.path().canonicalize().expect("there");
        std::fs::copy("/bin/sleep", here.join("sleep")).expect("room");
        let look_up = |program| {
            let text = format!(
                r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["app"], "runs": 1,
"roots": [["{}", "directory"]], "directories": [[0, ""]], "files": [],
"steps": [["found", 0, "sleep", 1, 1], ["absent", 0, "none", 2, 1]]}}"#,
                here.display(),
            );
            let profile = Profile::from_text(text.as_bytes(), &Limits::of_profiles());
            let charge = DiskCharge {
                operations_per_second: std::num::NonZeroU64::new(FEW_OPERATIONS),
                ..DiskCharge::default()
            };
            let replay = Replay::on_measured(profile.expect("a profile"), &[], charge, None);
            let mut replay = replay.expect("a replay");
            // Whatever is in memory.
            replay.race = false;
            replay.program = Some(program);
            let replayed = replay.run().expect("threads");
            (replayed.look_ups, replayed.given_up)
        };
        let this = WatchedProgram::this().expect("accounts");
        assert_eq!(look_up(this), (2, None));
        // Of a directory that was recorded completely, but no recorded launch started it.
        let mut other = std::process::Command::new(here.join("sleep"));
        let mut other = other.arg("60").spawn().expect("a program");
        let process = PathBuf::from(format!("/proc/{}", other.id()));
        let program = WatchedProgram::of(&process).expect("accounts");
        let unrecorded = Some(GivenUp::UnrecordedProgram);
        assert_eq!(look_up(program), (0, unrecorded));
        other.kill().expect("it runs");
        other.wait().expect("it ends");
    }

    #[test]
    fn there_is_room_for_the_files_of_a_profile() {
        let directory = tempfile::tempdir().expect("a directory");
        let files: Vec<_> = (0..700)
            .map(|number| format!(r#"[0, "{number}", 3, null]"#))
            .collect();
        let profile = profile(directory.path(), "directory", &files.join(", "), "");
        let replay = Replay::new(profile, &[], DiskCharge::default()).expect("a replay");
        replay.make_room_for_files();
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        let size: u64 = size.expect("a size").trim().parse().expect("a number");
        assert!(size >= 700, "{size}");
    }

    #[test]
    fn a_profile_of_the_system_does_not_record_a_directory_completely() {
        let directory = tempfile::tempdir().expect("a directory");
        let tree = directory.path().canonicalize().expect("there");
        std::fs::write(tree.join("app"), "app").expect("room");
        let inner = tree.strip_prefix("/").expect("absolute").display();
        for (root, kind, file, complete) in [
            (
                Path::new("/"),
                "system",
                format!("{inner}/app"),
                vec![false, false],
            ),
            (&tree, "directory", "app".to_owned(), vec![true]),
        ] {
            let files = format!(r#"[0, "{file}", 3, null]"#);
            let profile = profile(root, kind, &files, r#"["pages", 0, 0, 1, 1, 1]"#);
            let at = [tree.clone()];
            let replay = Replay::new(profile, &at, DiskCharge::default()).expect("a replay");
            assert_eq!(replay.complete, complete, "{kind}");
        }
    }
}
