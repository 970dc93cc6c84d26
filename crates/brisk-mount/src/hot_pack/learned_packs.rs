//! The hot packs that sessions have learned: a directory of the user.
//!
//! It is `$XDG_CACHE_HOME/brisk/hot`, else `~/.cache/brisk/hot`. Each image, launched in one way, has three
//! files there. `KEY.hot` is the pack; its modification time is the time of its last use. `KEY.profile` is
//! the profile from which the pack was made. `KEY.image` is a link to the image, for people. Each file is
//! either complete or missing. Two sessions that learn the same replace each other's files.
//!
//! A launch without an image has no pack: its profile is replayed. Then `KEY.image` is a link to the directory that was
//! named, or else `KEY.program` is one to the program, and the time of `KEY.profile` is that of its last use. If a launch
//! asked for much that the profile lacks, there is `KEY.more` with the number of bytes that it read, and the next launch is
//! recorded too. It has 0 if the recording itself was not whole: a whole one then takes its place. If a recording adds next
//! to nothing, the profile has that from then on, and `KEY.settled` has the number: what the program reads is other each
//! time, and only a launch that reads a good deal more is worth another recording. A program that reads so little that
//! nothing can be gained has `KEY.small`, with the number of recordings that have said so, and ` short` behind it if the
//! bytes are more, but the disk gives them in a short time. After a start that read from the disk, `KEY.start` has the
//! number of bytes that the replay had asked for before the program did, and the number of those that the program read by
//! itself. `KEY.sample` has how long the launch lasts, and some pages and names of the profile: if they are in memory, a
//! start replays nothing.
//!
//! `limit` is how many bytes all of this may take, if the user has set that.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use brisk_image::Limits;
use brisk_image::hot_pack::HotPack;
use brisk_image::profile::{PAGE, Profile, RootKind};
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, flock, futimens, openat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::getpid;

use super::staging::{self, TEMPORARY};
use crate::error::{Action, Cause, Error, Result};
use crate::key::Key;
use crate::open::open_file;
use crate::owner::is_own;
use crate::private_directory::{cache_directory, make_cache_directory, open_private};
use crate::replay::{DiskCharge, Look, NextLaunch, Replay, ReplayEnd, Sample, StartReads};

/// The files of one key.
const KINDS: [&str; 9] = [
    "hot", "profile", "image", "more", "program", "sample", "settled", "small", "start",
];

/// How many launches that each added something one profile is made from at most. Without this limit, a program that asks
/// for other things each time would always be recorded.
const MOST_LAUNCHES: u32 = 8;

/// If the last launch was added so long ago, a profile of so many launches is made anew: the program has changed.
const FULL_FOR: Duration = Duration::from_secs(86_400);

/// A recording adds next to nothing if it has less than one new page for so many known ones.
const NEXT_TO_NOTHING: u64 = 20;

/// Another recording is worth its time if a launch has read so much more by itself than the last one that was settled, and
/// at least this part of what is known.
const MORE: u64 = 4 << 20;
const MORE_OF_KNOWN: u64 = 8;

/// A launch that reads less is left alone: what it waits for is over before a replay could begin.
const SMALL: u64 = 2 << 20;

/// A launch for which the disk takes less time is left alone, too: a cold start of brisk itself takes some 6 ms, and a
/// program reads much of so little by itself before a replay does.
const SHORT: Duration = Duration::from_millis(15);

/// What `KEY.small` has behind the number if the time is short.
const IS_SHORT: &str = " short";

/// After this time, a program that was small is looked at again: its first launch may have been `--version`. Each further
/// time takes four times as long, up to a week.
const SMALL_FOR: Duration = Duration::from_secs(600);
const SMALL_AT_MOST: Duration = Duration::from_secs(7 * 86_400);

/// The file with the limit that the user has set: a number of bytes.
const LIMIT: &str = "limit";

/// The age at which unfinished files count as abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The hot packs that a user's sessions have learned.
///
/// 1. The directory belongs to the user, and nobody else may enter it, because the pages of a pack get into
///    the memory of programs.
#[derive(Debug)]
pub struct LearnedPacks {
    fd: Arc<OwnedFd>,
    /// The path, for messages.
    path: PathBuf,
}

/// One of [`LearnedPacks`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LearnedPack {
    /// The key, which no other pack has.
    pub key: String,
    /// What it was learned of.
    pub of: LearnedOf,
    /// Why the launch is left alone, if it is.
    pub left_alone: Option<LeftAlone>,
    /// Whether the next launch is recorded, too.
    pub is_learning: bool,
    /// Whether the profile has as many launches as one may have, so that nothing is added any more.
    pub is_full: bool,
    /// How many bytes a launch has read by itself whose recording added next to nothing, if there was one: they differ from
    /// launch to launch, or come before a replay could.
    pub settled: Option<u64>,
    /// What the last start has read: from the disk, with a replay beside it, or from an image that was filled from the pack.
    pub last_start: Option<StartReads>,
    /// The image, the directory or the program, by its name when the pack was learned.
    pub image: Option<PathBuf>,
    /// Where the image was mounted.
    pub place: Option<PathBuf>,
    /// The command of the first launch that it was learned from.
    pub command: Vec<OsString>,
    /// How many launches it was learned from.
    pub runs: Option<u32>,
    /// Pages of 4 KiB in the pack or the profile. None if it is damaged, or if the next launch will make it.
    pub pages: Option<u64>,
    /// Bytes of its files.
    pub bytes: u64,
    /// When a session last filled from it, or when it was made.
    pub used: SystemTime,
}

/// What a pack or a profile was learned of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LearnedOf {
    /// An image: there is a pack.
    Image,
    /// A program that was started from a directory.
    Directory,
    /// A program, wherever its files lie.
    Program,
}

/// Why nothing can be gained for a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftAlone {
    /// It reads little.
    Small,
    /// It reads more, but the disk gives that in a short time.
    Short,
}

/// What is known of a launch without an image.
#[derive(Debug)]
#[non_exhaustive]
pub enum KnownLaunch {
    /// Nothing: this launch should be recorded.
    Nothing,
    /// A profile to replay as with [`KnownLaunch::Profile`], which may lack much: this launch should be recorded, too.
    Incomplete(PathBuf, File),
    /// Nothing can be gained, so it is to be left alone.
    LeftAlone(LeftAlone),
    /// A profile to replay, with its path for messages.
    Profile(PathBuf, File),
}

/// What a launch was observed to ask for.
#[derive(Debug, Clone, Copy)]
pub struct ObservedLaunch<'a> {
    /// What was seen.
    pub profile: &'a Profile,
    /// Whether that is all.
    pub wholeness: Wholeness,
    /// What the disks charge, instead of what was measured.
    pub charge: DiskCharge,
}

/// Whether a recording has all that a launch asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wholeness {
    /// It has.
    Whole,
    /// It has all until the launch was let go for good.
    Beginning,
    /// It lacks some.
    WithGaps {
        /// How many bytes the launch has read by system calls in these gaps, as far as that is known.
        read: u64,
    },
}

/// The size of the files of one key, and when they were last used.
#[derive(Debug, Clone, Copy)]
struct Size {
    bytes: u64,
    used: SystemTime,
    /// The file that says when it was used, as an index into [`KINDS`].
    by: usize,
}

impl LearnedPacks {
    /// The directory of the calling user.
    ///
    /// # Errors
    ///
    /// `Place` if the environment names no directory for it.
    pub fn path_of_user() -> Result<PathBuf> {
        match cache_directory() {
            Ok(cache) => Ok(cache.join("hot")),
            Err(cause) => Err(Error::new(Action::Learn, cause)),
        }
    }

    /// Opens the directory at `path`, and makes it if it does not exist.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be made, and `Place` if others could write to it.
    pub fn open(path: &Path) -> Result<Self> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        make_cache_directory(parent)
            .and_then(|()| Self::open_there(path))
            .map_err(|cause| Error::new(Action::Learn, cause))
    }

    fn open_there(path: &Path) -> Result<Self, Cause> {
        Ok(Self {
            fd: Arc::new(open_private(path)?),
            path: path.to_owned(),
        })
    }

    /// All packs, the last used one first.
    ///
    /// # Errors
    ///
    /// `Io` if the directory cannot be read.
    pub fn list(&self) -> Result<Vec<LearnedPack>> {
        let sizes = self.sizes().map_err(|e| self.failed("read", e))?;
        let mut packs: Vec<_> = sizes
            .into_iter()
            .map(|(key, Size { bytes, used, .. })| {
                let pack = self.pack(&key).map(|(_, file)| file);
                let pack = pack.and_then(|f| HotPack::from_source(f, &Limits::default()).ok());
                let profile = self.profile(&key);
                let of_profile = profile.as_ref();
                let of_directory = of_profile.is_some_and(|profile| {
                    let first = profile.roots().first();
                    first.is_some_and(|root| root.kind == RootKind::Directory)
                });
                let program = self.link(&key, "program");
                let of = match (&program, of_directory) {
                    (Some(_), _) => LearnedOf::Program,
                    (None, true) => LearnedOf::Directory,
                    (None, false) => LearnedOf::Image,
                };
                let listed = of_profile.filter(|_| of != LearnedOf::Image).map(pages_of);
                let first = of_profile.filter(|_| of == LearnedOf::Image);
                LearnedPack {
                    of,
                    left_alone: self.left_alone(&key).map(|(_, why)| why),
                    is_learning: self.reach(&format!("{key}.more")).exists(),
                    is_full: of != LearnedOf::Image
                        && of_profile.is_some_and(|known| known.runs() >= MOST_LAUNCHES),
                    settled: self.number(&key, "settled").filter(|own| *own > 0),
                    last_start: self.last_start(&key),
                    image: program.or_else(|| self.link(&key, "image")),
                    place: first.and_then(|p| Some(p.roots().first()?.path.clone())),
                    command: of_profile.map_or(Vec::new(), |p| p.command().to_vec()),
                    runs: of_profile.map(Profile::runs),
                    pages: pack.map(|pack| pack.pages()).or(listed),
                    bytes,
                    used,
                    key,
                }
            })
            .collect();
        packs.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.key.cmp(&b.key)));
        Ok(packs)
    }

    /// The key of launches from the directory `tree`, which must be canonical. `parts` tells them apart.
    pub fn key_of_directory(tree: &Path, parts: &[OsString]) -> String {
        let mut key = Key::of_launches();
        key.add(b"directory");
        key.add_path(Some(tree));
        for part in parts {
            key.add(part.as_bytes());
        }
        key.name()
    }

    /// The key of launches without an image or a directory. `parts` tells them apart.
    pub fn key_of_launch(parts: &[OsString]) -> String {
        let mut key = Key::of_launches();
        key.add(b"launch");
        for part in parts {
            key.add(part.as_bytes());
        }
        key.name()
    }

    /// What is known for this key. Records that a profile is used now.
    pub fn use_launch(&self, key: &str) -> KnownLaunch {
        if let Some(made) = self.modified(key, "small") {
            let age = made.elapsed().unwrap_or_default();
            let installed = self.installed(key);
            let (times, why) = self.left_alone(key).unwrap_or((0, LeftAlone::Small));
            let is_old = age > small_for(times);
            return match is_old || installed.is_some_and(|installed| installed > made) {
                true => KnownLaunch::Nothing,
                false => KnownLaunch::LeftAlone(why),
            };
        }
        let is_incomplete = self.reach(&format!("{key}.more")).exists();
        let name = format!("{key}.profile");
        let Ok(file) = open_file(&self.reach(&name)) else {
            return KnownLaunch::Nothing;
        };
        // It can be used even if its time cannot be set.
        Self::touch(&file).ok();
        match is_incomplete {
            true => KnownLaunch::Incomplete(self.path.join(name), file),
            false => KnownLaunch::Profile(self.path.join(name), file),
        }
    }

    /// When the program was installed: the time of its file. None if it is not found.
    fn installed(&self, key: &str) -> Option<SystemTime> {
        let modified = |path: &Path| fs::metadata(path).ok()?.modified().ok();
        if let Some(program) = self.link(key, "program") {
            return modified(&program);
        }
        let directory = self.link(key, "image")?;
        let profile = self.profile(key)?;
        let program = Path::new(profile.command().first()?);
        // Where the directory is the root, its `/bin/app` is meant, and otherwise the system's.
        let inside = program.strip_prefix("/").unwrap_or(program);
        modified(&directory.join(inside)).max(modified(&directory.join(program)))
    }

    /// Looks at a sample of what was learned of a launch with this key. None if there is none. The names are those that the
    /// launch had, so they mean something only in the same root directory.
    pub fn look(&self, key: &str) -> Option<Look> {
        let bytes = fs::read(self.reach(&format!("{key}.sample"))).ok()?;
        Sample::parse(&bytes).map(|sample| sample.look())
    }

    /// When a file of this kind was written.
    fn modified(&self, key: &str, kind: &str) -> Option<SystemTime> {
        let found = fs::metadata(self.reach(&format!("{key}.{kind}")));
        found.ok()?.modified().ok()
    }

    /// The number in a file of this kind. None if there is no file, or no number in it.
    fn number(&self, key: &str, kind: &str) -> Option<u64> {
        let text = fs::read_to_string(self.reach(&format!("{key}.{kind}"))).ok()?;
        text.trim().parse().ok()
    }

    /// How many recordings have said that nothing can be gained, and why. None if none has. A damaged file counts as none of
    /// them.
    fn left_alone(&self, key: &str) -> Option<(u64, LeftAlone)> {
        let text = fs::read_to_string(self.reach(&format!("{key}.small"))).ok()?;
        let (times, why) = match text.strip_suffix(IS_SHORT) {
            Some(times) => (times, LeftAlone::Short),
            None => (&*text, LeftAlone::Small),
        };
        Some((times.parse().unwrap_or(0), why))
    }

    /// The profile with this [`LearnedPack::key`]. None if there is none, or if it is damaged. It does not count as used.
    pub fn profile_of(&self, key: &str) -> Option<Profile> {
        self.profile(key)
    }

    /// Notes for this key what its replay has found. Does nothing if `used` is no longer its profile, because another launch
    /// has made a new one meanwhile.
    ///
    /// # Errors
    ///
    /// `Io` if its files cannot be examined, written or removed.
    pub fn after_replay(&self, key: &str, used: &Metadata, end: ReplayEnd) -> Result<()> {
        // With most of it in memory, a start says nothing about one from the disk.
        if let Some(reads) = end.reads.filter(|reads| reads.all() >= SMALL) {
            self.note_start(key, used, reads)?;
        }
        match end.next {
            NextLaunch::Replays => Ok(()),
            NextLaunch::RecordsMore { own } => self.record_more(key, used, own),
            NextLaunch::RecordsAnew => self.forget_profile(key, used),
        }
    }

    fn note_start(&self, key: &str, used: &Metadata, reads: StartReads) -> Result<()> {
        let note = || match self.is_profile(key, used)? {
            true => self.write_start(key, reads),
            false => Ok(()),
        };
        note().map_err(|e| self.failed("write to", e))
    }

    /// Notes what was filled from the pack of this key, and what the program asked for by itself. Does nothing if there is no
    /// pack.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be written.
    pub(crate) fn note_fill(&self, key: &str, reads: StartReads) -> Result<()> {
        match self.reach(&format!("{key}.hot")).exists() {
            true => self.write_start(key, reads),
            false => Ok(()),
        }
        .map_err(|e| self.failed("write to", e))
    }

    fn write_start(&self, key: &str, reads: StartReads) -> io::Result<()> {
        let text = format!("{} {}", reads.ahead, reads.own);
        self.put(&format!("{key}.start"), text)
    }

    /// What `write_start` has noted. None if there is nothing, or if it is damaged.
    fn last_start(&self, key: &str) -> Option<StartReads> {
        let text = fs::read_to_string(self.reach(&format!("{key}.start"))).ok()?;
        let (ahead, own) = text.split_once(' ')?;
        Some(StartReads {
            ahead: ahead.parse().ok()?,
            own: own.parse().ok()?,
        })
    }

    fn forget_profile(&self, key: &str, used: &Metadata) -> Result<()> {
        let forget = || match self.is_profile(key, used)? {
            true => self.remove(key),
            false => Ok(()),
        };
        forget().map_err(|e| self.failed("remove a profile from", e))
    }

    /// Requests a recording of the next launch too, because one has read `own` bytes by itself. Not if that is little beside
    /// what is known, or if an earlier recording for about as much added next to nothing. A profile that has the most
    /// launches that it may have is removed instead, if the last one was added long ago.
    fn record_more(&self, key: &str, used: &Metadata, own: u64) -> Result<()> {
        let record = || {
            let known = self.profile(key);
            let launches = known.as_ref().map_or(0, |known| known.runs());
            let bytes = known.as_ref().map_or(0, pages_of).saturating_mul(PAGE);
            let settled = self.number(key, "settled").unwrap_or(0);
            let more = MORE.max(bytes / MORE_OF_KNOWN);
            let is_worth_it = own > settled.saturating_add(more);
            if !is_worth_it || !self.is_profile(key, used)? {
                return Ok(());
            }
            if launches < MOST_LAUNCHES {
                return self.put(&format!("{key}.more"), own.to_string());
            }
            // The sample is written with the profile.
            let added = self.modified(key, "sample");
            let age = added.map_or(FULL_FOR, |added| added.elapsed().unwrap_or_default());
            match age >= FULL_FOR {
                true => self.remove(key),
                false => Ok(()),
            }
        };
        record().map_err(|e| self.failed("write to", e))
    }

    /// What a process keeps open while it observes a launch, so that [`LearnedPacks::wait_for_observers`] waits for it.
    ///
    /// # Errors
    ///
    /// `Io` if the directory cannot be opened or locked.
    pub fn observing(&self) -> Result<OwnedFd> {
        self.locked(FlockOperation::NonBlockingLockShared)
            .map_err(|e| self.failed("lock", e))
    }

    /// Says that what was observed is kept: nobody waits any more for who has this lock.
    pub fn has_observed(observing: &OwnedFd) {
        // If this fails, others wait a little longer.
        flock(observing, FlockOperation::Unlock).ok();
    }

    /// Waits until no launch is observed any more, but not for longer than `at_most`. Returns whether one still is, as far as
    /// is known: where nothing can be locked, nobody knows.
    pub fn wait_for_observers(&self, at_most: Duration) -> bool {
        let since = Instant::now();
        loop {
            match self.locked(FlockOperation::NonBlockingLockExclusive) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                _ => return false,
            }
            if since.elapsed() >= at_most {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The directory, opened anew: a lock belongs to what was opened at once.
    fn locked(&self, operation: FlockOperation) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&self.fd, ".", flags, Mode::empty())?;
        flock(&directory, operation)?;
        Ok(directory)
    }

    /// Records that a launch of this key is being recorded, and returns how many were that added something. Whatever
    /// happens to this recording, later launches use what is known, until one of them asks for much that is not known.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be written.
    pub fn begin_recording(&self, key: &str) -> Result<u32> {
        self.settle(key).map_err(|e| self.failed("write to", e))?;
        Ok(self.profile(key).map_or(0, |known| known.runs()))
    }

    /// Notes that a launch that read so much is recorded, so that no other is for the same reason.
    fn settle(&self, key: &str) -> io::Result<()> {
        match renameat(
            &self.fd,
            format!("{key}.more"),
            &self.fd,
            format!("{key}.settled"),
        ) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether the open file `used` is still the profile of this key.
    fn is_profile(&self, key: &str, used: &Metadata) -> io::Result<bool> {
        match fs::metadata(self.reach(&format!("{key}.profile"))) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            now => now.map(|now| (now.dev(), now.ino()) == (used.dev(), used.ino())),
        }
    }

    /// Keeps the profile of a launch, merged with those of earlier launches. `name` is the directory or the program, for
    /// people. A recording that is not whole may lack much: if it has added something, the next launch is recorded, too.
    /// Everything that was learned may take `limit` bytes.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be written.
    pub fn keep_profile(
        &self,
        key: &str,
        of: LearnedOf,
        name: &Path,
        recording: ObservedLaunch<'_>,
        limit: u64,
    ) -> Result<()> {
        let profile = recording.profile;
        let (whole, read) = match recording.wholeness {
            Wholeness::Whole | Wholeness::Beginning => (true, 0),
            Wholeness::WithGaps { read } => (false, read),
        };
        let keep = || -> io::Result<()> {
            let kind = match of {
                LearnedOf::Program => "program",
                LearnedOf::Directory | LearnedOf::Image => "image",
            };
            self.name(key, kind, name)?;
            let known = self.profile(key);
            let before = known.as_ref().map_or(0, pages_of);
            // A recording with gaps has pages that the kernel has mapped around others, so a whole one stands for itself.
            let had_gaps = self.number(key, "settled") == Some(0);
            let is_replaced = had_gaps && recording.wholeness == Wholeness::Whole;
            let known = known.filter(|_| !is_replaced);
            let merged = known.and_then(|known| Profile::merge_newer(known, profile).ok());
            let added = merged
                .as_ref()
                .map(|(merged, kept)| pages_of(merged).saturating_sub(*kept));
            let adds_any = added.is_none_or(|added| added > 0);
            let adds = added.is_none_or(|added| added.saturating_mul(NEXT_TO_NOTHING) >= before);
            let profile = merged.as_ref().map_or(profile, |(merged, _)| merged);
            // A recording with gaps says only what is read at least.
            let listed = pages_of(profile).saturating_mul(PAGE);
            let least = match whole {
                true => listed,
                false => listed.max(read),
            };
            let is_full = profile.runs() >= MOST_LAUNCHES;
            // The first recording with gaps may have missed anything, such as a process.
            let is_over = whole || !adds || is_full;
            // Too little of what is read may be known to say how long the disk takes for it.
            let is_known = whole || read <= listed;
            let time = || disk_time(profile, recording.charge);
            let left_alone = if !is_over {
                None
            } else if least < SMALL {
                Some(LeftAlone::Small)
            } else if is_known && time().is_some_and(|time| time < SHORT) {
                Some(LeftAlone::Short)
            } else {
                None
            };
            let small = format!("{key}.small");
            match left_alone {
                Some(why) => {
                    let times = self.left_alone(key).map_or(0, |(times, _)| times);
                    let why = match why {
                        LeftAlone::Small => "",
                        LeftAlone::Short => IS_SHORT,
                    };
                    let text = format!("{}{why}", times.saturating_add(1));
                    self.put(&small, text)?;
                }
                None => self.unlink(&small)?,
            }
            let (more, settled) = (format!("{key}.more"), format!("{key}.settled"));
            let is_complete = whole || left_alone.is_some() || is_full;
            if adds && !is_complete {
                // In this order: a launch that begins meanwhile gives the second the name of the first.
                self.unlink(&settled)?;
                self.put(&more, "0")?;
            }
            // What belongs to a profile comes before it: a launch may use it at once, and to put it on the disk may take
            // seconds.
            if adds_any {
                self.put(&format!("{key}.sample"), Sample::of(profile).to_bytes())?;
                let path = self.reach(&format!("{key}.profile"));
                profile.write(path).map_err(io::Error::other)?;
            }
            if adds && is_complete {
                // An earlier launch may have requested another recording meanwhile.
                self.unlink(&settled)?;
                self.unlink(&more)?;
            } else if !adds {
                self.settle(key)?;
            }
            self.keep_within(limit)
        };
        keep().map_err(|e| self.failed("write to", e))
    }

    /// How many bytes all packs may take, if the user has set that.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be read, or if the file does not have a number.
    pub fn limit(&self) -> Result<Option<u64>> {
        let text = match fs::read_to_string(self.reach(LIMIT)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|e| self.failed("read the limit in", e))?,
        };
        text.trim_end().parse().map(Some).map_err(|_| {
            let found: String = text.chars().take(20).collect();
            let name = self.path.join(LIMIT);
            let message = format!("{found:?} is no number of bytes; remove {}", name.display());
            let error = io::Error::new(io::ErrorKind::InvalidData, message);
            self.failed("read the limit in", error)
        })
    }

    /// Sets how many bytes all packs may take from now on. With None, nobody has set that. What is too much goes at once.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be written, or if packs cannot be removed.
    pub fn set_limit(&self, limit: Option<u64>) -> Result<()> {
        let set = || match limit {
            None => self.unlink(LIMIT),
            Some(limit) => {
                self.put(LIMIT, format!("{limit}\n"))?;
                self.keep_within(limit)
            }
        };
        set().map_err(|e| self.failed("write to", e))
    }

    /// Removes the pack with this [`LearnedPack::key`].
    ///
    /// # Errors
    ///
    /// `Io` if its files cannot be removed.
    pub fn forget(&self, key: &str) -> Result<()> {
        self.remove(key)
            .map_err(|e| self.failed("remove a pack from", e))
    }

    fn failed(&self, what: &str, e: io::Error) -> Error {
        let step = format!("{what} {}", self.path.display());
        Error::new(Action::Learn, Cause::io(step, e))
    }

    /// The descriptor that it needs, for a process that keeps only some: see [`Observe::held`](crate::Observe::held).
    pub fn handle(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The path of a file in the directory, through the descriptor, because something may be mounted over the
    /// directory's own path.
    pub(crate) fn reach(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()).into()
    }

    /// `text` with the directory's own name instead of the path by which a process reaches `directory`, which is this one
    /// or one in it.
    pub(crate) fn named(&self, text: &str, directory: BorrowedFd<'_>) -> String {
        let own = self.path.display().to_string();
        text.replace(&format!("/proc/self/fd/{}", directory.as_raw_fd()), &own)
    }

    /// The pack with this [`LearnedPack::key`], and its path. None if there is none that belongs to this user.
    pub fn pack(&self, key: &str) -> Option<(PathBuf, File)> {
        let name = format!("{key}.hot");
        let file = open_file(&self.reach(&name)).ok()?;
        let metadata = file.metadata().ok()?;
        let ours = metadata.is_file() && is_own(metadata.uid());
        ours.then(|| (self.path.join(name), file))
    }

    /// The profile of this key, opened.
    pub(crate) fn open_profile(&self, key: &str) -> Option<File> {
        open_file(&self.reach(&format!("{key}.profile"))).ok()
    }

    /// The profile from which the pack of this key was made. None if it is missing or damaged.
    pub(crate) fn profile(&self, key: &str) -> Option<Profile> {
        Profile::open(
            self.reach(&format!("{key}.profile")),
            &Limits::of_profiles(),
        )
        .ok()
    }

    /// What the link of this kind names.
    fn link(&self, key: &str, kind: &str) -> Option<PathBuf> {
        let link = rustix::fs::readlinkat(&self.fd, format!("{key}.{kind}"), Vec::new()).ok()?;
        Some(OsString::from_vec(link.into_bytes()).into())
    }

    /// Records which image the pack of this key belongs to.
    pub(crate) fn name_image(&self, key: &str, image: &Path) -> io::Result<()> {
        self.name(key, "image", image)
    }

    /// Makes the link of this kind.
    fn name(&self, key: &str, kind: &str, to: &Path) -> io::Result<()> {
        let temporary = format!("{TEMPORARY}{}", getpid());
        match unlinkat(&self.fd, &temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        symlinkat(to, &self.fd, &temporary)?;
        Ok(renameat(
            &self.fd,
            &temporary,
            &self.fd,
            format!("{key}.{kind}"),
        )?)
    }

    /// Records that the pack in `file` is used now.
    pub(crate) fn touch(file: &File) -> io::Result<()> {
        let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
        let times = Timestamps {
            last_access: at(UTIME_OMIT),
            last_modification: at(UTIME_NOW),
        };
        Ok(futimens(file, &times)?)
    }

    /// Removes the pack of this key, but not the profile of its launches.
    pub(crate) fn remove_pack(&self, key: &str) -> io::Result<()> {
        self.unlink(&format!("{key}.hot"))
    }

    pub(crate) fn remove(&self, key: &str) -> io::Result<()> {
        for kind in KINDS {
            self.unlink(&format!("{key}.{kind}"))?;
        }
        Ok(())
    }

    /// Writes a small file in one step, for whoever reads it meanwhile. After a crash it may be empty.
    fn put(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        let new = format!("{TEMPORARY}{name}-{}", getpid());
        fs::write(self.reach(&new), content)?;
        Ok(renameat(&self.fd, &new, &self.fd, name)?)
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The size of each key's files. Removes abandoned files on the way.
    fn sizes(&self) -> io::Result<BTreeMap<String, Size>> {
        let mut sizes: BTreeMap<String, Size> = BTreeMap::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A descriptor of its own, because reading must begin at the start of the directory.
        let directory = openat(&self.fd, ".", flags, Mode::empty())?;
        for entry in Dir::read_from(&directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let Ok(stat) = statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
            let changed = Duration::new(seconds, u32::try_from(stat.st_mtime_nsec).unwrap_or(0));
            let changed = SystemTime::UNIX_EPOCH + changed;
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if name.starts_with(TEMPORARY) {
                let is_abandoned = changed.elapsed().is_ok_and(|age| age > ABANDONED);
                match (is_abandoned, is_directory) {
                    (true, true) => staging::remove(self.fd(), &name)?,
                    (true, false) => self.unlink(&name)?,
                    (false, _) => {}
                }
                continue;
            }
            if is_directory {
                continue;
            }
            let Some((key, kind)) = name.rsplit_once('.').filter(|(_, k)| KINDS.contains(k)) else {
                continue;
            };
            let size = sizes.entry(key.to_owned()).or_insert(Size {
                bytes: 0,
                used: SystemTime::UNIX_EPOCH,
                by: KINDS.len(),
            });
            size.bytes = size
                .bytes
                .saturating_add(u64::try_from(stat.st_size).unwrap_or(0));
            // The time of the pack counts, or that of the profile if there is no pack.
            let by = KINDS.iter().position(|known| *known == kind);
            if let Some(by) = by.filter(|by| *by < size.by) {
                (size.used, size.by) = (changed, by);
            }
        }
        Ok(sizes)
    }

    /// Removes packs until the others take at most `limit` bytes. First goes the one that has been unused
    /// for the longest time.
    pub(crate) fn keep_within(&self, limit: u64) -> io::Result<()> {
        let mut sizes: Vec<_> = self.sizes()?.into_iter().collect();
        sizes.sort_by_key(|(_, size)| size.used);
        let mut sum = sizes
            .iter()
            .map(|(_, size)| size.bytes)
            .fold(0, u64::saturating_add);
        for (key, size) in sizes {
            if sum <= limit {
                break;
            }
            self.remove(&key)?;
            sum = sum.saturating_sub(size.bytes);
        }
        Ok(())
    }
}

/// How long a program is left alone that so many recordings have found small.
fn small_for(times: u64) -> Duration {
    let doublings = u32::try_from(times.saturating_sub(1).saturating_mul(2)).unwrap_or(u32::MAX);
    let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
    SMALL_FOR.saturating_mul(factor.max(1)).min(SMALL_AT_MOST)
}

/// How long the disks take for what a profile lists. None if nobody knows.
fn disk_time(profile: &Profile, charge: DiskCharge) -> Option<Duration> {
    let replay = Replay::new(profile.clone(), &[], charge).ok()?;
    replay.disk_time()
}

/// How many pages a profile lists.
fn pages_of(profile: &Profile) -> u64 {
    let demand = profile.demand_by_root().into_iter();
    let pages = demand.map(|demand| demand.pages);
    pages.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brisk_image::profile::{Named, ProfileBuilder};
    use std::os::unix::fs::PermissionsExt;

    fn packs() -> (tempfile::TempDir, LearnedPacks) {
        let dir = tempfile::tempdir().expect("a directory");
        let packs = LearnedPacks::open(&dir.path().join("a/hot")).expect("room");
        (dir, packs)
    }

    fn put(packs: &LearnedPacks, name: &str, bytes: usize, used: u64) {
        let path = packs.path.join(name);
        fs::write(&path, vec![0; bytes]).expect("room");
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(used);
        File::open(path)
            .expect("made")
            .set_modified(used)
            .expect("ours");
    }

    fn keys(packs: &LearnedPacks) -> Vec<String> {
        let list = packs.list().expect("a list");
        list.into_iter().map(|pack| pack.key).collect()
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let (_dir, packs) = packs();
        put(&packs, "a.hot", 100, 30);
        // Newer, but among the files of a pack the time of the pack itself counts.
        put(&packs, "a.profile", 10, 90);
        put(&packs, "b.hot", 100, 10);
        put(&packs, "c.hot", 100, 20);
        put(&packs, "other", 1000, 1);
        packs.keep_within(310).expect("ours");
        assert_eq!(keys(&packs), ["a", "c", "b"]);
        packs.keep_within(309).expect("ours");
        assert_eq!(keys(&packs), ["a", "c"]);
        packs.keep_within(109).expect("ours");
        assert_eq!(keys(&packs), [] as [&str; 0]);
        assert!(packs.path.join("other").exists());
    }

    #[test]
    fn what_nobody_finishes_is_removed() {
        let (_dir, packs) = packs();
        put(&packs, ".brisk-old", 100, 30);
        fs::write(packs.path.join(".brisk-new"), "").expect("room");
        assert_eq!(keys(&packs), [] as [&str; 0]);
        assert!(!packs.path.join(".brisk-old").exists());
        assert!(packs.path.join(".brisk-new").exists());
    }

    #[test]
    fn a_pack_that_is_no_file_is_none() {
        let (_dir, packs) = packs();
        fs::create_dir(packs.path.join("a.hot")).expect("room");
        assert!(packs.pack("a").is_none());
        put(&packs, "b.hot", 1, 1);
        assert!(packs.pack("b").is_some());
        packs.name_image("b", Path::new("/x.img")).expect("room");
        packs.name_image("b", Path::new("/y.img")).expect("room");
        assert_eq!(packs.link("b", "image"), Some("/y.img".into()));
        packs.forget("b").expect("ours");
        assert_eq!(fs::read_dir(&packs.path).expect("ours").count(), 1);
    }

    #[test]
    fn a_profile_that_was_learned_anew_is_not_forgotten() {
        let (_dir, packs) = packs();
        put(&packs, "a.profile", 1, 1);
        let KnownLaunch::Profile(path, used) = packs.use_launch("a") else {
            panic!("there is one");
        };
        let used = used.metadata().expect("open");
        let anew = |used: &Metadata| {
            packs
                .after_replay("a", used, end(NextLaunch::RecordsAnew, None))
                .expect("ours");
        };
        put(&packs, "new", 1, 1);
        fs::rename(packs.path.join("new"), &path).expect("ours");
        anew(&used);
        assert!(path.exists());
        let now = fs::metadata(&path).expect("there");
        anew(&now);
        assert!(!path.exists());
        // It stays removed.
        anew(&now);
    }

    /// The profile of a launch of `app` that read all of these files.
    fn profile(files: &[(&str, u64)]) -> Profile {
        profile_of("app", files)
    }

    fn profile_of(program: &str, files: &[(&str, u64)]) -> Profile {
        let builder = ProfileBuilder::new();
        let root = builder.add_root("/app", RootKind::Directory);
        for (number, (_, len)) in (0..).zip(files) {
            builder.range(root, number, 0, *len, Duration::ZERO);
        }
        let name = |_, number| {
            let (name, len) = files[usize::try_from(number).expect("few")];
            Some(Named::new(name, len))
        };
        let command = vec![program.into()];
        let built = builder.finish(command, None, name).expect("a profile");
        built.profile
    }

    /// A whole recording, on disks that nobody has measured.
    fn whole(profile: &Profile) -> ObservedLaunch<'_> {
        ObservedLaunch {
            profile,
            wholeness: Wholeness::Whole,
            charge: DiskCharge::default(),
        }
    }

    fn keep(packs: &LearnedPacks, files: &[(&str, u64)]) {
        packs.begin_recording("a").expect("ours");
        let (of, tree) = (LearnedOf::Directory, Path::new("/app"));
        packs
            .keep_profile("a", of, tree, whole(&profile(files)), 1 << 20)
            .expect("room");
    }

    /// Tells that the program has read so much by itself. Returns whether its next launch is recorded.
    fn reads(packs: &LearnedPacks, own: u64) -> bool {
        let KnownLaunch::Profile(_, used) = packs.use_launch("a") else {
            panic!("it is recorded already");
        };
        let used = used.metadata().expect("open");
        packs
            .after_replay("a", &used, end(NextLaunch::RecordsMore { own }, None))
            .expect("ours");
        matches!(packs.use_launch("a"), KnownLaunch::Incomplete(..))
    }

    fn end(next: NextLaunch, reads: Option<(u64, u64)>) -> ReplayEnd {
        let reads = reads.map(|(ahead, own)| StartReads { ahead, own });
        ReplayEnd { next, reads }
    }

    #[test]
    fn the_last_start_from_the_disk_is_noted() {
        let (_dir, packs) = packs();
        keep(&packs, &[("0", SMALL)]);
        let KnownLaunch::Profile(_, used) = packs.use_launch("a") else {
            panic!("there is one");
        };
        let used = used.metadata().expect("open");
        let noted = |next: NextLaunch, reads| {
            let after = packs.after_replay("a", &used, end(next, reads));
            after.expect("ours");
            let list = packs.list().expect("a list");
            list.first().and_then(|pack| pack.last_start)
        };
        let start = |ahead, own| Some(StartReads { ahead, own });
        assert_eq!(noted(NextLaunch::Replays, None), None);
        let reads = (SMALL - 1, 1);
        assert_eq!(noted(NextLaunch::Replays, Some(reads)), start(SMALL - 1, 1));
        // The next one found nearly everything in memory.
        let warm = Some((SMALL - 2, 1));
        assert_eq!(noted(NextLaunch::Replays, warm), start(SMALL - 1, 1));
        let more = NextLaunch::RecordsMore { own: 1 };
        assert_eq!(noted(more, Some((7, SMALL))), start(7, SMALL));
        put(&packs, "a.start", 5, 1);
        assert_eq!(noted(more, None), None);
        // Another launch has made a new profile meanwhile.
        let path = packs.path.join("a.profile");
        fs::copy(&path, packs.path.join("new")).expect("room");
        fs::rename(packs.path.join("new"), &path).expect("ours");
        assert_eq!(noted(more, Some((7, SMALL))), None);
        packs.forget("a").expect("ours");
        assert_eq!(fs::read_dir(&packs.path).expect("ours").count(), 0);
    }

    #[test]
    fn a_profile_of_few_launches_is_added_to() {
        let (_dir, packs) = packs();
        let names: Vec<_> = (0..MOST_LAUNCHES).map(|n| n.to_string()).collect();
        for (launch, name) in (1..).zip(&names) {
            keep(&packs, &[(name, SMALL)]);
            assert_eq!(packs.profile("a").map(|known| known.runs()), Some(launch));
            assert_eq!(reads(&packs, MORE + 1), launch < MOST_LAUNCHES, "{launch}");
        }
        let known = packs.profile("a").map(|known| known.files().len());
        assert_eq!(known, Some(names.len()));
        // A day later, the program is another one, and it is learned anew.
        let sample = File::options()
            .write(true)
            .open(packs.path.join("a.sample"));
        let old = SystemTime::now() - FULL_FOR;
        sample.expect("there").set_modified(old).expect("ours");
        let KnownLaunch::Profile(_, used) = packs.use_launch("a") else {
            panic!("there is one");
        };
        let used = used.metadata().expect("open");
        let more = NextLaunch::RecordsMore { own: MORE + 1 };
        packs
            .after_replay("a", &used, end(more, None))
            .expect("ours");
        assert!(matches!(packs.use_launch("a"), KnownLaunch::Nothing));
        keep(&packs, &[("1", SMALL), ("2", SMALL)]);
        // Another length: what was learned of this file before does not count.
        keep(&packs, &[("2", SMALL + 1)]);
        let known = packs.profile("a").expect("kept");
        assert_eq!(known.files().len(), 2);
        let pages = |name: &str| {
            let demand = known.demand_by_file();
            let at = known.files().iter().position(|f| f.path == Path::new(name));
            at.and_then(|at| demand.get(at)).map(|demand| demand.0)
        };
        assert_eq!((pages("1"), pages("2")), (Some(512), Some(513)));
        packs.forget("a").expect("ours");
        assert_eq!(fs::read_dir(&packs.path).expect("ours").count(), 0);
    }

    #[test]
    fn a_recording_knows_how_many_were_before() {
        let (_dir, packs) = packs();
        let earlier = || packs.begin_recording("a").expect("ours");
        assert_eq!(earlier(), 0);
        keep(&packs, &[("0", SMALL)]);
        assert_eq!(earlier(), 1);
        // It adds nothing.
        keep(&packs, &[("0", SMALL)]);
        assert_eq!(earlier(), 1);
    }

    #[test]
    fn a_recording_that_adds_nothing_is_not_repeated() {
        let (_dir, packs) = packs();
        keep(&packs, &[("0", SMALL)]);
        assert!(!reads(&packs, MORE));
        assert!(reads(&packs, MORE + 100));
        keep(&packs, &[("0", SMALL)]);
        // It uses up nothing.
        assert_eq!(packs.profile("a").map(|known| known.runs()), Some(1));
        assert_eq!(packs.list().expect("a list")[0].settled, Some(MORE + 100));
        assert!(!reads(&packs, MORE + 100));
        assert!(!reads(&packs, 2 * MORE + 100));
        // Something was installed that it reads, too.
        assert!(reads(&packs, 2 * MORE + 101));
        keep(&packs, &[("0", SMALL), ("1", SMALL)]);
        assert!(reads(&packs, MORE + 1));
    }

    #[test]
    fn the_little_that_a_recording_adds_is_kept() {
        let (_dir, packs) = packs();
        let large = ("0", SMALL * 4);
        keep(&packs, &[large]);
        let own = SMALL * 4;
        assert!(reads(&packs, own));
        keep(&packs, &[large, ("1", PAGE)]);
        let known = packs.profile("a").expect("kept");
        assert_eq!((known.files().len(), known.runs()), (2, 2));
        // It is too little to be worth another recording.
        assert_eq!(packs.list().expect("a list")[0].settled, Some(own));
        assert!(!reads(&packs, own));
        // A start looks at the new profile, not at that of before.
        let sample = fs::read(packs.path.join("a.sample")).expect("kept");
        assert_eq!(sample, Sample::of(&known).to_bytes());
    }

    #[test]
    fn a_profile_comes_after_what_belongs_to_it() {
        let profile = profile(&[("0", SMALL)]);
        for (kind, wholeness) in [
            ("sample", Wholeness::Whole),
            ("more", Wholeness::WithGaps { read: 0 }),
        ] {
            let (_dir, packs) = packs();
            let there = packs.path.join(format!("a.{kind}"));
            // No file takes the place of a directory.
            fs::create_dir(&there).expect("room");
            let keep = || {
                let (of, program) = (LearnedOf::Program, Path::new("/usr/bin/app"));
                let recording = ObservedLaunch {
                    wholeness,
                    ..whole(&profile)
                };
                packs.keep_profile("a", of, program, recording, 1 << 20)
            };
            assert!(keep().is_err(), "{kind}");
            assert!(packs.profile("a").is_none(), "{kind}");
            fs::remove_dir(&there).expect("ours");
            keep().expect("room");
            assert!(packs.profile("a").is_some(), "{kind}");
            assert!(there.is_file(), "{kind}");
        }
    }

    #[test]
    fn a_recording_with_gaps_is_repeated_until_it_adds_next_to_nothing() {
        let (_dir, packs) = packs();
        let keep_as = |files: &[(&str, u64)], wholeness| {
            let began = packs.begin_recording("a");
            began.expect("ours");
            let (of, program) = (LearnedOf::Program, Path::new("/usr/bin/app"));
            let profile = profile(files);
            let recording = ObservedLaunch {
                wholeness,
                ..self::whole(&profile)
            };
            let kept = packs.keep_profile("a", of, program, recording, 1 << 20);
            kept.expect("room");
            matches!(packs.use_launch("a"), KnownLaunch::Incomplete(..))
        };
        let keep = |files: &[(&str, u64)], whole: bool| {
            keep_as(
                files,
                match whole {
                    true => Wholeness::Whole,
                    false => Wholeness::WithGaps { read: 0 },
                },
            )
        };
        let large = ("0", SMALL * 4);
        assert!(keep(&[large], false));
        assert!(keep(&[large, ("1", SMALL)], false));
        // Less than a twentieth.
        assert!(!keep(&[large, ("2", PAGE)], false));
        assert_eq!(packs.list().expect("a list")[0].settled, None);
        // What it has added is kept.
        let names = || packs.profile("a").expect("kept").files().len();
        assert_eq!(names(), 3);
        // A whole one stands for itself.
        keep_as(&[("3", SMALL)], Wholeness::Beginning);
        assert_eq!(names(), 4);
        assert!(keep(&[("4", SMALL * 4)], false));
        assert!(!keep(&[("3", SMALL)], true));
        assert_eq!(names(), 1);
        // Its gaps may have all that it reads, and the first ones anything.
        packs.forget("a").expect("ours");
        let little = profile(&[("0", 1)]);
        let (of, program) = (LearnedOf::Program, Path::new("/usr/bin/app"));
        for (read, is_small) in [(0, false), (SMALL, false), (SMALL - 1, true)] {
            let recording = ObservedLaunch {
                wholeness: Wholeness::WithGaps { read },
                ..whole(&little)
            };
            let kept = packs.keep_profile("a", of, program, recording, 1 << 20);
            kept.expect("room");
            let known = packs.use_launch("a");
            assert_eq!(
                matches!(known, KnownLaunch::LeftAlone(LeftAlone::Small)),
                is_small,
                "{known:?}"
            );
        }
        // Not for ever.
        packs.forget("a").expect("ours");
        let names: Vec<_> = (0..MOST_LAUNCHES).map(|n| n.to_string()).collect();
        for (launch, name) in (1..).zip(&names) {
            assert_eq!(keep(&[(name, SMALL)], false), launch < MOST_LAUNCHES);
        }
        assert!(packs.list().expect("a list")[0].is_full);
    }

    #[test]
    fn a_program_that_was_installed_anew_is_looked_at_again() {
        let (_dir, packs) = packs();
        let program = packs.path.join("app");
        fs::write(&program, "").expect("room");
        let file = File::options().write(true).open(&program).expect("ours");
        for (of, name, command) in [
            (LearnedOf::Program, &program, "app"),
            (LearnedOf::Directory, &packs.path, "app"),
            // As the root of the launch, or in another place of the system.
            (LearnedOf::Directory, &packs.path, "/app"),
            (
                LearnedOf::Directory,
                &packs.path,
                &*program.to_string_lossy(),
            ),
        ] {
            let little = profile_of(command, &[("0", 1)]);
            let earlier = SystemTime::now() - Duration::from_secs(5);
            file.set_modified(earlier).expect("ours");
            let kept = packs.keep_profile("a", of, name, whole(&little), 1 << 20);
            kept.expect("room");
            assert!(matches!(
                packs.use_launch("a"),
                KnownLaunch::LeftAlone(LeftAlone::Small)
            ));
            let later = SystemTime::now() + Duration::from_secs(5);
            // Programs write into their directory, so that says nothing.
            let directory = File::open(&packs.path).expect("ours");
            directory.set_modified(later).expect("ours");
            assert!(matches!(packs.use_launch("a"), KnownLaunch::LeftAlone(_)));
            file.set_modified(later).expect("ours");
            assert!(matches!(packs.use_launch("a"), KnownLaunch::Nothing));
            packs.forget("a").expect("ours");
        }
    }

    #[test]
    fn a_program_that_reads_little_is_left_alone_until_it_reads_more() {
        let (_dir, packs) = packs();
        let keep = |len| {
            let (of, program) = (LearnedOf::Program, Path::new("/usr/bin/app"));
            packs
                .keep_profile("a", of, program, whole(&profile(&[("0", len)])), 1 << 20)
                .expect("room");
        };
        let age = |age: Duration| {
            let small = File::open(packs.path.join("a.small")).expect("there");
            let old = SystemTime::now() - age - Duration::from_secs(1);
            small.set_modified(old).expect("ours");
        };
        keep(SMALL - 1);
        assert!(matches!(packs.use_launch("a"), KnownLaunch::Profile(..)));
        keep(SMALL - PAGE);
        assert!(matches!(
            packs.use_launch("a"),
            KnownLaunch::LeftAlone(LeftAlone::Small)
        ));
        let list = packs.list().expect("a list");
        assert_eq!(
            (list[0].of, list[0].left_alone),
            (LearnedOf::Program, Some(LeftAlone::Small))
        );
        assert_eq!(list[0].image.as_deref(), Some(Path::new("/usr/bin/app")));
        age(SMALL_FOR);
        assert!(matches!(packs.use_launch("a"), KnownLaunch::Nothing));
        // The longer it stays so, the less often it is looked at.
        for times in [4, 16, 64] {
            keep(PAGE);
            age(SMALL_FOR * (times - 1));
            assert!(
                matches!(
                    packs.use_launch("a"),
                    KnownLaunch::LeftAlone(LeftAlone::Small)
                ),
                "{times}"
            );
            age(SMALL_FOR * times);
            assert!(
                matches!(packs.use_launch("a"), KnownLaunch::Nothing),
                "{times}"
            );
        }
        assert_eq!(small_for(u64::MAX), SMALL_AT_MOST);
        keep(SMALL);
        assert!(matches!(packs.use_launch("a"), KnownLaunch::Profile(..)));
    }

    #[test]
    fn a_program_that_the_disk_gives_in_a_short_time_is_left_alone() {
        let (_dir, packs) = packs();
        // A profile of what is not there takes no time, so its root has to be.
        let root = packs.path.clone();
        let builder = ProfileBuilder::new();
        let id = builder.add_root(&root, RootKind::Directory);
        builder.range(id, 0, 0, 4 * SMALL, Duration::ZERO);
        let built = builder.finish(Vec::new(), None, |_, _| Some(Named::new("app", 4 * SMALL)));
        let profile = built.expect("a profile").profile;
        let keep = |milliseconds: u64, of, wholeness| {
            packs.begin_recording("a").expect("ours");
            let number = std::num::NonZeroU64::new;
            let charge = DiskCharge {
                bytes_per_second: number(4 * SMALL * 1000 / milliseconds),
                operations_per_second: number(u64::MAX),
            };
            let recording = ObservedLaunch {
                profile: &profile,
                wholeness,
                charge,
            };
            let kept = packs.keep_profile("a", of, Path::new("/usr/bin/app"), recording, 1 << 20);
            kept.expect("room");
            let why = packs.list().expect("a list")[0].left_alone;
            let known = packs.use_launch("a");
            match known {
                KnownLaunch::LeftAlone(known) => assert_eq!(Some(known), why),
                _ => assert_eq!(why, None, "{known:?}"),
            }
            why
        };
        let (program, directory) = (LearnedOf::Program, LearnedOf::Directory);
        let (short, long) = (SHORT.as_millis() as u64 - 1, SHORT.as_millis() as u64 + 1);
        let gaps = Wholeness::WithGaps { read: 0 };
        let more = Wholeness::WithGaps {
            read: 4 * SMALL + 1,
        };
        // The first recording with gaps may have missed anything.
        assert_eq!(keep(short, program, gaps), None);
        // The second adds nothing.
        assert_eq!(keep(short, program, gaps), Some(LeftAlone::Short));
        assert_eq!(keep(short, program, more), None);
        assert_eq!(keep(long, program, Wholeness::Whole), None);
        assert_eq!(keep(long, directory, Wholeness::Whole), None);
        for (times, of) in (1..).zip([program, directory, program]) {
            let why = keep(short, of, Wholeness::Whole);
            assert_eq!(why, Some(LeftAlone::Short));
            assert_eq!(packs.left_alone("a"), Some((times, LeftAlone::Short)));
        }
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        let (dir, packs) = packs();
        fs::set_permissions(&packs.path, fs::Permissions::from_mode(0o755)).expect("ours");
        let refused = LearnedPacks::open(&dir.path().join("a/hot")).expect_err("refused");
        assert_eq!(
            refused.to_string(),
            format!(
                "cannot keep learned hot packs: {} can be entered by others, allowed is a directory \
                 of yours with mode 0700; move it away",
                packs.path.display()
            )
        );
    }
}
